//! Telling those who watch what happens, and their stream.
//!
//! A watcher is a FIFO whose name says which prefix it is about. Whoever begins to watch adds a byte to a file, so that
//! everybody else sees by the size of that file, with one short system call, whether there is somebody new.
//!
//! Events are written while the queue is locked, so those of one lock come in the order in which they happened.

use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use leasehold_core::view::{EntryView, Event, Events, Happened};
use leasehold_core::{Error, Kind, Name, Result, Retry, SessionId};
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Interval, MissedTickBehavior};

use crate::folder::{Folder, in_folder};
use crate::liveness::{Pulse, pulse};
use crate::message::{Inbound, Message};
use crate::sweep;
use crate::wake::{make_fifo, poll_read, register};

const COUNT_FILE: &str = "watches";

/// So much of a prefix fits into the name of a FIFO. The watcher itself compares the rest.
const PREFIX_IN_NAME: usize = 64;

/// How often a watcher looks whether its FIFO is still there.
const CHECK: Duration = Duration::from_secs(5);

/// Those who watch, as one session knows them.
#[derive(Debug)]
pub(crate) struct Watchers {
    folder: Arc<Folder>,
    count: OwnedFd,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The size of the count file when the list was made.
    count: i64,
    list: Vec<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    file: String,
    prefix: Vec<u8>,
    fd: OwnedFd,
    /// How many events did not fit since the last that did.
    missed: u32,
}

impl Watchers {
    pub(crate) fn new(folder: Arc<Folder>) -> Result<Self> {
        // Only its size is looked at.
        let count = folder.open_file(COUNT_FILE)?;
        Ok(Watchers { folder, count, known: Mutex::default() })
    }

    /// Whether anybody watches this name.
    pub(crate) fn watched(&self, name: &Name) -> bool {
        let count = rustix::fs::fstat(&self.count).map_or(0, |stat| stat.st_size);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.count != count {
            known.count = count;
            known.learn(&self.folder);
        }
        known.list.iter().any(|watcher| watcher.wants(name))
    }

    /// Tells what happened to a lock. To be called while it is locked.
    pub(crate) fn tell(&self, name: &Name, at: u64, events: Vec<(Happened, EntryView)>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (what, view) in events {
            let EntryView { session, label, want, token, .. } = view;
            let event = Event { at, name: name.clone(), what, label, session, want, token };
            known.list.retain_mut(|watcher| !watcher.wants(name) || watcher.tell(&event, &self.folder));
        }
    }
}

impl Known {
    fn learn(&mut self, folder: &Folder) {
        let files = folder.watchers.names().unwrap_or_default();
        self.list.retain(|watcher| files.contains(&watcher.file));
        for file in files {
            let known = file.starts_with('.') || self.list.iter().any(|watcher| watcher.file == file);
            let Some(prefix) = prefix_of(&file).filter(|_| !known) else { continue };
            match pulse(&folder.watchers, &file) {
                Pulse::Alive(fd) => self.list.push(Watcher { file, prefix, fd, missed: 0 }),
                Pulse::Dead if is_watcher(&file) => sweep::remove_fifo(&folder.watchers, &file),
                Pulse::Dead => {}
                Pulse::Unsure => {}
            }
        }
    }
}

impl Watcher {
    fn wants(&self, name: &Name) -> bool {
        name.as_str().as_bytes().starts_with(&self.prefix)
    }

    /// Writes an event; false if nobody reads any more.
    fn tell(&mut self, event: &Event, folder: &Folder) -> bool {
        let message = Message::Event { event: event.clone(), missed: self.missed };
        match rustix::io::write(&self.fd, &message.encode()) {
            Ok(_) => self.missed = 0,
            Err(Errno::PIPE) => {
                let _ = folder.watchers.remove(&self.file);
                return false;
            }
            Err(_) => self.missed = self.missed.saturating_add(1),
        }
        true
    }
}

/// `ID.PREFIX`, the prefix in hex digits.
fn file_of(id: SessionId, prefix: &str) -> String {
    let prefix = prefix.as_bytes();
    let hex: String =
        prefix[..prefix.len().min(PREFIX_IN_NAME)].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{id}.{hex}")
}

fn prefix_of(file: &str) -> Option<Vec<u8>> {
    let (_, hex) = file.split_once('.')?;
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// Whether a file has the form of the names that watchers give to their FIFOs.
pub(crate) fn is_watcher(file: &str) -> bool {
    file.split_once('.').is_some_and(|(id, _)| sweep::is_session(id)) && prefix_of(file).is_some()
}

/// Begins to watch.
pub(crate) fn watch(folder: Arc<Folder>, prefix: String) -> Result<Events> {
    let file = file_of(SessionId::random()?, &prefix);
    let fd = make_fifo(&folder, &folder.watchers, &file)?;
    let failed = |e: std::io::Error| in_folder(&folder.path, "can't be watched", e);
    let fd = register(fd, Interest::READABLE).map_err(failed)?;
    let mut check = tokio::time::interval(CHECK);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stream = Watch {
        folder: folder.clone(),
        file,
        fd,
        prefix,
        inbound: Inbound::default(),
        held_back: None,
        check,
        over: false,
    };
    let count = folder.open_file(COUNT_FILE)?;
    rustix::io::write(&count, b"+").map_err(|e| failed(e.into()))?;
    Ok(Box::pin(stream))
}

/// What a watcher reads.
struct Watch {
    folder: Arc<Folder>,
    file: String,
    fd: AsyncFd<OwnedFd>,
    prefix: String,
    inbound: Inbound,
    /// The event that comes after the error that says that some were missed.
    held_back: Option<Event>,
    check: Interval,
    over: bool,
}

impl Watch {
    fn next_received(&mut self) -> Option<Result<Event>> {
        if let Some(event) = self.held_back.take() {
            return Some(Ok(event));
        }
        while let Some(message) = self.inbound.next() {
            let Message::Event { event, missed } = message else { continue };
            let wanted = event.name.as_str().starts_with(&self.prefix);
            if missed > 0 {
                self.held_back = wanted.then_some(event);
                let what = format!("{missed} events were missed: they came faster than they were read");
                return Some(Err(Error::new(Kind::Unavailable, what).retry(Retry::Later)));
            }
            if wanted {
                return Some(Ok(event));
            }
        }
        None
    }

    /// Whether others can still find the FIFO.
    fn is_there(&self) -> bool {
        let path = self.folder.path.join("w").join(&self.file);
        same_file(&path, self.fd.get_ref())
    }
}

impl Stream for Watch {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let me = &mut *self;
        let mut buffer = [0; 8192];
        loop {
            if let Some(item) = me.next_received() {
                return Poll::Ready(Some(item));
            }
            if me.over {
                return Poll::Ready(None);
            }
            match poll_read(&me.fd, &mut buffer, cx) {
                Poll::Ready(Ok(len)) => me.inbound.push(&buffer[..len]),
                Poll::Ready(Err(e)) => {
                    me.over = true;
                    return Poll::Ready(Some(Err(in_folder(&me.folder.path, "can't be watched", e))));
                }
                Poll::Pending => {
                    std::task::ready!(me.check.poll_tick(cx));
                    if !me.is_there() {
                        me.over = true;
                        let what =
                            format!("the watch ended: its file in {} was removed", me.folder.path.display());
                        return Poll::Ready(Some(Err(
                            Error::new(Kind::Unavailable, what).retry(Retry::Later)
                        )));
                    }
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.folder.watchers.remove(&self.file);
    }
}

/// Whether this path leads to this open file. If it can't be told, it is believed to.
pub(crate) fn same_file(path: &std::path::Path, fd: impl AsFd) -> bool {
    match (rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW), rustix::fs::fstat(fd)) {
        (Ok(there), Ok(mine)) => (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino),
        (Err(Errno::NOENT | Errno::NOTDIR), _) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_fifo_says_the_prefix() {
        for prefix in ["", "a", "orders/ä🌙", "x".repeat(500).as_str()] {
            let file = file_of(SessionId(5), prefix);
            assert!(file.len() < 255);
            let read = prefix_of(&file).unwrap();
            assert!(prefix.as_bytes().starts_with(&read) && read.len() == prefix.len().min(PREFIX_IN_NAME));
        }
        for garbage in ["", "x", "x.1", "x.zz", "x.€"] {
            let _ = prefix_of(garbage);
        }
        assert_eq!(prefix_of("x.zz"), None);
    }
}
