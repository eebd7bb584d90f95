//! From what was seen to findings: what is good, what is not, why, and what to do. Pure, one file a matter.

mod access;
pub(crate) mod cluster;
mod memory;
mod persistence;
mod replication;
mod sentinel;
mod server;

use leasehold_core::doctor::{Finding, Grade};

pub(crate) use access::{Way, encryption};

use super::facts::{Facts, Seen, Sentinel};

/// What the store asks of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demands<'a> {
    /// What all keys and channels begin with.
    pub(crate) prefix: &'a str,
    /// How many replicas must have a grant before it counts.
    pub(crate) replicas: u32,
}

/// Findings, and the names of checks for which too little could be seen.
#[derive(Default)]
struct Sheet {
    found: Vec<Finding>,
    unseen: Vec<&'static str>,
}

impl Sheet {
    fn add(&mut self, check: &'static str, found: Option<Finding>) {
        match found {
            Some(found) => self.found.push(found),
            None => self.unseen.push(check),
        }
    }

    /// What matters wherever locks are kept on a server.
    fn of(facts: &Facts) -> Self {
        let mut sheet = Sheet::default();
        sheet.add("version", server::version(facts));
        sheet.add("eviction", memory::eviction(&facts.memory));
        sheet.add("memory", memory::room(&facts.memory));
        sheet.add("persistence", persistence::judge(&facts.persistence));
        sheet
    }

    fn finish(mut self, facts: &Facts) -> Vec<Finding> {
        self.found.extend(server::idle_timeout(facts.idle_timeout));
        self.found.extend(server::hidden(&facts.hidden, &self.unseen));
        self.found
    }
}

/// All findings about one master, and about the Sentinels that watch it if there should be any.
pub(crate) fn judge(seen: &Seen, sentinels: Option<&[Sentinel]>, demands: Demands<'_>) -> Vec<Finding> {
    let facts = &seen.facts;
    let mut sheet = Sheet::of(facts);
    sheet.add("replicas", replication::policy(&facts.replication, demands.replicas));
    sheet.found.extend(replication::lag(&facts.replication));
    if let Some(said) = sentinels {
        sheet.add("sentinels", seen.sentinels.map(|watching| sentinel::number(watching, said)));
        sheet.add("sentinel quorum", sentinel::quorum(said));
        sheet.add("sentinel agreement", sentinel::agreement(said));
    }
    sheet.add("clock", facts.clock.map(|clock| server::clock(clock, seen.now, seen.highest)));
    sheet.add("rights", seen.denied.as_ref().map(|denied| access::rights(denied, demands.prefix)));
    sheet.add("scripts", server::scripts(seen.cache));
    sheet.finish(facts)
}

/// The findings about one server that matter wherever locks are kept on it.
pub fn judge_server(facts: &Facts) -> Vec<Finding> {
    Sheet::of(facts).finish(facts)
}

/// A master of a cluster that does not answer.
pub(crate) fn silent(why: &str) -> Finding {
    let what = format!("it does not answer: {why}");
    Finding::new(Grade::Danger, "reach", what, "locks that belong to it can't be had")
        .fix("look whether it runs, and whether this host can reach it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demands() -> Demands<'static> {
        Demands { prefix: "p:", replicas: 1 }
    }

    #[test]
    fn a_server_that_tells_nothing_is_one_note_and_no_danger() {
        let facts = Facts { hidden: vec!["INFO", "CONFIG GET"], ..Facts::default() };
        let silent = Sentinel { node: "s:26379".to_owned(), watch: Err("refused".to_owned()) };
        let found = judge(&Seen { facts, ..Seen::default() }, Some(&[silent]), demands());
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].grade, found[0].check), (Grade::Note, "hidden"));
        for check in [
            "eviction",
            "persistence",
            "replicas",
            "sentinels",
            "sentinel quorum",
            "clock",
            "rights",
            "scripts",
        ] {
            assert!(found[0].what.contains(check), "{check}: {found:#?}");
        }
    }
}
