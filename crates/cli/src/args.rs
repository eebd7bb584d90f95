//! The command line as it is typed. Each command lowers its arguments to what it needs; help, man page and
//! completions come from here as well.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

/// A distributed lock for the command line.
///
/// Run a command while holding a lock, see who holds what, and take a lock away from one that hangs. With no store
/// given, locks live in files of this host and user; with a server's URL they reach as far as that server does.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, disable_help_subcommand = true, after_long_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Where the locks live, as a URL; `leasehold stores` lists the forms [default: files of this host and user]
    #[arg(long, global = true, value_name = "URL", env = "LEASEHOLD_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// How results, warnings and errors are written
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// What others see behind this claim [default: host, process id and command]
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

/// How output is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people: aligned, and coloured on a terminal
    Text,
    /// For programs: one JSON object a line, see docs/json.md
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(after_long_help = AFTER_RUN_HELP)]
    Run(Box<Run>),
    /// List the locks in use
    Ls(Ls),
    /// Show who holds a lock and who waits for it
    Show(Show),
    /// Print what happens to locks, as it happens
    Watch(Watch),
    /// Ask the holders of a lock to give it back, or take it away from them
    Release(Release),
    /// Look at the store: can locks be trusted to it, and how fast are they
    #[command(after_long_help = AFTER_DOCTOR_HELP)]
    Doctor(Doctor),
    /// List the stores and what each promises
    Stores,
    /// Print the statements that create the tables of an SQL store
    Schema(Schema),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print the manual page, as roff
    Man(Man),
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The lock: any text of 1 to 1024 bytes
    pub(crate) name: String,
    /// Hold this lock as well: all or none; while one is waited for, others are held for moments only. May be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) also: Vec<String>,

    /// Don't wait: if the lock is busy, exit with 75
    #[arg(long = "try", conflicts_with = "wait", help_heading = "Getting the lock")]
    pub(crate) try_: bool,
    /// Wait no longer than this, then exit with 75 [default: as long as it takes]
    #[arg(long, value_name = "DUR", value_parser = duration(), help_heading = "Getting the lock")]
    pub(crate) wait: Option<Duration>,
    /// Share the lock with others that share it, like a reader
    #[arg(long, conflicts_with_all = ["permits", "of"], help_heading = "Getting the lock")]
    pub(crate) shared: bool,
    /// Take N permits of a semaphore
    #[arg(long, value_name = "N", requires = "of", help_heading = "Getting the lock")]
    pub(crate) permits: Option<u32>,
    /// The semaphore has M permits in all; everybody must say the same
    #[arg(long, value_name = "M", requires = "permits", help_heading = "Getting the lock")]
    pub(crate) of: Option<u32>,
    /// In which order claims get in
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = Order::Queue, help_heading = "Getting the lock")]
    pub(crate) order: Order,

    /// Let the lock end by itself after this time instead of keeping it for as long as the command runs
    #[arg(long, value_name = "DUR", value_parser = duration(), help_heading = "Holding it")]
    pub(crate) lease: Option<Duration>,
    /// What happens to the command when the lock is lost
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnLost::Term, help_heading = "Holding it")]
    pub(crate) on_lost: OnLost,
    /// What happens when somebody asks for the lock back (`leasehold release --ask`)
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnRequest::Note, help_heading = "Holding it")]
    pub(crate) on_request: OnRequest,
    /// The time between SIGTERM and SIGKILL [default: 5s, or a fifth of a shorter --lease]
    #[arg(long, value_name = "DUR", value_parser = duration(), help_heading = "Holding it")]
    pub(crate) grace: Option<Duration>,
    /// Keep the lock for at least this long, even if the command is done sooner
    #[arg(long, value_name = "DUR", value_parser = duration(), help_heading = "Holding it")]
    pub(crate) min_hold: Option<Duration>,
    /// Stop the command after this time and exit with 124
    #[arg(long, value_name = "DUR", value_parser = duration(), help_heading = "Holding it")]
    pub(crate) max_hold: Option<Duration>,
    /// Say nothing but errors
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// First come, first served
    Queue,
    /// Take it if it is free, else wait to be told and try again
    Barge,
    /// Take it if it is free, else try again after a growing pause
    Spin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// SIGTERM to the command and all that it started, SIGKILL after --grace; exit with 76
    Term,
    /// SIGKILL at once; exit with 76
    Kill,
    /// Warn, and let the command run on without the lock
    Ignore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnRequest {
    /// Say it on stderr, and let the command run on
    Note,
    /// Send the command's process group a SIGHUP; it ends when it likes, and its exit code counts
    Hup,
    /// The same with SIGINT
    Int,
    /// The same with SIGTERM
    Term,
    /// The same with SIGUSR1
    Usr1,
    /// The same with SIGUSR2
    Usr2,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that start with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The lock
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Only names that start with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The lock
    pub(crate) name: String,
    /// Ask for it: whoever holds it is told, and decides
    #[arg(long, conflicts_with_all = ["force", "yes"])]
    pub(crate) ask: bool,
    /// Yes, take it away: whoever holds it is told that it was lost, and may need a while to stop beside the next holder
    #[arg(long)]
    pub(crate) force: bool,
    /// Ask, and wait up to this long for it to be given back; then exit with 75, or take it away (--force)
    #[arg(long, value_name = "DUR", value_parser = duration())]
    pub(crate) wait: Option<Duration>,
    /// Only if this is the holder's token (`show` prints it)
    #[arg(long, value_name = "T")]
    pub(crate) token: Option<u64>,
    /// Don't ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The lease that your programs use: times are compared with it
    #[arg(long, value_name = "DUR", value_parser = duration(), default_value = "30s")]
    pub(crate) lease: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// For which database. The prefix of the tables is that of --store, if it is such a store
    pub(crate) dialect: Dialect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    /// MySQL and MariaDB
    Mysql,
    /// PostgreSQL
    Postgres,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The page of this command instead of the whole program's
    pub(crate) command: Option<String>,
}

/// `30s`, `1h 30m`, `500ms`; a bare number is seconds, as with `flock -w` and `timeout`.
fn duration() -> ValueParser {
    ValueParser::from(parse_duration)
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || "write 500ms, 30s, 5m or \"1h 30m\"; a bare number is seconds".to_owned();
    let duration = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| bad()),
        Err(_) => humantime::parse_duration(text).map_err(|_| bad()),
    }?;
    if duration > LONGEST { Err("no longer than 10000 years".to_owned()) } else { Ok(duration) }
}

/// Clocks end somewhere.
const LONGEST: Duration = Duration::from_secs(10_000 * 366 * 24 * 3600);

const AFTER_HELP: &str = "\
Environment:
  LEASEHOLD_STORE  the store, if --store is not given
  NO_COLOR         if set, output is never coloured

Exit codes:
  0    done
  1    doctor found something that endangers locks
  64   bad usage: what was asked can never work
  69   the store could not be reached, or its data is damaged
  74   the output could not be written
  75   the lock was busy, or the wait was over
  76   the lock was lost, and the command was stopped
  77   refused: not allowed by this store or state
  124  the command ran into --max-hold
  126  the command can't be run
  127  there is no such command
  128+n  ended by signal n
`run` ends with the command's own exit code otherwise.";

const AFTER_RUN_HELP: &str = "\
The command runs without a shell in between, in the job of the shell on a terminal and else in a
process group of its own, and finds in its environment:
  LEASEHOLD_NAME      the lock
  LEASEHOLD_TOKEN     its fencing token: hand it to what the lock guards
  LEASEHOLD_DEADLINE  when it is stopped at the latest, in milliseconds since 1970; unset if
                      neither --lease nor --max-hold sets an end
  LEASEHOLD_STORE     the store, as it was given to this run
With --also, the n-th further lock is in LEASEHOLD_NAME_n and LEASEHOLD_TOKEN_n.

Signals end the wait, and are passed on to the command's group while it runs. The lock is given
back when the command and all that it started are gone. A duration is 500ms, 30s, 5m or
\"1h 30m\"; a bare number is seconds.

Examples:
  leasehold run backup -- rsync -a /srv /backup
  leasehold run --try --min-hold 30s nightly -- ./report   (cron on many hosts: one runs it)
  leasehold run --permits 1 --of 4 encoders -- ffmpeg …    (no more than four at a time)";

const AFTER_DOCTOR_HELP: &str = "\
Each finding has a grade:
  danger   two holders at once, a lost lock or a stuck one can follow from it; exit code 1
  warning  locks work, but something makes them slower or less safe than they could be
  note     worth knowing; nothing to do
  good     as it should be

Some locks are taken, and given back, under a name that starts with leasehold-doctor/. What belongs
to others is not touched.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_duration_has_a_unit_or_is_in_seconds() {
        assert_eq!(parse_duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["", "-1", "5 apples", "NaN", "inf", "1e300", "1e13", "99999999999y"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
