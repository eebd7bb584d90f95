//! A lock as an ordered queue of entries, and everything that can happen to it.
//!
//! Pure: no I/O and no clock, `now` is an argument. The memory and file stores run it as it is; the scripts and
//! statements of other stores are compared with it on random histories.

use std::time::Duration;

use crate::rule;
use crate::store::{Ask, Grant, Joined, Left, News, Otherwise, Renewal, Renewed, Term, Waiting};
use crate::traits::Death;
use crate::view::{EntryView, Happened, Lost, Snapshot};
use crate::{EntryId, Error, Kind, Label, Lease, Name, Result, SessionId, Tick, Token, TokenBlock, Want};

/// How a store runs its queues.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How it notices a death. With [`Death::AtOnce`] only fixed leases end by time.
    pub death: Death,
    /// How many tokens a grant reserves.
    pub block: u32,
}

/// The moment at which something happens, by the store's clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For leases: a clock that never goes back.
    pub tick: Tick,
    /// For tokens and for people: microseconds since 1970.
    pub wall: u64,
}

/// The state of one lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queue {
    /// The highest token ever given out.
    pub last: u64,
    /// The number of permits in force, while anybody holds or wants permits.
    pub limit: Option<u32>,
    /// The queue, front first. The holders are a prefix: the entries with a grant.
    pub entries: Vec<Entry>,
    /// Those that barge and wait to be told, in the order in which they will be told.
    pub bargers: Vec<Entry>,
}

/// One place in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The attempt.
    pub id: EntryId,
    /// Whose it is.
    pub session: SessionId,
    /// Whose it is, for people.
    pub label: Label,
    /// What it wants.
    pub want: Want,
    /// How long a grant lasts.
    pub lease: Lease,
    /// How long a place lasts without being renewed.
    pub place: Duration,
    /// When it came (wall clock).
    pub since: u64,
    /// When it goes by itself.
    pub ends: Option<Tick>,
    /// What it was granted.
    pub grant: Option<Granted>,
}

/// The grant of an entry that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// The first token of the grant; all of its blocks lie between this one and the last of `tokens`.
    pub first: Token,
    /// The last block of tokens it was given.
    pub tokens: TokenBlock,
    /// When (wall clock).
    pub at: u64,
    /// Whether the lease runs (see [`Grant::started`]).
    pub started: bool,
    /// Whether somebody asked for the lock back.
    pub release_requested: bool,
}

impl Granted {
    /// A grant of this block, at this moment.
    fn new(tokens: TokenBlock, now: Now, started: bool) -> Self {
        Granted { first: tokens.first, tokens, at: now.wall, started, release_requested: false }
    }
}

/// What follows from an event, besides the answer to whoever caused it.
#[derive(Debug, Default)]
pub struct Effects {
    /// Whom to tell what.
    pub notes: Vec<(SessionId, EntryId, News)>,
    /// What watchers see; collected only if somebody watches.
    pub events: Option<Vec<(Happened, EntryView)>>,
}

impl Effects {
    /// Effects for a lock that is being watched, or not.
    pub fn new(watched: bool) -> Self {
        Effects { notes: Vec::new(), events: watched.then(Vec::new) }
    }

    fn tell(&mut self, entry: &Entry, news: News) {
        self.notes.push((entry.session, entry.id, news));
    }

    fn event(&mut self, what: Happened, entry: &Entry, now: Now) {
        if let Some(events) = &mut self.events {
            events.push((what, entry.view(now, None, false)));
        }
    }
}

impl Queue {
    /// Whether nobody holds and nobody waits.
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.bargers.is_empty()
    }

    /// How many entries hold.
    pub fn held(&self) -> usize {
        self.entries.iter().take_while(|e| e.grant.is_some()).count()
    }

    /// Somebody asks for the lock. Asking again with the same id changes nothing, but shows that the asker is alive: a
    /// client whose first answer was lost counts its time from the second.
    pub fn join(
        &mut self,
        me: SessionId,
        label: &Label,
        ask: &Ask,
        policy: Policy,
        now: Now,
        out: &mut Effects,
    ) -> Result<Joined> {
        self.expire(policy, now, out);
        if let Some(at) = self.entries.iter().position(|e| e.id == ask.id) {
            if self.entries[at].grant.is_some() {
                return Ok(Joined::Held(self.grant_of(at, policy, now)));
            }
            self.entries[at].ends = self.entries[at].place_end(policy, now);
            return Ok(Joined::Waiting(self.waiting_of(at, now)));
        }
        if let Some(at) = self.bargers.iter().position(|e| e.id == ask.id) {
            return Ok(match self.barge(at, policy, now, out) {
                Ok(grant) => Joined::Held(grant),
                Err(waiting) => Joined::Waiting(waiting),
            });
        }
        self.agree_on_limit(ask.want)?;
        if self.admits(ask.want) {
            return Ok(Joined::Held(self.enter(Entry::new(me, label, ask, now), policy, now, out)));
        }
        if ask.otherwise == Otherwise::GoAway {
            self.forget_limit();
            return Ok(Joined::Busy);
        }
        let mut entry = Entry::new(me, label, ask, now);
        entry.ends = entry.place_end(policy, now);
        out.event(Happened::Queued, &entry, now);
        Ok(Joined::Waiting(if ask.otherwise == Otherwise::Queue {
            self.entries.push(entry);
            self.waiting_of(self.entries.len() - 1, now)
        } else {
            self.bargers.push(entry);
            self.barging(ask.id, now)
        }))
    }

    /// The owner of an entry shows that it is alive and asks how things stand.
    pub fn renew(&mut self, ask: &Renewal, policy: Policy, now: Now, out: &mut Effects) -> Renewed {
        let came_too_late = self.entries.iter().any(|e| e.id == ask.id);
        self.expire(policy, now, out);
        if let Some(at) = self.entries.iter().position(|e| e.id == ask.id) {
            return self.renew_queued(at, ask, policy, now);
        }
        let Some(at) = self.bargers.iter().position(|e| e.id == ask.id) else {
            return Renewed::Gone(match ask.token {
                // A place that nobody renewed; or a lease that ended just now.
                None => Lost::Expired,
                Some(_) if came_too_late => Lost::Expired,
                Some(token) if self.last < token.0 => Lost::Wiped,
                Some(_) => Lost::Revoked,
            });
        };
        match self.barge(at, policy, now, out) {
            Ok(grant) => Renewed::Held(grant),
            Err(waiting) => Renewed::Waiting(waiting),
        }
    }

    /// One that barges tries again: it gets in, or its place is renewed.
    fn barge(&mut self, at: usize, policy: Policy, now: Now, out: &mut Effects) -> Result<Grant, Waiting> {
        if self.admits(self.bargers[at].want) {
            let entry = self.bargers.remove(at);
            return Ok(self.enter(entry, policy, now, out));
        }
        self.bargers[at].ends = self.bargers[at].place_end(policy, now);
        Err(self.barging(self.bargers[at].id, now))
    }

    fn renew_queued(&mut self, at: usize, ask: &Renewal, policy: Policy, now: Now) -> Renewed {
        let entry = &mut self.entries[at];
        match &mut entry.grant {
            None => {
                entry.ends = entry.place_end(policy, now);
                Renewed::Waiting(self.waiting_of(at, now))
            }
            Some(grant) => {
                let starts = !grant.started;
                grant.started = true;
                if starts || matches!(entry.lease, Lease::Kept(_)) {
                    entry.ends = entry.lease_end(policy, now);
                }
                if ask.more_tokens {
                    let tokens = next_block(&mut self.last, policy, now);
                    self.entries[at].grant.as_mut().expect("it is granted").tokens = tokens;
                }
                Renewed::Held(self.grant_of(at, policy, now))
            }
        }
    }

    /// An entry leaves: release and cancellation alike. `used` is the highest of its tokens that was handed out.
    pub fn leave(
        &mut self,
        id: EntryId,
        used: Option<Token>,
        policy: Policy,
        now: Now,
        out: &mut Effects,
    ) -> Left {
        self.expire(policy, now, out);
        let left = if let Some(at) = self.entries.iter().position(|e| e.id == id) {
            let entry = self.entries.remove(at);
            self.take_back(&entry, used);
            let what = if entry.grant.is_some() { Happened::Released } else { Happened::Left };
            out.event(what, &entry, now);
            Left::Done
        } else if let Some(at) = self.bargers.iter().position(|e| e.id == id) {
            let entry = self.bargers.remove(at);
            out.event(Happened::Left, &entry, now);
            Left::Done
        } else {
            Left::NotThere
        };
        self.move_on(policy, now, out);
        left
    }

    /// As [`leave`](Queue::leave), for the holder whom nobody waits for: nothing has to be decided and nobody has to be
    /// told, so not even the time is needed. `false` if it is not so; then nothing has happened.
    pub fn leave_alone(&mut self, id: EntryId, used: Option<Token>) -> bool {
        let alone = self.bargers.is_empty()
            && matches!(self.entries.as_slice(), [only] if only.id == id && only.grant.is_some());
        if alone && let Some(entry) = self.entries.pop() {
            self.take_back(&entry, used);
            self.limit = None;
        }
        alone
    }

    /// The tokens that an entry did not hand out are given out again, if nobody got higher ones meanwhile.
    fn take_back(&mut self, entry: &Entry, used: Option<Token>) {
        if let (Some(grant), Some(used)) = (entry.grant, used)
            && grant.tokens.last().0 == self.last
            && used <= grant.tokens.last()
        {
            self.last = used.0.max(grant.tokens.first.0 - 1);
        }
    }

    /// A writer becomes a reader in its place.
    pub fn downgrade(&mut self, id: EntryId, policy: Policy, now: Now, out: &mut Effects) -> Left {
        self.expire(policy, now, out);
        let Some(entry) = self.entries.iter_mut().find(|e| e.id == id && e.grant.is_some()) else {
            return Left::NotThere;
        };
        if entry.want == Want::Exclusive {
            entry.want = Want::Shared;
        }
        self.move_on(policy, now, out);
        Left::Done
    }

    /// The number of permits changes. Nobody loses a permit by it.
    pub fn set_limit(&mut self, limit: u32, policy: Policy, now: Now, out: &mut Effects) -> Result<()> {
        self.expire(policy, now, out);
        if limit == 0 {
            return Err(Error::new(Kind::Invalid, "a semaphore needs a limit of at least 1 permit"));
        }
        let waiting = self.entries[self.held()..].iter().chain(&self.bargers);
        let most =
            waiting.filter_map(|e| if let Want::Permits { n, .. } = e.want { Some(n) } else { None }).max();
        if let Some(most) = most.filter(|most| *most > limit) {
            let what = format!("the limit can't go down to {limit}: somebody waits for {most} permits");
            return Err(Error::new(Kind::Refused, what)
                .advice("wait until that claim is gone, or choose a higher limit"));
        }
        if self.limit.is_some() {
            self.limit = Some(limit);
            self.move_on(policy, now, out);
        }
        Ok(())
    }

    /// Takes the lock away from its holders, or from the one with this token. Returns whom it took it from.
    pub fn revoke(
        &mut self,
        expected: Option<Token>,
        policy: Policy,
        now: Now,
        out: &mut Effects,
    ) -> Vec<EntryView> {
        self.expire(policy, now, out);
        let meant = expected.map(|token| self.holder_with(token));
        let revoked = self.remove_where(Lost::Revoked, now, out, |e| {
            e.grant.is_some() && meant.is_none_or(|meant| meant == Some(e.id))
        });
        self.move_on(policy, now, out);
        revoked.iter().map(|e| e.view(now, None, false)).collect()
    }

    /// Asks the holders to give the lock back, or the one with this token. Returns whom it asked. Those that were asked before
    /// are told again, for they may have missed it; watchers see the first time only.
    pub fn request_release(
        &mut self,
        expected: Option<Token>,
        policy: Policy,
        now: Now,
        out: &mut Effects,
    ) -> Vec<EntryView> {
        self.expire(policy, now, out);
        let meant = expected.map(|token| self.holder_with(token));
        let mut asked = Vec::new();
        for entry in &mut self.entries {
            let Some(grant) = &mut entry.grant else { break };
            if meant.is_some_and(|meant| meant != Some(entry.id)) {
                continue;
            }
            let news = !std::mem::replace(&mut grant.release_requested, true);
            if news {
                out.event(Happened::ReleaseRequested, entry, now);
            }
            out.tell(entry, News::ReleaseRequested);
            asked.push(entry.view(now, None, false));
        }
        asked
    }

    /// Whose token it is: of the one whose last block it is in, else of the last one whose grant began before it. (Holders
    /// that renew their tokens have blocks between those of others, and only the last block is remembered.)
    fn holder_with(&self, token: Token) -> Option<EntryId> {
        let granted = || self.entries.iter().filter_map(|e| Some((e.id, e.grant?)));
        let now = granted().find(|(_, g)| token >= g.tokens.first && token <= g.tokens.last());
        let before = || {
            granted()
                .filter(|(_, g)| token >= g.first && token <= g.tokens.last())
                .max_by_key(|(_, g)| g.first)
        };
        now.or_else(before).map(|(id, _)| id)
    }

    /// A session ended: everything it held or waited for goes.
    pub fn session_gone(&mut self, session: SessionId, policy: Policy, now: Now, out: &mut Effects) {
        self.expire(policy, now, out);
        self.remove_where(Lost::SessionGone, now, out, |e| e.session == session);
        self.move_on(policy, now, out);
    }

    /// Lets go of what has ended by `now`.
    pub fn expire(&mut self, policy: Policy, now: Now, out: &mut Effects) {
        let over = |e: &Entry| e.ends.is_some_and(|end| end <= now.tick);
        if !self.entries.iter().chain(&self.bargers).any(over) {
            return;
        }
        self.remove_where(Lost::Expired, now, out, over);
        self.move_on(policy, now, out);
    }

    /// When the next entry ends by itself.
    pub fn next_end(&self) -> Option<Tick> {
        self.entries.iter().chain(&self.bargers).filter_map(|e| e.ends).min()
    }

    /// What people see.
    pub fn snapshot(&self, name: &Name, now: Now) -> Snapshot {
        let held = self.held();
        let live = |e: &&Entry| e.ends.is_none_or(|end| end > now.tick);
        let holders = self.entries[..held].iter().filter(live).map(|e| e.view(now, None, false)).collect();
        let queued = self.entries[held..].iter().filter(live).enumerate();
        let waiters = queued
            .map(|(place, e)| e.view(now, Some(place as u32), false))
            .chain(self.bargers.iter().filter(live).map(|e| e.view(now, None, true)))
            .collect();
        Snapshot { name: name.clone(), holders, waiters, limit: self.limit }
    }

    /// The rule decides who holds now; those it newly reaches get their tokens and are told, and nobody else.
    fn move_on(&mut self, policy: Policy, now: Now, out: &mut Effects) {
        let held = self.held();
        if held < self.entries.len() {
            let wants: Vec<Want> = self.entries.iter().map(|e| e.want).collect();
            for at in held..rule::holders(&wants, held, self.limit) {
                self.promote(at, policy, now, out);
            }
        }
        self.call_a_barger(out);
        self.forget_limit();
    }

    fn promote(&mut self, at: usize, policy: Policy, now: Now, out: &mut Effects) {
        let tokens = next_block(&mut self.last, policy, now);
        let entry = &mut self.entries[at];
        // Where leases end by time, a promotion does not lengthen anything: the new holder has its place's time to say
        // that it is alive. So a dead waiter delays the others by no more than one place from its last sign of life.
        let started = policy.death == Death::AtOnce || matches!(entry.lease, Lease::Kept(_));
        if policy.death == Death::AtOnce {
            entry.ends = entry.lease_end(policy, now);
        }
        entry.grant = Some(Granted::new(tokens, now, started));
        out.event(Happened::Acquired, &self.entries[at], now);
        let grant = self.pushed_grant(at, policy);
        out.tell(&self.entries[at], News::Granted(grant));
    }

    /// A free lock is offered to one of those that barge, and that one goes to the back of their list: if it never comes,
    /// the next change or its own next poll finds the others.
    fn call_a_barger(&mut self, out: &mut Effects) {
        if self.bargers.is_empty() || self.held() < self.entries.len() {
            return;
        }
        if let Some(at) = self.bargers.iter().position(|b| self.admits(b.want)) {
            let called = self.bargers.remove(at);
            out.tell(&called, News::Retry);
            self.bargers.push(called);
        }
    }

    /// Whether a newcomer could hold at once: nobody waits before it, and it fits beside those that hold.
    fn admits(&self, want: Want) -> bool {
        self.held() == self.entries.len()
            && rule::admits(self.entries.iter().map(|e| e.want), want, self.limit)
    }

    fn enter(&mut self, mut entry: Entry, policy: Policy, now: Now, out: &mut Effects) -> Grant {
        let tokens = next_block(&mut self.last, policy, now);
        entry.ends = entry.lease_end(policy, now);
        entry.grant = Some(Granted::new(tokens, now, true));
        out.event(Happened::Acquired, &entry, now);
        if self.entries.is_empty() {
            // Most locks never see a second entry, and many may be held at once: no room for others is kept.
            self.entries.reserve_exact(1);
        }
        self.entries.push(entry);
        // Room that is left (shared, permits) is offered on.
        self.call_a_barger(out);
        self.grant_of(self.entries.len() - 1, policy, now)
    }

    fn agree_on_limit(&mut self, want: Want) -> Result<()> {
        let Want::Permits { of, .. } = want else { return Ok(()) };
        match self.limit {
            Some(limit) if limit != of => {
                let what =
                    format!("the semaphore has a limit of {limit} permits now, and this claim says {of}");
                Err(Error::new(Kind::Mismatch, what)
                    .advice("use the same limit everywhere, or change it for all with set_limit"))
            }
            Some(_) => Ok(()),
            None => {
                self.limit = Some(of);
                Ok(())
            }
        }
    }

    /// A limit lasts as long as somebody holds or wants permits; then the next to come sets it.
    fn forget_limit(&mut self) {
        if self.limit.is_some()
            && !self.entries.iter().chain(&self.bargers).any(|e| matches!(e.want, Want::Permits { .. }))
        {
            self.limit = None;
        }
    }

    fn remove_where(
        &mut self,
        why: Lost,
        now: Now,
        out: &mut Effects,
        gone: impl Fn(&Entry) -> bool,
    ) -> Vec<Entry> {
        let mut removed: Vec<Entry> = Vec::new();
        for list in [&mut self.entries, &mut self.bargers] {
            removed.extend(list.extract_if(.., |e| gone(e)));
        }
        for entry in &removed {
            let what = if why == Lost::Expired { Happened::Expired } else { Happened::Lost(why) };
            out.event(what, entry, now);
            out.tell(entry, News::Gone(why));
        }
        removed
    }

    fn contended(&self) -> bool {
        self.held() < self.entries.len() || !self.bargers.is_empty()
    }

    fn grant_of(&self, at: usize, policy: Policy, now: Now) -> Grant {
        let entry = &self.entries[at];
        let granted = entry.grant.expect("the entry holds");
        let term = match (policy.death, entry.ends) {
            (_, None) => Term::Open,
            (Death::AtOnce, Some(end)) => Term::Until(end),
            (Death::LeaseEnd, Some(end)) => Term::For(end.since(now.tick)),
        };
        self.grant_for(granted, term)
    }

    /// As [`grant_of`](Self::grant_of), for one who learns it from a note: its term counts from its own last request.
    fn pushed_grant(&self, at: usize, policy: Policy) -> Grant {
        let entry = &self.entries[at];
        let granted = entry.grant.expect("the entry holds");
        let term = match (policy.death, entry.ends) {
            (Death::LeaseEnd, _) => Term::For(entry.place),
            (Death::AtOnce, Some(end)) => Term::Until(end),
            (Death::AtOnce, None) => Term::Open,
        };
        self.grant_for(granted, term)
    }

    fn grant_for(&self, granted: Granted, term: Term) -> Grant {
        let Granted { tokens, started, release_requested, .. } = granted;
        Grant { tokens, term, started, contended: self.contended(), release_requested }
    }

    fn waiting_of(&self, at: usize, now: Now) -> Waiting {
        let held = self.held();
        let place = at.saturating_sub(held) as u32;
        // Only the first in line looks when the holder's time is over; its entry is what tells the others.
        let poll_in = if place == 0 { self.first_end_of_holders(now) } else { None };
        Waiting { place: Some(place), poll_in }
    }

    fn barging(&self, id: EntryId, now: Now) -> Waiting {
        let first = self.bargers.first().is_some_and(|e| e.id == id) && self.held() == self.entries.len();
        Waiting { place: None, poll_in: if first { self.first_end_of_holders(now) } else { None } }
    }

    fn first_end_of_holders(&self, now: Now) -> Option<Duration> {
        self.entries[..self.held()].iter().filter_map(|e| e.ends).min().map(|end| end.since(now.tick))
    }
}

impl Entry {
    fn new(session: SessionId, label: &Label, ask: &Ask, now: Now) -> Self {
        Entry {
            id: ask.id,
            session,
            label: label.clone(),
            want: ask.want,
            lease: ask.lease,
            place: ask.place,
            since: now.wall,
            ends: None,
            grant: None,
        }
    }

    fn place_end(&self, policy: Policy, now: Now) -> Option<Tick> {
        (policy.death == Death::LeaseEnd).then(|| now.tick + self.place)
    }

    fn lease_end(&self, policy: Policy, now: Now) -> Option<Tick> {
        match self.lease {
            Lease::Kept(_) if policy.death == Death::AtOnce => None,
            Lease::Kept(d) | Lease::Fixed(d) => Some(now.tick + d),
        }
    }

    fn view(&self, now: Now, place: Option<u32>, barges: bool) -> EntryView {
        EntryView {
            id: self.id,
            session: self.session,
            label: self.label.clone(),
            want: self.want,
            barges,
            since: self.since,
            held_since: self.grant.map(|g| g.at),
            token: self.grant.map(|g| g.first),
            lease_left: self.ends.map(|end| end.since(now.tick)),
            place,
            release_requested: self.grant.is_some_and(|g| g.release_requested),
        }
    }
}

/// `max(last + 1, time)`: rises past release, expiry and deletion, and past a store that forgot everything.
fn next_block(last: &mut u64, policy: Policy, now: Now) -> TokenBlock {
    let first = (*last + 1).max(now.wall);
    let block = TokenBlock { first: Token(first), len: policy.block };
    *last = block.last().0;
    block
}
