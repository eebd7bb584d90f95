//! A tiny blocking Redis client, good enough for tests: one command, one answer, RESP2.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take. Enough for a command that the server works on for a while.
const LIMIT: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Status(String),
    /// `-ERR …`, without the dash.
    Error(String),
    /// A number.
    Int(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Nothing there.
    Nil,
    /// A list.
    Array(Vec<Reply>),
}

/// Written the way `redis-cli` writes it to a pipe: the elements of a list in lines, nothing as an empty line.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Status(text) | Reply::Error(text) => f.write_str(text),
            Reply::Int(number) => write!(f, "{number}"),
            Reply::Bulk(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Reply::Nil => Ok(()),
            Reply::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        f.write_str("\n")?;
                    }
                    write!(f, "{item}")?;
                }
                Ok(())
            }
        }
    }
}

impl Reply {
    /// The elements of a list; none for anything else.
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            _ => &[],
        }
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A connection to a Redis server, or to whatever else speaks RESP.
pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
}

impl Connection {
    /// Connects by TCP.
    pub fn tcp(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Connection { stream: BufReader::new(Box::new(stream)) })
    }

    /// Connects by a unix socket.
    pub fn unix(path: &Path) -> io::Result<Connection> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Connection { stream: BufReader::new(Box::new(stream)) })
    }

    /// Sends a command and reads its answer. An error that the server reports is an answer: [`Reply::Error`].
    pub fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.send(words)?;
        self.read()
    }

    /// Sends a command.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        self.stream.get_mut().write_all(&encode(words))
    }

    /// Reads the next answer.
    pub fn read(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (sort, rest) = line.split_at_checked(1).ok_or_else(|| strange(&line))?;
        let number = || rest.parse::<i64>().map_err(|_| strange(&line));
        Ok(match sort {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()?),
            "$" | "*" if number()? < 0 => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            "*" => Reply::Array((0..number()?).map(|_| self.read()).collect::<io::Result<_>>()?),
            _ => return Err(strange(&line)),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
        }
    }
}

/// A command as an array of bulk strings.
pub fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn strange(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an answer of Redis: {line:?}"))
}
