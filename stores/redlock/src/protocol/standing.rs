//! Whether a node remembers everything it ever promised, and how one that does not is taken back in.
//!
//! Each node has a marker: a key that says which process wrote it (its run id, and whose data it took over as a replica), and
//! how the node stands. A node whose marker does not fit has lost something: it crashed, was emptied, or was given old data.
//!
//! # First use
//!
//! A node without a marker was never used, or has lost everything: it can't tell. But a *set* can. If all N nodes answer and
//! none of them has a trace, the set is new, and is opened at once. If one has a trace, or if one does not answer (it may have
//! one), those without are taken for nodes that lost their data.
//!
//! Opening takes two steps, so that clients that meet an empty set at the same time don't take each other's half-done work
//! for a loss. The founder draws a number and makes each blank node [`New`](Standing::New) with it: one certain node first (who gets
//! that one is the founder), then the others. When all N have said yes, it makes them [`Open`](Standing::Open): again that one
//! first, and the others only if it still had the number. If one says no, the others are taken back. A founder that vanished
//! is helped: a new node with the number of an open one is opened too, and a number that stays alone for [`STUCK`] is taken back.
//!
//! A number is sent to each node only once. While the first node has it, no other set can be founded, and it still has it when all the
//! others have said yes. So a node that has the number of an open one was blank together with all others, and was not wiped since.
//! One that was wiped later, and made new by a message that was long under way, has another number and is found out. The model
//! checker (`first_use`) showed three shorter ways to be wrong: nobody ever sees all nodes at the same moment.
//!
//! # What this can't do
//!
//! If *all* nodes lose *everything* at once, the set looks new to a client that never saw it before. Clients that did see it
//! know better and put it in quarantine, but the newcomer may be faster; then a lease of before can overlap with a new one, for
//! no longer than its length. One node that keeps any data (a snapshot of last week will do) is enough to prevent it; so is
//! `first-use=wait`, which makes even a new set wait for the longest lease once.

use super::Quorum;

/// How a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It has no marker.
    Blank,
    /// It was blank when all others were; not open yet.
    New,
    /// It remembers everything, and counts.
    Open,
    /// It lost something, and does not count.
    Quarantined,
}

/// What a node says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Report {
    /// How it stands.
    pub standing: Standing,
    /// The number of the set that it was made new with; 0 if it is blank or in quarantine.
    pub set: u64,
    /// Since when, in microseconds by its own clock: also tells one quarantine from the next.
    pub since: u64,
    /// For how long that is, in microseconds.
    pub age: u64,
    /// The highest counter that any lock on it ever had.
    pub top: u64,
    /// The longest lease that it ever granted, in milliseconds.
    pub longest: u64,
}

/// What to do about a node. A node does it only if it still stands as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing, now.
    Leave,
    /// A new node with this number becomes open.
    Open(u64),
    /// A new node with this number becomes blank again.
    Clear(u64),
    /// A blank node (0), or a new one with this number, is put in quarantine.
    Quarantine(u64),
    /// The quarantine that began at `since` ends; no token below `floor` will be given.
    Lift {
        /// Which quarantine.
        since: u64,
        /// The number of the set.
        set: u64,
        /// From where its tokens go on.
        floor: u64,
        /// The longest lease that anybody knows of.
        longest: u64,
    },
}

/// For how long a node may stay new, in microseconds. To found a set takes a few round trips.
pub const STUCK: u64 = 5_000_000;

/// What the one who looks brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// It has seen this set in use before.
    pub in_use: bool,
    /// A set without a trace may be opened at once.
    pub trust_blank: bool,
    /// The longest lease that clients may ask for, or that it knows was ever granted, in milliseconds. Only used if no node is left
    /// that knows it.
    pub longest: u64,
}

/// Whether these nodes are a new set, to be founded.
pub fn is_new(reports: &[Option<Report>], known: Known) -> bool {
    let blank = |r: &Option<Report>| r.is_some_and(|r| r.standing == Standing::Blank);
    !known.in_use && known.trust_blank && reports.iter().all(blank)
}

/// Looks at all nodes (`None`: no answer) and says what to do about each. Not for a set that [is new](is_new).
pub fn tend(quorum: Quorum, reports: &[Option<Report>], known: Known) -> Vec<Step> {
    let standing = |wanted: Standing| reports.iter().flatten().filter(move |r| r.standing == wanted);
    let used =
        known.in_use || standing(Standing::Open).chain(standing(Standing::Quarantined)).next().is_some();
    let founding = standing(Standing::New).next().is_some() && !used && known.trust_blank;
    let step = |(node, report): (usize, &Option<Report>)| {
        let Some(report) = report else { return Step::Leave };
        match report.standing {
            Standing::Open => Step::Leave,
            Standing::Quarantined => lift(quorum, reports, node, known.longest),
            Standing::New if founding && report.age > STUCK => Step::Clear(report.set),
            Standing::Blank | Standing::New if founding => Step::Leave,
            // The founder was called away in the middle of opening, when all had said yes.
            Standing::New if standing(Standing::Open).any(|r| r.set == report.set) => Step::Open(report.set),
            Standing::Blank | Standing::New => Step::Quarantine(report.set),
        }
    };
    reports.iter().enumerate().map(step).collect()
}

/// Whether a node's quarantine can end, and from where it goes on.
pub fn lift(quorum: Quorum, reports: &[Option<Report>], node: usize, longest: u64) -> Step {
    let Some(Some(me)) = reports.get(node) else { return Step::Leave };
    let others = || reports.iter().enumerate().filter(|(n, _)| *n != node).filter_map(|(_, r)| *r);
    let open = || others().filter(|r| r.standing == Standing::Open);
    let (floor, longest) = if open().count() >= quorum.need {
        // They share a node with every quorum that ever was, also without this node.
        (open().map(|r| r.top).max(), open().map(|r| r.longest).max().unwrap_or(0).max(me.longest))
    } else {
        let lost = reports.iter().flatten().filter(|r| r.standing != Standing::Open).count();
        if lost <= quorum.spare() || others().count() < quorum.need - 1 {
            // Enough that remember are out there, but don't answer now.
            return Step::Leave;
        }
        // More have forgotten than the protocol can bear. What is left is time, the clocks, and the best that anybody knows: every
        // lease was offered to every node, so one that is left has seen the longest.
        let known = others().map(|r| r.longest).max().unwrap_or(0).max(me.longest);
        (others().map(|r| r.top).max(), if open().next().is_some() { known } else { known.max(longest) })
    };
    if me.age < waiting_time(longest) {
        return Step::Leave;
    }
    let set = others().find(|r| r.standing == Standing::Open).map_or(0, |r| r.set);
    Step::Lift { since: me.since, set, floor: floor.unwrap_or(0).max(me.top), longest }
}

/// How long a quarantine lasts, in microseconds, if no lease was longer than so many milliseconds: that, and the drift.
pub fn waiting_time(longest: u64) -> u64 {
    longest * 1000 + longest * 10 + 2000
}

#[cfg(test)]
mod tests {
    use super::Standing::*;
    use super::*;

    const THREE: Quorum = Quorum::of(3);
    const FIVE: Quorum = Quorum::of(5);
    const KNOWN: Known = Known { in_use: false, trust_blank: true, longest: 60_000 };

    fn at(standing: Standing) -> Option<Report> {
        numbered(standing, 0)
    }

    fn numbered(standing: Standing, set: u64) -> Option<Report> {
        Some(Report { standing, set, since: 5, age: 0, top: 0, longest: 0 })
    }

    fn fallen(age_ms: u64) -> Option<Report> {
        Some(Report { standing: Quarantined, set: 0, since: 5, age: age_ms * 1000, top: 0, longest: 0 })
    }

    fn good(top: u64, longest: u64) -> Option<Report> {
        Some(Report { standing: Open, set: 3, since: 1, age: 0, top, longest })
    }

    #[test]
    fn a_set_is_new_if_all_nodes_say_so() {
        assert!(is_new(&[at(Blank), at(Blank), at(Blank)], KNOWN));
        for other in [at(Open), fallen(0), numbered(New, 7), None] {
            assert!(!is_new(&[at(Blank), other, at(Blank)], KNOWN));
        }
        assert!(!is_new(&[at(Blank)], Known { in_use: true, ..KNOWN }));
        assert!(!is_new(&[at(Blank)], Known { trust_blank: false, ..KNOWN }));
    }

    #[test]
    fn a_set_that_somebody_founds_is_waited_for_and_helped() {
        let (new, open) = (numbered(New, 7), numbered(Open, 7));
        assert_eq!(tend(THREE, &[new, at(Blank), at(Blank)], KNOWN), [Step::Leave; 3]);
        assert_eq!(tend(THREE, &[new, new, new], KNOWN), [Step::Leave; 3]);
        assert_eq!(tend(THREE, &[open, new, new], KNOWN), [Step::Leave, Step::Open(7), Step::Open(7)]);
        assert_eq!(tend(THREE, &[open, new, None], KNOWN), [Step::Leave, Step::Open(7), Step::Leave]);
        let stuck = Some(Report { age: STUCK + 1, ..new.unwrap() });
        assert_eq!(tend(THREE, &[stuck, at(Blank), new], KNOWN), [Step::Clear(7), Step::Leave, Step::Leave]);
        // It was wiped, and made new by a message that was long under way.
        assert_eq!(
            tend(THREE, &[open, open, numbered(New, 9)], KNOWN),
            [Step::Leave, Step::Leave, Step::Quarantine(9)]
        );
    }

    #[test]
    fn one_trace_or_one_silent_node_makes_blank_ones_suspicious() {
        for other in [at(Open), fallen(0), None] {
            let steps = tend(THREE, &[at(Blank), other, at(Blank)], KNOWN);
            assert_eq!((steps[0], steps[2]), (Step::Quarantine(0), Step::Quarantine(0)), "{other:?}");
        }
    }

    #[test]
    fn who_knows_the_set_never_takes_it_for_new() {
        let known = Known { in_use: true, ..KNOWN };
        assert_eq!(
            tend(THREE, &[at(Blank), numbered(New, 7), at(Blank)], known),
            [Step::Quarantine(0), Step::Quarantine(7), Step::Quarantine(0)]
        );
        let wary = Known { trust_blank: false, ..KNOWN };
        assert_eq!(tend(THREE, &[at(Blank), at(Blank), at(Blank)], wary), [Step::Quarantine(0); 3]);
    }

    #[test]
    fn a_quarantine_lasts_for_the_longest_lease_that_the_others_know() {
        let early = [fallen(30_000), good(70, 30_000), good(90, 20_000)];
        assert_eq!(lift(THREE, &early, 0, 1), Step::Leave);
        let late = [fallen(30_302), good(70, 30_000), good(90, 20_000)];
        assert_eq!(lift(THREE, &late, 0, 1), Step::Lift { since: 5, set: 3, floor: 90, longest: 30_000 });
    }

    #[test]
    fn only_nodes_in_good_standing_vouch_for_tokens() {
        // The token 90 was granted on nodes 0, 1 and 2; 0 and 1 fell. Nodes 3 and 4 with 1 would be three, and know nothing.
        let reports = [fallen(99_000), fallen(99_000), None, good(50, 1), good(50, 1)];
        assert_eq!(lift(FIVE, &reports, 0, 1), Step::Leave);
        let reports = [fallen(99_000), fallen(99_000), good(90, 1), good(50, 1), good(50, 1)];
        assert_eq!(lift(FIVE, &reports, 0, 1), Step::Lift { since: 5, set: 3, floor: 90, longest: 1 });
    }

    #[test]
    fn a_set_that_lost_its_majority_goes_on_after_the_longest_lease_allowed() {
        let reports = [fallen(500), fallen(500), good(90, 500)];
        assert_eq!(lift(THREE, &reports, 0, 60_000), Step::Leave);
        let reports = [fallen(600), fallen(600), good(90, 500)];
        assert_eq!(
            lift(THREE, &reports, 0, 60_000),
            Step::Lift { since: 5, set: 3, floor: 90, longest: 500 }
        );
        let reports = [fallen(600), fallen(600), None];
        assert_eq!(lift(THREE, &reports, 0, 60_000), Step::Leave);
        let reports = [fallen(60_700), fallen(60_700), None];
        assert_eq!(
            lift(THREE, &reports, 0, 60_000),
            Step::Lift { since: 5, set: 0, floor: 0, longest: 60_000 }
        );
    }
}
