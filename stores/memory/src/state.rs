//! Where queues live, and how one event is applied atomically: under the mutex of the name's shard.

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::clock::wall_micros;
use leasehold_core::name::NameMap;
use leasehold_core::queue::{Effects, Now, Policy, Queue};
use leasehold_core::store::Leave;
use leasehold_core::traits::Death;
use leasehold_core::view::Snapshot;
use leasehold_core::{Clock, Name};

use crate::wake::Wake;

/// Leases end by time; a grant reserves 1024 tokens.
pub const POLICY: Policy = Policy { death: Death::LeaseEnd, block: 1024 };

/// Enough that clients on different names rarely meet.
const SHARDS: usize = 64;

/// How many idle queues a shard keeps.
const IDLE: usize = 64;

/// All queues of a store.
#[derive(Debug)]
pub struct State {
    shards: [Mutex<Shard>; SHARDS],
    clock: Clock,
    /// The wall clock at one moment. Later ones are reckoned from it: one clock to read instead of two, and one that never
    /// goes back.
    epoch: Now,
    pub(crate) wake: Wake,
}

#[derive(Debug, Default)]
struct Shard {
    queues: NameMap<Queue>,
    /// How many queues nobody uses. They are kept for their names' next time, up to a number.
    idle: usize,
    /// The highest token of any queue that was removed: a name that comes back starts above it, whatever the wall
    /// clock did in between. So finished locks leave nothing behind.
    floor: u64,
}

impl Shard {
    /// Does something to the queue of a name, and forgets idle ones when there are many.
    fn visit<T>(&mut self, name: &Name, act: impl FnOnce(&mut Queue) -> T) -> T {
        let (answer, was_idle, idle) = match self.queues.get_mut(name) {
            Some(queue) => {
                let was_idle = queue.is_idle();
                (act(queue), was_idle, queue.is_idle())
            }
            None => {
                // A new one never counted as idle.
                let mut queue = Queue { last: self.floor, ..Queue::default() };
                let (answer, idle) = (act(&mut queue), queue.is_idle());
                self.queues.insert(name.clone(), queue);
                (answer, false, idle)
            }
        };
        self.idle = self.idle + usize::from(idle) - usize::from(was_idle);
        if self.idle > IDLE {
            self.tidy();
        }
        answer
    }

    fn tidy(&mut self) {
        let floor = &mut self.floor;
        self.queues.retain(|_, queue| {
            if queue.is_idle() {
                *floor = queue.last.max(*floor);
            }
            !queue.is_idle()
        });
        self.idle = 0;
    }
}

/// One queue at one moment.
pub struct At<'a> {
    /// The queue.
    pub queue: &'a mut Queue,
    /// The moment.
    pub now: Now,
}

impl State {
    pub(crate) fn new(clock: Clock) -> Self {
        let epoch = Now { tick: clock.now(), wall: wall_micros() };
        State { shards: std::array::from_fn(|_| Mutex::default()), clock, epoch, wake: Wake::default() }
    }

    /// Applies one event to a queue, then (and only then) tells those whom it concerns.
    pub(crate) fn apply<T>(&self, name: &Name, event: impl FnOnce(At<'_>, &mut Effects) -> T) -> T {
        let mut out = Effects::new(self.wake.watchers.any());
        let answer = {
            let now = self.now();
            let mut shard = self.shard(name);
            let answer = shard.visit(name, |queue| event(At { queue, now }, &mut out));
            // Under the mutex, so that watchers see what happens to a lock in the order in which it does.
            if let Some(events) = out.events.take() {
                self.wake.publish(name, now.wall, events);
            }
            answer
        };
        self.wake.deliver(name, out.notes);
        answer
    }

    /// The usual release: of a lock that nobody else wants, while nobody watches.
    pub(crate) fn leave_alone(&self, leave: &Leave) -> bool {
        let name = &leave.name;
        !self.wake.watchers.any()
            && self.shard(name).visit(name, |queue| queue.leave_alone(leave.id, leave.used))
    }

    /// Applies an event to every queue in turn.
    pub(crate) fn everywhere(&self, event: impl Fn(At<'_>, &mut Effects)) {
        for shard in &self.shards {
            let names: Vec<Name> = lock(shard).queues.keys().cloned().collect();
            names.iter().for_each(|name| self.apply(name, &event));
        }
    }

    /// A page of the names in use, in byte order.
    pub(crate) fn page(&self, prefix: &str, after: Option<&Name>, most: usize) -> Vec<Snapshot> {
        let now = self.now();
        let wanted = |name: &Name, queue: &Queue| {
            !queue.is_idle() && name.as_str().starts_with(prefix) && after.is_none_or(|after| name > after)
        };
        let mut page = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            page.extend(
                shard
                    .queues
                    .iter()
                    .filter(|(name, queue)| wanted(name, queue))
                    .map(|(name, q)| q.snapshot(name, now)),
            );
        }
        page.sort_by(|a, b| a.name.cmp(&b.name));
        page.truncate(most);
        page
    }

    pub(crate) fn wipe(&self) {
        for shard in &self.shards {
            *lock(shard) = Shard::default();
        }
    }

    fn now(&self) -> Now {
        let tick = self.clock.now();
        Now { tick, wall: self.epoch.wall + (tick.0 - self.epoch.tick.0) / 1000 }
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, Shard> {
        // High bits: the map inside the shard uses the low ones.
        lock(&self.shards[(name.stable_hash() >> 64) as usize % SHARDS])
    }
}

/// A panic in another thread never leaves a queue half changed: every event on it is plain code without calls outside.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
