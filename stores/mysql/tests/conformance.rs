//! The whole suite on a single MariaDB server.

mod common;

leasehold_testkit::conformance!(common::Single);
