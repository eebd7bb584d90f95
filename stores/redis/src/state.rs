//! How the state of a lock is written at the server, and how the scripts' answers are read.
//!
//! `scripts/kept.lua` says what a record is. What can't be read is an error that says so: somebody else's data, or a
//! newer version of ours.

use std::fmt::Write;
use std::time::Duration;

use leasehold_core::store::{
    Ask, Grant, Joined, Leave, Otherwise, Presence, Renewal, Renewed, Term, Waiting,
};
use leasehold_core::view::{EntryView, Event, Happened, Lost, Snapshot};
use leasehold_core::{EntryId, Error, Kind, Label, Lease, Name, Result, SessionId, Token, TokenBlock, Want};
use redis::Value;

use crate::keys::{Keys, is_plain};
use crate::scripts::{BLOCK, code};

/// A request for a lock, as the script reads it: the entry's id, and the part of its record that never changes.
pub(crate) fn claim(me: &Presence, ask: &Ask, tag: &str) -> String {
    let mut text = String::with_capacity(160 + ask.name.as_str().len() + me.label.as_str().len());
    // Writing to a string does not fail.
    let _ = write!(text, "{} ", ask.id);
    write_terms(&mut text, me, ask, tag);
    text
}

/// The part of a record that never changes: what was asked, and by whom. The same for all names that are their own keys.
pub(crate) fn terms(me: &Presence, ask: &Ask, tag: &str) -> String {
    let mut text = String::with_capacity(128 + me.label.as_str().len());
    write_terms(&mut text, me, ask, tag);
    text
}

fn write_terms(text: &mut String, me: &Presence, ask: &Ask, tag: &str) {
    let (kept, lease) = match ask.lease {
        Lease::Kept(lease) => ('k', lease),
        Lease::Fixed(lease) => ('f', lease),
    };
    let (want, n, of) = match ask.want {
        Want::Exclusive => ('x', 0, 0),
        Want::Shared => ('s', 0, 0),
        Want::Permits { n, of } => ('p', n, of),
    };
    let how = match ask.otherwise {
        Otherwise::Queue => 'q',
        Otherwise::Barge => 'b',
        Otherwise::GoAway => 'a',
    };
    let name = if is_plain(&ask.name) { "" } else { ask.name.as_str() };
    let (lease, place) = (lease.as_micros(), ask.place.as_micros());
    let _ = write!(
        text,
        "{kept}{lease:016}{how}{place:016} {} {want}{n}/{of} {tag} {} {name}{}",
        me.id,
        name.len(),
        me.label
    );
}

/// That an entry leaves, as the script reads it: as the lock is written if it was held with this one token.
pub(crate) fn leaving(leave: &Leave) -> String {
    let used = leave.used.map_or(0, |token| token.0);
    format!("n {used:016} {}", leave.id)
}

/// A renewal, as the script reads it.
pub(crate) fn renewal(line: &Renewal) -> String {
    let token = line.token.map_or(0, |token| token.0);
    format!("{}{}{token}", line.id, u8::from(line.more_tokens))
}

/// What a script answers to a request about one entry.
pub(crate) struct Answer([i64; 4]);

impl Answer {
    /// The answers of a script: four numbers for each entry.
    pub(crate) fn all(value: Value) -> Result<Vec<Answer>> {
        let numbers = match &value {
            Value::Array(items) => items.iter().map(number).collect::<Option<Vec<i64>>>(),
            _ => None,
        };
        let numbers = numbers.filter(|n| n.len() % 4 == 0).ok_or_else(|| unreadable(&value))?;
        Ok(numbers.chunks_exact(4).map(|n| Answer([n[0], n[1], n[2], n[3]])).collect())
    }

    pub(crate) fn one(value: Value) -> Result<Answer> {
        Answer::all(value)?.pop().ok_or_else(|| unreadable(&Value::Nil))
    }

    /// The answer to a request for a lock: the first token alone, if it was free.
    pub(crate) fn joined(value: Value, ask: &Ask) -> Result<Joined> {
        if let Value::BulkString(first) = &value {
            let first = std::str::from_utf8(first).ok().and_then(|text| text.parse().ok());
            let first = Token(first.ok_or_else(|| unreadable(&value))?);
            let (Lease::Kept(lease) | Lease::Fixed(lease)) = ask.lease;
            let tokens = TokenBlock { first, len: BLOCK };
            return Ok(Joined::Held(Grant {
                tokens,
                term: Term::For(lease),
                started: true,
                contended: false,
                release_requested: false,
            }));
        }
        Answer::one(value)?.read_joined(ask.want)
    }

    fn read_joined(&self, want: Want) -> Result<Joined> {
        match self.0 {
            [code::BUSY, ..] => Ok(Joined::Busy),
            [code::WAITING, ..] => Ok(Joined::Waiting(self.waiting())),
            [code::MISMATCH, limit, ..] => Err(mismatch(limit, want)),
            [flags, ..] if flags & code::HELD != 0 => Ok(Joined::Held(self.grant())),
            _ => Err(unreadable(&Value::Int(self.0[0]))),
        }
    }

    pub(crate) fn renewed(&self) -> Result<Renewed> {
        match self.0 {
            [code::WAITING, ..] => Ok(Renewed::Waiting(self.waiting())),
            [code::GONE, code::EXPIRED, ..] => Ok(Renewed::Gone(Lost::Expired)),
            [code::GONE, code::REVOKED, ..] => Ok(Renewed::Gone(Lost::Revoked)),
            [code::GONE, code::WIPED, ..] => Ok(Renewed::Gone(Lost::Wiped)),
            [flags, ..] if flags & code::HELD != 0 => Ok(Renewed::Held(self.grant())),
            _ => Err(unreadable(&Value::Int(self.0[0]))),
        }
    }

    fn grant(&self) -> Grant {
        let [flags, first, len, term] = self.0;
        Grant {
            tokens: TokenBlock { first: Token(first as u64), len: len as u32 },
            term: Term::For(Duration::from_micros(term as u64)),
            started: flags & code::NOT_STARTED == 0,
            contended: flags & code::CONTENDED != 0,
            release_requested: flags & code::ASKED != 0,
        }
    }

    fn waiting(&self) -> Waiting {
        let [_, place, poll_in, _] = self.0;
        Waiting {
            place: u32::try_from(place).ok(),
            poll_in: u64::try_from(poll_in).ok().map(Duration::from_micros),
        }
    }
}

fn mismatch(limit: i64, want: Want) -> Error {
    let of = if let Want::Permits { of, .. } = want { of } else { 0 };
    let what = format!("the semaphore has a limit of {limit} permits now, and this claim says {of}");
    Error::new(Kind::Mismatch, what)
        .advice("use the same limit everywhere, or change it for all with set_limit")
}

/// How a lock stands, and its name if only the records have it.
pub(crate) struct Shown {
    pub(crate) snapshot: Snapshot,
    /// From whom it was taken, or who was asked for it.
    pub(crate) meant: Vec<EntryView>,
    /// Whether nobody holds it and nobody waits.
    pub(crate) idle: bool,
}

/// Reads what `show.lua` says. `name` is what the key says, if it says it.
pub(crate) fn shown(value: &Value, name: Option<Name>) -> Result<Shown> {
    read_shown(value, name, false).ok_or_else(|| unreadable(value))
}

/// Reads what `revoke.lua` says: whom it took the lock from, or asked for it, and how it stands now.
pub(crate) fn revoked(value: &Value, name: Name) -> Result<Shown> {
    read_shown(value, Some(name), true).ok_or_else(|| unreadable(value))
}

fn read_shown(value: &Value, mut name: Option<Name>, revoked_first: bool) -> Option<Shown> {
    let Value::Array(items) = value else { return None };
    let mut items = items.iter();
    let mut raw = Vec::new();
    if revoked_first {
        for _ in 0..number(items.next()?)? {
            raw.push((text(items.next()?)?, text(items.next()?)?));
        }
    }
    let now = number(items.next()?)?;
    let limit = u32::try_from(number(items.next()?)?).ok().filter(|limit| *limit > 0);
    let mut views = Vec::with_capacity(raw.len());
    for (id, record) in raw {
        views.push(Record::read(record)?.view(id, now)?);
    }
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    while let Some(kind) = items.next() {
        let (kind, id) = (text(kind)?, text(items.next()?)?);
        let record = Record::read(text(items.next()?)?)?;
        name = name.or_else(|| Name::new(record.fixed.name).ok());
        let mut view = record.view(id, now)?;
        match kind {
            "h" => holders.push(view),
            "q" => {
                view.place = Some(waiters.len() as u32);
                waiters.push(view);
            }
            _ => {
                view.barges = true;
                waiters.push(view);
            }
        }
    }
    let idle = holders.is_empty() && waiters.is_empty();
    let name = name.or_else(|| idle.then(|| Name::new("-").ok()).flatten())?;
    Some(Shown { snapshot: Snapshot { name, holders, waiters, limit }, meant: views, idle })
}

/// One entry, as the server keeps it.
struct Record<'a> {
    ends: i64,
    first: u64,
    at: u64,
    since: u64,
    asked: bool,
    fixed: Fixed<'a>,
}

/// The part of a record that never changes.
struct Fixed<'a> {
    session: SessionId,
    want: Want,
    name: &'a str,
    label: &'a str,
}

impl<'a> Record<'a> {
    fn read(record: &'a str) -> Option<Self> {
        Some(Record {
            ends: record.get(0..16)?.parse().ok()?,
            first: record.get(17..33)?.parse().ok()?,
            at: record.get(68..84)?.parse().ok()?,
            since: record.get(85..101)?.parse().ok()?,
            asked: record.get(102..103)?.parse::<u8>().ok()? >= 2,
            fixed: Fixed::read(record.get(123..)?)?,
        })
    }

    fn view(&self, id: &str, now: i64) -> Option<EntryView> {
        let held = self.first > 0;
        Some(EntryView {
            id: id.parse::<EntryId>().ok()?,
            session: self.fixed.session,
            label: Label::new(self.fixed.label),
            want: self.fixed.want,
            barges: false,
            since: self.since,
            held_since: held.then_some(self.at),
            token: held.then_some(Token(self.first)),
            lease_left: Some(Duration::from_micros(u64::try_from(self.ends - now).unwrap_or(0))),
            place: None,
            release_requested: self.asked,
        })
    }
}

impl<'a> Fixed<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let session = text.get(35..67)?.parse().ok()?;
        let mut words = text.get(68..)?.splitn(4, ' ');
        let (want, _tag, len) = (words.next()?, words.next()?, words.next()?.parse::<usize>().ok()?);
        let rest = words.next()?;
        let (n, of) = want.get(1..)?.split_once('/')?;
        let want = match want.get(..1)? {
            "x" => Want::Exclusive,
            "s" => Want::Shared,
            "p" => Want::Permits { n: n.parse().ok()?, of: of.parse().ok()? },
            _ => return None,
        };
        Some(Fixed { session, want, name: rest.get(..len)?, label: rest.get(len..)? })
    }
}

/// Reads what a script told the watchers.
pub(crate) fn event(payload: &[u8], keys: &Keys) -> Option<Event> {
    let mut words = std::str::from_utf8(payload).ok()?.splitn(5, ' ');
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
    let len: usize = words.next()?.parse().ok()?;
    let rest = words.next()?;
    let fixed = Fixed::read(rest.get(len..)?)?;
    let name = keys.name(rest.get(..len)?).or_else(|| Name::new(fixed.name).ok())?;
    Some(Event {
        at,
        name,
        what,
        label: Label::new(fixed.label),
        session: fixed.session,
        want: fixed.want,
        token: (token > 0).then_some(Token(token)),
    })
}

pub(crate) fn number(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(crate) fn unreadable(value: &Value) -> Error {
    let mut shown = format!("{value:?}");
    if shown.len() > 200 {
        shown = shown.chars().take(200).collect::<String>() + "…";
    }
    Error::new(Kind::Store, format!("the server's answer makes no sense: {shown}"))
        .advice("look whether other programs write to the lock's keys, or a newer version of this one does")
}
