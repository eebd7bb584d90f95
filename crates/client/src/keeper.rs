//! The keeper: one task per client that renews everything it holds and looks after everything it waits for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_background::contain_panic;
use leasehold_core::Tick;
use leasehold_core::view::Lost;

use crate::engine::Engine;
use crate::telemetry;

/// What is due within it is looked at together.
const SHORTEST_NAP: Duration = Duration::from_micros(500);

/// How long the keeper waits after a round that panicked.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Works until the client is dropped: one that is closed may have releases on their way, whose limits are kept here. A
/// round that panics, in code of the user that is called in it, does not end the keeper.
pub(crate) async fn keep(engine: Weak<Engine>, wake: Arc<tokio::sync::Notify>) {
    loop {
        let nap = {
            let Some(engine) = engine.upgrade() else { return };
            let mut next = engine.now() + RETRY_DELAY;
            contain_panic(|| next = look(&engine));
            engine.sleep_until(next.max(engine.now() + SHORTEST_NAP))
        };
        tokio::select! {
            () = nap => {}
            () = wake.notified() => {}
        }
    }
}

/// One round. Tells when the next one is due.
fn look(engine: &Arc<Engine>) -> Tick {
    let (actions, lost, next) = engine.table.look();
    // Carried out before anything is told: the actions are not repeated.
    engine.carry_out(actions);
    if lost > 0 {
        telemetry::all_lost(lost, Lost::Expired, &engine.outages);
    }
    next.min(engine.outages.look(engine.now()))
}
