//! Where a queue lives, and how it is changed atomically: a file, locked, read, and written if it changed.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use leasehold_core::queue::Queue;
use leasehold_core::{Error, Kind, Name, Result};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::dir::is;
use crate::folder::{Folder, in_use};
use crate::format::{self, HEADER, Header, MIN_SLOT};
use crate::{filename, floor};

/// How many queue files a session keeps open. Opening one costs as much as the rest of a change.
const KEPT_OPEN: usize = 64;

/// Files of up to this size are read whole; of larger ones only the slot that counts.
const READ_WHOLE: u64 = 16 * 1024;

/// The queue files that a session keeps open.
#[derive(Debug)]
pub(crate) struct Files {
    folder: Arc<Folder>,
    open: Mutex<HashMap<Name, Arc<QueueFile>>>,
    uses: AtomicU64,
}

impl Files {
    pub(crate) fn new(folder: Arc<Folder>) -> Self {
        Files { folder, open: Mutex::default(), uses: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Arc<QueueFile>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a lock; `None` if it has none and none is to be made.
    pub(crate) fn get(&self, name: &Name, create: bool) -> Result<Option<Arc<QueueFile>>> {
        let used = self.uses.fetch_add(1, Ordering::Relaxed);
        if let Some(file) = self.lock().get(name) {
            file.used.store(used, Ordering::Relaxed);
            return Ok(Some(file.clone()));
        }
        let Some(file) = self.open(name, create, used)? else { return Ok(None) };
        let mut open = self.lock();
        // Two threads may have opened it at once; one of the two is as good as the other.
        let file = open.entry(name.clone()).or_insert(file).clone();
        let oldest = open.values().min_by_key(|f| f.used.load(Ordering::Relaxed)).map(|f| f.name.clone());
        if let Some(oldest) = oldest.filter(|_| open.len() > KEPT_OPEN) {
            open.remove(&oldest);
        }
        Ok(Some(file))
    }

    fn open(&self, name: &Name, create: bool, used: u64) -> Result<Option<Arc<QueueFile>>> {
        let opened = match QueueFile::open(&self.folder, name, create) {
            // Too many open files: those kept for speed are the first to go.
            Err(e) if is(&e, Errno::MFILE) || is(&e, Errno::NFILE) => {
                self.lock().clear();
                QueueFile::open(&self.folder, name, create)
            }
            other => other,
        };
        match opened {
            Ok(file) => Ok(Some(Arc::new(QueueFile { used: AtomicU64::new(used), ..file }))),
            Err(e) if is(&e, Errno::NOENT) && !create => Ok(None),
            Err(e) => {
                let path = self.folder.path.join("q").join(filename::of(name));
                Err(in_use(&path, if create { "can't be opened or created" } else { "can't be opened" }, e)
                    .on(name))
            }
        }
    }

    /// No longer keeps a file open that was replaced or removed.
    pub(crate) fn forget(&self, file: &Arc<QueueFile>) {
        let mut open = self.lock();
        if open.get(&file.name).is_some_and(|kept| Arc::ptr_eq(kept, file)) {
            open.remove(&file.name);
        }
    }
}

/// The open file of a lock.
#[derive(Debug)]
pub(crate) struct QueueFile {
    name: Name,
    file: String,
    /// The kernel's lock belongs to the open file, not to the thread, so threads need one of their own.
    fd: Mutex<OwnedFd>,
    used: AtomicU64,
}

/// What came of trying to lock a queue file.
#[derive(Debug)]
pub(crate) enum TryLock<'a> {
    /// It is ours until the value is dropped.
    Locked(Locked<'a>),
    /// Somebody else is changing it.
    Busy,
    /// It is not the file of this lock any more: it was replaced by a larger one, or removed.
    Stale,
}

impl QueueFile {
    /// Opens the file of a lock, and creates it if it is missing and wanted.
    pub(crate) fn open(folder: &Folder, name: &Name, create: bool) -> io::Result<Self> {
        let file = filename::of(name);
        loop {
            let fd = match open_existing(folder, &file) {
                Err(e) if create && is(&e, Errno::NOENT) => match create_file(folder, name, &file) {
                    Err(Errno::EXIST) => continue,
                    created => created?,
                },
                opened => opened?,
            };
            return Ok(QueueFile { name: name.clone(), file, fd: Mutex::new(fd), used: AtomicU64::new(0) });
        }
    }

    /// Locks the file if nobody else has it locked.
    pub(crate) fn try_lock(&self) -> rustix::io::Result<TryLock<'_>> {
        let fd = match self.fd.try_lock() {
            Ok(fd) => fd,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(TryLock::Busy),
        };
        match rustix::fs::flock(&*fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(TryLock::Busy),
            Err(e) => return Err(e),
        }
        let mut locked = Locked { file: self, fd, size: 0 };
        let stat = rustix::fs::fstat(&*locked.fd)?;
        if stat.st_nlink == 0 {
            return Ok(TryLock::Stale);
        }
        locked.size = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(TryLock::Locked(locked))
    }
}

fn open_existing(folder: &Folder, file: &str) -> io::Result<OwnedFd> {
    // Noting the time of every read would cost as much as the read. Only the owner of a file may do without.
    match folder.queues.open_file(file, OFlags::RDWR | OFlags::NOATIME) {
        Err(e) if is(&e, Errno::PERM) => folder.queues.open_file(file, OFlags::RDWR),
        other => other,
    }
}

/// A new file is complete before it gets its name: nobody ever sees one that is half made.
fn create_file(folder: &Folder, name: &Name, file: &str) -> rustix::io::Result<OwnedFd> {
    let mut bytes = Vec::new();
    format::encode_slot(name.as_str(), &Queue::default(), 1, &mut bytes);
    write_new(folder, &bytes, MIN_SLOT, |_, temporary| folder.queues.settle(temporary, file))
}

/// Makes a file with one slot written, and gives it its name with `finish`.
fn write_new(
    folder: &Folder,
    slot: &[u8],
    capacity: usize,
    finish: impl FnOnce(&OwnedFd, &str) -> rustix::io::Result<()>,
) -> rustix::io::Result<OwnedFd> {
    let temporary = folder.temporary_name();
    let fd = folder.queues.create_file(&temporary)?;
    let fill = || {
        write_whole(&fd, slot, 0)?;
        rustix::fs::ftruncate(&fd, 2 * capacity as u64)?;
        finish(&fd, &temporary)
    };
    if let Err(e) = fill() {
        let _ = folder.queues.remove(&temporary);
        return Err(e);
    }
    Ok(fd)
}

fn write_whole(fd: &OwnedFd, bytes: &[u8], offset: u64) -> rustix::io::Result<()> {
    // A slot that was written in part is not intact, so nobody takes it for the state.
    if rustix::io::pwrite(fd, bytes, offset)? == bytes.len() { Ok(()) } else { Err(Errno::NOSPC) }
}

/// A queue file that nobody else can change now.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    file: &'a QueueFile,
    fd: MutexGuard<'a, OwnedFd>,
    size: u64,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&*self.fd, FlockOperation::Unlock);
    }
}

/// A queue as it was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The queue, to be changed.
    pub(crate) queue: Queue,
    /// The slot that it stands in.
    header: Header,
    buffers: Buffers,
    /// Where its payload stands in what was read.
    payload: usize,
}

/// What is read and written, kept for the next time: a change allocates no pages.
#[derive(Debug, Default)]
struct Buffers {
    read: Vec<u8>,
    write: Vec<u8>,
}

thread_local! {
    static BUFFERS: Cell<Buffers> = const { Cell::new(Buffers { read: Vec::new(), write: Vec::new() }) };
}

impl Locked<'_> {
    /// Reads the queue.
    pub(crate) fn load(&self, folder: &Folder) -> Result<Loaded> {
        let mut buffers = BUFFERS.take();
        let found =
            self.read_newest(&mut buffers.read).map_err(|e| self.error(folder, "can't be read", e))?;
        let Some((header, payload)) = found else { return Err(self.damaged(folder, "is damaged")) };
        let Some((name, mut queue)) = format::decode(&buffers.read[payload..payload + header.len]) else {
            return Err(self.damaged(folder, "is damaged"));
        };
        if name != self.file.name.as_str() {
            return Err(self.damaged(folder, &format!("belongs to the lock {name:?}")));
        }
        if queue.last == 0 {
            // It never granted anything, but an earlier file of this lock may have.
            queue.last = floor::read(folder)?;
        }
        Ok(Loaded { queue, header, buffers, payload })
    }

    /// The newest intact slot, and where its payload stands in the buffer.
    fn read_newest(&self, buffer: &mut Vec<u8>) -> rustix::io::Result<Option<(Header, usize)>> {
        let Some(capacity) = format::capacity(self.size) else { return Ok(None) };
        let whole = self.size <= READ_WHOLE;
        if whole {
            self.read(buffer, 0, 2 * capacity)?;
        }
        let mut header = |slot: usize| {
            if whole {
                return Ok(Header::read(slot, &buffer[slot * capacity..], capacity));
            }
            self.read(buffer, slot * capacity, HEADER)?;
            Ok::<_, Errno>(Header::read(slot, buffer, capacity))
        };
        let (a, b) = (header(0)?, header(1)?);
        for header in format::newest_first(a, b).into_iter().flatten() {
            let in_file = header.slot * capacity + HEADER;
            let at = if whole {
                in_file
            } else {
                self.read(buffer, in_file, header.len)?;
                0
            };
            if buffer.get(at..at + header.len).is_some_and(|payload| header.seals(payload)) {
                return Ok(Some((header, at)));
            }
        }
        Ok(None)
    }

    fn read(&self, buffer: &mut Vec<u8>, offset: usize, len: usize) -> rustix::io::Result<()> {
        buffer.resize(len, 0);
        let got = rustix::io::pread(&*self.fd, &mut buffer[..], offset as u64)?;
        buffer.truncate(got);
        if got == len { Ok(()) } else { Err(Errno::IO) }
    }

    /// Writes the queue if it changed.
    pub(crate) fn save(&mut self, folder: &Folder, loaded: Loaded) -> Result<()> {
        let Loaded { queue, header, mut buffers, payload } = loaded;
        format::encode_slot(self.file.name.as_str(), &queue, header.number + 1, &mut buffers.write);
        let same = buffers.write[HEADER..] == buffers.read[payload..payload + header.len];
        let saved = if same { Ok(()) } else { self.write(folder, header.slot, &buffers.write) };
        BUFFERS.set(buffers);
        saved
    }

    fn write(&mut self, folder: &Folder, current: usize, slot: &[u8]) -> Result<()> {
        let capacity = usize::try_from(self.size / 2).unwrap_or(0);
        let offset = if current == 0 { capacity as u64 } else { 0 };
        if slot.len() <= capacity {
            return write_whole(&self.fd, slot, offset)
                .map_err(|e| self.error(folder, "can't be written", e));
        }
        self.grow(folder, slot)
    }

    /// The state no longer fits: a larger file takes the place of this one. Those who wait to lock the old one find that it
    /// has no name any more, and open the new one.
    fn grow(&mut self, folder: &Folder, slot: &[u8]) -> Result<()> {
        let Some(capacity) = format::capacity_for(slot.len()) else {
            return Err(Error::new(Kind::Refused, "too many claims wait for this lock").on(&self.file.name));
        };
        let file = &*self.file.file;
        let rename = |fd: &OwnedFd, temporary: &str| {
            // Whoever opens it under its name finds it locked until this change is over.
            rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive)?;
            folder.queues.rename(temporary, file)
        };
        let fd = write_new(folder, slot, capacity, rename)
            .map_err(|e| self.error(folder, "can't be written", e))?;
        *self.fd = fd;
        self.size = 2 * capacity as u64;
        Ok(())
    }

    /// Removes the file. What this queue reached must be below the floor by now.
    pub(crate) fn remove(self, folder: &Folder) -> rustix::io::Result<()> {
        folder.queues.remove(&self.file.file)
    }

    fn error(&self, folder: &Folder, what: &str, e: Errno) -> Error {
        in_use(&folder.path.join("q").join(&self.file.file), what, e).on(&self.file.name)
    }

    /// Never taken for a free lock: somebody may hold it.
    fn damaged(&self, folder: &Folder, what: &str) -> Error {
        let path = folder.path.join("q").join(&self.file.file);
        Error::new(Kind::Store, format!("the queue file {} {what}", path.display()))
            .advice("stop all who may hold this lock, then remove the file")
            .on(&self.file.name)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use leasehold_core::SessionId;
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::folder::{Place, Trust};

    fn folder(path: &Path) -> Folder {
        Folder::open(&Place { path: path.to_owned(), trust: Trust::Given }, SessionId(1)).unwrap()
    }

    fn lock(file: &QueueFile) -> Locked<'_> {
        match file.try_lock().unwrap() {
            TryLock::Locked(locked) => locked,
            other => panic!("{other:?}"),
        }
    }

    fn put(folder: &Folder, file: &QueueFile, queue: Queue) {
        let mut locked = lock(file);
        let loaded = locked.load(folder).unwrap();
        locked.save(folder, Loaded { queue, ..loaded }).unwrap();
    }

    fn get(folder: &Folder, file: &QueueFile) -> Result<Queue> {
        lock(file).load(folder).map(|loaded| loaded.queue)
    }

    fn some_queue(runner: &mut TestRunner) -> Queue {
        let mut queue = format::tests::queues().new_tree(runner).unwrap().current();
        queue.last = queue.last.max(1);
        queue
    }

    #[test]
    fn a_write_that_is_torn_anywhere_leaves_the_old_or_the_new_state() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let name = Name::new("torn").unwrap();
        let file = QueueFile::open(&folder, &name, true).unwrap();
        let path = temp.path().join("q/torn");
        let mut runner = TestRunner::deterministic();
        // Several rounds, so that both slots are the one that is torn.
        for _ in 0..4 {
            let (old, new) = (some_queue(&mut runner), some_queue(&mut runner));
            put(&folder, &file, old.clone());
            let before = std::fs::read(&path).unwrap();
            put(&folder, &file, new.clone());
            let after = std::fs::read(&path).unwrap();
            if before.len() != after.len() {
                continue; // It grew, and a rename is never torn.
            }
            let disk = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            // The write is one slot; before and behind it nothing differs.
            let first = (0..after.len()).find(|at| before[*at] != after[*at]).unwrap();
            let last = (0..after.len()).rfind(|at| before[*at] != after[*at]).unwrap();
            for cut in first..=last + 1 {
                disk.write_all_at(&[&after[..cut], &before[cut..]].concat(), 0).unwrap();
                let found = get(&folder, &file).unwrap();
                assert!(found == old || found == new, "torn at {cut}");
                if cut == first {
                    assert_eq!(found, old);
                }
            }
            assert_eq!(get(&folder, &file).unwrap(), new);
        }
    }

    #[test]
    fn a_file_grows_and_those_who_had_the_old_one_open_find_out() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let name = Name::new("grows").unwrap();
        let file = QueueFile::open(&folder, &name, true).unwrap();
        let other = QueueFile::open(&folder, &name, true).unwrap();
        let mut runner = TestRunner::deterministic();
        let one = std::iter::repeat_with(|| some_queue(&mut runner))
            .find_map(|q| q.bargers.into_iter().next())
            .unwrap();
        for count in [0, 100, 1000, 3, 0] {
            let queue =
                Queue { last: 5, limit: None, entries: vec![one.clone(); count], bargers: Vec::new() };
            put(&folder, &file, queue.clone());
            assert_eq!(get(&folder, &file).unwrap(), queue);
        }
        assert!(matches!(other.try_lock().unwrap(), TryLock::Stale));
        let again = QueueFile::open(&folder, &name, false).unwrap();
        assert_eq!(get(&folder, &again).unwrap().last, 5);
        let left: Vec<_> = std::fs::read_dir(temp.path().join("q")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_locked_file_is_busy_for_threads_and_for_others() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let name = Name::new("busy").unwrap();
        let file = QueueFile::open(&folder, &name, true).unwrap();
        let other = QueueFile::open(&folder, &name, false).unwrap();
        let locked = lock(&file);
        assert!(matches!(file.try_lock().unwrap(), TryLock::Busy));
        assert!(matches!(other.try_lock().unwrap(), TryLock::Busy));
        drop(locked);
        assert!(matches!(other.try_lock().unwrap(), TryLock::Locked(_)));
    }

    #[test]
    fn a_damaged_file_is_an_error_that_says_what_to_do_and_never_a_free_lock() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        let name = Name::new("damaged").unwrap();
        let path = temp.path().join("q/damaged");
        for garbage in [vec![], vec![0], vec![0; 4096], b"hello\n".repeat(900), vec![0xff; 8192]] {
            std::fs::write(&path, &garbage).unwrap();
            let file = QueueFile::open(&folder, &name, true).unwrap();
            let e = get(&folder, &file).unwrap_err();
            assert_eq!(e.kind(), Kind::Store);
            assert!(e.to_string().contains("q/damaged") && e.to_string().contains("remove"), "{e}");
            assert_eq!(std::fs::read(&path).unwrap(), garbage, "it is left for people to look at");
        }
    }

    #[test]
    fn the_file_of_another_lock_under_this_name_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        let folder = folder(temp.path());
        QueueFile::open(&folder, &Name::new("one").unwrap(), true).unwrap();
        std::fs::rename(temp.path().join("q/one"), temp.path().join("q/two")).unwrap();
        let file = QueueFile::open(&folder, &Name::new("two").unwrap(), true).unwrap();
        let e = get(&folder, &file).unwrap_err();
        assert_eq!(e.kind(), Kind::Store);
        assert!(e.to_string().contains("\"one\""), "{e}");
    }

    #[test]
    fn only_so_many_files_are_kept_open() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Arc::new(folder(temp.path()));
        let files = Files::new(folder);
        for i in 0..3 * KEPT_OPEN {
            files.get(&Name::new(format!("n{i}")).unwrap(), true).unwrap().unwrap();
        }
        assert_eq!(files.lock().len(), KEPT_OPEN);
        assert!(files.get(&Name::new("other").unwrap(), false).unwrap().is_none());
    }
}
