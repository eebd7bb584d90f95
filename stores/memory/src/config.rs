//! From a URL to a store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use leasehold_core::Result;
use leasehold_core::store::Store;
use leasehold_core::url::StoreUrl;

use crate::Memory;

/// The named stores of this process that somebody still uses.
static NAMED: Mutex<Option<HashMap<String, Weak<Memory>>>> = Mutex::new(None);

/// Opens `memory:` (a store of its own, shared with nobody) or `memory:NAME` (one store for all who say the same name in
/// this process, for as long as one of them keeps it).
///
/// ```
/// use leasehold_core::url::StoreUrl;
/// let store = leasehold_memory::open(StoreUrl::parse("memory:orders")?)?;
/// assert_eq!(store.url(), "memory:orders");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
pub fn open(url: StoreUrl) -> Result<Arc<dyn Store>> {
    url.without_login()?;
    let name = url.rest.clone();
    url.finish(&[])?;
    if name.is_empty() {
        return Ok(Memory::new());
    }
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    let named = named.get_or_insert_default();
    named.retain(|_, store| store.strong_count() > 0);
    if let Some(store) = named.get(&name).and_then(Weak::upgrade) {
        return Ok(store);
    }
    let store = Memory::named(&name);
    named.insert(name, Arc::downgrade(&store));
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_the_same_store_and_no_name_is_a_new_one() {
        let open = |url| open(StoreUrl::parse(url).unwrap()).unwrap();
        let same = |a: &Arc<dyn Store>, b: &Arc<dyn Store>| std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b));
        let a = open("memory:a");
        assert!(same(&a, &open("memory:a")));
        assert!(!same(&a, &open("memory:b")));
        let nameless = open("memory:");
        assert!(!same(&nameless, &open("memory:")));
    }

    #[test]
    fn an_unknown_parameter_is_refused() {
        let e = open(StoreUrl::parse("memory:a?lease=3s").unwrap()).err().unwrap();
        assert!(e.to_string().contains("takes none") && !e.to_string().contains("lease"), "{e}");
    }
}
