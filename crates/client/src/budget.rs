//! How long one client may pass a lock around among its own tasks.

use std::time::Duration;

/// How long a lock may pass from task to task inside one client before the store is asked whether others wait.
///
/// If others wait, the client gives the lock back and queues again; if nobody does, the budget starts anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// How many hand-overs at most.
    pub handovers: u32,
    /// For how long at most.
    pub time: Duration,
}

impl Budget {
    /// No local queue: every claim is an entry of its own at the store. The strictest order between clients, at the
    /// price of a trip to the store for each lock and unlock.
    pub const fn off() -> Self {
        Budget { handovers: 0, time: Duration::ZERO }
    }

    /// Whether this is [`Budget::off`].
    pub const fn is_off(self) -> bool {
        self.handovers == 0
    }
}

impl Default for Budget {
    /// 1024 hand-overs or 20 ms: long enough that the trips to the store vanish in the noise, short enough that another
    /// client's wait stays below what a person notices.
    fn default() -> Self {
        Budget { handovers: 1024, time: Duration::from_millis(20) }
    }
}
