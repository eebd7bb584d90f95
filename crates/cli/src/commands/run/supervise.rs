//! While the command runs: signals are passed on, the lock is watched, and the command is stopped when it must be.

use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use leasehold::{Lost, MultiGuard};
use rustix::process::Signal;
use tokio::time::{Instant, sleep_until};

use crate::args::OnLost;
use crate::child::{Ended, Group};
use crate::exit::{self, Exit, Failure};
use crate::guard::Guard;
use crate::signals::{self, Signals};
use crate::terminal::Terminal;

use super::plan::Plan;

/// A command that is done sooner than this needs no guard of its own.
const GUARD_AFTER: Duration = Duration::from_millis(1);
/// How often processes left in the group are looked for, where no signal tells of their end: on Linux that is only one whose
/// own parent has left the group.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOKS: Duration = Duration::from_millis(if cfg!(target_os = "linux") { 250 } else { 50 });
/// How long a look at the remaining time may be trusted: timers stand still while the machine sleeps, leases don't.
const LEASE_LOOK: Duration = Duration::from_secs(1);
/// Between the last signal and the end of the lease: the time that the kernel may need to end a group.
const SLACK: Duration = Duration::from_millis(20);
/// See [`Supervisor::lead`].
const KEPT_LEAD: Duration = Duration::from_secs(5);

/// How it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    /// Whether a signal asked us to end, or we stopped the command: then there is nothing to wait for any more.
    pub(crate) cut_short: bool,
    /// The command was ended by Ctrl-C on a terminal that was its own.
    pub(crate) interrupted: bool,
}

/// The command under the lock.
pub(crate) struct Supervisor<'a> {
    plan: &'a Plan,
    group: Group,
    terminal: Option<Terminal>,
    guard: Option<Guard>,
    lifeline: Option<OwnedFd>,
    began: Instant,
    stop: Option<Stop>,
    lost: bool,
    requested: bool,
    told_to_end: bool,
    warned: bool,
    pause: Duration,
    /// How much was left of the lease when most was: about its length.
    fullest: Duration,
}

/// The command is being stopped.
#[derive(Debug, Clone, Copy)]
struct Stop {
    why: Why,
    kill_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Lost,
    MaxHold,
}

impl<'a> Supervisor<'a> {
    /// Takes over a group that was just spawned. `began` is when the lock was got.
    pub(crate) fn over(
        group: Group,
        plan: &'a Plan,
        terminal: Option<Terminal>,
        lifeline: Option<OwnedFd>,
        began: Instant,
    ) -> Self {
        Supervisor {
            plan,
            group,
            terminal,
            guard: None,
            lifeline,
            began,
            stop: None,
            lost: false,
            requested: false,
            told_to_end: false,
            warned: false,
            pause: FIRST_LOOK,
            fullest: Duration::ZERO,
        }
    }

    /// Returns when the whole group is gone.
    pub(crate) async fn until_gone(mut self, held: &MultiGuard, signals: &mut Signals) -> Outcome {
        let spawned = Instant::now();
        let (mut lost, mut requested) = (pin!(held.lost()), pin!(held.release_requested()));
        while !self.group.is_gone() {
            self.fullest = self.fullest.max(held.remaining().unwrap_or_default());
            let guard_at = spawned + GUARD_AFTER;
            let next = self.next_look(held, guard_at);
            tokio::select! {
                biased;
                signal = signals.next() => self.on_signal(signal),
                why = &mut lost, if !self.lost => self.on_lost(why),
                () = &mut requested, if !self.requested => self.on_request(),
                () = sleep_until(next) => self.on_time(held, guard_at),
            }
        }
        self.end(held)
    }

    fn next_look(&self, held: &MultiGuard, guard_at: Instant) -> Instant {
        let now = Instant::now();
        let mut next = now + Duration::from_secs(3_600);
        let mut consider = |moment: Instant| next = next.min(moment);
        if self.guard.is_none() {
            consider(guard_at.max(now + FIRST_LOOK));
        }
        if self.group.ended.is_some() {
            consider(now + self.pause);
        }
        match (self.stop, self.plan.max_hold) {
            (Some(stop), _) => consider(stop.kill_at.max(now + self.pause)),
            (None, Some(most)) => consider(self.began + most),
            (None, None) => {}
        }
        if let Some(left) = self.left_before_stop(held) {
            consider(now + left.min(LEASE_LOOK));
        }
        next
    }

    fn on_time(&mut self, held: &MultiGuard, guard_at: Instant) {
        let now = Instant::now();
        self.pause = (self.pause * 2).min(LATER_LOOKS);
        if self.guard.is_none() && now >= guard_at {
            self.guard = Guard::over(self.group.id, self.lifeline.take());
        }
        if self.group.ended.is_some() {
            self.group.reap();
        }
        if self.left_before_stop(held) == Some(Duration::ZERO) {
            self.lease_ends(held);
        }
        if self.stop.is_none() && self.plan.max_hold.is_some_and(|most| now >= self.began + most) {
            let what = "the command ran into --max-hold and is being stopped";
            Failure::new(Exit::TIMED_OUT, "timed out", what).report(self.plan.format);
            self.stop(Why::MaxHold, now + self.plan.grace);
        }
        if self.stop.is_some_and(|stop| now >= stop.kill_at) {
            self.signal(Signal::KILL);
        }
    }

    /// How long until the command must be told to stop so that it is gone when the lease ends; `None` if the lease has no end
    /// or nothing is to be done about it.
    fn left_before_stop(&self, held: &MultiGuard) -> Option<Duration> {
        if self.stop.is_some_and(|stop| stop.why == Why::Lost)
            || self.lost
            || self.plan.on_lost == OnLost::Ignore
        {
            return None;
        }
        Some(held.remaining()?.saturating_sub(self.lead() + SLACK))
    }

    /// How long before the end of the lease the stop begins. A lease that is kept is renewed after a third of it; if only a third is
    /// left, renewals have failed for a while. Stores have leases of their own length: that of ZooKeeper is a part of its session.
    fn lead(&self) -> Duration {
        match (self.plan.on_lost, self.plan.lease) {
            (OnLost::Term, Some(_)) => self.plan.grace,
            (OnLost::Term, None) => self.plan.grace.min(KEPT_LEAD).min(self.fullest / 3),
            _ => Duration::ZERO,
        }
    }

    /// The lease is about to end: the command has to be gone by then.
    fn lease_ends(&mut self, held: &MultiGuard) {
        self.say_lost("is about to be lost: its lease ends");
        let left = held.remaining().unwrap_or_default().saturating_sub(SLACK);
        self.stop(Why::Lost, Instant::now() + left.min(self.lead()));
    }

    fn on_lost(&mut self, why: Lost) {
        self.lost = true;
        let already = self.stop.is_some_and(|stop| stop.why == Why::Lost);
        let now = Instant::now();
        match self.plan.on_lost {
            OnLost::Ignore => {
                self.warn(
                    "lost",
                    format!("{} was lost ({why}); the command runs on without it", self.lock()),
                );
            }
            // The time that was left is over.
            _ if already => self.signal(Signal::KILL),
            OnLost::Kill => {
                self.say_lost(&format!("was lost ({why})"));
                self.stop(Why::Lost, now);
            }
            OnLost::Term => {
                self.say_lost(&format!("was lost ({why})"));
                self.stop(Why::Lost, now + self.plan.grace);
            }
        }
    }

    /// Somebody asks for the lock back. The lock stays ours until the group is gone, so the command may take its time.
    fn on_request(&mut self) {
        self.requested = true;
        if self.stop.is_some() || self.lost {
            return;
        }
        let what = format!("somebody asks for {} back", self.lock());
        match self.plan.on_request {
            None => self.warn("requested", format!("{what}; the command runs on")),
            Some(signal) => {
                self.warn("requested", format!("{what}; the command is sent signal {}", signal.as_raw()));
                self.signal(signal);
                // A stopped process can't hear it.
                self.signal(Signal::CONT);
            }
        }
    }

    /// Tells the group to end, and kills it at `kill_at`.
    fn stop(&mut self, why: Why, kill_at: Instant) {
        self.stop = Some(Stop { why, kill_at });
        self.pause = FIRST_LOOK;
        if kill_at <= Instant::now() {
            self.signal(Signal::KILL);
        } else {
            self.signal(Signal::TERM);
            // A stopped process can't hear it.
            self.signal(Signal::CONT);
        }
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => {
                if let Some(stopped_by) = self.group.reap() {
                    self.on_stopped(stopped_by);
                }
                self.pause = FIRST_LOOK;
            }
            Signal::TSTP => {
                self.signal(signal);
                signals::stop_ourselves();
                self.signal(Signal::CONT);
            }
            _ => {
                self.told_to_end |= signals::asks_to_end(signal);
                self.signal(signal);
            }
        }
    }

    /// The command was stopped. If it wants the terminal it gets it; if the user pressed Ctrl-Z our job stops with it.
    fn on_stopped(&mut self, by: Signal) {
        let Some(terminal) = &mut self.terminal else { return };
        let wants_terminal = by == Signal::TTIN || by == Signal::TTOU;
        if !terminal.wanted_by(self.group.id, by) {
            if !terminal.is_handed_over() && !wants_terminal {
                return;
            }
            terminal.stop_our_job();
            terminal.hand_to(self.group.id);
        }
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        if let Err(e) = self.group.signal(signal)
            && !std::mem::replace(&mut self.warned, true)
        {
            self.warn("signal", format!("the command could not be sent signal {}: {e}", signal.as_raw()));
        }
    }

    fn warn(&self, kind: &'static str, what: String) {
        if !self.plan.quiet {
            exit::warn(self.plan.format, kind, what);
        }
    }

    fn say_lost(&self, how: &str) {
        let what = format!("{} {how}; the command is being stopped", self.lock());
        Failure::new(Exit::LOST, "lost", what).report(self.plan.format);
    }

    fn lock(&self) -> String {
        match &self.plan.names[..] {
            [only] => format!("the lock {:?}", only.as_str()),
            [first, others @ ..] => format!("the lock {:?} or one of {} more", first.as_str(), others.len()),
            [] => "the lock".to_owned(),
        }
    }

    fn end(mut self, held: &MultiGuard) -> Outcome {
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        let ended = self.group.ended.unwrap_or(Ended::Exited(0));
        let interrupted = ended == Ended::Signalled(Signal::INT.as_raw())
            && self.terminal.as_ref().is_some_and(Terminal::is_handed_over);
        let ignore = self.plan.on_lost == OnLost::Ignore;
        if self.stop.is_none() && !ignore && !held.is_held() {
            let what = format!("{} was lost before the command ended", self.lock());
            Failure::new(Exit::LOST, "lost", what).report(self.plan.format);
            return Outcome { exit: Exit::LOST, cut_short: true, interrupted: false };
        }
        let exit = match self.stop.map(|stop| stop.why) {
            Some(Why::Lost) => Exit::LOST,
            Some(Why::MaxHold) => Exit::TIMED_OUT,
            None => ended.exit(),
        };
        let cut_short = self.stop.is_some() || self.told_to_end;
        Outcome { exit, cut_short, interrupted: interrupted && self.stop.is_none() }
    }
}
