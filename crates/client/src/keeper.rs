//! The keeper: one task per client that renews everything it holds and looks after everything it waits for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::Engine;
use crate::telemetry;

/// What is due within it is looked at together.
const SHORTEST_NAP: Duration = Duration::from_micros(500);

/// Works until the client is dropped: one that is closed may have releases on their way, whose limits are kept here.
pub(crate) async fn keep(engine: Weak<Engine>, wake: Arc<tokio::sync::Notify>) {
    loop {
        let nap = {
            let Some(engine) = engine.upgrade() else { return };
            let (actions, lost, next) = engine.table.look();
            if lost > 0 {
                telemetry::all_lost(lost, leasehold_core::view::Lost::Expired, &engine.outages);
            }
            engine.carry_out(actions);
            let next = next.min(engine.outages.look(engine.now()));
            engine.sleep_until(next.max(engine.now() + SHORTEST_NAP))
        };
        tokio::select! {
            () = nap => {}
            () = wake.notified() => {}
        }
    }
}
