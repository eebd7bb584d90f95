//! A session at a store is begun. A store that is not available is tried again, after a growing, jittered pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_background::Background;
use leasehold_core::store::{Presence, Session, Store};
use leasehold_core::{Backoff, Clock, Error, Kind, Result, Retry, Tick};

use crate::engine::{Mail, forked};
use crate::outage::Outages;

/// The pauses between tries. A server that starts, or that has no room for another connection, is not asked all the time.
const RETRY: Backoff = Backoff { first: Duration::from_millis(40), most: Duration::from_secs(1) };

/// How much longer than its own time-out a store may need to say what happened.
const GRACE: Duration = Duration::from_millis(100);

/// What is needed to begin a session.
pub(crate) struct Opening<'a> {
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) background: Background,
    pub(crate) clock: &'a Clock,
    pub(crate) outages: &'a Outages,
}

impl Opening<'_> {
    /// Begins a session within this time. One try has the time that a request to the store may take, even if that is longer.
    pub(crate) async fn within(
        &self,
        time: Duration,
        me: &Presence,
        mail: &Arc<Mail>,
    ) -> Result<Arc<dyn Session>> {
        let began = Instant::now();
        let mut tries = 0;
        let mut said = None;
        loop {
            // Nothing of what it waits for happens in a forked child, and sleeps are over at once there.
            if !self.background.is_alive() {
                return Err(forked());
            }
            let asked = self.clock.now();
            let left = time.max(self.store.timeout() + GRACE).saturating_sub(began.elapsed());
            let error = match self.once(left, me, mail).await {
                Some(Ok(session)) => {
                    self.outages.answered(|| self.clock.now());
                    return Ok(session);
                }
                Some(Err(error)) if error.retry_advice() == Retry::Never => return Err(error),
                Some(Err(error)) => error,
                // What the store said before tells more than that it has said nothing since.
                None => {
                    said.take().unwrap_or_else(|| Error::new(Kind::Unavailable, "the store did not answer"))
                }
            };
            self.outages.failed(&error, asked, self.clock.now(), || (0, Tick::NEVER));
            // The id is random, and each try looks at other bits of it.
            let pause = RETRY.pause(tries, (me.id.0 >> (tries % 96)) as u32);
            self.background.sleep(pause.min(time.saturating_sub(began.elapsed()))).await;
            if began.elapsed() >= time {
                let error = if error.store().is_none() { error.at(self.store.url()) } else { error };
                return Err(error.tried_for(began.elapsed()));
            }
            said = Some(error);
            tries += 1;
        }
    }

    /// One try. `None` if it takes too long: it goes on, and what comes of it is closed. It is the last one then: no other session
    /// has its id.
    async fn once(
        &self,
        time: Duration,
        me: &Presence,
        mail: &Arc<Mail>,
    ) -> Option<Result<Arc<dyn Session>>> {
        let opening = {
            let _context = self.background.enter();
            self.store.clone().open(me.clone(), mail.clone())
        };
        let mut opening = self.background.spawn(opening);
        match self.background.timeout(time, &mut opening).await {
            Some(Ok(opened)) => Some(opened),
            Some(Err(e)) => {
                Some(Err(Error::new(Kind::Store, "the connection to the store panicked").because(e)))
            }
            None if !self.background.is_alive() => None,
            None => {
                self.background.spawn(async move {
                    if let Ok(Ok(session)) = opening.await {
                        let _ = session.close().await;
                    }
                });
                None
            }
        }
    }
}
