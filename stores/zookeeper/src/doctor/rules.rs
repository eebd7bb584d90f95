//! What to think of the facts. Pure: it needs no server.

use std::time::Duration;

use leasehold_core::doctor::{Finding, Grade, size, time};

use super::facts::{Facts, Said, Words};

/// The first version with all that is used: container nodes, recursive watches, reads in one request.
const NEEDED: (u32, u32, u32) = (3, 6, 0);

/// How large a list may be before clients other than ours can't read it: `jute.maxbuffer`, if nobody changed it.
const LARGEST_ANSWER: usize = 1024 * 1024 - 1;

/// How long the name of an entry's node is, more or less, with its length.
const NODE: usize = 52;

/// A round trip through the leader that is slow for a lock.
const SLOW: Duration = Duration::from_millis(50);

/// How far clocks may be apart before people wonder, in milliseconds.
const APART: i64 = 1000;

/// How many epochs there are for tokens.
const EPOCHS: u64 = 1 << 21;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(why) = &facts.login {
        found.push(
            Finding::new(
                Grade::Danger,
                "session",
                format!("no session could be opened: {why}"),
                "nothing can be locked",
            )
            .fix("check the login, the chroot, and whether the servers have a quorum"),
        );
    }
    ensemble(facts, &mut found);
    servers(facts, &mut found);
    session(facts, &mut found);
    speed(facts, &mut found);
    clock(facts, &mut found);
    sizes(facts, &mut found);
    found
}

fn said(facts: &Facts) -> impl Iterator<Item = (&str, &Said)> {
    facts.servers.iter().filter_map(|server| match &server.words {
        Words::Said(said) => Some((server.address.as_str(), said)),
        _ => None,
    })
}

/// Whether there is a quorum, and how much it can lose.
fn ensemble(facts: &Facts, found: &mut Vec<Finding>) {
    let count = facts.servers.len();
    let modes: Vec<&str> = said(facts).map(|(_, said)| said.mode.as_str()).collect();
    if modes.is_empty() {
        found.push(Finding::new(
            Grade::Note,
            "quorum",
            "the servers don't say what they are",
            "whether there is a quorum, and who leads, could not be looked at (4lw.commands.whitelist, encryption)",
        ));
        return;
    }
    if modes.contains(&"standalone") {
        let what = if count == 1 { "it is a single server" } else { "one of the servers stands alone" };
        let (grade, why) = if count == 1 {
            (Grade::Warning, "while it is down nothing can be locked, and a lost disk forgets every lock")
        } else {
            (Grade::Danger, "a server that is no part of the ensemble gives out locks of its own")
        };
        found.push(Finding::new(grade, "quorum", what, why).fix("use an ensemble of three or five servers"));
        return;
    }
    let leaders = modes.iter().filter(|mode| **mode == "leader").count();
    let voting = modes.iter().filter(|mode| matches!(**mode, "leader" | "follower")).count();
    if leaders > 1 {
        found.push(
            Finding::new(
                Grade::Danger,
                "quorum",
                format!("{leaders} of the servers lead"),
                "they are of different ensembles, or one was cut off a moment ago: two clients may hold one lock",
            )
            .fix("name the servers of one ensemble only, and look again"),
        );
    }
    let silent = facts.servers.iter().filter(|server| server.words == Words::Silent).count();
    if voting + silent > count / 2 {
        let what = format!(
            "{voting} of {count} servers serve, {}",
            if leaders == 1 { "one of them leads" } else { "the leader is not among them" }
        );
        found.push(Finding::new(Grade::Good, "quorum", what, "locks go on while a majority does"));
    } else {
        let what = format!("only {voting} of {count} servers serve");
        found.push(
            Finding::new(Grade::Warning, "quorum", what, "with one more gone the others may not be enough")
                .fix("bring the others back, or correct the URL"),
        );
    }
    if count.is_multiple_of(2) {
        found.push(Finding::new(
            Grade::Note,
            "ensemble size",
            format!("the URL names {count} servers"),
            "an even number of servers survives no more losses than one less",
        ));
    }
}

fn servers(facts: &Facts, found: &mut Vec<Finding>) {
    for server in &facts.servers {
        let finding = match &server.words {
            Words::Unreachable => Finding::new(
                Grade::Warning,
                "server",
                "it does not answer",
                "clients try it in turn, and the ensemble can lose one less of the others",
            )
            .fix("start it, or take it out of the URL"),
            Words::NotServing => Finding::new(
                Grade::Warning,
                "server",
                "it is up and does not serve: it has no quorum",
                "clients that are connected to it wait for another",
            )
            .fix("look at its log and its connections to the others"),
            Words::Silent => continue,
            Words::Said(said) => match said.version {
                Some(version) if version < NEEDED => Finding::new(
                    Grade::Danger,
                    "version",
                    format!("it is version {}", shown(version)),
                    "it lacks container nodes, recursive watches or reads in one request",
                )
                .fix(format!("use {} or later", shown(NEEDED))),
                Some(version) => Finding::new(
                    Grade::Good,
                    "version",
                    format!("it is version {} ({})", shown(version), said.mode),
                    "container nodes remove what idle locks leave behind",
                ),
                None => continue,
            },
        };
        found.push(finding.at(&server.address));
    }
    let epoch = said(facts).filter_map(|(_, said)| said.zxid).max().map_or(0, |zxid| zxid >> 32);
    if epoch > EPOCHS / 2 {
        let what = format!("there were {epoch} leaders so far");
        let why = format!("tokens have room for {EPOCHS}; beyond that nothing is granted");
        found.push(Finding::new(Grade::Warning, "tokens", what, why).fix("plan a move to a fresh ensemble"));
    }
}

fn shown((major, minor, patch): (u32, u32, u32)) -> String {
    format!("{major}.{minor}.{patch}")
}

fn session(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(given) = facts.given else { return };
    let bounds = match (facts.shortest, facts.longest) {
        (Some(shortest), Some(longest)) => format!(" (it allows {} to {})", time(shortest), time(longest)),
        _ => String::new(),
    };
    let what = format!("a session lives {} without a sign of life{bounds}", time(given));
    let why = format!(
        "a crashed client's locks are free after that; a holder that is cut off counts on {}",
        time(given * 3 / 4)
    );
    found.push(if given == facts.asked {
        Finding::new(Grade::Good, "session", what, why)
    } else {
        Finding::new(
            Grade::Warning,
            "session",
            format!("{what}, and {} were asked for", time(facts.asked)),
            why,
        )
        .fix("change session= in the URL, or minSessionTimeout and maxSessionTimeout of the servers")
    });
}

fn clock(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(ahead) = facts.ahead else { return };
    let apart = time(Duration::from_millis(ahead.unsigned_abs()));
    let why = "no lock depends on it: sessions are counted by each side for itself; since when a lock is held is told by the leader's clock";
    found.push(if ahead.abs() <= APART {
        Finding::new(Grade::Good, "clock", format!("the leader's clock and ours are {apart} apart"), why)
    } else {
        let side = if ahead > 0 { "ahead of" } else { "behind" };
        Finding::new(Grade::Note, "clock", format!("the leader's clock is {apart} {side} ours"), why)
            .fix("have both follow NTP")
    });
}

fn speed(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(trip) = facts.round_trip else { return };
    let what = format!("a round trip to the leader takes {}", time(trip));
    let slow = trip > SLOW || facts.given.is_some_and(|given| trip > given / 20);
    found.push(if slow {
        Finding::new(
            Grade::Warning,
            "latency",
            what,
            "every lock waits for it, and a session may end before a sign of life arrives",
        )
        .fix("use servers nearer to the clients, a disk of its own for the log, or longer sessions")
    } else {
        Finding::new(Grade::Good, "latency", what, "a lock and a release are one of these each")
    });
}

fn sizes(facts: &Facts, found: &mut Vec<Finding>) {
    if let Some((name, entries)) = &facts.longest_queue {
        let bytes = entries * NODE;
        let what = format!(
            "the longest queue is that of {name:?}: {entries} entries, a list of {}",
            size(bytes as u64)
        );
        let why = format!(
            "every newcomer reads it; beyond {} other clients such as zkCli can't (jute.maxbuffer)",
            size(LARGEST_ANSWER as u64)
        );
        let grade = match bytes {
            bytes if bytes > LARGEST_ANSWER / 2 => Grade::Warning,
            bytes if bytes > LARGEST_ANSWER / 20 => Grade::Note,
            _ => Grade::Good,
        };
        let finding = Finding::new(grade, "queue length", what, why);
        found.push(if grade == Grade::Warning {
            finding.fix("let the tasks of a program share a client: they queue in it, behind one entry")
        } else {
            finding
        });
    }
    if let Some(locks) = facts.locks.filter(|locks| locks * NODE > LARGEST_ANSWER / 2) {
        found.push(Finding::new(
            Grade::Note,
            "locks",
            format!("{locks} locks have a node"),
            "listing them all is slow, and other clients such as zkCli may not be able to (jute.maxbuffer)",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::Server;
    use super::*;

    fn server(mode: &str) -> Server {
        let said = Said { version: Some((3, 8, 0)), mode: mode.into(), zxid: Some(0x5_0000_0001) };
        Server { address: format!("{mode}:2181"), words: Words::Said(said) }
    }

    fn healthy() -> Facts {
        let ten = Duration::from_secs(10);
        Facts {
            servers: vec![server("leader"), server("follower"), server("follower")],
            given: Some(ten),
            shortest: Some(Duration::from_secs(4)),
            longest: Some(Duration::from_secs(40)),
            round_trip: Some(Duration::from_millis(2)),
            ahead: Some(3),
            locks: Some(3),
            longest_queue: Some(("x".into(), 4)),
            ..Facts::new(ten)
        }
    }

    fn grade(facts: &Facts, check: &str) -> Option<Grade> {
        judge(facts).into_iter().filter(|finding| finding.check == check).map(|finding| finding.grade).max()
    }

    #[test]
    fn a_healthy_ensemble_is_all_good() {
        assert!(
            judge(&healthy()).iter().all(|finding| finding.grade == Grade::Good),
            "{:#?}",
            judge(&healthy())
        );
    }

    #[test]
    fn every_warning_says_what_to_do() {
        let down = Server { address: "a".into(), words: Words::Unreachable };
        let lost = Server { address: "b".into(), words: Words::NotServing };
        let old = Said { version: Some((3, 4, 14)), mode: "leader".into(), zxid: Some(u64::MAX >> 11) };
        let old = Server { address: "c".into(), words: Words::Said(old) };
        let second = Duration::from_secs(1);
        let cases: [(&str, Grade, Facts); 10] = [
            ("clock", Grade::Note, Facts { ahead: Some(-5_000), ..healthy() }),
            ("quorum", Grade::Warning, Facts { servers: vec![server("standalone")], ..healthy() }),
            (
                "quorum",
                Grade::Danger,
                Facts { servers: vec![server("standalone"), server("leader")], ..healthy() },
            ),
            (
                "quorum",
                Grade::Danger,
                Facts { servers: vec![server("leader"), server("leader")], ..healthy() },
            ),
            (
                "quorum",
                Grade::Warning,
                Facts { servers: vec![server("leader"), down.clone(), lost.clone()], ..healthy() },
            ),
            ("server", Grade::Warning, Facts { servers: vec![server("leader"), down, lost], ..healthy() }),
            ("version", Grade::Danger, Facts { servers: vec![old.clone()], ..healthy() }),
            ("tokens", Grade::Warning, Facts { servers: vec![old], ..healthy() }),
            ("session", Grade::Warning, Facts { asked: second, ..healthy() }),
            ("latency", Grade::Warning, Facts { round_trip: Some(second), ..healthy() }),
        ];
        for (check, expected, facts) in cases {
            assert_eq!(grade(&facts, check), Some(expected), "{check}: {:#?}", judge(&facts));
            for finding in judge(&facts).iter().filter(|finding| finding.grade >= Grade::Warning) {
                assert!(finding.fix.is_some(), "{finding:?}");
            }
        }
    }

    #[test]
    fn long_queues_and_failed_logins_are_told() {
        let long = Facts { longest_queue: Some(("x".into(), 15_000)), locks: Some(50_000), ..healthy() };
        assert_eq!(
            (grade(&long, "queue length"), grade(&long, "locks")),
            (Some(Grade::Warning), Some(Grade::Note))
        );
        let refused = Facts { login: Some("no".into()), given: None, ..healthy() };
        assert_eq!(grade(&refused, "session"), Some(Grade::Danger));
        let silent =
            Facts { servers: vec![Server { address: "a".into(), words: Words::Silent }], ..healthy() };
        assert_eq!(grade(&silent, "quorum"), Some(Grade::Note));
    }
}
