//! Looking at a store before it is trusted: `leasehold doctor`.
//!
//! A store says what only it can know of itself ([`Store::examine`]). What every store has is found out here, by doing it:
//! locks are taken and given back, and one is handed from one client to another, under a name of their own.
//!
//! # Layout
//!
//! - `trial`: the locks that are taken, and what was seen.
//! - `rules`: from what was seen to findings. Pure.

mod rules;
mod trial;

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_client::{Error, Kind, Label, Result, Traits};
use leasehold_core::doctor::{Finding, Grade};
use leasehold_core::store::Store;

use crate::connect::open_store;
use trial::Trial;

/// Looks at the store at `url` and reports. An error means that it can't be reached or opened at all.
///
/// Nothing that belongs to others is touched. Some locks are taken under a name that starts with `leasehold-doctor/`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let report = leasehold::doctor("memory:").await?;
/// for finding in &report.findings {
///     println!("{}: {}: {}", finding.grade, finding.check, finding.what);
/// }
/// assert!(!report.endangers_locks());
/// # Ok(()) }
/// ```
pub async fn doctor(url: &str) -> Result<Report> {
    let visit = Doctor::new().visit(url).await?;
    let report = visit.examine().await;
    visit.close().await;
    Ok(report)
}

/// What a look at a store found.
#[derive(Debug, Clone)]
pub struct Report {
    /// The store's URL, without a password.
    pub url: String,
    /// What the store promises.
    pub traits: &'static Traits,
    /// What was found, in the order in which it was looked at.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The worst of what was found.
    pub fn worst(&self) -> Grade {
        self.findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Good)
    }

    /// Whether something was found that can lead to two holders at once, a lost lock or a stuck one.
    pub fn endangers_locks(&self) -> bool {
        self.worst() == Grade::Danger
    }
}

/// How a store is looked at. [`doctor`] does all of it with the usual options.
#[derive(Debug, Clone)]
#[must_use]
pub struct Doctor {
    label: Option<String>,
    lease: Duration,
}

impl Default for Doctor {
    fn default() -> Self {
        Doctor { label: None, lease: Duration::from_secs(30) }
    }
}

impl Doctor {
    /// The usual options.
    pub fn new() -> Self {
        Self::default()
    }

    /// What others read behind the locks of the trial. Host, process id and program unless given.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The lease that times are compared with: the one that your programs use; 30 s unless given, as for
    /// [`ClientBuilder::default_lease`](crate::ClientBuilder::default_lease).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Opens the store at `url`, connects, and lets the store look at itself. Nothing is locked yet.
    pub async fn visit(self, url: &str) -> Result<Visit> {
        let begun = Instant::now();
        let store = open_store(url).await?;
        self.visit_store(store, begun).await
    }

    async fn visit_store(self, store: Arc<dyn Store>, begun: Instant) -> Result<Visit> {
        let opened_in = begun.elapsed();
        // First, because it may explain why the rest fails.
        let own = store.clone().examine().await;
        let begun = Instant::now();
        let label = self.label.map_or_else(Label::of_this_process, Label::new);
        let trial = match Trial::open(&store, label, self.lease).await {
            // A bad option of ours, or a store that can't be reached: that is no finding.
            Err(error) if own.is_err() || error.kind() == Kind::Invalid => return Err(error),
            trial => trial,
        };
        Ok(Visit {
            url: store.url(),
            traits: store.traits(),
            lease: self.lease,
            connected_in: opened_in + begun.elapsed(),
            own,
            trial,
        })
    }
}

/// A store that is being looked at.
pub struct Visit {
    url: String,
    traits: &'static Traits,
    lease: Duration,
    connected_in: Duration,
    /// What the store found about itself.
    own: Result<Vec<Finding>>,
    trial: Result<Trial>,
}

impl Visit {
    /// Takes locks and reports what was found, by the store and by the trial.
    ///
    /// # Cancel safety
    ///
    /// Can be dropped at any time; [`close`](Visit::close) gives back what was taken.
    pub async fn examine(&self) -> Report {
        let mut findings = vec![rules::promises(self.traits)];
        match &self.own {
            Ok(own) => findings.extend(own.iter().cloned()),
            Err(error) => findings.push(rules::not_examined(error)),
        }
        findings.extend(match &self.trial {
            Ok(trial) => self.try_locks(trial).await,
            Err(error) => vec![rules::no_client(error)],
        });
        Report { url: self.url.clone(), traits: self.traits, findings }
    }

    async fn try_locks(&self, trial: &Trial) -> Vec<Finding> {
        let mut findings = vec![rules::connected(self.connected_in, self.lease)];
        let locks = trial.lock_often().await;
        findings.extend(rules::latency(&locks.times, self.lease));
        let handed = match locks.failed {
            None => trial.hand_over().await,
            Some(error) => Err(error),
        };
        let mut tokens = locks.tokens;
        match handed {
            Ok(handed) => {
                tokens.extend(handed.tokens);
                findings.push(rules::hand_over(&handed.how));
                findings.push(rules::left_behind(trial.left_behind().await));
            }
            // What is left behind then has its reason already.
            Err(error) => findings.push(rules::no_lock(&error)),
        }
        findings.extend(rules::tokens(&tokens));
        findings
    }

    /// Gives everything back and ends the sessions. A store that does not answer does not keep it for long.
    pub async fn close(&self) {
        if let Ok(trial) = &self.trial {
            trial.close().await;
        }
    }
}

/// What went wrong, without the address that the whole report is about.
fn in_words(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{}: {source}", error.what()),
        None => error.what().to_owned(),
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use leasehold_core::store::{Inbox, Note, Pending, Presence, Session, ready};
    use leasehold_memory::Memory;

    use super::*;

    /// A store with something wrong about it.
    #[derive(Clone)]
    struct Odd {
        inner: Arc<Memory>,
        /// Its messages get lost.
        deaf: bool,
        examined: Result<Vec<Finding>>,
        opens: Result<()>,
    }

    impl Odd {
        fn new() -> Self {
            Odd { inner: Memory::new(), deaf: false, examined: Ok(Vec::new()), opens: Ok(()) }
        }
    }

    impl Store for Odd {
        fn traits(&self) -> &'static Traits {
            self.inner.traits()
        }

        fn url(&self) -> String {
            self.inner.url()
        }

        fn open(self: Arc<Self>, me: Presence, inbox: Arc<dyn Inbox>) -> Pending<Arc<dyn Session>> {
            if let Err(error) = &self.opens {
                return ready(Err(error.clone()));
            }
            self.inner.clone().open(me, if self.deaf { Arc::new(Lost(inbox)) } else { inbox })
        }

        fn examine(self: Arc<Self>) -> Pending<Vec<Finding>> {
            ready(self.examined.clone())
        }
    }

    /// An inbox that nothing reaches.
    struct Lost(#[allow(dead_code)] Arc<dyn Inbox>);

    impl Inbox for Lost {
        fn note(&self, _: Note) {}

        fn session_gone(&self) {}
    }

    async fn report_on(store: Odd) -> Result<Report> {
        let visit = Doctor::new().visit_store(Arc::new(store), Instant::now()).await?;
        let report = visit.examine().await;
        visit.close().await;
        Ok(report)
    }

    fn grade(report: &Report, check: &str) -> Option<Grade> {
        report.findings.iter().find(|finding| finding.check == check).map(|finding| finding.grade)
    }

    fn broken() -> Error {
        Error::new(Kind::Unavailable, "it is broken").advice("mend it")
    }

    #[tokio::test]
    async fn a_store_that_works_endangers_nothing() {
        let report = doctor("memory:").await.unwrap();
        assert_eq!(report.url, "memory:");
        for check in ["promises", "hand-over", "cleanup", "tokens"] {
            assert_eq!(grade(&report, check), Some(Grade::Good), "{check}: {report:#?}");
        }
        assert!(grade(&report, "latency").is_some() && !report.endangers_locks(), "{report:#?}");
    }

    #[tokio::test]
    async fn messages_that_do_not_arrive_are_a_warning() {
        let report = report_on(Odd { deaf: true, ..Odd::new() }).await.unwrap();
        assert_eq!(grade(&report, "hand-over"), Some(Grade::Warning), "{report:#?}");
        assert_eq!(grade(&report, "cleanup"), Some(Grade::Good), "{report:#?}");
    }

    #[tokio::test]
    async fn what_the_store_finds_is_part_of_the_report() {
        let own = Finding::new(Grade::Danger, "eviction", "locks are evicted", "they are lost");
        let report = report_on(Odd { examined: Ok(vec![own.clone()]), ..Odd::new() }).await.unwrap();
        assert!(report.findings.contains(&own) && report.endangers_locks(), "{report:#?}");
    }

    #[tokio::test]
    async fn a_store_that_only_fails_to_look_at_itself_is_tried_all_the_same() {
        let report = report_on(Odd { examined: Err(broken()), ..Odd::new() }).await.unwrap();
        assert_eq!(grade(&report, "examination"), Some(Grade::Warning), "{report:#?}");
        assert_eq!(grade(&report, "hand-over"), Some(Grade::Good), "{report:#?}");
    }

    #[tokio::test]
    async fn a_store_that_answers_and_opens_no_session_is_dangerous() {
        let report = report_on(Odd { opens: Err(broken()), ..Odd::new() }).await.unwrap();
        let locking = report.findings.iter().find(|finding| finding.check == "locking").unwrap();
        assert_eq!((locking.grade, locking.fix.as_deref()), (Grade::Danger, Some("mend it")));
    }

    #[tokio::test]
    async fn a_store_that_can_not_be_reached_is_an_error() {
        let store = Odd { examined: Err(broken()), opens: Err(broken()), ..Odd::new() };
        assert_eq!(report_on(store).await.unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(doctor("carrier-pigeon:coop").await.unwrap_err().kind(), Kind::Invalid);
    }

    #[tokio::test]
    async fn a_lease_that_the_store_can_not_keep_is_an_error() {
        let visit = Doctor::new().lease(Duration::ZERO).visit("memory:").await;
        assert_eq!(visit.err().unwrap().kind(), Kind::Invalid);
    }

    #[tokio::test]
    async fn a_visit_that_is_cut_short_leaves_nothing_behind() {
        let store = Memory::new();
        let visit = Doctor::new().visit_store(store.clone(), Instant::now()).await.unwrap();
        // Polled once, then dropped.
        let examining = visit.examine();
        let cut = tokio::time::timeout(Duration::ZERO, examining).await;
        visit.close().await;
        let client = leasehold_client::Client::open(store).await.unwrap();
        assert!(client.list("").next().await.is_none(), "{cut:?}");
    }
}
