//! The whole suite on a single server.

mod common;

leasehold_testkit::conformance!(common::Direct);
