//! The whole suite on an ensemble of three servers.

mod common;

use std::sync::{Arc, LazyLock};

use leasehold_core::store::{Pending, Store, ready};
use leasehold_testkit::servers::Ensemble;
use leasehold_testkit::{Bed, Place};

static ENSEMBLE: LazyLock<Ensemble> = LazyLock::new(Ensemble::start);

/// One ensemble for the whole binary.
struct Voting;

impl Bed for Voting {
    fn fresh(&self) -> Pending<Place> {
        ready(common::place(&ENSEMBLE.url()))
    }

    fn open(&self, url: String) -> Pending<Arc<dyn Store>> {
        ready(common::open(&url))
    }

    fn is_another_topology(&self) -> bool {
        true
    }
}

leasehold_testkit::conformance!(Voting);
