//! Faults of the server and of the network, and many clients at once.

mod common;

leasehold_testkit::sql_faults!(common::Single);
