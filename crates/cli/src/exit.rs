//! Exit codes, and how a failure becomes one of them and one line on stderr.
//!
//! The numbers follow `sysexits.h` where it has a word for the case, and `timeout(1)`, `env(1)` and the shells for
//! the rest. They are part of the program's contract: `docs/cli.md` has the table.

use std::io;

use leasehold::{Error, Kind, Retry};

use crate::args::Format;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    pub(crate) const OK: Exit = Exit(0);
    /// The arguments, or what they ask for, can never work.
    pub(crate) const USAGE: Exit = Exit(64);
    /// The store could not be reached, or answered with something that it never should.
    pub(crate) const UNAVAILABLE: Exit = Exit(69);
    /// Our own output could not be written.
    pub(crate) const IO: Exit = Exit(74);
    /// The lock was busy, or the wait was over.
    pub(crate) const BUSY: Exit = Exit(75);
    /// The lock was lost, and the child was stopped.
    pub(crate) const LOST: Exit = Exit(76);
    /// Well formed, but not allowed here.
    pub(crate) const REFUSED: Exit = Exit(77);
    /// The child ran into `--max-hold`, as with `timeout(1)`.
    pub(crate) const TIMED_OUT: Exit = Exit(124);
    /// The command was found, but can't be run.
    pub(crate) const NOT_EXECUTABLE: Exit = Exit(126);
    /// There is no such command.
    pub(crate) const NOT_FOUND: Exit = Exit(127);

    /// What a shell reports of a process that this signal ended.
    pub(crate) fn of_signal(signal: i32) -> Exit {
        Exit(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }

    fn of_kind(kind: Kind) -> Exit {
        match kind {
            Kind::Invalid | Kind::Mismatch => Exit::USAGE,
            Kind::Refused => Exit::REFUSED,
            Kind::Lost | Kind::NotHeld => Exit::LOST,
            _ => Exit::UNAVAILABLE,
        }
    }
}

/// Why the program ends before its work is done.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// What is said on stderr; `None` if the exit code says it all.
    message: Option<Box<Message>>,
    /// A signal from the terminal that we should be seen to die of, see [`crate::sys::die_of`].
    pub(crate) die_of: Option<rustix::process::Signal>,
    /// The store did not answer just now, or not as it should: it is not worth waiting for once more.
    pub(crate) store_is_away: bool,
}

/// One thing to say: of what kind, what, and what to do about it.
#[derive(Debug, Clone)]
struct Message {
    kind: &'static str,
    what: String,
    advice: Option<String>,
    /// The whole line for people, where it has more than kind, what and advice.
    line: Option<String>,
    store: Option<String>,
    name: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, kind: &'static str, what: impl Into<String>) -> Self {
        let message = Message { kind, what: what.into(), advice: None, line: None, store: None, name: None };
        Failure { exit, message: Some(Box::new(message)), die_of: None, store_is_away: false }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Failure::new(Exit::USAGE, "usage", without_passwords(what.into()))
    }

    /// Ends with this code and without a word.
    pub(crate) fn silent(exit: Exit) -> Self {
        Failure { exit, message: None, die_of: None, store_is_away: false }
    }

    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        if let Some(message) = &mut self.message {
            message.advice = Some(without_passwords(advice.into()));
        }
        self
    }

    /// Says it on stderr.
    pub(crate) fn report(&self, format: Format) {
        if let Some(message) = &self.message {
            say("error", message, format);
        }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        let message = Message {
            kind: e.kind().as_str(),
            what: cause(&e),
            advice: e.advice_text().map(str::to_owned),
            line: Some(e.to_string()),
            store: e.store().map(str::to_owned),
            name: e.name().map(|n| n.as_str().to_owned()),
        };
        let exit = Exit::of_kind(e.kind());
        let store_is_away = exit == Exit::UNAVAILABLE || e.retry_advice() == Retry::Later;
        Failure { exit, message: Some(Box::new(message)), die_of: None, store_is_away }
    }
}

impl From<io::Error> for Failure {
    /// For what goes to stdout. A reader that has seen enough (`leasehold ls | head`) is no failure.
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Failure::silent(Exit::OK);
        }
        Failure::new(Exit::IO, "output", format!("the output could not be written: {e}"))
    }
}

/// What is said of arguments, without the password of a URL that was given in the wrong place: such messages repeat what
/// they can't use.
fn without_passwords(mut text: String) -> String {
    // A login or parameters, where the password of a URL is.
    let may_have_one =
        |given: &&str| given.split_once(':').is_some_and(|(_, rest)| rest.contains(['@', '?']));
    for argument in std::env::args_os().skip(1) {
        // As the messages have it, in which what is not UTF-8 is replaced, too.
        let argument = argument.to_string_lossy();
        // The value of --option=VALUE and of -oVALUE is repeated without its option.
        let long = argument.split_once('=').map(|(_, value)| value);
        let short = argument.strip_prefix('-').and_then(|rest| rest.get(1..));
        for given in [Some(&*argument), long, short].into_iter().flatten().filter(may_have_one) {
            let shown = leasehold::redact(given);
            // Some messages have it in quotes, with escapes.
            text = text.replace(&given.escape_debug().to_string(), &shown).replace(given, &shown);
            // Of several lines a message has one, or all in one.
            let mut lines = given.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
            if given.contains('\n') && lines.peek().is_some_and(|first| text.contains(first)) {
                text = lines.fold(text, |text, line| text.replace(line, "***"));
            }
        }
    }
    text
}

fn cause(e: &Error) -> String {
    match e.cause_text() {
        Some(cause) => format!("{}: {cause}", e.what()),
        None => e.what().to_owned(),
    }
}

/// Something worth knowing that does not end the program.
pub(crate) fn warn(format: Format, kind: &'static str, what: impl Into<String>) {
    let message = Message { kind, what: what.into(), advice: None, line: None, store: None, name: None };
    say("warning", &message, format);
}

/// One line on stderr, which nothing waits for.
fn say(level: &str, m: &Message, format: Format) {
    let line = match format {
        Format::Text => {
            let text = m.line.clone().unwrap_or_else(|| match &m.advice {
                Some(advice) => format!("{}: {}: {advice}", m.kind, m.what),
                None => format!("{}: {}", m.kind, m.what),
            });
            format!("leasehold: {level}: {}\n", crate::output::printable(&text))
        }
        Format::Json => {
            let body = serde_json::json!({
                "kind": m.kind, "what": m.what, "advice": m.advice, "store": m.store, "name": m.name,
            });
            let mut object = serde_json::Map::new();
            object.insert(level.to_owned(), body);
            format!("{}\n", serde_json::Value::Object(object))
        }
    };
    crate::stderr::say(line);
}
