//! The signals that reach this program, as one stream.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use crate::sys;

/// What ends a wait, and is passed on to a running command.
const PASSED_ON: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::WINCH];
/// What only matters while a command runs.
const JOB_CONTROL: [Signal; 2] = [Signal::TSTP, Signal::CONT];

/// The signals that are caught.
pub(crate) struct Signals {
    caught: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Catches what should end the program in an orderly way.
    pub(crate) fn that_end_us() -> io::Result<Self> {
        Self::catch(&[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM])
    }

    /// Catches all that a runner of commands has to know of, the end of its children included.
    pub(crate) fn of_a_runner() -> io::Result<Self> {
        let mut wanted = vec![Signal::CHILD];
        wanted.extend(PASSED_ON);
        wanted.extend(JOB_CONTROL);
        Self::catch(&wanted)
    }

    fn catch(wanted: &[Signal]) -> io::Result<Self> {
        let ignored = ignored_from_the_start();
        let caught = wanted
            .iter()
            .filter(|signal| ignored & bit(**signal) == 0)
            .map(|signal| Ok((*signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)))
            .collect::<io::Result<_>>()?;
        Ok(Signals { caught })
    }

    /// The next signal. Cancel-safe: a signal that was not returned is not lost.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.caught {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that asks the program to end.
    pub(crate) async fn next_that_ends_us(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ends_us(signal) {
                return signal;
            }
            if signal == Signal::TSTP {
                stop_ourselves();
            }
        }
    }
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
    parse_ignored(&status) & !bit(Signal::CHILD)
}

fn parse_ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
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
