//! Nodes that fall and come back, one after the other, in a set of five: no token is forgotten.
//!
//! Grants are whole here, and time has passed whenever it must: what is left is the question whether those that vouch for a
//! node that comes back know every token. With three nodes there is only one way to choose them; five have more.

use leasehold_redlock::protocol::Quorum;
use leasehold_redlock::protocol::standing::{Report, Standing, Step, lift};

use crate::search::Model;

/// How many nodes there are.
pub const NODES: usize = 5;

const QUORUM: Quorum = Quorum::of(NODES);

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// How many grants there are.
    pub grants: u8,
    /// How often a node falls. Never more than two at a time are down or in quarantine.
    pub falls: u8,
    /// The rule that is broken.
    pub mutant: Option<Mutant>,
}

/// One rule, broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Nodes in quarantine vouch too.
    AskAnybody,
    /// One less vouches.
    AskFewer,
    /// Nobody does.
    AskNobody,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The counter of each node, and whether it is in quarantine.
    nodes: [(u8, bool); NODES],
    highest: u8,
    went_back: bool,
    grants: u8,
    falls: u8,
}

/// Something that happens. Sets of nodes are masks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum Event {
    Grant { nodes: u32 },
    Fall { node: usize },
    Lift { node: usize, answering: u32 },
}

impl Model for Setup {
    type State = State;
    type Event = Event;

    fn start(&self) -> State {
        let Setup { grants, falls, .. } = *self;
        State { nodes: [(0, false); NODES], highest: 0, went_back: false, grants, falls }
    }

    fn wrong(&self, state: &State) -> Option<String> {
        state.went_back.then(|| "a token went back".to_owned())
    }

    fn next(&self, state: &State, out: &mut Vec<(Event, State)>) {
        let mut add = |event, mut next: State| {
            next.nodes.sort_unstable();
            out.push((event, next));
        };
        let subsets = || (0..1u32 << NODES).map(|mask| (mask, move |n: usize| mask & 1 << n != 0));
        for (nodes, has) in subsets().filter(|(mask, _)| mask.count_ones() as usize == QUORUM.need) {
            let all_open = (0..NODES).all(|n| !has(n) || !state.nodes[n].1);
            if state.grants > 0 && all_open {
                let mut next = state.clone();
                let token = 1 + (0..NODES).filter(|n| has(*n)).map(|n| state.nodes[n].0).max().unwrap_or(0);
                (0..NODES).filter(|n| has(*n)).for_each(|n| next.nodes[n].0 = token);
                next.went_back = token <= state.highest;
                next.highest = token.max(state.highest);
                next.grants -= 1;
                add(Event::Grant { nodes }, next);
            }
        }
        let fallen = state.nodes.iter().filter(|(_, fallen)| *fallen).count();
        for node in 0..NODES {
            if state.falls > 0 && (fallen < QUORUM.spare() || state.nodes[node].1) {
                let mut next = state.clone();
                next.nodes[node] = (0, true);
                next.falls -= 1;
                add(Event::Fall { node }, next);
            }
            for (answering, has) in subsets().filter(|_| state.nodes[node].1) {
                if let Some(floor) = self.lift(state, node, has) {
                    let mut next = state.clone();
                    next.nodes[node] = (floor, false);
                    add(Event::Lift { node, answering }, next);
                }
            }
        }
    }
}

impl Setup {
    /// From where a node goes on, if those that answer let it.
    fn lift(&self, state: &State, node: usize, answers: impl Fn(usize) -> bool) -> Option<u8> {
        let report = |n: usize| {
            let (top, fallen) = state.nodes[n];
            let vouches = !fallen || (self.mutant == Some(Mutant::AskAnybody) && n != node);
            let standing = if vouches { Standing::Open } else { Standing::Quarantined };
            Report { standing, set: 0, since: 0, age: u64::MAX, top: top.into(), longest: 1 }
        };
        let reports: [Option<Report>; NODES] =
            std::array::from_fn(|n| (n == node || answers(n)).then(|| report(n)));
        let need = match self.mutant {
            Some(Mutant::AskFewer) => QUORUM.need - 1,
            Some(Mutant::AskNobody) => 0,
            _ => QUORUM.need,
        };
        match lift(Quorum { need, ..QUORUM }, &reports, node, 1) {
            Step::Lift { floor, .. } => Some(floor as u8),
            _ => None,
        }
    }
}
