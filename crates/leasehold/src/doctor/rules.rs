//! From what was seen to findings: what is good, what is slow, what endangers locks. Pure.

use std::time::Duration;

use leasehold_client::{Error, Result, Snapshot, Token, Traits};
use leasehold_core::doctor::{Finding, Grade, time};
use leasehold_core::traits::Death;

use super::in_words;
use super::trial::How;

/// Slower than this is felt by people who wait for it, and far from what a store nearby needs.
const SLOW: Duration = Duration::from_millis(100);

/// A kept lease is renewed after a third of its length and again every fifteenth if that fails. If a lock and unlock take
/// more than a sixth, only some few tries are left before the lease ends.
const TOO_SLOW: u32 = 6;

/// What the store promises, and what breaks it.
pub(super) fn promises(traits: &Traits) -> Finding {
    let death = match traits.death {
        Death::AtOnce => "at once",
        Death::LeaseEnd => "when the lease ends",
    };
    let what = format!(
        "reaches {}; a crash is noticed {death}; order: {}; what can break it: {}",
        traits.reach, traits.order, traits.breaks
    );
    let why = "this is what the store promises when all is well; `leasehold stores` has the whole table";
    Finding::new(Grade::Good, "promises", what, why)
}

/// How long it took until the store could be used.
pub(super) fn connected(took: Duration, lease: Duration) -> Finding {
    let what = format!("connected in {}", time(took));
    let why = "when a connection breaks, leases can be renewed only after it is made again";
    slow(Finding::new(pace(took, lease), "connect", what, why), lease)
}

/// How long locks took; nothing if there were none.
pub(super) fn latency(times: &[Duration], lease: Duration) -> Option<Finding> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let max = *sorted.last()?;
    let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
    let what = format!(
        "{} locks and unlocks: p50 {}, p99 {}, max {}",
        sorted.len(),
        time(at(50)),
        time(at(99)),
        time(max)
    );
    let why = "a lock costs this on top of the work, and a lease is lost if its renewal takes too long";
    Some(slow(Finding::new(pace(at(99), lease), "latency", what, why), lease))
}

fn pace(took: Duration, lease: Duration) -> Grade {
    match took {
        took if took > lease / TOO_SLOW => Grade::Warning,
        took if took > SLOW => Grade::Note,
        _ => Grade::Good,
    }
}

/// Adds what to do if it is too slow for the lease.
fn slow(finding: Finding, lease: Duration) -> Finding {
    if finding.grade < Grade::Warning {
        return finding;
    }
    let fix = format!(
        "that is more than a sixth of a lease of {}: use longer leases, or look why the store or the way to it is slow",
        time(lease)
    );
    finding.fix(fix)
}

/// Whether each grant had a higher token than the one before; nothing if there were not two.
pub(super) fn tokens(tokens: &[Token]) -> Option<Finding> {
    let why = "what a lock guards can refuse a late writer only if the token of every grant is higher than all before";
    let fallen = tokens.windows(2).find(|pair| pair[0] >= pair[1]);
    Some(match fallen {
        Some(pair) => {
            let what = format!("token {} was given out after token {}", pair[1], pair[0]);
            Finding::new(Grade::Danger, "tokens", what, why)
                .fix("don't use this store for what fencing protects, and report it: no store may do this")
        }
        None if tokens.len() < 2 => return None,
        None => Finding::new(Grade::Good, "tokens", format!("tokens rose over {} grants", tokens.len()), why),
    })
}

/// How the next in line got in.
pub(super) fn hand_over(how: &How) -> Finding {
    let found = |grade, what: String, why| Finding::new(grade, "hand-over", what, why);
    match how {
        How::Told(took) => found(
            Grade::Good,
            format!("the next in line was told {} after the release began", time(*took)),
            "who waits gets in at once, and nobody has to poll",
        ),
        How::Asked(took) => found(
            Grade::Warning,
            format!("no message told the next in line that it was its turn ({}); it held when it asked", time(*took)),
            "locks are safe, but who waits gets in only with its next poll: up to a third of a lease late",
        )
        .fix("look what keeps the store's messages from arriving: permissions for channels, a proxy, a firewall"),
        How::Stuck(took) => found(
            Grade::Danger,
            format!("the lock was given back, and {} later the next in line still waited", time(*took)),
            "a lock that nobody holds and nobody gets is stuck",
        )
        .fix("report it: no store may do this"),
        How::TwoHolders => found(
            Grade::Danger,
            "a second client got the lock while the first one held it".to_owned(),
            "a lock that two hold guards nothing",
        )
        .fix("don't use this store, and report it: no store may do this"),
    }
}

/// Whether the trial's name is free again.
pub(super) fn left_behind(seen: Result<Snapshot>) -> Finding {
    let why = "a lock that is given back must be free at once";
    let found = |grade, what: String| Finding::new(grade, "cleanup", what, why);
    match seen {
        Ok(lock) if lock.holders.is_empty() && lock.waiters.is_empty() => {
            found(Grade::Good, "the locks of this trial are free again".to_owned())
        }
        Ok(lock) => {
            let (held, waiting) = (lock.holders.len(), lock.waiters.len());
            found(
                Grade::Danger,
                format!("{:?} has {held} holders and {waiting} waiters left", lock.name.as_str()),
            )
            .fix("report it; what is left ends with its lease")
        }
        Err(error) => found(Grade::Warning, format!("could not be looked at: {}", in_words(&error))),
    }
}

/// The store could not look at itself, though it can be used.
pub(super) fn not_examined(error: &Error) -> Finding {
    let what = format!("the store could not be examined: {}", in_words(error));
    let why = "settings that endanger locks may have been missed";
    with_advice(Finding::new(Grade::Warning, "examination", what, why), error)
}

/// No client could be opened, though the store answers.
pub(super) fn no_client(error: &Error) -> Finding {
    let what = format!("no client can be opened: {}", in_words(error));
    with_advice(Finding::new(Grade::Danger, "locking", what, "no lock can be had at this store"), error)
}

/// A lock could not be taken or given back, though the store answers.
pub(super) fn no_lock(error: &Error) -> Finding {
    let what = format!("a lock could not be taken and given back: {}", in_words(error));
    let why = "what happened here happens to every program that uses this store";
    with_advice(Finding::new(Grade::Danger, "locking", what, why), error)
}

fn with_advice(finding: Finding, error: &Error) -> Finding {
    match error.advice_text() {
        Some(advice) => finding.fix(advice),
        None => finding,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_client::{Kind, Name};

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn slow_is_a_note_and_too_slow_for_the_lease_a_warning() {
        for (millis, grade) in [
            (1, Grade::Good),
            (100, Grade::Good),
            (101, Grade::Note),
            (5_000, Grade::Note),
            (5_001, Grade::Warning),
        ] {
            assert_eq!(connected(ms(millis), LEASE).grade, grade, "{millis} ms");
            assert_eq!(latency(&[ms(millis); 100], LEASE).unwrap().grade, grade, "{millis} ms");
        }
        let short = latency(&[ms(60); 100], ms(300)).unwrap();
        assert_eq!(short.grade, Grade::Warning);
        assert!(short.fix.unwrap().contains("300ms"));
    }

    #[test]
    fn one_slow_lock_of_a_hundred_does_not_set_the_grade() {
        let mut times = vec![ms(1); 99];
        times.push(ms(6_000));
        let found = latency(&times, LEASE).unwrap();
        assert_eq!(found.grade, Grade::Good);
        assert!(
            found.what.contains("100 locks and unlocks") && found.what.contains("6.0s"),
            "{}",
            found.what
        );
        assert_eq!(latency(&[ms(6_000)], LEASE).unwrap().grade, Grade::Warning);
        assert_eq!(latency(&[], LEASE), None);
    }

    #[test]
    fn a_token_that_does_not_rise_is_dangerous() {
        let graded = |numbers: &[u64]| {
            let all: Vec<Token> = numbers.iter().map(|n| Token(*n)).collect();
            tokens(&all).map(|finding| finding.grade)
        };
        assert_eq!(graded(&[1, 2, 9]), Some(Grade::Good));
        assert_eq!(graded(&[1, 1]), Some(Grade::Danger));
        assert_eq!(graded(&[1, 3, 2]), Some(Grade::Danger));
        assert_eq!((graded(&[1]), graded(&[])), (None, None));
    }

    #[test]
    fn a_hand_over_is_told_asked_for_stuck_or_wrong() {
        for (how, grade) in [
            (How::Told(ms(1)), Grade::Good),
            (How::Asked(ms(3_000)), Grade::Warning),
            (How::Stuck(ms(3_000)), Grade::Danger),
            (How::TwoHolders, Grade::Danger),
        ] {
            let found = hand_over(&how);
            assert_eq!(found.grade, grade, "{how:?}");
            assert_eq!(found.fix.is_some(), grade > Grade::Good, "{how:?}");
        }
    }

    #[test]
    fn errors_keep_their_advice_and_lose_their_address() {
        let error = Error::new(Kind::Refused, "not you").advice("log in").at("redis://h").because("NOPERM");
        for found in [no_lock(&error), no_client(&error), not_examined(&error)] {
            assert_eq!(found.fix.as_deref(), Some("log in"));
            assert!(found.what.ends_with("not you: NOPERM"), "{}", found.what);
        }
    }

    #[test]
    fn what_is_left_behind_is_said() {
        let name = Name::new("x").unwrap();
        let empty = Snapshot { name, holders: Vec::new(), waiters: Vec::new(), limit: None };
        assert_eq!(left_behind(Ok(empty)).grade, Grade::Good);
        assert_eq!(left_behind(Err(Error::new(Kind::Unavailable, "gone"))).grade, Grade::Warning);
    }
}
