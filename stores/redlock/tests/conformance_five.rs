//! The whole suite on five masters.

mod common;

use std::sync::LazyLock;

use leasehold_testkit::servers::Independent;

static FIVE: LazyLock<Independent> = LazyLock::new(|| Independent::start(5));

leasehold_testkit::conformance!(crate::common::OnServers(&FIVE));
