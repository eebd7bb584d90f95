//! Whether enough Sentinels watch the master to name a new one when it is gone.

use leasehold_core::doctor::{Finding, Grade};

/// With fewer, the loss of one is the loss of the majority that a failover needs.
const ENOUGH: u64 = 3;

/// `watching` is how many listen to the master, `named` how many the URL names.
pub(super) fn judge(watching: u64, named: usize) -> Finding {
    let why = "a failover needs the votes of most Sentinels; without one, no lock can be had when the master is gone";
    let found = |grade, what: String| Finding::new(grade, "sentinels", what, why);
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

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(judge(watching, named).grade, grade, "{watching} watch, {named} named");
        }
    }
}
