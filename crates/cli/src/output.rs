//! How things are written: aligned text with colour on a terminal, durations and times for people, JSON for programs.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{EntryView, Snapshot, Want};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

/// Where results go.
pub(crate) struct Out {
    to: BufWriter<StdoutLock<'static>>,
    colour: bool,
}

/// How a cell looks on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Heading,
    Name,
    Good,
    Bad,
    Faint,
}

impl Look {
    const fn code(self) -> &'static str {
        match self {
            Look::Plain => "",
            Look::Heading => "1",
            Look::Name => "36",
            Look::Good => "32",
            Look::Bad => "31",
            Look::Faint => "2",
        }
    }
}

impl Out {
    /// Stdout, coloured if it is a terminal that wants colour.
    pub(crate) fn stdout() -> Self {
        let stdout = io::stdout().lock();
        let colour = stdout.is_terminal()
            && wants_colour(|key| std::env::var_os(key).map(|v| v.to_string_lossy().into_owned()));
        Out { to: BufWriter::new(stdout), colour }
    }

    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.to, "{text}")
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)
    }

    pub(crate) fn json(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.to, "{value}")
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    /// The text in this look, if looks are wanted.
    pub(crate) fn paint(&self, text: &str, look: Look) -> String {
        if self.colour && look != Look::Plain {
            format!("\x1b[{}m{text}\x1b[0m", look.code())
        } else {
            text.to_owned()
        }
    }

    /// A table: its heading, then rows of as many cells. Columns are as wide as their widest cell.
    pub(crate) fn table(&mut self, heading: &[&str], rows: &[Vec<Cell>]) -> io::Result<()> {
        let heading: Vec<Cell> = heading.iter().map(|text| Cell::new(*text, Look::Heading)).collect();
        let mut widths: Vec<usize> = heading.iter().map(Cell::width).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        for row in std::iter::once(&heading).chain(rows) {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                line.push_str(&self.paint(&cell.text, cell.look));
                if at + 1 < row.len() {
                    line.push_str(&" ".repeat(widths[at] - cell.width() + 2));
                }
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }
}

/// NO_COLOR (no-color.org) and dumb terminals.
fn wants_colour(env: impl Fn(&str) -> Option<String>) -> bool {
    env("NO_COLOR").is_none_or(|v| v.is_empty()) && env("TERM").is_none_or(|v| v != "dumb")
}

/// One cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    look: Look,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>, look: Look) -> Self {
        Cell { text: printable(text.as_ref()).into_owned(), look }
    }

    pub(crate) fn plain(text: impl AsRef<str>) -> Self {
        Cell::new(text, Look::Plain)
    }

    /// A cell that says "nothing here".
    pub(crate) fn none() -> Self {
        Cell::new("-", Look::Faint)
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

/// The text without what could move the cursor or change the terminal: names and labels come from others.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unprintable(c) { clean.extend(c.escape_default()) } else { clean.push(c) }
    }
    Cow::Owned(clean)
}

fn is_unprintable(c: char) -> bool {
    // Controls, and the marks that reverse the direction of what follows.
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// `45ms`, `3.2s`, `4m 05s`, `2h 10m`, `3d 4h`: never more than two units.
pub(crate) fn duration(d: Duration) -> String {
    let (millis, seconds) = (d.as_millis(), d.as_secs());
    match seconds {
        0 => format!("{millis}ms"),
        1..=9 => format!("{seconds}.{}s", millis / 100 % 10),
        10..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// How long ago this was, by our own clock; zero if it is ahead of us.
pub(crate) fn age(micros: u64) -> Duration {
    Duration::from_micros(unix_micros().saturating_sub(micros))
}

/// `2026-11-15T21:40:03.120Z`
pub(crate) fn moment(micros: u64) -> String {
    // The formatter has no words for years past 9999.
    let last = 253_402_300_799_000_000;
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_micros(micros.min(last))).to_string()
}

pub(crate) fn unix_micros() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}

/// `1st`, `2nd`, …, for a place that counts from 0.
pub(crate) fn ordinal(place: u32) -> String {
    let n = u64::from(place) + 1;
    let suffix = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

/// `exclusive`, `shared`, `2 of 5 permits`.
pub(crate) fn want(want: Want) -> String {
    match want {
        Want::Permits { n, of } => format!("{n} of {of} permits"),
        other => other.as_str().to_owned(),
    }
}

/// A lock as docs/json.md describes it.
pub(crate) fn snapshot_json(snapshot: &Snapshot) -> Value {
    json!({
        "name": snapshot.name.as_str(),
        "limit": snapshot.limit,
        "holders": snapshot.holders.iter().map(entry_json).collect::<Vec<_>>(),
        "waiters": snapshot.waiters.iter().map(entry_json).collect::<Vec<_>>(),
    })
}

/// An entry as docs/json.md describes it.
pub(crate) fn entry_json(entry: &EntryView) -> Value {
    let mut object = json!({
        "label": entry.label.to_string(),
        "session": entry.session.to_string(),
        "entry": entry.id.to_string(),
        "order": if entry.barges { "barge" } else { "queue" },
        "since_unix_ms": entry.since / 1_000,
        "held_since_unix_ms": entry.held_since.map(|us| us / 1_000),
        "token": entry.token.map(|t| t.to_string()),
        "lease_left_ms": entry.lease_left.map(millis),
        "place": entry.place,
        "release_requested": entry.release_requested,
    });
    add_want(&mut object, entry.want);
    object
}

/// Adds `want` and `permits`.
pub(crate) fn add_want(object: &mut Value, want: Want) {
    object["want"] = want.as_str().into();
    object["permits"] = match want {
        Want::Permits { n, .. } => n.into(),
        _ => Value::Null,
    };
}

pub(crate) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (3_250, "3.2s"),
            (59_999, "59s"),
            (245_000, "4m 05s"),
            (7_800_000, "2h 10m"),
            (273_600_000, "3d 4h"),
        ] {
            assert_eq!(duration(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn places_are_counted_as_people_do() {
        let said: Vec<String> = [0, 1, 2, 3, 10, 11, 12, 20, 21, 110].map(ordinal).into();
        assert_eq!(said, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "111th"]);
    }

    #[test]
    fn a_name_can_not_change_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(printable("\u{202e}x"), "\\u{202e}x");
        assert_eq!(printable("nächtlich 🌙 {x}"), "nächtlich 🌙 {x}");
    }

    #[test]
    fn no_color_and_dumb_terminals_are_honoured() {
        let with = |no_color: Option<&str>, term: Option<&str>| {
            wants_colour(|key| if key == "NO_COLOR" { no_color } else { term }.map(str::to_owned))
        };
        assert!(with(None, Some("xterm")));
        assert!(with(Some(""), None));
        assert!(!with(Some("1"), Some("xterm")));
        assert!(!with(None, Some("dumb")));
    }

    #[test]
    fn a_moment_past_all_calendars_is_no_panic() {
        assert_eq!(moment(0), "1970-01-01T00:00:00.000Z");
        assert!(moment(u64::MAX).starts_with("9999-12-31"));
    }
}
