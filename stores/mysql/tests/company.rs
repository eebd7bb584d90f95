//! Many claims and releases at once, which share transactions.

mod common;

leasehold_testkit::sql_company!(common::Single);
