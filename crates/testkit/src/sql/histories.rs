//! Random histories: what the tables say after every event is what the rule says. Most events take one of the quick statements, which
//! don't run the rule but must come to the same.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::queue::{Effects, Now, Queue};
use leasehold_core::store::{
    Ask, Inbox, Joined, Leave, Note, Otherwise, Presence, Renewal, Renewed, Session,
};
use leasehold_core::view::{EntryView, Snapshot};
use leasehold_core::{EntryId, Label, Lease, Name, SessionId, Tick, Token, Want};
use leasehold_sql::POLICY;

use super::{Database, fresh_url};

/// How many events a history has, and how many histories there are.
const EVENTS: usize = 150;
const HISTORIES: u64 = 4;

/// How many locks have an event at once.
const LOCKS: usize = 24;

/// Nothing ends by itself meanwhile.
const LONG: Duration = Duration::from_secs(3600);

struct Deaf;

impl Inbox for Deaf {
    fn note(&self, _: Note) {}
    fn session_gone(&self) {}
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// What of an entry does not depend on clocks.
type Seen = (EntryId, SessionId, Want, bool, Option<u32>, bool);

fn seen(entries: &[EntryView]) -> Vec<Seen> {
    entries.iter().map(|e| (e.id, e.session, e.want, e.barges, e.place, e.release_requested)).collect()
}

/// A lock as the rule has it, and its entries.
struct Model {
    name: Name,
    queue: Queue,
    /// Whose it is, and its highest token if it was told that it holds.
    entries: Vec<(usize, EntryId, Option<Token>)>,
    highest: Token,
}

/// What every event leaves behind is what the rule says, whichever statement did it.
pub async fn random_histories_agree_with_the_rule<D: Database>(db: D) {
    for seed in 0..HISTORIES {
        history(db, seed).await;
    }
}

/// The same where many locks have an event at once, so that those that take a lock and give it back share transactions.
pub async fn random_histories_in_company_agree_with_the_rule<D: Database>(db: D) {
    for seed in 0..HISTORIES {
        history_in_company(db, seed).await;
    }
}

async fn sessions(db: impl Database, url: &str) -> Vec<(SessionId, Arc<dyn Session>)> {
    let mut sessions: Vec<(SessionId, Arc<dyn Session>)> = Vec::new();
    for _ in 0..3 {
        let id = SessionId::random().expect("an id");
        let me = Presence { id, label: Label::new("me") };
        let session = db.open(url).expect("a store").open(me, Arc::new(Deaf)).await.expect("a session");
        sessions.push((id, session));
    }
    sessions
}

fn models(count: usize) -> Vec<Model> {
    let name = |n: usize| Name::new(format!("lock {n}")).expect("a name");
    let model = |n| Model { name: name(n), queue: Queue::default(), entries: Vec::new(), highest: Token(0) };
    (0..count).map(model).collect()
}

async fn history(db: impl Database, seed: u64) {
    let sessions = sessions(db, &fresh_url(db.server())).await;
    let (mut dice, mut models) = (Dice(seed), models(2));
    for event in 0..EVENTS {
        let model = &mut models[dice.below(2)];
        let did = step(model, &sessions, &mut dice).await;
        agrees(model, &sessions, &format!("seed {seed}, event {event}: {did}")).await;
    }
    for (_, session) in sessions {
        session.close().await.expect("a close");
    }
}

async fn history_in_company(db: impl Database, seed: u64) {
    let sessions = sessions(db, &fresh_url(db.server())).await;
    let mut models: Vec<(Model, Dice)> =
        models(LOCKS).into_iter().zip(0..).map(|(model, n)| (model, Dice(seed * 1000 + n))).collect();
    for event in 0..EVENTS / 3 {
        let events = models.iter_mut().map(|(model, dice)| async {
            // Most of them are free most of the time.
            while model.entries.len() > 1 {
                leave(model, 0, &sessions).await;
            }
            let did = step(model, &sessions, dice).await;
            agrees(model, &sessions, &format!("seed {seed}, event {event}: {did}")).await;
        });
        join_all(events).await;
    }
    for (_, session) in sessions {
        session.close().await.expect("a close");
    }
}

/// What the tables say is what the rule says.
async fn agrees(model: &Model, sessions: &[(SessionId, Arc<dyn Session>)], when: &str) {
    let real = sessions[0].1.clone().inspect(model.name.clone()).await.expect("a look");
    let rule = model.queue.snapshot(&model.name, now());
    let sides = |s: &Snapshot| (seen(&s.holders), seen(&s.waiters), s.limit);
    assert_eq!(sides(&real), sides(&rule), "{when}");
}

/// Any moment will do for the rule: nothing ends by itself.
fn now() -> Now {
    Now { tick: Tick(1), wall: 1 }
}

/// One event, on both sides. Tells what it was.
async fn step(model: &mut Model, sessions: &[(SessionId, Arc<dyn Session>)], dice: &mut Dice) -> String {
    let (name, out) = (model.name.clone(), &mut Effects::new(false));
    let which = dice.below(10);
    if model.entries.is_empty() || which < 4 {
        let whose = dice.below(sessions.len());
        let (me, session) = &sessions[whose];
        let ask = Ask { name, id: EntryId::random().expect("an id"), ..a_claim(dice) };
        let real = session.clone().join(ask.clone()).await;
        let rule = model.queue.join(*me, &Label::new("me"), &ask, POLICY, now(), out);
        let did = format!("{ask:?}: {real:?}, by the rule {rule:?}");
        match (&real, &rule) {
            (Ok(Joined::Held(real)), Ok(Joined::Held(_))) => {
                assert!(real.tokens.first > model.highest, "not above {}: {did}", model.highest);
                model.highest = real.tokens.last();
                model.entries.push((whose, ask.id, Some(real.tokens.last())));
            }
            (Ok(Joined::Waiting(real)), Ok(Joined::Waiting(rule))) => {
                assert_eq!(real.place, rule.place, "{did}");
                model.entries.push((whose, ask.id, None));
            }
            (Ok(Joined::Busy), Ok(Joined::Busy)) | (Err(_), Err(_)) => {}
            _ => panic!("{did}"),
        }
        return did;
    }
    let at = dice.below(model.entries.len());
    let (whose, id, token) = model.entries[at];
    let session = sessions[whose].1.clone();
    match which {
        4..=6 => leave(model, at, sessions).await,
        7 | 8 => {
            let line = Renewal { name, id, token, more_tokens: false };
            let real =
                session.renew(vec![line.clone()]).await.expect("answers").remove(0).expect("an answer");
            let rule = model.queue.renew(&line, POLICY, now(), out);
            let did = format!("renew {id}: {real:?}, by the rule {rule:?}");
            match (real, rule) {
                (Renewed::Held(grant), Renewed::Held(_)) => {
                    model.highest = model.highest.max(grant.tokens.last());
                    model.entries[at].2 = Some(grant.tokens.last());
                }
                (Renewed::Waiting(real), Renewed::Waiting(rule)) => {
                    assert_eq!(real.place, rule.place, "{did}")
                }
                (Renewed::Gone(_), Renewed::Gone(_)) => drop(model.entries.remove(at)),
                _ => panic!("{did}"),
            }
            did
        }
        _ => {
            let real = session.request_release(name, None).await.expect("an answer");
            let rule = model.queue.request_release(None, POLICY, now(), out);
            assert_eq!(seen(&real.holders), seen(&rule), "a request");
            "a request to release".to_owned()
        }
    }
}

/// An entry leaves, on both sides. Tells what came of it.
async fn leave(model: &mut Model, at: usize, sessions: &[(SessionId, Arc<dyn Session>)]) -> String {
    let (whose, id, _) = model.entries.remove(at);
    let real = sessions[whose].1.clone().leave(Leave::new(model.name.clone(), id)).await.expect("a release");
    let rule = model.queue.leave(id, None, POLICY, now(), &mut Effects::new(false));
    assert_eq!(real, rule, "leave {id}");
    format!("leave {id}: {real:?}")
}

/// Mostly what most people ask for.
fn a_claim(dice: &mut Dice) -> Ask {
    let want = match dice.below(10) {
        0..=6 => Want::Exclusive,
        7 | 8 => Want::Shared,
        _ => Want::Permits { n: 1, of: 2 },
    };
    let otherwise = match dice.below(6) {
        0 => Otherwise::GoAway,
        1 => Otherwise::Barge,
        _ => Otherwise::Queue,
    };
    let lease = if dice.below(3) == 0 { Lease::Fixed(LONG) } else { Lease::Kept(LONG) };
    let (name, id) = (Name::new("any").expect("a name"), EntryId(0));
    Ask { name, id, want, lease, place: LONG, otherwise }
}
