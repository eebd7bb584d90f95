//! An open directory of the folder, and the one way to open what is in it.
//!
//! Every file is opened relative to a directory handle, by a name without a slash. No link is followed, nothing is
//! opened that is not of the expected kind, and nothing blocks. Permissions are set on what this process has just
//! created, and on nothing else. Where others can write, that is done in a staging directory of our own, before it
//! gets its name: what was created can't be told from what was put in its place by its name.
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

    /// Creates a directory; `None` if there is something of that name. `temporary` is a name that nothing else has.
    pub(crate) fn create_dir(&self, name: &str, temporary: &str) -> io::Result<Option<OwnedFd>> {
        let created = if self.sharing.is_shared() {
            self.create_staged(temporary, name, RenameFlags::NOREPLACE, |staging| {
                rustix::fs::mkdirat(staging, temporary, Mode::RWXU)?;
                let created = staging.open_dir(temporary)?;
                self.sharing.share(&created, self.sharing.dir_mode());
                Ok(created)
            })
        } else {
            rustix::fs::mkdirat(&self.fd, name, Mode::RWXU)
                .map_err(io::Error::from)
                .and_then(|()| self.open_dir(name))
        };
        match created {
            Err(e) if is(&e, Errno::EXIST) => Ok(None),
            created => created.map(Some),
        }
    }

    /// Creates something in a new directory that only this user can write to, where it has the same temporary name,
    /// and moves it here.
    ///
    /// Where others can write, they can put something else of ours in the place of what was just created by its name,
    /// and its permissions would be set. If they do so with the staging directory, then `create` works in another
    /// directory of ours that they can't write to, and moves what it has made out of it.
    fn create_staged<T>(
        &self,
        temporary: &str,
        name: &str,
        flags: RenameFlags,
        create: impl FnOnce(&Dir) -> io::Result<T>,
    ) -> io::Result<T> {
        rustix::fs::mkdirat(&self.fd, temporary, Mode::RWXU)?;
        #[cfg(test)]
        tests::meanwhile();
        let created = self.open_dir(temporary).and_then(|fd| {
            let stat = rustix::fs::fstat(&fd)?;
            if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
                return Err(unexpected("another user has put a directory in its place"));
            }
            let staging = Dir::new(fd, self.sharing);
            let named = |created| {
                rustix::fs::renameat_with(&staging, temporary, &self.fd, name, flags)?;
                Ok(created)
            };
            create(&staging).and_then(named).inspect_err(|_| {
                let _ = staging.remove(temporary).or_else(|_| staging.remove_dir(temporary));
            })
        });
        let _ = self.remove_dir(temporary);
        created
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

    /// Creates a FIFO, opens it at both of its ends, and only then gives it its name. `temporary` is a name that
    /// nothing else has.
    pub(crate) fn create_fifo(&self, name: &str, temporary: &str) -> io::Result<OwnedFd> {
        let mode = self.sharing.file_mode();
        if self.sharing.is_shared() {
            return self.create_staged(temporary, name, RenameFlags::empty(), |staging| {
                rustix::fs::mkfifoat(staging, temporary, mode)?;
                let fd = staging.open_fifo(temporary, OFlags::RDWR)?;
                self.sharing.share(&fd, mode);
                Ok(fd)
            });
        }
        rustix::fs::mkfifoat(&self.fd, temporary, mode)?;
        let opened = self.open_fifo(temporary, OFlags::RDWR);
        opened.and_then(|fd| Ok(self.rename(temporary, name).map(|()| fd)?)).inspect_err(|_| {
            let _ = self.remove(temporary);
        })
    }

    /// What is known of a name, without following it.
    pub(crate) fn stat(&self, name: &str) -> rustix::io::Result<Stat> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Removes a name that does not lead to a directory.
    pub(crate) fn remove(&self, name: &str) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
    }

    /// Removes a directory if it is empty.
    pub(crate) fn remove_dir(&self, name: &str) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use leasehold_core::SessionId;
    use rustix::fs::CWD;

    use crate::folder::{Folder, Place, Trust};
    use crate::wake::make_fifo;

    type Hook = Box<dyn FnMut()>;

    thread_local! {
        static MEANWHILE: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// What another process does between the creation of something and the next step.
    pub(super) fn meanwhile() {
        let hook = MEANWHILE.take();
        if let Some(mut hook) = hook {
            hook();
            MEANWHILE.set(Some(hook));
        }
    }

    /// From now on, whatever was just made in a directory changes places with `other`, which is in it too.
    fn swap_what_is_made_for(other: &Path) {
        let (dir, other) = (other.parent().unwrap().to_owned(), other.to_owned());
        let names = |dir: &Path| {
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        let before = names(&dir);
        MEANWHILE.set(Some(Box::new(move || {
            for made in names(&dir).iter().filter(|path| !before.contains(path)) {
                rustix::fs::renameat_with(CWD, made, CWD, &other, rustix::fs::RenameFlags::EXCHANGE).unwrap();
            }
        })));
    }

    fn open(path: &Path) -> leasehold_core::Result<Folder> {
        Folder::open(&Place { path: path.to_owned(), trust: Trust::Given }, SessionId(1))
    }

    fn shared() -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o770)).unwrap();
        // Only root can choose a group that it is not in.
        let _ = std::os::unix::fs::chown(temp.path(), None, Some(64_100));
        temp
    }

    #[test]
    fn a_directory_that_takes_the_place_of_a_new_one_is_not_opened_to_others() {
        let temp = shared();
        let private = temp.path().join(".private");
        std::fs::create_dir(&private).unwrap();
        std::fs::write(private.join("secret"), "").unwrap();
        std::fs::set_permissions(&private, PermissionsExt::from_mode(0o700)).unwrap();
        let (before, id) = (private.metadata().unwrap(), private.metadata().unwrap().ino());
        swap_what_is_made_for(&private);
        let _ = open(temp.path());
        MEANWHILE.take();
        let everything = std::fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap());
        let after = everything.map(|entry| entry.metadata().unwrap()).find(|meta| meta.ino() == id).unwrap();
        assert_eq!((after.mode(), after.gid()), (before.mode(), before.gid()));
    }

    #[test]
    fn a_fifo_that_takes_the_place_of_a_new_one_is_not_opened_to_others() {
        let temp = shared();
        let folder = open(temp.path()).unwrap();
        let private = temp.path().join("s/.private");
        rustix::fs::mkfifoat(CWD, &private, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        let (before, id) = (private.metadata().unwrap(), private.metadata().unwrap().ino());
        swap_what_is_made_for(&private);
        let _ = make_fifo(&folder, &folder.sessions, &SessionId(1).to_string());
        MEANWHILE.take();
        let everything = std::fs::read_dir(temp.path().join("s")).unwrap().map(|entry| entry.unwrap());
        let after = everything.map(|entry| entry.metadata().unwrap()).find(|meta| meta.ino() == id).unwrap();
        assert_eq!((after.mode(), after.gid()), (before.mode(), before.gid()));
    }
}
