//! The signals that reach this program, as one stream.

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::net::unix::pipe;

use crate::sys;

/// What ends a wait, and is passed on to a running command.
const PASSED_ON: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::WINCH];
/// What only matters while a command runs.
const JOB_CONTROL: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// The signals that are caught.
pub(crate) struct Signals {
    notes: pipe::Receiver,
}

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) signal: Signal,
    pub(crate) from: Sender,
}

impl Caught {
    fn of(note: [u8; sys::NOTE]) -> Option<Self> {
        let [signal, by_the_kernel, _, _, sender @ ..] = note;
        let sender = i32::from_ne_bytes(sender);
        let from = if by_the_kernel == 1 { Sender::Terminal } else { Sender::Process(sender) };
        Some(Caught { signal: Signal::from_named_raw(signal.into())?, from })
    }
}

/// Where a signal came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The kernel, for the terminal. Its keys are for every process of the foreground job. That it was closed (SIGHUP,
    /// and SIGCONT for those that are stopped) is told to the leader of the session, and perhaps to it alone.
    Terminal,
    /// A process with this id (0 if it can't be seen from here).
    Process(i32),
}

impl Signals {
    /// Catches what should end the program in an orderly way.
    pub(crate) fn that_end_us() -> io::Result<Self> {
        Self::catch(&[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM])
    }

    /// Catches all that a runner of commands has to know of.
    pub(crate) fn of_a_runner() -> io::Result<Self> {
        let mut wanted = PASSED_ON.to_vec();
        wanted.extend(JOB_CONTROL);
        Self::catch(&wanted)
    }

    fn catch(wanted: &[Signal]) -> io::Result<Self> {
        let ignored = ignored_from_the_start();
        let notes = noted(wanted.iter().copied().filter(|signal| ignored & bit(*signal) == 0))?;
        Ok(Signals { notes: pipe::Receiver::from_owned_fd(notes)? })
    }

    /// The next signal. Cancel-safe: a signal that was not returned is not lost.
    pub(crate) async fn next(&mut self) -> Caught {
        let mut note = [0; sys::NOTE];
        loop {
            if self.notes.readable().await.is_err() {
                return std::future::pending().await;
            }
            if let Ok(sys::NOTE) = self.notes.try_read(&mut note)
                && let Some(caught) = Caught::of(note)
            {
                return caught;
            }
        }
    }

    /// What has come by now, whether the runtime knows of it or not.
    pub(crate) fn so_far(&mut self) -> Vec<Caught> {
        let mut note = [0; sys::NOTE];
        let mut next =
            || rustix::io::retry_on_intr(|| rustix::io::read(&self.notes, &mut note)).map(|n| (n, note));
        let mut came = Vec::new();
        while let Ok((sys::NOTE, note)) = next() {
            came.extend(Caught::of(note));
        }
        came
    }

    /// The next signal that asks the program to end.
    pub(crate) async fn next_that_ends_us(&mut self) -> Signal {
        loop {
            match self.next_that_ends_a_wait().await {
                Signal::TSTP => stop_ourselves(),
                signal => return signal,
            }
        }
    }

    /// The next signal that asks the program to end, or to [stop](stop_ourselves) (SIGTSTP).
    pub(crate) async fn next_that_ends_a_wait(&mut self) -> Signal {
        loop {
            let Caught { signal, .. } = self.next().await;
            if ends_us(signal) || signal == Signal::TSTP {
                return signal;
            }
        }
    }
}

/// Catches these signals: each is one note in the pipe that is returned, which does not block.
pub(crate) fn noted(signals: impl IntoIterator<Item = Signal>) -> io::Result<OwnedFd> {
    let (read, write) = io::pipe()?;
    rustix::io::ioctl_fionbio(&read, true)?;
    rustix::io::ioctl_fionbio(&write, true)?;
    sys::note_signals(signals, write.into())?;
    Ok(read.into())
}

/// Whether there is a note in the pipe. Takes it out.
pub(crate) fn take_note(notes: &OwnedFd) -> bool {
    let mut note = [0; sys::NOTE];
    matches!(rustix::io::retry_on_intr(|| rustix::io::read(notes, &mut note)), Ok(sys::NOTE))
}

/// Whether this signal asks a program to end that has no other use for it.
pub(crate) fn ends_us(signal: Signal) -> bool {
    PASSED_ON.contains(&signal) && signal != Signal::WINCH
}

/// Whether whoever sends this signal wants the program to end, and not just to hear something.
pub(crate) fn asks_to_end(signal: Signal) -> bool {
    ends_us(signal) && signal != Signal::USR1 && signal != Signal::USR2
}

/// Stops this process, as SIGTSTP would have done had it not been caught. Returns when it is continued, or at once if there is no
/// shell that could continue it.
pub(crate) fn stop_ourselves() {
    let _ = sys::with_default(Signal::TSTP, || kill_process(getpid(), Signal::TSTP));
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The signals that whoever started us wants ignored (`nohup`, a shell's background job). Catching them would make them
/// deadly for the command, because a caught signal is reset when a program is started and an ignored one is not.
fn ignored_from_the_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_ignored(&status)
}

/// The blocked signals that are pending for this process as a whole.
pub(crate) fn pending() -> u64 {
    parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "ShdPnd:")
}

/// Whether this signal is in the set.
pub(crate) fn is_in(signal: Signal, set: u64) -> bool {
    set & bit(signal) != 0
}

/// Whether a process does something of its own about this signal: it would live on.
pub(crate) fn is_handled_by(process: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    let status = status.unwrap_or_default();
    is_in(signal, parse(&status, "SigCgt:") | parse(&status, "SigBlk:"))
}

fn parse_ignored(status: &str) -> u64 {
    parse(status, "SigIgn:")
}

/// A set of signals in `/proc/PID/status`.
fn parse(status: &str, which: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(which));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        let ignored = parse_ignored(status);
        assert_ne!(ignored & bit(Signal::HUP), 0);
        assert_eq!(ignored & bit(Signal::INT), 0);
        assert_eq!(parse_ignored("nothing"), 0);
    }
}
