//! A user and a password.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_core::url::{Authority, StoreUrl};
use leasehold_core::{Error, Kind, Result, Retry};
use rustix::fs::OFlags;

/// More than any password has: a path that leads to something else must not fill the memory.
const LONGEST: u64 = 64 * 1024;

/// How long a pipe may take until its first line is complete. Nothing else goes on meanwhile, so it is short.
const PIPE_LIMIT: Duration = Duration::from_secs(2);

/// The parameters of a login.
pub const PARAMS: &[&str] = &["user", "password", "password-file"];

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text itself, for the server only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Where a password comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Password {
    /// The URL or the program.
    Given(Secret),
    /// The first line of this file. It is read for every connection, so that it can be replaced.
    File(PathBuf),
}

impl Password {
    /// The password as it is now.
    ///
    /// A file that is missing, empty or can't be read may be about to be replaced: such an error is [`Retry::Later`].
    pub fn read(&self) -> Result<Secret> {
        match self {
            Password::Given(secret) => Ok(secret.clone()),
            Password::File(path) => first_line(path).map_err(|e| {
                let error = unreadable(Kind::Unavailable, path, e).retry(Retry::Later);
                error.advice("it is read again for the next connection")
            }),
        }
    }

    /// What a parameter names. Something that can be read only once, such as a pipe, is read now.
    fn file(path: &str) -> Result<Password> {
        let found = std::path::absolute(path).and_then(|path| {
            if std::fs::metadata(&path)?.is_file() {
                // The path is right and the rights are; what is in it is a matter of each connection.
                open(&path)?;
                Ok(Password::File(path))
            } else {
                Ok(Password::Given(first_line_of_pipe(&path)?))
            }
        });
        found.map_err(|e| {
            let error = unreadable(Kind::Invalid, Path::new(path), e);
            error.advice("check its path, and that this user may read it")
        })
    }
}

/// Opens a file without waiting: a FIFO that nobody writes to would keep this thread, which may be the one that keeps
/// locks.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn first_line(path: &Path) -> io::Result<Secret> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file any more"));
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text)?;
    secret_in(text)
}

/// The first line of a pipe, a FIFO or a terminal, whose writer may need a moment.
fn first_line_of_pipe(path: &Path) -> io::Result<Secret> {
    let mut pipe = open(path)?;
    // One that was not opened for writing yet looks as one whose writer is gone.
    let may_come = pipe.metadata()?.file_type().is_fifo();
    let end = Instant::now() + PIPE_LIMIT;
    let (mut text, mut part) = (Vec::new(), [0; 1024]);
    while !text.contains(&b'\n') && (text.len() as u64) < LONGEST {
        match pipe.read(&mut part) {
            Ok(0) if !may_come || !text.is_empty() => break,
            Ok(len @ 1..) => {
                text.extend(&part[..len]);
                continue;
            }
            Ok(0) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        if Instant::now() >= end {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no line came within {PIPE_LIMIT:?}"),
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    secret_in(text)
}

fn secret_in(text: Vec<u8>) -> io::Result<Secret> {
    let text =
        String::from_utf8(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))?;
    match text.lines().next() {
        None | Some("") => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its first line is empty")),
        Some(line) => Ok(Secret::new(line)),
    }
}

fn unreadable(kind: Kind, path: &Path, e: io::Error) -> Error {
    Error::new(kind, format!("the password file {} can't be read", path.display())).because(e)
}

/// Who we are to a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Login {
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Password>,
}

impl Login {
    /// The login that stands before the host of a URL.
    pub fn of(authority: &Authority) -> Self {
        let password = authority.password.clone().map(|text| Password::Given(Secret::new(text)));
        Login { user: authority.user.clone(), password }
    }

    /// Adds what the parameters say: `user`, `password`, `password-file`, each with this prefix.
    pub fn with_params(mut self, url: &mut StoreUrl, prefix: &str) -> Result<Self> {
        if let Some(user) = url.take(&format!("{prefix}user")) {
            self.user = Some(user);
        }
        let given = url.take(&format!("{prefix}password")).map(|text| Password::Given(Secret::new(text)));
        let file =
            url.take(&format!("{prefix}password-file")).map(|path| Password::file(&path)).transpose()?;
        let mut passwords = [self.password.take(), given, file].into_iter().flatten();
        self.password = passwords.next();
        match passwords.next() {
            Some(_) => {
                Err(Error::new(Kind::Invalid, "the URL gives a password twice")
                    .advice("leave one of them away"))
            }
            None => Ok(self),
        }
    }

    /// What stands before the host in the URL as it may be printed, with the `@`. A user without a password is not
    /// shown, nor one with a colon: it may be a password that was written in the wrong way.
    pub fn shown(&self, escape: impl Fn(&str) -> String) -> String {
        let user = match self.user.as_deref().unwrap_or("") {
            user if user.contains(':') => "***".to_owned(),
            user => escape(user),
        };
        match &self.password {
            Some(Password::Given(_)) => format!("{user}:***@"),
            _ if user.is_empty() => String::new(),
            Some(Password::File(_)) => format!("{user}@"),
            None => "***@".to_owned(),
        }
    }

    /// The file of the password, if it is in one: a URL that is printed can name it.
    pub fn password_file(&self) -> Option<&Path> {
        match &self.password {
            Some(Password::File(path)) => Some(path),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(query: &str) -> Result<Login> {
        let mut url = StoreUrl::parse(&format!("x://bob@h?{query}")).unwrap();
        Login::of(&url.authority().unwrap()).with_params(&mut url, "")
    }

    #[test]
    fn a_password_file_is_read_anew_each_time() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |text: &str| std::fs::write(file.path(), text).unwrap();
        write("one\nmore\n");
        let login = login(&format!("password-file={}", file.path().display())).unwrap();
        assert_eq!(login.password_file(), Some(file.path()));
        let password = login.password.unwrap();
        assert_eq!(password.read().unwrap().reveal(), "one");
        write("two");
        assert_eq!(password.read().unwrap().reveal(), "two");
        for broken in ["", "\n", "\nthree"] {
            write(broken);
            let error = password.read().unwrap_err();
            assert_eq!((error.kind(), error.retry_advice()), (Kind::Unavailable, Retry::Later));
            assert!(error.to_string().contains(&*file.path().to_string_lossy()), "{error}");
            assert!(!format!("{error} {error:?}").contains("three"), "{error:?}");
        }
        let path = file.path().to_owned();
        drop(file);
        assert_eq!(password.read().unwrap_err().retry_advice(), Retry::Later);
        std::fs::write(&path, "four\r\n").unwrap();
        assert_eq!(password.read().unwrap().reveal(), "four");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_path_that_leads_nowhere_is_bad_input() {
        for path in ["/no/such/file", "/", "/dev/null"] {
            let error = login(&format!("password-file={path}")).unwrap_err();
            assert_eq!((error.kind(), error.retry_advice()), (Kind::Invalid, Retry::Never));
            assert!(error.to_string().contains(path) && error.advice_text().is_some(), "{error}");
        }
    }

    #[test]
    fn a_pipe_is_read_once() {
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"secret\n").unwrap();
        drop(writer);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let password = login(&format!("password-file=/dev/fd/{fd}")).unwrap().password.unwrap();
        for _ in 0..2 {
            assert_eq!(password.read().unwrap().reveal(), "secret");
        }
        assert!(!format!("{password:?}").contains("secret"));
    }

    fn fifo() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        (folder, path)
    }

    #[test]
    fn a_fifo_without_a_writer_is_not_waited_for_for_ever() {
        let (_folder, path) = fifo();
        let query = format!("password-file={}", path.display());
        let (done, waits) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(login(&query)));
        let error = waits.recv_timeout(PIPE_LIMIT * 10).expect("it ends").unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (Kind::Invalid, Retry::Never));
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }

    #[test]
    fn a_fifo_whose_writer_comes_a_little_later_is_read() {
        let (_folder, path) = fifo();
        let query = format!("password-file={}", path.display());
        // It keeps the FIFO open behind its line, which is enough.
        let writer = std::thread::spawn(move || {
            let mut writer = std::fs::File::options().write(true).open(path).unwrap();
            io::Write::write_all(&mut writer, b"sec").unwrap();
            io::Write::write_all(&mut writer, b"ret\nmore").unwrap();
            writer
        });
        assert_eq!(login(&query).unwrap().password.unwrap().read().unwrap().reveal(), "secret");
        drop(writer.join());
    }

    #[test]
    fn a_fifo_in_the_place_of_a_file_is_not_waited_for() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\n").unwrap();
        let password = login(&format!("password-file={}", file.path().display())).unwrap().password.unwrap();
        let (_folder, path) = fifo();
        std::fs::rename(path, file.path()).unwrap();
        let (done, waits) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(password.read()));
        let error = waits.recv_timeout(PIPE_LIMIT * 10).expect("it ends").unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (Kind::Unavailable, Retry::Later));
    }

    #[test]
    fn a_user_that_may_be_a_password_is_not_shown() {
        let file = concat!("password-file=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        for (query, shown) in [
            ("", "***@"),
            ("password=secret", "bob:***@"),
            (file, "bob@"),
            ("user=secret", "***@"),
            ("user=ann%3Asecret&password=x", "***:***@"),
        ] {
            assert_eq!(login(query).unwrap().shown(str::to_owned), shown, "{query}");
        }
    }

    #[test]
    fn one_password_is_enough() {
        let error = login("password=a&password-file=/dev/null").unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        let twice = StoreUrl::parse("x://bob:one@h?password=two").unwrap();
        let error = Login::of(&twice.authority().unwrap()).with_params(&mut twice.clone(), "").unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }
}
