//! What the facts about a set mean for its locks: the lines of `leasehold doctor`.

use std::time::Duration;

use leasehold_core::doctor::{Finding, Grade, time};
use leasehold_core::{Error, Kind, Result};

use crate::facts::{Answer, Facts, NodeFacts, facts};
use crate::protocol::standing::Standing;
use crate::store::Redlock;

/// Tokens start from clocks. Further apart than this, those of one client may hide those of another for that long.
const CLOCKS_APART: Duration = Duration::from_secs(1);

/// Looks at all nodes. An error means that none of them answers.
pub(crate) async fn examine(store: &Redlock) -> Result<Vec<Finding>> {
    let facts = facts(store).await?;
    if let Some(why) = silence(&facts) {
        let what = format!("none of the {} nodes answers", facts.quorum.nodes);
        return Err(Error::new(Kind::Unavailable, what).because(why));
    }
    Ok(judge(&facts))
}

/// Why the first node does not answer, if none does.
fn silence(facts: &Facts) -> Option<String> {
    let mut why = facts.nodes.iter().map(|node| node.answer.as_ref().err());
    let first = why.next()??;
    why.all(|why| why.is_some()).then(|| first.clone())
}

/// What the facts mean.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings =
        vec![number(facts), reachable(facts), independent(facts), standing(facts), clocks(facts)];
    for node in &facts.nodes {
        if let Ok(answer) = &node.answer {
            findings.extend(server(answer).into_iter().map(|finding| finding.at(&node.node)));
        }
    }
    findings
}

fn number(facts: &Facts) -> Finding {
    let (nodes, need) = (facts.quorum.nodes, facts.quorum.need);
    let what = format!("{nodes} nodes, of which {need} decide");
    let check = "quorum";
    if nodes < 3 {
        Finding::new(Grade::Warning, check, what, "the loss of one node stops all locks")
            .fix("use three or five independent servers; for one server use redis://")
    } else if nodes.is_multiple_of(2) {
        let why =
            format!("it survives the loss of {} nodes, no more than {} nodes would", nodes - need, nodes - 1);
        Finding::new(Grade::Note, check, what, why).fix("use an odd number of nodes")
    } else {
        Finding::new(Grade::Good, check, what, format!("it survives the loss of {}", nodes - need))
    }
}

fn reachable(facts: &Facts) -> Finding {
    let why = |node: &NodeFacts| match (&node.replica_of, &node.answer) {
        (Some(_), _) => Some(format!("{} (a replica)", node.node)),
        (None, Err(why)) => Some(format!("{} ({why})", node.node)),
        (None, Ok(_)) => None,
    };
    let silent: Vec<String> = facts.nodes.iter().filter_map(why).collect();
    let answer = facts.quorum.nodes - silent.len();
    let check = "nodes";
    if silent.is_empty() {
        return Finding::new(Grade::Good, check, "all nodes answer", "a quorum of them decides");
    }
    let what =
        format!("{} of {} nodes can't be used: {}", silent.len(), facts.quorum.nodes, silent.join(", "));
    let (grade, why) = if answer < facts.quorum.need {
        (Grade::Danger, "without a quorum no lock can be had, and those that are held end")
    } else {
        (Grade::Warning, "locks work, with less to spare")
    };
    Finding::new(grade, check, what, why).fix("start them, or look at the network between")
}

fn independent(facts: &Facts) -> Finding {
    let pairs = facts.dependent();
    let replica = |node: &NodeFacts| Some(format!("{} follows {}", node.node, node.replica_of.as_ref()?));
    let replicas: Vec<String> = facts.nodes.iter().filter_map(replica).collect();
    let check = "independence";
    let why = "a quorum only means something if no two nodes can fail, or forget, together";
    if let Some((a, b)) = pairs.first() {
        let what = format!("{} and {} are not independent", facts.nodes[*a].node, facts.nodes[*b].node);
        Finding::new(Grade::Danger, check, what, why)
            .fix("give each node a server of its own, without replication")
    } else if !replicas.is_empty() {
        let what = format!("not every node is a master: {}", replicas.join(", "));
        Finding::new(Grade::Danger, check, what, why).fix("REPLICAOF NO ONE, or name other servers")
    } else {
        Finding::new(Grade::Good, check, "no node is another one, or its replica", why)
    }
}

fn standing(facts: &Facts) -> Finding {
    let check = "restarts";
    let why = "a node that forgot its locks must not vote until all of them have ended";
    let blank = |answer: &Answer| matches!(answer.standing, Standing::Blank | Standing::New);
    let answers = || facts.nodes.iter().filter_map(|node| Some((node, node.answer.as_ref().ok()?)));
    if answers().count() > 0 && answers().all(|(_, answer)| blank(answer)) {
        return Finding::new(Grade::Note, check, "this set was never used", "the first lock founds it");
    }
    let quarantined: Vec<String> = answers()
        .filter(|(_, answer)| answer.standing != Standing::Open)
        .map(|(node, answer)| match answer.quarantined_for {
            Some(left) => format!("{} for {}", node.node, time(left)),
            None => node.node.clone(),
        })
        .collect();
    if quarantined.is_empty() {
        return Finding::new(Grade::Good, check, "no node came back without its data", why);
    }
    let what = format!("not counted yet, because they lost their data: {}", quarantined.join(", "));
    if facts.counted() < facts.quorum.need {
        Finding::new(
            Grade::Danger,
            check,
            what,
            "without a quorum of nodes that remember, no lock can be had",
        )
        .fix("wait until they count again, and turn on appendonly")
    } else {
        Finding::new(Grade::Warning, check, what, why)
            .fix("turn on appendonly, so that a restart forgets nothing")
    }
}

fn clocks(facts: &Facts) -> Finding {
    let spread = facts.clock_spread();
    let what = format!("the nodes' clocks are {} apart", time(spread));
    let why = "leases run on each node's clock; what matters is that they run equally fast";
    if spread > CLOCKS_APART {
        Finding::new(Grade::Warning, "clocks", what, why)
            .fix("run a time service (chrony, ntpd) on all of them")
    } else {
        Finding::new(Grade::Good, "clocks", what, why)
    }
}

fn server(answer: &Answer) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !matches!(answer.eviction.as_str(), "noeviction" | "") {
        let what = format!("maxmemory-policy is {}", answer.eviction);
        let why = "a node that is full throws locks away, and votes for another holder";
        findings.push(
            Finding::new(Grade::Danger, "eviction", what, why).fix("CONFIG SET maxmemory-policy noeviction"),
        );
    }
    if !answer.append_only {
        let why = "a node that restarts without its data does not count until the longest lease has passed";
        let what = "appendonly is off: a restart forgets all locks";
        findings.push(Finding::new(Grade::Note, "persistence", what, why).fix("CONFIG SET appendonly yes"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Quorum;

    fn answer(run_id: &str) -> Answer {
        Answer {
            standing: Standing::Open,
            set: 1,
            quarantined_for: None,
            run_id: run_id.to_owned(),
            role: "master".to_owned(),
            clock: 0,
            round_trip: Duration::from_micros(50),
            version: "7.0.15".to_owned(),
            uptime: Duration::from_secs(9),
            eviction: "noeviction".to_owned(),
            append_only: true,
        }
    }

    fn set(nodes: usize, change: impl Fn(usize, &mut Answer)) -> Facts {
        let node = |n: usize| {
            let mut answer = answer(&format!("run {n}"));
            change(n, &mut answer);
            NodeFacts { node: format!("h{n}:6379"), answer: Ok(answer), replica_of: None }
        };
        Facts { quorum: Quorum::of(nodes), nodes: (0..nodes).map(node).collect() }
    }

    /// The grade of one check, the worst if there are several.
    fn grade(facts: &Facts, check: &str) -> Option<Grade> {
        judge(facts).into_iter().filter(|finding| finding.check == check).map(|finding| finding.grade).max()
    }

    #[test]
    fn a_healthy_set_is_good() {
        assert!(judge(&set(3, |_, _| ())).iter().all(|finding| finding.grade == Grade::Good));
    }

    #[test]
    fn a_silent_minority_is_a_warning_and_a_silent_majority_a_danger() {
        let mut facts = set(5, |_, _| ());
        facts.nodes[0].answer = Err("refused".to_owned());
        assert_eq!(grade(&facts, "nodes"), Some(Grade::Warning));
        facts.nodes[1].answer = Err("refused".to_owned());
        facts.nodes[2].answer = Err("refused".to_owned());
        assert_eq!(grade(&facts, "nodes"), Some(Grade::Danger));
        assert_eq!(silence(&facts), None);
        facts.nodes.iter_mut().for_each(|node| node.answer = Err("refused".to_owned()));
        assert_eq!(silence(&facts).as_deref(), Some("refused"));
    }

    #[test]
    fn nodes_that_are_one_server_or_follow_each_other_are_a_danger() {
        let same = set(3, |n, answer| answer.run_id = format!("run {}", n / 2));
        assert_eq!(grade(&same, "independence"), Some(Grade::Danger));
        for (master, words) in
            [("h0:6379", "h0:6379 and h2:6379"), ("other:6379", "h2:6379 follows other:6379")]
        {
            let mut facts = set(3, |_, _| ());
            facts.nodes[2].answer = Err("a read-only replica".to_owned());
            facts.nodes[2].replica_of = Some(master.to_owned());
            assert_eq!(grade(&facts, "independence"), Some(Grade::Danger));
            assert_eq!(grade(&facts, "nodes"), Some(Grade::Warning));
            assert!(judge(&facts).iter().any(|finding| finding.what.contains(words)), "{facts:?}");
        }
    }

    #[test]
    fn nodes_that_forgot_are_named_with_the_time_that_is_left() {
        let forget = |count: usize| {
            set(3, move |n, answer| {
                if n < count {
                    answer.standing = Standing::Quarantined;
                    answer.quarantined_for = Some(Duration::from_secs(90));
                }
            })
        };
        assert_eq!(grade(&forget(1), "restarts"), Some(Grade::Warning));
        assert_eq!(grade(&forget(2), "restarts"), Some(Grade::Danger));
        assert!(judge(&forget(1)).iter().any(|finding| finding.what.contains("h0:6379 for 1m 30s")));
        let fresh = set(3, |_, answer| answer.standing = Standing::Blank);
        assert_eq!(grade(&fresh, "restarts"), Some(Grade::Note));
    }

    #[test]
    fn clocks_numbers_eviction_and_persistence_are_judged() {
        assert_eq!(grade(&set(4, |_, _| ()), "quorum"), Some(Grade::Note));
        assert_eq!(grade(&set(1, |_, _| ()), "quorum"), Some(Grade::Warning));
        let apart = set(3, |n, answer| answer.clock = 2_000_000 * n as i64);
        assert_eq!(grade(&apart, "clocks"), Some(Grade::Warning));
        let evicts = set(3, |_, answer| answer.eviction = "allkeys-lru".to_owned());
        assert_eq!(grade(&evicts, "eviction"), Some(Grade::Danger));
        let forgets = set(3, |_, answer| answer.append_only = false);
        assert_eq!(grade(&forgets, "persistence"), Some(Grade::Note));
    }
}
