//! Whether servers can be reached, and why not: the client crate only says that none let us in.
//!
//! Asked are the servers themselves, by the four letter word that every server answers unless it was told not to. What is found here
//! passes by itself, or is the operator's to mend; what the URL has wrong (a login, a chroot) is found by the session.

use std::fmt;
use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::Config;

/// How long a server may take to answer a question about itself.
const ANSWER: Duration = Duration::from_secs(1);

/// How one server stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It serves, or there is no way to tell.
    Perhaps,
    /// Its name has no address.
    Unknown(String),
    /// Nothing listens at its port.
    Refuses,
    /// It says nothing.
    Silent,
    /// It runs, and does not serve.
    NotServing,
    /// It closes connections as soon as they are there.
    Full,
    /// The system can't connect to it.
    Failed(String),
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reach::Perhaps => f.write_str("it did not let us in"),
            Reach::Unknown(why) => write!(f, "its address is not known ({why})"),
            Reach::Refuses => f.write_str("it refuses connections: it does not run, or is just starting"),
            Reach::Silent => f.write_str("it does not answer"),
            Reach::NotServing => f.write_str("it is just starting, or its ensemble has no leader"),
            Reach::Full => f.write_str(
                "it closes new connections at once: there are as many as it allows from one host (maxClientCnxns)",
            ),
            Reach::Failed(why) => write!(f, "it can't be connected to ({why})"),
        }
    }
}

/// How each server stands, with its address, in the order of the URL.
pub(crate) async fn look(config: &Config) -> Vec<(String, Reach)> {
    let ask = config.tls().is_none();
    join_all(config.hosts().iter().map(|(host, port)| async move {
        let found = timeout(ANSWER, lookup_host((host.as_str(), *port))).await;
        let reach = match found {
            Ok(Err(error)) => Reach::Unknown(error.to_string()),
            Ok(Ok(_)) => of_server(host, *port, ask).await,
            Err(_) => Reach::Unknown("the name is being looked up for too long".into()),
        };
        (format!("{host}:{port}"), reach)
    }))
    .await
}

/// What is in the way at each server.
pub(crate) fn in_words(servers: &[(String, Reach)]) -> String {
    let each: Vec<String> = servers.iter().map(|(server, reach)| format!("{server}: {reach}")).collect();
    each.join("; ")
}

async fn of_server(host: &str, port: u16, ask: bool) -> Reach {
    let mut stream = match timeout(ANSWER, TcpStream::connect((host, port))).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => return Reach::Refuses,
        Ok(Err(error)) => return Reach::Failed(error.to_string()),
        Err(_) => return Reach::Silent,
    };
    if !ask {
        // A port for encrypted connections has no ear for questions.
        return Reach::Perhaps;
    }
    let mut said = Vec::new();
    let talking = async {
        stream.write_all(b"srvr").await?;
        stream.take(1024).read_to_end(&mut said).await
    };
    match timeout(ANSWER, talking).await {
        // A server that has too many connections may also reset this one.
        Ok(_) if said.is_empty() => Reach::Full,
        Err(_) if said.is_empty() => Reach::Silent,
        _ if String::from_utf8_lossy(&said).contains("not currently serving requests") => Reach::NotServing,
        _ => Reach::Perhaps,
    }
}
