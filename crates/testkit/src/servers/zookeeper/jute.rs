//! A tiny client for ZooKeeper's protocol (Jute): one request, one answer. It looks at nodes, plants some, and takes over
//! sessions.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No answer takes this long from a server that is well.
const LIMIT: Duration = Duration::from_secs(10);

/// Numbers of the requests.
pub mod op {
    #![allow(missing_docs)]
    /// The first message of a connection has no number; the proxy counts it as this.
    pub const CONNECT: i32 = 0;
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const MULTI_READ: i32 = 22;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SASL: i32 = 102;
    pub const SET_WATCHES2: i32 = 105;
    pub const ADD_WATCH: i32 = 106;
    pub const CLOSE: i32 = -11;
}

/// What kind of node is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It stays.
    Persistent = 0,
    /// It goes with its session.
    Ephemeral = 1,
    /// It stays, and its name ends in a number.
    PersistentSequential = 2,
    /// It goes with its session, and its name ends in a number.
    EphemeralSequential = 3,
    /// It goes some time after its last child.
    Container = 4,
}

/// What a server knows of a node, as far as tests ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The transaction that made it.
    pub czxid: i64,
    /// The transaction that wrote it last.
    pub mzxid: i64,
    /// How often its data was written.
    pub version: i32,
    /// How often its children changed.
    pub cversion: i32,
    /// The session that it goes with; 0 if it stays. Nothing here tells a container from others that stay.
    pub owner: i64,
    /// How many children it has.
    pub children: i32,
}

/// A connection with a session.
pub struct Jute {
    stream: TcpStream,
    session: i64,
    timeout: Duration,
    xid: i32,
}

impl Jute {
    /// Connects with a new session.
    pub fn connect(server: SocketAddr, timeout: Duration) -> io::Result<Jute> {
        Self::open(server, timeout, 0, [0; 16])
    }

    /// Takes a session over, from whoever has it. `NotFound` if it is no more.
    ///
    /// The password needn't be known: a server makes it from the id, and every server the same.
    pub fn resume(server: SocketAddr, session: i64) -> io::Result<Jute> {
        Self::open(server, Duration::from_secs(10), session, password(session))
    }

    fn open(server: SocketAddr, timeout: Duration, session: i64, password: [u8; 16]) -> io::Result<Jute> {
        let stream = TcpStream::connect_timeout(&server, LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut jute = Jute { stream, session, timeout, xid: 0 };
        let mut hello = Writer::default();
        hello.int(0).long(0).int(timeout.as_millis() as i32).long(session).bytes(&password).bool(false);
        jute.write(hello)?;
        let answer = jute.read()?;
        let mut answer = Reader(&answer);
        answer.int()?;
        let granted = answer.int()?;
        jute.session = answer.long()?;
        if granted <= 0 || jute.session == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the session is no more"));
        }
        jute.timeout = Duration::from_millis(granted as u64);
        Ok(jute)
    }

    /// The id of the session.
    pub fn session(&self) -> i64 {
        self.session
    }

    /// How long the server granted the session to be silent.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Logs in by a scheme such as `digest` (`user:password`).
    pub fn log_in(&mut self, scheme: &str, who: &str) -> io::Result<()> {
        let mut body = Writer::default();
        body.int(0).text(scheme).bytes(who.as_bytes());
        self.ask(op::AUTH, body).and_then(|answer| answer.expect("log in")).map(drop)
    }

    /// Makes a node that everybody may change; gives its path.
    pub fn create(&mut self, path: &str, data: &[u8], kind: Kind) -> io::Result<String> {
        let mut body = Writer::default();
        body.text(path).bytes(data);
        body.int(1).int(31).text("world").text("anyone").int(kind as i32);
        let op = if kind == Kind::Container { op::CREATE_CONTAINER } else { op::CREATE };
        let answer = self.ask(op, body)?.expect(path)?;
        Reader(&answer).text()
    }

    /// Deletes a node. False if there is none.
    pub fn delete(&mut self, path: &str) -> io::Result<bool> {
        let mut body = Writer::default();
        body.text(path).int(-1);
        Ok(self.ask(op::DELETE, body)?.unless_missing(path)?.is_some())
    }

    /// The data of a node, if it exists.
    pub fn data(&mut self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let mut body = Writer::default();
        body.text(path).bool(false);
        let answer = self.ask(op::GET_DATA, body)?.unless_missing(path)?;
        answer.map(|answer| Reader(&answer).bytes()).transpose()
    }

    /// Overwrites the data of a node. False if there is none.
    pub fn set_data(&mut self, path: &str, data: &[u8]) -> io::Result<bool> {
        let mut body = Writer::default();
        body.text(path).bytes(data).int(-1);
        Ok(self.ask(op::SET_DATA, body)?.unless_missing(path)?.is_some())
    }

    /// What the server knows of a node, if it exists.
    pub fn stat(&mut self, path: &str) -> io::Result<Option<Stat>> {
        let mut body = Writer::default();
        body.text(path).bool(false);
        let answer = self.ask(op::EXISTS, body)?.unless_missing(path)?;
        answer.map(|answer| Reader(&answer).stat()).transpose()
    }

    /// The names of a node's children, if it exists.
    pub fn children(&mut self, path: &str) -> io::Result<Option<Vec<String>>> {
        let mut body = Writer::default();
        body.text(path).bool(false);
        let Some(answer) = self.ask(op::GET_CHILDREN, body)?.unless_missing(path)? else { return Ok(None) };
        let mut answer = Reader(&answer);
        (0..answer.int()?).map(|_| answer.text()).collect::<io::Result<_>>().map(Some)
    }

    /// Waits until this server has seen all that the leader had.
    pub fn sync(&mut self, path: &str) -> io::Result<()> {
        let mut body = Writer::default();
        body.text(path);
        self.ask(op::SYNC, body)?.expect(path).map(drop)
    }

    /// Ends the session. Its ephemeral nodes go.
    pub fn close(&mut self) -> io::Result<()> {
        self.ask(op::CLOSE, Writer::default())?.expect("close").map(drop)
    }

    fn ask(&mut self, op: i32, body: Writer) -> io::Result<Answer> {
        self.xid += 1;
        // A log-in has a number of its own.
        let xid = if op == op::AUTH { -4 } else { self.xid };
        let mut request = Writer::default();
        request.int(xid).int(op);
        request.0.extend(body.0);
        self.write(request)?;
        loop {
            let answer = self.read()?;
            let mut head = Reader(&answer);
            let (answered, _, error) = (head.int()?, head.long()?, head.int()?);
            if answered == xid {
                return Ok(Answer { error, body: head.0.to_owned() });
            }
        }
    }

    fn write(&mut self, message: Writer) -> io::Result<()> {
        let mut framed = (message.0.len() as i32).to_be_bytes().to_vec();
        framed.extend(message.0);
        self.stream.write_all(&framed)
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut message = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut message)?;
        Ok(message)
    }
}

/// What a server makes of the id of a session: the first 16 bytes of Java's `Random`, seeded with it.
fn password(session: i64) -> [u8; 16] {
    const SECRET: i64 = 0xB341_5C00;
    const FACTOR: i64 = 0x5_DEEC_E66D;
    const MASK: i64 = (1 << 48) - 1;
    let mut seed = (session ^ SECRET ^ FACTOR) & MASK;
    let mut password = [0; 16];
    for chunk in password.chunks_mut(4) {
        seed = seed.wrapping_mul(FACTOR).wrapping_add(0xB) & MASK;
        chunk.copy_from_slice(&((seed >> 16) as i32).to_le_bytes());
    }
    password
}

struct Answer {
    error: i32,
    body: Vec<u8>,
}

impl Answer {
    fn expect(self, what: &str) -> io::Result<Vec<u8>> {
        match self.error {
            0 => Ok(self.body),
            error => Err(io::Error::other(format!("{what}: error {error}"))),
        }
    }

    fn unless_missing(self, what: &str) -> io::Result<Option<Vec<u8>>> {
        const NO_NODE: i32 = -101;
        if self.error == NO_NODE { Ok(None) } else { self.expect(what).map(Some) }
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn bool(&mut self, value: bool) -> &mut Self {
        self.0.push(value.into());
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.int(value.len() as i32).0.extend(value);
        self
    }

    fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(*head)
    }

    fn int(&mut self) -> io::Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn long(&mut self) -> io::Result<i64> {
        self.take().map(i64::from_be_bytes)
    }

    /// A length of -1 is null.
    fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let length = self.int()?.max(0) as usize;
        let (head, rest) = self.0.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(head.to_owned())
    }

    fn text(&mut self) -> io::Result<String> {
        String::from_utf8(self.bytes()?).map_err(io::Error::other)
    }

    fn stat(&mut self) -> io::Result<Stat> {
        let (czxid, mzxid) = (self.long()?, self.long()?);
        let (_ctime, _mtime) = (self.long()?, self.long()?);
        let (version, cversion, _aversion) = (self.int()?, self.int()?, self.int()?);
        let (owner, _length, children) = (self.long()?, self.int()?, self.int()?);
        Ok(Stat { czxid, mzxid, version, cversion, owner, children })
    }
}
