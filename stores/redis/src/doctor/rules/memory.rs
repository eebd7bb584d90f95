//! Whether a server throws locks away, or has no room for them.

use leasehold_core::doctor::{Finding, Grade, size};

use crate::doctor::facts::Memory;

/// Part of the memory that may be used, in percent: above it, the rest is gone soon.
const LITTLE_LEFT: u64 = 90;

/// `None` if it can't be looked at.
pub(super) fn eviction(memory: &Memory) -> Option<Finding> {
    let why = "a server that runs full throws keys away by this rule; a lock that is thrown away is free for the next, \
               while its holder still works";
    let fix = "CONFIG SET maxmemory-policy noeviction (and in its configuration file); give caches a server of their own";
    let found = |grade, what: String| Finding::new(grade, "eviction", what, why);
    Some(match (memory.policy.as_deref()?, memory.limit) {
        ("noeviction", _) if memory.evicted > 0 => found(
            Grade::Note,
            format!(
                "maxmemory-policy is noeviction, but {} keys were evicted since it started",
                memory.evicted
            ),
        ),
        ("noeviction", _) => found(Grade::Good, "maxmemory-policy is noeviction".to_owned()),
        // All keys of a lock end by themselves one day, so volatile-* throws them away too.
        (policy, Some(0)) => found(
            Grade::Warning,
            format!("maxmemory-policy is {policy}; only that no maxmemory is set keeps it from acting"),
        )
        .fix(fix),
        (policy, limit) => {
            let limit = limit.map_or_else(String::new, |limit| format!(" with maxmemory {}", size(limit)));
            let evicted = match memory.evicted {
                0 => String::new(),
                evicted => format!(", and {evicted} keys were evicted since it started"),
            };
            found(Grade::Danger, format!("maxmemory-policy is {policy}{limit}{evicted}")).fix(fix)
        }
    })
}

/// `None` if it can't be looked at.
pub(super) fn room(memory: &Memory) -> Option<Finding> {
    let why = "a server without room refuses new locks; those that are held can still be kept and given back";
    let found = |grade, what: String| Finding::new(grade, "memory", what, why);
    let (limit, name) = match (memory.limit, memory.machine) {
        (Some(0) | None, machine) => (machine?, "the machine's"),
        (Some(limit), _) => (limit, "maxmemory"),
    };
    let used = memory.used.filter(|_| limit > 0)?;
    let percent = u64::try_from(u128::from(used) * 100 / u128::from(limit)).unwrap_or(u64::MAX);
    let what = format!("{} used, {percent} % of {name} {}", size(used), size(limit));
    Some(match percent {
        100.. => found(Grade::Danger, what).fix("raise maxmemory, or remove what does not belong here"),
        LITTLE_LEFT.. => {
            found(Grade::Warning, what).fix("raise maxmemory, or remove what does not belong here")
        }
        _ => found(Grade::Good, what),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(policy: Option<&str>, limit: Option<u64>, evicted: u64) -> Memory {
        Memory { policy: policy.map(str::to_owned), limit, evicted, ..Memory::default() }
    }

    #[test]
    fn any_policy_but_noeviction_is_dangerous_once_there_is_a_limit() {
        for (policy, limit, evicted, grade) in [
            (Some("noeviction"), Some(0), 0, Grade::Good),
            (Some("noeviction"), Some(1 << 30), 0, Grade::Good),
            (Some("noeviction"), Some(1 << 30), 7, Grade::Note),
            (Some("allkeys-lru"), Some(1 << 30), 0, Grade::Danger),
            (Some("volatile-ttl"), Some(1 << 30), 0, Grade::Danger),
            (Some("allkeys-lru"), None, 0, Grade::Danger),
            (Some("allkeys-lru"), Some(0), 0, Grade::Warning),
        ] {
            let facts = memory(policy, limit, evicted);
            let found = eviction(&facts).unwrap();
            assert_eq!(found.grade, grade, "{facts:?}");
            assert!(found.fix.is_some() || grade < Grade::Warning, "{facts:?}");
        }
    }

    #[test]
    fn a_server_that_runs_full_is_told_before_it_is() {
        for (used, limit, machine, grade) in [
            (Some(50), Some(100), None, Grade::Good),
            (Some(90), Some(100), None, Grade::Warning),
            (Some(100), Some(100), Some(1000), Grade::Danger),
            (Some(50), Some(0), Some(100), Grade::Good),
            (Some(95), None, Some(100), Grade::Warning),
        ] {
            let facts = Memory { used, limit, machine, ..Memory::default() };
            assert_eq!(room(&facts).unwrap().grade, grade, "{facts:?}");
        }
    }
    #[test]
    fn what_is_not_known_is_not_judged() {
        let nothing = Memory::default();
        assert_eq!((eviction(&nothing), room(&nothing)), (None, None));
        assert_eq!(room(&Memory { used: Some(50), limit: Some(0), ..nothing }), None);
    }
}
