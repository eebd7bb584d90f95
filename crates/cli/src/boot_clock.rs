//! The clock that leases are counted on, which also runs while the machine sleeps, and a timer on it. The timers of `poll` and of an async
//! runtime stand still meanwhile, and would tell of the end of a lease late.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// The time since the machine was started.
pub(crate) fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A file that can be read from a moment on.
pub(crate) struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Timer(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Sets it to a moment of [`boot_time`] or to none, instead of the one that it was set to.
    pub(crate) fn set(&self, at: Option<Duration>) {
        // Zero switches it off.
        let at = at.map_or(Duration::ZERO, |at| at.max(Duration::from_nanos(1)));
        let it_value = Timespec { tv_sec: at.as_secs() as _, tv_nsec: at.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        // It fails only for moments that no clock can reach.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once);
    }
}

/// A timer of a runtime.
pub(crate) struct AsyncTimer(AsyncFd<Timer>);

impl AsyncTimer {
    /// Must be called inside a runtime, which watches the timer from then on.
    pub(crate) fn new() -> std::io::Result<Self> {
        // The method that takes the place of the deprecated one needs a newer tokio than this workspace asks for. What is
        // wrong with the old one, a file whose number changes while it is watched, can't happen to a `Timer`.
        #[allow(deprecated)]
        Ok(AsyncTimer(AsyncFd::new(Timer::new()?)?))
    }

    /// Returns at a moment of [`boot_time`], or now and then a little early. Dropping it does no harm.
    pub(crate) async fn sleep_until(&self, at: Duration) {
        self.0.get_ref().set(Some(at));
        match self.0.readable().await {
            Ok(mut ready) => ready.clear_ready(),
            // The runtime is shutting down.
            Err(_) => std::future::pending().await,
        }
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::os::fd::AsRawFd for Timer {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}
