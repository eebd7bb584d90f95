//! Watching other sessions.
//!
//! A session is alive while somebody reads its FIFO. Opening the FIFO for writing tells whether that is so now; keeping it
//! open tells the moment at which it ends, because the kernel reports an error on a pipe that has lost its last reader. The
//! same open file carries our wake-ups to it.
//!
//! The kernel closes the files of a killed process when the last of its threads is gone. So by the time at which a session
//! is seen to be dead, no code of it runs any more, and whatever it was writing is written.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::{EntryId, Name, SessionId};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::dir::{Dir, is};
use crate::folder::Folder;
use crate::session::FileSession;
use crate::wake::register;

/// What opening a session's FIFO tells.
pub(crate) enum Pulse {
    /// It lives; this is the way to it.
    Alive(OwnedFd),
    /// It ended.
    Dead,
    /// It can't be told (too many open files, no permission). To be taken for alive.
    Unsure,
}

/// Feels the pulse of the owner of a FIFO.
pub(crate) fn pulse(dir: &Dir, file: &str) -> Pulse {
    match dir.open_fifo(file, OFlags::WRONLY) {
        Ok(fd) => Pulse::Alive(fd),
        // What is no FIFO has no reader.
        Err(e) if is(&e, Errno::NXIO) || is(&e, Errno::NOENT) || e.kind() == io::ErrorKind::InvalidData => {
            Pulse::Dead
        }
        Err(_) => Pulse::Unsure,
    }
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It was written, or dropped because the FIFO is full: then the receiver finds out when it asks.
    Done,
    /// There is no receiver any more.
    Dead,
}

/// Writes a message without ever waiting.
pub(crate) fn write(fd: &OwnedFd, message: &[u8]) -> Sent {
    match rustix::io::write(fd, message) {
        Err(Errno::PIPE) => Sent::Dead,
        _ => Sent::Done,
    }
}

/// The sessions that one session watches, and for which names.
#[derive(Debug)]
pub(crate) struct Peers {
    folder: Arc<Folder>,
    runtime: Handle,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    peers: HashMap<SessionId, Peer>,
    names: HashMap<Name, Watch>,
}

#[derive(Debug)]
struct Peer {
    fd: Arc<AsyncFd<OwnedFd>>,
    /// For how many names it is watched.
    names: usize,
    task: AbortHandle,
}

/// Whom we watch because of one name.
#[derive(Debug, Default)]
struct Watch {
    watched: Vec<SessionId>,
    /// Which entries of ours wait there.
    waiting: Vec<EntryId>,
}

/// What [`Peers::cover`] found.
#[derive(Debug, Default)]
pub(crate) struct Covered {
    /// These are dead; the rest is watched.
    pub(crate) dead: Vec<SessionId>,
    /// Some could not be watched: asking again now and then must do.
    pub(crate) unsure: bool,
}

impl Peers {
    pub(crate) fn new(folder: Arc<Folder>, runtime: Handle) -> Self {
        Peers { folder, runtime, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these sessions, and no others, are watched because of this name. `me` is told of their deaths.
    pub(crate) fn cover(
        &self,
        name: &Name,
        sessions: Vec<SessionId>,
        waiting: Vec<EntryId>,
        me: &Weak<FileSession>,
    ) -> Covered {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let mut covered = Covered::default();
        let before = inner.names.remove(name).unwrap_or_default();
        let mut watched = Vec::new();
        for session in sessions {
            if let Some(peer) = inner.peers.get_mut(&session) {
                peer.names += 1;
                watched.push(session);
                continue;
            }
            match pulse(&self.folder.sessions, &session.to_string()) {
                Pulse::Dead => covered.dead.push(session),
                Pulse::Unsure => covered.unsure = true,
                Pulse::Alive(fd) => match self.watch(session, fd, me) {
                    None => covered.unsure = true,
                    Some(peer) => {
                        inner.peers.insert(session, peer);
                        watched.push(session);
                    }
                },
            }
        }
        before.watched.into_iter().for_each(|session| inner.release(session));
        if !waiting.is_empty() {
            inner.names.insert(name.clone(), Watch { watched, waiting });
        }
        covered
    }

    /// Nobody is watched because of this name any more.
    pub(crate) fn uncover(&self, name: &Name) {
        let mut inner = self.lock();
        if let Some(before) = inner.names.remove(name) {
            before.watched.into_iter().for_each(|session| inner.release(session));
        }
    }

    /// An entry of ours no longer waits.
    pub(crate) fn settled(&self, name: &Name, id: EntryId) {
        let mut inner = self.lock();
        let Some(watch) = inner.names.get_mut(name) else { return };
        watch.waiting.retain(|waiting| *waiting != id);
        if watch.waiting.is_empty() {
            drop(inner);
            self.uncover(name);
        }
    }

    fn watch(&self, session: SessionId, fd: OwnedFd, me: &Weak<FileSession>) -> Option<Peer> {
        let _inside = self.runtime.enter();
        let fd = Arc::new(register(fd, Interest::ERROR).ok()?);
        let (watched, me) = (fd.clone(), me.clone());
        let task = self.runtime.spawn(async move {
            let ended = watched.ready(Interest::ERROR).await.is_ok();
            drop(watched);
            if let Some(me) = me.upgrade().filter(|_| ended) {
                me.bury(session).await;
            }
        });
        Some(Peer { fd, names: 1, task: task.abort_handle() })
    }

    /// A session died: it is no longer watched, and these are the names that it was watched for.
    pub(crate) fn died(&self, session: SessionId) -> Vec<Name> {
        let mut inner = self.lock();
        // Its task is the one that asks; it is not stopped.
        inner.peers.remove(&session);
        let names = inner.names.iter().filter(|(_, watch)| watch.watched.contains(&session));
        names.map(|(name, _)| name.clone()).collect()
    }

    /// Which of these are dead.
    pub(crate) fn dead_among(&self, sessions: impl IntoIterator<Item = SessionId>) -> Vec<SessionId> {
        let mut sessions: Vec<SessionId> = sessions.into_iter().collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions.retain(|session| match self.peer(*session) {
            Some(fd) => has_no_reader(fd.get_ref()),
            None => matches!(pulse(&self.folder.sessions, &session.to_string()), Pulse::Dead),
        });
        sessions
    }

    /// Sends a message to a session.
    pub(crate) fn send(&self, session: SessionId, message: &[u8]) -> Sent {
        match self.peer(session) {
            Some(fd) => write(fd.get_ref(), message),
            None => match pulse(&self.folder.sessions, &session.to_string()) {
                Pulse::Alive(fd) => write(&fd, message),
                Pulse::Dead => Sent::Dead,
                Pulse::Unsure => Sent::Done,
            },
        }
    }

    fn peer(&self, session: SessionId) -> Option<Arc<AsyncFd<OwnedFd>>> {
        self.lock().peers.get(&session).map(|peer| peer.fd.clone())
    }

    /// Removes the FIFO that a dead session left. Its entries need not be gone: a session without a FIFO is dead too.
    pub(crate) fn remove_remains(&self, session: SessionId) {
        let _ = self.folder.sessions.remove(&session.to_string());
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.lock().peers.values().for_each(|peer| peer.task.abort());
    }
}

impl Inner {
    fn release(&mut self, session: SessionId) {
        let Some(peer) = self.peers.get_mut(&session) else { return };
        peer.names -= 1;
        if peer.names == 0 {
            peer.task.abort();
            self.peers.remove(&session);
        }
    }
}

fn has_no_reader(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::ERR)
}
