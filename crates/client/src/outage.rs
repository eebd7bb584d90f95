//! The outages of a store as its client sees them. One line in the log when one begins and one when it ends, however many locks and requests
//! it concerns; what happens to each of them is logged at level `DEBUG`.

mod notifier;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_background::contain_panic;
use leasehold_core::{Error, Tick};

use self::notifier::{Notifier, OutageEvent};
use crate::sync::{Arc, Mutex, lock};

/// A failure that is over sooner is not worth a line: a connection was lost, and the next one is good.
const BLIP: Duration = Duration::from_millis(250);

/// For so long at least the store must have answered everything before an outage is over: one that comes and goes is one.
const CALM: Duration = Duration::from_secs(1);

/// News of an outage, see [`ClientBuilder::on_outage`](crate::ClientBuilder::on_outage).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Outage<'a> {
    /// The store has not done what it was asked for a moment, and is asked again and again.
    #[non_exhaustive]
    Began {
        /// What it, or the way to it, said last.
        error: &'a Error,
        /// How many locks this client holds.
        held: usize,
        /// How long all of them are certainly held without being renewed. `None` if none is held, or if they end only with the session.
        certain_for: Option<Duration>,
    },
    /// The store has answered everything again for a moment.
    #[non_exhaustive]
    Ended {
        /// From the first request that failed to the first answer after the last one that did.
        lasted: Duration,
        /// How many held locks were lost by it.
        lost: u64,
    },
}

/// Who is told.
#[derive(Clone)]
pub(crate) struct Listener(pub(crate) Arc<dyn Fn(&Outage<'_>) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

pub(crate) struct Outages {
    url: String,
    calm: Duration,
    notifier: Option<Notifier>,
    /// Whether there is one: a look at it costs next to nothing.
    any: AtomicBool,
    current: Mutex<Option<Current>>,
}

struct Current {
    began: Tick,
    last_failure: Tick,
    /// The first answer since.
    answered: Option<Tick>,
    /// Whether it was long enough to be told.
    told: bool,
    lost: u64,
}

impl Outages {
    /// `timeout` is how long a request to the store may take.
    pub(crate) fn new(url: String, timeout: Duration, listener: Option<Listener>) -> Self {
        let (any, current) = (AtomicBool::new(false), Mutex::new(None));
        Outages { url, calm: timeout.max(CALM), notifier: listener.map(Notifier::new), any, current }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A request that was sent at `asked` failed for a reason that passes by itself. `held` counts the locks that are held, and tells until
    /// when all of them are certain.
    pub(crate) fn failed(&self, error: &Error, asked: Tick, now: Tick, held: impl FnOnce() -> (usize, Tick)) {
        {
            let mut current = lock(&self.current);
            let new = || Current { began: asked, last_failure: now, answered: None, told: false, lost: 0 };
            let current = current.get_or_insert_with(new);
            self.any.store(true, Ordering::Relaxed);
            (current.last_failure, current.answered) = (now, None);
            if current.told || now.since(current.began) < BLIP {
                return;
            }
            current.told = true;
        }
        let (held, until) = held();
        let certain_for = Some(until.since(now)).filter(|_| until != Tick::NEVER);
        contain_panic(|| {
            tracing::warn!(
                target: "leasehold", store = %self.url, %error, held, ?certain_for,
                "the store is not available, and is asked again and again"
            );
        });
        self.tell(|| OutageEvent::Began { error: error.clone(), held, certain_for });
    }

    /// A request was answered.
    pub(crate) fn answered(&self, now: impl FnOnce() -> Tick) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut current = lock(&self.current);
        match &mut *current {
            Some(outage) if outage.told => outage.answered = outage.answered.or_else(|| Some(now())),
            _ => self.forget(&mut current),
        }
    }

    fn forget(&self, current: &mut Option<Current>) {
        *current = None;
        self.any.store(false, Ordering::Relaxed);
    }

    /// Held locks were lost. Tells whether an outage is on, whose end will tell of it.
    pub(crate) fn lost(&self, count: u64) -> bool {
        let mut current = lock(&self.current);
        let Some(outage) = &mut *current else { return false };
        outage.lost += count;
        outage.told
    }

    /// Whether an outage is on that was told of.
    pub(crate) fn is_told(&self) -> bool {
        lock(&self.current).as_ref().is_some_and(|outage| outage.told)
    }

    /// Looks whether an outage is over, and tells when to look again.
    pub(crate) fn look(&self, now: Tick) -> Tick {
        if !self.any.load(Ordering::Relaxed) {
            return Tick::NEVER;
        }
        let (lasted, lost) = {
            let mut current = lock(&self.current);
            let Some(Current { began, answered: Some(answered), lost, .. }) = *current else {
                return now + self.calm;
            };
            let over = answered + self.calm;
            if now < over {
                return over;
            }
            self.forget(&mut current);
            (answered.since(began), lost)
        };
        contain_panic(|| {
            if lost > 0 {
                tracing::warn!(target: "leasehold", store = %self.url, ?lasted, lost, "the store is available again");
            } else {
                tracing::info!(target: "leasehold", store = %self.url, ?lasted, lost, "the store is available again");
            }
        });
        self.tell(|| OutageEvent::Ended { lasted, lost });
        Tick::NEVER
    }

    fn tell(&self, event: impl FnOnce() -> OutageEvent) {
        if let Some(notifier) = &self.notifier {
            notifier.notify(event());
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use leasehold_core::Kind;

    use super::*;

    const START: Tick = Tick(1_000_000_000);

    fn told() -> (Outages, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tell = seen.clone();
        let listener = Listener(Arc::new(move |outage| {
            lock(&tell).push(match outage {
                Outage::Began { held, certain_for, .. } => format!("began {held} {certain_for:?}"),
                Outage::Ended { lasted, lost } => format!("ended {lasted:?} {lost}"),
            });
        }));
        (Outages::new("x:".into(), CALM, Some(listener)), seen)
    }

    /// The listener has a thread of its own.
    fn expect(seen: &Mutex<Vec<String>>, events: &[&str]) {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while *lock(seen) != events {
            assert!(std::time::Instant::now() < deadline, "{:?} instead of {events:?}", lock(seen));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn fail(outages: &Outages, asked: Tick, now: Tick) {
        let error = Error::new(Kind::Unavailable, "it is away");
        outages.failed(&error, asked, now, || (7, now + CALM * 3));
    }

    #[test]
    fn an_outage_is_told_once_when_it_begins_and_once_when_it_is_over() {
        let (outages, seen) = told();
        for n in 0..100 {
            fail(&outages, START, START + Duration::from_millis(100 * n));
        }
        expect(&seen, &["began 7 Some(3s)"]);
        assert!(outages.lost(3));
        let back = START + Duration::from_secs(10);
        outages.answered(|| back);
        outages.answered(|| back + CALM / 2);
        assert!(outages.look(back) > back);
        outages.look(back + CALM);
        expect(&seen, &["began 7 Some(3s)", "ended 10s 3"]);
        assert!(!outages.lost(1));
        assert_eq!(outages.look(back + CALM * 2), Tick::NEVER);
    }

    #[test]
    fn one_that_comes_and_goes_is_one() {
        let (outages, seen) = told();
        for n in 0..20 {
            let now = START + CALM * n;
            fail(&outages, now, now + CALM / 2);
            outages.answered(|| now + CALM / 2);
            outages.look(now + CALM);
        }
        // Events come in their order: whatever was told before would be seen before the end.
        outages.look(START + CALM * 40);
        expect(&seen, &["began 7 Some(3s)", "ended 19.5s 0"]);
    }

    #[test]
    fn a_lost_connection_is_no_outage() {
        let (outages, seen) = told();
        for n in 0..20 {
            let now = START + CALM * n;
            fail(&outages, now, now + BLIP / 2);
            outages.answered(|| now + BLIP);
            outages.look(now + CALM);
        }
        // Events come in their order: whatever was told before would be seen before this one.
        fail(&outages, START, START + BLIP);
        expect(&seen, &["began 7 Some(3s)"]);
    }
}
