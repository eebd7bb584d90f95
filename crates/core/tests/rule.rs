//! The one rule, against a reading of its sentence that is as plain as it can be.

use leasehold_core::Want;
use leasehold_core::rule::{admits, holders};
use proptest::prelude::*;

/// Whether these wants can hold together, by the table in words: one alone, only readers, or permits within the limit.
fn compatible(wants: &[Want], limit: Option<u32>) -> bool {
    let permits: Option<Vec<(u32, u32)>> =
        wants.iter().map(|w| if let Want::Permits { n, of } = *w { Some((n, of)) } else { None }).collect();
    match permits {
        Some(permits) => {
            let sum: u64 = permits.iter().map(|(n, _)| u64::from(*n)).sum();
            permits.iter().all(|(_, of)| sum <= u64::from(limit.unwrap_or(*of)))
        }
        None => wants.len() == 1 || wants.iter().all(|w| *w == Want::Shared),
    }
}

fn a_want() -> impl Strategy<Value = Want> {
    prop_oneof![
        2 => Just(Want::Exclusive),
        3 => Just(Want::Shared),
        3 => (1u32..=4).prop_map(|n| Want::Permits { n, of: 4 }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_holders_are_the_longest_compatible_prefix(
        wants in prop::collection::vec(a_want(), 0..8),
        limit in prop::option::of(4u32..=6),
    ) {
        let longest = (0..=wants.len()).rev().find(|n| compatible(&wants[..*n], limit)).unwrap_or(0);
        prop_assert_eq!(holders(&wants, 0, limit), longest);
    }

    #[test]
    fn those_that_hold_keep_holding_and_only_a_compatible_prefix_is_longer(
        wants in prop::collection::vec(a_want(), 0..8),
        held in 0usize..10,
        limit in prop::option::of(1u32..=6),
    ) {
        let held = held.min(wants.len());
        let reach = holders(&wants, held, limit);
        prop_assert!(reach >= held);
        // What the prefix grew by is admitted one by one, and the first outside it is not.
        for at in held..reach {
            prop_assert!(admits(wants[..at].iter().copied(), wants[at], limit));
        }
        if let Some(first_waiter) = wants.get(reach) {
            prop_assert!(!admits(wants[..reach].iter().copied(), *first_waiter, limit));
        }
    }

    #[test]
    fn fewer_holders_never_let_less_in(
        wants in prop::collection::vec(a_want(), 1..8),
        newcomer in a_want(),
        limit in prop::option::of(4u32..=6),
    ) {
        let held = holders(&wants, 0, limit);
        if admits(wants[..held].iter().copied(), newcomer, limit) {
            for fewer in 0..held {
                prop_assert!(admits(wants[..fewer].iter().copied(), newcomer, limit));
            }
        }
    }
}

#[test]
fn huge_permits_do_not_overflow() {
    let all = Want::Permits { n: u32::MAX, of: u32::MAX };
    assert_eq!(holders(&[all, all, all], 3, Some(u32::MAX)), 3);
    assert_eq!(holders(&[all, all, all], 0, Some(u32::MAX)), 1);
}
