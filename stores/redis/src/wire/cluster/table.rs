//! The nodes that are known, and what each is used for.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::super::channels;
use super::super::context::Context;
use super::super::node::Node;
use super::super::slot::Slot;
use super::super::target::Target;
use super::super::{Post, check::Expected};
use super::map::{NOBODY, Share, owners};
use crate::config::{Address, Server};

/// A node that we know of. It is connected to when it is first used.
pub(super) struct Member {
    pub(super) number: u64,
    pub(super) address: Address,
    node: OnceLock<Arc<Node>>,
}

/// A member that owns slots.
struct Master {
    member: Arc<Member>,
    lowest: Slot,
    tag: Arc<str>,
}

/// Who owns what.
pub(super) struct Table {
    owners: Vec<u16>,
    masters: Vec<Master>,
    /// Nodes that others sent us to, and that the map does not know yet.
    strangers: HashMap<Address, Arc<Member>>,
    next_number: u64,
    /// How to be let in at any node.
    like: Server,
}

impl Member {
    /// The node, if it is used.
    pub(super) fn used(&self) -> Option<&Arc<Node>> {
        self.node.get()
    }
}

impl Table {
    pub(super) fn new(like: Server) -> Self {
        Table { owners: owners(&[]), masters: Vec::new(), strangers: HashMap::new(), next_number: 0, like }
    }

    /// Who owns a slot.
    pub(super) fn owner(&self, slot: Slot) -> Option<&Arc<Member>> {
        self.master(slot).map(|master| &master.member)
    }

    fn master(&self, slot: Slot) -> Option<&Master> {
        let at = *self.owners.get(usize::from(slot.0))?;
        (at != NOBODY).then(|| self.masters.get(usize::from(at))).flatten()
    }

    /// How scripts reach sessions on the node of a slot.
    pub(super) fn post(&self, slot: Slot) -> Option<Post> {
        self.master(slot).map(|master| Post { tag: master.tag.clone(), node: master.member.number })
    }

    /// The lowest slot of each master.
    pub(super) fn lowest(&self) -> Vec<Slot> {
        self.masters.iter().map(|master| master.lowest).collect()
    }

    /// All that are known.
    pub(super) fn everyone(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.members().chain(self.strangers.values())
    }

    /// All that own slots.
    pub(super) fn members(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.masters.iter().map(|master| &master.member)
    }

    /// The one of this number.
    pub(super) fn numbered(&self, number: u64) -> Option<&Arc<Member>> {
        self.everyone().find(|member| member.number == number)
    }

    /// The one at this address, also if nobody knew it.
    pub(super) fn at(&mut self, address: &Address) -> Arc<Member> {
        if let Some(member) = self.find(address) {
            return member;
        }
        let member = self.fresh(address.clone());
        self.strangers.insert(address.clone(), member.clone());
        member
    }

    fn find(&self, address: &Address) -> Option<Arc<Member>> {
        let known = self.members().find(|member| member.address == *address);
        known.or_else(|| self.strangers.get(address)).cloned()
    }

    fn fresh(&mut self, address: Address) -> Arc<Member> {
        self.next_number += 1;
        Arc::new(Member { number: self.next_number, address, node: OnceLock::new() })
    }

    /// Connects to a member, if that is not done yet.
    pub(super) fn start(
        &self,
        member: &Member,
        context: &Arc<Context>,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Node> {
        let node = member.node.get_or_init(|| {
            let server = Arc::new(self.server(&member.address));
            let target = Target::Fixed(server, Expected::ClusterNode);
            // One that owns nothing has no channel yet.
            let tag = self.masters.iter().find(|master| master.member.number == member.number);
            let tag = tag.map_or_else(|| "".into(), |master| master.tag.clone());
            Arc::new(Node::start(member.number, target, tag, context.clone(), changed))
        });
        node.clone()
    }

    /// How to connect to an address.
    pub(super) fn server(&self, address: &Address) -> Server {
        self.like.moved_to(address.clone())
    }

    /// Takes a new map. Tells whether slots have moved, and returns the members that own some which a member in use had
    /// before: who waits there has to be told.
    pub(super) fn replace(&mut self, shares: &[Share]) -> (bool, Vec<Arc<Member>>) {
        let masters: Vec<Master> = shares.iter().map(|share| self.promote(share)).collect();
        let new_owners = owners(shares);
        let mut heirs: Vec<Arc<Member>> = Vec::new();
        let mut moved = false;
        for (old, new) in self.owners.iter().zip(&new_owners) {
            let old = self.masters.get(usize::from(*old)).map(|master| &master.member);
            let new = masters.get(usize::from(*new)).map(|master| &master.member);
            moved |= old.map(|old| old.number) != new.map(|new| new.number);
            if let (Some(old), Some(new)) = (old, new)
                && old.number != new.number
                && old.used().is_some()
                && !heirs.iter().any(|heir| heir.number == new.number)
            {
                heirs.push(new.clone());
            }
        }
        self.owners = new_owners;
        self.masters = masters;
        self.strangers.clear();
        (moved, heirs)
    }

    fn promote(&mut self, share: &Share) -> Master {
        let member = self.find(&share.address).unwrap_or_else(|| self.fresh(share.address.clone()));
        let lowest = share.lowest();
        let old = self.masters.iter().find(|master| master.lowest == lowest);
        let tag = old.map_or_else(|| channels::tag(lowest).into(), |master| master.tag.clone());
        if let Some(node) = member.used() {
            node.set_tag(Arc::clone(&tag));
        }
        Master { member, lowest, tag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(host: &str, ranges: &[(u16, u16)]) -> Share {
        Share { address: Address::tcp(host, 1), ranges: ranges.to_vec() }
    }

    fn table() -> Table {
        Table::new(Server::new(Address::tcp("seed", 1)))
    }

    #[test]
    fn a_node_keeps_its_number_and_gets_a_tag_of_its_lowest_slot() {
        let mut table = table();
        assert!(table.post(Slot(0)).is_none());
        table.replace(&[share("a", &[(0, 99)]), share("b", &[(100, 16383)])]);
        let (a, b) = (table.post(Slot(0)).unwrap(), table.post(Slot(5000)).unwrap());
        assert_eq!(Slot::of(a.tag.as_bytes()), Slot(0));
        assert_eq!(Slot::of(b.tag.as_bytes()), Slot(100));
        assert!(!table.replace(&[share("b", &[(100, 16383)]), share("a", &[(0, 99)])]).0);
        assert!(table.replace(&[share("b", &[(50, 16383)]), share("a", &[(0, 49)])]).0);
        assert_eq!(table.post(Slot(0)).unwrap(), a);
        let moved = table.post(Slot(50)).unwrap();
        assert_eq!((moved.node, Slot::of(moved.tag.as_bytes())), (b.node, Slot(50)));
    }

    #[test]
    fn a_stranger_keeps_its_number_when_the_map_learns_of_it() {
        let mut table = table();
        table.replace(&[share("a", &[(0, 16383)])]);
        let stranger = table.at(&Address::tcp("c", 1));
        assert_eq!(table.at(&Address::tcp("c", 1)).number, stranger.number);
        assert_eq!(table.numbered(stranger.number).map(|member| member.number), Some(stranger.number));
        table.replace(&[share("c", &[(0, 16383)])]);
        assert_eq!(table.post(Slot(1)).unwrap().node, stranger.number);
    }
}
