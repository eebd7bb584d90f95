//! The whole suite on a cluster of three masters with a replica each.

mod common;

leasehold_testkit::conformance!(common::Sharded);
