//! What happened to locks as their users saw it, and whether it was right.
//!
//! A visit is recorded after the lock was got and ended before it is given back, so two visits that overlap in the
//! history did overlap in truth: a failed check is never a false alarm.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_client::Guard;
use leasehold_core::{Token, Want};

/// A history that all users of the locks write to. Clones share it.
#[derive(Clone)]
pub struct History {
    start: Instant,
    records: Arc<Mutex<Vec<Record>>>,
}

/// One line of a history.
#[derive(Debug, Clone)]
pub struct Record {
    /// When, counted from the start of the history.
    pub at: Duration,
    /// Which visit it belongs to.
    pub visit: usize,
    /// Who did it.
    pub who: String,
    /// What happened.
    pub what: What,
}

/// What can happen.
#[derive(Debug, Clone)]
pub enum What {
    /// A lock was got.
    Entered {
        /// Which.
        name: String,
        /// How.
        want: Want,
        /// The token of this visit.
        token: Token,
    },
    /// It is about to be given back.
    Left,
    /// Anything else that helps to understand the rest.
    Said(String),
}

/// A stay inside a lock. Ends when it is dropped, which must be before the guard is.
#[must_use = "a visit ends when it is dropped"]
pub struct Visit {
    history: History,
    visit: usize,
    who: String,
}

impl Default for History {
    fn default() -> Self {
        History { start: Instant::now(), records: Arc::default() }
    }
}

impl History {
    /// Records that `who` holds this guard.
    pub fn enter(&self, who: impl fmt::Display, guard: &Guard) -> Visit {
        self.enter_with(who, guard.name(), guard.want(), guard.token())
    }

    /// Records a stay that no guard of this process stands for.
    pub fn enter_with(&self, who: impl fmt::Display, name: &str, want: Want, token: Token) -> Visit {
        let who = who.to_string();
        let mut records = self.records();
        let visit = records.len();
        let what = What::Entered { name: name.to_owned(), want, token };
        records.push(Record { at: self.start.elapsed(), visit, who: who.clone(), what });
        Visit { history: self.clone(), visit, who }
    }

    /// Records a remark.
    pub fn say(&self, who: impl fmt::Display, text: impl fmt::Display) {
        let (who, what) = (who.to_string(), What::Said(text.to_string()));
        self.records().push(Record { at: self.start.elapsed(), visit: usize::MAX, who, what });
    }

    /// All records so far.
    pub fn all(&self) -> Vec<Record> {
        self.records().clone()
    }

    /// How many visits there were.
    pub fn visits(&self) -> usize {
        self.records().iter().filter(|r| matches!(r.what, What::Entered { .. })).count()
    }

    /// Checks that those who held a lock together could, and that tokens rose. Panics with what led there.
    #[track_caller]
    pub fn check(&self) {
        if let Err((at, wrong)) = verdict(&self.all()) {
            panic!("{wrong}\n{}", self.around(at));
        }
    }

    fn around(&self, at: usize) -> String {
        let records = self.all();
        let from = at.saturating_sub(30);
        let mut text = format!("the history up to it (lines {from} to {at} of {}):\n", records.len());
        for record in &records[from..=at] {
            text += &format!("{record}\n");
        }
        text
    }

    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let (visit, who) = (self.visit, std::mem::take(&mut self.who));
        let at = self.history.start.elapsed();
        self.history.records().push(Record { at, visit, who, what: What::Left });
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.6} {:<14} ", self.at.as_secs_f64(), self.who)?;
        match &self.what {
            What::Entered { name, want, token } => {
                write!(f, "entered {name:?} {} with token {token}", want.as_str())
            }
            What::Left => f.write_str("left"),
            What::Said(text) => f.write_str(text),
        }
    }
}

/// Someone inside a lock.
struct Inside<'a> {
    visit: usize,
    name: &'a str,
    want: Want,
    token: Token,
}

/// The line that is wrong, and why.
fn verdict(records: &[Record]) -> Result<(), (usize, String)> {
    let mut inside: Vec<Inside<'_>> = Vec::new();
    // The highest token that left, of each name and want.
    let mut left: Vec<(&str, Want, Token)> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        match &record.what {
            What::Said(_) => {}
            What::Left => {
                let Some(place) = inside.iter().position(|i| i.visit == record.visit) else { continue };
                let gone = inside.swap_remove(place);
                match left.iter_mut().find(|(name, want, _)| (*name, *want) == (gone.name, gone.want)) {
                    Some((_, _, highest)) => *highest = (*highest).max(gone.token),
                    None => left.push((gone.name, gone.want, gone.token)),
                }
            }
            What::Entered { name, want, token } => {
                check_token(&left, name, *want, *token).map_err(|wrong| (at, wrong))?;
                inside.push(Inside { visit: record.visit, name, want: *want, token: *token });
                check_company(&inside, name).map_err(|wrong| (at, wrong))?;
            }
        }
    }
    Ok(())
}

/// A grant came after those that it could not have held beside. Of the others nobody knows: two that share may be recorded
/// in another order than they were let in.
fn check_token(left: &[(&str, Want, Token)], name: &str, want: Want, token: Token) -> Result<(), String> {
    let before = left.iter().filter(|(other, had, _)| *other == name && !fits(&[*had, want]));
    match before.map(|(_, _, token)| *token).max() {
        Some(highest) if highest >= token => {
            Err(format!("token {token} is not above {highest}, whose holder had left before"))
        }
        _ => Ok(()),
    }
}

fn check_company(inside: &[Inside<'_>], name: &str) -> Result<(), String> {
    let here: Vec<&Inside<'_>> = inside.iter().filter(|i| i.name == name).collect();
    let together: Vec<Want> = here.iter().map(|i| i.want).collect();
    if !fits(&together) {
        return Err(format!("these held {name:?} together: {together:?}"));
    }
    let twin = here.iter().enumerate().find(|(n, i)| here[..*n].iter().any(|other| other.token == i.token));
    twin.map_or(Ok(()), |(_, twin)| Err(format!("token {} was given twice", twin.token)))
}

/// Whether these can hold one lock at the same moment.
pub(crate) fn fits(together: &[Want]) -> bool {
    let mut permits = 0;
    together.len() <= 1
        || together.iter().all(|want| *want == Want::Shared)
        || together.iter().all(|want| match want {
            Want::Permits { n, of } => {
                permits += n;
                permits <= *of
            }
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(history: &History, want: Want, token: u64) -> Visit {
        history.enter_with("x", "n", want, Token(token))
    }

    fn wrong(history: &History) -> Option<String> {
        verdict(&history.all()).err().map(|(_, wrong)| wrong)
    }

    #[test]
    fn a_right_history_passes() {
        let history = History::default();
        drop(enter(&history, Want::Exclusive, 1));
        let two = (enter(&history, Want::Shared, 2), enter(&history, Want::Shared, 3));
        drop(two);
        let (two, one) = (Want::Permits { n: 2, of: 3 }, Want::Permits { n: 1, of: 3 });
        drop((enter(&history, two, 5), enter(&history, one, 4)));
        history.check();
        assert_eq!(history.visits(), 5);
    }

    #[test]
    fn a_double_hold_is_found() {
        for (a, b) in [
            (Want::Exclusive, Want::Exclusive),
            (Want::Exclusive, Want::Shared),
            (Want::Permits { n: 2, of: 3 }, Want::Permits { n: 2, of: 3 }),
        ] {
            let history = History::default();
            drop((enter(&history, a, 1), enter(&history, b, 2)));
            assert!(wrong(&history).unwrap().contains("together"));
        }
    }

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let history = History::default();
        drop(enter(&history, Want::Exclusive, 7));
        drop(enter(&history, Want::Exclusive, 7));
        assert!(wrong(&history).unwrap().contains("not above"));
    }

    #[test]
    #[should_panic(expected = "entered \"n\" exclusive with token 2")]
    fn the_panic_shows_what_led_there() {
        let history = History::default();
        let _both = (enter(&history, Want::Exclusive, 1), enter(&history, Want::Exclusive, 2));
        history.check();
    }
}
