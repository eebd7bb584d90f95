//! While the command runs: signals are passed on, the lock is watched, and the command is stopped when it must be.

use std::pin::pin;
use std::time::Duration;

use leasehold::{Lost, MultiGuard};
use rustix::process::Signal;

use crate::args::OnLost;
use crate::boot_clock::{AsyncTimer, boot_time};
use crate::child::{Ended, Group};
use crate::exit::{self, Exit, Failure};
use crate::guard::Deadlines;
use crate::output;
use crate::signals::{self, Caught, Sender, Signals};

use super::plan::Plan;

/// How long what a command leaves behind may keep the lock before it is said.
const SAY_LEFT_BEHIND: Duration = Duration::from_secs(1);
/// How often what is being killed is looked at.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOKS: Duration = Duration::from_millis(250);
/// Between the guard's last signal and the end of the lease: the time that the kernel may need to end a group.
const GUARD_SLACK: Duration = Duration::from_millis(20);
/// The same for our last signal: a moment more, as the guard acts only where we don't.
const SLACK: Duration = Duration::from_millis(40);
/// How much of what a store is certain of at a time the stop of a command may take: a tenth. See [`Supervisor::lead`].
const LEAD: u32 = 10;
/// How much later than we the guard tells the command to stop, if it has to: it acts only where we don't. On a machine
/// that is busy we may be late.
const GUARD_DELAY: Duration = Duration::from_millis(500);

/// How it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    /// Whether a signal asked us to end, or we stopped the command: then there is nothing to wait for any more.
    pub(crate) cut_short: bool,
    /// The command was ended by Ctrl-C on a terminal.
    pub(crate) interrupted: bool,
}

/// The command under the lock. All moments are of [`boot_time`].
pub(crate) struct Supervisor<'a> {
    plan: &'a Plan,
    group: Group,
    began: Duration,
    stop: Option<Stop>,
    lost: bool,
    requested: bool,
    told_to_end: bool,
    warned: bool,
    /// Whether the command was sent SIGKILL.
    killed: bool,
    /// What came around the start of the command, and whether that has missed it.
    early: Vec<(Caught, bool)>,
    pause: Duration,
    /// When to say that the command has ended and left something behind, if it has not been said.
    say_left_behind: Option<Duration>,
    /// How much was left of the lease when most was: about its length.
    fullest: Duration,
}

/// When to look whether the lock was renewed, and to tell the guard, if it is good for this long: half-way. So the
/// guard knows of at least half of it ahead, and a moment in which both of us are stopped (a suspended machine) ends no
/// command.
fn until_told_again(left: Duration) -> Duration {
    const NOT_WORTH_IT: Duration = Duration::from_millis(100);
    if left / 2 < NOT_WORTH_IT { left } else { left / 2 }
}

/// The command is being stopped.
#[derive(Debug, Clone, Copy)]
struct Stop {
    why: Why,
    kill_at: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Lost,
    MaxHold,
}

impl<'a> Supervisor<'a> {
    /// Takes over a group that was just spawned. `began` is when the lock was got, and `early` what came around the
    /// start, with whether the command has missed it if it was for the whole job.
    pub(crate) fn over(group: Group, plan: &'a Plan, began: Duration, early: Vec<(Caught, bool)>) -> Self {
        Supervisor {
            plan,
            group,
            began,
            stop: None,
            lost: false,
            requested: false,
            told_to_end: false,
            warned: false,
            killed: false,
            early,
            pause: FIRST_LOOK,
            say_left_behind: None,
            fullest: Duration::ZERO,
        }
    }

    /// Returns when the command and all that it started are gone.
    pub(crate) async fn until_gone(
        mut self,
        held: &MultiGuard,
        signals: &mut Signals,
        timer: &AsyncTimer,
    ) -> Outcome {
        let (mut lost, mut requested) = (pin!(held.lost()), pin!(held.release_requested()));
        while !self.group.is_gone() {
            self.fullest = self.fullest.max(held.remaining().unwrap_or_default());
            self.tell_guard(held);
            for (caught, missed) in std::mem::take(&mut self.early) {
                self.on_signal(caught, missed);
            }
            let next = self.next_look(held);
            tokio::select! {
                biased;
                signal = signals.next() => self.on_signal(signal, false),
                () = self.group.changed() => self.on_changed(held),
                why = &mut lost, if !self.lost => self.on_lost(why, held),
                () = &mut requested, if !self.requested => self.on_request(),
                () = timer.sleep_until(next) => self.on_time(held),
            }
        }
        self.end(held)
    }

    /// Tells the guard how long the command may go on if we should be stopped (SIGSTOP) or hang.
    fn tell_guard(&mut self, held: &MultiGuard) {
        let now = boot_time();
        let mut told = Deadlines::default();
        if let Some(left) = held.remaining().filter(|_| self.plan.on_lost != OnLost::Ignore && !self.lost) {
            let left = left.saturating_sub(GUARD_SLACK);
            // Where we would tell it to stop, and a moment later.
            let term = self.left_before_stop(held).filter(|term| left.saturating_sub(*term) > SLACK);
            let term_at = term.map(|term| now + term + GUARD_DELAY.min((left - term) / 4));
            told = Deadlines { term_at, kill_at: Some(now + left) };
        }
        if let (Some(most), None) = (self.plan.max_hold, self.stop) {
            let over = self.began + most + GUARD_DELAY;
            told = told.or(Deadlines { term_at: Some(over), kill_at: Some(over + self.plan.grace) });
        }
        if let Some(stop) = self.stop {
            let kill_at = Some(stop.kill_at + GUARD_DELAY);
            told = Deadlines { term_at: None, ..told.or(Deadlines { term_at: None, kill_at }) };
            if self.killed {
                // There is nothing left to be done in time, and we do it again with every look.
                let kill_at = Some(stop.kill_at.max(now) + LATER_LOOKS + GUARD_DELAY);
                told = Deadlines { term_at: None, kill_at };
            }
        }
        self.group.tell_guard(told);
    }

    fn next_look(&self, held: &MultiGuard) -> Duration {
        let now = boot_time();
        let mut next = now + Duration::from_secs(3_600);
        let mut consider = |moment: Duration| next = next.min(moment);
        if self.group.unguarded {
            consider(now + self.pause);
        }
        if let Some(say_at) = self.say_left_behind {
            consider(say_at);
        }
        match (self.stop, self.plan.max_hold) {
            (Some(stop), _) => consider(stop.kill_at.max(now + self.pause)),
            (None, Some(most)) => consider(self.began + most),
            (None, None) => {}
        }
        if let Some(left) = self.left_before_stop(held) {
            consider(now + until_told_again(left));
        }
        next
    }

    /// The guard has told something, or is dead. Then the kernel kills the command itself, and the rest falls to us.
    fn on_changed(&mut self, held: &MultiGuard) {
        if self.group.stopped_by_guard && self.stop.is_none() {
            self.take_over_stop(held);
        }
        if self.group.unguarded {
            self.pause = FIRST_LOOK;
            self.signal_all(Signal::KILL);
            self.warn(
                "guard",
                "the guard process of the command was killed; the command is being killed".to_owned(),
            );
        } else if self.group.ended.is_some() && !self.group.is_gone() {
            self.say_left_behind = Some(boot_time() + SAY_LEFT_BEHIND);
        }
    }

    /// The guard has begun to stop the command, while we were stopped ourselves. The end of it is told as if we had.
    fn take_over_stop(&mut self, held: &MultiGuard) {
        let now = boot_time();
        if self.plan.max_hold.is_some_and(|most| now >= self.began + most) {
            self.stop = Some(Stop { why: Why::MaxHold, kill_at: now + self.plan.grace });
            self.say_timed_out();
        } else {
            let left = held.remaining().unwrap_or_default().saturating_sub(SLACK);
            self.stop = Some(Stop { why: Why::Lost, kill_at: now + left.min(self.grace()) });
            self.say_lost("was about to be lost while leasehold itself was stopped");
        }
    }

    /// The command has ended, and the lock stays taken for a while: that should not look like a hang.
    fn say_what_is_left(&mut self) {
        self.say_left_behind = None;
        let ids = self.group.left();
        let which = match &ids[..] {
            [] => "a process that it started".to_owned(),
            [only] => format!("process {only}, which it started,"),
            [first, ..] => format!("process {first} and {} more that it started", ids.len() - 1),
        };
        self.warn(
            "waiting",
            format!("the command has ended; {} is given back when {which} has ended too", self.lock()),
        );
    }

    fn on_time(&mut self, held: &MultiGuard) {
        let now = boot_time();
        self.pause = (self.pause * 2).min(LATER_LOOKS);
        if self.group.unguarded {
            self.signal_all(Signal::KILL);
            self.group.look();
        }
        if self.say_left_behind.is_some_and(|at| now >= at) {
            self.say_what_is_left();
        }
        if self.left_before_stop(held) == Some(Duration::ZERO) {
            self.lease_ends(held);
        }
        if self.stop.is_none() && self.plan.max_hold.is_some_and(|most| now >= self.began + most) {
            self.stop(Why::MaxHold, now + self.plan.grace, held);
            self.say_timed_out();
        }
        if self.stop.is_some_and(|stop| now >= stop.kill_at) {
            self.signal_all(Signal::KILL);
            // The guard may be stopped.
            self.group.look();
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
        let unrenewed = held.remaining()?.saturating_sub(self.lead() + SLACK);
        let ends = held.lease_left().map(|left| left.saturating_sub(self.grace() + SLACK));
        Some(ends.map_or(unrenewed, |ends| ends.min(unrenewed)))
    }

    /// The time between SIGTERM and SIGKILL.
    fn grace(&self) -> Duration {
        if self.plan.on_lost == OnLost::Term { self.plan.grace } else { Duration::ZERO }
    }

    /// How long before the end of what is certain the stop begins, if it is not renewed. Most outages pass, so the less of it the
    /// better: with a tenth, an outage of half a lease does not end a command. What is certain at a time is a part of the
    /// session's length on ZooKeeper, and of the lease's elsewhere.
    fn lead(&self) -> Duration {
        self.grace().min(self.fullest / LEAD)
    }

    /// The lease is about to end, or what is certain of it: the command has to be gone by then.
    fn lease_ends(&mut self, held: &MultiGuard) {
        let left = held.remaining().unwrap_or_default().saturating_sub(SLACK);
        let lease = held.lease_left().is_some_and(|lease| lease <= self.grace() + SLACK);
        self.stop(Why::Lost, boot_time() + left.min(self.grace()), held);
        self.say_lost(if lease {
            "is about to be lost: its lease ends"
        } else {
            "is about to be lost: the store could not be reached to renew its lease"
        });
    }

    fn on_lost(&mut self, why: Lost, held: &MultiGuard) {
        self.lost = true;
        let already = self.stop.is_some_and(|stop| stop.why == Why::Lost);
        let now = boot_time();
        match self.plan.on_lost {
            OnLost::Ignore => {
                self.warn(
                    "lost",
                    format!("{} was lost ({why}); the command runs on without it", self.lock()),
                );
            }
            // The time that was left is over.
            _ if already => self.signal_all(Signal::KILL),
            OnLost::Kill => {
                self.stop(Why::Lost, now, held);
                self.say_lost(&format!("was lost ({why})"));
            }
            OnLost::Term => {
                self.stop(Why::Lost, now + self.plan.grace, held);
                let grace = output::duration(self.plan.grace);
                self.say_lost(&format!(
                    "was lost ({why}), and others can have it; the command has {grace} to end"
                ));
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
                self.signal(signal);
                // A stopped process can't hear it.
                self.signal(Signal::CONT);
                self.warn("requested", format!("{what}; the command is sent signal {}", signal.as_raw()));
            }
        }
    }

    /// Tells the command and all that it started to end, and kills it at `kill_at`.
    fn stop(&mut self, why: Why, kill_at: Duration, held: &MultiGuard) {
        self.stop = Some(Stop { why, kill_at });
        // First, as to tell many processes takes a while.
        self.tell_guard(held);
        self.pause = FIRST_LOOK;
        if kill_at <= boot_time() {
            self.signal_all(Signal::KILL);
        } else {
            self.signal_all(Signal::TERM);
            // A stopped process can't hear it.
            self.signal_all(Signal::CONT);
        }
    }

    /// What is typed on the terminal goes to the whole job, the command included, unless that was not there yet
    /// (`missed`). It is passed on then, and so is what the kernel sends to the leader of a session alone, when the
    /// terminal is closed. What another process sends us is passed on to the command's process group, unless it comes
    /// from there (`kill 0`).
    fn on_signal(&mut self, Caught { signal, from }: Caught, missed: bool) {
        let passed_on = match from {
            Sender::Terminal => {
                missed || !self.group.in_our_job || [Signal::HUP, Signal::CONT].contains(&signal)
            }
            Sender::Process(id) => !self.group.contains(id),
        };
        if signal == Signal::TSTP {
            if passed_on {
                self.signal(signal);
            }
            signals::stop_ourselves();
            if passed_on {
                self.signal(Signal::CONT);
            }
            return;
        }
        self.told_to_end |= signals::asks_to_end(signal) && (passed_on || from == Sender::Terminal);
        if passed_on {
            self.signal(signal);
        }
    }

    fn signal(&mut self, signal: Signal) {
        let sent = self.group.signal(signal);
        self.warn_if_refused(signal, sent);
    }

    fn signal_all(&mut self, signal: Signal) {
        self.killed |= signal == Signal::KILL;
        let sent = self.group.signal_all(signal);
        self.warn_if_refused(signal, sent);
    }

    fn warn_if_refused(&mut self, signal: Signal, sent: std::io::Result<()>) {
        if let Err(e) = sent
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

    fn say_timed_out(&self) {
        let what = "the command ran into --max-hold and is being stopped";
        Failure::new(Exit::TIMED_OUT, "timed out", what).report(self.plan.format);
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

    fn end(self, held: &MultiGuard) -> Outcome {
        // It is not known only if we had to look for its end ourselves, after it was killed.
        let ended = self.group.ended.unwrap_or(Ended::Signalled(Signal::KILL.as_raw()));
        let interrupted = ended == Ended::Signalled(Signal::INT.as_raw()) && self.group.in_our_job;
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
