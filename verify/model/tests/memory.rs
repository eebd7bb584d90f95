//! Nodes that lose their data: who vouches for them, and how a new set is told from one that lost everything.

use leasehold_verify_model::search::explore;
use leasehold_verify_model::{first_use, recovery};

const MOST: usize = 20_000_000;

#[test]
fn a_node_comes_back_with_every_token_that_was_ever_granted() {
    use recovery::{Mutant, Setup};
    let setup = Setup { grants: 3, falls: 4, mutant: None };
    explore(&setup, MOST).expect_good();
    for mutant in [Mutant::AskAnybody, Mutant::AskFewer, Mutant::AskNobody] {
        explore(&Setup { mutant: Some(mutant), ..setup }, MOST).expect_bad(&format!("{mutant:?}"));
    }
}

const SETUP: first_use::Setup = first_use::Setup { looks: [2, 2], wipes: 0, stuck: false, mutant: None };

#[test]
fn clients_that_meet_an_empty_set_do_not_suspect_each_others_work() {
    explore(&SETUP, MOST).expect_good();
}

#[test]
fn a_node_that_was_wiped_is_never_taken_for_new() {
    use first_use::Setup;
    explore(&Setup { wipes: 1, looks: [1, 3], ..SETUP }, MOST).expect_good();
    explore(&Setup { wipes: 1, looks: [2, 1], stuck: true, ..SETUP }, MOST).expect_good();
}

#[test]
fn each_rule_of_founding_a_set_is_needed() {
    use first_use::{Mutant, Setup};
    for mutant in [Mutant::OneNumber, Mutant::OpenWithoutAll, Mutant::Unconditional] {
        let setup = Setup { wipes: 1, mutant: Some(mutant), ..SETUP };
        explore(&setup, MOST).expect_bad(&format!("{mutant:?}"));
    }
    let setup = Setup { wipes: 1, looks: [2, 1], stuck: true, mutant: Some(Mutant::OpenAllAtOnce) };
    explore(&setup, MOST).expect_bad("OpenAllAtOnce");
}
