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

/// Which nodes have told which events.
#[derive(Default)]
pub(crate) struct Ballots(Mutex<Urn>);

#[derive(Default)]
struct Urn {
    votes: HashMap<String, Votes>,
    order: VecDeque<String>,
}

#[derive(Default)]
struct Votes {
    /// Each node and the token that it named.
    told: Vec<(usize, u64)>,
    done: bool,
}

impl Ballots {
    /// A node tells an event. The token, once a quorum has told it: for a grant, once a quorum has told the same token.
    fn vote(&self, quorum: Quorum, node: usize, key: String, token: u64, same_token: bool) -> Option<u64> {
        let mut all = lock(&self.0);
        if !all.votes.contains_key(&key) {
            if all.order.len() >= REMEMBERED
                && let Some(oldest) = all.order.pop_front()
            {
                all.votes.remove(&oldest);
            }
            all.order.push_back(key.clone());
        }
        let votes = all.votes.entry(key).or_default();
        votes.told.retain(|(n, _)| *n != node);
        votes.told.push((node, token));
        let agree = |token: u64| votes.told.iter().filter(|(_, t)| *t == token).count();
        let enough = if same_token { agree(token) } else { votes.told.len() } >= quorum.need;
        if votes.done || !enough {
            return None;
        }
        votes.done = true;
        votes.told.iter().map(|(_, t)| *t).max_by_key(|t| agree(*t))
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
        let happened = match what {
            "q" => Happened::Queued,
            "a" => Happened::Acquired,
            "r" => Happened::Released,
            "l" => Happened::Left,
            "v" => Happened::Lost(Lost::Revoked),
            "e" => Happened::Expired,
            "p" => Happened::ReleaseRequested,
            _ => return,
        };
        if let Some(token) = self.ballots.vote(self.quorum, node, format!("{what}{id}"), token, what == "a") {
            let token = (token > 0).then_some(Token(token));
            let (label, want) = (Label::new(label), Want::Exclusive);
            self.watchers.publish(&Event { at, name, what: happened, label, session, want, token });
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

    #[test]
    fn an_event_is_told_once_when_a_quorum_has_told_it() {
        let (ballots, quorum) = (Ballots::default(), Quorum::of(3));
        let vote = |node, token, same| ballots.vote(quorum, node, format!("k{same}"), token, same);
        assert_eq!(vote(0, 7, false), None);
        assert_eq!(vote(0, 7, false), None);
        assert!(vote(2, 9, false).is_some());
        assert_eq!(vote(1, 7, false), None);
        // A grant counts with one token: nodes that confirm it tell it again.
        assert_eq!(vote(0, 7, true), None);
        assert_eq!(vote(1, 9, true), None);
        assert_eq!(vote(0, 9, true), Some(9));
    }
}
