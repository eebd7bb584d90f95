//! Requests that leave at once, each in its packet.
//!
//! The client crate leaves Nagle's algorithm on, so the kernel may hold the second of two requests until the first one is
//! acknowledged: create and list, asked together, would take two round trips. The crate has no option for it and hides its
//! socket. On Linux a process can ask the kernel for copies of its own sockets, without any `unsafe`, and set the option by
//! such a copy. Where that is not possible all works as well, a little later.

use std::net::SocketAddr;

/// Sees to it soon, for all connections of this process to these servers. Never fails, and nobody waits for it.
///
/// It costs a look at every open file of the process, and belongs after a connection was made.
pub(crate) fn ask_for(hosts: &[(String, u16)]) {
    let hosts = hosts.to_vec();
    // Names are looked up, and a process may have many files.
    tokio::task::spawn_blocking(move || {
        use std::net::ToSocketAddrs as _;
        let addresses = hosts.iter().filter_map(|host| (host.0.as_str(), host.1).to_socket_addrs().ok());
        let servers: Vec<SocketAddr> = addresses.flatten().collect();
        let set = set(&servers);
        tracing::trace!(target: "leasehold", ?set, "TCP_NODELAY");
    });
}

/// Sets it on all connections to these servers. How many there were, if that could be found out.
#[cfg(target_os = "linux")]
fn set(servers: &[SocketAddr]) -> std::io::Result<usize> {
    use rustix::net::{getpeername, sockopt::set_tcp_nodelay};
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    let ourselves = pidfd_open(getpid(), PidfdFlags::empty())?;
    let mut count = 0;
    for file in std::fs::read_dir("/proc/self/fd")?.flatten() {
        // Only sockets are copied: the end of a copy of a file would end the locks that this process has on it.
        let is_socket = std::fs::read_link(file.path())
            .is_ok_and(|to| to.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        let number = file.file_name().to_str().and_then(|number| number.parse().ok());
        let Some(number) = number.filter(|_| is_socket) else { continue };
        // It may have been closed since, or replaced by something else.
        let Ok(socket) = pidfd_getfd(&ourselves, number, PidfdGetfdFlags::empty()) else { continue };
        let Ok(Some(peer)) = getpeername(&socket) else { continue };
        let is_ours = SocketAddr::try_from(peer).is_ok_and(|peer| servers.contains(&peer));
        if is_ours && set_tcp_nodelay(&socket, true).is_ok() {
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(not(target_os = "linux"))]
fn set(_: &[SocketAddr]) -> std::io::Result<usize> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connection() -> (TcpListener, TcpStream) {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(server.local_addr().expect("an address")).expect("a connection");
        (server, client)
    }

    #[test]
    fn connections_to_the_servers_are_found_and_no_others() {
        let ((ours, client), (_theirs, other)) = (connection(), connection());
        assert!(!client.nodelay().expect("an option"), "it is off by default");
        assert_eq!(set(&[ours.local_addr().expect("an address")]).expect("sockets"), 1);
        assert!(client.nodelay().expect("an option"));
        assert!(!other.nodelay().expect("an option"));
    }
}
