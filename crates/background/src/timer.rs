//! Timers on the clock of leases, which also runs while the machine sleeps.
//!
//! The timers of an async runtime stand still during a suspend: a lease that ended meanwhile would be noticed late. Here one
//! `timerfd` on `CLOCK_BOOTTIME` serves all sleeps of the process.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use leasehold_core::{Clock, Tick};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::{contain_panic, fork};

pub(crate) struct Timers(Arc<Shared>);

struct Shared {
    /// Which process the timers belong to. In a forked child the mutex may be locked for ever.
    generation: u32,
    fd: AsyncFd<OwnedFd>,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    /// By deadline; the number tells those of one moment apart.
    wakers: BTreeMap<(Tick, u64), Waker>,
    last_number: u64,
    /// The moment that the timer is set to.
    armed: Option<Tick>,
}

impl Timers {
    /// Must be called inside a runtime, which watches the timer from then on.
    pub(crate) fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        // The method that takes the place of the deprecated one needs a newer tokio than this workspace asks for. What is
        // wrong with the old one, a file whose number changes while it is watched, can't happen to an `OwnedFd`.
        #[allow(deprecated)]
        let fd = AsyncFd::new(fd)?;
        let shared = Arc::new(Shared { generation: fork::generation(), fd, sleepers: Mutex::default() });
        tokio::spawn(wake_sleepers(shared.clone()));
        Ok(Timers(shared))
    }

    pub(crate) fn sleep_until(&self, deadline: Tick) -> Sleep {
        Sleep { shared: self.0.clone(), deadline, number: None }
    }
}

async fn wake_sleepers(shared: Arc<Shared>) {
    loop {
        let Ok(mut ready) = shared.fd.readable().await else { return };
        let _ = rustix::io::read(shared.fd.get_ref(), &mut [0_u8; 8]);
        ready.clear_ready();
        let due = {
            let mut sleepers = shared.lock();
            sleepers.armed = None;
            let later = sleepers.wakers.split_off(&(Clock::system().now(), u64::MAX));
            let due = std::mem::replace(&mut sleepers.wakers, later);
            shared.arm(&mut sleepers);
            due
        };
        for waker in due.into_values() {
            contain_panic(|| waker.wake());
        }
    }
}

impl Shared {
    fn is_alive(&self) -> bool {
        self.generation == fork::generation()
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the timer to the earliest deadline, unless it is set to one as early.
    fn arm(&self, sleepers: &mut Sleepers) {
        let Some(&(first, _)) = sleepers.wakers.keys().next() else { return };
        if sleepers.armed.is_some_and(|armed| armed <= first) {
            return;
        }
        sleepers.armed = Some(first);
        // Zero would switch the timer off.
        let nanos = first.0.max(1);
        let it_value =
            Timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // It fails only for moments that no clock can reach.
        let _ = timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &once);
    }
}

/// Resolves at a moment of the clock of leases. At once in a forked child, where nothing runs that could wake it.
///
/// # Cancel safety
///
/// Dropping it forgets the timer.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Sleep {
    shared: Arc<Shared>,
    deadline: Tick,
    /// Set while it is among the sleepers.
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.shared.is_alive() || self.deadline <= Clock::system().now() {
            return Poll::Ready(());
        }
        if self.deadline == Tick::NEVER {
            return Poll::Pending;
        }
        let shared = self.shared.clone();
        let mut sleepers = shared.lock();
        let number = *self.number.get_or_insert_with(|| {
            sleepers.last_number += 1;
            sleepers.last_number
        });
        sleepers.wakers.insert((self.deadline, number), cx.waker().clone());
        shared.arm(&mut sleepers);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number.filter(|_| self.shared.is_alive()) {
            self.shared.lock().wakers.remove(&(self.deadline, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Background, sys};

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn sleeps_end_in_their_order_and_a_dropped_one_is_forgotten() {
        let background = Background::get().unwrap();
        let now = Clock::system().now();
        let sleep = |millis: u64| background.sleep_until(now + Duration::from_millis(millis));
        let (late, early, dropped) = (sleep(40), sleep(20), sleep(3_600_000));
        let shared = dropped.shared.clone();
        let ended = background.runtime().block_on(async {
            let mut dropped = Box::pin(dropped);
            assert!(std::future::poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx).is_pending())).await);
            drop(dropped);
            let order = Mutex::new(Vec::new());
            let note = |what| order.lock().unwrap().push((what, Clock::system().now().since(now)));
            tokio::join!(
                async {
                    late.await;
                    note("late")
                },
                async {
                    early.await;
                    note("early")
                }
            );
            order.into_inner().unwrap()
        });
        assert_eq!(ended.iter().map(|(what, _)| *what).collect::<Vec<_>>(), ["early", "late"]);
        assert!(ended[0].1 >= Duration::from_millis(20) && ended[1].1 >= Duration::from_millis(40));
        assert!(
            shared.lock().wakers.keys().all(|(deadline, _)| deadline.since(now) < Duration::from_secs(3_000))
        );
    }

    #[test]
    fn a_waker_that_panics_stops_no_other_timer() {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("the waker of the test panics");
            }
        }
        let background = Background::get().unwrap();
        let waker = Waker::from(Arc::new(Panics));
        let mut first = Box::pin(background.sleep(Duration::from_millis(5)));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let (tell, told) = std::sync::mpsc::channel();
        let second = background.sleep(Duration::from_millis(50));
        std::thread::spawn(move || {
            background.runtime().block_on(second);
            let _ = tell.send(());
        });
        told.recv_timeout(Duration::from_secs(20)).expect("the timer goes on");
    }

    #[test]
    fn a_sleep_ends_at_once_in_a_forked_child_whoever_holds_the_mutex() {
        let background = Background::get().unwrap();
        let (mut dropped, mut polled) = (Box::pin(background.sleep(LONG)), Box::pin(background.sleep(LONG)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(dropped.as_mut().poll(&mut cx).is_pending() && polled.as_mut().poll(&mut cx).is_pending());
        let shared = dropped.shared.clone();
        // As another thread may at the moment of the fork.
        let locked = shared.lock();
        let mut dropped = Some(dropped);
        let right = sys::is_true_in_forked_child(|| {
            drop(dropped.take());
            let made_here = Box::pin(background.sleep(LONG)).as_mut().poll(&mut cx);
            polled.as_mut().poll(&mut cx).is_ready() && made_here.is_ready()
        });
        drop(locked);
        assert!(right, "a sleep waits for a thread that did not come along");
    }

    /// A suspend can't be brought about in a test. What makes the timer count it is the clock that the kernel runs it on.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_timer_runs_on_the_clock_that_counts_suspend() {
        use std::os::fd::AsRawFd;
        let background = Background::get().unwrap();
        let fd = background.thread.timers.0.fd.get_ref().as_raw_fd();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        let clock = info.lines().find_map(|line| line.strip_prefix("clockid:")).unwrap();
        const CLOCK_BOOTTIME: &str = "7";
        assert_eq!(clock.trim(), CLOCK_BOOTTIME);
    }
}
