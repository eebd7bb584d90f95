//! The loops over situations, cuts and faults.

use std::time::Duration;

use leasehold_core::Want;

use super::company::{FOREIGN_READER, FOREIGN_WRITER, LOCAL_READER, LOCAL_WRITER, Member, Side};
use super::operations::{Operation, Shape};
use super::{Boxed, Injury, Ran, Situation, Tally};
use crate::faulty::Fault;

/// How long the actor tries a store that fails: calls that come late come after it has given up.
pub const PATIENCE: Duration = Duration::from_millis(300);

/// Later than the actor's patience.
const LATE: Duration = Duration::from_millis(700);

/// Every way in which one store call can fail.
pub const FAULTS: [Fault; 6] = [
    Fault::ErrorBefore,
    Fault::ErrorAfter,
    Fault::Hang,
    Fault::LateAndLost(LATE),
    Fault::HangAfter,
    Fault::Delay(LATE),
];

/// In which situations an operation is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Situations {
    /// In all.
    All,
    /// In some that differ most.
    Some,
    /// In one, where most goes on.
    One,
}

/// How much of the matrix is run.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// In which situations an operation is driven.
    pub situations: Situations,
    /// How store calls fail.
    pub faults: &'static [Fault],
    /// Whether the future is also dropped at every poll around a failed call.
    pub both: bool,
}

/// Those that wait, in the order in which they come. The last three differ most.
const COMPANIES: [&[Member]; 8] = [
    &[LOCAL_WRITER],
    &[LOCAL_READER],
    &[FOREIGN_WRITER],
    &[FOREIGN_READER],
    &[LOCAL_READER, FOREIGN_WRITER],
    &[],
    &[LOCAL_WRITER, FOREIGN_READER],
    &[FOREIGN_READER, LOCAL_WRITER, FOREIGN_WRITER, LOCAL_READER],
];

/// The situations that an operation is driven in, on a store that keeps shared claims or does not.
pub fn situations(operation: &Operation, shared: bool, which: Situations) -> Vec<Situation> {
    let kept = |member: &Member| shared || member.want == Want::Exclusive;
    let brief = which != Situations::All;
    let claims = matches!(operation.shape, Shape::Claim | Shape::Try);
    let holders: &[Option<Member>] = match operation.shape {
        Shape::Holder | Shape::HolderForEver => &[None],
        _ if brief => &[None, Some(LOCAL_READER), Some(FOREIGN_WRITER)],
        _ => &[None, Some(LOCAL_WRITER), Some(LOCAL_READER), Some(FOREIGN_WRITER), Some(FOREIGN_READER)],
    };
    let companies: &[&[Member]] = match operation.shape {
        Shape::Look | Shape::LookForEver | Shape::HolderForEver => &COMPANIES[7..],
        _ if brief => &COMPANIES[5..],
        _ => &COMPANIES,
    };
    let mut all = Vec::new();
    for holder in holders.iter().filter(|holder| holder.as_ref().is_none_or(kept)) {
        for company in companies {
            let company: Vec<Member> = company.iter().copied().filter(kept).collect();
            // Only the actor's own client knows whether its holder was asked.
            let asked = claims && holder.is_some_and(|holder| holder.side == Side::Local);
            // Those that come after a try come too late to meet it.
            let after = operation.shape == Shape::Claim && !company.is_empty();
            for asked in [false, true].into_iter().take(1 + usize::from(asked)) {
                for before in [true, false].into_iter().take(1 + usize::from(after)) {
                    all.push(Situation { holder: *holder, asked, company: company.clone(), before });
                }
            }
        }
    }
    if which == Situations::One {
        all.drain(..all.len() - 1);
    }
    all
}

/// Runs one cell on a lock that nothing else uses, and tells what was wrong in it.
pub type RunCell<'a> = &'a (dyn Fn(Injury) -> Boxed<(Ran, Vec<String>)> + Send + Sync);

/// Drops the operation at every step of one situation, and fails every store call (if there are faults), and both. Ends with
/// the first cell that is wrong.
pub async fn sweep(operation: &Operation, situation: &Situation, extent: Extent, run: RunCell<'_>) -> Tally {
    let mut tally = Tally { situations: 1, ..Tally::default() };
    tally.operations.insert(operation.to_string());
    let uncut = [None].into_iter();
    let cuts = || (0..).map(Some);
    for cut in cuts() {
        let injury = Injury { cut, fault: None };
        let ran = tally.count(operation, situation, injury, run(injury).await);
        if !ran.cut || !tally.wrong.is_empty() {
            break;
        }
    }
    let hangs = |fault: &&Fault| matches!(fault, Fault::Hang | Fault::HangAfter);
    for fault in extent.faults.iter().filter(|fault| !(operation.opens && hangs(fault))) {
        'calls: for n in 1.. {
            let fault = Some((n, *fault));
            for cut in uncut.clone().chain(cuts().skip(1).take_while(|_| extent.both)) {
                let injury = Injury { cut, fault };
                let ran = tally.count(operation, situation, injury, run(injury).await);
                if !tally.wrong.is_empty() {
                    return tally;
                }
                if cut.is_none() && !ran.failed {
                    break 'calls;
                }
                if cut.is_some() && !ran.cut {
                    break;
                }
            }
        }
    }
    tally
}
