//! Removing what nobody has used for long: files of idle locks, FIFOs of dead sessions, files that were never finished.
//!
//! A lock's file is kept when the lock is free, because the next claim is likely to come soon. It is removed when it was
//! not used for a day (or what the URL says), under its lock, and after the tokens that it gave out were noted in the floor.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_core::clock::wall_micros;
use leasehold_core::queue::{Effects, Now, Queue};
use leasehold_core::{Clock, Error, Kind, Result, Retry, SessionId};
use rustix::fs::{FileType, FlockOperation, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::folder::{Folder, in_folder};
use crate::listing::name_in;
use crate::liveness::{Pulse, pulse};
use crate::state::{QueueFile, TryLock};
use crate::traits::POLICY;
use crate::{filename, floor, format, watchers};

const SWEPT: &str = "swept";
const BOOT: &str = "boot";

/// Something unfinished is left alone for so long: its maker may be at work on it.
const UNFINISHED: Duration = Duration::from_secs(60);

/// Whether the folder was not swept lately.
pub(crate) fn is_due(folder: &Folder, retention: Duration) -> bool {
    match folder.base.stat(SWEPT) {
        Ok(stat) => age(&stat) >= (retention / 4).min(Duration::from_secs(3600)),
        Err(_) => true,
    }
}

/// Sweeps the folder, unless somebody else does it now. Whatever fails is left for the next time, and so is a folder that
/// was never swept: this only starts its clock.
pub(crate) fn sweep(folder: &Folder, retention: Duration) {
    let Ok(gate) = folder.open_file(SWEPT) else { return };
    // Looked at again under the lock: somebody may have swept in between.
    if rustix::fs::flock(&gate, FlockOperation::NonBlockingLockExclusive).is_err()
        || !is_due(folder, retention)
    {
        return;
    }
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let _ = rustix::fs::futimens(&gate, &Timestamps { last_access: now, last_modification: now });
    for dir in [&folder.base, &folder.sessions, &folder.watchers] {
        remove_staging(dir);
    }
    remove_dead_fifos(&folder.sessions, is_session);
    remove_dead_fifos(&folder.watchers, watchers::is_watcher);
    for file in folder.queues.names().unwrap_or_default() {
        let Some(stat) = stat_of(&folder.queues, &file, FileType::RegularFile) else { continue };
        if file.starts_with('.') {
            remove_unfinished(&folder.queues, &file, &stat);
        } else if age(&stat) >= retention {
            let _ = remove_if_idle(folder, &file);
        }
    }
}

fn remove_dead_fifos(dir: &Dir, is_ours: impl Fn(&str) -> bool) {
    for file in dir.names().unwrap_or_default() {
        let Some(stat) = stat_of(dir, &file, FileType::Fifo) else { continue };
        if file.starts_with('.') {
            // It has no reader before it is opened for the first time, and that is no sign of death.
            remove_unfinished(dir, &file, &stat);
        } else if is_ours(&file) && matches!(pulse(dir, &file), Pulse::Dead) {
            remove_fifo(dir, &file);
        }
    }
}

fn remove_unfinished(dir: &Dir, file: &str, stat: &Stat) {
    if is_temporary(file) && age(stat) >= UNFINISHED {
        let _ = dir.remove(file);
    }
}

/// Removes the staging directories of crashed processes. One that is not empty stays.
fn remove_staging(dir: &Dir) {
    for file in dir.names().unwrap_or_default().iter().filter(|file| is_temporary(file)) {
        if stat_of(dir, file, FileType::Directory).is_some_and(|stat| age(&stat) >= UNFINISHED) {
            let _ = dir.remove_dir(file);
        }
    }
}

/// Removes a FIFO, and nothing that took its place.
pub(crate) fn remove_fifo(dir: &Dir, file: &str) {
    if stat_of(dir, file, FileType::Fifo).is_some() {
        let _ = dir.remove(file);
    }
}

/// What is known of a file, if it is of this kind: nothing else is ever removed.
fn stat_of(dir: &Dir, file: &str, kind: FileType) -> Option<Stat> {
    dir.stat(file).ok().filter(|stat| FileType::from_raw_mode(stat.st_mode) == kind)
}

/// Whether a file has the form of the names that sessions give to their FIFOs.
pub(crate) fn is_session(file: &str) -> bool {
    file.parse::<SessionId>().is_ok_and(|id| id.to_string() == file)
}

/// Whether a file has the form of [`Folder::temporary_name`].
fn is_temporary(file: &str) -> bool {
    let parts = file.strip_prefix('.').and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(id, count)| {
        is_session(id) && !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Removes a queue file if nobody holds or waits, or only the dead do.
fn remove_if_idle(folder: &Folder, file: &str) -> Option<()> {
    let name = name_in(folder, file)?;
    let file = QueueFile::open(folder, &name, false).ok()?;
    let TryLock::Locked(locked) = file.try_lock().ok()? else { return None };
    let mut queue = locked.load(folder).ok()?.queue;
    let now = Now { tick: Clock::system().now(), wall: wall_micros() };
    queue.expire(POLICY, now, &mut Effects::default());
    if !all_dead(folder, &queue) {
        return None;
    }
    // First the floor, then the file: whoever makes the next file of this lock starts above it.
    floor::raise(folder, queue.last).ok()?;
    locked.remove(folder).ok()
}

fn all_dead(folder: &Folder, queue: &Queue) -> bool {
    let mut sessions = queue.entries.iter().chain(&queue.bargers).map(|e| e.session.to_string());
    sessions.all(|session| matches!(pulse(&folder.sessions, &session), Pulse::Dead))
}

/// The first to open a folder after the host started removes queue files that the end of the host left damaged: whoever
/// held those locks is gone. The others need nothing: that the sessions in them are dead is found out as always.
pub(crate) fn after_boot(folder: &Folder) -> Result<()> {
    let Ok(boot) = std::fs::read("/proc/sys/kernel/random/boot_id") else { return Ok(()) };
    if folder.base.read_small(BOOT).is_ok_and(|seen| seen == boot) {
        return Ok(());
    }
    let gate = folder.open_file(SWEPT)?;
    lock_patiently(&gate, folder)?;
    let seen = folder.base.read_small(BOOT);
    // A container may see another boot id than its host: as long as somebody lives, nothing is touched.
    if seen.is_ok_and(|seen| seen != boot) && nobody_lives(folder) {
        for file in folder.queues.names().unwrap_or_default() {
            remove_if_damaged(folder, &file);
        }
    }
    folder.replace_file(BOOT, &boot)
}

fn nobody_lives(folder: &Folder) -> bool {
    let files = folder.sessions.names().unwrap_or_default();
    files.iter().all(|file| file.starts_with('.') || matches!(pulse(&folder.sessions, file), Pulse::Dead))
}

/// Removes a queue file that the end of the host has damaged, and nothing else: neither a file that is no queue's by
/// its name, nor one with a content that this store never writes.
fn remove_if_damaged(folder: &Folder, file: &str) {
    let damaged = match name_in(folder, file) {
        Some(name) => match QueueFile::open(folder, &name, false) {
            Ok(queue) => match queue.try_lock() {
                Ok(TryLock::Locked(locked)) => locked.load(folder).is_err_and(|e| e.kind() == Kind::Store),
                _ => false,
            },
            Err(_) => false,
        },
        // Its name is in the part that is damaged.
        None => filename::is_hashed(file),
    };
    if damaged && is_torn(folder, file).unwrap_or(false) {
        let _ = folder.queues.remove(file);
    }
}

/// Whether the content of a file is what is left of a queue that was not written to its end.
fn is_torn(folder: &Folder, file: &str) -> io::Result<bool> {
    let fd = folder.queues.open_file(file, OFlags::RDONLY)?;
    let size = usize::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(usize::MAX);
    if size > 2 * format::MAX_SLOT {
        return Ok(false);
    }
    let mut content = vec![0; size];
    let len = rustix::io::pread(&fd, &mut content[..], 0)?;
    Ok(format::is_torn(&content[..len]))
}

fn lock_patiently(gate: &OwnedFd, folder: &Folder) -> Result<()> {
    let start = Instant::now();
    loop {
        match rustix::fs::flock(gate, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                let what = format!("another process has been sweeping {} for 10 s", folder.path.display());
                return Err(Error::new(Kind::Unavailable, what).retry(Retry::Later));
            }
            Err(e) => return Err(in_folder(&folder.path.join(SWEPT), "can't be locked", e)),
        }
    }
}

/// How long ago a file was written; nothing if that is in the future, because the clock was set back.
fn age(stat: &Stat) -> Duration {
    let written =
        UNIX_EPOCH + Duration::new(u64::try_from(stat.st_mtime).unwrap_or(0), stat.st_mtime_nsec as u32);
    SystemTime::now().duration_since(written).unwrap_or_default()
}
