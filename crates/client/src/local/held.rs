//! An entry that holds: its local users, its tokens, its budget, its renewal.

use std::time::Duration;

use leasehold_core::store::{Grant, Term};
use leasehold_core::{Lease, Tick, Token, TokenBlock, Want};

use super::asking::Asking;
use super::hold::Hold;
use super::lane::Scene;
use super::waiter::Handed;
use super::{Action, Due, LaneKey, SLOW_POLL, drift};
use crate::sync::Arc;

pub(crate) struct Held {
    pub(crate) hold: Arc<Hold>,
    pub(crate) want: Want,
    /// Its own request gave it on the spot: no other news of it can be on its way.
    pub(super) at_once: bool,
    /// It was asked for more than once: a late request may make it again after it was taken away.
    pub(super) asked_again: bool,
    /// How many local guards live on it. 0 while the store is asked whether others wait.
    pub(crate) users: u32,
    pub(super) tokens: TokenBlock,
    pub(super) highest: Token,
    pub(super) budget_from: Tick,
    pub(super) handovers: u32,
    /// The store is being asked whether others wait.
    pub(super) refreshing: bool,
    /// Until when a try waits for the answer.
    pub(super) tries_until: Tick,
    /// Others do: whoever comes now waits for the next entry.
    pub(super) closing: bool,
    /// The store was asked to make a reader of this writer, and it is not known whether it has. The entry may be shared with other
    /// clients, so no other task gets it: it leaves when its user is done.
    pub(super) in_doubt: bool,
    pub(crate) due: Tick,
    /// How long the store's last answer was good for. A store may be able to promise less at a time than a whole lease.
    pub(super) lasts: Duration,
}

impl Held {
    pub(super) fn new(
        asking: &Asking,
        hold: Arc<Hold>,
        lease: &Lease,
        grant: Grant,
        scene: &Scene<'_>,
    ) -> Self {
        let due = match asking.unsure {
            true => scene.now,
            false => next_renewal(lease, grant, asking.asked, scene.now),
        };
        if grant.release_requested || asking.release_requested {
            hold.request_release();
        }
        Held {
            hold,
            want: asking.want,
            at_once: false,
            asked_again: asking.asked_again,
            users: 0,
            tokens: grant.tokens,
            highest: grant.tokens.first,
            budget_from: scene.now,
            handovers: 0,
            refreshing: false,
            tries_until: Tick::NEVER,
            closing: false,
            in_doubt: false,
            due,
            lasts: lasts(lease, grant, scene.now),
        }
    }

    pub(super) fn hand(&mut self) -> Handed {
        self.users += 1;
        self.handovers += 1;
        // The callers look at the length first; the last token again would still be a true one, only not a new one.
        let token = self.tokens.take().unwrap_or(self.highest);
        self.highest = token;
        Handed { hold: self.hold.clone(), token }
    }

    /// Whether the entry leaves when its present users are done, whoever waits here.
    pub(super) fn is_closing(&self) -> bool {
        self.closing || self.in_doubt || self.hold.is_release_requested()
    }

    pub(super) fn in_budget(&self, scene: &Scene<'_>) -> bool {
        let budget = scene.rules.budget;
        !self.refreshing
            && !self.is_closing()
            && self.tokens.len > 0
            && self.handovers <= budget.handovers
            && scene.now.since(self.budget_from) < budget.time
    }

    pub(super) fn refresh(&mut self, scene: &mut Scene<'_>) {
        if !self.is_closing() && !std::mem::replace(&mut self.refreshing, true) {
            scene.actions.push(Action::Renew(self.renewal(scene.key.clone())));
            self.tries_wait(scene);
        }
    }

    /// What the store is asked to renew it, with new tokens if those are waited for.
    pub(super) fn renewal(&self, key: LaneKey) -> Due {
        Due { key, id: self.hold.id, token: Some(self.highest), more_tokens: self.refreshing }
    }

    /// A try waits for the store's answer, but not for ever.
    pub(super) fn tries_wait(&mut self, scene: &Scene<'_>) {
        self.tries_until = self.tries_until.min(scene.now + scene.rules.retry_for);
    }

    pub(super) fn renewed(&mut self, lease: &Lease, grant: Grant, asked: Tick, scene: &Scene<'_>) {
        self.hold.extend(grant, asked);
        self.lasts = lasts(lease, grant, scene.now);
        self.due = match (lease, grant.term) {
            (Lease::Fixed(_), Term::For(_)) => Tick::NEVER,
            (Lease::Kept(_), Term::For(d)) => asked + d / 3,
            (_, Term::Until(end)) => end,
            (_, Term::Open) => scene.now + SLOW_POLL,
            (_, Term::Session { renew_at, .. }) => renew_at,
        };
    }

    pub(super) fn try_again_soon(&mut self, scene: &Scene<'_>) {
        let pause = (self.lasts / 15).clamp(Duration::from_millis(1), Duration::from_secs(1));
        self.due = self.due.min(scene.now + pause);
    }
}

fn lasts(lease: &Lease, grant: Grant, now: Tick) -> Duration {
    match grant.term {
        Term::Session { until, .. } => until.since(now).min(lease.length()),
        Term::For(d) => d.min(lease.length()),
        Term::Until(_) | Term::Open => lease.length(),
    }
}

/// Allocating one is a good part of what a lock costs; most names are locked again and again.
pub(super) fn fresh_hold(
    spare: &mut Option<Arc<Hold>>,
    asking: &Asking,
    lease: &Lease,
    grant: Grant,
) -> Arc<Hold> {
    let fresh = Hold::new(asking.id, lease, grant, asking.asked);
    let mut hold = match spare.take() {
        Some(hold) => hold,
        None => return Arc::new(fresh),
    };
    match Arc::get_mut(&mut hold) {
        Some(unused) => {
            *unused = fresh;
            hold
        }
        None => Arc::new(fresh),
    }
}

/// A kept lease is renewed at a third of its length. What was granted by a note is confirmed at once: its term counts from
/// our last poll, so part of it is over already.
fn next_renewal(lease: &Lease, grant: Grant, asked: Tick, now: Tick) -> Tick {
    match (lease, grant.term) {
        (_, Term::Open) => now + SLOW_POLL,
        (_, Term::Session { renew_at, .. }) => renew_at.max(now),
        // A fixed lease that is longer than what the store can promise at a time has to be asked for again.
        (Lease::Fixed(whole), Term::For(d)) if d + drift(d) < *whole => (asked + d / 3).max(now),
        (Lease::Fixed(_), _) => Tick::NEVER,
        (Lease::Kept(_), Term::For(d)) => (asked + d / 3).max(now),
        (Lease::Kept(_), Term::Until(end)) => end,
    }
}
