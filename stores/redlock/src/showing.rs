//! What people see of a lock: what a quorum of nodes shows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::view::{EntryView, Snapshot};
use leasehold_core::{EntryId, Error, Kind, Name, Result, Token, Want};

use crate::desk::{Desk, Reason, brief};
use crate::node::{AttemptId, Look, OwnerLook, WaiterLook};
use crate::protocol::Quorum;

/// How many locks are looked at together.
const LOOKS: usize = 64;

impl Desk {
    /// How a lock stands: as soon as the answers that are missing can't change it.
    pub(crate) async fn inspect(&self, name: &Name) -> Result<Snapshot> {
        self.check_open()?;
        Ok(merge(self.quorum, name, &self.looks(name).await?).0)
    }

    async fn looks(&self, name: &Name) -> Result<Vec<Look>> {
        let mut looking: FuturesUnordered<_> =
            self.nodes.iter().map(|node| async move { (node.number, node.look(name).await) }).collect();
        let (mut looks, mut reasons): (Vec<Look>, Vec<Reason>) = (Vec::new(), Vec::new());
        while let Some((node, look)) = looking.next().await {
            match look {
                Ok(look) => looks.push(look),
                Err(e) => reasons.push((node, brief(&e))),
            }
            if looks.len() >= self.quorum.need && settled(self.quorum, &looks, looking.len()) {
                break;
            }
        }
        if looks.len() < self.quorum.need {
            return Err(self.no_quorum(looks.len(), &reasons).on(name));
        }
        Ok(looks)
    }

    /// Takes the lock away from its holder, and tells whom.
    pub(crate) async fn revoke(&self, name: &Name, expected: Option<Token>) -> Result<Snapshot> {
        let (snapshot, holder) = self.holder(name, expected).await?;
        let Some(id) = holder else { return Ok(snapshot) };
        self.quorum_of(name, self.nodes.iter().map(|node| node.revoke(name, id))).await?;
        Ok(snapshot)
    }

    /// Asks the holder to give the lock back, and tells whom. Any node can tell it; the request counts when a quorum has it, for
    /// then it is part of every look and of every renewal that counts.
    pub(crate) async fn request_release(&self, name: &Name, expected: Option<Token>) -> Result<Snapshot> {
        let (mut snapshot, holder) = self.holder(name, expected).await?;
        let Some(id) = holder else { return Ok(snapshot) };
        let owned = self.quorum_of(name, self.nodes.iter().map(|node| node.request(name, id))).await?;
        if owned < self.quorum.need {
            // It went meanwhile.
            snapshot.holders.clear();
        }
        snapshot.holders.iter_mut().for_each(|holder| holder.release_requested = true);
        Ok(snapshot)
    }

    /// How a lock stands, and the attempt that holds it if it is the one with this token. If it is not, no holder is shown.
    async fn holder(&self, name: &Name, expected: Option<Token>) -> Result<(Snapshot, Option<AttemptId>)> {
        self.check_open()?;
        let (snapshot, holder) = merge(self.quorum, name, &self.looks(name).await?);
        let meant = holder.filter(|(_, last)| {
            let first = snapshot.holders[0].token;
            expected.is_none_or(|token| first.is_some_and(|first| token >= first) && token.0 <= *last)
        });
        Ok(match meant {
            Some((id, _)) => (snapshot, Some(id)),
            None => (Snapshot { holders: Vec::new(), ..snapshot }, None),
        })
    }

    /// Waits for the answers of all nodes: how many said yes. An error if fewer than a quorum answered.
    async fn quorum_of(
        &self,
        name: &Name,
        asked: impl Iterator<Item = impl Future<Output = Result<bool>>>,
    ) -> Result<usize> {
        let (mut yes, mut reasons) = (0, Vec::new());
        for (n, answer) in join_all(asked).await.into_iter().enumerate() {
            match answer {
                Ok(said) => yes += usize::from(said),
                Err(e) => reasons.push((n, brief(&e))),
            }
        }
        let answered = self.nodes.len() - reasons.len();
        if answered < self.quorum.need {
            return Err(self.no_quorum(answered, &reasons).on(name));
        }
        Ok(yes)
    }

    /// A page of the names in use, in byte order. Costs a walk over all keys of every node.
    pub(crate) async fn page(
        self: Arc<Self>,
        prefix: String,
        after: Option<Name>,
        most: usize,
    ) -> Result<Vec<Snapshot>> {
        self.check_open()?;
        let walks = join_all(self.nodes.iter().map(|node| node.names(&prefix))).await;
        let (mut names, mut reasons) = (Vec::new(), Vec::new());
        for (n, walk) in walks.into_iter().enumerate() {
            match walk {
                Ok(found) => names.extend(found),
                Err(e) => reasons.push((n, brief(&e))),
            }
        }
        let walked = self.nodes.len() - reasons.len();
        if walked < self.quorum.need {
            return Err(self.no_quorum(walked, &reasons));
        }
        names.retain(|name| {
            name.as_str().starts_with(&prefix) && after.as_ref().is_none_or(|after| name > after)
        });
        names.sort();
        names.dedup();
        let mut page = Vec::new();
        for some in names.chunks(LOOKS) {
            for snapshot in join_all(some.iter().map(|name| self.inspect(name))).await {
                let snapshot = snapshot?;
                if !snapshot.holders.is_empty() || !snapshot.waiters.is_empty() {
                    page.push(snapshot);
                }
            }
            if page.len() >= most {
                break;
            }
        }
        page.truncate(most);
        Ok(page)
    }
}

/// Whether answers that are missing could still change who is shown.
fn settled(quorum: Quorum, looks: &[Look], pending: usize) -> bool {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for look in looks {
        if let Some(owner) = &look.owner {
            *counts.entry(owner.id.to_string()).or_default() += 1;
        }
        for waiter in &look.waiting {
            *counts.entry(waiter.entry.to_string()).or_default() += 1;
        }
    }
    pending == 0 || counts.values().all(|count| *count >= quorum.need || count + pending < quorum.need)
}

/// What a quorum shows; and the holder's attempt with the end of its tokens.
fn merge(quorum: Quorum, name: &Name, looks: &[Look]) -> (Snapshot, Option<(AttemptId, u64)>) {
    let mut owners: BTreeMap<String, Vec<(&OwnerLook, u64)>> = BTreeMap::new();
    let mut waiting: BTreeMap<EntryId, Vec<&WaiterLook>> = BTreeMap::new();
    for look in looks {
        if let Some(owner) = &look.owner {
            owners.entry(owner.id.to_string()).or_default().push((owner, look.counter));
        }
        for waiter in &look.waiting {
            waiting.entry(waiter.entry).or_default().push(waiter);
        }
    }
    let holder = owners.into_values().find(|nodes| nodes.len() >= quorum.need);
    let held = holder.map(|nodes| (view_of_holder(quorum, &nodes), nodes[0].0.id, last_token(&nodes)));
    let mut waiters: Vec<EntryView> = waiting
        .into_values()
        .filter(|nodes| {
            nodes.len() >= quorum.need && held.as_ref().is_none_or(|(_, id, _)| id.entry != nodes[0].entry)
        })
        .map(|nodes| view_of_waiter(quorum, &nodes))
        .collect();
    // The queue in its order, then those that barge.
    waiters.sort_by_key(|w| (w.barges, w.since, w.id));
    for (place, waiter) in waiters.iter_mut().filter(|w| !w.barges).enumerate() {
        waiter.place = u32::try_from(place).ok();
    }
    let (holders, holder) = match held {
        Some((view, id, last)) => (vec![view], Some((id, last))),
        None => (Vec::new(), None),
    };
    (Snapshot { name: name.clone(), holders, waiters, limit: None }, holder)
}

/// A counter may be far behind the highest that some node has: but never behind what this holder reserved.
fn last_token(nodes: &[(&OwnerLook, u64)]) -> u64 {
    nodes.iter().map(|(_, counter)| *counter).max().unwrap_or(0)
}

fn view_of_holder(quorum: Quorum, nodes: &[(&OwnerLook, u64)]) -> EntryView {
    let owner = nodes[0].0;
    let agree = |x: u64| nodes.iter().filter(|(o, _)| o.x == x).count();
    // A quorum has the token; a node that came later may have another.
    let token = nodes.iter().map(|(o, _)| o.x).max_by_key(|x| (agree(*x), std::cmp::Reverse(*x)));
    EntryView {
        id: owner.id.entry,
        session: owner.session,
        label: owner.label.clone(),
        want: Want::Exclusive,
        barges: false,
        since: owner.since,
        held_since: Some(owner.since),
        token: token.map(Token),
        lease_left: Some(until_no_quorum(quorum, nodes.iter().map(|(o, _)| o.rest).collect())),
        place: None,
        release_requested: nodes.iter().any(|(o, _)| o.asked),
    }
}

fn view_of_waiter(quorum: Quorum, nodes: &[&WaiterLook]) -> EntryView {
    let waiter = nodes[0];
    EntryView {
        id: waiter.entry,
        session: waiter.session,
        label: waiter.label.clone(),
        want: Want::Exclusive,
        barges: waiter.barges,
        since: nodes.iter().map(|w| w.since).min().unwrap_or(waiter.since),
        held_since: None,
        token: None,
        lease_left: Some(until_no_quorum(quorum, nodes.iter().map(|w| w.rest).collect())),
        place: None,
        release_requested: false,
    }
}

/// How long a quorum of these lasts.
fn until_no_quorum(quorum: Quorum, mut rests: Vec<Duration>) -> Duration {
    rests.sort_unstable();
    rests.iter().rev().nth(quorum.need - 1).copied().unwrap_or_default()
}

/// Why shared claims are refused.
pub(crate) fn only_exclusive(name: &Name) -> Error {
    let what = "Redlock keeps exclusive locks only: who shares a lock, or how many permits are out, would be counted on each node \
                alone, and two quorums can count differently";
    Error::new(Kind::Refused, what)
        .advice("use redis://, or another store, for read locks and semaphores")
        .on(name)
}
