//! The floor of a hand-off: a script publishes a message, and another process reads it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use leasehold::Clock;

use crate::Done;
use crate::measure::nanos;
use crate::processes::{OtherSide, SETTLE, answer};

const CHANNEL: &str = "floor";

/// About as long as the message of a hand-off.
const TEXT: &str = "0123456789012345678901234567890123456789012345678901234567890123";

/// Nanoseconds from before the script is sent to when the message has arrived.
pub(crate) fn hand_offs(address: SocketAddr, times: usize) -> Done<Vec<f64>> {
    let mut server = connect(&address.to_string())?;
    let script = format!("redis.call('PUBLISH', '{CHANNEL}', ARGV[1]) return 1");
    ask(&mut server, &["EVAL", &script, "0", TEXT])?;
    let digest = ask(&mut server, &["SCRIPT", "LOAD", &script])?;
    let digest = digest.lines().nth(1).ok_or("no digest")?.to_owned();
    let mut other = OtherSide::start("message", &address.to_string())?;
    // It says when it listens.
    other.entered()?;
    let mut latencies = Vec::with_capacity(times);
    for _ in 0..times {
        other.go()?;
        std::thread::sleep(SETTLE);
        ask(&mut server, &["PING"])?;
        let sent = Clock::system().now();
        ask(&mut server, &["EVALSHA", &digest, "0", TEXT])?;
        latencies.push(nanos(other.entered()?.since(sent)));
    }
    Ok(latencies)
}

/// What the other process does.
pub(crate) fn receive(address: &str) -> Done {
    let mut server = connect(address)?;
    ask(&mut server, &["SUBSCRIBE", CHANNEL])?;
    println!("{}", Clock::system().now().0);
    answer(|| {
        heard(&mut server)?;
        Ok(Clock::system().now())
    })
}

fn connect(address: &str) -> Done<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn ask(server: &mut TcpStream, words: &[&str]) -> Done<String> {
    let parts: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    server.write_all(format!("*{}\r\n{parts}", words.len()).as_bytes())?;
    heard(server)
}

/// One read: everything here is short, and comes alone.
fn heard(server: &mut TcpStream) -> Done<String> {
    let mut text = [0; 1024];
    let length = server.read(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}
