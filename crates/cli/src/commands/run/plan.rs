//! What `run` was asked to do, checked: nothing in here can contradict itself any more.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use leasehold::{Name, Want};

use rustix::process::Signal;

use crate::args::{self, Format, OnLost, OnRequest};
use crate::exit::Failure;

/// The time between SIGTERM and SIGKILL if none was given.
const GRACE: Duration = Duration::from_secs(5);

/// What `run` does.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The lock, then those of `--also`.
    pub(crate) names: Vec<Name>,
    /// What is wanted of each of them.
    pub(crate) want: Want,
    pub(crate) patience: Patience,
    pub(crate) order: leasehold::Order,
    /// The length of a lease that ends by itself.
    pub(crate) lease: Option<Duration>,
    pub(crate) on_lost: OnLost,
    /// What the command is sent when somebody asks for the lock back.
    pub(crate) on_request: Option<Signal>,
    pub(crate) grace: Duration,
    pub(crate) min_hold: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) quiet: bool,
    pub(crate) format: Format,
    pub(crate) command: Vec<OsString>,
}

/// How long to wait for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    /// Not for zero.
    For(Duration),
    Endless,
}

impl Plan {
    /// Lowers the arguments.
    pub(crate) fn of(args: args::Run, format: Format) -> Result<Self, Failure> {
        let names = distinct(std::iter::once(args.name).chain(args.also))?;
        let want = match (args.shared, args.permits, args.of) {
            (true, ..) => Want::Shared,
            (false, Some(n), Some(of)) => Want::permits(n, of)?,
            _ => Want::Exclusive,
        };
        let patience = match (args.try_, args.wait) {
            (true, _) | (_, Some(Duration::ZERO)) => Patience::None,
            (false, Some(wait)) => Patience::For(wait),
            (false, None) => Patience::Endless,
        };
        let order = match args.order {
            args::Order::Queue => leasehold::Order::Queue,
            args::Order::Barge => leasehold::Order::Barge,
            args::Order::Spin => leasehold::Order::spin(),
        };
        let plan = Plan {
            names,
            want,
            patience,
            order,
            lease: args.lease,
            on_lost: args.on_lost,
            on_request: match args.on_request {
                OnRequest::Note => None,
                OnRequest::Hup => Some(Signal::HUP),
                OnRequest::Int => Some(Signal::INT),
                OnRequest::Term => Some(Signal::TERM),
                OnRequest::Usr1 => Some(Signal::USR1),
                OnRequest::Usr2 => Some(Signal::USR2),
            },
            grace: args.grace.unwrap_or_else(|| args.lease.map_or(GRACE, |lease| GRACE.min(lease / 5))),
            min_hold: args.min_hold.unwrap_or_default(),
            max_hold: args.max_hold,
            quiet: args.quiet,
            format,
            command: args.command,
        };
        plan.check_times()?;
        Ok(plan)
    }

    /// What is run.
    pub(crate) fn program(&self) -> &OsStr {
        self.command.first().map_or(OsStr::new(""), |program| program)
    }

    fn check_times(&self) -> Result<(), Failure> {
        if let Some(lease) = self.lease {
            if self.grace >= lease && self.on_lost == OnLost::Term && !lease.is_zero() {
                return Err(Failure::usage(
                    "the --grace is as long as the --lease, so the command would be stopped at once",
                )
                .advice("give a shorter grace or a longer lease"));
            }
            if self.min_hold > lease {
                return Err(Failure::usage("the --lease ends before --min-hold")
                    .advice("give a longer lease, or none"));
            }
        }
        match self.max_hold {
            Some(most) if most.is_zero() => {
                Err(Failure::usage("a --max-hold of 0 leaves no time to run the command"))
            }
            Some(most) if most < self.min_hold => {
                Err(Failure::usage("--max-hold is shorter than --min-hold"))
            }
            _ => Ok(()),
        }
    }
}

/// A lock that is asked for twice would wait for itself.
fn distinct(texts: impl Iterator<Item = String>) -> Result<Vec<Name>, Failure> {
    let mut names: Vec<Name> = Vec::new();
    for text in texts {
        let name = Name::new(text)?;
        if names.contains(&name) {
            return Err(Failure::usage(format!("the lock {:?} is named twice", name.as_str()))
                .advice("name each lock once"));
        }
        names.push(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_wait_of_zero_is_a_try() {
        for (options, patience) in [
            (&["--wait", "0"][..], Patience::None),
            (&["--wait", "0s"], Patience::None),
            (&["--try"], Patience::None),
            (&["--wait", "1ms"], Patience::For(Duration::from_millis(1))),
            (&[], Patience::Endless),
        ] {
            let line = [&["leasehold", "run", "x"], options, &["--", "true"]].concat();
            let args::Command::Run(args) = args::Cli::try_parse_from(line).expect("arguments").command else {
                panic!("it is a run")
            };
            assert_eq!(Plan::of(*args, Format::Text).expect("a plan").patience, patience, "{options:?}");
        }
    }
}
