//! Whether a connection leads to the server itself, or to a pooler that may lend us another one for every transaction.
//!
//! A server tells every connection the number of the process that serves it, by which a statement can be cancelled. A pooler has to answer
//! such requests itself, so it makes up numbers of its own. If the process that runs our statements has the number that we were told, there
//! is no pooler, or one that stays with us.
//!
//! The driver tells the number nobody but whom it asks to cancel a statement. So it is let to ask us.

use std::future::{Ready, ready};
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::tls::Carried;

/// More than a request has.
const ROOM: usize = 64;

/// The code of a request for encryption. It comes first where the connection is encrypted.
const ENCRYPTION: i32 = 80_877_103;

/// Asks the server for the number of the process, and compares.
pub(crate) async fn is_direct(client: &Client) -> Result<bool, tokio_postgres::Error> {
    let messages = client.simple_query("SELECT pg_backend_pid()").await?;
    let serving = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    Ok(serving.is_some() && serving == told(client).await)
}

/// The number that the connection was told.
async fn told(client: &Client) -> Option<i32> {
    let (theirs, mut ours) = duplex(ROOM);
    let token = client.cancel_token();
    let (asked, read) = tokio::join!(token.cancel_query_raw(theirs, InPlain), read(&mut ours));
    asked.ok()?;
    read.ok()
}

/// Reads a request to cancel: its length, its code, the number of the process, and a secret.
async fn read(request: &mut DuplexStream) -> io::Result<i32> {
    let _length = request.read_i32().await?;
    if request.read_i32().await? == ENCRYPTION {
        request.write_all(b"S").await?;
        let (_length, _code) = (request.read_i32().await?, request.read_i32().await?);
    }
    request.read_i32().await
}

/// Encrypts nothing: what is asked here leaves the program by no wire.
struct InPlain;

impl TlsConnect<DuplexStream> for InPlain {
    type Stream = Carried<DuplexStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Stream>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Carried(stream)))
    }
}
