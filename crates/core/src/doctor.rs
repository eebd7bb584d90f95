//! What a look at a store found: the lines of `leasehold doctor`.
//!
//! Whoever looks keeps two things apart: collecting facts, which needs the store, and grading them, which is a pure function
//! from facts to [`Finding`]s and can be tested without any store.

use std::fmt;
use std::time::Duration;

/// How much a finding matters. Ordered: the worst is the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// As it should be.
    Good,
    /// Worth knowing; nothing to do.
    Note,
    /// Locks work, but something makes them slower or less safe than they could be.
    Warning,
    /// Two holders at once, a lost lock or a stuck one can follow from it.
    Danger,
}

impl Grade {
    /// All of them, the worst first.
    pub const WORST_FIRST: [Grade; 4] = [Grade::Danger, Grade::Warning, Grade::Note, Grade::Good];

    /// The word that people and programs read.
    pub const fn as_str(self) -> &'static str {
        match self {
            Grade::Good => "good",
            Grade::Note => "note",
            Grade::Warning => "warning",
            Grade::Danger => "danger",
        }
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that was looked at.
///
/// ```
/// use leasehold_core::doctor::{Finding, Grade};
/// let full = Finding::new(Grade::Danger, "space", "the disk is full", "a lock that is released may stay taken")
///     .fix("make room")
///     .at("10.0.0.7:6379");
/// assert_eq!(full.fix.as_deref(), Some("make room"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub grade: Grade,
    /// What was looked at, in a word or two that programs can rely on: `eviction`, `persistence`, `clock`.
    pub check: &'static str,
    /// Which server it is about, where a store has more than one (never with a password).
    pub node: Option<String>,
    /// What was found.
    pub what: String,
    /// Why it matters for locks.
    pub why: String,
    /// What to do about it, if anything should be done.
    pub fix: Option<String>,
}

impl Finding {
    /// A finding without a remedy.
    pub fn new(grade: Grade, check: &'static str, what: impl Into<String>, why: impl Into<String>) -> Self {
        Finding { grade, check, node: None, what: what.into(), why: why.into(), fix: None }
    }

    /// Adds what to do about it.
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Says which server it is about.
    pub fn at(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }
}

/// A time as findings write it: `85µs`, `1.2ms`, `340ms`, `2.5s`, `3m 20s`, `2h 10m`, `5d 3h`.
pub fn time(time: Duration) -> String {
    let (micros, seconds) = (time.as_micros(), time.as_secs());
    match seconds {
        0 if micros < 1_000 => format!("{micros}µs"),
        0 if micros < 10_000 => format!("{}.{}ms", micros / 1_000, micros / 100 % 10),
        0 => format!("{}ms", micros / 1_000),
        1..60 => format!("{seconds}.{}s", time.subsec_millis() / 100),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A number of bytes as findings write it: `512 B`, `1.5 KiB`, `20 GiB`.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (0..units.len()).rfind(|unit| bytes >> (10 * unit) > 0).unwrap_or(0);
    let whole = bytes >> (10 * unit);
    if unit == 0 || whole >= 10 {
        return format!("{whole} {}", units[unit]);
    }
    let tenth = ((bytes >> (10 * (unit - 1))) & 1023) * 10 / 1024;
    format!("{whole}.{tenth} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_grade_is_the_highest() {
        assert!(Grade::WORST_FIRST.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn times_are_short() {
        for (micros, text) in [
            (0, "0µs"),
            (999, "999µs"),
            (1_250, "1.2ms"),
            (340_900, "340ms"),
            (2_590_000, "2.5s"),
            (200_000_000, "3m 20s"),
            (7_800_000_000, "2h 10m"),
            (442_800_000_000, "5d 3h"),
        ] {
            assert_eq!(time(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (20 << 30, "20 GiB"),
            ((2 << 40) - 1, "1.9 TiB"),
            (u64::MAX, "15 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
