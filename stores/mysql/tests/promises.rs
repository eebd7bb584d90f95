//! Bad input, readable rows, fencing, dead holders, random histories.

mod common;

leasehold_testkit::sql_promises!(common::Single);
leasehold_testkit::sql_fencing!(common::Single);
leasehold_testkit::sql_deaths!(common::Single);
leasehold_testkit::sql_histories!(common::Single);
