//! The loops over situations, cuts and faults.

use std::time::Duration;

use futures_util::future::join_all;
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
    /// In one, where most goes on. A claim also where nobody holds, and a try where the same client does: there it gets in
    /// while it is cut.
    Few,
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
        _ if brief && shared => &[None, Some(LOCAL_READER), Some(FOREIGN_WRITER)],
        _ if brief => &[None, Some(LOCAL_WRITER), Some(FOREIGN_WRITER)],
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
    let Some(last) = all.pop() else { return all };
    match which {
        Situations::One => all.clear(),
        Situations::Few if claims && !operation.brief || operation.shape == Shape::Try => {
            // A try that meets one who waits is busy.
            let tries = operation.shape == Shape::Try;
            let quiet = |s: &&Situation| !s.asked && s.company.is_empty() == tries;
            let nobody = all.iter().filter(quiet).rfind(|s| s.holder.is_none());
            let local = |s: &&Situation| s.holder.is_some_and(|holder| holder.side == Side::Local);
            let local = all.iter().filter(quiet).find(|s| tries && local(s));
            all = nobody.into_iter().chain(local).cloned().collect();
        }
        Situations::Few => all.clear(),
        Situations::All | Situations::Some => {}
    }
    all.push(last);
    all
}

/// Runs one cell on a lock that nothing else uses, and tells what was wrong in it.
pub type RunCell<'a> = &'a (dyn Fn(Injury) -> Boxed<(Ran, Vec<String>)> + Send + Sync);

/// Drops the operation at every step of one situation, and fails every store call (if there are faults), and both. Cells with a
/// fault wait for most of their time, so they are run at the same time. A loop ends with its first cell that is wrong.
pub async fn sweep(operation: &Operation, situation: &Situation, extent: Extent, run: RunCell<'_>) -> Tally {
    let sweep = Sweep { operation, situation, run };
    let mut tally = sweep.cuts(None, 0, 1).await;
    tally.situations = 1;
    if !tally.wrong.is_empty() {
        return tally;
    }
    let hangs = |fault: &&Fault| matches!(fault, Fault::Hang | Fault::HangAfter);
    let faults = extent.faults.iter().filter(|fault| !(operation.opens && hangs(fault)));
    let faults = faults.map(|fault| sweep.calls(*fault, extent.both));
    join_all(faults).await.into_iter().for_each(|more| tally.add(more));
    tally
}

/// How many calls of an operation are failed at the same time, each in a cell of its own. Few operations make more.
const CALLS_AT_ONCE: usize = 6;

/// One operation in one situation.
#[derive(Clone, Copy)]
struct Sweep<'a> {
    operation: &'a Operation,
    situation: &'a Situation,
    run: RunCell<'a>,
}

impl Sweep<'_> {
    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        tally.operations.insert(self.operation.to_string());
        tally
    }

    /// Drops the operation at every step from this one on, so many cells at a time.
    async fn cuts(self, fault: Option<(usize, Fault)>, first: usize, at_once: usize) -> Tally {
        let mut tally = self.tally();
        for begin in (first..).step_by(at_once) {
            let injuries = (begin..begin + at_once).map(|step| Injury { cut: Some(step), fault });
            let ran = join_all(injuries.map(async |injury| (injury, (self.run)(injury).await))).await;
            for (injury, ran) in ran {
                let ran = tally.count(self.operation, self.situation, injury, ran);
                if !ran.cut || !tally.wrong.is_empty() {
                    return tally;
                }
            }
        }
        tally
    }

    /// Fails every store call in this way, and drops the operation at every step around it if `both` is set.
    async fn calls(self, fault: Fault, both: bool) -> Tally {
        let mut tally = self.tally();
        for begin in (1..).step_by(CALLS_AT_ONCE) {
            let calls = (begin..begin + CALLS_AT_ONCE).map(|n| self.call((n, fault), both));
            for (injury, ran, cuts) in join_all(calls).await {
                let ran = tally.count(self.operation, self.situation, injury, ran);
                // It has no such call.
                if !ran.failed {
                    return tally;
                }
                tally.add(cuts);
                if !tally.wrong.is_empty() {
                    return tally;
                }
            }
        }
        tally
    }

    async fn call(self, fault: (usize, Fault), both: bool) -> (Injury, (Ran, Vec<String>), Tally) {
        let injury = Injury { cut: None, fault: Some(fault) };
        let (ran, wrong) = (self.run)(injury).await;
        let cuts = match both && ran.failed && wrong.is_empty() {
            // The others act in two steps of their own, and the last one comes too late. A few more, where it was quicker than usual.
            true => self.cuts(Some(fault), 1, ran.polls + 4).await,
            false => Tally::default(),
        };
        (injury, (ran, wrong), cuts)
    }
}
