//! What kind of server answers at an address.
//!
//! A client that speaks to a server of another kind sees an odd answer, a closed connection, or nothing at all, because each
//! waits for the other. So where a first connection fails for no clear reason, or takes long, a few questions are asked on
//! connections of their own, each of which one kind of server answers in a way that no other does. Nothing is asked of a
//! server that was connected to before.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use std::{fmt, io};

use leasehold_core::{Error, Kind, Result, Retry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// How long a connection may take before the address is looked at.
const SLOW: Duration = Duration::from_secs(1);

/// How long a server that speaks first has for it.
const GREETING: Duration = Duration::from_millis(400);

/// How long a server has for an answer.
const ANSWER: Duration = Duration::from_millis(600);

/// What a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// Redis, and what is compatible with it.
    Redis,
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    /// ZooKeeper.
    ZooKeeper,
    /// Anything over TLS.
    Tls,
    /// HTTP.
    Http,
    /// SSH.
    Ssh,
    /// Connections are accepted, and nothing is ever said.
    Silence,
    /// Connections are accepted, and closed without a word.
    HangsUp,
    /// Something else.
    Unknown,
}

impl Protocol {
    /// What a URL for it starts with.
    fn scheme(self) -> Option<&'static str> {
        match self {
            Protocol::Redis => Some("redis"),
            Protocol::Postgres => Some("postgres"),
            Protocol::MySql => Some("mysql"),
            Protocol::ZooKeeper => Some("zookeeper"),
            _ => None,
        }
    }

    /// What it answers to at once. Nothing, where it speaks first.
    fn question(self) -> &'static [u8] {
        match self {
            Protocol::Redis | Protocol::Http => LINE,
            Protocol::Postgres => POSTGRES,
            Protocol::ZooKeeper => ZOOKEEPER,
            Protocol::Tls => CLIENT_HELLO,
            _ => b"",
        }
    }

    /// How its encrypted form is asked for, where that is a matter of another port.
    fn encrypted(self) -> Option<&'static str> {
        match self {
            Protocol::Redis => Some("rediss://"),
            Protocol::ZooKeeper => Some("zookeeper+tls://"),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Redis => "a Redis server",
            Protocol::Postgres => "a PostgreSQL server",
            Protocol::MySql => "a MySQL or MariaDB server",
            Protocol::ZooKeeper => "a ZooKeeper server",
            Protocol::Tls => "a server that speaks TLS",
            Protocol::Http => "an HTTP server",
            Protocol::Ssh => "an SSH server",
            Protocol::Silence => "a server that says nothing",
            Protocol::HangsUp => "a server that hangs up",
            Protocol::Unknown => "a server of an unknown kind",
        })
    }
}

/// A server to be connected to for the first time.
#[derive(Debug, Clone, Copy)]
pub struct First<'a> {
    /// What it should be.
    pub expected: Protocol,
    /// Whether it should speak that over TLS from the first byte on.
    pub encrypted: bool,
    /// Where it is: the addresses that are tried.
    pub hosts: &'a [(String, u16)],
    /// How long connecting may take.
    pub limit: Duration,
    /// Whether the error of a failed connection says itself why a server of the expected kind is silent or hangs up. Then only a server
    /// of another kind takes its place.
    pub explained: bool,
}

impl First<'_> {
    /// Connects. If that fails, or takes long, and something else than the expected server answers, the error says what.
    /// `answered` says of an error that the expected server sent it.
    ///
    /// Ends within the limit, and a little, if `connecting` does.
    pub async fn connect<T, E: From<Error>>(
        &self,
        connecting: impl Future<Output = Result<T, E>>,
        answered: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let end = Instant::now() + self.limit;
        let mut connecting = std::pin::pin!(connecting);
        let mut seen = None;
        let looking = async {
            sleep(SLOW.min(self.limit / 4)).await;
            match seen.insert(self.stranger(end).await) {
                // The right one may just be slow, so nothing is said of silence before the time is over.
                Some(error) if error.retry_advice() == Retry::Never => error.clone(),
                _ => std::future::pending().await,
            }
        };
        let failed = tokio::select! {
            biased;
            made = &mut connecting => match made {
                Ok(made) => return Ok(made),
                Err(error) if answered(&error) => return Err(error),
                Err(error) => error,
            },
            stranger = looking => return Err(stranger.into()),
        };
        let stranger = match seen {
            Some(stranger) => stranger,
            None => self.stranger(end).await,
        };
        let says_more = |stranger: &Error| !self.explained || stranger.retry_advice() == Retry::Never;
        Err(stranger.filter(says_more).map_or(failed, E::from))
    }

    /// What is wrong with what answers, if that can be found out in time. `None` if it is the server that was expected, or
    /// nothing answers at all.
    async fn stranger(&self, end: Instant) -> Option<Error> {
        let mut mute = None;
        for (host, port) in self.hosts {
            let left = end.saturating_duration_since(Instant::now()).max(GREETING);
            let Some(found) = self.look_at(host, *port, left / 2).await else { continue };
            let is_right = found == self.expected || (self.encrypted && found == Protocol::Tls);
            match found {
                _ if is_right => return None,
                Protocol::Unknown => {}
                Protocol::Silence | Protocol::HangsUp => {
                    mute = mute.or_else(|| Some(self.mute(host, *port, found)));
                }
                found => return Some(self.wrong(host, *port, found)),
            }
        }
        mute
    }

    async fn look_at(&self, host: &str, port: u16, limit: Duration) -> Option<Protocol> {
        let expected = if self.encrypted { Protocol::Tls } else { self.expected };
        identify(host, port, expected, limit).await
    }

    fn wrong(&self, host: &str, port: u16, found: Protocol) -> Error {
        let at = address(host, port);
        let advice = match (found, found.scheme(), self.expected.encrypted()) {
            (Protocol::Tls, _, Some(encrypted)) => {
                format!("check the port; with encryption, write {encrypted}")
            }
            (_, Some(scheme), _) => format!("check the port, or write {scheme}://{at}"),
            _ => "check the host and the port".to_owned(),
        };
        let what = format!("what answers at {at} is {found}, and not {}", self.expected);
        Error::new(Kind::Invalid, what).advice(advice).retry(Retry::Never)
    }

    fn mute(&self, host: &str, port: u16, found: Protocol) -> Error {
        let at = address(host, port);
        let (what, advice) = match found {
            Protocol::HangsUp => ("closed the connection without a word".to_owned(), "does it let us in"),
            _ => {
                (format!("accepts connections, but does not answer within {:?}", self.limit), "does it hang")
            }
        };
        Error::new(Kind::Unavailable, format!("what listens at {at} {what}"))
            .advice(format!("{advice}, and is it {}?", self.expected))
            .retry(Retry::Later)
    }
}

fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Finds out what answers at an address. Takes not much longer than the limit, and next to nothing if it is what is
/// expected: that may have come up just now, and is to be connected to once more. `None` if connections are not
/// accepted.
async fn identify(host: &str, port: u16, expected: Protocol, limit: Duration) -> Option<Protocol> {
    let (greeting, answer) = (GREETING.min(limit / 3), ANSWER.min(limit / 3));
    // What is said to it first of all is nothing: some speak first.
    let questions = [b"", expected.question()];
    let questions = if questions[1].is_empty() { &questions[..1] } else { &questions };
    let first = match ask_all(host, port, questions, greeting).await {
        Ok(found) => return Some(found),
        Err(answers) => answers,
    };
    let unasked = first.first()?.as_ref()?;
    if unasked.closed && unasked.said.is_empty() {
        return Some(Protocol::HangsUp);
    }
    // Two that read lines answer to the first. The others ask for nothing that the right server would have to remember.
    let then = match ask_all(host, port, &[LINE, POSTGRES, ZOOKEEPER, CLIENT_HELLO], answer).await {
        Ok(found) => return Some(found),
        Err(answers) => answers,
    };
    let said_nothing = first.iter().chain(&then).flatten().all(Answer::is_none);
    Some(if said_nothing { Protocol::Silence } else { Protocol::Unknown })
}

/// Asks all of these at the same time, each on a connection of its own. Ends as soon as one answer says what it is,
/// else with all answers: `None` where a connection was not accepted.
async fn ask_all(
    host: &str,
    port: u16,
    questions: &[&'static [u8]],
    time: Duration,
) -> Result<Protocol, Vec<Option<Answer>>> {
    let mut asking: Vec<_> = questions
        .iter()
        .map(|question| (*question, Box::pin(ask(host, port, question, time)), None))
        .collect();
    poll_fn(|context| {
        for (question, asking, ended) in &mut asking {
            if ended.is_some() {
                continue;
            }
            if let Poll::Ready(answer) = asking.as_mut().poll(context) {
                let answer = answer.ok();
                if let Some(found) = answer.as_ref().and_then(|answer| recognized(question, &answer.said)) {
                    return Poll::Ready(Ok(found));
                }
                *ended = Some(answer);
            }
        }
        if asking.iter().any(|(_, _, ended)| ended.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(Err(asking.iter_mut().map(|(_, _, ended)| ended.take().flatten()).collect()))
    })
    .await
}

/// A line that Redis takes for a command with a wrong argument, and HTTP for a request with an unknown method.
const LINE: &[u8] = b"PING / HTTP/1.0\r\n\r\n";

/// PostgreSQL: is there encryption?
const POSTGRES: &[u8] = &[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// ZooKeeper: about the server. One that may not tell says that too.
const ZOOKEEPER: &[u8] = b"srvr";

/// The smallest beginning of a TLS connection. Any answer to it, most often a refusal, is one in TLS.
const CLIENT_HELLO: &[u8] = &{
    let mut hello = [0_u8; 5 + 4 + 2 + 32 + 1 + 2 + 2 + 2];
    // A record with a handshake, of TLS 1.0, as all clients write it; in it a ClientHello of TLS 1.2.
    (hello[0], hello[1], hello[2], hello[4]) = (0x16, 3, 1, 45);
    (hello[5], hello[8], hello[9], hello[10]) = (1, 41, 3, 3);
    // Behind 32 bytes of noise and no session: one cipher, one compression.
    (hello[45], hello[46], hello[47], hello[48]) = (2, 0xc0, 0x2f, 1);
    hello
};

/// What says such a thing when it is asked that. `None` if it is not certain.
fn recognized(question: &[u8], said: &[u8]) -> Option<Protocol> {
    let starts = |with: &[&str]| with.iter().any(|with| said.starts_with(with.as_bytes()));
    let contains = |text: &[u8]| said.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text));
    match said {
        // One byte says that it knows what encryption is, and whether it has it.
        [b'S' | b'N'] if question == POSTGRES => Some(Protocol::Postgres),
        // A packet of at most 64 KiB, the first: a greeting of version 10, or an error.
        [_, _, 0, 0, 10 | 0xff, ..] => Some(Protocol::MySql),
        // An alert or a handshake of SSL 3 or TLS.
        [0x15 | 0x16, 3, 0..=4, ..] => Some(Protocol::Tls),
        _ if starts(&["HTTP/"]) => Some(Protocol::Http),
        _ if starts(&["SSH-"]) => Some(Protocol::Ssh),
        _ if starts(&["+PONG", "-ERR ", "-NOAUTH ", "-DENIED ", "-LOADING ", "-MASTERDOWN ", "-NOPERM "]) => {
            Some(Protocol::Redis)
        }
        _ if contains(b"zookeeper") || contains(b"not in the whitelist") => Some(Protocol::ZooKeeper),
        _ => None,
    }
}

/// What came back on a connection.
#[derive(Debug, Default)]
struct Answer {
    /// The beginning of what was said.
    said: Vec<u8>,
    /// Whether the other side closed the connection.
    closed: bool,
}

impl Answer {
    fn is_none(&self) -> bool {
        self.said.is_empty() && !self.closed
    }
}

/// Says something on a connection of its own, and returns what comes back in time.
async fn ask(host: &str, port: u16, question: &[u8], time: Duration) -> io::Result<Answer> {
    let mut stream = timeout(time, TcpStream::connect((host, port))).await??;
    let mut answer = Answer::default();
    let talk = async {
        stream.write_all(question).await?;
        let mut part = [0; 512];
        // The first bytes are enough for all but the words of a server that may not tell.
        while answer.said.len() < 64 && recognized(question, &answer.said).is_none() {
            match stream.read(&mut part).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => answer.said.extend(&part[..more]),
            }
        }
        io::Result::Ok(())
    };
    let ended = timeout(time, talk).await;
    answer.closed = matches!(ended, Ok(Err(_)));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;

    use super::*;

    /// Listens, answers to this question with that, and tells of everything it was asked, one message a connection.
    fn server(question: &'static [u8], answer: &'static [u8]) -> (u16, mpsc::Receiver<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, tell) = (stream.unwrap(), tell.clone());
                std::thread::spawn(move || {
                    let (mut said, mut part) = (Vec::new(), [0; 512]);
                    while let Ok(more @ 1..) = stream.read(&mut part) {
                        said.extend(&part[..more]);
                        if said == question {
                            let _ = stream.write_all(answer);
                        }
                    }
                    let _ = tell.send(said);
                });
            }
        });
        (port, told)
    }

    /// `--try` gives a server that starts a second, and wants to connect once more.
    #[tokio::test]
    async fn the_right_server_is_asked_nothing_more_once_it_has_answered() {
        for (expected, question, answer) in [
            (Protocol::Redis, LINE, &b"-ERR wrong"[..]),
            (Protocol::Postgres, POSTGRES, b"N"),
            (Protocol::ZooKeeper, ZOOKEEPER, b"Zookeeper version: 3.9"),
        ] {
            let (port, told) = server(question, answer);
            let hosts = [("127.0.0.1".to_owned(), port)];
            let limit = Duration::from_secs(5);
            let first = First { expected, encrypted: false, hosts: &hosts, limit, explained: false };
            let failed = async { Err::<(), _>(Error::new(Kind::Unavailable, "connection refused")) };
            let error = first.connect(failed, |_| false).await.unwrap_err();
            assert_eq!(error.what(), "connection refused");
            // All connections are closed by now, or will be at once.
            let ends = Duration::from_secs(1);
            let asked: Vec<_> = std::iter::from_fn(|| told.recv_timeout(ends).ok()).collect();
            assert!(asked.iter().all(|said| said.is_empty() || said == question), "{asked:?}");
        }
    }

    #[tokio::test]
    async fn another_server_is_named_by_the_one_question_that_it_answers() {
        for (found, question, answer) in [
            (Protocol::Redis, LINE, &b"-NOAUTH "[..]),
            (Protocol::Postgres, POSTGRES, b"S"),
            (Protocol::ZooKeeper, ZOOKEEPER, b"srvr is not executed because it is not in the whitelist."),
            (Protocol::Tls, CLIENT_HELLO, &[0x15, 3, 3, 0, 2]),
        ] {
            let (port, _told) = server(question, answer);
            let hosts = [("127.0.0.1".to_owned(), port)];
            let (expected, limit) = (Protocol::MySql, Duration::from_secs(5));
            let first = First { expected, encrypted: false, hosts: &hosts, limit, explained: false };
            let failed = async { Err::<(), _>(Error::new(Kind::Unavailable, "odd")) };
            let error = first.connect(failed, |_| false).await.unwrap_err();
            assert!(error.what().contains(&found.to_string()), "{found}: {error}");
        }
    }
}
