//! Those who watch a store from this process, for stores that bring events to it: each has a backlog, and is told when
//! it missed something.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::view::{Event, Events};
use crate::{Error, Kind, Result, Retry};

/// How many events a watcher may be behind before it misses some.
const BACKLOG: usize = 4096;

/// Those who watch.
#[derive(Debug, Default)]
pub struct Watchers {
    list: Mutex<Vec<Weak<Watcher>>>,
    count: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Watcher {
    prefix: String,
    backlog: Mutex<Backlog>,
}

#[derive(Debug, Default)]
struct Backlog {
    events: VecDeque<Event>,
    /// What went wrong since the last event that was read.
    trouble: Option<Error>,
    missed: u64,
    waker: Option<Waker>,
}

impl Watchers {
    /// Whether anybody watches. Cheap, because it may be asked on every event.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// What happens from now on to names that start with `prefix`. Dropping the stream ends it.
    pub fn watch(&self, prefix: String) -> Events {
        let watcher = Arc::new(Watcher { prefix, backlog: Mutex::default() });
        lock(&self.list).push(Arc::downgrade(&watcher));
        self.count.fetch_add(1, Ordering::Relaxed);
        Box::pin(Watching { watcher, count: self.count.clone() })
    }

    /// Tells those whom it concerns. Never blocks: a watcher that is too slow misses events, and is told how many.
    pub fn publish(&self, event: &Event) {
        self.each(|watcher| {
            if !event.name.as_str().starts_with(&watcher.prefix) {
                return None;
            }
            let mut backlog = lock(&watcher.backlog);
            if backlog.events.len() < BACKLOG {
                backlog.events.push_back(event.clone());
            } else {
                backlog.missed += 1;
            }
            backlog.waker.take()
        });
    }

    /// Tells all watchers that they may have missed something, and why.
    pub fn interrupted(&self, why: &Error) {
        self.each(|watcher| {
            let mut backlog = lock(&watcher.backlog);
            backlog.trouble = Some(why.clone());
            backlog.waker.take()
        });
    }

    /// Tells all watchers that what their events come by was not there for a while.
    pub fn reconnected(&self) {
        let what = "the connection for events was interrupted, and some may have been missed";
        self.interrupted(&Error::new(Kind::Unavailable, what).retry(Retry::Later));
    }

    /// Wakes after the list was let go: a waker may do anything.
    fn each(&self, act: impl Fn(&Watcher) -> Option<Waker>) {
        let mut wakers = Vec::new();
        lock(&self.list).retain(|watcher| {
            let Some(watcher) = watcher.upgrade() else { return false };
            wakers.extend(act(&watcher));
            true
        });
        wakers.into_iter().for_each(Waker::wake);
    }
}

struct Watching {
    watcher: Arc<Watcher>,
    count: Arc<AtomicUsize>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stream for Watching {
    type Item = Result<Event>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut backlog = lock(&self.watcher.backlog);
        let missed = std::mem::take(&mut backlog.missed);
        if missed > 0 {
            let what = format!("{missed} events were missed because the watcher was too slow");
            return Poll::Ready(Some(Err(Error::new(Kind::Unavailable, what).retry(Retry::Later))));
        }
        if let Some(event) = backlog.events.pop_front() {
            return Poll::Ready(Some(Ok(event)));
        }
        if let Some(trouble) = backlog.trouble.take() {
            return Poll::Ready(Some(Err(trouble)));
        }
        backlog.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Nothing that is locked here can panic half-way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Happened;
    use crate::{Label, Name, SessionId, Want};

    fn event(name: &str) -> Event {
        Event {
            at: 1,
            name: Name::new(name).unwrap(),
            what: Happened::Queued,
            label: Label::new("x"),
            session: SessionId(1),
            want: Want::Exclusive,
            token: None,
        }
    }

    fn next(events: &mut Events) -> Poll<Option<Result<Event>>> {
        events.as_mut().poll_next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_watcher_gets_its_prefix_only_and_counts_while_it_lives() {
        let watchers = Watchers::default();
        assert!(!watchers.any());
        let mut events = watchers.watch("a/".into());
        assert!(watchers.any());
        watchers.publish(&event("b/1"));
        watchers.publish(&event("a/1"));
        assert!(matches!(next(&mut events), Poll::Ready(Some(Ok(e))) if e.name.as_str() == "a/1"));
        assert!(next(&mut events).is_pending());
        drop(events);
        assert!(!watchers.any());
    }

    #[test]
    fn a_slow_watcher_is_told_how_many_it_missed() {
        let watchers = Watchers::default();
        let mut events = watchers.watch(String::new());
        (0..BACKLOG + 3).for_each(|_| watchers.publish(&event("a")));
        assert!(matches!(next(&mut events), Poll::Ready(Some(Err(e))) if e.to_string().contains("3 events")));
        assert!(matches!(next(&mut events), Poll::Ready(Some(Ok(_)))));
    }
}
