//! What goes over the wire: whether it is encrypted.

mod common;

leasehold_testkit::sql_encryption!(common::Single);
