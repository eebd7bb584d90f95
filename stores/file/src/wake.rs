//! How sessions are told: each has a FIFO that others write to and that a task of its own reads.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use leasehold_core::Result;
use leasehold_core::store::{News, Note};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::dir::Dir;
use crate::folder::{Folder, in_folder};
use crate::message::{Inbound, Message};
use crate::session::FileSession;

/// How much is read at once: more than the longest message.
const READ: usize = 16 * 1024;

/// Makes a FIFO in one of the folder's parts and opens it. It gets its name only when it has a reader: nobody must
/// ever take a session that is being born for a dead one.
///
/// The owner opens it for writing too: so it never sees an end of file when the last of the others closes it.
pub(crate) fn make_fifo(folder: &Folder, dir: &Dir, file: &str) -> Result<OwnedFd> {
    let created = dir.create_fifo(file, &folder.temporary_name());
    created.map_err(|e| in_folder(&folder.path, "can't hold a FIFO", e))
}

/// Lets the runtime watch an open file.
///
/// The method that takes the place of the deprecated one needs tokio 1.53.3. What is wrong with the old one, a file whose
/// number changes while it is watched, can't happen to an [`OwnedFd`].
#[allow(deprecated)]
pub(crate) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// Reads what is there; ready only when something was read.
pub(crate) fn poll_read(
    fd: &AsyncFd<OwnedFd>,
    buffer: &mut [u8],
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    loop {
        let mut readable = ready!(fd.poll_read_ready(cx))?;
        match rustix::io::read(fd.get_ref(), &mut *buffer) {
            Ok(len) => return Poll::Ready(Ok(len)),
            Err(Errno::AGAIN) => readable.clear_ready(),
            Err(Errno::INTR) => {}
            Err(e) => return Poll::Ready(Err(e.into())),
        }
    }
}

/// Reads a session's mail until the session is gone.
///
/// The FIFO belongs to the session alone: between messages this task holds nothing, so that dropping the session closes
/// the FIFO at that moment, and others see that it ended.
pub(crate) async fn read_mail(fifo: Weak<AsyncFd<OwnedFd>>, session: Weak<FileSession>) {
    let mut inbound = Inbound::default();
    let mut buffer = vec![0; READ];
    loop {
        let read = poll_fn(|cx| match fifo.upgrade() {
            Some(fd) => poll_read(&fd, &mut buffer, cx).map(Result::ok),
            None => Poll::Ready(None),
        });
        let Some(len) = read.await else { return };
        let Some(session) = session.upgrade() else { return };
        inbound.push(&buffer[..len]);
        while let Some(message) = inbound.next() {
            session.receive(message);
        }
    }
}

impl FileSession {
    /// Takes a message from the FIFO.
    fn receive(self: &Arc<Self>, message: Message) {
        match message {
            Message::Note(note) => self.take_note(note),
            Message::Look(name) => {
                let me = self.clone();
                // A task of its own: if the file is busy for long, the mail behind this message must not wait.
                self.runtime.spawn(async move { me.look(&name).await });
            }
            // Events go to watchers, not to sessions.
            Message::Event { .. } => {}
        }
    }

    /// Takes a note from whatever way it came, and passes it on.
    pub(crate) fn take_note(&self, note: Note) {
        match note.news {
            News::Granted(_) => self.peers.settled(&note.name, note.id),
            News::Gone(_) => {
                self.peers.settled(&note.name, note.id);
                self.forget(note.id);
            }
            News::Retry | News::ReleaseRequested => {}
        }
        self.inbox.note(note);
    }
}
