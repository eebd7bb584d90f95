//! The whole suite behind a pooler in transaction mode.

mod common;

leasehold_testkit::conformance!(common::Pooled);
