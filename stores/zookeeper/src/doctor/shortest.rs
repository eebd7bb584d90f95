//! The shortest session that a server allows: it shows in the answer to whoever asks for a shorter one.
//!
//! The client crate gives up on a server that does not let it in within two fifths of the session that was asked for: some
//! milliseconds, if one asks for a very short one, in which a busy server may not even have written the session to its disk. So
//! the question is asked by hand, with the time that every request has.

use std::io;
use std::time::Duration;

use futures_util::future::select_ok;
use leasehold_core::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Config;
use crate::link::connect_for;

/// Shorter than any server allows.
const ASKED: Duration = Duration::from_millis(1);

/// `None` if no server says it in time.
pub(super) async fn shortest_session(config: &Config, clock: &Clock) -> Option<Duration> {
    if config.tls().is_some() {
        return by_trying(config, clock).await;
    }
    let asking = config.hosts().iter().map(|(host, port)| Box::pin(ask(host, *port)));
    let (shortest, _) = tokio::time::timeout(config.timeout(), select_ok(asking)).await.ok()?.ok()?;
    Some(shortest)
}

/// Begins a session and ends it at once.
async fn ask(host: &str, port: u16) -> io::Result<Duration> {
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(&hello()).await?;
    let mut answer = vec![0; length(stream.read_i32().await?)?];
    stream.read_exact(&mut answer).await?;
    // If this gets lost, the session ends by itself, soon.
    let _ = stream.write_all(&GOODBYE).await;
    granted(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A request for a new session: its length, the protocol's version, the last zxid seen, the time, no id, no password, not
/// read-only.
fn hello() -> Vec<u8> {
    let mut body = Vec::with_capacity(49);
    body.extend(45_i32.to_be_bytes());
    body.extend(0_i32.to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.extend((ASKED.as_millis() as i32).to_be_bytes());
    body.extend(0_i64.to_be_bytes());
    body.extend(16_i32.to_be_bytes());
    body.extend([0; 17]);
    body
}

/// The request that ends a session: its length, number 1, kind -11.
const GOODBYE: [u8; 12] = [0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5];

/// An answer to a hello is 37 bytes long. Whoever says much more is no ZooKeeper.
fn length(said: i32) -> io::Result<usize> {
    usize::try_from(said)
        .ok()
        .filter(|length| *length <= 1024)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The time in an answer: behind the protocol's version.
fn granted(answer: &[u8]) -> Option<Duration> {
    let time = i32::from_be_bytes(*answer.get(4..)?.first_chunk()?);
    u64::try_from(time).ok().filter(|time| *time > 0).map(Duration::from_millis)
}

/// Over an encrypted connection only the crate can ask: for longer and longer sessions, until it had time enough. An answer that is
/// longer than what was asked is the shortest; one that is not tells nothing.
async fn by_trying(config: &Config, clock: &Clock) -> Option<Duration> {
    let begun = clock.now();
    let mut asked = Duration::from_millis(20);
    while clock.now().since(begun) < config.timeout() {
        if let Ok(life) = connect_for(config, asked, clock).await {
            return (life.timeout > asked).then_some(life.timeout);
        }
        asked = asked * 3 / 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_nonsense_is_not() {
        let mut answer = vec![0, 0, 0, 0, 0, 0, 0x0f, 0xa0];
        answer.resize(37, 7);
        assert_eq!(granted(&answer), Some(Duration::from_secs(4)));
        for bad in [&[][..], &[0; 7], &[0; 37], &[0xff; 37]] {
            assert_eq!(granted(bad), None, "{bad:?}");
        }
        assert!(length(37).is_ok() && length(-1).is_err() && length(i32::MAX).is_err());
        assert_eq!(hello().len(), 49);
    }
}
