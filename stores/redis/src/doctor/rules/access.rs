//! What our user may do, and who can read what we say.

use std::collections::BTreeSet;

use leasehold_core::doctor::{Finding, Grade};

use crate::doctor::rights::{For, Right};

/// How we reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    /// It does not leave this host.
    pub(crate) local: bool,
    pub(crate) encrypted: bool,
    /// A password goes over it.
    pub(crate) password: bool,
}

/// What our user may not do.
pub(super) fn rights(denied: &[Right], prefix: &str) -> Finding {
    let found = |grade, what: String, why: &str| Finding::new(grade, "rights", what, why);
    let commands: BTreeSet<&str> = denied.iter().map(Right::command).collect();
    let what = format!("our user may not run {} on {prefix}*", listed(&commands));
    let fix = format!(
        "ACL SETUSER … ~{prefix}* &{prefix}* {}",
        commands.iter().map(|name| format!("+{}", name.to_lowercase())).collect::<Vec<_>>().join(" ")
    );
    match denied.iter().map(|right| right.needed_for).min() {
        None => found(
            Grade::Good,
            "our user may do all that locks need".to_owned(),
            "a right that is missing shows only when it is needed first",
        ),
        Some(For::Locks) => found(
            Grade::Danger,
            what,
            "some locks can't be taken, or not given back, as soon as somebody waits",
        )
        .fix(fix),
        Some(For::Messages) => found(
            Grade::Warning,
            what,
            "who waits is not told when it is its turn, and gets in only with its next poll",
        )
        .fix(fix),
        Some(For::Views) => {
            found(Grade::Warning, what, "`leasehold ls` or `leasehold watch` does not work").fix(fix)
        }
    }
}

fn listed(commands: &BTreeSet<&str>) -> String {
    const SHOWN: usize = 6;
    let shown: Vec<&str> = commands.iter().copied().take(SHOWN).collect();
    match commands.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

pub(crate) fn encryption(way: Way) -> Finding {
    let why =
        "whoever can read or change what goes over the network can take locks, and free those of others";
    let found = |grade, what: &str| Finding::new(grade, "encryption", what, why);
    match way {
        Way { encrypted: true, .. } => found(Grade::Good, "connections are encrypted"),
        Way { local: true, .. } => found(Grade::Good, "connections don't leave this host"),
        Way { password: true, .. } => {
            found(Grade::Warning, "the password goes over the network as plain text")
                .fix("use rediss:// (TLS)")
        }
        _ => found(Grade::Note, "connections are not encrypted, and there is no password")
            .fix("use rediss:// (TLS) and a password, unless you trust everybody on this network"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::rights::{Scope, needed};

    fn without(commands: &[&str]) -> Vec<Right> {
        let scope = Scope { prefix: "p:", db: 0, tag: "", waits_for_replicas: false };
        needed(&scope).into_iter().filter(|right| commands.contains(&right.command())).collect()
    }

    #[test]
    fn the_most_important_missing_right_sets_the_grade() {
        for (commands, grade) in [
            (&[][..], Grade::Good),
            (&["SCAN"], Grade::Warning),
            (&["PUBLISH"], Grade::Warning),
            (&["SUBSCRIBE"], Grade::Warning),
            (&["ZADD"], Grade::Danger),
            (&["SCAN", "EVALSHA"], Grade::Danger),
        ] {
            assert_eq!(rights(&without(commands), "p:").grade, grade, "{commands:?}");
        }
    }

    #[test]
    fn the_fix_grants_what_is_missing() {
        let found = rights(&without(&["HSET", "PUBLISH"]), "p:");
        assert_eq!(found.fix.as_deref(), Some("ACL SETUSER … ~p:* &p:* +hset +publish"));
        assert_eq!(found.what, "our user may not run HSET, PUBLISH on p:*");
    }

    #[test]
    fn a_long_list_is_cut() {
        let all: BTreeSet<&str> = ["a", "b", "c", "d", "e", "f", "g", "h"].into();
        assert_eq!(listed(&all), "a, b, c, d, e, f and 2 more");
    }

    #[test]
    fn a_password_in_plain_text_is_a_warning() {
        for (local, encrypted, password, grade) in [
            (true, false, true, Grade::Good),
            (false, true, true, Grade::Good),
            (false, false, true, Grade::Warning),
            (false, false, false, Grade::Note),
        ] {
            let way = Way { local, encrypted, password };
            assert_eq!(encryption(way).grade, grade, "{way:?}");
        }
    }
}
