//! The one list of stores: adding a store is one folder and one line here.

use std::sync::Arc;

use leasehold_core::store::{Pending, Store};
use leasehold_core::url::StoreUrl;
use leasehold_core::{Result, Traits};

/// What the facade needs to know of a store.
pub(crate) struct Known {
    pub(crate) traits: &'static Traits,
    /// The URL schemes that lead to it.
    pub(crate) schemes: &'static [&'static str],
    pub(crate) open: fn(StoreUrl) -> Pending<Arc<dyn Store>>,
}

/// Opens what needs no connection.
#[allow(dead_code)] // Unused only if no embedded store is compiled in.
fn at_once(store: Result<Arc<dyn Store>>) -> Pending<Arc<dyn Store>> {
    leasehold_core::store::ready(store)
}

pub(crate) static KNOWN: &[Known] = &[
    #[cfg(feature = "file")]
    Known {
        traits: &leasehold_file::TRAITS,
        schemes: &["file"],
        open: |url| at_once(leasehold_file::open(url)),
    },
    #[cfg(feature = "memory")]
    Known {
        traits: &leasehold_memory::TRAITS,
        schemes: &["memory"],
        open: |url| at_once(leasehold_memory::open(url)),
    },
    #[cfg(feature = "mysql")]
    Known {
        traits: &leasehold_mysql::TRAITS,
        schemes: leasehold_mysql::SCHEMES,
        open: |url| at_once(leasehold_mysql::open(url)),
    },
    #[cfg(feature = "postgres")]
    Known {
        traits: &leasehold_postgres::TRAITS,
        schemes: leasehold_postgres::SCHEMES,
        open: |url| at_once(leasehold_postgres::open(url)),
    },
    #[cfg(feature = "redis")]
    Known {
        traits: &leasehold_redis::TRAITS,
        schemes: leasehold_redis::SCHEMES,
        open: |url| at_once(leasehold_redis::open(url)),
    },
    #[cfg(feature = "redlock")]
    Known {
        traits: &leasehold_redlock::TRAITS,
        schemes: leasehold_redlock::SCHEMES,
        open: |url| at_once(leasehold_redlock::open(url)),
    },
    #[cfg(feature = "zookeeper")]
    Known {
        traits: &leasehold_zookeeper::TRAITS,
        schemes: leasehold_zookeeper::SCHEMES,
        open: |url| at_once(leasehold_zookeeper::open(url)),
    },
];

/// The promises of every store that is compiled in.
pub fn stores() -> Vec<&'static Traits> {
    KNOWN.iter().map(|known| known.traits).collect()
}

#[cfg(test)]
mod tests {
    use super::KNOWN;

    #[test]
    fn every_scheme_can_be_shown() {
        for scheme in KNOWN.iter().flat_map(|known| known.schemes) {
            assert!(leasehold_core::url::SCHEMES.contains(scheme), "{scheme}");
        }
    }
}
