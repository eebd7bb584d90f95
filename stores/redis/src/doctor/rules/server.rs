//! The server itself: its version, its clock, its scripts, its settings.

use std::time::Duration;

use leasehold_core::doctor::{Finding, Grade, time};

use crate::doctor::facts::{Cache, Facts, Reading};

/// Clocks that are further apart than this are not kept by anybody.
const APART: Duration = Duration::from_secs(1);

/// Clocks that are further apart than this mislead people, and tokens after a loss of data.
const FAR_APART: Duration = Duration::from_secs(60);

/// Tokens run ahead of the clock by what grants have reserved, but not by more than this.
const AHEAD: Duration = Duration::from_secs(1);

/// Somebody writes values into the text of scripts if a server knows more than this.
const MANY_SCRIPTS: u64 = 1_000;

/// `None` if it can't be looked at.
pub(super) fn version(facts: &Facts) -> Option<Finding> {
    let version = facts.version.as_ref()?;
    let what = match facts.uptime {
        Some(up) => format!("{version}, running for {}", time(up.max(Duration::from_secs(1)))),
        None => version.clone(),
    };
    Some(Finding::new(Grade::Good, "version", what, "7.0 is the oldest version with all that locks need"))
}

/// `now` is our clock, `highest` the highest token that was seen.
pub(super) fn clock(reading: Reading, now: u64, highest: u64) -> Finding {
    let found = |grade, what: String, why: &str| Finding::new(grade, "clock", what, why);
    let usual =
        "leases are measured on the server's clock alone, so a difference does no harm; tokens start from it";
    let Reading { ahead, error } = reading;
    let server = now.saturating_add_signed(ahead);
    let behind = Duration::from_micros(highest.saturating_sub(server));
    if behind > AHEAD + error {
        let what =
            format!("the server's clock is {} behind the highest token that it gave out", time(behind));
        let why = "tokens go on from the last one, so they rise all the same; if the server lost its data now, they would not";
        return found(Grade::Warning, what, why).fix("set the server's clock right (NTP)");
    }
    let apart = Duration::from_micros(ahead.unsigned_abs());
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    let what = format!("the server's clock is {} {side} ours (± {})", time(apart), time(error));
    match apart.saturating_sub(error) {
        apart if apart > FAR_APART => found(
            Grade::Warning,
            what,
            "tokens start from the server's clock: if its data is lost and the clock is set back, they fall; the times \
             that are shown are wrong",
        )
        .fix("set both clocks right (NTP)"),
        apart if apart > APART => found(Grade::Note, what, usual),
        _ => found(Grade::Good, what, usual),
    }
}

/// `None` if it can't be looked at.
pub(super) fn scripts(cache: Cache) -> Option<Finding> {
    let why = "a script that the server does not know costs one longer request, and is known from then on";
    let found = |grade, what: String| Finding::new(grade, "scripts", what, why);
    let ours = format!("{} of our {} scripts are loaded", cache.ours?, cache.of);
    Some(match cache.all {
        Some(all) if all > MANY_SCRIPTS => found(
            Grade::Note,
            format!("{ours}, among {all} in all: another program makes ever new ones"),
        )
        .fix("let it send values as arguments: scripts take memory, and newer servers forget the oldest"),
        _ => found(Grade::Good, ours),
    })
}

/// Only said if there is something to say.
pub(super) fn idle_timeout(seconds: Option<u64>) -> Option<Finding> {
    let seconds = seconds.filter(|seconds| *seconds > 0)?;
    let what =
        format!("the server closes connections that say nothing for {}", time(Duration::from_secs(seconds)));
    let why = "a program that locks rarely has to connect anew each time, which makes that lock slower";
    Some(Finding::new(Grade::Note, "idle timeout", what, why).fix("CONFIG SET timeout 0"))
}

/// `commands` are those that our user may not run, `unseen` what was not looked at because of that. Only said if there is
/// something to say.
pub(super) fn hidden(commands: &[&str], unseen: &[&str]) -> Option<Finding> {
    let refused = commands.join(" and ");
    let what = match (commands, unseen) {
        ([], []) => return None,
        (_, []) => format!("our user may not run {refused}"),
        ([], unseen) => format!("our user may not look at {}", unseen.join(", ")),
        (_, unseen) => format!("our user may not look at {} (nor run {refused})", unseen.join(", ")),
    };
    let why =
        "settings that endanger locks may have been missed; managed servers often forbid to look at them";
    let fix = "run this once as a user who may, or make sure of maxmemory-policy noeviction and appendonly yes yourself";
    Some(Finding::new(Grade::Note, "hidden", what, why).fix(fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000;

    fn reading(ahead_ms: i64) -> Reading {
        Reading { ahead: ahead_ms * 1_000, error: Duration::from_millis(2) }
    }

    #[test]
    fn clocks_that_are_apart_are_told() {
        for (ahead, grade) in [
            (0, Grade::Good),
            (-900, Grade::Good),
            (1_500, Grade::Note),
            (-30_000, Grade::Note),
            (90_000, Grade::Warning),
            (-3_600_000, Grade::Warning),
        ] {
            assert_eq!(clock(reading(ahead), NOW, 0).grade, grade, "{ahead} ms");
        }
        assert!(clock(reading(-5), NOW, 0).what.contains("5.0ms behind ours"));
    }

    #[test]
    fn what_the_way_takes_is_no_difference_of_clocks() {
        let slow = Reading { ahead: 3_000_000, error: Duration::from_secs(3) };
        assert_eq!(clock(slow, NOW, 0).grade, Grade::Good);
    }

    #[test]
    fn a_clock_behind_its_tokens_is_a_warning() {
        assert_eq!(clock(reading(0), NOW, NOW + 1_024).grade, Grade::Good);
        let found = clock(reading(0), NOW, NOW + 7_200_000_000);
        assert_eq!(found.grade, Grade::Warning);
        assert!(found.what.contains("2h 00m behind"), "{}", found.what);
        // The same tokens are no riddle to a server whose clock is that far ahead.
        assert!(!clock(reading(7_200_000), NOW, NOW + 7_200_000_000).what.contains("token"));
    }

    #[test]
    fn unloaded_scripts_are_no_fault_and_endless_ones_are_told() {
        let cache = |ours, all| scripts(Cache { ours, of: 7, all }).map(|finding| finding.grade);
        assert_eq!(cache(Some(0), Some(0)), Some(Grade::Good));
        assert_eq!(cache(Some(7), Some(9)), Some(Grade::Good));
        assert_eq!(cache(Some(7), Some(50_000)), Some(Grade::Note));
        assert_eq!(cache(None, None), None);
    }

    #[test]
    fn settings_are_told_only_if_they_matter() {
        assert_eq!((idle_timeout(None), idle_timeout(Some(0))), (None, None));
        assert_eq!(idle_timeout(Some(30)).unwrap().grade, Grade::Note);
        assert_eq!(version(&Facts::default()), None);
    }

    #[test]
    fn what_was_not_looked_at_is_said() {
        assert_eq!(hidden(&[], &[]), None);
        let what = |commands: &[&str], unseen: &[&str]| hidden(commands, unseen).unwrap().what;
        assert_eq!(what(&["CONFIG GET"], &[]), "our user may not run CONFIG GET");
        assert_eq!(
            what(&["INFO", "CONFIG GET"], &["version", "memory"]),
            "our user may not look at version, memory (nor run INFO and CONFIG GET)"
        );
    }
}
