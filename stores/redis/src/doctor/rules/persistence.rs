//! What a restart of the server forgets.

use leasehold_core::doctor::{Finding, Grade};

use crate::doctor::facts::Persistence;

/// `None` if it can't be looked at.
pub(super) fn judge(kept: &Persistence) -> Option<Finding> {
    let why = "a lock that a restart forgets is free for the next, while its holder works on until its next renewal; the \
               token of the next is higher, so a guarded resource can refuse the first";
    let found = |grade, what: &str| Finding::new(grade, "persistence", what, why);
    if kept.failing {
        let failed = found(Grade::Danger, "the server's last try to write to its disk failed");
        return Some(failed
            .fix("look at its disk and its log: it refuses all locks as long as this lasts, or forgets them with a restart"));
    }
    let log_it = "CONFIG SET appendonly yes, with appendfsync everysec or always";
    Some(match (kept.log?, kept.sync.as_deref(), kept.snapshots.as_deref()) {
        (true, Some("always"), _) => found(Grade::Good, "every write is on disk before it is answered"),
        (true, Some("everysec"), _) => found(
            Grade::Note,
            "every write is logged, and on disk within a second: only a crash of the whole machine forgets the last one",
        ),
        (true, Some(_), _) => found(
            Grade::Warning,
            "every write is logged, but the system decides when the log goes to the disk",
        )
        .fix("CONFIG SET appendfsync everysec, or always"),
        (true, None, _) => {
            found(Grade::Note, "every write is logged; when the log goes to the disk can't be looked at")
        }
        (false, _, Some("")) => {
            found(Grade::Warning, "nothing is kept on disk: a restart forgets all locks").fix(log_it)
        }
        (false, _, _) => found(
            Grade::Warning,
            "no log of writes: a restart forgets the locks since the last snapshot, if there is one",
        )
        .fix(log_it),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_restart_forgets_sets_the_grade() {
        for (log, sync, snapshots, grade) in [
            (Some(true), Some("always"), Some(""), Grade::Good),
            (Some(true), Some("everysec"), Some("3600 1"), Grade::Note),
            (Some(true), Some("no"), Some(""), Grade::Warning),
            (Some(true), None, None, Grade::Note),
            (Some(false), Some("everysec"), Some(""), Grade::Warning),
            (Some(false), Some("everysec"), Some("3600 1 300 100"), Grade::Warning),
            (Some(false), None, None, Grade::Warning),
        ] {
            let (sync, snapshots) = (sync.map(str::to_owned), snapshots.map(str::to_owned));
            let mut facts = Persistence { log, sync, snapshots, failing: false };
            assert_eq!(judge(&facts).unwrap().grade, grade, "{facts:?}");
            facts.failing = true;
            assert_eq!(judge(&facts).unwrap().grade, Grade::Danger, "{facts:?}");
        }
    }

    #[test]
    fn a_server_without_snapshots_forgets_more_than_one_with() {
        let without =
            Persistence { log: Some(false), snapshots: Some(String::new()), ..Persistence::default() };
        let with = Persistence { snapshots: Some("60 1".to_owned()), ..without.clone() };
        assert!(judge(&without).unwrap().what.contains("nothing is kept"));
        assert!(judge(&with).unwrap().what.contains("snapshot"));
    }
    #[test]
    fn what_is_not_known_is_not_judged() {
        assert_eq!(judge(&Persistence::default()), None);
    }
}
