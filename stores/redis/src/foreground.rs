//! Connections on the runtimes of those who lock.
//!
//! A session lives on the background thread of the process. A claim that went there and back would cost two hops between
//! threads, about as much as the round trip to a server on the same network. So a runtime in which locks are taken gets one connection
//! of its own, for claims and releases that a task there waits for. Whatever must go on when that runtime stands still or ends (renewals,
//! notifications, releases of dropped guards, second tries) uses the connections of the background thread.
//!
//! Only for a server without demanded replicas: the proof that replicas have a grant belongs to the connection it came by, and a
//! cluster or a failover would need all of the routing twice.
//!
//! And only on a runtime with timers and an I/O driver. Tokio tells nobody whether they are there: it panics where one is
//! missing. So that is tried out once for each runtime, where a panic is caught, and not again. A program in which panics
//! abort dies of it, so there a runtime must have both.

use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::runtime::{Handle, Id};

use crate::config::Place;
use crate::session::Desk;

/// The runtimes that were found without drivers, by whichever session: the program's hook sees each panic, and one is enough.
static BARE: Mutex<Vec<Id>> = Mutex::new(Vec::new());

/// How many of those are remembered, the newest. A runtime does not say when it ends.
const BARE_KNOWN: usize = 1024;

/// The runtimes in which this session has a connection.
#[derive(Default)]
pub(crate) struct Foreground(Mutex<Vec<(Id, Arc<Desk>)>>);

impl Foreground {
    fn lock(&self) -> MutexGuard<'_, Vec<(Id, Arc<Desk>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session for tasks of the current runtime. `None` outside of a runtime, on the background thread, on a runtime
    /// without drivers, and for servers that one more connection can't serve.
    pub(crate) fn desk(&self, session: &Desk, background: &Handle) -> Option<Arc<Desk>> {
        let Place::One(server) = &session.store.config.place else { return None };
        let runtime = Handle::try_current().ok()?;
        let id = runtime.id();
        if id == background.id() || session.store.config.replicas() > 0 {
            return None;
        }
        let mut desks = self.lock();
        if let Some((_, desk)) = desks.iter().find(|(of, _)| *of == id) {
            return Some(desk.clone());
        }
        if is_bare(id) {
            return None;
        }
        desks.retain(|(_, desk)| desk.is_alive());
        let desk = Arc::new(session.on_this_runtime(runtime, server));
        desks.push((id, desk.clone()));
        Some(desk)
    }

    /// All of them, for the last time.
    pub(crate) fn take(&self) -> Vec<Arc<Desk>> {
        self.lock().drain(..).map(|(_, desk)| desk).collect()
    }
}

/// Whether the current runtime, which is this one, is without timers or without an I/O driver.
fn is_bare(id: Id) -> bool {
    let mut bare = BARE.lock().unwrap_or_else(PoisonError::into_inner);
    if bare.contains(&id) {
        return true;
    }
    if catch_unwind(use_drivers).is_ok() {
        return false;
    }
    tracing::debug!("this runtime has no timers or no I/O driver: the background thread takes its locks");
    if bare.len() == BARE_KNOWN {
        bare.remove(0);
    }
    bare.push(id);
    true
}

/// Panics where the current runtime is without timers or without an I/O driver.
fn use_drivers() {
    drop(tokio::time::sleep(Duration::ZERO));
    // Without a descriptor to spare nothing is learned. The connection itself fails then, and says so.
    drop(UnixDatagram::unbound());
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_runtime_is_bare_if_it_lacks_timers_or_an_io_driver() {
        for (timers, io) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut builder = Builder::new_current_thread();
            if timers {
                builder.enable_time();
            }
            if io {
                builder.enable_io();
            }
            let runtime = builder.build().unwrap();
            let (id, bare) = (runtime.handle().id(), !timers || !io);
            for _ in 0..2 {
                assert_eq!(runtime.block_on(async { is_bare(id) }), bare, "timers: {timers}, io: {io}");
            }
            assert_eq!(BARE.lock().unwrap().contains(&id), bare);
        }
    }
}
