//! What a node of a cluster says of all of them.

use leasehold_core::Result;

use super::collect::Ask;
use super::fields::{Fields, text};
use crate::wire::Slot;

/// A cluster, as one of its nodes sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// `ok`, or not.
    pub(crate) state: Option<String>,
    /// How many slots are served.
    pub(crate) served: Option<u64>,
    pub(crate) members: Vec<Member>,
}

/// One node of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) address: String,
    /// The node that was asked.
    pub(crate) is_asked: bool,
    /// The others take it for dead.
    pub(crate) failed: bool,
    /// Whose replica it is.
    pub(crate) replica_of: Option<String>,
    /// The first and last of each range of slots that it serves.
    pub(crate) slots: Vec<(u16, u16)>,
}

impl View {
    /// The masters that serve something.
    pub(crate) fn masters(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.replica_of.is_none() && !member.slots.is_empty())
    }

    /// Where the node is that was asked.
    pub(crate) fn asked(&self) -> Option<&str> {
        self.members.iter().find(|member| member.is_asked).map(|member| member.address.as_str())
    }

    /// Where the owner of a slot is.
    pub(crate) fn owner(&self, slot: Slot) -> Option<&str> {
        let owns =
            |member: &&Member| member.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot.0));
        self.members.iter().find(owns).map(|member| member.address.as_str())
    }
}

/// Asks a node; `None` if our user may not.
pub(crate) async fn view(to: &impl Ask) -> Result<Option<View>> {
    let mut nodes = redis::cmd("CLUSTER");
    nodes.arg("NODES");
    let Some(nodes) = to.may_ask(nodes).await? else { return Ok(None) };
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    let info = to.may_ask(info).await?.map(|answer| Fields::of_lines(&text(&answer))).unwrap_or_default();
    Ok(Some(View {
        state: info.get("cluster_state").map(str::to_owned),
        served: info.number("cluster_slots_ok"),
        members: text(&nodes).lines().filter_map(member).collect(),
    }))
}

/// `ID ADDRESS@PORT,HOST FLAGS MASTER PING PONG EPOCH LINK SLOTS…`
fn member(line: &str) -> Option<Member> {
    let mut words = line.split_whitespace();
    let (id, place, flags, master) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let flag = |wanted: &str| flags.split(',').any(|flag| flag == wanted);
    Some(Member {
        id: id.to_owned(),
        address: place.split(['@', ',']).next()?.to_owned(),
        is_asked: flag("myself"),
        failed: flag("fail") || flag("fail?") || flag("noaddr"),
        replica_of: (master != "-").then(|| master.to_owned()),
        slots: words.skip(4).filter_map(range).collect(),
    })
}

/// `5` or `0-5460`; a slot that moves (`[5->-…]`) is counted where it still is.
fn range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
07c3 127.0.0.1:30004@31004,host4 slave e7d1 0 1426238317239 4 connected
67ed 127.0.0.1:30002@31002,host2 master - 0 1426238316232 2 connected 5461-10922
e7d1 127.0.0.1:30001@31001 myself,master - 0 0 1 connected 0-5459 5460 [93->-67ed]
824f 127.0.0.1:30003@31003 master,fail - 0 1426238318243 3 disconnected 10923-16383
";

    #[test]
    fn the_lines_of_a_cluster_become_members() {
        let view = View { members: NODES.lines().filter_map(member).collect(), ..View::default() };
        assert_eq!(view.members.len(), 4);
        assert_eq!(view.asked(), Some("127.0.0.1:30001"));
        assert_eq!(view.masters().count(), 3);
        assert_eq!(view.members[0].replica_of.as_deref(), Some("e7d1"));
        assert_eq!(view.members[2].slots, [(0, 5459), (5460, 5460)]);
        assert!(view.members[3].failed && !view.members[1].failed);
        assert_eq!(view.owner(Slot(16383)), Some("127.0.0.1:30003"));
        assert_eq!(member("something else"), None);
    }
}
