//! What the users of locks believe to hold, checked at each grant.
//!
//! A belief is a guard that says [`is_held`](leasehold_client::Guard::is_held). It begins when the guard is entered here and
//! ends when it is taken out again, before the guard is released, dropped or downgraded. The checks:
//!
//! - **exclusion**: beliefs of one name that are held at the same moment go together by the rule;
//! - **types**: what a guard's type promises is what the guard says;
//! - **tokens**: a grant has a higher token than every earlier one that it could not have held beside;
//! - **the store**: a belief has an entry among the holders that the store shows, in a mode that is at least as strong;
//! - **reasons**: a loss is reported as a revocation only where one happened;
//! - **answers of tries**: `None` is said only of a name that another claim or guard used meanwhile ([`Usage`]), and to a reader only
//!   if not all of those others were readers.
//!
//! A guard that is lost stays lost, so a look at one guard between two looks at another that is held both times proves that
//! both were held at that moment: a violation is never a false alarm.
//!
//! A forced release is the one case in which a guard may say that it is held and not be: until the store's notification arrives.
//! While one is in play, two beliefs that don't go together are a *dispute*: both users keep their guards, and one of the guards
//! has to turn lost within [`Registry::told_within`]. A guard that existed before a forced release began, and still does when it
//! has succeeded, has to turn lost within the same time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::{Display, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_client::{Client, DowngradeError, Guard, Leadership, MultiGuard, WriteGuard};
use leasehold_core::view::{EntryView, Lost};
use leasehold_core::{Error, Kind, Result, SessionId, Token, Want};
use tokio::time::sleep;

use crate::history::fits;

/// How many lines of the past a violation shows.
const LINES: usize = 40;

/// The beliefs of all users of one store. Clones share them.
#[derive(Clone)]
pub struct Registry {
    state: Arc<Mutex<State>>,
    told_within: Duration,
    start: Instant,
}

#[derive(Default)]
struct State {
    next: u64,
    beliefs: Vec<Belief>,
    /// The highest token that was entered, of each name and mode, and by whom.
    highest: HashMap<(String, &'static str), (Token, String)>,
    revocations: HashMap<String, Revocations>,
    closed: HashSet<SessionId>,
    violations: Vec<String>,
    past: VecDeque<(String, String)>,
    grants: u64,
    uses: HashMap<String, Uses>,
    /// The highest limit that a semaphore may have had; that of its claims if it was never changed.
    limits: HashMap<String, u32>,
    /// How many tries were answered while nothing else used their names.
    undisturbed: u64,
    /// How many tries by readers were answered while only other readers used their names.
    among_readers: u64,
}

struct Belief {
    id: u64,
    who: String,
    session: SessionId,
    name: String,
    /// What the type of the guard promises.
    want: Want,
    owner: Option<u64>,
    hold: Arc<Hold>,
    part: usize,
    /// Other beliefs that one of us has to give up.
    disputed: Vec<u64>,
    /// It was taken away by a forced release, and has to turn lost.
    revoked: bool,
    /// Since when it is disputed or revoked.
    since: Option<Instant>,
}

impl Belief {
    fn guard(&self) -> &Guard {
        &self.hold.guards()[self.part]
    }

    fn is_held(&self) -> bool {
        self.guard().is_held()
    }
}

/// The forced releases of one name.
#[derive(Default)]
struct Revocations {
    /// How many are under way.
    active: usize,
    /// Until when those that are over may still be unknown to a holder.
    until: Option<Instant>,
}

/// Who uses a name.
#[derive(Debug, Default)]
struct Uses {
    /// How many usages are under way.
    active: usize,
    /// How many have begun so far.
    begun: u64,
    /// Whether one has ended that may have left something at the store for a while.
    leaves_traces: bool,
    /// How many usages under way don't only read.
    writing: usize,
    /// How many of those have begun so far.
    writes_begun: u64,
    /// Whether the lock was asked for or taken away: then a reader may be sent away by its own client.
    asked_for: bool,
}

impl Uses {
    /// Whether a reader has to get in, as far as this name is concerned; and a number that stays the same while that is so.
    fn open_to_readers(&self) -> Option<u64> {
        let open = self.writing == 0 && !self.leaves_traces && !self.asked_for;
        open.then_some(self.writes_begun)
    }
}

/// A name that a claim wants.
struct Used {
    name: String,
    reads: bool,
    /// How many usages of it had begun if this one was alone then.
    alone: Option<u64>,
    /// What [`Uses::open_to_readers`] said then, if this one only reads.
    among_readers: Option<u64>,
}

/// One claim and what follows from it, until everything of it is certainly gone from the store: an entry of it may be the reason
/// why a try of another one is busy. Dropping it says that something may be left for a while (a release in the background, a
/// request of a dropped future, a lease that has ended and was not swept); [`nothing_left`](Usage::nothing_left) says the opposite.
#[must_use = "the usage ends when it is dropped"]
pub struct Usage {
    registry: Registry,
    who: String,
    names: Vec<Used>,
}

/// Who holds.
#[derive(Debug, Clone)]
pub struct Who {
    /// In words.
    pub label: String,
    /// The client's session.
    pub session: SessionId,
    /// Holds of one owner go together.
    pub owner: Option<u64>,
}

/// A guard of any sort.
#[derive(Debug)]
pub enum Hold {
    /// Of a mutex, a reader, permits, a stripe.
    Guard(Guard, Want),
    /// Of a writer.
    Write(WriteGuard),
    /// Of a leader.
    Leadership(Leadership),
    /// Of several locks.
    Multi(MultiGuard),
}

impl Hold {
    /// What came of a downgrade: a reader, or what a failed one handed back, with the error.
    pub fn downgraded(result: Result<Guard, DowngradeError>) -> (Hold, Option<Error>) {
        let failed = match result {
            Ok(reader) => return (Hold::Guard(reader, Want::Shared), None),
            Err(failed) => failed,
        };
        let error = failed.error().clone();
        let hold = match failed.into_writer() {
            Ok(writer) => Hold::Write(writer),
            Err(reader) => Hold::Guard(reader, Want::Shared),
        };
        (hold, Some(error))
    }

    /// The guards inside.
    pub fn guards(&self) -> &[Guard] {
        match self {
            Hold::Guard(guard, _) => std::slice::from_ref(guard),
            Hold::Write(guard) => std::slice::from_ref(guard),
            Hold::Leadership(guard) => std::slice::from_ref(guard),
            Hold::Multi(guard) => guard.guards(),
        }
    }

    /// What the type promises.
    fn promised(&self, part: usize) -> Want {
        match self {
            Hold::Guard(_, want) => *want,
            Hold::Write(_) | Hold::Leadership(_) => Want::Exclusive,
            Hold::Multi(guard) => guard.guards()[part].want(),
        }
    }

    /// Releases it and waits no longer than this for the store.
    pub async fn release_within(self, time: Duration) -> Result<()> {
        match self {
            Hold::Guard(guard, _) => guard.release_within(time).await,
            Hold::Write(guard) => guard.release_within(time).await,
            Hold::Leadership(guard) => guard.resign_within(time).await,
            Hold::Multi(guard) => guard.release_within(time).await,
        }
    }

    /// Releases it, by the release of its type.
    pub async fn release(self) -> Result<()> {
        match self {
            Hold::Guard(guard, _) => guard.release().await,
            Hold::Write(guard) => guard.release().await,
            Hold::Leadership(guard) => guard.resign().await,
            Hold::Multi(guard) => guard.release().await,
        }
    }
}

/// A guard that somebody believes to hold. Dropping it ends the belief and drops the guard.
#[must_use = "a belief ends when it is dropped"]
pub struct Stay {
    registry: Registry,
    ids: Vec<u64>,
    session: SessionId,
    since: Instant,
    hold: Option<Arc<Hold>>,
}

/// A forced release that is under way.
pub struct Revocation {
    registry: Registry,
    name: String,
    /// The beliefs from before it began.
    before: Vec<u64>,
}

impl Registry {
    /// Nothing is held. A holder is told of a forced release within `told_within`: by a notification that the store sends at
    /// once, so this is only as long as a machine may stand still, and shorter than the time between two renewals, which would
    /// tell it as well.
    pub fn new(told_within: Duration) -> Self {
        Registry { state: Arc::default(), told_within, start: Instant::now() }
    }

    /// Within which time a holder is told of a forced release.
    pub fn told_within(&self) -> Duration {
        self.told_within
    }

    /// Enters a guard that was got just now.
    pub fn enter(&self, who: &Who, hold: Hold) -> Stay {
        let hold = Arc::new(hold);
        let mut state = self.state();
        let ids = (0..hold.guards().len()).map(|part| self.enter_part(&mut state, who, &hold, part));
        let ids = ids.collect();
        drop(state);
        let registry = self.clone();
        Stay { registry, ids, session: who.session, since: Instant::now(), hold: Some(hold) }
    }

    fn enter_part(&self, state: &mut State, who: &Who, hold: &Arc<Hold>, part: usize) -> u64 {
        let guard = &hold.guards()[part];
        let (name, token, want) = (guard.name().to_owned(), guard.token(), hold.promised(part));
        let held = guard.is_held();
        state.grants += 1;
        let line = format!(
            "{} entered as {want:?} with token {token}{}",
            who.label,
            if held { "" } else { ", lost" }
        );
        self.note(state, &name, line);
        state.next += 1;
        let id = state.next;
        let mut belief = Belief {
            id,
            who: who.label.clone(),
            session: who.session,
            name: name.clone(),
            want,
            owner: who.owner,
            hold: hold.clone(),
            part,
            disputed: Vec::new(),
            revoked: false,
            since: None,
        };
        if held {
            let said = guard.want();
            if said != want && said != Want::Exclusive {
                let wrong = format!("{} has a guard for {want:?} that says {said:?}", who.label);
                self.violation(state, &name, &wrong);
            }
            if state.closed.contains(&who.session) && guard.is_held() {
                self.violation(state, &name, &format!("{} got it after its client was closed", who.label));
            }
            self.check_company(state, &mut belief);
            self.check_token(state, &mut belief, token);
        }
        state.beliefs.push(belief);
        id
    }

    fn check_company(&self, state: &mut State, new: &mut Belief) {
        let company = |other: &Belief| {
            let own = new.owner.is_some() && other.owner == new.owner;
            other.name == new.name && !own && other.is_held()
        };
        let (mut others, mut ids): (Vec<(String, Want)>, Vec<u64>) = (Vec::new(), Vec::new());
        for other in state.beliefs.iter().filter(|other| company(other)) {
            others.push((other.who.clone(), other.want));
            // Readers beside a reader are no rivals, whoever else is there.
            if (other.want, new.want) != (Want::Shared, Want::Shared) {
                ids.push(other.id);
            }
        }
        let together = others.iter().map(|(_, want)| *want).chain([new.want]);
        let together: Vec<Want> = together.map(|want| state.by_limit(&new.name, want)).collect();
        // Held before the others were looked at, and still: so it was held at those moments.
        if fits(&together) || ids.is_empty() || !new.is_held() {
            return;
        }
        if state.in_play(&new.name) {
            let since = Some(Instant::now());
            for other in state.beliefs.iter_mut().filter(|other| ids.contains(&other.id)) {
                other.disputed.push(new.id);
                other.since = other.since.or(since);
            }
            (new.disputed, new.since) = (ids, since);
        } else {
            let wrong =
                format!("{} got it as {:?} while these held it as well: {others:?}", new.who, new.want);
            self.violation(state, &new.name, &wrong);
        }
    }

    fn check_token(&self, state: &mut State, new: &mut Belief, token: Token) {
        let against: &[&str] = match new.want {
            Want::Exclusive => &["exclusive", "shared", "permits"],
            Want::Shared => &["exclusive", "permits"],
            Want::Permits { .. } => &["exclusive", "shared"],
        };
        let before = against.iter().filter_map(|mode| state.highest.get(&(new.name.clone(), *mode)));
        // A re-entry and a downgrade keep their token.
        let wrong = before.filter(|(highest, who)| *highest > token || *highest == token && *who != new.who);
        if let Some((highest, who)) = wrong.max().cloned() {
            if !new.is_held() {
                return;
            }
            if state.in_play(&new.name) {
                // It was revoked before it got here, and the next holder was quicker.
                new.revoked = true;
                new.since = new.since.or(Some(Instant::now()));
                return;
            }
            let wrong = format!("{} got token {token}, which is not above {highest} of {who}", new.who);
            self.violation(state, &new.name, &wrong);
        }
        let this = (token, new.who.clone());
        let highest = state.highest.entry((new.name.clone(), new.want.as_str())).or_insert(this.clone());
        if token > highest.0 {
            *highest = this;
        }
    }

    /// A claim begins that wants all of these names, each to read or not only so.
    pub fn usage(&self, who: &Who, names: impl IntoIterator<Item = (String, bool)>) -> Usage {
        let mut state = self.state();
        let begin = |(name, reads): (String, bool)| {
            let uses = state.uses.entry(name.clone()).or_default();
            let alone = uses.active == 0 && !uses.leaves_traces;
            uses.active += 1;
            uses.begun += 1;
            if !reads {
                uses.writing += 1;
                uses.writes_begun += 1;
            }
            let among_readers = if reads { uses.open_to_readers() } else { None };
            Used { name, reads, alone: alone.then_some(uses.begun), among_readers }
        };
        let names = names.into_iter().map(begin).collect();
        Usage { registry: self.clone(), who: who.label.clone(), names }
    }

    /// Whether something may be left of a usage of this name that has ended, or the lock was asked for.
    pub fn has_traces(&self, name: &str) -> bool {
        self.state().uses.get(name).is_some_and(|uses| uses.leaves_traces || uses.asked_for)
    }

    /// The holders of this name are asked for it, or it is taken from them.
    pub fn asked_for(&self, name: &str) {
        self.state().uses.entry(name.to_owned()).or_default().asked_for = true;
    }

    /// How many tries by readers were answered while only other readers used their names: each had to get in.
    pub fn among_readers(&self) -> u64 {
        self.state().among_readers
    }

    /// How many tries were answered while nothing else used their names: each had to get in.
    pub fn undisturbed(&self) -> u64 {
        self.state().undisturbed
    }

    /// From now on a semaphore may have this limit.
    pub fn limit_may_be(&self, name: &str, limit: u32) {
        let mut state = self.state();
        let highest = state.limits.entry(name.to_owned()).or_default();
        *highest = limit.max(*highest);
    }

    /// A forced release of this name begins. What is given to [`Revocation::done`] says how it ended; if it was dropped
    /// midway or failed, it may have happened or happen later, and dropping the revocation says so.
    pub fn revocation(&self, name: &str) -> Revocation {
        let mut state = self.state();
        self.note(&mut state, name, "a forced release begins".to_owned());
        state.uses.entry(name.to_owned()).or_default().asked_for = true;
        state.revocations.entry(name.to_owned()).or_default().active += 1;
        let before = state.beliefs.iter().filter(|belief| belief.name == name).map(|belief| belief.id);
        Revocation { registry: self.clone(), name: name.to_owned(), before: before.collect() }
    }

    /// A guard was told why it is lost.
    pub fn lost(&self, name: &str, who: impl Display, why: Lost) {
        let mut state = self.state();
        let wrong = match why {
            Lost::Revoked => !state.revocations.contains_key(name),
            Lost::Wiped => true,
            _ => false,
        };
        if wrong {
            self.violation(&mut state, name, &format!("{who} was told that it is {why}, which it was not"));
        }
    }

    /// A release said how it went.
    pub fn released(&self, who: impl Display, result: &Result<()>) {
        if let Err(error) = result
            && error.kind() == Kind::Lost
            && error.to_string().contains(Lost::Revoked.as_str())
        {
            // With the client's namespace.
            let name = error.name().map_or("", |name| name.as_str());
            let known = self.state().revocations.keys().find(|known| name.ends_with(*known)).cloned();
            self.lost(known.as_deref().unwrap_or(name), who, Lost::Revoked);
        }
    }

    /// Something that helps to understand what follows.
    pub fn say(&self, name: &str, line: impl Display) {
        self.note(&mut self.state(), name, line.to_string());
    }

    /// Something is wrong.
    pub fn wrong(&self, name: &str, what: impl Display) {
        self.violation(&mut self.state(), name, &what.to_string());
    }

    /// How many guards were entered.
    pub fn grants(&self) -> u64 {
        self.state().grants
    }

    /// What was wrong so far.
    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// A session is closed: none of its guards is held any more, and none ever will be.
    pub fn closed(&self, session: SessionId) {
        let mut state = self.state();
        state.closed.insert(session);
        let held = |belief: &&Belief| belief.session == session && belief.is_held();
        let held: Vec<_> = state
            .beliefs
            .iter()
            .filter(held)
            .map(|belief| (belief.name.clone(), belief.who.clone()))
            .collect();
        for (name, who) in held {
            let wrong = format!("{who} says that it holds it, and its client is closed");
            self.violation(&mut state, &name, &wrong);
        }
    }

    fn note(&self, state: &mut State, name: &str, line: String) {
        let line = format!("{:>10.6} {line}", self.start.elapsed().as_secs_f64());
        state.past.push_back((name.to_owned(), line));
        if state.past.len() > 50 * LINES {
            state.past.pop_front();
        }
    }

    fn violation(&self, state: &mut State, name: &str, wrong: &str) {
        self.note(state, name, format!("WRONG: {wrong}"));
        let lines: Vec<&str> =
            state.past.iter().filter(|(of, _)| of == name).map(|(_, line)| line.as_str()).collect();
        let mut text = format!("{name:?}: {wrong}; what led there:\n");
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            let _ = writeln!(text, "    {line}");
        }
        state.violations.push(text);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a holder of this name may have lost it to a forced release that it was not told of yet.
    fn in_play(&self, name: &str) -> bool {
        let now = Instant::now();
        self.revocations
            .get(name)
            .is_some_and(|these| these.active > 0 || these.until.is_some_and(|until| now < until))
    }

    /// What a claim wants, by the highest limit that its semaphore may have.
    fn by_limit(&self, name: &str, want: Want) -> Want {
        match (want, self.limits.get(name)) {
            (Want::Permits { n, of }, Some(limit)) => Want::Permits { n, of: of.max(*limit) },
            (want, _) => want,
        }
    }

    fn find(&self, id: u64) -> Option<&Belief> {
        self.beliefs.iter().find(|belief| belief.id == id)
    }

    /// Whether a belief that was revoked or disputed stands against what happened, and since when.
    fn doubt(&self, id: u64) -> Option<(Instant, String)> {
        let belief = self.find(id)?;
        let since = belief.since?;
        if !belief.is_held() {
            return None;
        }
        let rivals = belief.disputed.iter().filter_map(|id| self.find(*id)).filter(|rival| rival.is_held());
        let rivals: Vec<&Belief> = rivals.collect();
        let together = rivals.iter().map(|rival| rival.want).chain([belief.want]);
        let together: Vec<Want> = together.map(|want| self.by_limit(&belief.name, want)).collect();
        if !fits(&together) && belief.is_held() {
            let rivals: Vec<&str> = rivals.iter().map(|rival| rival.who.as_str()).collect();
            return Some((since, format!("{} and {rivals:?} all say that they hold it", belief.who)));
        }
        belief.revoked.then(|| (since, format!("{} was revoked and says that it holds it", belief.who)))
    }
}

impl Usage {
    /// A try, or a claim with a limit, was answered: with a guard, or with `None`, which is true only if another one had or wanted
    /// one of the names in the meantime.
    pub fn answered(&self, got_in: bool) {
        let mut state = self.registry.state();
        let uses = |used: &Used| state.uses.get(&used.name);
        let alone =
            |used: &Used| used.alone.is_some_and(|begun| uses(used).is_some_and(|u| u.begun == begun));
        let among_readers = |used: &Used| {
            used.among_readers.is_some() && uses(used).and_then(Uses::open_to_readers) == used.among_readers
        };
        let why = if self.names.iter().all(alone) {
            state.undisturbed += 1;
            "nothing else used it"
        } else if self.names.iter().all(among_readers) {
            state.among_readers += 1;
            "only other readers used it"
        } else {
            return;
        };
        if !got_in {
            let wrong = format!("{} was told that it is busy, and {why}", self.who);
            self.registry.violation(&mut state, &self.names[0].name, &wrong);
        }
    }

    /// Nothing of it is left at the store, nor on its way there.
    pub fn nothing_left(mut self) {
        let names = std::mem::take(&mut self.names);
        self.end(names, false);
    }

    fn end(&self, names: Vec<Used>, leaves_traces: bool) {
        let mut state = self.registry.state();
        for Used { name, reads, .. } in names {
            let uses = state.uses.entry(name).or_default();
            uses.active -= 1;
            uses.writing -= usize::from(!reads);
            uses.leaves_traces |= leaves_traces;
        }
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        let names = std::mem::take(&mut self.names);
        self.end(names, true);
    }
}

impl Revocation {
    /// The forced release succeeded: of all holders, or of the one with this token.
    pub fn done(self, expected: Option<Token>) {
        let mut state = self.registry.state();
        let (now, before) = (Instant::now(), &self.before);
        for belief in state.beliefs.iter_mut().filter(|belief| before.contains(&belief.id)) {
            if expected.is_none_or(|token| belief.guard().token() == token) {
                belief.revoked = true;
                belief.since = belief.since.or(Some(now));
            }
        }
    }
}

impl Drop for Revocation {
    fn drop(&mut self) {
        let until = Instant::now() + self.registry.told_within;
        let mut state = self.registry.state();
        self.registry.note(&mut state, &self.name, "a forced release ends".to_owned());
        let these = state.revocations.entry(self.name.clone()).or_default();
        these.active -= 1;
        these.until = these.until.max(Some(until));
    }
}

impl Stay {
    /// The guard.
    pub fn hold(&self) -> &Hold {
        self.hold.as_ref().expect("it is taken only when the stay ends")
    }

    /// Whether all of it is held.
    pub fn is_held(&self) -> bool {
        self.hold().guards().iter().all(Guard::is_held)
    }

    /// Compares what is believed with what the store shows.
    pub async fn compare(&self, observer: &Client) -> Result<(), Error> {
        for (part, guard) in self.hold().guards().iter().enumerate() {
            let want = self.hold().promised(part);
            loop {
                let shown = observer.inspect(guard.name()).await?;
                let ours = |entry: &&EntryView| entry.session == self.session;
                let entry = |entry: &EntryView| entry.want == want || entry.want == Want::Exclusive;
                if !guard.is_held() || shown.holders.iter().filter(ours).any(entry) {
                    break;
                }
                let in_play = self.registry.state().in_play(guard.name());
                if !in_play {
                    // Held since before the look, and still: the store must have shown it.
                    let token = guard.token();
                    let wrong = format!(
                        "a guard for {want:?} with token {token} is held, and the store shows {shown:#?}"
                    );
                    self.registry.wrong(guard.name(), wrong);
                    break;
                }
                sleep(Duration::from_millis(5)).await;
            }
        }
        Ok(())
    }

    /// Ends the belief and gives the guard back to be released. What is in doubt after a forced release is kept until it is
    /// settled.
    pub async fn leave(mut self) -> Hold {
        for id in self.ids.clone() {
            loop {
                let doubt = self.registry.state().doubt(id);
                let Some((since, what)) = doubt else { break };
                if since.elapsed() > self.registry.told_within {
                    let name = self.registry.state().find(id).map(|belief| belief.name.clone());
                    let name = name.unwrap_or_default();
                    self.registry
                        .wrong(&name, format!("{what}, {:?} after a forced release", since.elapsed()));
                    break;
                }
                sleep(Duration::from_millis(2)).await;
            }
        }
        let hold = self.hold.take().expect("it is taken only when the stay ends");
        self.forget();
        Arc::into_inner(hold).expect("the registry has forgotten it")
    }

    /// How long ago it was got.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    fn forget(&self) {
        let mut state = self.registry.state();
        for id in &self.ids {
            if let Some(at) = state.beliefs.iter().position(|belief| belief.id == *id) {
                let gone = state.beliefs.swap_remove(at);
                self.registry.note(&mut state, &gone.name, format!("{} leaves", gone.who));
            }
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        if self.hold.is_some() {
            self.forget();
        }
    }
}
