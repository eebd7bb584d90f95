//! A lock as a person with a pencil would keep it: one list of people in the order in which they came, one list of those
//! that barge. It shares no code with the queue; it is slow and says everything in full.

use leasehold_core::Want;

/// A time or a length, in milliseconds.
pub(crate) type Ms = u64;

/// How the store notices a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dies {
    ByLease,
    AtOnce,
}

/// What one attempt asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) want: Want,
    pub(crate) fixed: bool,
    pub(crate) lease: Ms,
    pub(crate) place: Ms,
    pub(crate) otherwise: Otherwise,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Otherwise {
    Queue,
    Barge,
    GoAway,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) id: u128,
    pub(crate) session: u128,
    pub(crate) asked: Asked,
    pub(crate) want: Want,
    pub(crate) holds: bool,
    pub(crate) started: bool,
    pub(crate) ends: Option<Ms>,
    /// Somebody asked for what it holds.
    pub(crate) requested: bool,
}

/// What the model says must happen besides the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    Granted(u128),
    Gone(u128),
    Requested(u128),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Held,
    Waiting,
    Busy,
    WrongLimit,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) dies: Dies,
    pub(crate) line: Vec<Person>,
    pub(crate) bargers: Vec<Person>,
    pub(crate) limit: Option<u32>,
}

impl Model {
    pub(crate) fn new(dies: Dies) -> Self {
        Model { dies, line: Vec::new(), bargers: Vec::new(), limit: None }
    }

    pub(crate) fn knows(&self, id: u128) -> bool {
        self.line.iter().chain(&self.bargers).any(|p| p.id == id)
    }

    /// Time passes: who has ended goes, and the line moves up.
    pub(crate) fn pass(&mut self, now: Ms, told: &mut Vec<Told>) {
        self.remove(told, |p| p.ends.is_some_and(|end| end <= now));
        self.move_up(now, told);
    }

    pub(crate) fn join(&mut self, id: u128, session: u128, asked: Asked, now: Ms) -> Answer {
        if let Some(p) = self.line.iter_mut().find(|p| p.id == id) {
            if p.holds {
                return Answer::Held;
            }
            // Whoever asks shows that it is alive.
            p.ends = (self.dies == Dies::ByLease).then_some(now + p.asked.place);
            return Answer::Waiting;
        }
        if self.bargers.iter().any(|p| p.id == id) {
            return self.try_to_barge(id, now);
        }
        if matches!(asked.want, Want::Permits { of, .. } if self.limit.is_some_and(|limit| limit != of)) {
            return Answer::WrongLimit;
        }
        let mut person = Person {
            id,
            session,
            asked,
            want: asked.want,
            holds: false,
            started: false,
            ends: None,
            requested: false,
        };
        if self.has_room_for(asked.want) {
            self.start(&mut person, now);
            self.line.push(person);
            self.remember_limit(asked.want);
            return Answer::Held;
        }
        person.ends = (self.dies == Dies::ByLease).then_some(now + asked.place);
        match asked.otherwise {
            Otherwise::GoAway => return Answer::Busy,
            Otherwise::Queue => self.line.push(person),
            Otherwise::Barge => self.bargers.push(person),
        }
        self.remember_limit(asked.want);
        Answer::Waiting
    }

    /// `None` if there is no such entry.
    pub(crate) fn renew(&mut self, id: u128, now: Ms) -> Option<Answer> {
        if self.bargers.iter().any(|p| p.id == id) {
            return Some(self.try_to_barge(id, now));
        }
        let by_lease = self.dies == Dies::ByLease;
        let p = self.line.iter_mut().find(|p| p.id == id)?;
        if !p.holds {
            p.ends = by_lease.then_some(now + p.asked.place);
            return Some(Answer::Waiting);
        }
        if p.asked.fixed && !p.started || !p.asked.fixed && by_lease {
            p.ends = Some(now + p.asked.lease);
        }
        p.started = true;
        Some(Answer::Held)
    }

    pub(crate) fn leave(&mut self, id: u128, now: Ms, told: &mut Vec<Told>) -> bool {
        let was_there = self.knows(id);
        // Leaving is the wish of the one who leaves: nobody tells it.
        self.remove(&mut Vec::new(), |p| p.id == id);
        self.move_up(now, told);
        was_there
    }

    pub(crate) fn downgrade(&mut self, id: u128, now: Ms, told: &mut Vec<Told>) -> bool {
        let Some(p) = self.line.iter_mut().find(|p| p.id == id && p.holds) else { return false };
        if p.want == Want::Exclusive {
            p.want = Want::Shared;
        }
        self.move_up(now, told);
        true
    }

    pub(crate) fn set_limit(&mut self, limit: u32, now: Ms, told: &mut Vec<Told>) -> bool {
        let waits_for_more = |p: &Person| !p.holds && matches!(p.want, Want::Permits { n, .. } if n > limit);
        if limit == 0 || self.line.iter().chain(&self.bargers).any(waits_for_more) {
            return false;
        }
        if self.limit.is_some() {
            self.limit = Some(limit);
        }
        self.move_up(now, told);
        true
    }

    pub(crate) fn revoke(&mut self, only: Option<u128>, now: Ms, told: &mut Vec<Told>) {
        self.remove(told, |p| p.holds && only.is_none_or(|id| p.id == id));
        self.move_up(now, told);
    }

    /// Those who are asked if this one is meant, or all holders.
    pub(crate) fn meant(&self, only: Option<u128>) -> Vec<u128> {
        let meant = |p: &&Person| p.holds && only.is_none_or(|id| p.id == id);
        self.line.iter().filter(meant).map(|p| p.id).collect()
    }

    /// Holders are asked for what they hold. Returns those that had not been asked before.
    pub(crate) fn request(&mut self, only: Option<u128>, told: &mut Vec<Told>) -> Vec<u128> {
        let mut news = Vec::new();
        for p in self.line.iter_mut().filter(|p| p.holds && only.is_none_or(|id| p.id == id)) {
            told.push(Told::Requested(p.id));
            if !std::mem::replace(&mut p.requested, true) {
                news.push(p.id);
            }
        }
        news
    }

    pub(crate) fn session_gone(&mut self, session: u128, now: Ms, told: &mut Vec<Told>) {
        self.remove(told, |p| p.session == session);
        self.move_up(now, told);
    }

    /// Whether a newcomer would hold at once.
    pub(crate) fn has_room_for(&self, want: Want) -> bool {
        let mut together: Vec<Want> = self.line.iter().map(|p| p.want).collect();
        together.push(want);
        self.line.iter().all(|p| p.holds) && compatible(&together, self.limit)
    }

    fn try_to_barge(&mut self, id: u128, now: Ms) -> Answer {
        let at = self.bargers.iter().position(|p| p.id == id).unwrap();
        if self.has_room_for(self.bargers[at].want) {
            let mut person = self.bargers.remove(at);
            self.start(&mut person, now);
            self.line.push(person);
            return Answer::Held;
        }
        let person = &mut self.bargers[at];
        person.ends = (self.dies == Dies::ByLease).then_some(now + person.asked.place);
        Answer::Waiting
    }

    fn start(&self, person: &mut Person, now: Ms) {
        person.holds = true;
        person.started = true;
        let ends = person.asked.fixed || self.dies == Dies::ByLease;
        person.ends = ends.then_some(now + person.asked.lease);
    }

    /// The rule, by brute force: the longest line of holders that still fits, nobody losing what he has.
    fn move_up(&mut self, now: Ms, told: &mut Vec<Told>) {
        let held = self.line.iter().filter(|p| p.holds).count();
        let wants: Vec<Want> = self.line.iter().map(|p| p.want).collect();
        let reach =
            (held..=wants.len()).rev().find(|n| *n == held || compatible(&wants[..*n], self.limit)).unwrap();
        for at in held..reach {
            told.push(Told::Granted(self.line[at].id));
            let mut person = self.line[at].clone();
            match self.dies {
                Dies::AtOnce => self.start(&mut person, now),
                // It has what is left of its place to say that it is alive.
                Dies::ByLease => (person.holds, person.started) = (true, !person.asked.fixed),
            }
            self.line[at] = person;
        }
        let permits = |p: &Person| matches!(p.want, Want::Permits { .. });
        if !self.line.iter().chain(&self.bargers).any(permits) {
            self.limit = None;
        }
    }

    fn remember_limit(&mut self, want: Want) {
        if let Want::Permits { of, .. } = want {
            self.limit.get_or_insert(of);
        }
    }

    fn remove(&mut self, told: &mut Vec<Told>, gone: impl Fn(&Person) -> bool) {
        for list in [&mut self.line, &mut self.bargers] {
            told.extend(list.iter().filter(|p| gone(p)).map(|p| Told::Gone(p.id)));
            list.retain(|p| !gone(p));
        }
    }
}

/// Whether these can all hold together.
pub(crate) fn compatible(wants: &[Want], limit: Option<u32>) -> bool {
    let mut permits = 0;
    let mut most = u32::MAX;
    let mut kinds = (false, false, false);
    for want in wants {
        match want {
            Want::Exclusive => kinds.0 = true,
            Want::Shared => kinds.1 = true,
            Want::Permits { n, of } => {
                kinds.2 = true;
                permits += n;
                most = most.min(limit.unwrap_or(*of));
            }
        }
    }
    match kinds {
        (true, _, _) => wants.len() == 1,
        (_, true, true) => false,
        _ => permits <= most,
    }
}
