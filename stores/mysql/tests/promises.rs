//! Bad input, readable rows, fencing.

mod common;

leasehold_testkit::sql_promises!(common::Single);
leasehold_testkit::sql_fencing!(common::Single);
