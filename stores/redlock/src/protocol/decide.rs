//! What the answers of nodes mean to the one who asked.

use super::Quorum;

/// What is known of one node in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// It has not answered yet.
    #[default]
    Pending,
    /// It granted with this first token.
    Granted(u64),
    /// It granted, but is in quarantine: that keeps others out and counts for nothing.
    Uncounted,
    /// Somebody else owns it, or its turn is somebody else's.
    Denied,
    /// It did not answer in time, or can't take part.
    Failed,
}

/// What follows from the answers so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// More answers are needed.
    Wait,
    /// The lock is held with this token.
    Held(u64),
    /// It will be, if these nodes confirm the token.
    Confirm {
        /// The token.
        token: u64,
        /// Who has it already.
        have: u32,
        /// Who must confirm it.
        ask: u32,
    },
    /// It can't be had in this round.
    Failed,
}

/// Judges the answers to an `ACQUIRE`. As early as it can be said: a node that hangs is waited for by nobody.
pub fn acquired(quorum: Quorum, answers: &[Answer]) -> Verdict {
    let mut grants: Vec<(u64, usize)> = Vec::with_capacity(answers.len());
    let mut pending = 0;
    for (node, answer) in answers.iter().enumerate() {
        match answer {
            Answer::Granted(x) => grants.push((*x, node)),
            Answer::Pending => pending += 1,
            _ => {}
        }
    }
    if grants.len() < quorum.need {
        return if grants.len() + pending < quorum.need { Verdict::Failed } else { Verdict::Wait };
    }
    // The smallest token that a quorum can have. Nodes that are further ahead are left out, not waited for.
    grants.sort_unstable();
    let token = grants[quorum.need - 1].0;
    let of = |wanted: fn(u64, u64) -> bool| {
        grants.iter().filter(|(x, _)| wanted(*x, token)).fold(0, |mask, (_, node)| mask | 1 << node)
    };
    let have: u32 = of(|x, token| x == token);
    if have.count_ones() as usize >= quorum.need {
        return Verdict::Held(token);
    }
    Verdict::Confirm { token, have, ask: of(|x, token| x < token) }
}

/// Judges the answers to a `CONFIRM`: who has the token now, and who may still get it.
pub fn confirmed(quorum: Quorum, token: u64, have: u32, pending: u32) -> Verdict {
    if have.count_ones() as usize >= quorum.need {
        Verdict::Held(token)
    } else if ((have | pending).count_ones() as usize) < quorum.need {
        Verdict::Failed
    } else {
        Verdict::Wait
    }
}

/// What a node says about a lease that is to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extended {
    /// It has not answered yet.
    #[default]
    Pending,
    /// Still owned, and now for longer.
    Owned {
        /// Whether the node is in good standing now.
        counted: bool,
        /// Whether its counter can vouch for more tokens: it was in good standing when it was taken, and not ahead of them.
        vouches: bool,
    },
    /// Its time was over.
    Expired,
    /// Somebody took it away.
    Revoked,
    /// The node does not know our tokens any more.
    Wiped,
    /// It did not answer in time.
    Failed,
}

/// What became of a lease that was to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// More answers are needed.
    Wait,
    /// It is held, and its tokens go as far as was asked.
    Held,
    /// It is held, and there are no more tokens for it.
    HeldWithoutTokens,
    /// A quorum does not own it any more.
    Lost(Why),
    /// Too few answered to say.
    Unknown,
}

/// Why a lease was lost, as far as the nodes can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its time was over.
    Expired,
    /// Somebody took it away.
    Revoked,
    /// The nodes lost their data.
    Wiped,
}

/// Judges the answers to an `EXTEND`. `tokens`: more of them are wanted.
///
/// Only to be asked while the lease is valid by the answers before: a late renewal is none, whatever the nodes say.
pub fn renewed(quorum: Quorum, answers: &[Extended], tokens: bool) -> Renewal {
    let count = |wanted: fn(&Extended) -> bool| answers.iter().filter(|a| wanted(a)).count();
    let pending = count(|a| *a == Extended::Pending);
    let owned = count(|a| matches!(a, Extended::Owned { counted: true, .. }));
    let vouching = count(|a| matches!(a, Extended::Owned { counted: true, vouches: true }));
    if owned >= quorum.need && (!tokens || vouching >= quorum.need) {
        return Renewal::Held;
    }
    if pending > 0 && (owned + pending >= quorum.need) {
        return Renewal::Wait;
    }
    if owned >= quorum.need {
        return Renewal::HeldWithoutTokens;
    }
    let not_ours = count(|a| matches!(a, Extended::Expired | Extended::Revoked | Extended::Wiped));
    if not_ours > quorum.spare() {
        let of = |why: Extended| answers.iter().filter(|a| **a == why).count();
        let (revoked, wiped) = (of(Extended::Revoked), of(Extended::Wiped));
        return Renewal::Lost(match () {
            () if revoked > 0 => Why::Revoked,
            () if wiped * 2 > not_ours => Why::Wiped,
            () => Why::Expired,
        });
    }
    if pending > 0 { Renewal::Wait } else { Renewal::Unknown }
}

#[cfg(test)]
mod tests {
    use super::Answer::*;
    use super::*;

    const THREE: Quorum = Quorum::of(3);
    const FIVE: Quorum = Quorum::of(5);

    #[test]
    fn a_quorum_that_agrees_holds_at_once_whatever_the_others_say() {
        assert_eq!(acquired(THREE, &[Granted(7), Pending, Granted(7)]), Verdict::Held(7));
        assert_eq!(acquired(THREE, &[Granted(7), Granted(9), Granted(7)]), Verdict::Held(7));
        assert_eq!(acquired(THREE, &[Granted(7), Denied, Failed]), Verdict::Failed);
        assert_eq!(acquired(THREE, &[Granted(7), Denied, Pending]), Verdict::Wait);
    }

    #[test]
    fn nodes_in_quarantine_do_not_count() {
        assert_eq!(acquired(THREE, &[Granted(7), Uncounted, Denied]), Verdict::Failed);
        assert_eq!(acquired(THREE, &[Uncounted, Granted(7), Granted(7)]), Verdict::Held(7));
    }

    #[test]
    fn nodes_behind_are_asked_to_confirm_and_nodes_ahead_are_left_out() {
        let verdict = acquired(FIVE, &[Granted(5), Granted(9), Granted(7), Granted(20), Denied]);
        assert_eq!(verdict, Verdict::Confirm { token: 9, have: 0b10, ask: 0b101 });
        assert_eq!(confirmed(FIVE, 9, 0b10, 0b101), Verdict::Wait);
        assert_eq!(confirmed(FIVE, 9, 0b111, 0), Verdict::Held(9));
        assert_eq!(confirmed(FIVE, 9, 0b110, 0), Verdict::Failed);
    }

    #[test]
    fn a_lease_is_renewed_by_a_quorum_and_lost_when_none_is_left() {
        use Extended::*;
        let ours = Owned { counted: true, vouches: true };
        let quarantined = Owned { counted: false, vouches: true };
        assert_eq!(renewed(THREE, &[ours, Pending, ours], true), Renewal::Held);
        assert_eq!(renewed(THREE, &[ours, quarantined, Pending], false), Renewal::Wait);
        assert_eq!(renewed(THREE, &[ours, quarantined, Failed], false), Renewal::Unknown);
        assert_eq!(renewed(THREE, &[ours, Expired, Expired], false), Renewal::Lost(Why::Expired));
        assert_eq!(renewed(THREE, &[ours, Expired, Revoked], false), Renewal::Lost(Why::Revoked));
        assert_eq!(renewed(THREE, &[Wiped, Wiped, Pending], false), Renewal::Lost(Why::Wiped));
        assert_eq!(renewed(THREE, &[ours, Expired, Failed], false), Renewal::Unknown);
        let planted_again = Owned { counted: true, vouches: false };
        assert_eq!(renewed(THREE, &[ours, planted_again, Failed], false), Renewal::Held);
        assert_eq!(renewed(THREE, &[ours, planted_again, Failed], true), Renewal::HeldWithoutTokens);
    }
}
