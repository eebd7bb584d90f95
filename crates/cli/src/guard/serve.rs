//! The guard's side: one thread, one loop, nothing that could fail in between.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, getpid, wait};

use crate::args::Format;
use crate::boot_clock::{Timer, boot_time};
use crate::child::{self, Ended, Environment};
use crate::exit;
use crate::signals;
use crate::stderr;
use crate::sys::{self, Mask};
use crate::tree::{self, Root};

use super::messages::{self, Deadlines, Order, Report};
use super::{Job, become_reaper};

/// What the guard is called: nothing that is taken for the command.
const NAME: &str = "lh-guard";
/// How often processes that were left behind are looked for: no signal tells of one that leaves the session.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LATER_LOOKS: Duration = Duration::from_millis(250);
/// After which time a tree that was killed is killed again.
const KILL_AGAIN: Duration = Duration::from_millis(50);

/// Serves until there is nothing left to guard.
pub(super) fn serve(job: &Job<'_>, socket: &OwnedFd) -> ! {
    become_reaper();
    let mask = sys::block_all_but(Signal::CHILD);
    rename();
    if let Some(mut command) = start(job, socket, mask) {
        let _ = keep_no_stdio();
        command.keep(socket);
    }
    stderr::flush();
    std::process::exit(0)
}

/// Waits for the order to start the command, and does.
fn start(job: &Job<'_>, socket: &OwnedFd, mask: Mask) -> Option<Guarded> {
    let mut env = Environment::default();
    let ended = signals::noted([Signal::CHILD]).ok()?;
    let timer = Timer::new().ok()?;
    loop {
        match messages::receive(socket).ok()?? {
            (Order::Set(key, value), _) => env.set.push((key, value)),
            (Order::Watch(_), _) => {}
            (Order::Spawn { group }, lifeline) => {
                let session = Root::at(getpid());
                // What the terminal sent to the whole job waits here, as we block it. The command hears what comes from
                // now on itself, but for a moment between here and the fork.
                let missed = signals::pending() as u32;
                let _ = messages::send(socket, &Report::Starting { missed }, None);
                return match child::spawn(job.command, &env, group, mask) {
                    Ok(id) => {
                        step_aside(group.is_some());
                        let _ = messages::send(socket, &Report::Started(id), None);
                        Some(Guarded {
                            id,
                            root: session.of(id),
                            group: group.is_none().then_some(id),
                            format: job.format,
                            quiet: job.quiet,
                            ended: None,
                            signals: ended,
                            timer,
                            deadlines: Deadlines::default(),
                            overdue: false,
                            pause: FIRST_LOOK,
                            _lifeline: lifeline,
                        })
                    }
                    Err(e) => {
                        let code = e.raw_os_error().unwrap_or(libc::EINVAL);
                        let _ = messages::send(socket, &Report::NotStarted(code), None);
                        None
                    }
                };
            }
        }
    }
}

/// What is sent to the group that we were started in is not for us. In the job of a terminal we need a session of our own for that: the
/// kernel would take us for the shell that could continue the job, and stop it on Ctrl-Z where there is none.
fn step_aside(in_a_job: bool) {
    if in_a_job {
        let _ = rustix::process::setsid();
    } else {
        let _ = rustix::process::setpgid(None, None);
    }
}

/// The command, as the guard sees it.
struct Guarded {
    id: Pid,
    /// All below us that belongs to the command.
    root: Root,
    /// Its process group, if it has one of its own.
    group: Option<Pid>,
    format: Format,
    quiet: bool,
    ended: Option<Ended>,
    /// A note for every SIGCHLD.
    signals: OwnedFd,
    /// For the deadlines.
    timer: Timer,
    deadlines: Deadlines,
    /// Whether it was said that the runner did nothing in time.
    overdue: bool,
    pause: Duration,
    _lifeline: Option<OwnedFd>,
}

impl Guarded {
    /// Returns when the command and all that it started are gone.
    fn keep(&mut self, socket: &OwnedFd) {
        loop {
            if self.reap(Some(socket)) {
                let _ = messages::send(socket, &Report::Gone, None);
                return;
            }
            if !self.hear(socket) {
                return self.end_without_the_runner();
            }
            self.act_in_time(socket);
            self.sleep(socket);
            while signals::take_note(&self.signals) {
                self.pause = FIRST_LOOK;
            }
        }
    }

    /// Hears all that the runner has said, before anything is done: what it said first may not be true any more if this
    /// process was stopped. `false` if the runner is dead.
    fn hear(&mut self, socket: &OwnedFd) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        while matches!(poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&at_once)), Ok(1..)) {
            match messages::receive(socket) {
                Ok(Some((Order::Watch(deadlines), _))) => self.deadlines = deadlines,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }

    /// Sleeps until there is something to do.
    fn sleep(&mut self, socket: &OwnedFd) {
        self.timer.set([self.deadlines.term_at, self.deadlines.kill_at].into_iter().flatten().min());
        let mut files = [
            PollFd::new(socket, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        let mut time = Duration::from_secs(3_600);
        if self.ended.is_some() {
            time = time.min(self.pause);
            self.pause = (self.pause * 2).min(LATER_LOOKS);
        }
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let _ = poll(&mut files, Some(&time));
    }

    /// The runner has not said in time that the command may run for longer: it was stopped, or hangs.
    fn act_in_time(&mut self, socket: &OwnedFd) {
        let now = boot_time();
        if self.deadlines.term_at.is_some_and(|at| now >= at) {
            self.deadlines.term_at = None;
            self.signal(Signal::TERM);
            // A stopped process can't hear it.
            self.signal(Signal::CONT);
            self.say_overdue(socket);
        }
        if self.deadlines.kill_at.is_some_and(|at| now >= at) {
            self.signal(Signal::KILL);
            // Again after a moment, for what was just being forked.
            self.deadlines.kill_at = Some(now + KILL_AGAIN);
            self.say_overdue(socket);
        }
    }

    fn say_overdue(&mut self, socket: &OwnedFd) {
        if !std::mem::replace(&mut self.overdue, true) {
            let what = "the lock or --max-hold ends, and leasehold does nothing about it (was it stopped?); \
                        the command is being stopped";
            self.warn(what);
            let _ = messages::send(socket, &Report::Stopping, None);
        }
    }

    /// The runner is dead, and the lock with it, or soon. On `file:` it is ours until we are done.
    fn end_without_the_runner(&mut self) {
        let began = Instant::now();
        let mut killed = self.signal(Signal::KILL);
        self.warn("leasehold was killed; its command is being killed");
        let (mut pause, mut complained) = (Duration::from_micros(200), false);
        loop {
            if self.reap(None) {
                return self.warn("the command and all that it started are gone");
            }
            if !killed {
                let left: Vec<String> = tree::below(self.root)
                    .unwrap_or_default()
                    .iter()
                    .map(|member| member.pid.as_raw_nonzero().to_string())
                    .collect();
                let what = format!(
                    "the processes {} belong to another user and run on without the lock",
                    left.join(", ")
                );
                // An error that needs an operator: said with --quiet as well.
                return exit::warn(self.format, "guard", what);
            }
            if !complained && began.elapsed() > Duration::from_secs(1) {
                complained = true;
                self.warn("the command does not end yet; it is killed again and again");
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
            killed = self.signal(Signal::KILL);
        }
    }

    fn warn(&self, what: &str) {
        if !self.quiet {
            exit::warn(self.format, "guard", what);
        }
    }

    /// Sends a signal to the whole tree. Tells whether any process of it could be sent it.
    fn signal(&self, signal: Signal) -> bool {
        child::signal_all(self.root, self.group, signal).is_ok()
    }

    /// Collects every child that ended, orphans included. Tells whether the command and all that it started are gone.
    fn reap(&mut self, socket: Option<&OwnedFd>) -> bool {
        let more = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.id => {
                    self.ended = Ended::of(status);
                    self.root.reaped();
                    if let (Some(ended), Some(socket)) = (self.ended, socket) {
                        let _ = messages::send(socket, &Report::Ended(ended), None);
                    }
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        // Twice, as a list of processes is not made in one moment.
        self.ended.is_some() && (!more || (self.is_empty() && self.is_empty()))
    }

    fn is_empty(&self) -> bool {
        child::nothing_left(self.root, self.group, |_| true)
    }
}

/// What the guard is called by `ps`, `killall` and `pkill`, also by those that look at whole command lines.
fn rename() {
    let _ = fs::write("/proc/self/comm", NAME);
    let _ = rewrite_command_line();
}

/// Writes the name over our own arguments, where the kernel reads them for others. That they can't be changed is no reason to fail.
fn rewrite_command_line() -> Option<()> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // The 48th and 49th of the whole line, of which two are before the parenthesis.
    let (start, end): (u64, u64) = (fields.get(45)?.parse().ok()?, fields.get(46)?.parse().ok()?);
    let length =
        usize::try_from(end.checked_sub(start)?).ok().filter(|length| start != 0 && *length > NAME.len())?;
    let mut text = vec![0; length];
    text[..NAME.len()].copy_from_slice(NAME.as_bytes());
    File::options().write(true).open("/proc/self/mem").ok()?.write_all_at(&text, start).ok()
}

/// Lets go of what belongs to the command: a pipe must not stay open because of us. Not of stderr, for what there may be to say.
fn keep_no_stdio() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}
