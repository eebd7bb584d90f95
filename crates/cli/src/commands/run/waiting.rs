//! What a waiting `run` says: on a terminal one live line with its place in the queue, who holds the lock, since when; and a
//! warning if it waits for its own end.

use std::convert::Infallible;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use leasehold::{Client, Name, Snapshot, Token};
use rustix::termios::tcgetwinsize;

use crate::args::Format;
use crate::{exit, output, stderr, terminal};

use super::plan::Plan;

/// A wait shorter than this is not worth a line.
const PATIENCE: Duration = Duration::from_millis(150);
/// How often the line moves, and after how many moves the store is asked again.
const TICK: Duration = Duration::from_millis(100);
const TICKS_A_LOOK: u32 = 10;

/// Shows the line for as long as it is polled, and takes it away when it is dropped. Never finishes.
pub(crate) async fn show(client: &Client, plan: &Plan) -> Infallible {
    if plan.quiet {
        return std::future::pending().await;
    }
    tokio::time::sleep(PATIENCE).await;
    warn_of_our_own_lock(client, plan).await;
    if plan.format == Format::Json || !io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    let line = Line::new();
    let mut ticks = 0;
    let mut text = None;
    loop {
        if ticks % TICKS_A_LOOK == 0 {
            text = describe(client, &plan.names).await.or(text);
        }
        ticks += 1;
        // A background job keeps quiet, and a terminal that was stopped (Ctrl-S) does not get all that it missed at
        // once.
        if let Some(text) = text.as_ref().filter(|_| terminal::is_ours() && stderr::is_idle()) {
            line.0.set_message(text.clone());
            line.0.tick();
        }
        tokio::time::sleep(TICK).await;
    }
}

/// A run inside a run of the same lock waits for what waits for it. The environment tells of the outer one, and of all
/// its locks (`--also`).
async fn warn_of_our_own_lock(client: &Client, plan: &Plan) {
    let outer = (0..).map_while(|at: usize| {
        let suffix = if at == 0 { String::new() } else { format!("_{at}") };
        let name = std::env::var(format!("LEASEHOLD_NAME{suffix}")).ok()?;
        Some((name, std::env::var(format!("LEASEHOLD_TOKEN{suffix}")).ok()))
    });
    for (name, token) in outer {
        let Some(name) = plan.names.iter().find(|ours| ours.as_str() == name) else { continue };
        let Ok(lock) = client.inspect(name).await else { return };
        let is_ours = |of: Option<Token>| of.is_some() && of.map(|of| of.to_string()) == token;
        if lock.holders.iter().any(|holder| is_ours(holder.token)) {
            let what = format!(
                "this command itself runs under the lock {:?}: it waits for its own end",
                name.as_str()
            );
            return exit::warn(plan.format, "deadlock", what);
        }
    }
}

struct Line(ProgressBar);

impl Line {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let target = ProgressDrawTarget::term_like(Box::new(Terminal::default()));
        Line(ProgressBar::with_draw_target(None, target).with_style(style))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
        // What the command writes comes after it.
        stderr::flush();
    }
}

/// The terminal that the line is drawn on, while it is ours.
#[derive(Debug, Default)]
struct Terminal(Mutex<String>);

impl Terminal {
    fn add(&self, text: impl std::fmt::Display) -> io::Result<()> {
        let mut drawn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(drawn, "{text}").map_err(io::Error::other)
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        const UNKNOWN: u16 = 80;
        let columns = tcgetwinsize(rustix::stdio::stderr()).map_or(0, |size| size.ws_col);
        if columns == 0 { UNKNOWN } else { columns }
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        if n == 0 { Ok(()) } else { self.add(format_args!("\x1b[{n}A")) }
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        if n == 0 { Ok(()) } else { self.add(format_args!("\x1b[{n}B")) }
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        if n == 0 { Ok(()) } else { self.add(format_args!("\x1b[{n}C")) }
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        if n == 0 { Ok(()) } else { self.add(format_args!("\x1b[{n}D")) }
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(format_args!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.add(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let drawn = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if !drawn.is_empty() && terminal::is_ours() {
            stderr::say(drawn);
        }
        Ok(())
    }
}

/// What keeps us: the first of the names that somebody else holds.
async fn describe(client: &Client, names: &[Name]) -> Option<String> {
    for name in names {
        let lock = client.inspect(name).await.ok()?;
        let ours = |session| session == client.session();
        if !lock.holders.is_empty() && !lock.holders.iter().any(|holder| ours(holder.session)) {
            let place =
                lock.waiters.iter().find(|waiter| ours(waiter.session)).and_then(|waiter| waiter.place);
            return Some(sentence(&lock, place));
        }
    }
    None
}

/// `waiting for backup: 2nd in line, held by host:17 rsync for 3m 02s`
pub(crate) fn sentence(lock: &Snapshot, place: Option<u32>) -> String {
    let place = place.map_or_else(String::new, |place| format!(" {} in line,", output::ordinal(place)));
    format!("waiting for {}:{place} {}", output::printable(lock.name.as_str()), held_by(lock))
}

/// `held by host:17 rsync for 3m 02s`
pub(crate) fn held_by(lock: &Snapshot) -> String {
    let Some(first) = lock.holders.first() else { return "held by nobody right now".to_owned() };
    let others = match lock.holders.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let age = output::duration(output::age(first.held_since.unwrap_or(first.since)));
    format!("held by {}{others} for {age}", first.label)
}
