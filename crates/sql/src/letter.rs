//! What sessions and watchers are told, as text.

use std::fmt::Write;
use std::time::Duration;

use leasehold_core::store::{Grant, News, Term};
use leasehold_core::view::{EntryView, Event, Happened, Lost};
use leasehold_core::{EntryId, Label, Name, SessionId, Token, TokenBlock, Want};

/// Something for one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// For whom.
    pub to: SessionId,
    /// How that session is told, in the database's own words.
    pub wake: String,
    /// What.
    pub text: String,
    /// Whether it is an event for a watcher, which may be long, and else a note about an entry.
    pub event: bool,
}

/// A note, as text.
pub(crate) fn note(id: EntryId, news: &News) -> Option<String> {
    Some(match news {
        News::Granted(grant) => {
            let Term::For(term) = grant.term else { return None };
            let (first, len, term) = (grant.tokens.first, grant.tokens.len, term.as_micros());
            let (started, contended) = (u8::from(grant.started), u8::from(grant.contended));
            format!("g {id} {first} {len} {term} {started} {contended}")
        }
        News::Retry => format!("r {id}"),
        News::ReleaseRequested => format!("p {id}"),
        News::Gone(Lost::Revoked) => format!("x {id} revoked"),
        News::Gone(_) => format!("x {id} expired"),
    })
}

/// Reads a note.
pub(crate) fn read_note(text: &str) -> Option<(EntryId, News)> {
    let mut words = text.split(' ');
    let (what, id) = (words.next()?, words.next()?.parse().ok()?);
    let news = match what {
        "g" => {
            let mut number = || words.next()?.parse::<u64>().ok();
            let tokens = TokenBlock { first: Token(number()?), len: u32::try_from(number()?).ok()? };
            let term = Term::For(Duration::from_micros(number()?));
            let (started, contended) = (number()? == 1, number()? == 1);
            News::Granted(Grant { tokens, term, started, contended, release_requested: false })
        }
        "r" => News::Retry,
        "p" => News::ReleaseRequested,
        "x" if words.next()? == "revoked" => News::Gone(Lost::Revoked),
        "x" => News::Gone(Lost::Expired),
        _ => return None,
    };
    Some((id, news))
}

/// An event, as text. The name is in hex: not every database takes every character.
pub(crate) fn event(name: &Name, at: u64, what: Happened, entry: &EntryView) -> Option<String> {
    let what = match what {
        Happened::Queued => 'q',
        Happened::Acquired => 'a',
        Happened::Released => 'r',
        Happened::Left => 'l',
        Happened::Expired => 'x',
        Happened::ReleaseRequested => 'p',
        Happened::Lost(Lost::Revoked) => 'v',
        Happened::Lost(Lost::SessionGone) => 's',
        _ => return None,
    };
    let want = match entry.want {
        Want::Exclusive => "x".to_owned(),
        Want::Shared => "s".to_owned(),
        Want::Permits { n, of } => format!("p{n}/{of}"),
    };
    let (token, session) = (entry.token.map_or(0, |token| token.0), entry.session);
    Some(format!("e {what} {at} {token} {session} {want} {} {}", hex(name.as_str().as_bytes()), entry.label))
}

/// Reads an event.
pub(crate) fn read_event(text: &str) -> Option<Event> {
    let mut words = text.strip_prefix("e ")?.splitn(7, ' ');
    let what = match words.next()? {
        "q" => Happened::Queued,
        "a" => Happened::Acquired,
        "r" => Happened::Released,
        "l" => Happened::Left,
        "x" => Happened::Expired,
        "p" => Happened::ReleaseRequested,
        "v" => Happened::Lost(Lost::Revoked),
        "s" => Happened::Lost(Lost::SessionGone),
        _ => return None,
    };
    let at = words.next()?.parse().ok()?;
    let token: u64 = words.next()?.parse().ok()?;
    let session = words.next()?.parse().ok()?;
    let want = match words.next()? {
        "x" => Want::Exclusive,
        "s" => Want::Shared,
        permits => {
            let (n, of) = permits.strip_prefix('p')?.split_once('/')?;
            Want::Permits { n: n.parse().ok()?, of: of.parse().ok()? }
        }
    };
    let name = Name::new(String::from_utf8(unhex(words.next()?)?).ok()?).ok()?;
    let label = Label::new(words.next()?);
    Some(Event { at, name, what, label, session, want, token: (token > 0).then_some(Token(token)) })
}

/// Two digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if digits.len().is_multiple_of(2) { digits.chunks(2).map(pair).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_text() {
        let tokens = TokenBlock { first: Token(77), len: 1024 };
        let term = Term::For(Duration::from_millis(30));
        let grant = Grant { tokens, term, started: false, contended: true, release_requested: false };
        for news in [
            News::Granted(grant),
            News::Retry,
            News::ReleaseRequested,
            News::Gone(Lost::Revoked),
            News::Gone(Lost::Expired),
        ] {
            let text = note(EntryId(5), &news).unwrap();
            assert_eq!(read_note(&text), Some((EntryId(5), news)));
        }
        for bad in ["", "g", "g 1", "x", "y 00000000000000000000000000000005"] {
            assert_eq!(read_note(bad), None, "{bad}");
        }
    }

    #[test]
    fn events_survive_text() {
        let entry = EntryView {
            id: EntryId(1),
            session: SessionId(2),
            label: Label::new("a b  c"),
            want: Want::Permits { n: 2, of: 5 },
            barges: false,
            since: 0,
            held_since: None,
            token: Some(Token(9)),
            lease_left: None,
            place: None,
            release_requested: false,
        };
        let name = Name::new("nul\0 and space").unwrap();
        let text = event(&name, 44, Happened::Acquired, &entry).unwrap();
        let read = read_event(&text).unwrap();
        assert_eq!((read.name, read.at, read.what, read.want), (name, 44, Happened::Acquired, entry.want));
        assert_eq!((read.label, read.session, read.token), (entry.label, entry.session, entry.token));
        assert_eq!(read_event("e a 1"), None);
    }
}
