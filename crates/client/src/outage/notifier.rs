//! Calls the listener of outages. It is code of the user, which may block or panic, so it runs on a thread of its own:
//! no renewal waits for it. The thread is started when there is an event and ends when there is none left; events are
//! delivered one by one, in their order.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold_background::{contain_panic, spawn_thread};
use leasehold_core::Error;

use super::{Listener, Outage};
use crate::sync::{Arc, Mutex, lock};

/// An [`Outage`] that waits for the listener.
pub(super) enum OutageEvent {
    Began { error: Error, held: usize, certain_for: Option<Duration> },
    Ended { lasted: Duration, lost: u64 },
}

impl OutageEvent {
    fn as_outage(&self) -> Outage<'_> {
        match self {
            OutageEvent::Began { error, held, certain_for } => {
                Outage::Began { error, held: *held, certain_for: *certain_for }
            }
            OutageEvent::Ended { lasted, lost } => Outage::Ended { lasted: *lasted, lost: *lost },
        }
    }
}

pub(super) struct Notifier(Arc<Shared>);

struct Shared {
    listener: Listener,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<OutageEvent>,
    is_running: bool,
}

impl Notifier {
    pub(super) fn new(listener: Listener) -> Self {
        Notifier(Arc::new(Shared { listener, queue: Mutex::default() }))
    }

    pub(super) fn notify(&self, event: OutageEvent) {
        let mut queue = lock(&self.0.queue);
        queue.events.push_back(event);
        if !queue.is_running {
            let shared = self.0.clone();
            // Without a thread the event is delivered with the next one.
            queue.is_running = spawn_thread("outage-listener", move || shared.deliver()).is_ok();
        }
    }
}

impl Shared {
    fn deliver(&self) {
        while let Some(event) = self.next() {
            contain_panic(|| (self.listener.0)(&event.as_outage()));
        }
    }

    /// The next event. The thread ends if there is none.
    fn next(&self) -> Option<OutageEvent> {
        let mut queue = lock(&self.queue);
        let event = queue.events.pop_front();
        queue.is_running = event.is_some();
        event
    }
}
