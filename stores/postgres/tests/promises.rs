//! Bad input, readable rows, fencing, dead holders, random histories.

mod common;

leasehold_testkit::sql_promises!(common::Direct);
leasehold_testkit::sql_fencing!(common::Direct);
leasehold_testkit::sql_deaths!(common::Direct);
leasehold_testkit::sql_histories!(common::Direct);
