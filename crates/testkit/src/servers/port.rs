//! Ports that nobody else takes, also while their server is down.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A free loopback port, ours until it is dropped.
///
/// A socket stays bound to it and never listens. With `SO_REUSEADDR` on both, Linux lets the server listen on the same port,
/// but hands the port to nobody who asks for a free one: not to another test program, and not to an outgoing connection,
/// which could otherwise connect to itself when a client knocks at the port of a dead server often enough.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: Option<TcpSocket>,
}

impl Port {
    pub(crate) fn reserve() -> Port {
        let socket = TcpSocket::new_v4().expect("a socket");
        // Not before it is bound: a port that somebody else reserved this way is not free for us.
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        socket.set_reuseaddr(true).expect("SO_REUSEADDR");
        let number = socket.local_addr().expect("the address of a bound socket").port();
        // Elsewhere two sockets can't share a port this way: the server must be quick.
        Port { number, _held: cfg!(target_os = "linux").then_some(socket) }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}
