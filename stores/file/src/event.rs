//! One event on one queue, from its lock to its notes.
//!
//! Lock, read, let the rule decide, look whether those it decided about are alive (and decide again without the dead),
//! write, tell watchers, unlock; then tell the sessions whom it concerns. All of it happens inside the first poll unless
//! the file is busy; then it goes on in a thread that may sleep.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::queue::{Effects, Entry, Now, Queue};
use leasehold_core::store::{News, Note};
use leasehold_core::{EntryId, Error, Kind, Name, Result, Retry, SessionId, Token};

use crate::chain::{self, Line};
use crate::folder::in_use;
use crate::liveness::{Covered, Sent};
use crate::message::Message;
use crate::session::FileSession;
use crate::state::TryLock;
use crate::traits::POLICY;

/// How often a busy file is tried before the wait is left to another thread. A change takes some microseconds.
const TRIES: u32 = 8;

/// How long a busy file is waited for. Only a process that was stopped in the middle of a change makes it this long.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(300) } else { Duration::from_secs(10) };

/// How an event is run.
pub(crate) struct Plan<T> {
    /// Whether a lock that nobody uses gets a file.
    pub(crate) create: bool,
    /// Whether everybody is checked to be alive before.
    pub(crate) check_all: bool,
    /// Whether the event is run again on what is left when somebody was found dead. Only one that can be repeated may be.
    pub(crate) again: bool,
    /// Who is to be checked because of the answer, besides those who are watched.
    pub(crate) check: fn(&T) -> Check,
    /// The entry that the answer is about: notes to ourselves about it would say the same twice.
    pub(crate) about: Option<EntryId>,
}

/// Whom an answer depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Nobody but those who are watched anyway.
    Nobody,
    /// Those who hold.
    Holders,
    /// Those who make a newcomer wait.
    InTheWay,
}

impl<T> Default for Plan<T> {
    fn default() -> Self {
        Plan { create: false, check_all: false, again: false, check: |_| Check::Nobody, about: None }
    }
}

/// An event that is done at the store, with what is left to tell.
pub(crate) struct Done<T> {
    pub(crate) answer: T,
    /// Some of those ahead could not be watched.
    pub(crate) unsure: bool,
    notes: Vec<(SessionId, EntryId, News)>,
    looks: Vec<SessionId>,
}

impl FileSession {
    /// Runs an event on a queue, and tells whom it concerns.
    pub(crate) async fn run<T, E>(self: &Arc<Self>, name: &Name, plan: Plan<T>, event: E) -> Result<Done<T>>
    where
        T: Send + 'static,
        E: FnMut(&mut Queue, Now, &mut Effects) -> Result<T> + Send + 'static,
    {
        let mut done = match self.enter(name, plan, event).await {
            Ok(done) => done,
            Err(e) => {
                self.check_presence();
                return Err(e);
            }
        };
        let (notes, looks) = (std::mem::take(&mut done.notes), std::mem::take(&mut done.looks));
        let mut dead = self.deliver(name, notes, looks);
        // Somebody was given the lock, or the task to look, and is dead: that changes the queue again.
        while !dead.is_empty() {
            let gone = move |queue: &mut Queue, now: Now, out: &mut Effects| {
                dead.iter().for_each(|session| queue.session_gone(*session, POLICY, now, out));
                Ok(())
            };
            // If this fails, whoever waits next finds the dead.
            let Ok(next) = self.enter(name, Plan::default(), gone).await else { break };
            dead = self.deliver(name, next.notes, next.looks);
        }
        Ok(done)
    }

    async fn enter<T, E>(self: &Arc<Self>, name: &Name, plan: Plan<T>, mut event: E) -> Result<Done<T>>
    where
        T: Send + 'static,
        E: FnMut(&mut Queue, Now, &mut Effects) -> Result<T> + Send + 'static,
    {
        for _ in 0..TRIES {
            if let Some(done) = self.attempt(name, &plan, &mut event)? {
                return Ok(done);
            }
            (0..100).for_each(|_| std::hint::spin_loop());
        }
        let (me, on) = (self.clone(), name.clone());
        let patient = self.runtime.spawn_blocking(move || me.attempt_patiently(&on, &plan, &mut event));
        patient.await.unwrap_or_else(|e| {
            Err(Error::new(Kind::Unavailable, "the runtime is shutting down")
                .because(e)
                .on(name)
                .at(self.url()))
        })
    }

    fn attempt_patiently<T>(
        self: &Arc<Self>,
        name: &Name,
        plan: &Plan<T>,
        event: &mut impl FnMut(&mut Queue, Now, &mut Effects) -> Result<T>,
    ) -> Result<Done<T>> {
        let start = Instant::now();
        let mut pause = Duration::from_micros(20);
        loop {
            if let Some(done) = self.attempt(name, plan, event)? {
                return Ok(done);
            }
            if start.elapsed() > PATIENCE {
                let what = format!("the queue file was locked by another process for {PATIENCE:?}");
                return Err(Error::new(Kind::Unavailable, what)
                    .retry(Retry::Later)
                    .advice("look for a process that was stopped in the middle of a change (fuser shows who has the file open)")
                    .on(name)
                    .at(self.url()));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    /// Runs an event if the file can be locked at once.
    fn attempt<T>(
        self: &Arc<Self>,
        name: &Name,
        plan: &Plan<T>,
        event: &mut impl FnMut(&mut Queue, Now, &mut Effects) -> Result<T>,
    ) -> Result<Option<Done<T>>> {
        let Some(file) = self.files.get(name, plan.create)? else {
            return self.attempt_on_nothing(name, event).map(Some);
        };
        let lock = file.try_lock().map_err(|e| in_use(&self.folder.path, "can't be locked", e).on(name))?;
        let mut locked = match lock {
            TryLock::Locked(locked) => locked,
            TryLock::Busy => return Ok(None),
            TryLock::Stale => {
                self.files.forget(&file);
                return Ok(None);
            }
        };
        let mut loaded = locked.load(&self.folder)?;
        let now = self.now();
        let before = Line::of(&loaded.queue);
        let mut out = Effects::new(self.watchers.watched(name));
        let decided = self.decide(name, plan, &mut loaded.queue, now, &mut out, event);
        if loaded.queue.last >= Token::END {
            let what = "the tokens of this lock are used up";
            return Err(Error::new(Kind::Store, what).advice("use another name").on(name));
        }
        let after = Line::of(&loaded.queue);
        locked.save(&self.folder, loaded)?;
        if let Some(events) = out.events.take().filter(|events| !events.is_empty()) {
            self.watchers.tell(name, now.wall, events);
        }
        drop(locked);
        let looks = match (before, after) {
            (Some(before), Some(after)) => chain::must_look(&before, &after, self.me),
            _ => Vec::new(),
        };
        let (answer, unsure, gone) = decided;
        let mut notes = out.notes;
        let answered = |session, id| session == self.me && plan.about == Some(id);
        notes.retain(|(session, id, _)| !gone.contains(session) && !answered(*session, *id));
        // An answer that is an error has its effects too: what had ended is gone, and others are told.
        match answer {
            Ok(answer) => Ok(Some(Done { answer, unsure, notes, looks })),
            Err(e) => {
                self.deliver(name, notes, looks);
                Err(e)
            }
        }
    }

    /// A name without a file: nobody holds it and nobody waits.
    fn attempt_on_nothing<T>(
        &self,
        name: &Name,
        event: &mut impl FnMut(&mut Queue, Now, &mut Effects) -> Result<T>,
    ) -> Result<Done<T>> {
        self.peers.uncover(name);
        let answer = event(&mut Queue::default(), self.now(), &mut Effects::new(false))?;
        Ok(Done { answer, unsure: false, notes: Vec::new(), looks: Vec::new() })
    }

    /// Lets the rule decide until everybody whom the answer depends on is alive. Returns the answer, whether somebody could
    /// not be watched, and who was found dead.
    fn decide<T>(
        self: &Arc<Self>,
        name: &Name,
        plan: &Plan<T>,
        queue: &mut Queue,
        now: Now,
        out: &mut Effects,
        event: &mut impl FnMut(&mut Queue, Now, &mut Effects) -> Result<T>,
    ) -> (Result<T>, bool, Vec<SessionId>) {
        let mut gone = Vec::new();
        let mut bury = |dead: Vec<SessionId>, queue: &mut Queue, out: &mut Effects| {
            dead.iter().for_each(|session| queue.session_gone(*session, POLICY, now, out));
            gone.extend(dead);
        };
        if plan.check_all {
            bury(self.dead_in(queue, |_| true), queue, out);
        }
        let mut answer = event(queue, now, out);
        loop {
            let mut dead = match &answer {
                // A limit that differs, say: perhaps it is a dead session's.
                Err(_) => self.dead_in(queue, |_| true),
                Ok(answer) => match (plan.check)(answer) {
                    Check::Nobody => Vec::new(),
                    Check::Holders => self.dead_in(queue, |e| e.grant.is_some()),
                    Check::InTheWay => self.dead_of(chain::in_the_way(queue)),
                },
            };
            let mut unsure = false;
            if dead.is_empty() {
                Covered { dead, unsure } = self.cover(name, queue);
            }
            if dead.is_empty() {
                return (answer, unsure, gone);
            }
            bury(dead, queue, out);
            if plan.again {
                answer = event(queue, now, out);
            }
        }
    }

    /// Watches whom this session must watch because of the places it has in this queue.
    fn cover(self: &Arc<Self>, name: &Name, queue: &Queue) -> Covered {
        let (sessions, waiting) = Line::of(queue).map(|line| line.watched_by(self.me)).unwrap_or_default();
        if waiting.is_empty() {
            self.peers.uncover(name);
            return Covered::default();
        }
        self.peers.cover(name, sessions, waiting, &Arc::downgrade(self))
    }

    fn dead_in(&self, queue: &Queue, which: impl Fn(&Entry) -> bool) -> Vec<SessionId> {
        let entries = queue.entries.iter().chain(&queue.bargers).filter(|e| which(e));
        self.dead_of(entries.map(|e| e.session).collect())
    }

    fn dead_of(&self, mut sessions: Vec<SessionId>) -> Vec<SessionId> {
        sessions.retain(|session| *session != self.me);
        if sessions.is_empty() { sessions } else { self.peers.dead_among(sessions) }
    }

    /// Tells sessions what concerns them. Returns those that should have acted on it and are dead.
    fn deliver(
        &self,
        name: &Name,
        notes: Vec<(SessionId, EntryId, News)>,
        looks: Vec<SessionId>,
    ) -> Vec<SessionId> {
        let mut dead = Vec::new();
        for (session, id, news) in notes {
            let must_act = !matches!(news, News::Gone(_));
            let note = Note { name: name.clone(), id, news };
            if session == self.me {
                self.take_note(note);
            } else if self.peers.send(session, &Message::Note(note).encode()) == Sent::Dead && must_act {
                dead.push(session);
            }
        }
        for session in looks {
            if self.peers.send(session, &Message::Look(name.clone()).encode()) == Sent::Dead {
                dead.push(session);
            }
        }
        dead
    }

    /// Looks again whom to watch because of this name.
    pub(crate) async fn look(self: &Arc<Self>, name: &Name) {
        // If it fails, the next renewal looks again.
        let _ = self.run(name, Plan::default(), |_, _, _| Ok(())).await;
    }

    /// A session that was watched died: what it had in the queues that we watched it for goes.
    pub(crate) async fn bury(self: &Arc<Self>, dead: SessionId) {
        for name in self.peers.died(dead) {
            let gone = move |queue: &mut Queue, now: Now, out: &mut Effects| {
                queue.session_gone(dead, POLICY, now, out);
                Ok(())
            };
            while let Err(e) = self.run(&name, Plan::default(), gone).await {
                if e.kind() != Kind::Unavailable || self.is_over() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        self.peers.remove_remains(dead);
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::store::{Ask, Inbox, Otherwise, Presence, Store};
    use leasehold_core::{Label, Lease, Want};

    use super::*;
    use crate::FileStore;

    struct Nobody;

    impl Inbox for Nobody {
        fn note(&self, _: Note) {}

        fn session_gone(&self) {}
    }

    #[tokio::test]
    async fn a_file_that_stays_locked_is_an_error_and_not_a_wait_for_ever() {
        let temp = tempfile::tempdir().unwrap();
        let who = Presence { id: SessionId::random().unwrap(), label: Label::new("me") };
        let session = FileStore::at(temp.path()).unwrap().open(who, Arc::new(Nobody)).await.unwrap();
        let ask = |count| Ask {
            name: Name::new("a").unwrap(),
            id: EntryId(count),
            want: Want::Shared,
            lease: Lease::Kept(Duration::from_secs(30)),
            place: Duration::from_secs(30),
            otherwise: Otherwise::Queue,
        };
        session.clone().join(ask(1)).await.unwrap();
        // As a process does that was stopped in the middle of a change.
        let file = std::fs::File::open(temp.path().join("q/a")).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let e = session.clone().join(ask(2)).await.unwrap_err();
        assert_eq!((e.kind(), e.retry_advice()), (Kind::Unavailable, Retry::Later));
        assert!(e.to_string().contains("locked by another process") && e.advice_text().is_some(), "{e}");
        rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
        session.clone().join(ask(2)).await.unwrap();
    }
}
