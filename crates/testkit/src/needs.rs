//! What a scenario needs a store to promise. A store that does not promise it says so in its [`Traits`], and
//! `traits::shared_claims_and_permits_work_or_are_refused` checks that it refuses clearly; the scenario itself has nothing to show
//! there.

use leasehold_core::Traits;

/// Scenarios about shared claims and permits, besides all of the groups `read_write` and `semaphore`.
const SHARED: &[&str] = &[
    "crash::a_killed_holders_permits_return",
    "crash::a_killed_reader_does_not_block_a_writer",
    "exclusion::claims_of_all_orders_and_kinds_exclude_each_other",
    "inspection::permits_and_their_limit_are_shown",
    "loss::a_force_release_tells_every_reader",
    "multi::a_mix_of_kinds_is_taken_together",
    "reentrance::a_downgrade_and_a_re_entry_as_writer_exclude_each_other",
    "reentrance::a_read_inside_ones_own_write_joins_it",
    "requests::a_downgrade_keeps_the_request",
    "requests::every_holder_of_permits_is_asked",
    "requests::every_reader_is_asked_or_the_one_that_is_meant",
    "tokens::a_writer_has_a_higher_token_than_the_readers_before_it",
];

/// Scenarios about the order in which different clients get in.
const QUEUE: &[&str] = &[
    "order::five_hundred_waiters_of_many_clients_enter_in_the_order_they_came",
    "order::waiters_that_gave_up_are_skipped_at_the_store",
    "order::one_that_queues_goes_before_one_that_barges",
];

/// Why a store with these promises has nothing to show in a scenario, if it has not.
pub fn missing(scenario: &str, traits: &Traits) -> Option<&'static str> {
    let group = scenario.split("::").next().unwrap_or_default();
    let shared = matches!(group, "read_write" | "semaphore") || SHARED.contains(&scenario);
    if shared && !traits.shared {
        Some("it has no shared claims")
    } else if QUEUE.contains(&scenario) && !traits.queue {
        Some("it keeps no order between clients")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scenario that was renamed must not be run, or left out, by mistake.
    #[test]
    fn every_scenario_named_here_is_in_the_list() {
        let list = include_str!("list.rs");
        for scenario in SHARED.iter().chain(QUEUE) {
            let (_, name) = scenario.split_once("::").unwrap();
            assert!(list.contains(name), "{scenario} is not in list.rs");
        }
    }
}
