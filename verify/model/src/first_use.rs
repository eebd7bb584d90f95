//! Clients that meet an empty set at the same time, and nodes that are wiped meanwhile.
//!
//! A client looks at the nodes one by one, at any speed, and then founds the set or does what [`tend`] says; its messages arrive
//! late or never, also those of a look that was long ago. A node that was wiped after the set had been opened may only count again if
//! *every* node was wiped: then nobody can know. And if nothing is wiped and nobody is called away in the middle, no node of a
//! new set ends up in quarantine.

use leasehold_redlock::protocol::Quorum;
use leasehold_redlock::protocol::standing::{Known, Report, STUCK, Standing, Step, is_new, tend};

use crate::search::Model;

/// How many nodes there are.
pub const NODES: usize = 3;

/// How many clients there are, each as if it had just started.
pub const CLIENTS: usize = 2;

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// How often each client looks.
    pub looks: [u8; CLIENTS],
    /// How often a node is wiped.
    pub wipes: u8,
    /// Whether half-done work of others can be old enough to be taken back.
    pub stuck: bool,
    /// The rule that is broken.
    pub mutant: Option<Mutant>,
}

/// One rule, broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// All founders use the same number.
    OneNumber,
    /// The founder opens the set though not all have said yes.
    OpenWithoutAll,
    /// The founder opens the others without waiting for the first.
    OpenAllAtOnce,
    /// A node does what it is told, however it stands now.
    Unconditional,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    wipes: u8,
    /// A quorum was open: from here on open nodes have something to forget.
    opened: bool,
    /// After that, no node had a trace of it.
    all_lost: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node {
    standing: u8,
    set: u8,
    /// It was wiped when it had something to forget.
    wiped: bool,
    /// What each client saw of it.
    seen: [Option<(u8, u8)>; CLIENTS],
    /// What each client told it, the last two things.
    mail: [[Option<Job>; 2]; CLIENTS],
    /// What it said to a founder.
    said: [Option<bool>; CLIENTS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Job {
    MakeNew(u8),
    Clear(u8),
    Open(u8),
    Quarantine(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Client {
    looks: u8,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Looking,
    /// It has asked the first node with this number.
    AskedOne(u8),
    /// It has asked the others.
    AskedAll(u8),
    /// All said yes, and it opens the first.
    OpensOne(u8),
}

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum Event {
    Look(u8),
    See(u8),
    Judge(u8),
    GoOn(u8),
    GiveUp(u8),
    Arrives(u8),
    Wipe,
}

const STANDINGS: [Standing; 4] = [Standing::Blank, Standing::New, Standing::Open, Standing::Quarantined];
const BLANK: u8 = 0;
const NEW: u8 = 1;
const OPEN: u8 = 2;
const QUARANTINED: u8 = 3;

impl Model for Setup {
    type State = State;
    type Event = Event;

    fn start(&self) -> State {
        let node = Node {
            standing: BLANK,
            set: 0,
            wiped: false,
            seen: [None; CLIENTS],
            mail: [[None; 2]; CLIENTS],
            said: [None; CLIENTS],
        };
        State {
            nodes: std::array::from_fn(|_| node.clone()),
            clients: self.looks.map(|looks| Client { looks, phase: Phase::Idle }),
            wipes: self.wipes,
            opened: false,
            all_lost: false,
        }
    }

    fn wrong(&self, state: &State) -> Option<String> {
        let forgot = |n: &Node| n.standing == OPEN && n.wiped;
        if state.nodes.iter().any(forgot) && !state.all_lost {
            return Some("a node counts that has forgotten what it promised".to_owned());
        }
        let suspected = state.nodes.iter().any(|n| n.standing == QUARANTINED);
        (self.wipes == 0 && !self.stuck && suspected)
            .then(|| "a node of a new set is in quarantine".to_owned())
    }

    fn next(&self, state: &State, out: &mut Vec<(Event, State)>) {
        let mut add = |event, mut next: State| {
            let open = next.nodes.iter().filter(|n| n.standing == OPEN).count();
            next.opened |= open >= Quorum::of(NODES).need;
            next.all_lost |= next.opened && next.nodes.iter().all(|n| matches!(n.standing, BLANK | NEW));
            // All but the first are alike.
            next.nodes[1..].sort_unstable();
            out.push((event, next));
        };
        for c in 0..CLIENTS {
            self.client(state, c, &mut add);
            for n in 0..NODES {
                for slot in 0..2 {
                    let Some(job) = state.nodes[n].mail[c][slot] else { continue };
                    let mut next = state.clone();
                    next.nodes[n].mail[c][slot] = None;
                    self.perform(&mut next, n, c, job);
                    add(Event::Arrives(c as u8), next);
                }
            }
        }
        for n in 0..NODES {
            if state.wipes > 0 && state.nodes[n].standing != BLANK {
                let mut next = state.clone();
                next.wipes -= 1;
                let node = &mut next.nodes[n];
                node.wiped |= state.opened && node.standing == OPEN;
                (node.standing, node.set) = (BLANK, 0);
                add(Event::Wipe, next);
            }
        }
    }
}

impl Setup {
    /// What a client can do by itself.
    fn client(&self, state: &State, c: usize, add: &mut impl FnMut(Event, State)) {
        let (id, client) = (c as u8, state.clients[c]);
        let becomes = |phase| {
            let mut next = state.clone();
            next.clients[c].phase = phase;
            next
        };
        match client.phase {
            Phase::Idle if client.looks > 0 => {
                let mut next = becomes(Phase::Looking);
                next.clients[c].looks -= 1;
                next.nodes.iter_mut().for_each(|n| (n.seen[c], n.said[c]) = (None, None));
                add(Event::Look(id), next);
            }
            Phase::Idle => {}
            Phase::Looking => {
                for n in 0..NODES {
                    if state.nodes[n].seen[c].is_none() {
                        let mut next = state.clone();
                        next.nodes[n].seen[c] = Some((state.nodes[n].standing, state.nodes[n].set));
                        add(Event::See(id), next);
                    }
                }
                if state.nodes.iter().all(|n| n.seen[c].is_some()) {
                    let mut next = state.clone();
                    self.judge(&mut next, c);
                    add(Event::Judge(id), next);
                }
            }
            Phase::AskedOne(set) => {
                if state.nodes[0].said[c] == Some(true) {
                    let mut next = becomes(Phase::AskedAll(set));
                    next.nodes[1..].iter_mut().for_each(|n| n.tell(c, Job::MakeNew(set)));
                    add(Event::GoOn(id), next);
                }
                self.take_back(state, c, set, add);
            }
            Phase::AskedAll(set) => {
                let all = state.nodes.iter().all(|n| n.said[c] == Some(true));
                if all || self.mutant == Some(Mutant::OpenWithoutAll) {
                    let mut next = becomes(Phase::OpensOne(set));
                    next.nodes.iter_mut().for_each(|n| n.said[c] = None);
                    next.nodes[0].tell(c, Job::Open(set));
                    add(Event::GoOn(id), next);
                }
                self.take_back(state, c, set, add);
            }
            Phase::OpensOne(set) => {
                if state.nodes[0].said[c] == Some(true) || self.mutant == Some(Mutant::OpenAllAtOnce) {
                    let mut next = becomes(Phase::Idle);
                    next.nodes[1..].iter_mut().for_each(|n| n.tell(c, Job::Open(set)));
                    add(Event::GoOn(id), next);
                }
                if self.stuck || state.nodes[0].said[c] == Some(false) {
                    add(Event::GiveUp(id), becomes(Phase::Idle));
                }
            }
        }
    }

    /// One said no, or did not answer.
    fn take_back(&self, state: &State, c: usize, set: u8, add: &mut impl FnMut(Event, State)) {
        if !self.stuck && state.nodes.iter().all(|n| n.said[c] != Some(false)) {
            return;
        }
        let mut next = state.clone();
        next.clients[c].phase = Phase::Idle;
        next.nodes.iter_mut().for_each(|n| n.tell(c, Job::Clear(set)));
        add(Event::GiveUp(c as u8), next);
    }

    fn judge(&self, state: &mut State, c: usize) {
        let age = if self.stuck { STUCK + 1 } else { 0 };
        let reports: [Option<Report>; NODES] = std::array::from_fn(|n| {
            let (standing, set) = state.nodes[n].seen[c].take()?;
            let standing = STANDINGS[usize::from(standing)];
            Some(Report { standing, set: set.into(), since: 0, age, top: 0, longest: 1 << 50 })
        });
        let known = Known { in_use: false, trust_blank: true, longest: 1 << 50 };
        state.clients[c].phase = Phase::Idle;
        if is_new(&reports, known) {
            let looks = self.looks[c] - state.clients[c].looks;
            let set = if self.mutant == Some(Mutant::OneNumber) { 1 } else { c as u8 * 10 + looks };
            state.clients[c].phase = Phase::AskedOne(set);
            state.nodes[0].tell(c, Job::MakeNew(set));
            return;
        }
        for (node, step) in state.nodes.iter_mut().zip(tend(Quorum::of(NODES), &reports, known)) {
            match step {
                Step::Leave | Step::Lift { .. } => {}
                Step::Clear(set) => node.tell(c, Job::Clear(set as u8)),
                Step::Open(set) => node.tell(c, Job::Open(set as u8)),
                Step::Quarantine(set) => node.tell(c, Job::Quarantine(set as u8)),
            }
        }
    }

    /// Only if it still stands as it was seen.
    fn perform(&self, state: &mut State, n: usize, c: usize, job: Job) {
        let client = state.clients[c].phase;
        let node = &mut state.nodes[n];
        let any = self.mutant == Some(Mutant::Unconditional);
        match (job, client) {
            (Job::MakeNew(set), Phase::AskedOne(s) | Phase::AskedAll(s)) if s == set => {
                node.said[c] = Some(node.standing == BLANK);
            }
            (Job::Open(set), Phase::OpensOne(s)) if s == set => {
                // Somebody who helps may have been faster.
                node.said[c] = Some(matches!(node.standing, NEW | OPEN) && node.set == set);
            }
            _ => {}
        }
        let new_with = |set: u8| node.standing == NEW && node.set == set || any;
        (node.standing, node.set) = match job {
            Job::MakeNew(set) if node.standing == BLANK || any => (NEW, set),
            Job::Clear(set) if new_with(set) => (BLANK, 0),
            Job::Open(set) if new_with(set) => (OPEN, set),
            Job::Quarantine(0) if node.standing == BLANK => (QUARANTINED, 0),
            Job::Quarantine(set) if new_with(set) => (QUARANTINED, 0),
            _ => return,
        };
    }
}

impl Node {
    /// A message that does not fit any more is lost.
    fn tell(&mut self, c: usize, job: Job) {
        self.mail[c] = [self.mail[c][1], Some(job)];
    }
}
