//! One node: what the Lua scripts do, function by function, as a pure state machine. The time and the identity of the process
//! are arguments.

use std::collections::BTreeMap;

use super::seat::{Acquire, Seat};
use super::standing::{Report, Standing, Step};

/// A counter is kept for so long after the clock has passed it, in microseconds: as far as a node's clock may be set back
/// while it runs.
pub const KEEP: u64 = 600_000_000;

/// For how long a free lock waits for the one whose turn it is, in microseconds: a message and a round trip.
pub const TURN: u64 = 50_000;

/// Those that barge stand so far behind those that queue, in microseconds: more than a century, and still exact in Lua.
pub const BARGE: u64 = 4_000_000_000_000_000;

/// A node.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// How it stands; `None` if it is blank.
    pub marker: Option<Marker>,
    /// Its locks by their names.
    pub locks: BTreeMap<String, Lock>,
}

/// The marker of a [`Node`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// Which process wrote it.
    pub run: String,
    /// How the node stands.
    pub standing: Standing,
    /// The number that the set was founded with.
    pub set: u64,
    /// Since when, in microseconds.
    pub since: u64,
    /// No token at or below it is given.
    pub floor: u64,
    /// The highest counter that any lock ever had.
    pub top: u64,
    /// The longest lease that was ever granted, in milliseconds.
    pub longest: u64,
}

/// A lock on a [`Node`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock {
    /// Who owns it, and how far its tokens went.
    pub seat: Seat<Attempt>,
    /// When the owner's time is over.
    pub ends: u64,
    /// The owner's session.
    pub session: String,
    /// The last attempt that it was taken away from.
    pub revoked: Option<Attempt>,
    /// The last attempt that was asked to give it back.
    pub asked: Option<Attempt>,
    /// Whose turn it is, and until when.
    pub turn: Option<(u64, u64)>,
    /// Whether the next is told though the owner's attempt fails: an entry that waits was denied, or went away, since the owner has it.
    pub denied_a_waiter: bool,
    /// Those that wait, in the order in which they will be told.
    pub line: Vec<Slip>,
}

/// One attempt: an entry, and the number of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    /// The entry.
    pub entry: u64,
    /// Which of its attempts.
    pub number: u32,
}

/// One that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slip {
    /// Its place in the line: when it came, or was last told.
    pub at: u64,
    /// The entry.
    pub entry: u64,
    /// When its place ends.
    pub ends: u64,
    /// Since when it waits.
    pub since: u64,
    /// Whether it barges.
    pub barges: bool,
    /// Its session.
    pub session: String,
}

/// Where and when something happens.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    /// Microseconds by the node's clock.
    pub micros: u64,
    /// Which process the node is.
    pub run: &'a str,
}

/// What is told to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It is this entry's turn: to its session.
    Turn(String, u64),
    /// The lock was taken away from this attempt: to its session.
    Revoked(String, Attempt),
    /// Somebody asks this attempt for the lock: to its session.
    Asked(String, Attempt),
    /// To those that watch: what happened, to which attempt, with which token.
    Holder(char, Attempt, u64),
    /// To those that watch: what happened to an entry that waits.
    Waiter(char, u64),
}

/// What is asked of [`Node::acquire`].
#[derive(Debug, Clone)]
pub struct Ask {
    /// The attempt.
    pub id: Attempt,
    /// Its session.
    pub session: String,
    /// For how long, in milliseconds.
    pub ttl: u64,
    /// The token must be higher than this.
    pub floor: u64,
    /// How many tokens.
    pub block: u64,
    /// The counter must reach this: a lease that is planted again.
    pub up_to: u64,
    /// For how long it waits if it is denied, in milliseconds; 0 if not at all.
    pub place: u64,
    /// Whether it barges.
    pub barges: bool,
}

/// The answer of [`Node::acquire`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// The node can't take part.
    NotYet(Standing),
    /// It is the asker's.
    Granted {
        /// The first token.
        x: u64,
        /// Whether it counts.
        counted: bool,
        /// Whether others wait.
        contended: bool,
    },
    /// It is another's.
    Denied {
        /// For how long, in milliseconds.
        rest: u64,
        /// How many wait before the asker.
        before: usize,
    },
}

/// The answer of [`Node::extend`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extended {
    /// Still the asker's.
    Owned {
        /// The first token.
        x: u64,
        /// Whether that counts.
        counted: bool,
        /// Whether others wait.
        contended: bool,
        /// For how long, in milliseconds.
        rest: u64,
        /// Whether somebody asked for it back.
        asked: bool,
    },
    /// Its time was over.
    Expired,
    /// It was taken away.
    Revoked,
    /// The node does not know the asker's tokens.
    Wiped,
}

/// How an entry leaves a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release<'a> {
    /// It gives back what it held.
    GiveBack,
    /// Its attempt failed, and it waits for so many milliseconds, barging or not, for this session.
    Wait(u64, bool, &'a str),
    /// Its attempt failed, and it goes away.
    GoAway,
    /// Its attempt failed, and whether it waits is another attempt's affair.
    Nothing,
    /// It does not want to wait any more.
    Leave,
    /// It holds, and waits no longer.
    Forget,
}

impl Node {
    /// How the node stands. A marker that another process wrote says that something was lost.
    pub fn standing(&mut self, now: Now<'_>) -> Standing {
        let Some(marker) = &mut self.marker else { return Standing::Blank };
        if marker.run != now.run {
            (marker.standing, marker.set, marker.since) = (Standing::Quarantined, 0, now.micros);
            now.run.clone_into(&mut marker.run);
        }
        marker.standing
    }

    /// What the node says about itself.
    pub fn report(&mut self, now: Now<'_>) -> Report {
        let standing = self.standing(now);
        let (set, since, top, longest) =
            self.marker.as_ref().map_or((0, 0, 0, 0), |m| (m.set, m.since, m.top, m.longest));
        Report { standing, set, since, age: now.micros.saturating_sub(since), top, longest }
    }

    /// A blank node becomes new.
    pub fn make_new(&mut self, now: Now<'_>, set: u64) -> bool {
        let blank = self.standing(now) == Standing::Blank;
        if blank {
            self.take_standing(now, Standing::New, set);
        }
        blank
    }

    /// Does what [`tend`](super::standing::tend) says, if the node still stands as it was seen.
    pub fn tended(&mut self, now: Now<'_>, step: Step) -> bool {
        let standing = self.standing(now);
        let (has, since) = self.marker.as_ref().map_or((0, 0), |m| (m.set, m.since));
        match (step, standing) {
            (Step::Clear(set), Standing::New) if set == has => self.marker = None,
            (Step::Open(set), Standing::New) if set == has => self.take_standing(now, Standing::Open, set),
            (Step::Open(set), Standing::Open) => return set == has,
            (Step::Quarantine(0), Standing::Blank) => self.take_standing(now, Standing::Quarantined, 0),
            (Step::Quarantine(set), Standing::New) if set == has => {
                self.take_standing(now, Standing::Quarantined, 0);
            }
            (Step::Lift { since: seen, set, floor, longest }, Standing::Quarantined) if seen == since => {
                self.take_standing(now, Standing::Open, set);
                if let Some(marker) = &mut self.marker {
                    marker.floor = marker.floor.max(floor).max(now.micros);
                    marker.top = marker.top.max(floor);
                    marker.longest = marker.longest.max(longest);
                }
            }
            _ => return false,
        }
        true
    }

    fn take_standing(&mut self, now: Now<'_>, standing: Standing, set: u64) {
        let (since, run) = (now.micros, now.run.to_owned());
        let (floor, top, longest) = self.marker.as_ref().map_or((0, 0, 0), |m| (m.floor, m.top, m.longest));
        self.marker = Some(Marker { run, standing, set, since, floor, top, longest });
    }

    /// A lock that is open to be changed, if the node takes part.
    fn lock(
        &mut self,
        now: Now<'_>,
        name: &str,
        out: &mut Vec<Told>,
    ) -> Result<(&mut Marker, &mut Lock), Standing> {
        let standing = self.standing(now);
        let Some(marker) =
            self.marker.as_mut().filter(|_| matches!(standing, Standing::Open | Standing::Quarantined))
        else {
            return Err(standing);
        };
        let lock = self.locks.entry(name.to_owned()).or_default();
        if let Some(owner) = lock.seat.owner.filter(|_| lock.ends <= now.micros) {
            lock.seat.expire();
            lock.denied_a_waiter = false;
            out.push(Told::Holder('e', owner.id, owner.x));
            lock.seat.counter = lock.seat.counter.max(now.micros - KEEP);
        }
        Ok((marker, lock))
    }

    /// Takes a lock for an attempt, or says for how long it is another's.
    pub fn acquire(&mut self, now: Now<'_>, name: &str, ask: &Ask, out: &mut Vec<Told>) -> Acquired {
        let (marker, lock) = match self.lock(now, name, out) {
            Ok(found) => found,
            Err(standing) => return Acquired::NotYet(standing),
        };
        let entry = ask.id.entry;
        let free = lock.seat.owner.is_none();
        let reserved = lock.turn.is_some_and(|(turn, until)| turn != entry && until > now.micros);
        if !free || !reserved || ask.up_to > 0 {
            let counted = marker.standing == Standing::Open;
            let floor = ask.floor.max(marker.floor).max(now.micros - KEEP);
            let acquire = Acquire { floor, block: ask.block, up_to: ask.up_to, counted };
            if let Some(owner) = lock.seat.acquire(ask.id, acquire) {
                if free {
                    (lock.ends, lock.session) = (now.micros + ask.ttl * 1000, ask.session.clone());
                    lock.turn = None;
                    marker.top = marker.top.max(lock.seat.counter);
                    marker.longest = marker.longest.max(ask.ttl);
                    out.push(Told::Holder('a', ask.id, owner.x));
                }
                let contended = lock.first_besides(now, Some(entry), out).is_some();
                return Acquired::Granted { x: owner.x, counted: owner.counted, contended };
            }
        }
        let mut before = 0;
        if ask.place > 0 {
            lock.register(now, entry, ask.place, ask.barges, &ask.session, out);
            before = lock.line.iter().position(|slip| slip.entry == entry).unwrap_or(0);
            lock.denied_a_waiter |= !free;
        }
        let until = if free { lock.turn.map_or(0, |(_, until)| until) } else { lock.ends };
        Acquired::Denied { rest: (until - now.micros).div_ceil(1000), before }
    }

    /// The owner will use the block of this token.
    pub fn confirm(
        &mut self,
        now: Now<'_>,
        name: &str,
        id: Attempt,
        token: u64,
        block: u64,
        out: &mut Vec<Told>,
    ) -> bool {
        if self.standing(now) != Standing::Open {
            return false;
        }
        let Ok((marker, lock)) = self.lock(now, name, out) else { return false };
        let confirmed =
            lock.seat.owner.is_some_and(|owner| owner.counted) && lock.seat.confirm(id, token, block);
        if confirmed {
            marker.top = marker.top.max(lock.seat.counter);
            out.push(Told::Holder('a', id, token));
        }
        confirmed
    }

    /// The owner wants to keep the lock (`ttl` 0: for as long as it has it), and uses tokens up to `up_to`.
    pub fn extend(&mut self, now: Now<'_>, name: &str, ask: &Extend, out: &mut Vec<Told>) -> Extended {
        let Ok((marker, lock)) = self.lock(now, name, out) else { return Extended::Wiped };
        let Some(owner) = lock.seat.extend(ask.id, ask.up_to) else {
            return match lock.revoked {
                Some(id) if id == ask.id => Extended::Revoked,
                _ if lock.seat.counter < ask.token => Extended::Wiped,
                _ => Extended::Expired,
            };
        };
        if ask.ttl > 0 {
            lock.ends = now.micros + ask.ttl * 1000;
        }
        marker.top = marker.top.max(lock.seat.counter);
        marker.longest = marker.longest.max(ask.ttl);
        let contended = lock.first_besides(now, Some(ask.id.entry), out).is_some();
        let rest = (lock.ends - now.micros) / 1000;
        let asked = lock.asked == Some(ask.id);
        Extended::Owned { x: owner.x, counted: owner.counted, contended, rest, asked }
    }

    /// An entry gives back, gives up or goes away.
    pub fn release(
        &mut self,
        now: Now<'_>,
        name: &str,
        id: Attempt,
        used: Option<u64>,
        how: Release<'_>,
        out: &mut Vec<Told>,
    ) -> bool {
        let Ok((_, lock)) = self.lock(now, name, out) else { return false };
        let x = lock.seat.owner.map_or(0, |owner| owner.x);
        let owned = how != Release::Forget && lock.seat.release(id, used);
        let kept_one_out = owned && std::mem::take(&mut lock.denied_a_waiter);
        if owned && how == Release::GiveBack {
            out.push(Told::Holder('r', id, x));
        }
        let mut gone = false;
        match how {
            Release::Wait(place, barges, session) => {
                lock.register(now, id.entry, place, barges, session, out)
            }
            Release::Nothing => {}
            _ => {
                let waited = lock.strike(id.entry);
                if waited && how == Release::Leave {
                    out.push(Told::Waiter('l', id.entry));
                }
                let its_turn = lock.turn.is_some_and(|(turn, _)| turn == id.entry);
                gone = how != Release::Forget && (waited || its_turn);
            }
        }
        let called = lock.turn.is_some_and(|(turn, until)| turn != id.entry && until > now.micros);
        if lock.seat.owner.is_some() {
            lock.denied_a_waiter |= gone;
        } else if how == Release::GiveBack || (gone && !called) {
            lock.call_the_next(now, None, out);
        } else if kept_one_out {
            lock.call_the_next(now, Some(id.entry), out);
        }
        owned
    }

    /// Takes a lock away from an attempt.
    pub fn revoke(&mut self, now: Now<'_>, name: &str, id: Attempt, out: &mut Vec<Told>) -> bool {
        let Ok((_, lock)) = self.lock(now, name, out) else { return false };
        let Some(owner) = lock.seat.owner.filter(|owner| owner.id == id) else { return false };
        lock.seat.release(id, None);
        lock.denied_a_waiter = false;
        out.push(Told::Holder('v', id, owner.x));
        lock.revoked = Some(id);
        out.push(Told::Revoked(lock.session.clone(), id));
        lock.call_the_next(now, None, out);
        true
    }

    /// Asks an attempt to give the lock back.
    pub fn request(&mut self, now: Now<'_>, name: &str, id: Attempt, out: &mut Vec<Told>) -> bool {
        let Ok((_, lock)) = self.lock(now, name, out) else { return false };
        let Some(owner) = lock.seat.owner.filter(|owner| owner.id == id) else { return false };
        if lock.asked.replace(id) != Some(id) {
            out.push(Told::Holder('p', id, owner.x));
        }
        out.push(Told::Asked(lock.session.clone(), id));
        true
    }
}

/// What is asked of [`Node::extend`].
#[derive(Debug, Clone)]
pub struct Extend {
    /// The attempt.
    pub id: Attempt,
    /// For how long, in milliseconds; 0 leaves its end as it is.
    pub ttl: u64,
    /// The counter must reach this.
    pub up_to: u64,
    /// The highest token that it was given.
    pub token: u64,
}

impl Lock {
    /// The first of those that wait and live, besides this entry. The dead before it are struck out.
    fn first_besides(&mut self, now: Now<'_>, entry: Option<u64>, out: &mut Vec<Told>) -> Option<usize> {
        let mut at = 0;
        loop {
            let slip = self.line.get(at)?;
            if slip.ends <= now.micros {
                out.push(Told::Waiter('e', slip.entry));
                self.line.remove(at);
            } else if Some(slip.entry) == entry {
                at += 1;
            } else {
                return Some(at);
            }
        }
    }

    fn call_the_next(&mut self, now: Now<'_>, besides: Option<u64>, out: &mut Vec<Told>) {
        self.turn = None;
        if let Some(at) = self.first_besides(now, besides, out) {
            let slip = &mut self.line[at];
            slip.at = behind(now, slip.barges);
            self.turn = Some((slip.entry, now.micros + TURN));
            out.push(Told::Turn(slip.session.clone(), slip.entry));
            self.sort();
        }
    }

    fn register(
        &mut self,
        now: Now<'_>,
        entry: u64,
        place: u64,
        barges: bool,
        session: &str,
        out: &mut Vec<Told>,
    ) {
        let ends = now.micros + place * 1000;
        match self.line.iter_mut().find(|slip| slip.entry == entry) {
            Some(slip) => (slip.ends, slip.barges) = (ends, barges),
            None => {
                let (at, since, session) = (behind(now, barges), now.micros, session.to_owned());
                self.line.push(Slip { at, entry, ends, since, barges, session });
                self.sort();
                out.push(Told::Waiter('q', entry));
            }
        }
    }

    fn strike(&mut self, entry: u64) -> bool {
        let before = self.line.len();
        self.line.retain(|slip| slip.entry != entry);
        before != self.line.len()
    }

    fn sort(&mut self) {
        self.line.sort_by_key(|slip| (slip.at, slip.entry));
    }
}

/// Where an entry that comes now stands in the line.
fn behind(now: Now<'_>, barges: bool) -> u64 {
    if barges { now.micros + BARGE } else { now.micros }
}
