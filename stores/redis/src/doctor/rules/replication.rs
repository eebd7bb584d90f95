//! What a failover forgets, and whether enough replicas are there for the policy of the store.

use std::time::Duration;

use leasehold_core::doctor::{Finding, Grade, size, time};

use crate::doctor::facts::Replication;

/// Replicas report every second. One that was silent for longer has trouble.
const SILENT: Duration = Duration::from_secs(5);

/// A replica that is further behind does not keep up.
const BEHIND: u64 = 1 << 20;

/// Are there as many replicas as there have to be? `wanted` is how many must have a grant before it counts. `None` if it
/// can't be looked at.
pub(super) fn policy(facts: &Replication, wanted: u32) -> Option<Finding> {
    let online = facts.replicas.as_ref()?.iter().filter(|replica| replica.online).count() as u64;
    Some(enough(online, facts.needed.unwrap_or(0), u64::from(wanted)))
}

fn enough(online: u64, needed: u64, wanted: u64) -> Finding {
    let found = |grade, what: String, why: &str| Finding::new(grade, "replicas", what, why);
    let there = plural(online);
    if online < needed {
        let what = format!(
            "{there}, and the server takes no writes with fewer than {needed} (min-replicas-to-write)"
        );
        return found(Grade::Danger, what, "every lock is refused")
            .fix("mend the replicas, or lower min-replicas-to-write");
    }
    match (wanted, online) {
        (wanted, online) if online < wanted => found(
            Grade::Danger,
            format!("{there}, and a grant counts only if {wanted} have it"),
            "every lock is refused",
        )
        .fix("mend the replicas, or lower ?replicas= in the URL and accept that a failover can lose a lock"),
        (0, 0) => found(
            Grade::Note,
            "no replicas, and none are demanded".to_owned(),
            "when this server is gone, no lock can be had until it is back",
        ),
        (0, _) => found(
            Grade::Warning,
            format!("{there}, but a grant counts before any of them has it"),
            "replication is late by nature: a failover can lose a lock that somebody holds, and let a second holder in; \
             its token is higher, so a guarded resource can refuse the first",
        )
        .fix("demand that replicas have a grant before it counts: ?replicas=1 in the URL"),
        (wanted, online) if online == wanted => found(
            Grade::Note,
            format!("{there}, and a grant counts when {wanted} have it"),
            "when one of them is gone, every lock is refused",
        ),
        (wanted, _) => found(
            Grade::Good,
            format!("{there}, and a grant counts when {wanted} have it"),
            "a failover to one of those that have it loses no lock",
        ),
    }
}

/// How far the slowest replica is behind. `None` if there are no replicas.
pub(super) fn lag(facts: &Replication) -> Option<Finding> {
    let replicas = facts.replicas.as_deref()?;
    let late = replicas.iter().find(|replica| replica.silent > SILENT || replica.behind > BEHIND);
    let copying = replicas.iter().find(|replica| !replica.online);
    let why =
        "grants that wait for replicas are as slow as they are, and a failover to a late one loses locks";
    let found = |grade, what: String| Finding::new(grade, "replica lag", what, why);
    match (late, copying, replicas.iter().map(|replica| replica.behind).max()) {
        (Some(late), ..) => {
            let what = format!(
                "the replica {} is {} behind, and was silent for {}",
                late.address,
                size(late.behind),
                time(late.silent)
            );
            Some(found(Grade::Warning, what).fix("look at its load, its disk and the network between them"))
        }
        (None, Some(copying), _) => {
            Some(found(Grade::Note, format!("the replica {} is still copying everything", copying.address)))
        }
        (None, None, Some(most)) => {
            Some(found(Grade::Good, format!("no replica is more than {} behind", size(most))))
        }
        (None, None, None) => None,
    }
}

fn plural(replicas: u64) -> String {
    match replicas {
        0 => "no replica follows".to_owned(),
        1 => "1 replica follows".to_owned(),
        more => format!("{more} replicas follow"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::Replica;

    fn replica(online: bool) -> Replica {
        Replica { address: "10.0.0.2:6379".to_owned(), online, ..Replica::default() }
    }

    fn with(replicas: Vec<Replica>) -> Replication {
        Replication { replicas: Some(replicas), ..Replication::default() }
    }

    #[test]
    fn too_few_replicas_for_the_policy_are_dangerous_and_unused_ones_a_warning() {
        for (online, needed, wanted, grade) in [
            (0, 0, 0, Grade::Note),
            (2, 0, 0, Grade::Warning),
            (2, 0, 1, Grade::Good),
            (1, 0, 1, Grade::Note),
            (1, 0, 2, Grade::Danger),
            (0, 0, 1, Grade::Danger),
            (1, 2, 1, Grade::Danger),
            (2, 1, 1, Grade::Good),
        ] {
            let found = enough(online, needed, wanted);
            assert_eq!(found.grade, grade, "{online} online, {needed} needed, {wanted} wanted");
            assert!(found.fix.is_some() || grade < Grade::Warning);
        }
    }

    #[test]
    fn a_replica_that_still_copies_does_not_count() {
        let facts = with(vec![replica(false)]);
        assert_eq!(policy(&facts, 1).unwrap().grade, Grade::Danger);
        assert_eq!(lag(&facts).unwrap().grade, Grade::Note);
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        let nothing = Replication::default();
        assert_eq!((policy(&nothing, 1), lag(&nothing)), (None, None));
    }

    #[test]
    fn a_replica_that_does_not_keep_up_is_a_warning() {
        let graded = |silent, behind| {
            let late = Replica { silent: Duration::from_secs(silent), behind, ..replica(true) };
            lag(&with(vec![replica(true), late])).unwrap().grade
        };
        assert_eq!(graded(1, 100), Grade::Good);
        assert_eq!(graded(9, 0), Grade::Warning);
        assert_eq!(graded(0, 2 << 20), Grade::Warning);
        assert_eq!(lag(&with(Vec::new())), None);
    }
}
