//! Whether a cluster serves all locks, and goes on when a node is gone.

use leasehold_core::doctor::{Finding, Grade};

use crate::doctor::cluster::{Member, View};
use crate::wire::slot::SLOTS;

/// A failover needs the votes of most masters: with fewer there is none.
const ENOUGH: usize = 3;

pub(crate) fn judge(view: &View) -> Vec<Finding> {
    vec![state(view), failover(view)]
}

fn state(view: &View) -> Finding {
    let why =
        "a lock whose slot nobody serves can't be had; by default a cluster with a gap serves none at all";
    let found = |grade, what: String| Finding::new(grade, "cluster", what, why);
    let masters = view.masters().count();
    let dead = view.masters().filter(|member| member.failed).map(|member| member.address.as_str());
    let dead: Vec<&str> = dead.collect();
    let fix = "redis-cli --cluster check shows what is wrong";
    match (view.state.as_deref(), view.served) {
        (Some(state), _) if state != "ok" => {
            found(Grade::Danger, format!("cluster_state is {state}")).fix(fix)
        }
        (_, Some(served)) if served < u64::from(SLOTS) => {
            found(Grade::Danger, format!("{served} of {SLOTS} slots are served")).fix(fix)
        }
        _ if !dead.is_empty() => {
            found(Grade::Danger, format!("masters that don't answer: {}", dead.join(", "))).fix(fix)
        }
        (None, _) => found(Grade::Note, "its state can't be looked at".to_owned()),
        (Some(_), _) => found(Grade::Good, format!("all slots are served, by {masters} masters")),
    }
}

fn failover(view: &View) -> Finding {
    let why =
        "when a master is gone and no replica takes its place, none of its locks can be had until it is back";
    let found = |grade, what: String| Finding::new(grade, "failover", what, why);
    let alone = |master: &&Member| {
        !view.members.iter().any(|other| !other.failed && other.replica_of.as_ref() == Some(&master.id))
    };
    let masters = view.masters().count();
    let alone: Vec<&str> = view.masters().filter(alone).map(|member| member.address.as_str()).collect();
    if masters < ENOUGH {
        let what =
            format!("{masters} masters: too few for a vote on who takes the place of one that is gone");
        return found(Grade::Warning, what).fix("run at least 3 masters");
    }
    if alone.is_empty() {
        return found(Grade::Good, "every master has a replica that can take its place".to_owned());
    }
    found(Grade::Warning, format!("masters without a replica: {}", alone.join(", ")))
        .fix("give each a replica")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, replica_of: Option<&str>, failed: bool) -> Member {
        let slots = if replica_of.is_none() { vec![(0, 1)] } else { Vec::new() };
        let replica_of = replica_of.map(str::to_owned);
        Member {
            id: id.to_owned(),
            address: format!("{id}:6379"),
            failed,
            replica_of,
            slots,
            ..Member::default()
        }
    }

    fn healthy() -> View {
        let masters = ["a", "b", "c"].map(|id| member(id, None, false));
        let replicas = ["a", "b", "c"].map(|id| member(&format!("{id}-2"), Some(id), false));
        let members = masters.into_iter().chain(replicas).collect();
        View { state: Some("ok".to_owned()), served: Some(16384), members }
    }

    #[test]
    fn a_healthy_cluster_is_good() {
        assert!(
            judge(&healthy()).iter().all(|finding| finding.grade == Grade::Good),
            "{:#?}",
            judge(&healthy())
        );
    }

    #[test]
    fn a_cluster_with_a_gap_is_dangerous() {
        assert_eq!(state(&View { state: Some("fail".to_owned()), ..healthy() }).grade, Grade::Danger);
        assert_eq!(state(&View { served: Some(16383), ..healthy() }).grade, Grade::Danger);
        let mut dead = healthy();
        dead.members[1].failed = true;
        assert!(state(&dead).what.contains("b:6379"));
        assert_eq!(state(&View { state: None, served: None, ..healthy() }).grade, Grade::Note);
    }

    #[test]
    fn a_master_that_nobody_can_replace_is_a_warning() {
        let mut alone = healthy();
        alone.members[5].failed = true;
        let found = failover(&alone);
        assert_eq!((found.grade, found.what.as_str()), (Grade::Warning, "masters without a replica: c:6379"));
        let mut few = healthy();
        few.members.remove(2);
        assert_eq!(failover(&few).grade, Grade::Warning);
    }
}
