//! The keeper: one task per client that renews everything it holds and looks after everything it waits for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::Engine;
use crate::local::longest_nap;
use crate::telemetry;

/// Works until the client is closed or dropped.
pub(crate) async fn keep(engine: Weak<Engine>, wake: Arc<tokio::sync::Notify>) {
    loop {
        let nap = {
            let Some(engine) = engine.upgrade().filter(|e| !e.is_closed()) else { return };
            let (actions, lost, next) = engine.table.look();
            if lost > 0 {
                telemetry::all_lost(lost, leasehold_core::view::Lost::Expired);
            }
            engine.carry_out(actions);
            let nap = next.since(engine.now());
            nap.min(longest_nap(&engine.table.clock)).max(Duration::from_micros(500))
        };
        let _ = tokio::time::timeout(nap, wake.notified()).await;
    }
}
