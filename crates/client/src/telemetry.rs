//! What the client tells `tracing` and `metrics`. The table of names is in the crate's documentation ([`crate::docs`]).
//! Subscribers and recorders are code of the user: one that panics has the panic end here, and no renewal or release
//! suffers from it.

use std::time::Duration;

use leasehold_background::contain_panic;
use leasehold_core::store::Renewed;
use leasehold_core::view::Lost;
use leasehold_core::{Name, Result, Tick, Want};

use crate::guard::Guard;
use crate::local::Due;
use crate::local::lane::Released;
use crate::outage::Outages;

pub(crate) fn acquired(guard: &Guard, asked: Tick) {
    contain_panic(|| {
        let waited = guard.held().since().since(asked);
        metrics::histogram!("leasehold_wait_seconds").record(waited.as_secs_f64());
        metrics::counter!("leasehold_acquired_total").increment(1);
        tracing::debug!(target: "leasehold", name = guard.name(), token = guard.token().get(), ?waited, "acquired");
    });
}

pub(crate) fn busy(want: Want) {
    contain_panic(|| {
        metrics::counter!("leasehold_busy_total").increment(1);
        tracing::trace!(target: "leasehold", want = want.as_str(), "busy");
    });
}

pub(crate) fn held_for(time: Duration) {
    contain_panic(|| {
        metrics::histogram!("leasehold_hold_seconds").record(time.as_secs_f64());
    });
}

pub(crate) fn released(how: &Released) {
    contain_panic(|| {
        match how {
            Released::Kept => metrics::counter!("leasehold_handoffs_total", "to" => "local").increment(1),
            Released::Leave { .. } => {
                metrics::counter!("leasehold_handoffs_total", "to" => "store").increment(1)
            }
            Released::NotHeld => {}
        }
        tracing::trace!(target: "leasehold", ?how, "released");
    });
}

pub(crate) fn renewed(due: &Due, answer: &Result<Renewed>) {
    contain_panic(|| match answer {
        Ok(_) => metrics::counter!("leasehold_renewals_total", "result" => "ok").increment(1),
        Err(error) => {
            metrics::counter!("leasehold_renewals_total", "result" => "error").increment(1);
            tracing::debug!(target: "leasehold", name = %due.key.name, %error, "a renewal failed and is tried again");
        }
    });
}

/// Held locks were lost together. The end of an outage tells of those that were lost in it.
pub(crate) fn lost(lost: &[(&Name, Lost)], outages: &Outages) {
    contain_panic(|| {
        for (name, why) in lost {
            tracing::debug!(target: "leasehold", %name, %why, "a held lock was lost");
        }
        let Some((name, why)) = lost.first() else { return };
        let count = lost.len() as u64;
        metrics::counter!("leasehold_lost_total").increment(count);
        if outages.lost(count) {
            return;
        }
        match count {
            1 => {
                tracing::warn!(target: "leasehold", store = outages.url(), %name, %why, "a held lock was lost")
            }
            _ => {
                let store = outages.url();
                tracing::warn!(target: "leasehold", store, count, first = %name, %why, "held locks were lost");
            }
        }
    });
}

/// The same for all that a client held, or some that it did not look at one by one.
pub(crate) fn all_lost(count: u64, why: Lost, outages: &Outages) {
    contain_panic(|| {
        metrics::counter!("leasehold_lost_total").increment(count);
        if !outages.lost(count) {
            tracing::warn!(target: "leasehold", store = outages.url(), count, %why, "held locks were lost");
        }
    });
}
