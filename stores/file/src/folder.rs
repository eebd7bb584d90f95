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
//!
//! # Which folder is used
//!
//! Not one that another user could have prepared. The folder must be
//! - private: it belongs to us (or to root), and no one else can write to it; or
//! - shared with a group: only its owner and its group can write to it, and it belongs to us or to root, or we are in the group; or
//! - shared with every user: it is sticky, and it belongs to us or to root.
//!
//! The folder itself is no symbolic link; what is above it may be one, as in every path that people type. The directories
//! in it belong to its owner, to us or to root, and no one can write to them who can't write to the folder. So a shared
//! folder is used by its owner first. Who can write to a shared folder can take the locks in it away and forge others, but
//! reaches nothing outside of it: see [`dir`](crate::dir).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Error, Kind, Result, SessionId};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::dir::{Dir, Sharing, is};

/// Where a folder is, and who chose it.
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
    /// The user: it may be shared with others.
    Given,
    /// This store, as the default of a user: it must be private.
    Default,
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
    /// Who chose it.
    pub(crate) trust: Trust,
    /// The folder itself. It stays locked (shared) while it is open: `systemd-tmpfiles` leaves locked folders alone.
    pub(crate) base: Dir,
    /// Queue files.
    pub(crate) queues: Dir,
    /// FIFOs of sessions.
    pub(crate) sessions: Dir,
    /// FIFOs of watchers.
    pub(crate) watchers: Dir,
    owner: SessionId,
    temporary: AtomicU64,
}

impl Folder {
    /// Creates the folder if there is none, checks it and opens it. `owner` makes the names of temporary files unique.
    pub(crate) fn open(place: &Place, owner: SessionId) -> Result<Self> {
        let path = place.path.clone();
        let base = open_base(place)?;
        let stat = rustix::fs::fstat(&base).map_err(|e| in_folder(&path, "can't be read", e))?;
        let me = Me::now();
        if let Some((what, advice)) = base_trouble(place.trust, &me, &stat) {
            return Err(refused(place, &what, advice));
        }
        let base = Dir::new(base, Sharing::of(&stat));
        check_filesystem(place, &base)?;
        // In a shared folder everyone trusts what belongs to its owner.
        let may_set_up = !base.sharing().is_shared() || me.user == stat.st_uid || me.user == 0;
        check_version(&path, &base, owner, may_set_up)?;
        // The worst that can happen without this lock is that a cleaner looks at the files, and they are too new for it.
        let _ = rustix::fs::flock(&base, FlockOperation::NonBlockingLockShared);
        let part = |name: &str| open_part(&path, &base, name, owner, &me, &stat, may_set_up);
        let (queues, sessions, watchers) = (part("q")?, part("s")?, part("w")?);
        let temporary = AtomicU64::new(0);
        Ok(Folder { path, trust: place.trust, base, queues, sessions, watchers, owner, temporary })
    }

    /// A name for a file that is not ready yet. Starts with a dot, as no other file here does.
    pub(crate) fn temporary_name(&self) -> String {
        format!(".{}-{}", self.owner, self.temporary.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a file of the folder itself to append to it, and creates it if it is missing.
    pub(crate) fn open_file(&self, name: &str) -> Result<OwnedFd> {
        let open = || loop {
            match self.base.open_file(name, OFlags::RDWR | OFlags::APPEND) {
                Err(e) if is(&e, Errno::NOENT) => match self.base.create_file(name) {
                    Ok(_) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                },
                opened => return opened,
            }
        };
        open().map_err(|e| in_folder(&self.path.join(name), "can't be opened", e))
    }

    /// Writes a whole file of the folder itself, so that a reader sees the old or the new one.
    ///
    /// In a sticky folder only its owner can replace a file. There its content is written over, which must have the length of
    /// the old one; a reader that needs it whole reads it twice.
    pub(crate) fn replace_file(&self, name: &str, content: &[u8]) -> Result<()> {
        let replaced =
            match replace(&self.base, &self.temporary_name(), name, content, self.base.sharing().file_mode())
            {
                Err(Errno::PERM | Errno::ACCESS) if self.base.sharing().is_shared() => {
                    self.write_over(name, content)
                }
                other => other.map_err(io::Error::from),
            };
        replaced.map_err(|e| in_folder(&self.path.join(name), "can't be written", e))
    }

    fn write_over(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let fd = self.base.open_file(name, OFlags::WRONLY)?;
        if rustix::io::pwrite(&fd, content, 0)? != content.len() {
            return Err(Errno::NOSPC.into());
        }
        Ok(rustix::fs::ftruncate(&fd, content.len() as u64)?)
    }
}

/// As whom this process acts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Me {
    user: u32,
    groups: Vec<u32>,
}

impl Me {
    fn now() -> Self {
        let others = rustix::process::getgroups().unwrap_or_default();
        let groups =
            others.into_iter().chain([rustix::process::getegid()]).map(|group| group.as_raw()).collect();
        Me { user: rustix::process::geteuid().as_raw(), groups }
    }
}

const OF_YOUR_OWN: &str = "choose a folder of your own with file:PATH, which may be new";

/// Why a folder with this owner and mode must not be used, and what to do.
fn base_trouble(trust: Trust, me: &Me, base: &Stat) -> Option<(String, &'static str)> {
    let (user, owner, group, mode) = (me.user, base.st_uid, base.st_gid, base.st_mode & 0o7777);
    let ours = owner == user || owner == 0;
    let writable = |by: &str| format!("can be written by {by} (mode {mode:03o})");
    let of_another =
        || format!("belongs to the user {owner}, who could have prepared it, and this is the user {user}");
    match trust {
        Trust::Default if owner != user => {
            Some((of_another(), "remove it, or choose another folder with file:PATH"))
        }
        Trust::Default if mode & 0o022 != 0 => {
            Some((writable("others"), "chmod go-w it, or choose another folder with file:PATH"))
        }
        Trust::Default => None,
        Trust::Given if mode & 0o002 != 0 && mode & 0o1000 == 0 => Some((
            format!(
                "{}, who can replace what is in it; it belongs to the user {owner}",
                writable("every user")
            ),
            "chmod o-w it and give those who share it a group, or chmod +t it to share it with every user",
        )),
        Trust::Given if ours => None,
        Trust::Given if mode & 0o002 != 0 => Some((
            of_another(),
            "let a folder that every user shares belong to root, or choose one of your own",
        )),
        Trust::Given if mode & 0o020 != 0 && me.groups.contains(&group) => None,
        Trust::Given if mode & 0o020 != 0 => Some((
            format!("{}, which is not in its group {group}", of_another()),
            "run this as a user of that group, or choose a folder of your own with file:PATH",
        )),
        Trust::Given => Some((of_another(), OF_YOUR_OWN)),
    }
}

/// Why a directory in the folder must not be used. In a shared folder only one with just the permissions that this
/// store gives it: who can write there can put any directory in its place, also one that they can't open.
fn part_trouble(me: &Me, base: &Stat, part: &Stat) -> Option<String> {
    let (owner, mode) = (part.st_uid, part.st_mode & 0o1777);
    let sharing = Sharing::of(base);
    let wanted = sharing.dir_mode().as_raw_mode();
    if owner != base.st_uid && owner != me.user && owner != 0 {
        return Some(format!(
            "belongs to the user {owner}, and not to the owner of the folder, {}",
            base.st_uid
        ));
    }
    if mode & 0o022 & !base.st_mode != 0 {
        return Some(format!("can be written by users who can't write to the folder (mode {mode:03o})"));
    }
    if sharing.is_shared() && mode != wanted {
        return Some(format!("has the mode {mode:03o}, and those of this folder have {wanted:03o}"));
    }
    if mode & 0o020 != 0 && part.st_gid != base.st_gid {
        return Some(format!("has the group {}, and the folder has {}", part.st_gid, base.st_gid));
    }
    None
}

/// Opens the folder, not a link to it, and makes it if it is missing.
fn open_base(place: &Place) -> Result<OwnedFd> {
    let path = &place.path;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => create(place, flags),
        other => other,
    };
    opened.map_err(|e| match e {
        Errno::NOTDIR | Errno::LOOP => match path.ancestors().find(|path| path.is_symlink()) {
            Some(link) if link == path || !link.exists() => {
                let advice = "give the folder that it leads to, or choose another with file:PATH";
                refused(&Place { path: link.to_owned(), ..*place }, "is a symbolic link", advice)
            }
            _ => in_folder(path, "is a file, not a folder, or below one", e),
        },
        e => in_folder(path, "can't be opened or created", e),
    })
}

/// Makes the folder, and what is missing above it. What is there already may be reached by links; what is made may not, so
/// that nothing is made where another user leads us meanwhile.
fn create(place: &Place, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let above = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut there = place.path.as_path();
    let mut missing = Vec::new();
    let mut dir = loop {
        match (there.parent(), there.components().next_back()) {
            (Some(parent), Some(name)) => {
                missing.push(name);
                there = parent;
            }
            _ => return Err(Errno::NOENT),
        }
        match rustix::fs::openat(CWD, there, above, Mode::empty()) {
            Err(Errno::NOENT) => {}
            opened => break opened?,
        }
    };
    // What is above the default folder is as private as that; what is above a given one is what `mkdir -p` makes of it, but
    // never writable for others, who could move the folder away.
    let mode_above = if place.trust == Trust::Default { Mode::RWXU } else { Mode::from_raw_mode(0o755) };
    while let Some(name) = missing.pop() {
        let (mode, flags) =
            if missing.is_empty() { (Mode::RWXU, flags) } else { (mode_above, above | OFlags::NOFOLLOW) };
        if let Component::Normal(name) = name {
            match rustix::fs::mkdirat(&dir, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
        }
        dir = rustix::fs::openat(&dir, name.as_os_str(), flags, Mode::empty())?;
    }
    Ok(dir)
}

fn check_filesystem(place: &Place, base: &Dir) -> Result<()> {
    let path = &place.path;
    let stat = rustix::fs::fstatfs(base).map_err(|e| in_folder(path, "can't be read", e))?;
    // The kernel's word is signed on some machines; only its lower half means something.
    let Some(kind) = network_filesystem(stat.f_type as u32) else { return Ok(()) };
    let what = format!("the {} {} is on a network filesystem ({kind})", place.word(), path.display());
    Err(Error::new(Kind::Invalid, what).advice(match place.trust {
        Trust::Given => "file locks here are for one host: choose a local folder, or a store that several hosts can reach",
        Trust::Default => {
            "file locks here are for one host: choose a local folder with file:PATH (LEASEHOLD_STORE), the same for logins, cron and services"
        }
    }))
}

impl Place {
    fn word(&self) -> &'static str {
        match self.trust {
            Trust::Given => "folder",
            Trust::Default => "default folder",
        }
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
fn check_version(path: &Path, base: &Dir, owner: SessionId, may_set_up: bool) -> Result<()> {
    let found = match base.read_small("VERSION") {
        Ok(found) => found,
        Err(e) if is(&e, Errno::NOENT) => {
            check_foreign(path, base)?;
            if !may_set_up {
                return Err(not_set_up(path));
            }
            let mode = base.sharing().file_mode() - (Mode::WGRP | Mode::WOTH);
            replace(base, &format!(".{owner}-0"), "VERSION", VERSION.as_bytes(), mode)
                .map_err(|e| in_folder(path, "can't be written", e))?;
            return Ok(());
        }
        Err(e) => return Err(in_folder(&path.join("VERSION"), "can't be read", e)),
    };
    if found == VERSION.as_bytes() {
        return Ok(());
    }
    // Not more than a version could be: what is not ours is not ours to print.
    let found: String = String::from_utf8_lossy(&found).trim().chars().take(40).collect();
    let what = format!(
        "the folder {} has the format {found:?}, and this program knows {:?}",
        path.display(),
        VERSION.trim()
    );
    Err(Error::new(Kind::Store, what).advice("use another folder, or the program that made it"))
}

fn not_set_up(path: &Path) -> Error {
    let what =
        format!("the folder {} is shared, and its owner has to use it once before others", path.display());
    let advice = format!("run leasehold --store file:{} ls as its owner", path.display());
    Error::new(Kind::Refused, what).advice(advice)
}

fn check_foreign(path: &Path, base: &Dir) -> Result<()> {
    let names = base.names().map_err(|e| in_folder(path, "can't be read", e))?;
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

fn open_part(
    path: &Path,
    base: &Dir,
    name: &str,
    owner: SessionId,
    me: &Me,
    stat: &Stat,
    may_set_up: bool,
) -> Result<Dir> {
    let path_of_part = path.join(name);
    let failed = |e: io::Error| in_folder(&path_of_part, "can't be created or opened", e);
    let fd = match base.open_dir(name) {
        Err(e) if is(&e, Errno::NOENT) && !may_set_up => return Err(not_set_up(path)),
        Err(e) if is(&e, Errno::NOENT) => {
            match base.create_dir(name, &format!(".{owner}-0")).map_err(failed)? {
                Some(fd) => fd,
                None => base.open_dir(name).map_err(failed)?,
            }
        }
        other => other.map_err(failed)?,
    };
    let part = rustix::fs::fstat(&fd).map_err(|e| failed(e.into()))?;
    match part_trouble(me, stat, &part) {
        None => Ok(Dir::new(fd, base.sharing())),
        Some(what) => {
            Err(Error::new(Kind::Refused, format!("the directory {} {what}", path_of_part.display())).advice(
                "look what it is; if it is this store's, give it the owner, group and mode that it should have, or choose another folder with file:PATH",
            ))
        }
    }
}

fn replace(dir: &Dir, temporary: &str, name: &str, content: &[u8], mode: Mode) -> rustix::io::Result<()> {
    let fd = dir.create_file_with(temporary, mode)?;
    let fill = || match rustix::io::pwrite(&fd, content, 0)? {
        whole if whole == content.len() => dir.rename(temporary, name),
        _ => Err(Errno::NOSPC),
    };
    fill().inspect_err(|_| {
        let _ = dir.remove(temporary);
    })
}

fn refused(place: &Place, what: &str, advice: &str) -> Error {
    Error::new(Kind::Refused, format!("the {} {} {what}", place.word(), place.path.display())).advice(advice)
}

/// An error about a file of the store.
pub(crate) fn in_folder(path: &Path, what: &str, cause: impl Into<io::Error>) -> Error {
    use io::ErrorKind as E;
    let cause = cause.into();
    let what = format!("{} {what}", path.display());
    match cause.kind() {
        E::PermissionDenied | E::ReadOnlyFilesystem => Error::new(Kind::Invalid, what)
            .advice("choose a folder that you may write to with file:PATH, or change its permissions"),
        E::NotADirectory | E::IsADirectory | E::AlreadyExists | E::InvalidFilename | E::InvalidInput => {
            Error::new(Kind::Invalid, what).advice("choose another folder with file:PATH")
        }
        E::InvalidData => Error::new(Kind::Store, what)
            .advice("this program did not put it there: look who did, and remove it, or choose another folder with file:PATH"),
        E::StorageFull | E::QuotaExceeded => {
            Error::new(Kind::Unavailable, what).advice("make room, or choose another folder with file:PATH")
        }
        _ => Error::new(Kind::Unavailable, what)
            .advice("look whether the folder is still there and its filesystem works, or choose another with file:PATH"),
    }
    .because(cause)
}

/// An error about a file of a folder that is in use: it was fit for locks, and may be so again.
pub(crate) fn in_use(path: &Path, what: &str, cause: impl Into<io::Error>) -> Error {
    let cause = cause.into();
    if cause.kind() != io::ErrorKind::ReadOnlyFilesystem {
        return in_folder(path, what, cause);
    }
    Error::new(Kind::Unavailable, format!("{} {what}", path.display()))
        .advice("the filesystem was writable before: look why it is not (dmesg), and remount it")
        .because(cause)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use leasehold_core::Retry;

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
        assert_eq!(mode_of(&temp.path().join("a")) & 0o022, 0);
        folder.open_file("watches").unwrap();
        assert_eq!(mode_of(&path.join("watches")), 0o600);
        open(path, Trust::Default).unwrap();
        let path = temp.path().join("state/leasehold/host");
        open(path.clone(), Trust::Default).unwrap();
        assert_eq!(mode_of(&temp.path().join("state")), 0o700);
    }

    #[test]
    fn files_take_their_permissions_from_a_shared_folder() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o770)).unwrap();
        let folder = open(temp.path().to_owned(), Trust::Given).unwrap();
        assert_eq!(mode_of(&temp.path().join("s")), 0o770);
        folder.open_file("watches").unwrap();
        assert_eq!(mode_of(&temp.path().join("watches")), 0o660);
        assert_eq!(mode_of(&temp.path().join("VERSION")), 0o640);
    }

    #[test]
    fn permissions_are_set_on_what_is_created_and_on_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o770)).unwrap();
        open(temp.path().to_owned(), Trust::Given).unwrap();
        for file in ["watches", "swept", "q/x"] {
            std::fs::write(temp.path().join(file), "").unwrap();
            std::fs::set_permissions(temp.path().join(file), PermissionsExt::from_mode(0o600)).unwrap();
        }
        let folder = open(temp.path().to_owned(), Trust::Given).unwrap();
        folder.open_file("watches").unwrap();
        folder.open_file("swept").unwrap();
        for (file, mode) in [("watches", 0o600), ("swept", 0o600), ("q/x", 0o600)] {
            assert_eq!(mode_of(&temp.path().join(file)), mode, "{file}");
        }
        // A directory that was made private may be another one: it stays as it is, and the folder is refused.
        std::fs::set_permissions(temp.path().join("s"), PermissionsExt::from_mode(0o700)).unwrap();
        let e = open(temp.path().to_owned(), Trust::Given).unwrap_err();
        assert!(e.kind() == Kind::Refused && e.to_string().contains("/s has the mode 700"), "{e}");
        assert_eq!(mode_of(&temp.path().join("s")), 0o700);
    }

    fn stat(owner: u32, group: u32, mode: u32) -> Stat {
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_uid, stat.st_gid, stat.st_mode) = (owner, group, 0o40000 | mode);
        stat
    }

    #[test]
    fn a_folder_that_another_user_could_have_prepared_is_refused() {
        let ann = Me { user: 7, groups: vec![70, 100] };
        let root = Me { user: 0, groups: vec![0] };
        let (given, default) = (Trust::Given, Trust::Default);
        for (trust, me, owner, group, mode, fine) in [
            (default, &ann, 7, 70, 0o700, true),
            (default, &ann, 7, 70, 0o755, true),
            (default, &ann, 8, 70, 0o700, false),
            (default, &ann, 0, 70, 0o700, false),
            (default, &ann, 7, 70, 0o770, false),
            (default, &ann, 7, 70, 0o702, false),
            (default, &ann, 7, 70, 0o1777, false),
            (given, &ann, 7, 70, 0o700, true),
            (given, &ann, 0, 0, 0o755, true),
            (given, &ann, 8, 70, 0o700, false),
            (given, &ann, 8, 70, 0o755, false),
            (given, &root, 7, 70, 0o700, false),
            // Shared with a group.
            (given, &ann, 7, 200, 0o770, true),
            (given, &ann, 0, 200, 0o2770, true),
            (given, &ann, 8, 100, 0o770, true),
            (given, &ann, 8, 200, 0o770, false),
            (given, &root, 8, 200, 0o770, false),
            // Shared with every user.
            (given, &ann, 0, 0, 0o1777, true),
            (given, &ann, 7, 70, 0o1777, true),
            (given, &ann, 8, 100, 0o1777, false),
            (given, &ann, 0, 0, 0o777, false),
            (given, &ann, 7, 70, 0o777, false),
            (given, &root, 0, 0, 0o777, false),
            (given, &root, 7, 0, 0o1777, false),
        ] {
            let trouble = base_trouble(trust, me, &stat(owner, group, mode));
            assert_eq!(trouble.is_none(), fine, "{trust:?} {me:?} {owner}:{group} {mode:o}: {trouble:?}");
        }
    }

    #[test]
    fn a_directory_in_the_folder_is_as_its_folder() {
        let ann = Me { user: 7, groups: vec![70] };
        let base = stat(5, 100, 0o770);
        for (owner, group, mode, fine) in [
            (5, 100, 0o770, true),
            (7, 100, 0o770, true),
            (0, 100, 0o770, true),
            (5, 100, 0o2770, true),
            (5, 100, 0o700, false),
            (5, 100, 0o3770, false),
            (8, 100, 0o770, false),
            (5, 200, 0o770, false),
            (5, 200, 0o750, false),
            (5, 100, 0o777, false),
        ] {
            let trouble = part_trouble(&ann, &base, &stat(owner, group, mode));
            assert_eq!(trouble.is_none(), fine, "{owner}:{group} {mode:o}: {trouble:?}");
        }
        // In a folder that is not shared no one else can have put it there.
        for (mode, fine) in [(0o700, true), (0o755, true), (0o500, true), (0o770, false)] {
            let trouble = part_trouble(&ann, &stat(7, 70, 0o700), &stat(7, 70, mode));
            assert_eq!(trouble.is_none(), fine, "{mode:o}: {trouble:?}");
        }
    }

    #[test]
    fn a_folder_that_is_a_link_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (link, other) = (temp.path().join("leasehold-1"), temp.path().join("own"));
        std::fs::create_dir(&other).unwrap();
        symlink(&other, &link).unwrap();
        for trust in [Trust::Given, Trust::Default] {
            let e = open(link.clone(), trust).unwrap_err();
            assert_eq!(e.kind(), Kind::Refused);
            assert!(e.to_string().contains("leasehold-1 is a symbolic link"), "{e}");
        }
        // A link above the folder is the user's business.
        open(link.join("locks"), Trust::Given).unwrap();
        assert!(other.join("locks/q").is_dir());
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
    fn trouble_of_a_filesystem_in_use_may_pass() {
        for errno in [Errno::ROFS, Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::NFILE] {
            let e = in_use(Path::new("/x/q/orders"), "can't be written", errno);
            assert_eq!((e.kind(), e.retry_advice()), (Kind::Unavailable, Retry::SameId), "{e}");
            assert!(
                e.to_string().contains("/x/q/orders can't be written") && e.advice_text().is_some(),
                "{e}"
            );
        }
        assert_eq!(in_folder(Path::new("/x"), "can't be created", Errno::ROFS).kind(), Kind::Invalid);
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
