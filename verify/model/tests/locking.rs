//! Fenced Redlock on three nodes: every state is visited, and every broken rule is found.

use leasehold_verify_model::locking::{Mutant, Setup};
use leasehold_verify_model::search::explore;

/// Far more than any of these have; a setup that grows past it has to be looked at.
const MOST: usize = 20_000_000;

fn good(setup: Setup) {
    explore(&setup, MOST).expect_good();
}

fn found(mutant: Mutant, setup: Setup) {
    explore(&Setup { mutant: Some(mutant), ..setup }, MOST).expect_bad(&format!("{mutant:?}"));
}

/// Clocks mean nothing: leases end and decisions are made at any time.
fn untimed(attempts: usize) -> Setup {
    Setup::new(attempts)
}

/// Clocks can be relied on.
fn timed(attempts: usize) -> Setup {
    Setup { timed: true, ..Setup::new(attempts) }
}

/// The first attempt renews so often.
fn renewing(times: u8, setup: Setup) -> Setup {
    Setup { rounds: [1 + times, 1, 1], ..setup }
}

#[test]
fn tokens_rise_whatever_clocks_do() {
    good(Setup { duplicates: 1, ..untimed(2) });
    good(Setup { block: 2, floors: [0, 3, 0], ..untimed(2) });
    good(Setup { block: 2, floors: [3, 0, 0], ..untimed(2) });
    good(Setup { releases: false, ..untimed(3) });
}

#[test]
fn tokens_rise_when_a_holder_asks_for_more() {
    good(Setup { more_tokens: true, ..renewing(1, untimed(2)) });
    good(Setup { more_tokens: true, block: 2, ..renewing(1, timed(2)) });
}

#[test]
fn two_never_hold_at_once_if_clocks_can_be_relied_on() {
    good(renewing(2, timed(2)));
    good(Setup { releases: false, ..timed(3) });
}

#[test]
fn a_node_that_loses_its_data_changes_none_of_this() {
    good(Setup { restarts: 1, ..timed(2) });
    good(Setup { restarts: 1, releases: false, ..renewing(2, timed(2)) });
    good(Setup { restarts: 2, releases: false, ..renewing(1, timed(2)) });
}

/// Two minutes: for nights, and after changes to the protocol.
#[test]
#[ignore = "takes minutes"]
fn larger_setups_are_good_too() {
    good(untimed(3));
    good(Setup { restarts: 1, ..renewing(2, timed(2)) });
    good(Setup { restarts: 1, duplicates: 1, ..timed(2) });
    good(Setup { restarts: 2, ..timed(2) });
}

#[test]
fn half_of_the_nodes_are_not_enough() {
    found(Mutant::SmallQuorum, untimed(2));
}

#[test]
fn a_confirmation_is_only_for_the_owner() {
    found(Mutant::ConfirmUnconditionally, untimed(2));
}

#[test]
fn a_confirmation_raises_the_counter() {
    found(Mutant::ConfirmWithoutWriteBack, untimed(2));
}

#[test]
fn a_node_with_a_higher_token_is_never_counted() {
    found(Mutant::CountNodesAhead, untimed(2));
    found(Mutant::NodesAheadVouch, Setup { more_tokens: true, ..renewing(1, untimed(2)) });
}

#[test]
fn a_release_is_only_for_the_owner() {
    found(Mutant::ReleaseAnyOwner, timed(3));
}

#[test]
fn a_release_keeps_the_tokens_that_were_used() {
    found(Mutant::GiveBackUsedTokens, untimed(2));
}

#[test]
fn a_node_that_lost_its_data_is_not_counted_for_a_while() {
    let setup = Setup { restarts: 1, ..timed(2) };
    found(Mutant::NoQuarantine, setup);
    found(Mutant::LiftEarly, setup);
    found(Mutant::LiftWithoutRaise, setup);
    found(Mutant::QuarantinedGrantsCountLater, Setup { duplicates: 1, ..setup });
}

#[test]
fn not_even_renewals_are_counted_there() {
    found(Mutant::RenewInQuarantine, Setup { restarts: 1, releases: false, ..renewing(2, timed(2)) });
}

#[test]
fn what_is_answered_too_late_counts_for_nothing() {
    found(Mutant::DecideLate, timed(2));
    found(Mutant::RenewLate, renewing(1, timed(2)));
    found(Mutant::ExtendResurrects, renewing(1, timed(2)));
}
