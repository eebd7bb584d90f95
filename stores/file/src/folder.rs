//! The tree of files, and whether it may be used.
//!
//! ```text
//! FOLDER/VERSION     the format of everything here
//! FOLDER/q/NAME      the queue of a lock
//! FOLDER/s/ID        the FIFO of a session
//! FOLDER/w/ID.PREFIX the FIFO of one who watches
//! FOLDER/watches     one byte for every watch that was ever begun
//! FOLDER/floor       the highest token of all queues that were removed
//! FOLDER/boot        the boot of the host in which the folder was last opened
//! FOLDER/swept       its time says when the folder was last swept
//! ```

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Error, Kind, Result, SessionId};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

/// Where a folder is, and how far it is to be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Absolute.
    pub(crate) path: PathBuf,
    /// Who chose it.
    pub(crate) trust: Trust,
}

/// Who chose a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The user: who may use it is the user's business.
    Given,
    /// The default in the user's runtime folder: it must be the user's own.
    Runtime,
    /// The default in the temporary folder, where anybody may have put something under this name.
    Temporary,
}

/// What is in the folder's `VERSION` file.
const VERSION: &str = "leasehold-file 1\n";

/// All that this store puts into its folder.
const OURS: [&str; 8] = ["VERSION", "q", "s", "w", "watches", "floor", "boot", "swept"];

/// An open folder. Its parts are reached through open directories, so that nothing depends on the current directory and a
/// lookup is short.
#[derive(Debug)]
pub(crate) struct Folder {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The folder itself. It stays locked (shared) while it is open: `systemd-tmpfiles` leaves locked folders alone.
    pub(crate) base: OwnedFd,
    /// Queue files.
    pub(crate) queues: OwnedFd,
    /// FIFOs of sessions.
    pub(crate) sessions: OwnedFd,
    /// FIFOs of watchers.
    pub(crate) watchers: OwnedFd,
    /// The permissions of files in it: those of the folder.
    pub(crate) mode: Mode,
    owner: SessionId,
    temporary: AtomicU64,
}

impl Folder {
    /// Creates the folder if there is none, checks it and opens it. `owner` makes the names of temporary files unique.
    pub(crate) fn open(place: &Place, owner: SessionId) -> Result<Self> {
        let path = place.path.clone();
        create(&path).map_err(|e| in_folder(&path, "can't be created", e))?;
        let base = open_base(place)?;
        let stat = rustix::fs::fstat(&base).map_err(|e| in_folder(&path, "can't be read", e))?;
        check_owner(place, &stat)?;
        check_filesystem(&path, &base)?;
        check_version(&path, &base, owner)?;
        // The worst that can happen without this lock is that a cleaner looks at the files, and they are too new for it.
        let _ = rustix::fs::flock(&base, FlockOperation::NonBlockingLockShared);
        let dir_mode = Mode::from_raw_mode(stat.st_mode & 0o777);
        let part = |name: &str| {
            open_part(&base, name, dir_mode)
                .map_err(|e| in_folder(&path.join(name), "can't be created or opened", e))
        };
        let (queues, sessions, watchers) = (part("q")?, part("s")?, part("w")?);
        let mode = Mode::from_raw_mode(stat.st_mode & 0o666);
        Ok(Folder { path, base, queues, sessions, watchers, mode, owner, temporary: AtomicU64::new(0) })
    }

    /// A name for a file that is not ready yet. Starts with a dot, as no other file here does.
    pub(crate) fn temporary_name(&self) -> String {
        format!(".{}-{}", self.owner, self.temporary.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a file of the folder itself, and creates it if it is missing.
    pub(crate) fn open_file(&self, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::APPEND;
        let fd = rustix::fs::openat(&self.base, name, flags, self.mode)
            .map_err(|e| in_folder(&self.path.join(name), "can't be opened", e))?;
        self.widen(&fd);
        Ok(fd)
    }

    /// Writes a whole file of the folder itself, so that a reader sees the old or the new one.
    pub(crate) fn replace_file(&self, name: &str, content: &[u8]) -> Result<()> {
        replace(&self.base, &self.temporary_name(), name, content, self.mode)
            .map_err(|e| in_folder(&self.path.join(name), "can't be written", e))
    }

    /// Gives a new file the folder's permissions where the umask took some away. It fails for files of other users, whose
    /// permissions are right already.
    pub(crate) fn widen(&self, fd: impl AsFd) {
        if !self.mode.intersection(Mode::RWXG | Mode::RWXO).is_empty() {
            let _ = rustix::fs::fchmod(fd, self.mode);
        }
    }
}

fn create(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).create(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        // Somebody was faster, or something else is there: opening it tells.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

fn open_base(place: &Place) -> Result<OwnedFd> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if place.trust == Trust::Temporary {
        flags |= OFlags::NOFOLLOW;
    }
    let path = &place.path;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOTDIR | Errno::LOOP if path.is_symlink() => refused(path, "is a symbolic link"),
        Errno::NOTDIR => in_folder(path, "is a file, not a folder", e),
        e => in_folder(path, "can't be read", e),
    })
}

fn check_owner(place: &Place, stat: &Stat) -> Result<()> {
    let me = rustix::process::geteuid().as_raw();
    match owner_trouble(place.trust, me, stat.st_uid, stat.st_mode) {
        None => Ok(()),
        Some(what) => Err(refused(&place.path, &what)),
    }
}

/// Why a folder with this owner and mode must not be used.
fn owner_trouble(trust: Trust, me: u32, owner: u32, mode: u32) -> Option<String> {
    match trust {
        Trust::Given => None,
        _ if owner != me => Some(format!("belongs to the user {owner}, and this is the user {me}")),
        _ if mode & 0o022 != 0 => Some(format!("can be written by others (mode {:03o})", mode & 0o777)),
        _ => None,
    }
}

fn check_filesystem(path: &Path, base: &OwnedFd) -> Result<()> {
    let stat = rustix::fs::fstatfs(base).map_err(|e| in_folder(path, "can't be read", e))?;
    // The kernel's word is signed on some machines; only its lower half means something.
    match network_filesystem(stat.f_type as u32) {
        None => Ok(()),
        Some(kind) => Err(Error::new(Kind::Invalid, format!("the folder {} is on a network filesystem ({kind})", path.display()))
            .advice("file locks here are for one host: choose a local folder, or a store that several hosts can reach")),
    }
}

/// The name of a network filesystem, by the number that the kernel gives it. A FUSE mount has the same number whether it is
/// local or not, so it can't be told.
fn network_filesystem(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "nfs",
        0x517b | 0xfe53_4d42 | 0xff53_4d42 => "smb",
        0x0102_1997 => "9p",
        0x00c3_6400 => "ceph",
        0x5346_414f | 0x6b41_4653 => "afs",
        0x7375_7245 => "coda",
        0x0000_564c => "ncp",
        0x0bd0_0bd0 => "lustre",
        0x0116_1970 => "gfs2",
        0x7461_636f => "ocfs2",
        0x4750_4653 => "gpfs",
        0x1983_0326 => "beegfs",
        0x2003_0528 => "orangefs",
        0x786f_4256 => "vboxsf",
        0xbacb_acbc => "vmhgfs",
        _ => return None,
    })
}

/// The version is the first thing written into a folder. One that has other things in it but no version is somebody else's.
fn check_version(path: &Path, base: &OwnedFd, owner: SessionId) -> Result<()> {
    let found = match read_small(base, "VERSION") {
        Ok(found) => found,
        Err(Errno::NOENT) => {
            check_foreign(path, base)?;
            let temporary = format!(".{owner}-version");
            let mode = Mode::from_raw_mode(0o644);
            replace(base, &temporary, "VERSION", VERSION.as_bytes(), mode)
                .map_err(|e| in_folder(path, "can't be written", e))?;
            return Ok(());
        }
        Err(e) => return Err(in_folder(&path.join("VERSION"), "can't be read", e)),
    };
    if found == VERSION.as_bytes() {
        return Ok(());
    }
    let found = String::from_utf8_lossy(&found).trim().to_owned();
    let what = format!(
        "the folder {} has the format {found:?}, and this program knows {:?}",
        path.display(),
        VERSION.trim()
    );
    Err(Error::new(Kind::Store, what).advice("use another folder, or the program that made it"))
}

fn check_foreign(path: &Path, base: &OwnedFd) -> Result<()> {
    let names = names_in(base).map_err(|e| in_folder(path, "can't be read", e))?;
    match names
        .iter()
        .find(|name| !name.starts_with('.') && !OURS.contains(&name.as_str()) && *name != "lost+found")
    {
        None => Ok(()),
        Some(name) => {
            let what =
                format!("the folder {} is used for something else: it has {name:?} in it", path.display());
            Err(Error::new(Kind::Invalid, what).advice("give a folder of its own, which may be new"))
        }
    }
}

fn open_part(base: &OwnedFd, name: &str, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::mkdirat(base, name, mode) {
        Ok(()) => {
            let fd = rustix::fs::openat(base, name, flags, Mode::empty())?;
            let _ = rustix::fs::fchmod(&fd, mode);
            Ok(fd)
        }
        Err(Errno::EXIST) => rustix::fs::openat(base, name, flags, Mode::empty()),
        Err(e) => Err(e),
    }
}

/// The names in a directory that are text: those of this store are.
pub(crate) fn names_in(dir: impl AsFd) -> rustix::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        match entry?.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
    Ok(names)
}

/// The content of a file of less than a page.
pub(crate) fn read_small(dir: impl AsFd, name: &str) -> rustix::io::Result<Vec<u8>> {
    let fd = rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut content = vec![0; 4096];
    let len = rustix::io::pread(&fd, &mut content[..], 0)?;
    content.truncate(len);
    Ok(content)
}

fn replace(dir: &OwnedFd, temporary: &str, name: &str, content: &[u8], mode: Mode) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, temporary, flags, mode)?;
    let _ = rustix::fs::fchmod(&fd, mode);
    let whole = rustix::io::pwrite(&fd, content, 0)? == content.len();
    if !whole {
        let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
        return Err(Errno::NOSPC);
    }
    rustix::fs::renameat(dir, temporary, dir, name)
}

/// Gives a finished file its name, unless that name is taken ([`Errno::EXIST`]).
pub(crate) fn settle(dir: impl AsFd, temporary: &str, name: &str) -> rustix::io::Result<()> {
    let dir = dir.as_fd();
    match rustix::fs::renameat_with(dir, temporary, dir, name, RenameFlags::NOREPLACE) {
        // A filesystem that does not know the flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            rustix::fs::linkat(dir, temporary, dir, name, AtFlags::empty())?;
            rustix::fs::unlinkat(dir, temporary, AtFlags::empty())
        }
        done => done,
    }
}

fn refused(path: &Path, what: &str) -> Error {
    Error::new(Kind::Refused, format!("the default folder {} {what}", path.display()))
        .advice("remove it, or choose another folder with file:PATH")
}

/// An error about a file of the store.
pub(crate) fn in_folder(path: &Path, what: &str, cause: impl Into<io::Error>) -> Error {
    use io::ErrorKind as E;
    let cause = cause.into();
    let what = format!("{} {what}", path.display());
    match cause.kind() {
        E::PermissionDenied | E::ReadOnlyFilesystem => Error::new(Kind::Invalid, what)
            .advice("choose a folder that you may write to, or change its permissions"),
        E::NotADirectory | E::IsADirectory | E::AlreadyExists | E::InvalidFilename | E::InvalidInput => {
            Error::new(Kind::Invalid, what).advice("choose another folder with file:PATH")
        }
        E::StorageFull | E::QuotaExceeded => {
            Error::new(Kind::Unavailable, what).advice("make room, or choose another folder with file:PATH")
        }
        _ => Error::new(Kind::Unavailable, what)
            .advice("look whether the folder is still there and its filesystem works, or choose another with file:PATH"),
    }
    .because(cause)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn place(path: PathBuf, trust: Trust) -> Place {
        Place { path, trust }
    }

    fn open(path: PathBuf, trust: Trust) -> Result<Folder> {
        Folder::open(&place(path, trust), SessionId(1))
    }

    fn mode_of(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_missing_folder_is_made_for_its_user_alone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b/locks");
        let folder = open(path.clone(), Trust::Given).unwrap();
        assert_eq!(mode_of(&path), 0o700);
        assert_eq!(mode_of(&path.join("q")), 0o700);
        assert_eq!(folder.mode, Mode::RUSR | Mode::WUSR);
        open(path, Trust::Temporary).unwrap();
    }

    #[test]
    fn files_take_their_permissions_from_a_shared_folder() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o770)).unwrap();
        let folder = open(temp.path().to_owned(), Trust::Given).unwrap();
        assert_eq!(mode_of(&temp.path().join("s")), 0o770);
        folder.open_file("watches").unwrap();
        assert_eq!(mode_of(&temp.path().join("watches")), 0o660);
    }

    #[test]
    fn a_default_folder_must_be_the_users_own_and_private() {
        assert_eq!(owner_trouble(Trust::Temporary, 7, 7, 0o40700), None);
        assert!(owner_trouble(Trust::Temporary, 7, 8, 0o40700).unwrap().contains("user 8"));
        assert!(owner_trouble(Trust::Runtime, 7, 0, 0o40700).is_some());
        assert!(owner_trouble(Trust::Temporary, 7, 7, 0o40770).is_some());
        assert!(owner_trouble(Trust::Temporary, 7, 7, 0o40702).is_some());
        assert_eq!(owner_trouble(Trust::Given, 7, 8, 0o40777), None);
    }

    #[test]
    fn a_default_folder_that_others_can_write_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let e = open(temp.path().to_owned(), Trust::Temporary).unwrap_err();
        assert_eq!(e.kind(), Kind::Refused);
        assert!(e.to_string().contains(temp.path().to_str().unwrap()), "{e}");
    }

    #[test]
    fn a_default_folder_that_is_a_link_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("leasehold-1");
        symlink(temp.path(), &link).unwrap();
        let e = open(link.clone(), Trust::Temporary).unwrap_err();
        assert_eq!(e.kind(), Kind::Refused);
        assert!(e.to_string().contains("symbolic link"), "{e}");
        let other = temp.path().join("own");
        std::fs::create_dir(&other).unwrap();
        std::fs::remove_file(&link).unwrap();
        symlink(&other, &link).unwrap();
        open(link, Trust::Given).unwrap();
    }

    #[test]
    fn a_default_folder_of_another_user_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        // Only root may give a folder away; for others the pure check above stands alone.
        if std::os::unix::fs::chown(temp.path(), Some(4321), None).is_ok() {
            let e = open(temp.path().to_owned(), Trust::Runtime).unwrap_err();
            assert_eq!(e.kind(), Kind::Refused);
            assert!(e.to_string().contains("4321"), "{e}");
        }
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for path in [file.clone(), file.join("below")] {
            let e = open(path, Trust::Given).unwrap_err();
            assert_eq!(e.kind(), Kind::Invalid);
            assert!(e.to_string().contains(file.to_str().unwrap()) && e.advice_text().is_some(), "{e}");
        }
    }

    #[test]
    fn a_folder_without_permission_is_a_clear_error() {
        let e = in_folder(Path::new("/x"), "can't be read", Errno::ACCESS);
        assert_eq!(e.kind(), Kind::Invalid);
        assert!(e.to_string().contains("/x can't be read") && e.advice_text().is_some(), "{e}");
        assert_eq!(in_folder(Path::new("/x"), "can't be read", Errno::MFILE).kind(), Kind::Unavailable);
    }

    #[test]
    fn a_folder_that_is_used_for_something_else_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("thesis.tex"), "x").unwrap();
        let e = open(temp.path().to_owned(), Trust::Given).unwrap_err();
        assert_eq!(e.kind(), Kind::Invalid);
        assert!(e.to_string().contains("thesis.tex"), "{e}");
        assert!(!temp.path().join("q").exists());
    }

    #[test]
    fn an_unknown_format_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        for version in ["leasehold-file 2\n", "", "\u{0}\u{1}"] {
            std::fs::write(temp.path().join("VERSION"), version).unwrap();
            let e = open(temp.path().to_owned(), Trust::Given).unwrap_err();
            assert_eq!(e.kind(), Kind::Store);
            assert!(e.to_string().contains("leasehold-file 1"), "{e}");
        }
    }

    #[test]
    fn network_filesystems_are_known_by_their_numbers() {
        assert_eq!(network_filesystem(0x6969), Some("nfs"));
        assert_eq!(network_filesystem(0xff53_4d42), Some("smb"));
        assert_eq!(network_filesystem(0x0102_1997), Some("9p"));
        assert_eq!(network_filesystem(0x00c3_6400), Some("ceph"));
        for local in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630, 0x6573_5546] {
            assert_eq!(network_filesystem(local), None, "{local:x}");
        }
    }
}
