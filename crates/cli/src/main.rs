//! The `leasehold` program: run a command under a lock, and see who holds what.
//!
//! # Layout
//!
//! - [`args`]: the command line as it is typed.
//! - [`commands`]: one file a command; each lowers its arguments to what it needs and then does it.
//! - [`exit`]: exit codes, and how a failure becomes one of them and one line on stderr.
//! - [`output`]: tables, colour, durations, JSON.
//! - [`stderr`]: what is said there, without waiting for its reader.
//! - [`child`], [`tree`], [`guard`], [`signals`], [`terminal`]: the command that runs under the lock: its start and end, the processes
//!   that it consists of, its end if we can't end it, the signals that reach us, the terminal's job.
//! - [`boot_clock`]: the clock that leases are counted on.
//! - [`sys`]: the few lines that need `unsafe`.
#![deny(unsafe_code)]

mod args;
mod boot_clock;
mod child;
mod commands;
mod exit;
mod guard;
mod output;
mod signals;
#[cfg(test)]
mod snippets;
mod stderr;
mod sys;
mod terminal;
mod tree;

use std::io::Write;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::{Cli, Format};
use crate::exit::{Exit, Failure};

fn main() {
    let (format, result) = match Cli::try_parse() {
        Ok(cli) => (cli.global.format, commands::run(cli)),
        Err(e) => (format_of_raw_arguments(), not_understood(&e)),
    };
    let exit = result.unwrap_or_else(|failure| {
        failure.report(format);
        stderr::flush();
        if let Some(signal) = failure.die_of {
            sys::die_of(signal);
        }
        failure.exit
    });
    stderr::flush();
    std::process::exit(exit.0.into());
}

/// Help and version are no errors; everything else is one line and [`Exit::USAGE`].
fn not_understood(e: &clap::Error) -> Result<Exit, Failure> {
    match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            e.print()?;
            std::io::stdout().flush()?;
            Ok(Exit::OK)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = e.print();
            Err(Failure::silent(Exit::USAGE))
        }
        _ => Err(in_one_line(e)),
    }
}

/// The parser's message is a paragraph or more: the first is what is wrong, the hints are what to do about it.
fn in_one_line(e: &clap::Error) -> Failure {
    let text = e.render().to_string();
    let paragraph: Vec<&str> =
        text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let what = paragraph.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    let usage = match e.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => {
            usage.to_string().trim().trim_start_matches("Usage: ").to_owned()
        }
        _ => "leasehold".to_owned(),
    };
    let hint = match e.kind() {
        ErrorKind::MissingRequiredArgument => Some(format!("write {usage}")),
        _ => text.lines().find_map(|line| line.trim().strip_prefix("tip: ").map(str::to_owned)),
    };
    let more = format!("see {} --help", command_of(&usage));
    Failure::usage(what).advice(hint.map_or(more.clone(), |hint| format!("{hint}; {more}")))
}

/// `leasehold run [OPTIONS] <NAME>` is about `leasehold run`.
fn command_of(usage: &str) -> String {
    let plain = |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase());
    usage.split_whitespace().take_while(plain).take(2).collect::<Vec<_>>().join(" ")
}

/// An error about the arguments should come in the format that they ask for, if that much can be seen.
fn format_of_raw_arguments() -> Format {
    let args: Vec<_> = std::env::args_os().skip(1).take_while(|arg| arg != "--").collect();
    let json = args.iter().any(|arg| arg == "--format=json")
        || args.windows(2).any(|w| w[0] == "--format" && w[1] == "json");
    if json { Format::Json } else { Format::Text }
}
