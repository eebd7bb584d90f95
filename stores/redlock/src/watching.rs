//! Watching: nodes tell what happens to them while somebody watches, and what a quorum told has happened.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::view::{Event, Events, Happened, Lost};
use leasehold_core::{Label, Name, Result, SessionId, Token, Want};

use crate::desk::{Desk, brief};
use crate::protocol::Quorum;
use crate::state::lock;

/// For how long a node goes on telling without being asked again.
const FLAG: Duration = Duration::from_secs(15);

/// How many events are remembered, told or not, to tell each once.
const REMEMBERED: usize = 4096;

/// The letter of a grant.
const GRANT: char = 'a';

/// Which nodes have told which events.
#[derive(Default)]
pub(crate) struct Ballots(Mutex<Urn>);

#[derive(Default)]
struct Urn {
    votes: HashMap<Ballot, Votes>,
    order: VecDeque<Ballot>,
    /// Ends of holds that too few nodes have told so far.
    ends: Vec<Ballot>,
}

/// What is voted on: a letter for what happened, and the attempt or the entry that it happened to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Ballot {
    what: char,
    who: String,
}

struct Votes {
    /// Each node and the token that it named.
    told: Vec<(usize, u64)>,
    done: bool,
    event: Event,
}

impl Votes {
    fn agree(&self, token: u64) -> usize {
        self.told.iter().filter(|(_, t)| *t == token).count()
    }

    /// What is told of it, once.
    fn count(&mut self) -> Event {
        self.done = true;
        let token = self.told.iter().map(|(_, t)| *t).max_by_key(|t| self.agree(*t));
        Event { token: token.filter(|t| *t > 0).map(Token), ..self.event.clone() }
    }
}

impl Ballots {
    /// A node tells an event. What has happened now: that event, once a quorum has told it; for a grant, once a quorum has told the
    /// same token.
    ///
    /// Leases end at each node by that node's clock, and a node tells it when somebody comes. So the next grant can be known to
    /// a quorum before the end of the hold before it is; then that end is told too, first, if any node has told it.
    fn vote(&self, quorum: Quorum, node: usize, ballot: Ballot, event: Event) -> Vec<Event> {
        let mut all = lock(&self.0);
        let all = &mut *all;
        let (token, name) = (event.token.map_or(0, |token| token.0), event.name.clone());
        if !all.votes.contains_key(&ballot) {
            if all.order.len() >= REMEMBERED
                && let Some(oldest) = all.order.pop_front()
            {
                all.votes.remove(&oldest);
                all.ends.retain(|end| *end != oldest);
            }
            all.order.push_back(ballot.clone());
            // Who only waits has no token: it can be gone at one node and wait at the others.
            if ballot.ends_a_hold() && token > 0 {
                all.ends.push(ballot.clone());
            }
        }
        let votes =
            all.votes.entry(ballot.clone()).or_insert_with(|| Votes { told: Vec::new(), done: false, event });
        votes.told.retain(|(n, _)| *n != node);
        votes.told.push((node, token));
        let same = if ballot.what == GRANT { votes.agree(token) } else { votes.told.len() };
        if votes.done || same < quorum.need {
            return Vec::new();
        }
        let told = votes.count();
        let mut now = Vec::new();
        all.ends.retain(|end| {
            let Some(votes) = all.votes.get_mut(end).filter(|votes| !votes.done) else { return false };
            let over = ballot.what == GRANT && votes.event.name == name && end.who != ballot.who;
            if over {
                now.push(votes.count());
            }
            !over
        });
        now.push(told);
        now
    }
}

impl Ballot {
    fn ends_a_hold(&self) -> bool {
        matches!(self.what, 'r' | 'v' | 'e')
    }
}

impl Desk {
    /// A node tells an event: see `event` in `lock.lua`.
    pub(crate) fn event_told(&self, node: usize, payload: &[u8]) {
        let Ok(text) = std::str::from_utf8(payload) else { return };
        let parts: Vec<&str> = text.splitn(7, '\n').collect();
        let [what, at, id, token, session, label, name] = parts[..] else { return };
        let (Ok(at), Ok(token), Ok(name)) = (at.parse(), token.parse::<u64>(), Name::new(name)) else {
            return;
        };
        let Ok(session) = session.parse::<SessionId>() else { return };
        let Ok(letter) = what.parse::<char>() else { return };
        let what = match letter {
            'q' => Happened::Queued,
            GRANT => Happened::Acquired,
            'r' => Happened::Released,
            'l' => Happened::Left,
            'v' => Happened::Lost(Lost::Revoked),
            'e' => Happened::Expired,
            'p' => Happened::ReleaseRequested,
            _ => return,
        };
        let (label, want, token) = (Label::new(label), Want::Exclusive, (token > 0).then_some(Token(token)));
        let event = Event { at, name, what, label, session, want, token };
        for event in self.ballots.vote(self.quorum, node, Ballot { what: letter, who: id.to_owned() }, event)
        {
            self.watchers.publish(&event);
        }
    }

    /// Events from now on: when this returns, a quorum tells them.
    pub(crate) async fn begin_watching(self: Arc<Self>, prefix: String) -> Result<Events> {
        self.check_open()?;
        let mut on = self.watching.lock().await;
        let events = self.watchers.watch(prefix);
        if !*on {
            self.ask_for_events().await?;
            *on = true;
            tokio::spawn(keep_watching(Arc::downgrade(&self)));
        }
        drop(on);
        Ok(events)
    }

    async fn ask_for_events(&self) -> Result<()> {
        let flag = FLAG.as_millis() as u64;
        let asked = join_all(self.nodes.iter().map(async |node| {
            node.watch_events(true).await?;
            node.stand("watch", &[flag]).await
        }));
        let mut reasons = Vec::new();
        for (n, answer) in asked.await.into_iter().enumerate() {
            if let Err(e) = answer {
                reasons.push((n, brief(&e)));
            }
        }
        let told = self.nodes.len() - reasons.len();
        if told < self.quorum.need { Err(self.no_quorum(told, &reasons)) } else { Ok(()) }
    }
}

/// Asks again and again while somebody watches. After the last one it ends by itself: other sessions may watch.
async fn keep_watching(desk: Weak<Desk>) {
    loop {
        tokio::time::sleep(FLAG / 5).await;
        let Some(desk) = desk.upgrade() else { return };
        let mut on = desk.watching.lock().await;
        if !desk.watchers.any() {
            *on = false;
            join_all(desk.nodes.iter().map(|node| node.watch_events(false))).await;
            return;
        }
        if let Err(error) = desk.ask_for_events().await {
            desk.watchers.interrupted(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "x";

    fn event(what: Happened, token: u64) -> Event {
        Event {
            at: 1,
            name: Name::new(NAME).unwrap(),
            what,
            label: Label::new("somebody"),
            session: SessionId::random().unwrap(),
            want: Want::Exclusive,
            token: (token > 0).then_some(Token(token)),
        }
    }

    /// The tokens of what has happened, with the letters of it.
    fn vote(ballots: &Ballots, node: usize, what: char, who: &str, token: u64) -> Vec<(Happened, u64)> {
        let happened = match what {
            GRANT => Happened::Acquired,
            'r' => Happened::Released,
            _ => Happened::Expired,
        };
        let told =
            ballots.vote(Quorum::of(3), node, Ballot { what, who: who.to_owned() }, event(happened, token));
        told.into_iter().map(|event| (event.what, event.token.map_or(0, |token| token.0))).collect()
    }

    #[test]
    fn an_event_is_told_once_when_a_quorum_has_told_it() {
        let ballots = Ballots::default();
        assert_eq!(vote(&ballots, 0, 'r', "a.1", 7), []);
        assert_eq!(vote(&ballots, 0, 'r', "a.1", 7), []);
        // Its nodes need not agree on the token.
        assert_eq!(vote(&ballots, 2, 'r', "a.1", 9).len(), 1);
        assert_eq!(vote(&ballots, 1, 'r', "a.1", 7), []);
    }

    #[test]
    fn a_grant_counts_with_one_token() {
        let ballots = Ballots::default();
        assert_eq!(vote(&ballots, 0, GRANT, "a.1", 7), []);
        assert_eq!(vote(&ballots, 1, GRANT, "a.1", 9), []);
        // Nodes that confirm it tell it again.
        assert_eq!(vote(&ballots, 0, GRANT, "a.1", 9), [(Happened::Acquired, 9)]);
    }

    #[test]
    fn a_grant_tells_the_end_of_the_hold_before_it() {
        let ballots = Ballots::default();
        assert_eq!(vote(&ballots, 0, 'e', "a.1", 7), []);
        assert_eq!(vote(&ballots, 0, GRANT, "b.1", 8), []);
        // The third node, where the lease of the first one has not ended yet, is not needed.
        let told = [(Happened::Expired, 7), (Happened::Acquired, 8)];
        assert_eq!(vote(&ballots, 2, GRANT, "b.1", 8), told);
        assert_eq!(vote(&ballots, 1, 'e', "a.1", 7), [], "it was told before");
    }

    #[test]
    fn a_grant_says_nothing_of_those_that_wait_nor_of_its_own_end() {
        let ballots = Ballots::default();
        assert_eq!(vote(&ballots, 0, 'e', "c", 0), []);
        assert_eq!(vote(&ballots, 0, 'e', "b.1", 8), []);
        assert_eq!(vote(&ballots, 0, GRANT, "b.1", 8), []);
        assert_eq!(vote(&ballots, 1, GRANT, "b.1", 8), [(Happened::Acquired, 8)]);
        assert_eq!(vote(&ballots, 1, 'e', "b.1", 8), [(Happened::Expired, 8)]);
    }
}
