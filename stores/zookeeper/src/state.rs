//! A queue as its nodes tell it: in which order its entries stand, who holds, whom one has to wait for.
//!
//! The nodes of a lock are its whole state, and every change is one request on one of them, which ZooKeeper applies
//! atomically and in one order for all. So nothing is decided at the server: everybody reads the same queue and comes to the
//! same conclusion. This file is that conclusion, without I/O.

use leasehold_core::{Error, Kind, Result, Token, TokenBlock, Want, rule};

use crate::path::Node;

/// How many tokens an entry has: they are its `czxid` with ten more bits.
const BLOCK_BITS: u32 = 10;

/// The nodes of one lock, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The queue, front first.
    pub(crate) queue: Vec<Node>,
    /// The notes of those that barge, in the order in which they came.
    pub(crate) bargers: Vec<Node>,
}

impl Line {
    /// Sorts the names of nodes. What is not ours is left out.
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a String>) -> Line {
        let mut nodes: Vec<Node> = names.into_iter().filter_map(|name| Node::parse(name)).collect();
        // The numbers wrap. Those of a queue are never far apart, so each is looked at from any one of them.
        let from = nodes.first().map_or(0, |node| node.sequence);
        nodes.sort_by_key(|node| node.sequence.wrapping_sub(from));
        let bargers = nodes.extract_if(.., |node| node.barges).collect();
        Line { queue: nodes, bargers }
    }

    /// Whether anybody waits behind the one that holds at this place, or barges. Readers behind a reader don't wait: they read. Whether
    /// those behind a holder of permits do is not looked at.
    pub(crate) fn others_behind(&self, at: usize) -> bool {
        let reads = |node: &Node| node.want == Want::Shared;
        let mut rest = self.queue.iter().skip(at);
        let waits = match rest.next() {
            Some(holder) if reads(holder) => !rest.all(reads),
            _ => rest.next().is_some(),
        };
        waits || !self.bargers.is_empty()
    }

    pub(crate) fn wants(&self) -> Vec<Want> {
        self.queue.iter().map(|node| node.want).collect()
    }

    /// What the first in line that wants permits says of the limit.
    pub(crate) fn first_permits(&self) -> Option<(&Node, u32)> {
        self.queue.iter().find_map(|node| match node.want {
            Want::Permits { of, .. } => Some((node, of)),
            _ => None,
        })
    }

    /// As [`first_permits`](Self::first_permits), among all: where nobody holds permits, one that barges may set the limit.
    pub(crate) fn any_permits(&self) -> Option<u32> {
        let of = |node: &Node| if let Want::Permits { of, .. } = node.want { Some(of) } else { None };
        self.queue.iter().chain(&self.bargers).find_map(of)
    }
}

/// The number of permits in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Limit {
    /// `None` if nobody holds or wants permits.
    pub(crate) number: Option<u32>,
    /// Whether somebody changed it since the first in line came. Then entries may hold that would not fit any more.
    pub(crate) changed: bool,
}

/// How an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stand {
    /// It holds.
    Holds,
    /// It waits for this one of those before it to go, or to change.
    After(usize),
    /// It waits for permits, and any of those before it may give some back.
    AfterAny,
}

/// How an entry stands that wants this, behind these.
pub(crate) fn stand(ahead: &[Want], want: Want, limit: Limit) -> Stand {
    let last = match want {
        Want::Exclusive => ahead.len().checked_sub(1),
        Want::Shared => ahead.iter().rposition(|other| *other != Want::Shared),
        Want::Permits { .. } => return stand_for_permits(ahead, want, limit),
    };
    last.map_or(Stand::Holds, Stand::After)
}

fn stand_for_permits(ahead: &[Want], want: Want, limit: Limit) -> Stand {
    let all: Vec<Want> = ahead.iter().copied().chain([want]).collect();
    let holders = rule::holders(&all, 0, limit.number);
    if holders == all.len() {
        return Stand::Holds;
    }
    let only_permits = ahead.iter().all(|other| matches!(other, Want::Permits { .. }));
    // The first that waits looks at all that hold. Those behind it look at the one before them, which says when it got in.
    match ahead.len().checked_sub(1) {
        Some(last) if !only_permits || (holders < ahead.len() && !limit.changed) => Stand::After(last),
        _ => Stand::AfterAny,
    }
}

/// Whether the end of the entry that it waits for lets it in for certain, whatever else happened.
pub(crate) fn is_next(stand: Stand, want: Want) -> bool {
    // Its place is the first then, or the first behind readers; permits depend on a number that can change.
    stand == Stand::After(0) && !matches!(want, Want::Permits { .. })
}

/// The tokens of the entry whose node has this `czxid`.
///
/// A zxid is the leader's epoch in the high 32 bits and a counter in the low ones. With ten bits for local hand-overs, 21 are
/// left for the epoch: two million elections.
pub(crate) fn tokens(czxid: i64) -> Result<TokenBlock> {
    let first = u64::try_from(czxid).ok().filter(|zxid| *zxid < Token::END >> BLOCK_BITS);
    match first {
        Some(zxid) => Ok(TokenBlock { first: Token(zxid << BLOCK_BITS), len: 1 << BLOCK_BITS }),
        None => {
            let what = format!(
                "the zxid {czxid:#x} is too high for a token: the ensemble has had over two million leaders"
            );
            Err(Error::new(Kind::Store, what).advice("move the locks to an ensemble with a fresh data folder, and raise what they guard above its tokens"))
        }
    }
}

/// Whether a token is one of the entry whose node has this `czxid`.
pub(crate) fn is_token_of(token: Token, czxid: i64) -> bool {
    u64::try_from(czxid).is_ok_and(|zxid| token.0 >> BLOCK_BITS == zxid)
}

/// What is left of a block above a token.
pub(crate) fn rest_above(block: TokenBlock, highest: Token) -> Option<TokenBlock> {
    let first = Token((highest.0 + 1).max(block.first.0));
    let len = block.last().0.checked_sub(first.0)? + 1;
    Some(TokenBlock { first, len: u32::try_from(len).ok()? })
}

#[cfg(test)]
mod tests {
    use leasehold_core::EntryId;
    use proptest::prelude::*;

    use super::*;

    fn node(id: u128, want: Want, sequence: i32) -> Node {
        Node { id: EntryId(id), want, barges: false, sequence }
    }

    fn permits(n: u32) -> Want {
        Want::Permits { n, of: 3 }
    }

    #[test]
    fn the_queue_is_in_order_also_where_the_numbers_wrap_and_foreign_nodes_are_left_out() {
        let ours: Vec<Node> = [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1]
            .into_iter()
            .enumerate()
            .map(|(n, sequence)| node(n as u128, Want::Exclusive, sequence))
            .collect();
        for first in 0..ours.len() {
            let mut names: Vec<String> = ours.iter().map(Node::name).collect();
            names.rotate_left(first);
            names.push("lock-0000000001".into());
            assert_eq!(Line::of(&names).queue, ours);
        }
    }

    #[test]
    fn nobody_waits_behind_readers_but_one_who_wants_something_else() {
        use Want::{Exclusive as X, Shared as S};
        let behind = |at: usize, wants: &[Want]| {
            let node = |(n, want): (usize, &Want)| node(n as u128, *want, n as i32);
            Line { queue: wants.iter().enumerate().map(node).collect(), bargers: Vec::new() }
                .others_behind(at)
        };
        assert!(!behind(0, &[X]) && !behind(0, &[S]) && !behind(1, &[S, S]));
        assert!(!behind(0, &[S, S, S]), "they read all three");
        assert!(behind(0, &[S, S, X]) && behind(1, &[S, S, X]) && behind(0, &[S, X, S]));
        assert!(behind(0, &[X, S]) && behind(0, &[X, X]));
        assert!(behind(0, &[permits(1), permits(1)]));
        let barges = Line { queue: vec![node(1, S, 1)], bargers: vec![node(2, X, 2)] };
        assert!(barges.others_behind(0));
    }

    #[test]
    fn a_writer_waits_for_the_one_before_it_and_a_reader_for_the_last_writer() {
        use Want::{Exclusive as X, Shared as S};
        let stand = |ahead: &[Want], want| stand(ahead, want, Limit::default());
        assert_eq!(stand(&[], X), Stand::Holds);
        assert_eq!(stand(&[S, S], X), Stand::After(1));
        assert_eq!(stand(&[S, S], S), Stand::Holds);
        assert_eq!(stand(&[X, S, S], S), Stand::After(0));
        assert_eq!(stand(&[S, X, S], S), Stand::After(1));
        assert_eq!(stand(&[permits(1)], S), Stand::After(0));
    }

    #[test]
    fn the_first_that_waits_for_permits_looks_at_all_and_the_next_at_the_one_before() {
        let limit = Limit { number: Some(3), changed: false };
        assert_eq!(stand(&[permits(1)], permits(2), limit), Stand::Holds);
        assert_eq!(stand(&[permits(1), permits(1)], permits(2), limit), Stand::AfterAny);
        assert_eq!(stand(&[permits(2), permits(2)], permits(1), limit), Stand::After(1));
        assert_eq!(stand(&[Want::Exclusive], permits(1), limit), Stand::After(0));
        let lowered = Limit { number: Some(1), changed: true };
        assert_eq!(stand(&[permits(1), permits(1)], permits(1), lowered), Stand::AfterAny);
        assert_eq!(stand(&[], permits(2), lowered), Stand::AfterAny);
    }

    #[test]
    fn tokens_come_from_the_zxid_and_end_clearly() {
        let block = tokens(0x5_0000_0007).unwrap();
        assert_eq!((block.first.0, block.len), (0x5_0000_0007 << 10, 1024));
        assert!(is_token_of(block.last(), 0x5_0000_0007) && !is_token_of(block.last(), 0x5_0000_0008));
        assert!(tokens((1 << 53) - 1).unwrap().last().0 < Token::END);
        for bad in [1 << 53, i64::MAX, -1] {
            assert_eq!(tokens(bad).unwrap_err().kind(), Kind::Store);
        }
        let rest = rest_above(block, Token(block.first.0 + 1)).unwrap();
        assert_eq!((rest.first.0, rest.last()), (block.first.0 + 2, block.last()));
        assert_eq!(rest_above(block, block.last()), None);
    }

    fn a_want() -> impl Strategy<Value = Want> {
        prop_oneof![Just(Want::Exclusive), Just(Want::Shared), (1..4u32).prop_map(permits)]
    }

    proptest! {
        /// Everybody who reads the queue comes to the conclusion of the rule.
        #[test]
        fn an_entry_holds_if_the_rule_says_so(wants in prop::collection::vec(a_want(), 1..8), limit in 1..5u32) {
            let holders = rule::holders(&wants, 0, Some(limit));
            for at in 0..wants.len() {
                let limit = Limit { number: Some(limit), changed: limit != 3 };
                let holds = stand(&wants[..at], wants[at], limit) == Stand::Holds;
                prop_assert_eq!(holds, at < holders, "{:?} at {}", wants, at);
            }
        }

        /// Nobody is forgotten: if every holder goes but one is not the one that is waited for, somebody ahead still waits.
        #[test]
        fn whoever_is_waited_for_stands_in_the_way(wants in prop::collection::vec(a_want(), 1..8)) {
            let limit = Limit { number: Some(3), changed: false };
            let (want, ahead) = wants.split_last().unwrap();
            if let Stand::After(at) = stand(ahead, *want, limit) {
                prop_assert!(at < ahead.len());
                if is_next(Stand::After(at), *want) {
                    let rest: Vec<Want> = ahead.iter().skip(1).copied().collect();
                    prop_assert_eq!(stand(&rest, *want, limit), Stand::Holds);
                }
            }
        }
    }
}
