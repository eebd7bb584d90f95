//! Nodes and attempts on one lock: tokens rise, and two never hold at once.
//!
//! Messages can take any time, overtake each other, or never arrive (nobody has to deliver them). Time is not a number here but
//! an assumption that can be switched on ([`Setup::timed`]): each round of an attempt (its `ACQUIRE`, then each `EXTEND`) has an end,
//! which can come at any moment. After it the attempt can neither decide by that round nor hold by it; and not before it can
//! a node end the lease that a message of that round gave. Without the assumption leases end whenever they like and clients decide
//! as late as they like; then tokens must rise all the same.
//!
//! A quarantine ends when every round that had begun when the node fell has ended: that is what "the longest lease has
//! passed" means here.

use leasehold_redlock::protocol::Quorum;
use leasehold_redlock::protocol::decide::{self, Answer, Extended, Renewal, Verdict};
use leasehold_redlock::protocol::seat::{Acquire, Owner, Seat};
use leasehold_redlock::protocol::standing::{Report, Standing, Step, lift};

use crate::search::Model;

/// How many nodes there are.
pub const NODES: usize = 3;

/// The most attempts.
pub const ATTEMPTS: usize = 3;

/// What is explored.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// How many attempts there are. They begin in their order, and run side by side.
    pub attempts: usize,
    /// The clock of each attempt, as a token.
    pub floors: [u8; ATTEMPTS],
    /// How many rounds each attempt has: one to acquire, and one for each renewal.
    pub rounds: [u8; ATTEMPTS],
    /// Whether renewals ask for more tokens.
    pub more_tokens: bool,
    /// How many tokens a grant reserves.
    pub block: u8,
    /// Whether clocks can be relied on.
    pub timed: bool,
    /// How often a node may lose its data.
    pub restarts: u8,
    /// How many of the last attempt's `ACQUIRE`s arrive twice.
    pub duplicates: u8,
    /// Whether attempts give back what they have. Else it only ever ends.
    pub releases: bool,
    /// The rule that is broken.
    pub mutant: Option<Mutant>,
}

/// One rule of the protocol, broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Half of the nodes are enough.
    SmallQuorum,
    /// A node confirms for anybody.
    ConfirmUnconditionally,
    /// A node confirms, and its counter stays.
    ConfirmWithoutWriteBack,
    /// A node with a higher token counts.
    CountNodesAhead,
    /// A release frees the node, whoever owns it.
    ReleaseAnyOwner,
    /// A release gives tokens back that were used.
    GiveBackUsedTokens,
    /// A node that lost its data counts at once.
    NoQuarantine,
    /// A quarantine ends at any time.
    LiftEarly,
    /// A quarantine ends, and the counter stays where it was.
    LiftWithoutRaise,
    /// Renewals count in quarantine.
    RenewInQuarantine,
    /// What was granted in quarantine counts after it.
    QuarantinedGrantsCountLater,
    /// A renewal counts though the old validity was over when it was answered.
    RenewLate,
    /// The same, and it takes what is free.
    ExtendResurrects,
    /// Grants count after their time.
    DecideLate,
    /// Nodes ahead vouch for more tokens.
    NodesAheadVouch,
}

/// Everything at one moment. What concerns a node is kept with it, so that the order of nodes does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    nodes: [Node; NODES],
    attempts: [Attempt; ATTEMPTS],
    /// All blocks of tokens that were decided on.
    decided: [(u8, u8); DECISIONS],
    restarts: u8,
    duplicates: u8,
    wrong: Option<Wrong>,
}

/// The most blocks of tokens in one history.
const DECISIONS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Wrong {
    TokensTwice,
    TokensGoBack,
    SomebodyHeldInBetween,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Node {
    counter: u8,
    /// The attempt that owns it, its x, whether that counts, and which round its lease is from.
    owner: Option<(u8, u8, bool, u8)>,
    top: u8,
    /// In quarantine, and the rounds that had begun when it fell.
    fallen: Option<[u8; ATTEMPTS]>,
    mail: [Mail; ATTEMPTS],
}

/// What is between an attempt and a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
struct Mail {
    acquire: Letter,
    /// The answer: x, and whether it counts.
    granted: Option<(u8, bool)>,
    /// It is part of the quorum that is being confirmed.
    has: bool,
    confirm: Letter,
    extend: Letter,
    /// The answer: whether it counts, and whether it vouches for tokens. `Some(None)`: not owned.
    extended: Option<Option<(bool, bool)>>,
    plant: Letter,
    release: Letter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
enum Letter {
    #[default]
    None,
    Sent,
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Attempt {
    phase: Phase,
    /// How many rounds have begun, and how many are over.
    began: u8,
    over: u8,
    /// The highest token that was used when it began.
    after: u8,
    /// The token it means to confirm.
    token: u8,
    /// The end of its tokens.
    last: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Phase {
    #[default]
    Idle,
    Asking,
    Confirming,
    /// By this round.
    Held(u8),
    Over,
}

/// Something that happens: mostly to an attempt at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub enum Event {
    Begin(u8),
    Acquire(u8),
    Decide(u8),
    Confirm(u8),
    Confirmed(u8),
    Extend(u8),
    ExtendArrives(u8),
    ExtendComesLate(u8),
    Extended(u8),
    PlantArrives(u8),
    GiveBack(u8),
    Release(u8),
    RoundEnds(u8),
    NodeFalls,
    QuarantineEnds,
}

impl Setup {
    /// So many attempts, with clocks that stand still and can't be relied on, and nothing else.
    pub fn new(attempts: usize) -> Self {
        Setup {
            attempts,
            floors: [0; ATTEMPTS],
            rounds: [1; ATTEMPTS],
            more_tokens: false,
            block: 1,
            timed: false,
            restarts: 0,
            duplicates: 0,
            releases: true,
            mutant: None,
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn quorum(&self) -> Quorum {
        let q = Quorum::of(NODES);
        if self.is(Mutant::SmallQuorum) { Quorum { need: q.need - 1, ..q } } else { q }
    }

    fn block(&self) -> u64 {
        u64::from(self.block)
    }

    /// Whether a round can still be used.
    fn in_time(&self, attempt: &Attempt, round: u8) -> bool {
        !self.timed || attempt.over < round
    }

    fn holds(&self, attempt: &Attempt) -> bool {
        matches!(attempt.phase, Phase::Held(round) if attempt.over < round)
    }
}

impl Node {
    fn seat(&self) -> Seat<u8> {
        let owner = self.owner.map(|(id, x, counted, _)| Owner { id, x: x.into(), counted });
        Seat { counter: self.counter.into(), owner }
    }

    /// Does something to the seat as the store would. A new owner's lease is from this round.
    fn with<T>(&mut self, round: u8, act: impl FnOnce(&mut Seat<u8>) -> T) -> T {
        let mut seat = self.seat();
        let answer = act(&mut seat);
        let lease = |id| match self.owner {
            Some((before, _, _, lease)) if before == id => lease,
            _ => round,
        };
        self.owner = seat.owner.map(|o| (o.id, o.x as u8, o.counted, lease(o.id)));
        self.counter = seat.counter as u8;
        self.top = self.top.max(self.counter);
        answer
    }

    fn open(&self) -> bool {
        self.fallen.is_none()
    }

    /// Another owner's time is over.
    fn make_room(&mut self, id: u8) {
        if self.owner.is_some_and(|(owner, ..)| owner != id) {
            self.with(0, Seat::expire);
        }
    }
}

impl State {
    /// The highest token that was decided on.
    fn highest(&self) -> u8 {
        self.decided[DECISIONS - 1].1
    }

    /// The highest token that is certainly used: the first of the last block.
    fn used(&self) -> u8 {
        self.decided[DECISIONS - 1].0
    }

    /// Notes a decision, and whether it was right.
    fn decide(&mut self, setup: &Setup, a: usize, first: u8, last: u8) {
        if self.decided.iter().any(|(f, l)| first <= *l && *f <= last) {
            self.wrong = Some(Wrong::TokensTwice);
        }
        let highest = if setup.timed { self.highest() } else { self.attempts[a].after };
        if first <= highest {
            self.wrong = Some(Wrong::TokensGoBack);
        }
        assert_eq!(self.decided[0], (0, 0), "more decisions than there is room for");
        self.decided[0] = (first, last);
        self.decided.sort_unstable();
    }

    fn hold(&mut self, setup: &Setup, a: usize, token: u8) {
        let last = token + setup.block - 1;
        self.decide(setup, a, token, last);
        let me = &mut self.attempts[a];
        *me = Attempt { phase: Phase::Held(1), token: 0, after: 0, last, ..*me };
        self.forget_answers(a);
    }

    /// Once a decision is made, what led to it changes nothing.
    fn forget_answers(&mut self, a: usize) {
        for node in &mut self.nodes {
            (node.mail[a].granted, node.mail[a].has) = (None, false);
        }
    }

    /// Of all states that have the same future, one is kept: so there are far fewer.
    fn normal(mut self, setup: &Setup) -> Self {
        for a in 0..ATTEMPTS {
            let over = self.attempts[a].phase == Phase::Over;
            let mut traces = false;
            for node in &mut self.nodes {
                let owns = node.owner.is_some_and(|(owner, ..)| usize::from(owner) == a);
                let mail = &mut node.mail[a];
                let may_own = owns || mail.acquire != Letter::None || mail.plant == Letter::Sent;
                if over {
                    mail.extended = None;
                }
                let trusting = setup.is(Mutant::ConfirmUnconditionally) || setup.is(Mutant::ReleaseAnyOwner);
                if !may_own && !trusting {
                    // Letters from one who owns nothing here, and never will, do nothing.
                    mail.confirm = Letter::None;
                    mail.release = Letter::None;
                    if over {
                        mail.extend = Letter::None;
                    }
                }
                traces |= may_own || node.fallen.is_some();
            }
            if over && !traces && self.restarts == 0 {
                self.attempts[a] = Attempt { phase: Phase::Over, ..Attempt::default() };
            }
        }
        // Nodes are alike: their order does not matter.
        self.nodes.sort_unstable();
        self
    }
}

impl Model for Setup {
    type State = State;
    type Event = Event;

    fn start(&self) -> State {
        State {
            nodes: Default::default(),
            attempts: Default::default(),
            decided: Default::default(),
            restarts: self.restarts,
            duplicates: self.duplicates,
            wrong: None,
        }
    }

    fn wrong(&self, state: &State) -> Option<String> {
        if let Some(wrong) = state.wrong {
            return Some(format!("{wrong:?}"));
        }
        let holding = state.attempts.iter().filter(|a| self.holds(a)).count();
        (self.timed && holding > 1).then(|| "two hold at once".to_owned())
    }

    fn next(&self, state: &State, out: &mut Vec<(Event, State)>) {
        let mut add = |event, next: State| out.push((event, next.normal(self)));
        for a in 0..self.attempts {
            self.client(state, a, &mut add);
            for n in 0..NODES {
                self.delivery(state, a, n, &mut add);
            }
        }
        for n in 0..NODES {
            self.fate(state, n, &mut add);
        }
    }
}

impl Setup {
    /// What an attempt can do by itself.
    fn client(&self, state: &State, a: usize, add: &mut impl FnMut(Event, State)) {
        let id = a as u8;
        let me = &state.attempts[a];
        // Attempts are alike as long as their clocks are: they begin in their order.
        if me.phase == Phase::Idle && state.attempts[..a].iter().all(|other| other.phase != Phase::Idle) {
            let mut next = state.clone();
            let after = state.used();
            next.attempts[a] = Attempt { phase: Phase::Asking, began: 1, after, ..Attempt::default() };
            next.nodes.iter_mut().for_each(|n| n.mail[a].acquire = Letter::Sent);
            add(Event::Begin(id), next);
            return;
        }
        if me.phase == Phase::Idle {
            return;
        }
        if self.timed && me.over < me.began {
            let mut next = state.clone();
            next.attempts[a].over += 1;
            add(Event::RoundEnds(id), next);
        }
        match me.phase {
            Phase::Asking => self.judge_grants(state, a, add),
            Phase::Confirming => self.judge_confirmations(state, a, add),
            Phase::Held(round) => self.renewals(state, a, round, add),
            Phase::Idle | Phase::Over => {}
        }
        if me.phase != Phase::Over && self.releases {
            let mut next = state.clone();
            next.attempts[a] = Attempt { phase: Phase::Over, after: 0, ..*me };
            next.forget_answers(a);
            // It uses the first token of its last block and gives the others back: somebody else may get them.
            if let Some(block) = next.decided.iter_mut().find(|(_, last)| me.last > 0 && *last == me.last) {
                block.1 = block.0;
            }
            next.nodes.iter_mut().for_each(|n| n.mail[a].release = Letter::Sent);
            add(Event::GiveBack(id), next);
        }
    }

    fn judge_grants(&self, state: &State, a: usize, add: &mut impl FnMut(Event, State)) {
        let id = a as u8;
        if !self.in_time(&state.attempts[a], 1) && !self.is(Mutant::DecideLate) {
            return;
        }
        // It has heard from any of those that answered.
        for heard in 1..(1u32 << NODES) {
            let hears = |n: usize| heard & 1 << n != 0;
            if (0..NODES).any(|n| hears(n) && state.nodes[n].mail[a].granted.is_none()) {
                continue;
            }
            let answers: [Answer; NODES] =
                std::array::from_fn(|n| match state.nodes[n].mail[a].granted.filter(|_| hears(n)) {
                    Some((x, true)) => Answer::Granted(x.into()),
                    Some((_, false)) => Answer::Uncounted,
                    None => Answer::Pending,
                });
            let verdict = match decide::acquired(self.quorum(), &answers) {
                // All grants are counted as if they had confirmed, whatever their x is.
                Verdict::Confirm { .. } if self.is(Mutant::CountNodesAhead) => {
                    let lowest = answers.iter().filter_map(|a| match a {
                        Answer::Granted(x) => Some(*x),
                        _ => None,
                    });
                    Verdict::Held(lowest.min().unwrap_or(0))
                }
                verdict => verdict,
            };
            let mut next = state.clone();
            match verdict {
                Verdict::Held(token) => {
                    next.hold(self, a, token as u8);
                    add(Event::Decide(id), next);
                }
                Verdict::Confirm { token, have, ask } => {
                    next.attempts[a].phase = Phase::Confirming;
                    next.attempts[a].token = token as u8;
                    next.forget_answers(a);
                    for (n, node) in next.nodes.iter_mut().enumerate() {
                        node.mail[a].has = have & 1 << n != 0;
                        if ask & 1 << n != 0 {
                            node.mail[a].confirm = Letter::Sent;
                        }
                    }
                    add(Event::Decide(id), next);
                }
                Verdict::Wait | Verdict::Failed => {}
            }
        }
    }

    fn judge_confirmations(&self, state: &State, a: usize, add: &mut impl FnMut(Event, State)) {
        let token = state.attempts[a].token;
        if !self.in_time(&state.attempts[a], 1) && !self.is(Mutant::DecideLate) {
            return;
        }
        let have = (0..NODES).filter(|n| state.nodes[*n].mail[a].has).fold(0, |mask, n| mask | 1 << n);
        if decide::confirmed(self.quorum(), token.into(), have, 0) == Verdict::Held(token.into()) {
            let mut next = state.clone();
            next.hold(self, a, token);
            add(Event::Confirmed(a as u8), next);
        }
    }

    fn renewals(&self, state: &State, a: usize, round: u8, add: &mut impl FnMut(Event, State)) {
        let (id, me) = (a as u8, &state.attempts[a]);
        let valid = self.in_time(me, round);
        if me.began == round && round < self.rounds[a] && valid {
            let mut next = state.clone();
            next.attempts[a].began += 1;
            for node in &mut next.nodes {
                node.mail[a].extend = Letter::Sent;
                node.mail[a].extended = None;
            }
            add(Event::Extend(id), next);
        }
        // It must be answered while the old round lasts, and of course while the new one does.
        let late = !valid && !self.is(Mutant::RenewLate) && !self.is(Mutant::ExtendResurrects);
        if me.began == round || late || !self.in_time(me, round + 1) {
            return;
        }
        let answers: [Extended; NODES] = std::array::from_fn(|n| match state.nodes[n].mail[a].extended {
            Some(Some((counted, vouches))) => Extended::Owned { counted, vouches },
            Some(None) => Extended::Expired,
            None => Extended::Pending,
        });
        if decide::renewed(self.quorum(), &answers, self.more_tokens) == Renewal::Held {
            let mut next = state.clone();
            next.attempts[a].phase = Phase::Held(round + 1);
            if self.timed && state.highest() != me.last {
                next.wrong = Some(Wrong::SomebodyHeldInBetween);
            }
            if self.more_tokens {
                let first = me.last + 1;
                next.attempts[a].last = me.last + self.block;
                next.decide(self, a, first, me.last + self.block);
            }
            for node in &mut next.nodes {
                let mail = &mut node.mail[a];
                // Nobody else can have it while we hold.
                if mail.extended == Some(None) {
                    mail.plant = Letter::Sent;
                }
                mail.extended = None;
            }
            add(Event::Extended(id), next);
        }
    }

    /// Whether the lease of a node's owner may end now.
    fn may_end(&self, state: &State, n: usize) -> bool {
        let over = |owner: u8| state.attempts[usize::from(owner)].over;
        state.nodes[n].owner.is_some_and(|(owner, _, _, lease)| !self.timed || over(owner) >= lease)
    }

    /// Whether this attempt may find a node free, or its own.
    fn may_be_free(&self, state: &State, n: usize, id: u8) -> bool {
        state.nodes[n].owner.is_none_or(|(owner, ..)| owner == id) || self.may_end(state, n)
    }

    /// A message of an attempt arrives at a node.
    fn delivery(&self, state: &State, a: usize, n: usize, add: &mut impl FnMut(Event, State)) {
        let (id, me, mail) = (a as u8, &state.attempts[a], &state.nodes[n].mail[a]);
        // Whoever comes to a seat whose time is over finds it free. Who does not, is as well off as if it never came.
        let free = self.may_be_free(state, n, id);
        let arrives = |act: &dyn Fn(&mut Node)| {
            let mut next = state.clone();
            act(&mut next.nodes[n]);
            next
        };
        let again = mail.acquire == Letter::Read;
        if free && (mail.acquire == Letter::Sent || (again && state.duplicates > 0)) {
            let floor = self.floors[a].into();
            let heard = me.phase == Phase::Asking;
            let take = |believed: bool| {
                let mut next = arrives(&|node| {
                    node.make_room(id);
                    let ask = Acquire { floor, block: self.block(), up_to: 0, counted: node.open() };
                    let granted = node.with(1, |seat| seat.acquire(id, ask));
                    node.mail[a].acquire = if !again && a + 1 == self.attempts && state.duplicates > 0 {
                        Letter::Read
                    } else {
                        Letter::None
                    };
                    if let Some(owner) = granted
                        && heard
                        && believed
                    {
                        let counts =
                            owner.counted || self.is(Mutant::QuarantinedGrantsCountLater) && node.open();
                        node.mail[a].granted = Some((owner.x as u8, counts));
                    }
                });
                next.duplicates -= u8::from(again);
                next
            };
            add(Event::Acquire(id), take(true));
            if again {
                // Two answers are under way, and the first one is heard.
                add(Event::Acquire(id), take(false));
            }
        }
        if mail.confirm == Letter::Sent {
            let next = arrives(&|node| {
                node.mail[a].confirm = Letter::None;
                let counted = node.owner.is_some_and(|(_, _, counted, _)| counted) && node.open();
                let confirmed = self.confirm(node, id, me.token, counted);
                node.mail[a].has = confirmed && me.phase == Phase::Confirming;
            });
            add(Event::Confirm(id), next);
        }
        if mail.extend == Letter::Sent {
            add(Event::ExtendArrives(id), arrives(&|node| self.extend(node, me, id)));
            if self.may_end(state, n) {
                let next = arrives(&|node| {
                    node.with(0, Seat::expire);
                    self.extend(node, me, id);
                });
                add(Event::ExtendComesLate(id), next);
            }
        }
        if mail.plant == Letter::Sent && free {
            let next = arrives(&|node| {
                node.make_room(id);
                node.mail[a].plant = Letter::None;
                let ask = Acquire { floor: 0, block: 1, up_to: me.last.into(), counted: node.open() };
                node.with(me.began, |seat| seat.acquire(id, ask));
            });
            add(Event::PlantArrives(id), next);
        }
        if mail.release == Letter::Sent {
            let next = arrives(&|node| {
                node.mail[a].release = Letter::None;
                // The first token of what it holds last: all tokens before it were used, and none after it.
                let used = (me.last + 1).saturating_sub(self.block);
                let used = if self.is(Mutant::GiveBackUsedTokens) { 0 } else { used };
                let whom = match node.owner {
                    Some((owner, ..)) if self.is(Mutant::ReleaseAnyOwner) => owner,
                    _ => id,
                };
                node.with(0, |seat| {
                    seat.release(whom, Some(used.into()));
                    if self.is(Mutant::GiveBackUsedTokens) {
                        seat.counter = seat.counter.saturating_sub(1);
                    }
                });
            });
            add(Event::Release(id), next);
        }
    }

    fn confirm(&self, node: &mut Node, id: u8, token: u8, counted: bool) -> bool {
        if self.is(Mutant::ConfirmUnconditionally) {
            node.counter = node.counter.max(token + self.block - 1);
            return true;
        }
        if self.is(Mutant::ConfirmWithoutWriteBack) {
            return counted && node.owner.is_some_and(|(owner, x, ..)| owner == id && x <= token);
        }
        counted && node.with(0, |seat| seat.confirm(id, token.into(), self.block()))
    }

    fn extend(&self, node: &mut Node, me: &Attempt, id: u8) {
        let mail = &mut node.mail[usize::from(id)];
        mail.extend = Letter::None;
        let more = if self.more_tokens { self.block } else { 0 };
        let up_to = u64::from(me.last + more);
        if self.is(Mutant::ExtendResurrects) && node.owner.is_none() {
            let ask = Acquire { floor: 0, block: 1, up_to, counted: node.open() };
            node.with(me.began, |seat| seat.acquire(id, ask));
        }
        let owner = node.with(0, |seat| seat.extend(id, up_to));
        let answer = owner.map(|owner| {
            let counted = node.open() || self.is(Mutant::RenewInQuarantine);
            let ahead = owner.x > u64::from(me.last) + 1;
            let vouches = (owner.counted && !ahead) || self.is(Mutant::NodesAheadVouch);
            (counted, vouches)
        });
        if let Some((owner, _, _, lease)) = &mut node.owner
            && *owner == id
        {
            *lease = me.began;
        }
        node.mail[usize::from(id)].extended = Some(answer);
    }

    /// What happens to a node.
    fn fate(&self, state: &State, n: usize, add: &mut impl FnMut(Event, State)) {
        let node = &state.nodes[n];
        if state.restarts > 0 {
            let mut next = state.clone();
            next.restarts -= 1;
            let began = std::array::from_fn(|a| state.attempts[a].began);
            let fallen = if self.is(Mutant::NoQuarantine) { None } else { Some(began) };
            next.nodes[n] = Node { fallen, mail: node.mail, ..Node::default() };
            add(Event::NodeFalls, next);
        }
        if let Some(Step::Lift { floor, .. }) = self.lift(state, n) {
            let mut next = state.clone();
            next.nodes[n].fallen = None;
            if !self.is(Mutant::LiftWithoutRaise) {
                let floor = floor as u8;
                next.nodes[n].counter = node.counter.max(floor);
                next.nodes[n].top = node.top.max(floor);
            }
            add(Event::QuarantineEnds, next);
        }
    }

    fn lift(&self, state: &State, n: usize) -> Option<Step> {
        let began = state.nodes[n].fallen?;
        let all_over = (0..ATTEMPTS).all(|a| state.attempts[a].over >= began[a]);
        // One millisecond is the longest lease, and it has passed or not.
        let age = if all_over || self.is(Mutant::LiftEarly) { u64::MAX } else { 0 };
        let report = |node: &Node| {
            let standing = if node.open() { Standing::Open } else { Standing::Quarantined };
            Some(Report { standing, set: 0, since: 0, age, top: node.top.into(), longest: 1 })
        };
        let reports: [Option<Report>; NODES] = std::array::from_fn(|n| report(&state.nodes[n]));
        // A set that lost its majority goes by the clocks, which is not what is checked here.
        let open = state.nodes.iter().filter(|node| node.open()).count();
        (open >= self.quorum().need).then(|| lift(self.quorum(), &reports, n, 1))
    }
}
