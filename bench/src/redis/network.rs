//! A way to the server that takes time, as between two machines.
//!
//! On one machine a round trip is nothing but the time to wake two processes, and whatever wakes a third takes a multiple of it. Where servers
//! are elsewhere, most of a round trip is on the way, and what counts is how often the way is gone.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::Done;

/// How long every message takes, each way: half of a round trip inside of a data centre.
const ONE_WAY: Duration = Duration::from_micros(250);

/// Opens a port from which everything reaches the server later, and everything comes back later. It is there until the process ends.
pub(crate) fn to(server: SocketAddr) -> Done<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming() {
            // Whoever has no way to the server sees its connection closed.
            let _ = client.and_then(|client| connect(client, server));
        }
    });
    Ok(address)
}

fn connect(client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let (requests, answers) = ((client.try_clone()?, server.try_clone()?), (server, client));
    for (from, to) in [requests, answers] {
        thread::spawn(move || carry(from, to));
    }
    Ok(())
}

/// One message at a time, which is how all of them come here.
fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut text = [0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut text) {
        thread::sleep(ONE_WAY);
        if to.write_all(&text[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}
