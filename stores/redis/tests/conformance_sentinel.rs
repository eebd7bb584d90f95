//! The whole suite on a master with two replicas, watched by three sentinels.

mod common;

leasehold_testkit::conformance!(common::Watched);
