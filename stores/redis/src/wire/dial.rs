//! From an address to an open connection.
//!
//! The socket is opened here and not by redis-rs: so an error can name the address, every address of a host gets its turn,
//! small packets leave at once, and the task that drives the connection is ours to watch and to end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, Kind, Result, Retry};
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use super::task::Task;
use super::trouble;
use crate::config::{Address, Server};

/// How many requests can wait to be written. The queue takes memory as it fills, and whoever finds it full waits for the
/// writer: more than the tasks of a busy program, so that nobody does.
const QUEUE: usize = 4096;

/// An open connection, and the task that drives it: the connection is closed when the task is dropped.
pub(crate) struct Dialed {
    pub(crate) conn: MultiplexedConnection,
    pub(crate) driver: Task,
}

/// What the connection is for.
pub(crate) enum Purpose {
    /// Commands and their answers. Nobody has logged in yet.
    Commands,
    /// Messages, each handed to the sender in the task that drives the connection. Logged in.
    Pushes(Arc<dyn AsyncPushSender>),
}

/// Opens a connection. Nothing was asked on it yet, except a login where pushes need it.
pub(crate) async fn dial(server: &Server, purpose: Purpose, deadline: Instant) -> Result<Dialed> {
    match &server.address {
        Address::Unix(path) => {
            let open = timeout_at(deadline, UnixStream::connect(path)).await;
            let stream = flat(open).map_err(|e| refused(server, e))?;
            drive(server, stream, purpose, deadline).await
        }
        Address::Tcp { host, port } => {
            let stream = tcp(server, host, *port, deadline).await?;
            secure(server, host, stream, purpose, deadline).await
        }
    }
}

/// Encrypts the stream if the server wants it so.
#[cfg(feature = "tls")]
async fn secure(
    server: &Server,
    host: &str,
    stream: TcpStream,
    purpose: Purpose,
    deadline: Instant,
) -> Result<Dialed> {
    match &server.tls {
        None => drive(server, stream, purpose, deadline).await,
        Some(tls) => {
            let stream = super::tls::encrypt(&server.address, tls, host, stream, deadline).await?;
            drive(server, stream, purpose, deadline).await
        }
    }
}

/// Without the feature, no URL of an encrypted server gets through [`Config`](crate::Config).
#[cfg(not(feature = "tls"))]
async fn secure(
    server: &Server,
    _host: &str,
    stream: TcpStream,
    purpose: Purpose,
    deadline: Instant,
) -> Result<Dialed> {
    if server.tls.is_some() {
        return Err(Error::new(Kind::Invalid, "this program was built without TLS")
            .advice("build it with the feature `tls` of leasehold-redis"));
    }
    drive(server, stream, purpose, deadline).await
}

/// Tries the addresses of a host one after the other. One that does not answer must not take the time of all.
async fn tcp(server: &Server, host: &str, port: u16, deadline: Instant) -> Result<TcpStream> {
    let found = timeout_at(deadline, tokio::net::lookup_host((host, port))).await;
    let addresses: Vec<SocketAddr> = flat(found).map_err(|e| unknown_host(host, e))?.collect();
    let mut last = None;
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(1);
        match connect(*address, share).await {
            Ok(stream) => return Ok(stream),
            Err(e) => last = Some(e),
        }
    }
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    Err(refused(server, last.unwrap_or_else(none)))
}

async fn connect(address: SocketAddr, time: Duration) -> io::Result<TcpStream> {
    let stream = flat(tokio::time::timeout(time, TcpStream::connect(address)).await)?;
    // A command is one small packet that someone waits for.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Hands the stream to redis-rs and spawns what drives it.
async fn drive<S>(server: &Server, stream: S, purpose: Purpose, deadline: Instant) -> Result<Dialed>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Every call sets its own limit; this one is for none.
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
    let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
    let (info, config) = match purpose {
        Purpose::Commands => (bare.set_protocol(ProtocolVersion::RESP2), config),
        Purpose::Pushes(sender) => (logged_in(server, bare)?, config.set_push_sender(sender)),
    };
    let made = timeout_at(deadline, MultiplexedConnection::new_with_config(&info, stream, config)).await;
    match made {
        Ok(Ok((conn, driver))) => Ok(Dialed { conn, driver: Task::spawn(driver) }),
        Ok(Err(e)) => Err(trouble::on_connect(&server.address, &e)),
        Err(_) => Err(trouble::no_answer(&server.address)),
    }
}

/// redis-rs takes a sender of pushes only if it switches the protocol itself, and the login comes with the switch.
fn logged_in(server: &Server, info: RedisConnectionInfo) -> Result<RedisConnectionInfo> {
    let mut info = info.set_protocol(ProtocolVersion::RESP3);
    if let Some(password) = &server.login.password {
        info = info.set_username(server.login.user.as_deref().unwrap_or("default"));
        info = info.set_password(password.read()?.reveal());
    }
    Ok(info)
}

fn flat<T>(outcome: Result<io::Result<T>, tokio::time::error::Elapsed>) -> io::Result<T> {
    outcome.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")))
}

fn refused(server: &Server, e: io::Error) -> Error {
    let advice = match e.kind() {
        io::ErrorKind::ConnectionRefused => "is the server running, and is this its port?",
        io::ErrorKind::NotFound => "is the server running, and is this its socket?",
        io::ErrorKind::PermissionDenied => "may this user open the socket?",
        _ => "is the address right, and does a firewall let us through?",
    };
    Error::new(Kind::Unavailable, format!("can't connect to {}", server.address))
        .because(e)
        .advice(advice)
        .retry(Retry::Later)
}

fn unknown_host(host: &str, e: io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("can't find the host {host:?}"))
        .because(e)
        .advice("check its name, and that this machine can resolve names")
        .retry(Retry::Later)
}
