//! One client's presence: each call is one script on one lock.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Left, News, Note, Pending, Presence, Renewal, Renewed, Session, Waiting,
};
use leasehold_core::view::{Events, Lost, Snapshot};
use leasehold_core::{EntryId, Error, Kind, Lease, Name, Result, Retry, Token, Want};
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::Redis;
use crate::config::Server;
use crate::foreground::Foreground;
use crate::keys::Key;
use crate::state::{self, Answer};
use crate::together::{Outbox, Request};
use crate::wake::{Tracked, Wake};
use crate::watching::Watching;
use crate::wire::link::closed;
use crate::wire::{Call, Link, Mark, Script, Slot, Verdict, Wire};

/// How many locks one call of the renewal script carries, where one call may carry many: the server does nothing else
/// meanwhile.
const RENEWED_AT_ONCE: usize = 128;

/// How soon an entry that waits asks again while no pushes come.
const POLL_WITHOUT_PUSHES: Duration = Duration::from_millis(200);

/// What the client holds. Dropping it says goodbye in the background.
pub(crate) struct RedisSession {
    desk: Arc<Desk>,
    runtime: Handle,
    foreground: Foreground,
}

/// The session itself: it lives until the last of its tasks is done.
pub(crate) struct Desk {
    pub(crate) store: Arc<Redis>,
    me: Presence,
    pub(crate) wire: Arc<Wire>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) watching: Arc<Watching>,
    pub(crate) outbox: Outbox,
    closed: Arc<AtomicBool>,
    /// A connection of the runtime that `outbox` belongs to, tried before those of `wire`.
    local: Option<Link>,
}

impl RedisSession {
    pub(crate) async fn open(
        store: Arc<Redis>,
        me: Presence,
        inbox: Arc<dyn Inbox>,
    ) -> Result<Arc<RedisSession>> {
        let (unproven, grants) = unbounded_channel();
        let must_prove = store.config.replicas() > 0;
        let wake = Arc::new(Wake::new(inbox, store.keys.clone(), must_prove.then_some(unproven)));
        let wire = Wire::open(store.config.clone(), me.id, wake.clone()).await?;
        wake.hears(&wire);
        let runtime = Handle::current();
        let outbox = Outbox::new(runtime.clone());
        let (watching, closed) = Default::default();
        let desk = Arc::new(Desk { store, me, wire, wake, watching, outbox, closed, local: None });
        if must_prove {
            tokio::spawn(prove(Arc::downgrade(&desk), grants));
        }
        Ok(Arc::new(RedisSession { desk, runtime, foreground: Foreground::default() }))
    }
}

impl Drop for RedisSession {
    fn drop(&mut self) {
        if !self.desk.closed.load(Ordering::SeqCst) {
            let desk = self.desk.clone();
            self.runtime.spawn(async move { desk.say_goodbye().await });
        }
    }
}

impl Desk {
    /// The same session for the tasks of the current runtime, with a connection that lives there.
    pub(crate) fn on_this_runtime(&self, runtime: Handle, server: &Server) -> Self {
        Desk {
            store: self.store.clone(),
            me: self.me.clone(),
            wire: self.wire.clone(),
            wake: self.wake.clone(),
            watching: self.watching.clone(),
            outbox: Outbox::new(runtime),
            closed: self.closed.clone(),
            local: Some(Link::open(server.clone(), self.store.config.timeout())),
        }
    }

    /// Whether its runtime is still there.
    pub(crate) fn is_alive(&self) -> bool {
        self.local.as_ref().is_none_or(Link::is_alive)
    }

    /// Sends a claim or a release: by the connection of this runtime if there is one, else by those of the background thread.
    pub(crate) async fn run_marked(&self, call: Call) -> Result<(Value, Mark)> {
        if let Some(link) = &self.local {
            match link.quick(&call).await {
                // Which connection it came by matters only where replicas do, and then there is none of this kind.
                Some(Ok(Ok(answer))) => return Ok((answer.value, Mark::default())),
                // A script that was refused midway may have done a part: it is not sent again here.
                Some(Ok(Err(Verdict::Failed(error))) | Err(error)) => return Err(error),
                // Refused as a whole, or not sent.
                Some(Ok(Err(_))) | None => {}
            }
        }
        self.wire.run_marked(call).await
    }

    /// A call of a script on one lock.
    ///
    /// In a cluster all keys of the lock are declared: while its slot moves they may be on two nodes, and the server lets
    /// the script run only where all of them are. Elsewhere one is enough, and shorter.
    pub(crate) fn call(&self, script: &Script, key: &Key) -> Call {
        if self.store.config.is_cluster() {
            let all = key.all();
            Call::script(script, key.slot, &all.each_ref().map(String::as_str))
        } else {
            Call::script(script, key.slot, &[&key.text])
        }
    }

    /// The call that asks for a lock.
    pub(crate) fn join_call(&self, ask: &Ask, key: &Key) -> Call {
        let tag = self.wire.post(key.slot).tag;
        let call = self
            .call(&self.store.scripts.join, key)
            .arg(state::claim(&self.me, ask, shown_tag(&tag)))
            .arg(self.kept(ask));
        // Every argument costs the server something, so the usual call does not have this one.
        if let Want::Permits { .. } = ask.want { call.arg("p") } else { call }
    }

    /// The part of a record that is the same for all names, of a store that is no cluster.
    pub(crate) fn terms(&self, ask: &Ask) -> String {
        state::terms(&self.me, ask, shown_tag(""))
    }

    /// How long the key of a lock is kept, in milliseconds. Rounded up: it may stay longer than what is in it, never shorter.
    pub(crate) fn kept(&self, ask: &Ask) -> u64 {
        let (Lease::Kept(lease) | Lease::Fixed(lease)) = ask.lease;
        (lease.as_millis() + 1 + self.store.config.retention().as_millis()) as u64
    }

    async fn ask(self: &Arc<Self>, ask: Ask) -> Result<Joined> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(closed());
        }
        let key = self.store.keys.of(&ask.name);
        let node = self.wire.post(key.slot).node;
        let entry = Tracked { name: ask.name.clone(), slot: key.slot, node, waits: false };
        let asked_before = self.wake.track(ask.id, entry);
        let begun = self.wake.begun(node);
        let answered = self.send(key, Request::Join(ask.clone())).await;
        let joined = answered.and_then(|(value, mark)| Ok((Answer::joined(value, &ask)?, mark)));
        match joined {
            Ok((Joined::Held(grant), mark)) => {
                self.must_be_replicated(&ask.name, ask.id, mark).await?;
                Ok(Joined::Held(grant))
            }
            Ok((Joined::Waiting(waiting), _)) => self.waits(&ask, node, begun, waiting).await,
            Ok((Joined::Busy, _)) => {
                self.wake.forget(ask.id);
                Ok(Joined::Busy)
            }
            Err(error) => {
                if !asked_before && error.retry_advice() != Retry::SameId {
                    self.wake.forget(ask.id);
                }
                Err(error)
            }
        }
    }

    /// An entry waits. Unless pushes came all the time, it looks once more: it may have missed its grant.
    async fn waits(&self, ask: &Ask, node: u64, begun: u64, waiting: Waiting) -> Result<Joined> {
        self.wake.waits(ask.id, true);
        if begun > 0 && self.wake.begun(node) == begun {
            return Ok(Joined::Waiting(waiting));
        }
        let heard = self.wire.listening(node).await;
        let line = Renewal { name: ask.name.clone(), id: ask.id, token: None, more_tokens: false };
        match self.renew_all(vec![line]).await.pop() {
            Some(Ok(Renewed::Held(grant))) => Ok(Joined::Held(grant)),
            Some(Ok(Renewed::Waiting(waiting))) if heard => Ok(Joined::Waiting(waiting)),
            Some(Ok(Renewed::Waiting(waiting))) => Ok(Joined::Waiting(polling(waiting))),
            Some(Ok(Renewed::Gone(_))) => {
                Err(Error::new(Kind::Unavailable, "the place in the queue was lost"))
            }
            Some(Err(error)) => Err(error),
            None => Ok(Joined::Waiting(polling(waiting))),
        }
    }

    async fn renew_all(&self, batch: Vec<Renewal>) -> Vec<Result<Renewed>> {
        let keys: Vec<Key> = batch.iter().map(|line| self.store.keys.of(&line.name)).collect();
        let Some(slot) = keys.first().map(|key| key.slot) else { return Vec::new() };
        let tag = self.wire.post(slot).tag;
        // A call is about one lock in a cluster, whose keys must be of one slot; elsewhere many go together.
        let at_once = if self.store.config.is_cluster() { 1 } else { RENEWED_AT_ONCE };
        let calls = keys.chunks(at_once).zip(batch.chunks(at_once)).map(|(keys, lines)| {
            let call = match keys {
                [key] => self.call(&self.store.scripts.renew, key),
                keys => {
                    let texts: Vec<&str> = keys.iter().map(|key| key.text.as_str()).collect();
                    Call::script(&self.store.scripts.renew, keys[0].slot, &texts)
                }
            };
            lines.iter().fold(call.arg(shown_tag(&tag)), |call, line| call.arg(state::renewal(line)))
        });
        let answers = self.wire.run_all_marked(calls.collect()).await;
        let mut renewed: Vec<Result<Renewed>> = Vec::with_capacity(batch.len());
        let mut marks: Vec<(Mark, Range<usize>)> = Vec::new();
        for (answer, lines) in answers.into_iter().zip(batch.chunks(at_once)) {
            let from = renewed.len();
            match answer.and_then(|(value, mark)| Ok((Answer::all(value)?, mark))) {
                Ok((all, mark)) if all.len() == lines.len() => {
                    renewed.extend(all.iter().map(Answer::renewed));
                    marks.push((mark, from..renewed.len()));
                }
                Ok(_) => renewed.extend(lines.iter().map(|_| Err(state::unreadable(&Value::Nil)))),
                Err(error) => renewed.extend(lines.iter().map(|_| Err(error.clone()))),
            }
        }
        self.note_down(&batch, &renewed);
        self.renewals_must_be_replicated(&marks, &mut renewed).await;
        renewed
    }

    fn note_down(&self, batch: &[Renewal], renewed: &[Result<Renewed>]) {
        for (line, answer) in batch.iter().zip(renewed) {
            match answer {
                Ok(Renewed::Gone(_)) => self.wake.forget(line.id),
                // A holder that is renewed was not waiting; only those that were are worth a look.
                Ok(Renewed::Held(_)) if line.token.is_none() => self.wake.waits(line.id, false),
                _ => {}
            }
        }
    }

    /// A grant counts when as many replicas have it as the configuration says. Else it is given back.
    ///
    /// Where that is not known, as in a failover, it is not given back: the caller asks again for the same entry, and a command that was
    /// sent before, on a connection that broke, can still be carried out after that. It would take away what was granted then. For the same
    /// reason an entry is not asked for again if nobody knows whether it was given back; it then ends by itself.
    async fn must_be_replicated(self: &Arc<Self>, name: &Name, id: EntryId, mark: Mark) -> Result<()> {
        let Err(error) = self.wire.replicated_since(mark).await else { return Ok(()) };
        if error.retry_advice() == Retry::SameId {
            return Err(error);
        }
        match self.go(&Leave::new(name.clone(), id)).await {
            Ok(_) => Err(error),
            Err(_) => Err(error.retry(Retry::Never)),
        }
    }

    /// A lease that was renewed on a master alone could end early on the replica that takes over.
    async fn renewals_must_be_replicated(
        &self,
        marks: &[(Mark, Range<usize>)],
        renewed: &mut [Result<Renewed>],
    ) {
        if self.store.config.replicas() == 0 {
            return;
        }
        let held = |answer: &Result<Renewed>| matches!(answer, Ok(Renewed::Held(_)));
        let mut last: Option<(Mark, Result<()>)> = None;
        for (mark, lines) in marks {
            if !renewed[lines.clone()].iter().any(held) {
                continue;
            }
            // Calls that were answered by one connection are proven together.
            let proven = match &last {
                Some((same, proven)) if same == mark => proven.clone(),
                _ => self.wire.replicated_since(*mark).await,
            };
            if let Err(error) = &proven {
                let error = error.clone().retry(Retry::SameId);
                let lost = renewed[lines.clone()].iter_mut().filter(|answer| held(answer));
                lost.for_each(|answer| *answer = Err(error.clone()));
            }
            last = Some((*mark, proven));
        }
    }

    async fn go(self: &Arc<Self>, leave: &Leave) -> Result<Left> {
        let key = self.store.keys.of(&leave.name);
        let (value, _) = self.send(key, Request::Leave(leave.clone())).await?;
        let left = left(value)?;
        self.wake.forget(leave.id);
        Ok(left)
    }

    /// The call by which an entry leaves, by itself (`l`) or with its session (`s`).
    pub(crate) fn leave_call(&self, leave: &Leave, key: &Key, how: &str) -> Call {
        let tag = self.wire.post(key.slot).tag;
        self.call(&self.store.scripts.leave, key)
            .arg(state::leaving(leave))
            .arg([how, shown_tag(&tag)].concat())
    }

    /// Calls a script that takes something about a lock and the tag of its node.
    async fn on_lock(&self, script: &Script, name: &Name, first: Option<String>) -> Result<Value> {
        let key = self.store.keys.of(name);
        let tag = self.wire.post(key.slot).tag;
        let call = first.into_iter().fold(self.call(script, &key), Call::arg);
        self.wire.run(call.arg(shown_tag(&tag))).await
    }

    /// Takes the lock away from its holders (`t`), or asks them for it (`a`).
    async fn to_holders(&self, what: &str, name: Name, expected: Option<Token>) -> Result<Snapshot> {
        let key = self.store.keys.of(&name);
        let tag = self.wire.post(key.slot).tag;
        let call = self
            .call(&self.store.scripts.revoke, &key)
            .arg(shown_tag(&tag))
            .arg(expected.map_or(0, |token| token.0))
            .arg(what);
        let shown = state::revoked(&self.wire.run(call).await?, name)?;
        Ok(Snapshot { holders: shown.meant, ..shown.snapshot })
    }

    async fn look(&self, name: Name) -> Result<Snapshot> {
        let value = self.on_lock(&self.store.scripts.inspect, &name, None).await?;
        Ok(state::shown(&value, Some(name))?.snapshot)
    }

    async fn change_limit(&self, name: Name, limit: u32) -> Result<()> {
        if limit == 0 {
            return Err(Error::new(Kind::Invalid, "a semaphore needs a limit of at least 1 permit"));
        }
        let most = self.on_lock(&self.store.scripts.limit, &name, Some(limit.to_string())).await?;
        match state::number(&most) {
            Some(0) => Ok(()),
            Some(most) => {
                let what = format!("the limit can't go down to {limit}: somebody waits for {most} permits");
                Err(Error::new(Kind::Refused, what)
                    .advice("wait until that claim is gone, or choose a higher limit"))
            }
            None => Err(state::unreadable(&most)),
        }
    }

    async fn downgrade(&self, name: &Name, id: EntryId) -> Result<Left> {
        left(self.on_lock(&self.store.scripts.downgrade, name, Some(id.to_string())).await?)
    }

    /// Every entry leaves, and the connections go.
    async fn say_goodbye(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        // What is put down, or came back undone, would go out after its goodbye.
        let _ = timeout(self.store.config.timeout(), self.outbox.settled()).await;
        let mut leaving = self.wake.all();
        leaving.sort_by_key(|(_, entry)| entry.node);
        let mut outcome = Ok(());
        for group in leaving.chunk_by(|(_, a), (_, b)| a.node == b.node) {
            let calls = group.iter().map(|(id, entry)| {
                let key = self.store.keys.of(&entry.name);
                self.leave_call(&Leave::new(entry.name.clone(), *id), &key, "s")
            });
            for ((id, _), answer) in group.iter().zip(self.wire.run_all(calls.collect()).await) {
                match answer {
                    Ok(_) => self.wake.forget(*id),
                    Err(error) => outcome = Err(error),
                }
            }
        }
        self.wire.close().await;
        outcome
    }
}

impl Session for RedisSession {
    fn join(self: Arc<Self>, ask: Ask) -> Pending<Joined> {
        Box::pin(async move { self.desk.ask(ask).await })
    }

    fn join_here(&self, ask: &Ask) -> Option<Pending<Joined>> {
        let (desk, ask) = (self.foreground.desk(&self.desk, &self.runtime)?, ask.clone());
        Some(Box::pin(async move { desk.ask(ask).await }))
    }

    fn leave_here(&self, leave: &Leave) -> Option<Pending<Left>> {
        let (desk, leave) = (self.foreground.desk(&self.desk, &self.runtime)?, leave.clone());
        Some(Box::pin(async move { desk.go(&leave).await }))
    }

    fn renew(self: Arc<Self>, batch: Vec<Renewal>) -> Pending<Vec<Result<Renewed>>> {
        Box::pin(async move { Ok(self.desk.renew_all(batch).await) })
    }

    fn group(&self, name: &Name) -> u64 {
        // All locks are on one node, unless it is a cluster.
        let slot = match self.desk.store.config.is_cluster() {
            true => self.desk.store.keys.of(name).slot,
            false => Slot(0),
        };
        self.desk.wire.post(slot).node
    }

    fn leave(self: Arc<Self>, leave: Leave) -> Pending<Left> {
        Box::pin(async move { self.desk.go(&leave).await })
    }

    fn downgrade(self: Arc<Self>, name: Name, id: EntryId) -> Pending<Left> {
        Box::pin(async move { self.desk.downgrade(&name, id).await })
    }

    fn set_limit(self: Arc<Self>, name: Name, limit: u32) -> Pending<()> {
        Box::pin(async move { self.desk.change_limit(name, limit).await })
    }

    fn revoke(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        Box::pin(async move { self.desk.to_holders("t", name, expected).await })
    }

    fn request_release(self: Arc<Self>, name: Name, expected: Option<Token>) -> Pending<Snapshot> {
        Box::pin(async move { self.desk.to_holders("a", name, expected).await })
    }

    fn inspect(self: Arc<Self>, name: Name) -> Pending<Snapshot> {
        Box::pin(async move { self.desk.look(name).await })
    }

    fn list(self: Arc<Self>, prefix: String, after: Option<Name>, most: usize) -> Pending<Vec<Snapshot>> {
        Box::pin(async move { self.desk.page(&prefix, after.as_ref(), most).await })
    }

    fn watch(self: Arc<Self>, prefix: String) -> Pending<Events> {
        Box::pin(async move { self.desk.clone().begin_watching(prefix).await })
    }

    fn close(self: Arc<Self>) -> Pending<()> {
        Box::pin(async move {
            let foreground = self.foreground.take();
            let settled = foreground.iter().map(|desk| desk.outbox.settled());
            let _ = timeout(self.desk.store.config.timeout(), join_all(settled)).await;
            // A runtime that stands still would send what it has after the goodbye.
            foreground.iter().filter_map(|desk| desk.local.as_ref()).for_each(Link::close);
            self.desk.say_goodbye().await
        })
    }
}

/// Scripts read a tag as one word.
pub(crate) fn shown_tag(tag: &str) -> &str {
    if tag.is_empty() { "-" } else { tag }
}

fn polling(waiting: Waiting) -> Waiting {
    let poll_in = waiting.poll_in.map_or(POLL_WITHOUT_PUSHES, |soon| soon.min(POLL_WITHOUT_PUSHES));
    Waiting { poll_in: Some(poll_in), ..waiting }
}

fn left(value: Value) -> Result<Left> {
    match state::number(&value) {
        Some(1) => Ok(Left::Done),
        Some(0) => Ok(Left::NotThere),
        _ => Err(state::unreadable(&value)),
    }
}

/// Grants that were pushed to us count when replicas have them. Else they are given back, and the wait begins again.
async fn prove(desk: Weak<Desk>, mut grants: UnboundedReceiver<Note>) {
    while let Some(note) = grants.recv().await {
        let Some(desk) = desk.upgrade() else { return };
        tokio::spawn(async move {
            let line = Renewal { name: note.name.clone(), id: note.id, token: None, more_tokens: false };
            match desk.renew_all(vec![line]).await.pop() {
                Some(Ok(Renewed::Held(_))) => desk.wake.tell(note),
                Some(Ok(Renewed::Waiting(_))) => {}
                Some(Ok(Renewed::Gone(why))) => desk.wake.tell(Note { news: News::Gone(why), ..note }),
                Some(Err(_)) | None => {
                    let _ = desk.go(&Leave::new(note.name.clone(), note.id)).await;
                    desk.wake.tell(Note { news: News::Gone(Lost::Expired), ..note });
                }
            }
        });
    }
}
