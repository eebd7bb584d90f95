//! What is written in nodes: lines of `key=value`, so that whoever reads them with `zkCli` understands them.
//!
//! Nothing here is needed to decide who holds, except that a writer became a reader (`want=shared`) and that the number of
//! permits was changed. So data that somebody damaged by hand makes a view poorer, and no lock unsafe.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::view::Lost;
use leasehold_core::{EntryId, Label, Lease, SessionId, Want};

/// How many removals a lock remembers.
const REMEMBERED: usize = 16;

/// What an entry's node says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) label: Label,
    pub(crate) session: SessionId,
    pub(crate) want: Want,
    pub(crate) lease: Option<Lease>,
    /// When it got the lock, in microseconds since 1970, where that is not when it came.
    pub(crate) held: Option<u64>,
    /// Whether somebody asked for the lock back.
    pub(crate) release_requested: bool,
}

impl About {
    /// Reads the data of a node whose name says `want`. What can't be read is left out.
    pub(crate) fn read(data: &[u8], want: Want) -> About {
        let text = String::from_utf8_lossy(data);
        let mut about = About {
            label: Label::new("?"),
            session: SessionId(0),
            want,
            lease: None,
            held: None,
            release_requested: false,
        };
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "label" => about.label = Label::new(value),
                "session" => about.session = value.parse().unwrap_or(about.session),
                // A downgrade is the only change.
                "want" if value == Want::Shared.as_str() && want == Want::Exclusive => {
                    about.want = Want::Shared;
                }
                "lease" => about.lease = read_lease(value),
                "held" => about.held = read_time(value),
                "release-requested" => about.release_requested = value == "yes",
                _ => {}
            }
        }
        about
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut text = format!("label={}\nsession={}\n", self.label, self.session);
        // Writing to a string does not fail.
        let _ = match self.want {
            Want::Permits { n, of } => writeln!(text, "want=permits {n} of {of}"),
            other => writeln!(text, "want={}", other.as_str()),
        };
        let _ = match self.lease {
            Some(Lease::Kept(d)) => writeln!(text, "lease=kept {}", humantime::format_duration(d)),
            Some(Lease::Fixed(d)) => writeln!(text, "lease=fixed {}", humantime::format_duration(d)),
            None => Ok(()),
        };
        if let Some(held) = self.held {
            let _ = writeln!(text, "held={}", write_time(held));
        }
        if self.release_requested {
            text.push_str("release-requested=yes\n");
        }
        text.into_bytes()
    }
}

fn read_lease(text: &str) -> Option<Lease> {
    let (kind, length) = text.split_once(' ')?;
    let length = humantime::parse_duration(length).ok()?;
    match kind {
        "kept" => Some(Lease::Kept(length)),
        "fixed" => Some(Lease::Fixed(length)),
        _ => None,
    }
}

fn read_time(text: &str) -> Option<u64> {
    let since = humantime::parse_rfc3339(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_micros()).ok()
}

fn write_time(micros: u64) -> String {
    // Beyond the year 9999 there is nothing to read.
    let time = SystemTime::UNIX_EPOCH + Duration::from_micros(micros.min(250_000_000_000_000_000));
    humantime::format_rfc3339_micros(time).to_string()
}

/// What a lock's own node says, if it says anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LockData {
    /// A number of permits that somebody set, and the zxid of that change, if it is not the node's last.
    pub(crate) limit: Option<(u32, Option<i64>)>,
    /// Entries that did not leave by themselves, the last one last.
    pub(crate) removed: Vec<(EntryId, Lost)>,
}

impl LockData {
    pub(crate) fn read(data: &[u8]) -> LockData {
        let mut found = LockData::default();
        for (key, value) in String::from_utf8_lossy(data).lines().filter_map(|line| line.split_once('=')) {
            match key {
                "limit" => found.limit = read_limit(value),
                "removed" => found.removed.extend(read_removed(value)),
                _ => {}
            }
        }
        found
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut text = String::new();
        if let Some((limit, at)) = self.limit {
            text.push_str(&format!("limit={limit}"));
            if let Some(at) = at {
                text.push_str(&format!(" at {at:#x}"));
            }
            text.push('\n');
        }
        for (id, why) in &self.removed {
            text.push_str(&format!("removed={id} {why}\n"));
        }
        text.into_bytes()
    }

    /// Notes that an entry was taken out. `changed` is when the node was last changed: a limit keeps its own time.
    pub(crate) fn remember(&mut self, id: EntryId, why: Lost, changed: i64) {
        if let Some((_, at)) = &mut self.limit {
            at.get_or_insert(changed);
        }
        self.removed.push((id, why));
        let old = self.removed.len().saturating_sub(REMEMBERED);
        self.removed.drain(..old);
    }

    /// Why an entry is gone, if it did not leave by itself.
    pub(crate) fn reason(&self, id: EntryId) -> Option<Lost> {
        self.removed.iter().rev().find(|(removed, _)| *removed == id).map(|(_, why)| *why)
    }
}

fn read_limit(text: &str) -> Option<(u32, Option<i64>)> {
    match text.split_once(" at 0x") {
        None => Some((text.parse().ok()?, None)),
        Some((limit, at)) => Some((limit.parse().ok()?, Some(i64::from_str_radix(at, 16).ok()?))),
    }
}

fn read_removed(text: &str) -> Option<(EntryId, Lost)> {
    let (id, why) = text.split_once(' ')?;
    let why = [Lost::Expired, Lost::Revoked].into_iter().find(|lost| lost.as_str() == why)?;
    Some((id.parse().ok()?, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About {
            label: Label::new("host:1 a=b"),
            session: SessionId(7),
            want: Want::Exclusive,
            lease: Some(Lease::Fixed(Duration::from_millis(1500))),
            held: Some(1_763_266_000_123_456),
            release_requested: true,
        }
    }

    #[test]
    fn an_entry_survives_text() {
        let about = about();
        assert_eq!(About::read(&about.write(), Want::Exclusive), about);
        let shared = About { want: Want::Shared, held: None, release_requested: false, lease: None, ..about };
        assert_eq!(About::read(&shared.write(), Want::Exclusive), shared, "a downgraded writer");
    }

    #[test]
    fn damaged_data_is_read_as_far_as_it_goes() {
        for data in [&b""[..], b"\xff\xfe", b"label", b"want=nonsense\nlease=7\nheld=x\nsession=z\n"] {
            let read = About::read(data, Want::Shared);
            assert_eq!((read.want, read.lease, read.held), (Want::Shared, None, None));
        }
        assert_eq!(
            About::read(b"want=shared\n", Want::Permits { n: 1, of: 2 }).want,
            Want::Permits { n: 1, of: 2 }
        );
    }

    #[test]
    fn a_lock_survives_text_and_remembers_the_last_removals() {
        let mut data = LockData { limit: Some((5, None)), removed: Vec::new() };
        assert_eq!(LockData::read(&data.write()), data);
        for n in 0..40 {
            data.remember(EntryId(n), Lost::Revoked, 0x1_0000_0003 + n as i64);
        }
        assert_eq!(data.removed.len(), REMEMBERED);
        assert_eq!(data.limit, Some((5, Some(0x1_0000_0003))), "the limit's own time stays");
        assert_eq!(LockData::read(&data.write()), data);
        assert_eq!((data.reason(EntryId(39)), data.reason(EntryId(1))), (Some(Lost::Revoked), None));
        assert_eq!(LockData::read(b"limit=x\nremoved=1 revoked\n"), LockData::default());
    }
}
