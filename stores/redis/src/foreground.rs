//! Connections on the runtimes of those who lock.
//!
//! A session lives on the background thread of the process. A claim that went there and back would cost two hops between
//! threads, about as much as the round trip to a server on the same network. So a runtime in which locks are taken gets one connection
//! of its own, for claims and releases that a task there waits for. Whatever must go on when that runtime stands still or ends (renewals,
//! notifications, releases of dropped guards, second tries) uses the connections of the background thread.
//!
//! Only for a server without demanded replicas: the proof that replicas have a grant belongs to the connection it came by, and a
//! cluster or a failover would need all of the routing twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};

use crate::config::Place;
use crate::session::Desk;

/// The runtimes in which this session has a connection.
#[derive(Default)]
pub(crate) struct Foreground(Mutex<Vec<(Id, Arc<Desk>)>>);

impl Foreground {
    fn lock(&self) -> MutexGuard<'_, Vec<(Id, Arc<Desk>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session for tasks of the current runtime. `None` outside of a runtime, on the background thread, and for servers that
    /// one more connection can't serve.
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
