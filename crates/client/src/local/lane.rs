//! The queue of one name inside one client: who waits, which entry stands for them at the store, who holds.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_core::store::{Grant, Leave, Waiting};
use leasehold_core::traits::Death;
use leasehold_core::view::Lost;
use leasehold_core::{EntryId, Error, Kind, Retry, Tick, Token, Want};

use super::asking::{Asking, Request};
use super::held::{Held, fresh_hold};
use super::hold::Hold;
use super::leaving::{Going, Leaving};
use super::waiter::{Handed, Outcome, Waiter, Wakers};
use super::{Action, Due, LENT, LaneKey, LaneKind, RETRY, Rules, SLOW_POLL, Terms, drift};
use crate::sync::Arc;

pub(crate) struct Lane {
    pub(crate) stage: Stage,
    pub(crate) waiting: VecDeque<Arc<Waiter>>,
    terms: Terms,
    /// A solo lane's first entry has the lane's id; later ones must differ, for a late `leave` may be under way.
    asked_before: bool,
    /// The last hold, to be used again if no guard has it any more.
    spare: Option<Arc<Hold>>,
}

pub(crate) enum Stage {
    /// Nothing at the store.
    Idle,
    /// An entry was asked for, and it does not hold yet.
    Asking(Asking),
    /// The entry holds.
    Held(Held),
}

/// What a lane needs to know about the moment, and where it puts what follows.
pub(crate) struct Scene<'a> {
    pub(crate) key: &'a LaneKey,
    pub(crate) rules: &'a Rules,
    pub(crate) now: Tick,
    pub(crate) fresh_id: &'a dyn Fn() -> EntryId,
    pub(crate) actions: &'a mut Vec<Action>,
    pub(crate) wakers: &'a mut Wakers,
    pub(crate) leaving: &'a mut Leaving,
}

impl Scene<'_> {
    /// Ends a wait. Every wait that its own task does not end ends here: that task may never be polled again, and the
    /// request that it polls must reach its end all the same.
    fn finish(&mut self, waiter: &Waiter, outcome: Outcome) {
        // In this order: a task that polls its request at this moment sees the end next, and lets the request go on.
        self.wakers.add(waiter.finish(outcome));
        self.request_goes_on(waiter);
    }

    /// Nothing depends on the answer to a waiter's request any more, if it has one.
    fn request_goes_on(&mut self, waiter: &Waiter) {
        self.actions.extend(waiter.take_request().map(|request| Action::GoOn(self.key.clone(), request)));
    }

    fn leave(&mut self, id: EntryId, used: Option<Token>, terms: &Terms) {
        self.leaving.begin(id);
        self.say_leave(id, used, true, terms);
    }

    fn say_leave(&mut self, id: EntryId, used: Option<Token>, listed: bool, terms: &Terms) {
        let leave = Leave { name: self.key.name.clone(), id, used };
        let until = self.rules.gone_by(self.now + terms.lease.length());
        self.actions.push(Action::Leave(Going { leave, until, listed }));
    }
}

/// What becomes of a claim that comes to a lane.
pub(crate) enum Enter {
    /// It holds: it joined a lease that this client has.
    Now(Handed),
    /// It can't hold at once, and it did not want to wait.
    Busy,
    /// It is the first: the caller asks the store.
    First(Request),
    /// It waits.
    Wait(Arc<Waiter>),
}

impl Lane {
    pub(crate) fn new(terms: Terms) -> Self {
        Lane { stage: Stage::Idle, waiting: VecDeque::new(), terms, asked_before: false, spare: None }
    }

    /// Whether the lane can be forgotten.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle) && self.waiting.is_empty()
    }

    /// The entry that stands for this lane at the store.
    pub(crate) fn entry(&self) -> Option<EntryId> {
        match &self.stage {
            Stage::Idle => None,
            Stage::Asking(asking) => Some(asking.id),
            Stage::Held(held) => Some(held.hold.id),
        }
    }

    /// When the keeper should look at it.
    pub(crate) fn due(&self) -> Tick {
        match &self.stage {
            Stage::Idle => Tick::NEVER,
            Stage::Asking(asking) => asking.due,
            Stage::Held(held) => held.due.min(held.hold.valid_until()).min(held.tries_until),
        }
    }

    /// Whether the keeper should look at it by then, if it looks at others anyway: leases that are renewed a little early are
    /// renewed together.
    pub(crate) fn due_soon(&self, now: Tick, rules: &Rules) -> bool {
        let soon = matches!(&self.stage, Stage::Held(held) if held.due <= now + rules.together());
        soon || self.due() <= now
    }

    /// A claim comes.
    pub(crate) fn enter(
        &mut self,
        want: Want,
        tries: bool,
        retry_for: Option<Duration>,
        scene: &mut Scene<'_>,
    ) -> Enter {
        self.notice_the_end(scene);
        match &mut self.stage {
            Stage::Idle if self.waiting.is_empty() => Enter::First(self.ask(want, tries, true, scene)),
            // A try by a reader waits for the store's word beside other readers: only a writer is a reason to be busy.
            Stage::Held(held)
                if held.want == Want::Shared
                    && want == Want::Shared
                    && (self.waiting.is_empty()
                        || tries && self.waiting.iter().all(|w| w.want == Want::Shared)) =>
            {
                if self.waiting.is_empty() && held.in_budget(scene) {
                    return Enter::Now(held.hand());
                }
                // It leaves when its users are done. One of them may be the one that tries.
                if tries && held.is_closing() {
                    return Enter::Busy;
                }
                held.refresh(scene);
                self.wait(want, tries, retry_for, scene)
            }
            // Held by another task of this client, with no doubt about it: busy.
            Stage::Held(held) if tries && held.users > 0 => Enter::Busy,
            Stage::Asking(asking) if tries && asking.is_behind_another(scene.now) => Enter::Busy,
            _ => self.wait(want, tries, retry_for, scene),
        }
    }

    fn wait(&mut self, want: Want, tries: bool, retry_for: Option<Duration>, scene: &Scene<'_>) -> Enter {
        if tries && let Stage::Held(held) = &mut self.stage {
            held.tries_wait(scene);
        }
        let waiter = Waiter::new(want, tries, scene.now, retry_for);
        if let Stage::Asking(asking) = &mut self.stage {
            asking.due = asking.due.min(asking.bears(&waiter));
        }
        self.waiting.push_back(waiter.clone());
        Enter::Wait(waiter)
    }

    /// The first task's request was answered at once with a grant.
    pub(crate) fn held_at_once(
        &mut self,
        id: EntryId,
        grant: Grant,
        scene: &mut Scene<'_>,
    ) -> Option<Handed> {
        let Stage::Asking(asking) = &self.stage else { return None };
        if asking.id != id || asking.gone {
            return None;
        }
        let hold = fresh_hold(&mut self.spare, asking, &self.terms.lease, grant);
        let mut held = Held::new(asking, hold, &self.terms.lease, grant, scene);
        if !held.hold.is_good(scene.now) {
            return None;
        }
        held.at_once = true;
        let handed = held.hand();
        self.stage = Stage::Held(held);
        self.hand_out(scene);
        Some(handed)
    }

    /// The first task must wait after all: it takes its place at the head of the lane.
    pub(crate) fn first_waits(
        &mut self,
        id: EntryId,
        want: Want,
        tries: bool,
        retry_for: Option<Duration>,
        scene: &mut Scene<'_>,
    ) -> Arc<Waiter> {
        let waiter = Waiter::new(want, tries, scene.now, retry_for);
        self.waiting.push_front(waiter.clone());
        if let Stage::Asking(asking) = &mut self.stage
            && asking.id == id
        {
            asking.first_call = false;
            asking.due = asking.due.min(scene.now + LENT).min(asking.bears(&waiter));
            if asking.gone {
                self.stage = Stage::Idle;
                self.ask_for_the_next(scene);
            } else if let Some(grant) = asking.early.take() {
                self.granted(id, grant, None, scene);
            }
        }
        waiter
    }

    /// The store granted the entry: by an answer to a request sent at `asked`, or by a note (`None`). `false` if nobody here
    /// knows it.
    pub(crate) fn granted(
        &mut self,
        id: EntryId,
        grant: Grant,
        asked: Option<Tick>,
        scene: &mut Scene<'_>,
    ) -> bool {
        match &mut self.stage {
            Stage::Asking(asking) if asking.id == id => {
                if let Some(asked) = asked {
                    asking.asked = asked;
                    asking.trouble = None;
                    asking.last_words = None;
                }
                if asking.first_call {
                    asking.early = Some(grant);
                } else if !grant.started {
                    // A fixed lease starts when we say that we are here.
                    asking.queued = true;
                    asking.due = scene.now + self.terms.lease.length() / 6;
                    scene.actions.push(Action::Renew(Due::waiting(scene.key.clone(), id)));
                } else {
                    let hold = fresh_hold(&mut self.spare, asking, &self.terms.lease, grant);
                    let held = Held::new(asking, hold, &self.terms.lease, grant, scene);
                    let over = !held.hold.is_good(scene.now);
                    self.stage = Stage::Held(held);
                    if over {
                        self.fail_triers(&over_before_its_answer(), scene);
                    }
                    self.notice_the_end(scene);
                    if let (true, Stage::Asking(next)) = (over, &mut self.stage) {
                        next.too_late_before = true;
                    }
                    self.hand_out(scene);
                    self.leave_if_unused(scene);
                }
            }
            Stage::Held(held) if held.hold.id == id => {
                if let Some(asked) = asked {
                    held.renewed(&self.terms.lease, grant, asked, scene);
                    // It may come too late: a guard that was told of its end stays lost.
                    self.notice_the_end(scene);
                    self.after_refresh(grant, scene);
                    if grant.release_requested {
                        self.release_requested(id, scene);
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// The store said that the entry waits. `false` if nobody here knows it.
    pub(crate) fn queued(
        &mut self,
        id: EntryId,
        waiting: Waiting,
        asked: Tick,
        scene: &mut Scene<'_>,
    ) -> bool {
        let place = scene.rules.lease;
        let death = scene.rules.death;
        match &mut self.stage {
            Stage::Asking(asking) if asking.id == id => {
                asking.asked = asking.asked.max(asked);
                asking.queued = true;
                asking.trouble = None;
                asking.last_words = None;
                let patrol = if death == Death::AtOnce { SLOW_POLL } else { place / 3 };
                // A little after the holder's end, so that one look is enough.
                let end = waiting.poll_in.map_or(patrol, |d| d + Duration::from_micros(200));
                let missed = std::mem::take(&mut asking.unsure);
                asking.due = if missed { scene.now } else { scene.now + end.min(patrol) };
                self.send_triers_away(scene);
                self.leave_if_unused(scene);
                true
            }
            Stage::Held(held) => held.hold.id == id,
            _ => false,
        }
    }

    /// The store said that it is busy and that nothing was left behind.
    pub(crate) fn busy(&mut self, id: EntryId, scene: &mut Scene<'_>) {
        if let Stage::Asking(asking) = &self.stage
            && asking.id == id
        {
            let asked = asking.want;
            self.stage = Stage::Idle;
            // What a writer can't have, a reader may: it is asked for next.
            self.answer_triers(scene, |want| {
                (want == asked || asked == Want::Shared).then_some(Outcome::Busy)
            });
            self.ask_for_the_next(scene);
        }
    }

    /// A request about the entry failed. What can help is tried again for as long as one is left who waits. `false` if the entry is not
    /// known here.
    pub(crate) fn failed(&mut self, id: EntryId, error: &Error, again: bool, scene: &mut Scene<'_>) -> bool {
        let asking = match &mut self.stage {
            Stage::Asking(asking) if asking.id == id => asking,
            Stage::Held(held) if held.hold.id == id => {
                held.try_again_soon(scene);
                if held.refreshing && held.users == 0 {
                    // Nobody here can go on without the answer: give it back and queue again.
                    self.give_back(scene);
                } else if !again {
                    self.fail_triers(error, scene);
                }
                return true;
            }
            _ => return false,
        };
        // A claim's first request is in trouble from when it was sent, which is what the user has waited for.
        let begun = if asking.queued { scene.now } else { asking.asked };
        let (since, tries) = asking.trouble.unwrap_or((begun, 0));
        asking.trouble = Some((since, tries + 1));
        asking.last_words = Some(error.clone());
        if again {
            asking.due = scene.now + RETRY.pause(tries, id.0 as u32 ^ tries.wrapping_mul(0x9E37));
            self.let_go_of_the_impatient(scene);
            return true;
        }
        self.stage = Stage::Idle;
        self.fail_all(error, scene);
        true
    }

    /// The store is in trouble: those without a limit of their own wait for it as long as they said.
    fn let_go_of_the_impatient(&mut self, scene: &mut Scene<'_>) {
        let Stage::Asking(asking) = &mut self.stage else { return };
        let Some((trouble, _)) = asking.trouble else { return };
        self.waiting.retain(|waiter| {
            let gives_up = asking.bears(waiter);
            if gives_up > scene.now {
                asking.due = asking.due.min(gives_up);
                return true;
            }
            let error = asking.complaint(waiter.in_trouble_since(trouble), scene);
            scene.finish(waiter, Outcome::Failed(error));
            false
        });
        self.leave_if_unused(scene);
    }

    /// How things stand for one whose time is over.
    pub(crate) fn overdue(&self, waiter: &Waiter, scene: &Scene<'_>) -> Overdue {
        match &self.stage {
            _ if waiter.is_done() => Overdue::Done,
            Stage::Held(held) => {
                // A reader among readers waits for the store's word, and for no holder.
                let joins = held.refreshing && held.want == Want::Shared && waiter.want == Want::Shared;
                if held.users > 0 && !joins { Overdue::Busy } else { Overdue::Unanswered(held.hold.id) }
            }
            Stage::Idle => Overdue::Busy,
            Stage::Asking(asking) if asking.too_late_before => {
                Overdue::Failed(over_before_its_answer().on(&scene.key.name))
            }
            Stage::Asking(asking) => match asking.trouble {
                _ if asking.is_behind_another(scene.now) => Overdue::Busy,
                Some((since, _)) if asking.queued || asking.last_words.is_some() => {
                    Overdue::Failed(asking.complaint(waiter.in_trouble_since(since), scene))
                }
                _ => Overdue::Unanswered(asking.id),
            },
        }
    }

    /// The entry is not at the store any more. Tells why a held lock was lost by it, if that is news.
    pub(crate) fn gone(&mut self, id: EntryId, why: Lost, scene: &mut Scene<'_>) -> Option<Lost> {
        match &mut self.stage {
            // The task that asks has not read its answer, which may say that it holds.
            Stage::Asking(asking) if asking.id == id && asking.first_call => {
                asking.gone = true;
                None
            }
            Stage::Asking(asking) if asking.id == id => {
                self.stage = Stage::Idle;
                self.ask_for_the_next(scene);
                None
            }
            Stage::Held(held) if held.hold.id == id => {
                let news = held.hold.lose(why);
                // One that was asked for twice may be there again: made by the second request, after the first was taken away.
                if held.asked_again {
                    scene.actions.push(Action::Disown(scene.key.name.clone(), id));
                }
                self.stage = Stage::Idle;
                self.ask_for_the_next(scene);
                news.then_some(why)
            }
            _ => None,
        }
    }

    /// The store was asked about the entry and does not have it. A store that has forgotten the entry can't tell a lease that ended
    /// from one that was taken away; our clock can.
    pub(crate) fn missing(&mut self, id: EntryId, why: Lost, scene: &mut Scene<'_>) -> Option<Lost> {
        let over = matches!(&self.stage, Stage::Held(held) if !held.hold.is_good(scene.now));
        let why = if over && why == Lost::Revoked { Lost::Expired } else { why };
        self.gone(id, why, scene)
    }

    /// News of the entry may have been missed: the store is asked about it. One that waits is asked about on the spot, one that holds
    /// in the next batch of renewals, and one whose first answer is on its way after that answer.
    pub(crate) fn ask_about(&mut self, id: EntryId, scene: &mut Scene<'_>) {
        match &mut self.stage {
            Stage::Asking(asking) if asking.id == id && asking.queued => {
                scene.actions.push(Action::Renew(Due::waiting(scene.key.clone(), id)));
            }
            Stage::Asking(asking) if asking.id == id => asking.unsure = true,
            Stage::Held(held) if held.hold.id == id => held.due = scene.now,
            _ => {}
        }
    }

    /// Somebody asks for the lock back: whoever uses it here is told, and nobody else gets it from this entry. `false` if
    /// nobody here knows it.
    pub(crate) fn release_requested(&mut self, id: EntryId, scene: &mut Scene<'_>) -> bool {
        match &mut self.stage {
            Stage::Asking(asking) if asking.id == id => asking.release_requested = true,
            Stage::Held(held) if held.hold.id == id => {
                held.hold.request_release();
                if held.users == 0 {
                    // Nobody has it, only those who wait here for the store to say whether others do.
                    self.give_back(scene);
                } else {
                    self.send_triers_away(scene);
                }
            }
            _ => return false,
        }
        true
    }

    /// A guard is given back.
    pub(crate) fn release(&mut self, hold: &Arc<Hold>, scene: &mut Scene<'_>) -> Released {
        let Stage::Held(held) = &mut self.stage else { return Released::NotHeld };
        if !Arc::ptr_eq(&held.hold, hold) {
            return Released::NotHeld;
        }
        held.users -= 1;
        if held.users > 0 {
            return Released::Kept;
        }
        let Some(next) = self.waiting.front() else { return self.take_out(scene) };
        let fits = next.want == held.want
            && !held.is_closing()
            && held.hold.valid_until().since(scene.now) > held.lasts / 4;
        if !fits {
            let out = self.take_out(scene);
            self.ask_for_the_next(scene);
            return out;
        }
        if held.in_budget(scene) {
            self.hand_out(scene);
        } else {
            held.refresh(scene);
        }
        Released::Kept
    }

    /// A task stops waiting. What it was handed in the meantime is not in here any more: the caller has to look.
    pub(crate) fn cancel(&mut self, waiter: &Arc<Waiter>, scene: &mut Scene<'_>) {
        if let Some(at) = self.waiting.iter().position(|w| Arc::ptr_eq(w, waiter)) {
            self.waiting.remove(at);
            self.leave_if_unused(scene);
        }
    }

    /// The store is about to be asked to make a reader of the client's writer. From now on it may be shared with other clients: it
    /// goes to no other task until the outcome is known. `false` if the lock is not held any more.
    pub(crate) fn downgrade_begins(&mut self, hold: &Arc<Hold>, scene: &mut Scene<'_>) -> bool {
        self.notice_the_end(scene);
        let Stage::Held(held) = &mut self.stage else { return false };
        if !Arc::ptr_eq(&held.hold, hold) {
            return false;
        }
        held.in_doubt = true;
        hold.set_downgraded(true);
        true
    }

    /// The client's writer has become a reader.
    pub(crate) fn downgraded(&mut self, id: EntryId, scene: &mut Scene<'_>) {
        if let Stage::Held(held) = &mut self.stage
            && held.hold.id == id
        {
            held.want = Want::Shared;
            held.in_doubt = false;
            held.hold.set_downgraded(true);
            if !held.is_closing() {
                self.hand_out(scene);
            }
        }
    }

    /// It is certain that the client's writer is one still.
    pub(crate) fn not_downgraded(&mut self, id: EntryId) {
        if let Stage::Held(held) = &mut self.stage
            && held.hold.id == id
        {
            held.in_doubt = false;
            held.hold.set_downgraded(false);
        }
    }

    /// The keeper looks at the lane.
    pub(crate) fn look(&mut self, scene: &mut Scene<'_>) -> bool {
        let lost = self.notice_the_end(scene);
        if matches!(&self.stage, Stage::Held(held) if held.tries_until <= scene.now) {
            let silence = Error::new(Kind::Unavailable, "the store does not answer").on(&scene.key.name);
            self.fail_triers(&silence, scene);
        }
        match &mut self.stage {
            Stage::Asking(asking) if asking.due <= scene.now && !asking.first_call => {
                if !asking.queued {
                    // Perhaps it was answered, and the task that waits for it does not look.
                    for request in self.waiting.iter().filter_map(|waiter| waiter.take_request()) {
                        // It may be sent once more.
                        asking.asked_again = true;
                        scene.actions.push(Action::GoOn(scene.key.clone(), request));
                    }
                    let in_doubt = self.waiting.iter().map(|waiter| asking.bears(waiter));
                    let in_doubt = in_doubt.fold(asking.asked + scene.rules.first_answer(), Tick::min);
                    if asking.trouble.is_none() && scene.now < in_doubt {
                        asking.due = in_doubt;
                        return lost;
                    }
                }
                asking.due = scene.now + scene.rules.lease / 6;
                // In trouble until it is answered: a store that says nothing at all must not hold us for ever.
                let since = if asking.queued { scene.now } else { asking.asked };
                asking.trouble = asking.trouble.or(Some((since, 0)));
                self.let_go_of_the_impatient(scene);
                let Stage::Asking(asking) = &mut self.stage else { return lost };
                if asking.queued {
                    scene.actions.push(Action::Renew(Due::waiting(scene.key.clone(), asking.id)));
                } else {
                    asking.asked_again = true;
                    let ask = self.terms.ask(asking, scene);
                    scene.actions.push(Action::Join(scene.key.clone(), ask.on(scene.key.name.clone())));
                }
            }
            Stage::Held(held) if held.due <= scene.now + scene.rules.together() => {
                held.due = scene.now + scene.rules.lease / 6;
                scene.actions.push(Action::Renew(held.renewal(scene.key.clone())));
            }
            _ => {}
        }
        lost
    }

    /// Everything ends: the client is closed, or its session is gone at the store.
    pub(crate) fn end(&mut self, why: Lost, error: Option<&Error>, scene: &mut Scene<'_>) -> bool {
        let lost = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Held(held) => held.hold.lose(why),
            Stage::Asking(mut asking) if asking.first_call => {
                // What a closed client is granted goes back by itself.
                asking.gone = error.is_none();
                self.stage = Stage::Asking(asking);
                false
            }
            _ => false,
        };
        match error {
            Some(error) => self.fail_all(error, scene),
            None => self.ask_for_the_next(scene),
        }
        lost
    }

    /// A lease that the clock has ended is lost now, whatever the store will say.
    fn notice_the_end(&mut self, scene: &mut Scene<'_>) -> bool {
        let Stage::Held(held) = &self.stage else { return false };
        if held.hold.is_good(scene.now) {
            return false;
        }
        let news = held.hold.lose(Lost::Expired);
        let early = if scene.rules.death == Death::AtOnce {
            Duration::ZERO
        } else {
            drift(self.terms.lease.length())
        };
        scene.actions.push(Action::Bury(scene.key.name.clone(), held.hold.id, early));
        self.stage = Stage::Idle;
        self.ask_for_the_next(scene);
        news
    }

    /// Serves those that wait, in their order, as far as the hold can serve them.
    fn hand_out(&mut self, scene: &mut Scene<'_>) {
        let Stage::Held(held) = &mut self.stage else { return };
        while let Some(next) = self.waiting.front() {
            let fits = next.want == held.want && (held.users == 0 || held.want == Want::Shared);
            if !fits {
                break;
            }
            if held.tokens.len == 0 {
                if held.is_closing() {
                    break;
                }
                held.refresh(scene);
                return;
            }
            let handed = held.hand();
            let waiter = self.waiting.pop_front().expect("it was looked at just now");
            scene.finish(&waiter, Outcome::Handed(handed));
        }
        self.send_triers_away(scene);
    }

    /// The store told, when the budget was over, whether others wait.
    fn after_refresh(&mut self, grant: Grant, scene: &mut Scene<'_>) {
        let Stage::Held(held) = &mut self.stage else { return };
        // A fresh block tells the answer to that question from the answer to a plain renewal.
        if !held.refreshing || grant.tokens.first <= held.highest {
            return;
        }
        held.refreshing = false;
        held.tries_until = Tick::NEVER;
        if grant.contended || grant.release_requested || held.is_closing() {
            held.closing = true;
            self.send_triers_away(scene);
            if matches!(&self.stage, Stage::Held(held) if held.users == 0) {
                self.give_back(scene);
            }
            return;
        }
        held.tokens = grant.tokens;
        held.budget_from = scene.now;
        held.handovers = 0;
        self.hand_out(scene);
        self.leave_if_unused(scene);
    }

    fn give_back(&mut self, scene: &mut Scene<'_>) {
        if let Released::Leave { id, used, listed } = self.take_out(scene) {
            scene.say_leave(id, Some(used), listed, &self.terms);
        }
        self.ask_for_the_next(scene);
    }

    /// Of an entry that nobody else can speak of, nothing is written down: most locks are such, and each trip to a list costs.
    fn take_out(&mut self, scene: &mut Scene<'_>) -> Released {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Held(held) => {
                held.hold.released();
                let (id, used, listed) = (held.hold.id, held.highest, !held.at_once);
                self.spare = Some(held.hold);
                if listed {
                    scene.leaving.begin(id);
                }
                Released::Leave { id, used, listed }
            }
            other => {
                self.stage = other;
                Released::NotHeld
            }
        }
    }

    /// An entry without a use goes back: no waiter is left, or the next one wants another mode than the one for which it was
    /// asked, and which was cancelled meanwhile. A writer's entry would keep readers out for as long as it waits.
    fn leave_if_unused(&mut self, scene: &mut Scene<'_>) {
        if let Some(next) = self.waiting.front() {
            match &self.stage {
                Stage::Held(held) if held.users == 0 && !held.refreshing => self.give_back(scene),
                Stage::Asking(asking) if !asking.first_call && asking.want != next.want => {
                    scene.leave(asking.id, None, &self.terms);
                    self.stage = Stage::Idle;
                    self.ask_for_the_next(scene);
                }
                _ => {}
            }
            return;
        }
        let (id, used) = match &self.stage {
            Stage::Asking(asking) if !asking.first_call => (asking.id, None),
            Stage::Held(held) if held.users == 0 => {
                held.hold.released();
                (held.hold.id, Some(held.highest))
            }
            _ => return,
        };
        scene.leave(id, used, &self.terms);
        self.stage = Stage::Idle;
    }

    fn ask_for_the_next(&mut self, scene: &mut Scene<'_>) {
        if !matches!(self.stage, Stage::Idle) {
            return;
        }
        let Some(next) = self.waiting.front() else { return };
        // It may poll a request for an entry that is gone. Only the first can: the task that asks waits at the head.
        scene.request_goes_on(next);
        let want = next.want;
        let tries = self.waiting.iter().all(|w| w.tries);
        let ask = self.ask(want, tries, false, scene);
        scene.actions.push(Action::Join(scene.key.clone(), ask.on(scene.key.name.clone())));
    }

    fn ask(&mut self, want: Want, tries: bool, first_call: bool, scene: &Scene<'_>) -> Request {
        let id = match scene.key.kind {
            LaneKind::Solo(id) if !self.asked_before => id,
            _ => (scene.fresh_id)(),
        };
        self.asked_before = true;
        let asking = Asking {
            id,
            want,
            tries,
            asked: scene.now,
            queued: false,
            first_call,
            early: None,
            gone: false,
            release_requested: false,
            asked_again: false,
            unsure: false,
            too_late_before: false,
            due: scene.now + scene.rules.first_answer(),
            trouble: None,
            last_words: None,
        };
        let ask = self.terms.ask(&asking, scene);
        self.stage = Stage::Asking(asking);
        ask
    }

    fn send_triers_away(&mut self, scene: &mut Scene<'_>) {
        self.answer_triers(scene, |_| Some(Outcome::Busy));
    }

    /// Those that try are not told that the lock is busy when the store did not say so.
    fn fail_triers(&mut self, error: &Error, scene: &mut Scene<'_>) {
        self.answer_triers(scene, |_| Some(Outcome::Failed(error.clone())));
    }

    fn fail_all(&mut self, error: &Error, scene: &mut Scene<'_>) {
        for waiter in self.waiting.drain(..) {
            scene.finish(&waiter, Outcome::Failed(error.clone()));
        }
    }

    /// Those that try hear what `outcome` says for what they want; without one, they go on.
    fn answer_triers(&mut self, scene: &mut Scene<'_>, outcome: impl Fn(Want) -> Option<Outcome>) {
        if let Stage::Held(held) = &mut self.stage {
            held.tries_until = Tick::NEVER;
        }
        if self.waiting.iter().any(|w| w.tries) {
            self.waiting.retain(|w| match w.tries.then(|| outcome(w.want)).flatten() {
                Some(outcome) => {
                    scene.finish(w, outcome);
                    false
                }
                None => true,
            });
        }
    }
}

fn over_before_its_answer() -> Error {
    Error::new(Kind::Unavailable, "the lease was over before the store's answer came")
        .retry(Retry::Later)
        .advice("choose a longer lease, or wait for the lock")
}

/// How things stand for one whose time is over.
#[derive(Debug)]
pub(crate) enum Overdue {
    /// Its answer came in this moment.
    Done,
    /// Another one holds the lock, or is before it in the queue.
    Busy,
    /// The store is in trouble.
    Failed(Error),
    /// The store was asked about this entry, and an answer is on its way, perhaps.
    Unanswered(EntryId),
}

/// What became of a guard that was given back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The lock stays with this client: handed to another task, or other readers live on it.
    Kept,
    /// The entry must leave the store: the highest token that was handed out, and whether it is in the list of those that leave.
    Leave { id: EntryId, used: Token, listed: bool },
    /// The guard's lease had ended before.
    NotHeld,
}
