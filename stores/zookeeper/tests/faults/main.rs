//! What happens when things go wrong, against a real server: lost answers, lost sessions, silence, nodes that people touched.

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod half_made;
mod input;
mod leases;
mod outages;
mod reach;
mod scene;
mod sessions;
mod together;
mod watches;

/// Not a test: the part that another process plays when a test starts this binary again.
#[test]
fn child_process() {
    leasehold_testkit::child::run_if_child(common::Single);
}
