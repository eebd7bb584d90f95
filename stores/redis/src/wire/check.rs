//! What is checked when a connection is opened: `HELLO` tells the version, the kind and the role of a
//! server, logs in, and is allowed to every user.

use leasehold_core::{Error, Kind, Result, Retry};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::time::Instant;

use super::trouble::{self, Verdict};
use crate::config::{Address, Server};

/// What a server is expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A master that is not part of a cluster.
    Master,
    /// The same, or a replica of one: to be looked at, not to be locked on.
    AnyRole,
    /// A master that is not part of a cluster, by what others say: it may be a replica for a moment.
    CurrentMaster,
    /// A node of a cluster, of any role.
    ClusterNode,
    /// A Sentinel.
    Sentinel,
}

/// The oldest version with sharded channels and with scripts as ours.
const OLDEST: u32 = 7;

/// The names of our connections in `CLIENT LIST`.
const CLIENT_NAME: &str = "leasehold";
const PUSH_NAME: &str = "leasehold-push";

/// What a server says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Greeting {
    version: String,
    mode: String,
    role: String,
}

/// Logs in, chooses the database, and refuses a server that can't be used. Returns the number of the server's process, if
/// our user may know it.
pub(crate) async fn greet(
    conn: &mut MultiplexedConnection,
    server: &Server,
    expected: Expected,
    deadline: Instant,
) -> Result<Option<String>> {
    let time = || deadline.saturating_duration_since(Instant::now());
    let failed = |e| trouble::on_connect(&server.address, &e);
    // On its own: a pipeline hides an answer that can't be read, and that is how other kinds of servers are known.
    conn.set_response_timeout(time());
    let greeting = match conn.send_packed_command(&hello(server)?).await.map_err(failed)? {
        Value::ServerError(e) if expected == Expected::Sentinel => {
            return Err(refusal(&server.address, &e)
                .advice("Sentinels have their own login: ?sentinel-user=…&sentinel-password-file=PATH"));
        }
        Value::ServerError(e) => return Err(refusal(&server.address, &e)),
        value => read(&value),
    };
    judge(&greeting, server, expected, conn).await?;
    let mut pipe = Pipeline::with_capacity(2);
    pipe.cmd("INFO").arg("server");
    if server.db != 0 {
        pipe.cmd("SELECT").arg(server.db);
    }
    conn.set_response_timeout(time());
    let mut answers = conn.send_packed_commands(&pipe, 0, pipe.len()).await.map_err(failed)?.into_iter();
    let process = answers.next().and_then(|info| run_id(&text(&info)));
    match answers.next() {
        Some(Value::ServerError(e)) => Err(refusal(&server.address, &e)),
        _ => Ok(process),
    }
}

/// The number that a server's process gave itself when it started.
fn run_id(info: &str) -> Option<String> {
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned())
}

fn hello(server: &Server) -> Result<Cmd> {
    let mut cmd = redis::cmd("HELLO");
    cmd.arg(2);
    if let Some(password) = &server.login.password {
        let user = server.login.user.as_deref().unwrap_or("default");
        cmd.arg("AUTH").arg(user).arg(password.read()?.reveal());
    }
    cmd.arg("SETNAME").arg(CLIENT_NAME);
    Ok(cmd)
}

/// Gives a connection for pushes its name.
pub(crate) async fn name_push(conn: &mut MultiplexedConnection) {
    // A connection without a name is as good.
    let _ = conn.send_packed_command(redis::cmd("HELLO").arg(3).arg("SETNAME").arg(PUSH_NAME)).await;
}

fn refusal(address: &Address, error: &redis::ServerError) -> Error {
    if error.details().is_some_and(|text| text.contains("unknown command")) {
        return too_old(address, "before 6.0");
    }
    match trouble::judge(error, address) {
        Verdict::Again(e) | Verdict::NotMaster(e) | Verdict::Failed(e) => e,
        _ => trouble::foreign(address, &RedisError::from(error.clone())),
    }
}

/// Reads the pairs of an answer to `HELLO`.
fn read(value: &Value) -> Greeting {
    let mut greeting = Greeting::default();
    let Value::Array(items) = value else { return greeting };
    for pair in items.chunks_exact(2) {
        let field = match text(&pair[0]).as_str() {
            "version" => &mut greeting.version,
            "mode" => &mut greeting.mode,
            "role" => &mut greeting.role,
            _ => continue,
        };
        *field = text(&pair[1]);
    }
    greeting
}

/// The text of a value, or nothing.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

async fn judge(
    greeting: &Greeting,
    server: &Server,
    expected: Expected,
    conn: &mut MultiplexedConnection,
) -> Result<()> {
    let address = &server.address;
    let Some(major) = greeting.version.split('.').next().and_then(|part| part.parse::<u32>().ok()) else {
        return Err(Error::new(Kind::Invalid, format!("what answers at {address} does not say its version"))
            .advice("check that it is a Redis server"));
    };
    let wrong = |what: &str, advice: &str| {
        Err(Error::new(Kind::Invalid, format!("the server {address} {what}")).advice(advice))
    };
    match (greeting.mode.as_str(), expected) {
        ("sentinel", expected) if expected != Expected::Sentinel => wrong(
            "is a Sentinel",
            "write redis+sentinel://host:port/master-name, or give the address of a server",
        ),
        (_, Expected::Sentinel) if greeting.mode != "sentinel" => {
            wrong("is not a Sentinel", "give the addresses of Sentinels: their port is usually 26379")
        }
        ("cluster", Expected::Master | Expected::CurrentMaster | Expected::AnyRole) => {
            wrong("is a node of a cluster", "write redis+cluster://host:port")
        }
        (mode, Expected::ClusterNode) if mode != "cluster" => {
            wrong("is not a node of a cluster", "write redis://host:port")
        }
        _ if major < OLDEST => Err(too_old(address, &greeting.version)),
        (_, Expected::Master) if greeting.role == "replica" => {
            Err(is_replica(address, master_of(conn).await))
        }
        (_, Expected::CurrentMaster) if greeting.role == "replica" => Err(is_replica(address, None)),
        _ => Ok(()),
    }
}

fn too_old(address: &Address, version: &str) -> Error {
    Error::new(Kind::Invalid, format!("the server {address} is too old: its version is {version}"))
        .advice("version 7.0 or later of Redis or Valkey is needed")
}

/// A replica may be made the master in a moment: behind a name that follows the master, by an orchestrator.
fn is_replica(address: &Address, master: Option<String>) -> Error {
    let of = master.map(|master| format!(" of {master}")).unwrap_or_default();
    Error::new(Kind::Refused, format!("the server {address} is a read-only replica{of}"))
        .advice("give the address of the master, or use redis+sentinel:// to follow it")
        .retry(Retry::Later)
}

/// Whose replica it is, if our user may ask.
async fn master_of(conn: &mut MultiplexedConnection) -> Option<String> {
    match role(conn).await {
        Some(Role::Replica(master)) => Some(master),
        _ => None,
    }
}

/// What a server is to others.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Master,
    /// A replica, and of whom.
    Replica(String),
}

/// Asks for the role. `None` if there was no answer, or our user may not ask.
pub(crate) async fn role(conn: &mut MultiplexedConnection) -> Option<Role> {
    match conn.send_packed_command(&redis::cmd("ROLE")).await {
        Ok(Value::Array(items)) => match (text(items.first()?).as_str(), items.get(1), items.get(2)) {
            ("master", ..) => Some(Role::Master),
            ("slave", Some(host), Some(Value::Int(port))) => {
                Some(Role::Replica(format!("{}:{port}", text(host))))
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_read_whatever_it_holds() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let value = Value::Array(vec![
            bulk("server"),
            bulk("redis"),
            bulk("version"),
            bulk("7.0.15"),
            Value::Nil,
            Value::Int(3),
            bulk("mode"),
            bulk("standalone"),
            bulk("role"),
        ]);
        let greeting = read(&value);
        assert_eq!((greeting.version.as_str(), greeting.mode.as_str()), ("7.0.15", "standalone"));
        assert_eq!(read(&Value::Okay), Greeting::default());
    }
}
