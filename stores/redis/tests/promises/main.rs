//! What the Redis store promises about its cost, its keys, its rights and its refusals, on real servers.

#[path = "../common/mod.rs"]
mod common;

mod acl;
mod bad_input;
mod bare_runtime;
mod commands;
mod connections;
mod durability;
mod keys;
mod still_runtime;
mod together;

/// Not a test: the part that other processes play when a test starts this binary again.
#[test]
fn child_process() {
    leasehold_testkit::child::run_if_child(common::At(String::new()));
}
