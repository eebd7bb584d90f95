//! What can be seen of a folder. Whatever can't be read is left out, and the rules say so where it matters.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::clock::wall_micros;
use leasehold_core::queue::Queue;
use leasehold_core::{Clock, Kind};
use rustix::fs::{AtFlags, FileType, Stat};

use crate::dir::Dir;
use crate::folder::{Folder, Trust};
use crate::listing::name_in;
use crate::liveness::{Pulse, pulse};
use crate::state::{QueueFile, TryLock};
use crate::{default_folder, floor};

/// A folder with more lock files than this is not read to its end.
const READ_AT_MOST: usize = 20_000;

/// How many damaged files are named.
const NAMED: usize = 3;

/// Something unfinished that is older than this was left behind.
const UNFINISHED: Duration = Duration::from_secs(60);

/// As many links as the kernel follows in one path.
const MAX_LINKS: usize = 40;

/// What was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) path: PathBuf,
    /// What splits it, if it is the default folder.
    pub(super) default: Option<&'static str>,
    /// The number by which the kernel knows its filesystem.
    pub(super) filesystem: Option<u32>,
    pub(super) space: Option<Space>,
    pub(super) access: Option<Access>,
    pub(super) boot: Boot,
    /// By how much this process's boot clock differs from the host's.
    pub(super) clock_offset: i64,
    /// Microseconds since 1970.
    pub(super) wall: u64,
    pub(super) locks: Locks,
    /// How many sessions live.
    pub(super) alive: usize,
    pub(super) remains: Remains,
}

/// Room on the filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) bytes: u64,
    /// How many files can still be made; `None` where there is no such limit.
    pub(super) files: Option<u64>,
}

/// Who may do what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) me: u32,
    pub(super) owner: u32,
    pub(super) mode: u32,
    /// The folders above it and the links that lead to it, from the root on.
    pub(super) above: Vec<Above>,
    /// Whether users can give other users' files a second name (`fs.protected_hardlinks` is off).
    pub(super) hard_links: bool,
}

/// Something on the way to the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Above {
    pub(super) path: PathBuf,
    pub(super) owner: u32,
    /// 0 for a link, which only its owner and those can change who can write to the folder that it is in.
    pub(super) mode: u32,
}

/// In which boot of a host the folder was used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Boot {
    /// The boot that this process runs in.
    pub(super) ours: Option<Vec<u8>>,
    /// The boot in which the folder was last opened.
    pub(super) theirs: Option<Vec<u8>>,
    /// How long after the start of our host that was; `None` if it was before.
    pub(super) theirs_after_ours: Option<Duration>,
}

/// The lock files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Locks {
    pub(super) files: usize,
    /// How many of them have a holder or a waiter.
    pub(super) used: usize,
    pub(super) damaged: usize,
    /// Some of those that are damaged.
    pub(super) damaged_names: Vec<String>,
    /// The highest token of all.
    pub(super) highest: u64,
    /// Whether there were too many to read.
    pub(super) unread: bool,
}

/// What nobody has cleaned up yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Remains {
    /// FIFOs of sessions and watchers that are gone.
    pub(super) fifos: usize,
    /// Files that were never finished.
    pub(super) unfinished: usize,
}

/// Looks.
pub(super) fn collect(folder: &Folder) -> Facts {
    let (alive, dead) = fifos(&folder.sessions);
    let (_, dead_watchers) = fifos(&folder.watchers);
    let parts = [&folder.queues, &folder.sessions, &folder.watchers];
    Facts {
        path: folder.path.clone(),
        default: default_folder()
            .ok()
            .filter(|_| folder.trust == Trust::Default)
            .map(|default| default.split_by),
        // The kernel's word is signed on some machines; only its lower half means something.
        filesystem: rustix::fs::fstatfs(&folder.base).ok().map(|stat| stat.f_type as u32),
        space: space(folder),
        access: access(folder),
        boot: boot(folder),
        clock_offset: clock_offset(&std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default()),
        wall: wall_micros(),
        locks: locks(folder),
        alive,
        remains: Remains { fifos: dead + dead_watchers, unfinished: parts.into_iter().map(unfinished).sum() },
    }
}

fn space(folder: &Folder) -> Option<Space> {
    let stat = rustix::fs::fstatvfs(&folder.base).ok()?;
    let files = (stat.f_files > 0).then_some(stat.f_favail);
    Some(Space { bytes: stat.f_bavail.saturating_mul(stat.f_frsize), files })
}

fn access(folder: &Folder) -> Option<Access> {
    let stat = rustix::fs::fstat(&folder.base).ok()?;
    Some(Access {
        me: rustix::process::geteuid().as_raw(),
        owner: stat.st_uid,
        mode: stat.st_mode & 0o7777,
        above: above(&folder.path),
        hard_links: std::fs::read("/proc/sys/fs/protected_hardlinks").is_ok_and(|set| set.starts_with(b"0")),
    })
}

/// Every folder in which a name of this path is looked up, those included that links lead through, and the links. Who
/// can change one of these decides which folder it is.
fn above(path: &Path) -> Vec<Above> {
    let (mut found, mut links) = (Vec::new(), 0);
    let mut names: Vec<OsString> = path.iter().rev().map(OsStr::to_owned).collect();
    let mut here = PathBuf::new();
    while let Some(name) = names.pop() {
        here.push(&name);
        let Ok(stat) = rustix::fs::lstat(&here) else { break };
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let mode = if link { 0 } else { stat.st_mode & 0o7777 };
        // The last is the folder itself.
        if !names.is_empty() || link {
            found.push(Above { path: here.clone(), owner: stat.st_uid, mode });
        }
        if link {
            links += 1;
            let Ok(to) = std::fs::read_link(&here) else { break };
            if links > MAX_LINKS {
                break;
            }
            here.pop();
            names.extend(to.iter().rev().map(OsStr::to_owned));
        } else if name == ".." {
            // There are no links in it any more.
            here.pop();
            here.pop();
        }
    }
    found
}

fn boot(folder: &Folder) -> Boot {
    let written = folder.base.stat("boot").ok();
    let started = SystemTime::now().checked_sub(Duration::from_nanos(Clock::system().now().0));
    let after =
        written.zip(started).and_then(|(stat, started)| written_at(&stat).duration_since(started).ok());
    Boot {
        ours: std::fs::read("/proc/sys/kernel/random/boot_id").ok(),
        theirs: folder.base.read_small("boot").ok(),
        theirs_after_ours: after,
    }
}

/// The seconds of the line `boottime SECONDS NANOSECONDS`: a container may have a boot clock of its own.
fn clock_offset(offsets: &str) -> i64 {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn locks(folder: &Folder) -> Locks {
    let mut files = folder.queues.names().unwrap_or_default();
    files.retain(|file| !file.starts_with('.'));
    let mut locks = Locks {
        files: files.len(),
        highest: floor::read(folder).unwrap_or(0),
        unread: files.len() > READ_AT_MOST,
        ..Locks::default()
    };
    for file in files.iter().take(READ_AT_MOST) {
        match read(folder, file) {
            Look::Intact(queue) => {
                locks.used += usize::from(!queue.is_idle());
                locks.highest = locks.highest.max(queue.last);
            }
            Look::Damaged => {
                locks.damaged += 1;
                if locks.damaged_names.len() < NAMED {
                    locks.damaged_names.push(file.clone());
                }
            }
            Look::Unknown => {}
        }
    }
    locks
}

/// What a look into a lock file showed.
enum Look {
    Intact(Queue),
    Damaged,
    /// Somebody is changing it, or has just removed it, or we may not read it.
    Unknown,
}

fn read(folder: &Folder, file: &str) -> Look {
    let Some(name) = name_in(folder, file) else {
        // One that does not even say its name, unless it is gone by now.
        let there = rustix::fs::accessat(&folder.queues, file, rustix::fs::Access::READ_OK, AtFlags::empty());
        return if there.is_ok() { Look::Damaged } else { Look::Unknown };
    };
    let Ok(opened) = QueueFile::open(folder, &name, false) else { return Look::Unknown };
    let Ok(TryLock::Locked(locked)) = opened.try_lock() else { return Look::Unknown };
    match locked.load(folder) {
        Ok(loaded) => Look::Intact(loaded.queue),
        Err(e) if e.kind() == Kind::Store => Look::Damaged,
        Err(_) => Look::Unknown,
    }
}

/// How many FIFOs of a part of the folder have a living owner, and how many a dead one.
fn fifos(part: &Dir) -> (usize, usize) {
    let files = part.names().unwrap_or_default();
    let (mut alive, mut dead) = (0, 0);
    for file in files.iter().filter(|file| !file.starts_with('.')) {
        match pulse(part, file) {
            Pulse::Alive(_) => alive += 1,
            Pulse::Dead => dead += 1,
            Pulse::Unsure => {}
        }
    }
    (alive, dead)
}

fn unfinished(part: &Dir) -> usize {
    let old = |file: &&String| {
        let stat = part.stat(file);
        stat.is_ok_and(|stat| written_at(&stat).elapsed().is_ok_and(|age| age > UNFINISHED))
    };
    let files = part.names().unwrap_or_default();
    files.iter().filter(|file| file.starts_with('.')).filter(old).count()
}

fn written_at(stat: &Stat) -> SystemTime {
    UNIX_EPOCH + Duration::new(u64::try_from(stat.st_mtime).unwrap_or(0), stat.st_mtime_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_leads_to_a_folder_is_above_it() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        std::fs::create_dir_all(at("a/b/locks")).unwrap();
        std::fs::create_dir_all(at("c/d")).unwrap();
        std::os::unix::fs::symlink("../c/d/../link", at("a/by")).unwrap();
        std::os::unix::fs::symlink(at("a/b"), at("c/link")).unwrap();
        let names = |path: PathBuf| {
            let above = above(&path).into_iter().map(|above| above.path);
            above.filter(|path| path.starts_with(&root)).collect::<Vec<_>>()
        };
        assert_eq!(names(at("a/b/locks")), [root.clone(), at("a"), at("a/b")]);
        let by_links = names(at("a/by/locks"));
        for path in ["a", "a/by", "c", "c/d", "c/link", "a/b"] {
            assert!(by_links.contains(&at(path)), "{path}: {by_links:?}");
        }
        assert_eq!(above(Path::new("/x")).first().map(|above| above.path.clone()), Some(PathBuf::from("/")));
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        assert!(above(&at("loop/x")).len() < 100);
    }

    #[test]
    fn the_offset_of_a_boot_clock_is_read_from_its_line() {
        assert_eq!(clock_offset("monotonic           0         0\nboottime            0         0\n"), 0);
        assert_eq!(clock_offset("monotonic  5  0\nboottime   -86400   7\n"), -86_400);
        assert_eq!(clock_offset(""), 0);
    }
}
