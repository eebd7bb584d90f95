//! How a session is told: by messages of the scripts on each node, which count when a quorum has sent them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::EntryId;
use leasehold_core::store::{News, Note};
use leasehold_core::view::Lost;
use leasehold_redis::wire::Pushes;

use crate::desk::Desk;
use crate::node::AttemptId;
use crate::state::{Entry, Fate, Stage};

/// How long a turn that only some nodes told waits for the others: longer than messages that were sent together are apart.
pub(crate) const SHORT: Duration = Duration::from_millis(15);

/// What hears the messages of one node.
pub(crate) struct Ear {
    node: usize,
    desk: Weak<Desk>,
    /// Whether it was heard before, so that to hear it again means that something may have been missed.
    heard: AtomicBool,
}

impl Ear {
    pub(crate) fn new(node: usize, desk: Weak<Desk>) -> Self {
        Ear { node, desk, heard: AtomicBool::new(false) }
    }
}

impl Pushes for Ear {
    fn note(&self, payload: &[u8]) {
        let Some(desk) = self.desk.upgrade() else { return };
        let Ok(text) = std::str::from_utf8(payload) else { return };
        match text.split_at_checked(1) {
            Some(("r", entry)) => {
                if let Ok(id) = entry.parse::<EntryId>() {
                    desk.turn_told(self.node, id);
                }
            }
            Some(("g", attempt)) => {
                if let Some(id) = AttemptId::read(attempt) {
                    desk.revoked_told(self.node, id);
                }
            }
            Some(("p", attempt)) => {
                if let Some(id) = AttemptId::read(attempt) {
                    desk.asked_told(id);
                }
            }
            _ => {}
        }
    }

    fn event(&self, payload: &[u8]) {
        if let Some(desk) = self.desk.upgrade() {
            desk.event_told(self.node, payload);
        }
    }

    /// Messages may have been missed, and the node may not be what it was.
    fn resumed(&self, _: u64) {
        let Some(desk) = self.desk.upgrade() else { return };
        desk.tender.wake();
        if self.heard.swap(true, Ordering::Relaxed) && desk.watchers.any() {
            desk.watchers.reconnected();
        }
        for entry in desk.entries.all() {
            if matches!(entry.fate(), Fate::Holds(_)) {
                desk.inbox.note(Note { name: entry.name.clone(), id: entry.id, news: News::Retry });
            } else {
                desk.clone().turn(self.node, &entry);
            }
        }
    }
}

impl Desk {
    fn turn_told(self: &Arc<Self>, node: usize, id: EntryId) {
        if let Some(entry) = self.entries.get(id) {
            self.clone().turn(node, &entry);
        }
    }

    /// A node says that it is an entry's turn. It acts when a quorum has said so, or after a short wait: the release reaches one node
    /// after the other, and who comes too early finds the rest still taken.
    fn turn(self: Arc<Self>, node: usize, entry: &Arc<Entry>) {
        if !entry.waits() {
            return;
        }
        let told = entry.turn_told(node);
        if told as usize == self.quorum.need {
            self.act(entry);
        } else if told == 1 {
            let entry = entry.clone();
            tokio::spawn(async move {
                tokio::time::sleep(SHORT).await;
                self.act(&entry);
            });
        }
    }

    fn act(&self, entry: &Arc<Entry>) {
        let waiting = entry.stage.try_lock().is_ok_and(|stage| matches!(*stage, Stage::Waiting(_)));
        if waiting && entry.take_turn() {
            self.inbox.note(Note { name: entry.name.clone(), id: entry.id, news: News::Retry });
        }
    }

    /// A node says that somebody asks this attempt for the lock. One is enough: nothing is taken away by it, and to be told again
    /// by the others does no harm.
    fn asked_told(self: &Arc<Self>, id: AttemptId) {
        let Some(entry) = self.entries.get(id.entry) else { return };
        let desk = self.clone();
        tokio::spawn(async move {
            // The answers of the attempt may still be on their way: it holds only when they have come.
            let holds = matches!(*entry.stage.lock().await, Stage::Held(held) if held.id == id);
            if holds {
                let news = News::ReleaseRequested;
                desk.inbox.note(Note { name: entry.name.clone(), id: entry.id, news });
            }
        });
    }

    fn revoked_told(self: &Arc<Self>, node: usize, id: AttemptId) {
        let Some(entry) = self.entries.get(id.entry) else { return };
        if entry.revoked_told(node, id.number) as usize != self.quorum.need {
            return;
        }
        let desk = self.clone();
        tokio::spawn(async move {
            let mut stage = entry.stage.clone().lock_owned().await;
            let Stage::Held(held) = *stage else { return };
            if held.id == id {
                *stage = Stage::Fresh;
                desk.lost(&entry, held);
                let news = News::Gone(Lost::Revoked);
                desk.inbox.note(Note { name: entry.name.clone(), id: entry.id, news });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use leasehold_core::store::{Ask, Inbox, Joined, Leave, Otherwise, Presence, Session};
    use leasehold_core::{Label, Lease, Name, SessionId, Want};
    use leasehold_testkit::proxy::Proxy;
    use leasehold_testkit::servers::{Independent, until};

    use super::*;
    use crate::node::{Acquire, Acquired, How, Release, Used, Who};
    use crate::session::RedlockSession;
    use crate::{Config, Redlock};

    #[derive(Default)]
    struct Heard(Mutex<Vec<News>>);

    impl Inbox for Heard {
        fn note(&self, note: Note) {
            self.0.lock().unwrap().push(note.news);
        }

        fn session_gone(&self) {}
    }

    async fn session(url: &str, inbox: Arc<Heard>) -> Arc<RedlockSession> {
        let me = Presence { id: SessionId::random().unwrap(), label: Label::new("test") };
        RedlockSession::open(Redlock::new(Config::parse(url).unwrap()), me, inbox).await.unwrap()
    }

    fn ask(otherwise: Otherwise) -> Ask {
        let (name, id) = (Name::new("x").unwrap(), EntryId::random().unwrap());
        let long = Duration::from_secs(60);
        Ask { name, id, want: Want::Exclusive, lease: Lease::Kept(long), place: long, otherwise }
    }

    /// The answers of the nodes are on their way; their messages were faster.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_turn_that_is_told_during_an_attempt_is_not_missed() {
        let servers = Independent::start(3);
        let proxies: Vec<Proxy> = servers.servers().iter().map(|s| Proxy::start(s.address())).collect();
        let through: Vec<String> = proxies.iter().map(|p| format!("127.0.0.1:{}", p.port())).collect();
        let holder = session(&servers.url(), Arc::default()).await;
        assert!(matches!(holder.clone().join(ask(Otherwise::GoAway)).await, Ok(Joined::Held(_))));
        let heard = Arc::new(Heard::default());
        let waiter = session(&format!("redlock://{}?timeout=10s", through.join(",")), heard.clone()).await;
        proxies.iter().for_each(|proxy| proxy.delay(Duration::from_millis(300)));
        let ask = ask(Otherwise::Queue);
        let joining = tokio::spawn(waiter.clone().join(ask.clone()));
        until("it stands in all lines", || {
            let stands = |s: &leasehold_testkit::servers::Redis| {
                s.cli(&["HEXISTS", "leasehold:redlock:p:x", &ask.id.to_string()]) == "1"
            };
            if servers.servers().iter().all(stands) { Ok(()) } else { Err("not yet") }
        });
        for node in 0..2 {
            Ear::new(node, Arc::downgrade(&waiter.0)).note(format!("r{}", ask.id).as_bytes());
        }
        let Joined::Waiting(waiting) = joining.await.unwrap().unwrap() else { panic!("it should wait") };
        let told = heard.0.lock().unwrap().contains(&News::Retry);
        assert!(told || waiting.poll_in == Some(Duration::ZERO), "{waiting:?}");
    }

    /// Each node is owned by another attempt, and no attempt gets a quorum: no holder's release will tell the waiter.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_waiter_that_only_failed_attempts_kept_out_is_told_when_they_give_up() {
        let servers = Independent::start(3);
        let heard = Arc::new(Heard::default());
        let waiter = session(&servers.url(), heard.clone()).await;
        // The first use opens the set.
        let first = ask(Otherwise::GoAway);
        assert!(matches!(waiter.clone().join(first.clone()).await, Ok(Joined::Held(_))));
        waiter.clone().leave(Leave::new(first.name, first.id)).await.unwrap();
        let tries: Vec<Acquire> = (0..3).map(|_| attempt(&waiter.0)).collect();
        for (node, attempt) in waiter.0.nodes.iter().zip(&tries) {
            let answer = node.acquire(attempt).await.unwrap();
            assert!(matches!(answer, Acquired::Granted { .. }), "{answer:?}");
        }
        let joined = waiter.clone().join(ask(Otherwise::Queue)).await.unwrap();
        let Joined::Waiting(waiting) = joined else { panic!("it should wait") };
        assert!(waiting.poll_in > Some(Duration::from_secs(30)), "it would look soon by itself: {waiting:?}");
        for (node, attempt) in waiter.0.nodes.iter().zip(&tries) {
            let release =
                Release { name: attempt.name.clone(), id: attempt.id, used: Used::None, how: How::GoAway };
            assert!(node.release(&release).await.unwrap());
        }
        until("the waiter is told", || {
            if heard.0.lock().unwrap().contains(&News::Retry) { Ok(()) } else { Err("not yet") }
        });
    }

    /// A lock that `holder` owns on all nodes, with two entries in the queue: first `called`, which the test plays, then one of `waiter`.
    struct Queue {
        _servers: Independent,
        waiter: Arc<RedlockSession>,
        heard: Arc<Heard>,
        holder: Acquire,
        called: Acquire,
    }

    impl Queue {
        async fn new() -> Queue {
            let servers = Independent::start(3);
            let heard = Arc::new(Heard::default());
            let waiter = session(&servers.url(), heard.clone()).await;
            // The first use opens the set.
            let first = ask(Otherwise::GoAway);
            assert!(matches!(waiter.clone().join(first.clone()).await, Ok(Joined::Held(_))));
            waiter.clone().leave(Leave::new(first.name, first.id)).await.unwrap();
            let holder = attempt(&waiter.0);
            let called = Acquire { place: holder.ttl, ..attempt(&waiter.0) };
            let queue = Queue { _servers: servers, waiter, heard, holder, called };
            for node in &queue.waiter.0.nodes {
                assert!(granted(node.acquire(&queue.holder).await));
                assert!(!granted(node.acquire(&queue.called).await));
            }
            let joined = queue.waiter.clone().join(ask(Otherwise::Queue)).await.unwrap();
            assert!(matches!(joined, Joined::Waiting(_)), "{joined:?}");
            queue
        }

        async fn release(&self, attempt: &Acquire, how: How) {
            let release = Release { name: attempt.name.clone(), id: attempt.id, used: Used::None, how };
            for node in &self.waiter.0.nodes {
                node.release(&release).await.unwrap();
            }
        }

        fn is_told(&self) -> bool {
            self.heard.0.lock().unwrap().contains(&News::Retry)
        }
    }

    fn granted(answer: leasehold_core::Result<Acquired>) -> bool {
        matches!(answer.unwrap(), Acquired::Granted { .. })
    }

    /// It used its turn, failed, and goes away: the lock is free, and nothing else would tell the next.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_waiter_that_goes_away_passes_its_turn_on() {
        let mut queue = Queue::new().await;
        queue.release(&queue.holder, How::GiveBack).await;
        queue.called.id.number += 1;
        for node in &queue.waiter.0.nodes {
            assert!(granted(node.acquire(&queue.called).await));
        }
        queue.release(&queue.called, How::Wait(queue.called.place, queue.called.who.clone())).await;
        assert!(!queue.is_told());
        queue.release(&queue.called, How::Leave).await;
        until("the waiter is told", || if queue.is_told() { Ok(()) } else { Err("not yet") });
    }

    /// Another attempt owns the nodes when it goes away.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_turn_that_is_given_up_under_another_attempt_is_passed_on_by_that() {
        let queue = Queue::new().await;
        queue.release(&queue.holder, How::GiveBack).await;
        let passing = attempt(&queue.waiter.0);
        for node in &queue.waiter.0.nodes {
            // The reserved time has to pass first.
            while !granted(node.acquire(&passing).await) {
                tokio::task::yield_now().await;
            }
        }
        queue.release(&queue.called, How::Leave).await;
        assert!(!queue.is_told());
        queue.release(&passing, How::GoAway).await;
        until("the waiter is told", || if queue.is_told() { Ok(()) } else { Err("not yet") });
    }

    fn attempt(desk: &Desk) -> Acquire {
        let long = Duration::from_secs(60);
        let who = Who { session: desk.me.id, label: desk.me.label.clone(), barges: false };
        let id = AttemptId { entry: EntryId::random().unwrap(), number: 1 };
        let (name, place) = (Name::new("x").unwrap(), Duration::ZERO);
        Acquire { name, id, who, ttl: long, floor: 0, block: 1, up_to: 0, place }
    }
}
