//! Finding the locks in use. A server has no list of them: keys are scanned.

use leasehold_core::view::Snapshot;
use leasehold_core::{Kind, Name, Result};
use redis::Value;

use crate::keys::Key;
use crate::session::{Desk, shown_tag};
use crate::state::{self, unreadable};
use crate::wire::{Call, Slot};

/// How many keys the server looks at in one step.
const STEP: usize = 1000;

/// How many locks are looked at together.
const LOOKS: usize = 64;

impl Desk {
    /// A page of the names in use, in byte order. Costs a scan of all keys of the database, in steps.
    pub(crate) async fn page(
        &self,
        prefix: &str,
        after: Option<&Name>,
        most: usize,
    ) -> Result<Vec<Snapshot>> {
        let wanted =
            |name: &Name| name.as_str().starts_with(prefix) && after.is_none_or(|after| name > after);
        let mut named = Vec::new();
        let mut page = Vec::new();
        let mut hashed = Vec::new();
        for key in self.keys_in_use(prefix).await? {
            match self.store.keys.name(&key) {
                Some(name) if wanted(&name) => named.push((name, key)),
                Some(_) => {}
                // The name is in the records only.
                None => hashed.push((None, key)),
            }
        }
        for keys in hashed.chunks(LOOKS) {
            page.extend(self.looks(keys).await?.into_iter().filter(|seen| wanted(&seen.name)));
        }
        named.sort();
        for keys in named.chunks(LOOKS) {
            if page.len() >= most && page.iter().filter(|seen| seen.name < keys[0].0).count() >= most {
                break;
            }
            let keys: Vec<_> = keys.iter().map(|(name, key)| (Some(name.clone()), key.clone())).collect();
            page.extend(self.looks(&keys).await?);
        }
        page.sort_by(|a, b| a.name.cmp(&b.name));
        page.truncate(most);
        Ok(page)
    }

    async fn looks(&self, keys: &[(Option<Name>, String)]) -> Result<Vec<Snapshot>> {
        let mut found = Vec::new();
        let mut by_node: Vec<_> =
            keys.iter().map(|(name, key)| (self.wire.post(Slot::of(key.as_bytes())), name, key)).collect();
        by_node.sort_by_key(|(post, ..)| post.node);
        for group in by_node.chunk_by(|a, b| a.0.node == b.0.node) {
            let calls = group.iter().map(|(post, _, key)| {
                let key = Key { text: (*key).clone(), slot: Slot::of(key.as_bytes()) };
                self.call(&self.store.scripts.inspect, &key).arg(shown_tag(&post.tag))
            });
            for (answer, (_, name, _)) in self.wire.run_all(calls.collect()).await.into_iter().zip(group) {
                let shown = match answer {
                    // Somebody else's key under our prefix: the others are shown all the same.
                    Err(error) if error.kind() == Kind::Mismatch => continue,
                    answer => state::shown(&answer?, (*name).clone())?,
                };
                if !shown.idle {
                    found.push(shown.snapshot);
                }
            }
        }
        Ok(found)
    }

    async fn keys_in_use(&self, prefix: &str) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        for slot in self.wire.masters().await? {
            for pattern in self.store.keys.patterns(prefix) {
                let mut cursor = "0".to_owned();
                loop {
                    let mut scan = redis::cmd("SCAN");
                    scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
                    let answer = self.wire.run(Call::command(slot, scan)).await?;
                    let (next, found) = redis::from_redis_value::<(String, Vec<String>)>(answer)
                        .map_err(|_| unreadable(&Value::Nil))?;
                    keys.extend(found);
                    cursor = next;
                    if cursor == "0" {
                        break;
                    }
                }
            }
        }
        // A scan may tell a key twice.
        keys.sort();
        keys.dedup();
        Ok(keys)
    }
}
