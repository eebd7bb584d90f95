//! The whole suite on three masters.

mod common;

use std::sync::LazyLock;

use leasehold_testkit::servers::Independent;

static THREE: LazyLock<Independent> = LazyLock::new(|| Independent::start(3));

leasehold_testkit::conformance!(crate::common::OnServers(&THREE));
