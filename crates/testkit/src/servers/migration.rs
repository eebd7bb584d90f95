//! Moving a slot of a cluster from one master to another, step by step.

use super::cluster::{Cluster, id};
use super::poll::until;
use super::redis::Redis;

/// How many keys are moved at once, and how long that may take.
const KEYS: &str = "100";
const LIMIT_MS: &str = "5000";

/// A slot on its way. Dropped in the middle, it stays there.
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: &'a Redis,
    to: &'a Redis,
}

impl<'a> Migration<'a> {
    pub(crate) fn begin(cluster: &'a Cluster, slot: u16, to: u16) -> Migration<'a> {
        let (from, to) = (cluster.owner_of_slot(slot), cluster.node(to));
        let migration = Migration { cluster, slot: slot.to_string(), from, to };
        // The new owner first: clients are sent there as soon as the old one knows.
        migration.set(to, &["IMPORTING", &id(from)]);
        migration.set(from, &["MIGRATING", &id(to)]);
        migration
    }

    /// The old owner.
    pub fn from(&self) -> &Redis {
        self.from
    }

    /// The new owner.
    pub fn to(&self) -> &Redis {
        self.to
    }

    /// Moves one key.
    pub fn move_key(&self, key: &str) {
        self.move_some(&[key]);
    }

    /// Moves all keys that are there now.
    pub fn move_keys(&self) {
        loop {
            let keys = self.from.cli(&["CLUSTER", "GETKEYSINSLOT", &self.slot, KEYS]);
            let keys: Vec<&str> = keys.lines().collect();
            if keys.is_empty() {
                return;
            }
            self.move_some(&keys);
        }
    }

    /// Moves all keys, gives the slot to its new owner, and waits until all nodes know.
    pub fn finish(self) {
        self.move_keys();
        let owner = id(self.to);
        self.set(self.to, &["NODE", &owner]);
        // A client may have made a key since: the old owner then refuses to let go.
        until("the old owner lets go", || {
            self.move_keys();
            let reply = self.from.ask(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &owner]);
            reply.map_err(|e| e.to_string()).and_then(|reply| match reply.to_string() {
                ok if ok == "OK" => Ok(()),
                other => Err(other),
            })
        });
        self.cluster.wait_until_ready();
    }

    /// Gives up: keys that were moved come back, and the slot stays where it was.
    pub fn abandon(self) {
        // While a slot is leaving, its owner takes no new key in.
        self.set(self.from, &["STABLE"]);
        Migration { cluster: self.cluster, slot: self.slot.clone(), from: self.to, to: self.from }
            .move_keys();
        self.set(self.to, &["STABLE"]);
    }

    fn move_some(&self, keys: &[&str]) {
        let port = self.to.port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", LIMIT_MS];
        if let Some(password) = self.to.password() {
            words.extend(["AUTH", password]);
        }
        words.push("KEYS");
        words.extend(keys);
        self.from.cli(&words);
    }

    fn set(&self, node: &Redis, state: &[&str]) {
        let mut words = vec!["CLUSTER", "SETSLOT", &self.slot];
        words.extend(state);
        node.cli(&words);
    }
}
