//! An open directory of the folder, and the one way to open what is in it.
//!
//! Every file is opened relative to a directory handle, by a name without a slash. No link is followed, nothing is opened
//! that is not of the expected kind, and nothing blocks. Permissions are set on what this process has just created, and on
//! nothing else.
//!
//! In a directory that others can write to, a name can lead to anything at any moment. There the file is first opened
//! without touching it (`O_PATH`), its kind is checked, and then that very file is opened through `/proc/self/fd`: a device
//! or a FIFO in its place is never opened.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

/// How long a file may have a second name: on filesystems that can't rename without replacing, a new file has two for a moment.
const SECOND_NAME: Duration = Duration::from_millis(50);

/// Who else can write to the folder, and so to its directories and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sharing {
    group: Option<Gid>,
    everybody: bool,
}

impl Sharing {
    /// What the owner and mode of the folder say.
    pub(crate) fn of(base: &Stat) -> Self {
        let group = (base.st_mode & 0o020 != 0).then(|| Gid::from_raw(base.st_gid));
        Sharing { group, everybody: base.st_mode & 0o002 != 0 }
    }

    /// Whether anyone but the owner and root can write.
    pub(crate) fn is_shared(self) -> bool {
        self.group.is_some() || self.everybody
    }

    /// The permissions of files. A user who can't write gets none: a file that can be read can be locked, too.
    pub(crate) fn file_mode(self) -> Mode {
        self.mode(0o6)
    }

    /// The permissions of directories.
    pub(crate) fn dir_mode(self) -> Mode {
        self.mode(0o7)
    }

    fn mode(self, bits: u32) -> Mode {
        let group = if self.group.is_some() { bits << 3 } else { 0 };
        let everybody = if self.everybody { bits } else { 0 };
        Mode::from_raw_mode(bits << 6 | group | everybody)
    }

    /// Gives what this process has just created to those who share the folder, whatever its umask and its group are.
    pub(crate) fn share(self, created: impl AsFd, mode: Mode) {
        if !self.is_shared() {
            return;
        }
        // Only a member of the group may do this. Without it the file keeps our group, as before.
        if self.group.is_some() {
            let _ = rustix::fs::fchown(&created, None, self.group);
        }
        let _ = rustix::fs::fchmod(&created, mode);
    }
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    sharing: Sharing,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    pub(crate) fn new(fd: OwnedFd, sharing: Sharing) -> Self {
        Dir { fd, sharing }
    }

    pub(crate) fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Opens the directory itself, not a link to it.
    pub(crate) fn open_dir(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map_err(|e| self.explain(name, "a directory", e))
    }

    /// Creates a directory; `None` if there is something of that name.
    pub(crate) fn create_dir(&self, name: &str) -> io::Result<Option<OwnedFd>> {
        match rustix::fs::mkdirat(&self.fd, name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        let created = self.open_dir(name)?;
        if rustix::fs::fstat(&created)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(unexpected("another user has put a directory in its place"));
        }
        self.sharing.share(&created, self.sharing.dir_mode());
        Ok(Some(created))
    }

    /// Opens a regular file.
    pub(crate) fn open_file(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let fd = self.open(name, flags, FileType::RegularFile)?;
        if self.sharing.is_shared() {
            self.has_one_name(&fd)?;
        }
        Ok(fd)
    }

    /// Opens a FIFO.
    pub(crate) fn open_fifo(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        self.open(name, flags, FileType::Fifo)
    }

    /// Creates a regular file that all who share the folder can change, and opens it for reading and writing. Fails if there
    /// is something of that name.
    pub(crate) fn create_file(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        self.create_file_with(name, self.sharing.file_mode())
    }

    /// As [`create_file`](Self::create_file), with these permissions.
    pub(crate) fn create_file_with(&self, name: &str, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags | OFlags::NOATIME, mode)?;
        self.sharing.share(&fd, mode);
        Ok(fd)
    }

    /// Creates a FIFO, and opens it at both of its ends.
    pub(crate) fn create_fifo(&self, name: &str) -> io::Result<OwnedFd> {
        let mode = self.sharing.file_mode();
        rustix::fs::mkfifoat(&self.fd, name, mode)?;
        let fd = self.open_fifo(name, OFlags::RDWR)?;
        if rustix::fs::fstat(&fd)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(unexpected("another user has put a FIFO in its place"));
        }
        self.sharing.share(&fd, mode);
        Ok(fd)
    }

    /// What is known of a name, without following it.
    pub(crate) fn stat(&self, name: &str) -> rustix::io::Result<Stat> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Removes a name that does not lead to a directory.
    pub(crate) fn remove(&self, name: &str) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
    }

    /// Gives a file another name, and replaces what had it.
    pub(crate) fn rename(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
    }

    /// Gives a finished file its name, unless that name is taken ([`Errno::EXIST`]).
    pub(crate) fn settle(&self, temporary: &str, name: &str) -> rustix::io::Result<()> {
        match rustix::fs::renameat_with(&self.fd, temporary, &self.fd, name, RenameFlags::NOREPLACE) {
            // A filesystem that does not know the flag.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(&self.fd, temporary, &self.fd, name, AtFlags::empty())?;
                self.remove(temporary)
            }
            done => done,
        }
    }

    /// The names in it that are text: those of this store are.
    pub(crate) fn names(&self) -> rustix::io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            match entry?.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        Ok(names)
    }

    /// The content of a file of less than a page.
    pub(crate) fn read_small(&self, name: &str) -> io::Result<Vec<u8>> {
        let fd = self.open_file(name, OFlags::RDONLY)?;
        let mut content = vec![0; 4096];
        let len = rustix::io::pread(&fd, &mut content[..], 0)?;
        content.truncate(len);
        Ok(content)
    }

    fn open(&self, name: &str, flags: OFlags, kind: FileType) -> io::Result<OwnedFd> {
        // A FIFO or a terminal must neither block us nor become ours.
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = |flags| rustix::fs::openat(&self.fd, name, flags | OFlags::NOFOLLOW, Mode::empty());
        let failed = |e| self.explain(name, word(kind), e);
        if !self.sharing.is_shared() {
            let fd = opened(flags).map_err(failed)?;
            expect(&rustix::fs::fstat(&fd)?, kind)?;
            return Ok(fd);
        }
        let there = opened(OFlags::PATH | OFlags::CLOEXEC).map_err(failed)?;
        let stat = rustix::fs::fstat(&there)?;
        expect(&stat, kind)?;
        match rustix::fs::open(format!("/proc/self/fd/{}", there.as_raw_fd()), flags, Mode::empty()) {
            // No /proc: what was opened by its name must be what was looked at.
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let fd = opened(flags).map_err(failed)?;
                let again = rustix::fs::fstat(&fd)?;
                if (again.st_dev, again.st_ino) != (stat.st_dev, stat.st_ino) {
                    return Err(unexpected("it was replaced while it was opened"));
                }
                Ok(fd)
            }
            other => Ok(other?),
        }
    }

    /// A file that somebody has linked into this directory is not ours to write.
    fn has_one_name(&self, fd: &OwnedFd) -> io::Result<()> {
        let start = std::time::Instant::now();
        while rustix::fs::fstat(fd)?.st_nlink > 1 {
            if start.elapsed() > SECOND_NAME {
                return Err(unexpected("it is a hard link: the same file has another name"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The kernel's numbers for a link and for a thing of another kind mean several things each.
    fn explain(&self, name: &str, wanted: &str, e: Errno) -> io::Error {
        let kind = match e {
            Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::NXIO => self.stat(name).ok(),
            _ => None,
        };
        match kind.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            // A FIFO that nobody reads.
            Some(FileType::Fifo) if e == Errno::NXIO => e.into(),
            Some(kind) if word(kind) != wanted => not(kind, wanted),
            _ => e.into(),
        }
    }
}

fn expect(stat: &Stat, wanted: FileType) -> io::Result<()> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == wanted { Ok(()) } else { Err(not(kind, word(wanted))) }
}

fn not(kind: FileType, wanted: &str) -> io::Error {
    unexpected(&format!("it is {}, and {wanted} is expected there", word(kind)))
}

/// Something is in the folder that this store did not put there.
fn unexpected(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

/// Whether this is an error with this number.
pub(crate) fn is(e: &io::Error, number: Errno) -> bool {
    e.raw_os_error() == Some(number.raw_os_error())
}
