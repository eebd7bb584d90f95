//! The keeper: one task per client that renews everything it holds and looks after everything it waits for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::Engine;
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
            // Timers stand still while the machine sleeps, so what is held is looked at once a second at least.
            let longest = if engine.table.clock.is_manual() {
                Duration::from_millis(1)
            } else {
                Duration::from_secs(1)
            };
            nap.min(longest).max(Duration::from_micros(500))
        };
        let _ = tokio::time::timeout(nap, wake.notified()).await;
    }
}
