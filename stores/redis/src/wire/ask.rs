//! One question to a server, on a connection of its own.

use leasehold_core::{Error, Kind, Result, Retry};
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::check::{self, Expected};
use super::dial::{Purpose, dial};
use super::trouble::{self, Verdict};
use crate::config::Server;

/// Connects, asks, and hangs up.
pub(crate) async fn ask(server: &Server, expected: Expected, cmd: &Cmd, deadline: Instant) -> Result<Value> {
    let mut dialed = dial(server, Purpose::Commands, deadline).await?;
    check::greet(&mut dialed.conn, server, expected, deadline).await?;
    dialed.conn.set_response_timeout(deadline.saturating_duration_since(Instant::now()));
    match dialed.conn.send_packed_command(cmd).await {
        Ok(Value::ServerError(e)) => Err(match trouble::judge(&e, &server.address) {
            Verdict::Again(e) | Verdict::NotMaster(e) | Verdict::Failed(e) => e,
            _ => Error::new(Kind::Unavailable, format!("the server {} sent us away", server.address))
                .retry(Retry::Later),
        }),
        Ok(value) => Ok(value),
        // As if it had failed before: a question changes nothing.
        Err(e) => Err(trouble::on_connect(&server.address, &e)),
    }
}
