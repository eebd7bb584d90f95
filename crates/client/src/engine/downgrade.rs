//! A writer becomes a reader. The request belongs to the client: the local queue learns of it before it is sent and hears its
//! answer, also if the future that asked is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold_core::store::{Left, Pending, Renewal, Renewed, Session};
use leasehold_core::view::Lost;
use leasehold_core::{EntryId, Error, Kind, Name, Result, Retry, Token};

use super::Engine;
use super::asking::Asked;
use crate::local::LaneKey;
use crate::local::hold::Hold;

/// A downgrade that was begun.
struct Downgrade {
    key: LaneKey,
    hold: Arc<Hold>,
    token: Token,
    /// How often the store was asked.
    sent: AtomicU32,
    /// How many of these requests certainly had no effect.
    without_effect: AtomicU32,
}

impl Engine {
    /// Turns an exclusive hold into a shared one. After an error [`Hold::is_downgraded`] is false if the lock is certainly exclusive
    /// still; else the store may have made it shared, and it leaves the store when its guard is dropped.
    pub(crate) async fn downgrade(
        self: &Arc<Self>,
        key: &LaneKey,
        hold: &Arc<Hold>,
        token: Token,
        limit: Option<Duration>,
    ) -> Result<()> {
        self.check_open()?;
        if !self.settle(self.table.downgrade_begins(key, hold)) {
            return Err(self.lost_before("downgraded", hold.lost_by(self.now()), &key.name));
        }
        let (sent, without_effect) = (AtomicU32::new(0), AtomicU32::new(0));
        let job = Downgrade { key: key.clone(), hold: hold.clone(), token, sent, without_effect };
        let job = Arc::new(job);
        let first = {
            let _context = self.background.enter();
            Asked::new(self.ask_to_downgrade(self.session.clone(), &job))
        };
        let answer = match first {
            Asked::Answered(Ok(left)) => Ok(left),
            first => {
                let limit = limit.unwrap_or(self.table.rules.retry_for);
                let task = self.background.spawn(self.clone().downgrade_until(first, limit, job));
                let gone = |_| Err(Error::new(Kind::Unavailable, "the downgrade panicked"));
                task.await.unwrap_or_else(gone)
            }
        };
        match answer.map_err(|error| self.explain(error, &key.name))? {
            Left::Done => Ok(()),
            Left::NotThere => Err(self.lost_before("downgraded", hold.lost_by(self.now()), &key.name)),
        }
    }

    /// Repeats the request until there is an answer, or the limit is reached. Asking twice does no harm.
    async fn downgrade_until(
        self: Arc<Self>,
        first: Asked<Left>,
        limit: Duration,
        job: Arc<Downgrade>,
    ) -> Result<Left> {
        let answer = self.ask_again(first, limit, |session| self.ask_to_downgrade(session, &job)).await;
        if answer.is_err() && job.had_no_effect() {
            let visit = self.table.not_downgraded(&job.key, job.hold.id);
            self.settle(visit);
        }
        answer
    }

    /// One request. Whatever becomes of those who wait for it, the local queue hears its answer.
    fn ask_to_downgrade(self: &Arc<Self>, session: Arc<dyn Session>, job: &Arc<Downgrade>) -> Pending<Left> {
        job.sent.fetch_add(1, Ordering::SeqCst);
        let (engine, job) = (self.clone(), job.clone());
        let (name, id) = (job.key.name.clone(), job.hold.id);
        Box::pin(async move {
            let answer = session.downgrade(name.clone(), id).await;
            match &answer {
                Ok(Left::Done) => {
                    let visit = engine.table.downgraded(&job.key, id);
                    engine.settle(visit);
                }
                Ok(Left::NotThere) => {
                    match engine.why_it_left(&job.hold, &name, job.token).await {
                        Some(why) => drop(engine.settle(engine.table.missing(&job.key, id, why))),
                        // The next renewal says it.
                        None => engine.settle(engine.table.ask_about(&job.key, id)),
                    }
                }
                Err(error) if certainly_had_no_effect(error) => {
                    job.without_effect.fetch_add(1, Ordering::SeqCst);
                }
                Err(_) => {}
            }
            answer
        })
    }

    /// Why an entry is not at the store any more, as far as the store can tell.
    pub(super) async fn why_gone(&self, name: Name, id: EntryId, token: Token) -> Option<Lost> {
        let question = Renewal { name, id, token: Some(token), more_tokens: false };
        let answers = match self.ask(move |session| session.renew(vec![question])) {
            Asked::Answered(answers) => answers,
            Asked::Pending(request) => self.answer_within(self.patience_with_a_release(), request).await,
        };
        match answers.ok()?.pop()? {
            Ok(Renewed::Gone(why)) => Some(why),
            _ => None,
        }
    }

    /// What a verb says that finds the lock lost.
    pub(crate) fn lost_before(&self, verb: &str, why: Option<Lost>, name: &Name) -> Error {
        let why = why.map_or("the store does not have it any more", Lost::as_str);
        let what = format!("the lease had ended before it was {verb}: {why}");
        self.explain(Error::new(Kind::Lost, what), name)
    }
}

impl Downgrade {
    fn had_no_effect(&self) -> bool {
        self.without_effect.load(Ordering::SeqCst) == self.sent.load(Ordering::SeqCst)
    }
}

fn certainly_had_no_effect(error: &Error) -> bool {
    error.retry_advice() == Retry::Later
        || matches!(error.kind(), Kind::Refused | Kind::Invalid | Kind::Mismatch)
}
