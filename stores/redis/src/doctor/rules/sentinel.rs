//! Whether the Sentinels can name a new master when the present one is gone, and whether they would all name the same.

use std::collections::BTreeMap;

use leasehold_core::doctor::{Finding, Grade};

use crate::doctor::facts::{Sentinel, Watch};

/// With fewer, the loss of one is the loss of the majority that a failover needs.
const ENOUGH: u64 = 3;

/// Why a failover that can't be made matters.
const NO_FAILOVER: &str =
    "a failover needs the votes of most Sentinels; without one, no lock can be had when the master is gone";

/// How many there are: `watching` is how many listen to the master, `said` what those in the URL say.
pub(super) fn number(watching: u64, said: &[Sentinel]) -> Finding {
    let found = |grade, what: String| Finding::new(grade, "sentinels", what, NO_FAILOVER);
    let named = said.len();
    let silent: Vec<String> = said.iter().filter_map(silence).collect();
    if !silent.is_empty() {
        return found(
            Grade::Warning,
            format!("{} of {named} can't be asked: {}", silent.len(), silent.join("; ")),
        )
        .fix("start them, or take them out of the URL");
    }
    if watching < ENOUGH {
        return found(Grade::Warning, format!("{watching} watch this master: too few to lose one"))
            .fix("run at least 3, on machines of their own, and look whether they reach the master");
    }
    if watching < named as u64 {
        return found(Grade::Warning, format!("{watching} watch this master, and the URL names {named}"))
            .fix("start the others, or take them out of the URL");
    }
    found(Grade::Good, format!("{watching} watch this master"))
}

fn silence(sentinel: &Sentinel) -> Option<String> {
    sentinel.watch.as_ref().err().map(|why| format!("{} ({why})", sentinel.node))
}

/// Could they fail over now, and would the loss of one of them change that? `None` if none of them can be asked.
pub(super) fn quorum(said: &[Sentinel]) -> Option<Finding> {
    let watches = || said.iter().filter_map(|s| Some((s.node.as_str(), s.watch.as_ref().ok()?)));
    let (_, first) = watches().next()?;
    let found = |grade, what: String| Finding::new(grade, "sentinel quorum", what, NO_FAILOVER);
    let unable = watches().find_map(|(node, watch)| Some((node, watch.able.as_ref()?.as_ref().err()?)));
    if let Some((node, why)) = unable {
        let what = format!("{node} says that no failover is possible now: {why}");
        return Some(found(Grade::Warning, what).fix(
            "start the Sentinels that are down; those that are gone for good are forgotten by SENTINEL RESET, on one after the other",
        ));
    }
    if let Some((node, other)) = watches().find(|(_, watch)| watch.quorum != first.quorum) {
        let what = format!("{node} wants {} to agree, and another one {}", other.quorum, first.quorum);
        return Some(
            found(Grade::Warning, what).fix("SENTINEL SET … quorum, to the same number on all of them"),
        );
    }
    let (quorum, all) = (first.quorum, watches().map(|(_, watch)| watch.sentinels).max().unwrap_or(0));
    let what = format!("{quorum} of {all} must agree that the master is gone");
    Some(match quorum {
        _ if quorum >= all => found(Grade::Warning, format!("{what}: the loss of one ends all failovers"))
            .fix("SENTINEL SET … quorum, to a majority of them, and run at least 3"),
        0 | 1 if all >= ENOUGH => Finding::new(
            Grade::Note,
            "sentinel quorum",
            format!("{what}: one that can't reach it is enough to begin a failover"),
            "every failover ends the locks that no replica had",
        ),
        _ => found(Grade::Good, what),
    })
}

/// Do they name the same master, and do they know each other? `None` if none of them can be asked.
pub(super) fn agreement(said: &[Sentinel]) -> Option<Finding> {
    let mut masters: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut known: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for sentinel in said {
        if let Ok(Watch { master, sentinels, .. }) = &sentinel.watch {
            masters.entry(master).or_default().push(&sentinel.node);
            known.entry(*sentinels).or_default().push(&sentinel.node);
        }
    }
    let check = "sentinel agreement";
    let (master, _) = masters.first_key_value()?;
    if masters.len() > 1 {
        let by = |(master, nodes): (&&str, &Vec<&str>)| format!("{master} by {}", nodes.join(", "));
        let what =
            format!("they name different masters: {}", masters.iter().map(by).collect::<Vec<_>>().join("; "));
        let why =
            "clients that ask different Sentinels lock on different servers: two can hold the same lock";
        return Some(Finding::new(Grade::Danger, check, what, why).fix(
            "look again in a moment, for a failover may be under way; else SENTINEL REMOVE and MONITOR on those that are wrong",
        ));
    }
    if let (Some((fewest, nodes)), Some((most, _))) = (known.first_key_value(), known.last_key_value())
        && fewest != most
    {
        let what = format!("{} know {fewest} Sentinels, and others {most}", nodes.join(", "));
        let why =
            "those that don't know each other count different majorities, and may fail to elect a master";
        return Some(
            Finding::new(Grade::Warning, check, what, why)
                .fix("look whether all of them reach each other and the master; SENTINEL RESET forgets those that are gone"),
        );
    }
    let why = "clients that ask different Sentinels lock on the same server";
    Some(Finding::new(Grade::Good, check, format!("all name {master}"), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> Watch {
        Watch { master: "10.0.0.1:6379".to_owned(), quorum: 2, sentinels: 3, able: Some(Ok(())) }
    }

    fn all(watches: Vec<Watch>) -> Vec<Sentinel> {
        let say = |(n, watch)| Sentinel { node: format!("s{n}:26379"), watch: Ok(watch) };
        watches.into_iter().enumerate().map(say).collect()
    }

    /// So many, all of the same mind.
    fn alike(count: usize, watch: &Watch) -> Vec<Sentinel> {
        all(vec![watch.clone(); count])
    }

    #[test]
    fn too_few_sentinels_are_a_warning() {
        for (watching, named, grade) in [
            (3, 3, Grade::Good),
            (5, 3, Grade::Good),
            (3, 1, Grade::Good),
            (4, 5, Grade::Warning),
            (2, 2, Grade::Warning),
            (0, 3, Grade::Warning),
        ] {
            let found = number(watching, &alike(named, &watch()));
            assert_eq!(found.grade, grade, "{watching} watch, {named} named");
        }
    }

    #[test]
    fn one_that_can_not_be_asked_is_named() {
        let mut said = alike(3, &watch());
        said[1].watch = Err("connection refused".to_owned());
        let found = number(3, &said);
        assert_eq!(found.grade, Grade::Warning);
        assert!(found.what.contains("s1:26379 (connection refused)"), "{found:?}");
        said.iter_mut().for_each(|s| s.watch = Err("connection refused".to_owned()));
        assert_eq!((quorum(&said), agreement(&said)), (None, None));
    }

    #[test]
    fn a_quorum_that_can_not_be_lost_or_reached_is_a_warning() {
        for (needed, sentinels, grade) in [
            (2, 3, Grade::Good),
            (3, 5, Grade::Good),
            (3, 3, Grade::Warning),
            (4, 3, Grade::Warning),
            (1, 1, Grade::Warning),
            (1, 3, Grade::Note),
        ] {
            let said = alike(3, &Watch { quorum: needed, sentinels, ..watch() });
            assert_eq!(quorum(&said).unwrap().grade, grade, "{needed} of {sentinels}");
        }
        let unable = Watch { able: Some(Err("1 usable".to_owned())), ..watch() };
        let found = quorum(&all(vec![watch(), unable, watch()])).unwrap();
        assert!(found.grade == Grade::Warning && found.what.contains("s1:26379"), "{found:?}");
        let found = quorum(&all(vec![watch(), watch(), Watch { quorum: 3, ..watch() }])).unwrap();
        assert!(found.grade == Grade::Warning && found.what.contains("s2:26379 wants 3"), "{found:?}");
        // What could not be asked says nothing against it.
        assert_eq!(quorum(&alike(3, &Watch { able: None, ..watch() })).unwrap().grade, Grade::Good);
    }

    #[test]
    fn sentinels_that_name_different_masters_are_a_danger() {
        assert_eq!(agreement(&alike(3, &watch())).unwrap().grade, Grade::Good);
        let other = Watch { master: "10.0.0.9:6379".to_owned(), ..watch() };
        let found = agreement(&all(vec![watch(), other, watch()])).unwrap();
        assert_eq!(found.grade, Grade::Danger);
        assert!(found.what.contains("10.0.0.9:6379 by s1:26379") && found.fix.is_some(), "{found:?}");
        let lonely = Watch { sentinels: 1, ..watch() };
        let found = agreement(&all(vec![watch(), watch(), lonely])).unwrap();
        assert!(found.grade == Grade::Warning && found.what.contains("s2:26379 know 1"), "{found:?}");
    }
}
