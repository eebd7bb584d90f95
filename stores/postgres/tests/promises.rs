//! Bad input, readable rows, fencing.

mod common;

leasehold_testkit::sql_promises!(common::Direct);
leasehold_testkit::sql_fencing!(common::Direct);
