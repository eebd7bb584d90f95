//! The scripts and the rule in Rust, driven by the same random histories on a real server with a clock that the test sets: every
//! answer, note, event, token and the whole state must be the same after each step.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::queue::{Effects, Now, Policy, Queue};
use leasehold_core::store::{Ask, Joined, Leave, Left, News, Otherwise, Presence, Renewal, Renewed};
use leasehold_core::traits::Death;
use leasehold_core::view::{EntryView, Happened, Lost, Snapshot};
use leasehold_core::{EntryId, Kind, Label, Lease, Name, SessionId, Tick, Token, Want};
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::servers::resp::{Connection, Reply};
use proptest::prelude::*;
use redis::Value;

use crate::keys::Keys;
use crate::scripts::{Scripts, Setting};
use crate::state::{self, Answer};
use crate::together;
use crate::wire::Script;

const POLICY: Policy = Policy { death: Death::LeaseEnd, block: 1024 };

static SERVER: LazyLock<Redis> = LazyLock::new(|| Redis::start(RedisOptions::new()));

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    Join {
        who: usize,
        want: Want,
        fixed: bool,
        lease: u64,
        place: u64,
        otherwise: Otherwise,
    },
    Renew {
        who: usize,
        more: bool,
        token: Claimed,
    },
    Leave {
        who: usize,
        used: Option<u64>,
    },
    /// Joins and leaves in one call.
    Together(Vec<Step>),
    Downgrade {
        who: usize,
    },
    Limit {
        limit: u32,
    },
    Revoke {
        whose: Option<usize>,
        asks: bool,
    },
    Wait {
        micros: u64,
    },
    Wipe,
}

/// Which token a renewal says it has.
#[derive(Debug, Clone, Copy)]
enum Claimed {
    None,
    Own,
    Higher,
}

/// How many take part: few fit into one string, and many do not.
const FEW: usize = 5;
const MANY: usize = 13;

const RETENTION: Duration = Duration::from_secs(3600);

/// Most histories are about one kind of lock; in some of them kinds and limits meet that don't fit.
fn wants() -> impl Strategy<Value = BoxedStrategy<Want>> {
    let permits = |of: u32| (1..=of).prop_map(move |n| Want::Permits { n, of });
    prop_oneof![
        // These have most of the quick paths.
        3 => Just(Just(Want::Exclusive).boxed()),
        1 => Just(prop_oneof![Just(Want::Exclusive), Just(Want::Shared)].boxed()),
        1 => (2..=4u32).prop_map(move |of| permits(of).boxed()),
        1 => Just(prop_oneof![Just(Want::Exclusive), Just(Want::Shared), permits(2), permits(3)].boxed()),
    ]
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    (wants(), prop_oneof![3 => Just((FEW, 60)), 1 => Just((MANY, 150))])
        .prop_flat_map(|(want, (people, steps))| prop::collection::vec(step(want, people), 1..steps))
}

/// Some that go together: all who ask want the same, and nobody is in it twice.
fn together(want: BoxedStrategy<Want>, people: usize) -> impl Strategy<Value = Step> {
    let used = prop_oneof![3 => Just(Some(0)), 1 => (0..3000u64).prop_map(Some)];
    let some = prop::collection::btree_map(0..people, prop::option::weighted(0.4, used), 1..=people);
    let terms = (want, any::<bool>(), 10_000..90_000u64, 10_000..60_000u64, otherwise());
    (some.prop_map(|some| some.into_iter().collect::<Vec<_>>()).prop_shuffle(), terms).prop_map(
        |(some, (want, fixed, lease, place, otherwise))| {
            let step = |(who, leaves)| match leaves {
                Some(used) => Step::Leave { who, used },
                None => Step::Join { who, want, fixed, lease, place, otherwise },
            };
            Step::Together(some.into_iter().map(step).collect())
        },
    )
}

fn otherwise() -> impl Strategy<Value = Otherwise> {
    prop_oneof![3 => Just(Otherwise::Queue), 1 => Just(Otherwise::Barge), 1 => Just(Otherwise::GoAway)]
}

fn step(want: BoxedStrategy<Want>, people: usize) -> impl Strategy<Value = Step> {
    let who = move || 0..people;
    // Most holders hand out the first token and no other.
    let used = prop_oneof![2 => Just(Some(0)), 1 => Just(None), 2 => (0..3000u64).prop_map(Some)];
    let claimed = prop_oneof![2 => Just(Claimed::None), 4 => Just(Claimed::Own), 1 => Just(Claimed::Higher)];
    prop_oneof![
        5 => together(want.clone(), people),
        8 => (who(), want, any::<bool>(), 10_000..90_000u64, 10_000..60_000u64, otherwise())
            .prop_map(|(who, want, fixed, lease, place, otherwise)| Step::Join { who, want, fixed, lease, place, otherwise }),
        5 => (who(), any::<bool>(), claimed).prop_map(|(who, more, token)| Step::Renew { who, more, token }),
        6 => (who(), used).prop_map(|(who, used)| Step::Leave { who, used }),
        1 => who().prop_map(|who| Step::Downgrade { who }),
        1 => (1..=4u32).prop_map(|limit| Step::Limit { limit }),
        1 => prop::option::of(who()).prop_map(|whose| Step::Revoke { whose, asks: false }),
        3 => prop::option::of(who()).prop_map(|whose| Step::Revoke { whose, asks: true }),
        4 => (0..30_000u64).prop_map(|micros| Step::Wait { micros }),
        2 => (0..150_000u64).prop_map(|micros| Step::Wait { micros }),
        1 => Just(Step::Wipe),
    ]
}

/// What is compared of a note or an event.
type Told = Vec<(SessionId, EntryId, String)>;

/// Both sides, and what is needed to compare them.
struct Both {
    commands: Connection,
    pushes: Connection,
    scripts: Scripts,
    keys: Keys,
    key: String,
    prefix: String,
    name: Name,
    watched: bool,
    model: Queue,
    micros: u64,
    /// The first and the last token that each person was given.
    tokens: HashMap<usize, (u64, u64)>,
}

impl Both {
    fn new(watched: bool) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("t{}:", COUNT.fetch_add(1, Ordering::Relaxed));
        let clock = format!("redis.call('HMGET', '{prefix}clock', 's', 'u')");
        let setting = Setting { prefix: &prefix, db: 0, cluster: false, retention: RETENTION, clock: &clock };
        let scripts = Scripts::new(&setting);
        let (mut commands, mut pushes) = (SERVER.connect().unwrap(), SERVER.connect().unwrap());
        pushes.ask(&["PSUBSCRIBE", &format!("{prefix}*")]).unwrap();
        if watched {
            commands.ask(&["SET", &format!("{prefix}w"), "1"]).unwrap();
        }
        let (keys, name) = (Keys::new(&prefix), Name::new("a lock").unwrap());
        let key = keys.of(&name).text;
        // Real keys expire by the server's own clock, so ours starts there.
        let micros = leasehold_core::clock::wall_micros();
        let (model, tokens) = (Queue::default(), HashMap::new());
        Both { commands, pushes, scripts, keys, key, prefix, name, watched, model, micros, tokens }
    }

    fn now(&self) -> Now {
        Now { tick: Tick(self.micros * 1000), wall: self.micros }
    }

    fn run(&mut self, script: &Script, args: &[&str]) -> Value {
        let key = self.key.clone();
        self.run_on(script, &[&key], args)
    }

    fn run_on(&mut self, script: &Script, keys: &[&str], args: &[&str]) -> Value {
        let (s, u) = ((self.micros / 1_000_000).to_string(), (self.micros % 1_000_000).to_string());
        let clock = format!("{}clock", self.prefix);
        self.commands.ask(&["HSET", &clock, "s", &s, "u", &u]).unwrap();
        let count = keys.len().to_string();
        let mut command = vec!["EVAL", script.source(), &count];
        command.extend(keys.iter().chain(args));
        value(self.commands.ask(&command).unwrap())
    }

    /// Everything that was published since the last time: notes and events.
    fn told(&mut self) -> (Told, Told) {
        let marker = format!("{}marker", self.prefix);
        self.commands.ask(&["PUBLISH", &marker, "-"]).unwrap();
        let (mut notes, mut events) = (Vec::new(), Vec::new());
        loop {
            let Reply::Array(parts) = self.pushes.read().unwrap() else { panic!("not a message") };
            let [_, _, Reply::Bulk(channel), Reply::Bulk(payload)] = parts.as_slice() else {
                panic!("not a message: {parts:?}")
            };
            let channel =
                std::str::from_utf8(channel).unwrap().strip_prefix(&self.prefix).unwrap().to_owned();
            if channel == "marker" {
                return (notes, events);
            } else if let Some(session) = channel.strip_prefix("s:") {
                let text = std::str::from_utf8(payload).unwrap();
                let id = text[2..34].parse().unwrap();
                // Numbers may have zeros in front.
                let number = |word: &str| word.parse::<u64>().map_or(word.to_owned(), |n| n.to_string());
                let words = text[34..].split(' ').map(number);
                notes.push((
                    session.parse().unwrap(),
                    id,
                    text[..1].to_owned() + &words.collect::<Vec<_>>().join(" "),
                ));
            } else {
                let event = state::event(payload, &self.keys).expect("a readable event");
                assert_eq!(event.at, self.micros);
                assert_eq!(event.name, self.name);
                events.push((
                    event.session,
                    EntryId(0),
                    format!("{:?} {:?} {:?}", event.what, event.want, event.token),
                ));
            }
        }
    }

    fn compare(&mut self, step: &Step, out: Effects) {
        let (notes, events) = self.told();
        let said: Told = out.notes.iter().map(|(s, id, news)| (*s, *id, words(news))).collect();
        assert_eq!(notes, said, "notes after {step:?}");
        if self.watched {
            let happened = |(what, e): &(Happened, EntryView)| {
                (e.session, EntryId(0), format!("{what:?} {:?} {:?}", e.want, e.token))
            };
            let expected: Told = out.events.unwrap().iter().map(happened).collect();
            assert_eq!(events, expected, "events after {step:?}");
        } else {
            assert!(events.is_empty(), "events though nobody watches: {events:?}");
        }
    }

    /// Looks at both, which also lets go of what has ended.
    fn look(&mut self) {
        let inspect = self.scripts.inspect.clone();
        let shown = state::shown(&self.run(&inspect, &["-"]), Some(self.name.clone())).unwrap().snapshot;
        let mut out = Effects::new(self.watched);
        let now = self.now();
        self.model.expire(POLICY, now, &mut out);
        assert_eq!(shown, self.model.snapshot(&self.name, now));
        self.compare(&Step::Wait { micros: 0 }, out);
    }

    fn ask(&self, step: &Step) -> Option<(Ask, String)> {
        let Step::Join { who, want, fixed, lease, place, otherwise } = *step else { return None };
        let lease = Duration::from_micros(lease);
        let ask = Ask {
            name: self.name.clone(),
            id: id(who),
            want,
            lease: if fixed { Lease::Fixed(lease) } else { Lease::Kept(lease) },
            place: Duration::from_micros(place),
            otherwise,
        };
        Some((ask, (lease.as_millis() + 1 + RETENTION.as_millis()).to_string()))
    }

    fn joined(&mut self, who: usize, me: &Presence, ask: &Ask, value: Value, out: &mut Effects) {
        let now = self.now();
        let answer = Answer::joined(value, ask);
        let expected = self.model.join(me.id, &me.label, ask, POLICY, now, out);
        match (answer, expected) {
            (Ok(answer), Ok(expected)) => {
                assert_eq!(answer, expected, "{ask:?}");
                if let Joined::Held(grant) = answer {
                    self.tokens.insert(who, (grant.tokens.first.0, grant.tokens.last().0));
                }
            }
            (Err(a), Err(b)) => assert_eq!(a.to_string(), b.to_string()),
            (a, b) => panic!("{a:?} is not {b:?} after {ask:?}"),
        }
    }

    fn leave(&self, who: usize, used: Option<u64>) -> Leave {
        let used = used.and_then(|n| self.tokens.get(&who).map(|(first, _)| first + n));
        Leave { used: used.map(Token), ..Leave::new(self.name.clone(), id(who)) }
    }

    fn left(&mut self, going: &Leave, value: &Value, out: &mut Effects) {
        let left = self.model.leave(going.id, going.used, POLICY, self.now(), out);
        assert_eq!(state::number(value), Some(i64::from(left == Left::Done)), "{going:?}");
    }

    /// The quick path does not look at the clock.
    fn look_before_leaving(&mut self) {
        if !self.watched && self.model.snapshot(&self.name, self.now()).waiters.is_empty() {
            self.look();
        }
    }

    /// Requests in one call, between locks of others that it must do in any case and one that it can't. What it says it did not do is then
    /// done alone, as the session does it.
    fn together(&mut self, steps: &[Step]) {
        let permits = |step: &Step| matches!(step, Step::Join { want: Want::Permits { .. }, .. });
        if steps.iter().any(permits) {
            return steps.iter().for_each(|step| self.step(step));
        }
        self.look_before_leaving();
        let [free, foreign] = ["free", "foreign"].map(|name| format!("{}{name}", self.prefix));
        self.commands.ask(&["DEL", &free, &foreign]).unwrap();
        self.commands.ask(&["LPUSH", &foreign, "theirs"]).unwrap();
        let mine = format!("n {:016} {}", self.micros, id(99));
        self.commands.ask(&["SET", &free, &format!("{mine} x")]).unwrap();
        let (mut keys, mut args, mut terms) = (vec![free.clone(), foreign], vec![mine.clone(), mine], None);
        for step in steps {
            keys.push(self.key.clone());
            args.push(match *step {
                Step::Leave { who, used } => state::leaving(&self.leave(who, used)),
                Step::Join { who, .. } => {
                    terms = terms.or(self.ask(step));
                    id(who).to_string()
                }
                _ => panic!("{step:?} goes alone"),
            });
        }
        if let Some((ask, kept)) = &terms {
            args.extend([state::terms(&presence(0), ask, "-"), kept.clone()]);
        }
        let many = self.scripts.many.clone();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let value = self.run_on(&many, &keys, &args);
        let (first, undone) = together::read(&value, keys.len()).unwrap();
        assert_eq!((undone.contains(&0), undone.contains(&1)), (self.watched, true));
        let (alone, done): (Vec<_>, Vec<_>) =
            steps.iter().enumerate().partition(|(at, _)| undone.contains(&(at + 2)));
        let mut out = Effects::new(self.watched);
        for (_, step) in done {
            match *step {
                Step::Leave { who, used } => self.left(&self.leave(who, used), &Value::Int(1), &mut out),
                Step::Join { who, .. } => {
                    if let Some((ask, _)) = self.ask(step) {
                        self.joined(who, &presence(0), &ask, first.clone(), &mut out);
                    }
                }
                _ => {}
            }
        }
        self.compare(&Step::Together(steps.to_vec()), out);
        alone.into_iter().for_each(|(_, step)| self.step(step));
    }

    fn step(&mut self, step: &Step) {
        let now = self.now();
        let mut out = Effects::new(self.watched);
        match *step {
            Step::Wait { micros } => self.micros += micros,
            Step::Wipe => {
                for suffix in ["", ":e", ":o", ":b", ":x"] {
                    let key = format!("{}{suffix}", self.key);
                    self.commands.ask(&["DEL", &key]).unwrap();
                }
                self.model = Queue::default();
            }
            Step::Join { who, .. } => {
                let Some((ask, kept)) = self.ask(step) else { return };
                let join = self.scripts.join.clone();
                let mut args = vec![state::claim(&presence(who), &ask, "-"), kept];
                args.extend(matches!(ask.want, Want::Permits { .. }).then(|| "p".to_owned()));
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                let value = self.run(&join, &args);
                self.joined(who, &presence(who), &ask, value, &mut out);
            }
            Step::Renew { who, more, token } => {
                let own = self.tokens.get(&who).map(|(_, last)| Token(*last));
                let token = match token {
                    Claimed::None => None,
                    Claimed::Own => own,
                    Claimed::Higher => Some(Token(self.micros + 3_600_000_000)),
                };
                let line = Renewal { name: self.name.clone(), id: id(who), token, more_tokens: more };
                let renew = self.scripts.renew.clone();
                let value = self.run(&renew, &["-", &state::renewal(&line)]);
                let answer = Answer::one(value).unwrap().renewed().unwrap();
                assert_eq!(answer, self.model.renew(&line, POLICY, now, &mut out), "{step:?}");
                if let Renewed::Held(grant) = answer {
                    let first = self.tokens.get(&who).map_or(grant.tokens.first.0, |(first, _)| *first);
                    self.tokens.insert(who, (first, grant.tokens.last().0));
                }
            }
            Step::Leave { who, used } => {
                self.look_before_leaving();
                let going = self.leave(who, used);
                let leave = self.scripts.leave.clone();
                let value = self.run(&leave, &[&state::leaving(&going), "l-"]);
                self.left(&going, &value, &mut out);
            }
            Step::Together(ref steps) => return self.together(steps),
            Step::Downgrade { who } => {
                let downgrade = self.scripts.downgrade.clone();
                let answer = state::number(&self.run(&downgrade, &[&id(who).to_string(), "-"])).unwrap();
                let left = self.model.downgrade(id(who), POLICY, now, &mut out);
                assert_eq!(answer == 1, left == Left::Done, "{step:?}");
            }
            Step::Limit { limit } => {
                let script = self.scripts.limit.clone();
                let most = state::number(&self.run(&script, &[&limit.to_string(), "-"])).unwrap();
                let expected = self.model.set_limit(limit, POLICY, now, &mut out);
                assert_eq!(most == 0, expected.is_ok(), "{step:?}");
                if let Err(error) = expected {
                    assert_eq!(error.kind(), Kind::Refused);
                    assert!(error.to_string().contains(&format!("{most} permits")), "{error}");
                }
            }
            Step::Revoke { whose, asks } => {
                let token =
                    whose.and_then(|who| self.tokens.get(&who).map(|(first, last)| (first + last) / 2));
                if whose.is_some() && token.is_none() {
                    return;
                }
                let revoke = self.scripts.revoke.clone();
                let what = if asks { "a" } else { "t" };
                let value = self.run(&revoke, &["-", &token.unwrap_or(0).to_string(), what]);
                let shown = state::revoked(&value, self.name.clone()).unwrap();
                let token = token.map(Token);
                let holders = if asks {
                    self.model.request_release(token, POLICY, now, &mut out)
                } else {
                    self.model.revoke(token, POLICY, now, &mut out)
                };
                assert_eq!(shown.meant, holders, "{step:?}");
                let after: Snapshot = self.model.snapshot(&self.name, now);
                assert_eq!(shown.snapshot, after, "{step:?}");
            }
        }
        self.compare(step, out);
    }

    /// At the end nothing but the last token is left, and even that has an end.
    fn finish(mut self) {
        self.micros += 200_000;
        self.look();
        for suffix in [":e", ":o", ":b", ":x"] {
            let key = format!("{}{suffix}", self.key);
            assert!(matches!(self.commands.ask(&["EXISTS", &key]), Ok(Reply::Int(0))), "{key} is left");
        }
        let left = self.commands.ask(&["PTTL", &self.key]).unwrap();
        // From when its last lease would have ended; no lease of a history is longer than that.
        let most = (RETENTION + Duration::from_millis(200)).as_millis() as i64;
        assert!(matches!(left, Reply::Int(ms) if ms == -2 || (0..=most).contains(&ms)), "{left:?}");
    }
}

fn id(who: usize) -> EntryId {
    EntryId(0xabc0 + who as u128)
}

fn presence(who: usize) -> Presence {
    Presence { id: SessionId(1 + (who % 3) as u128), label: Label::new(format!("host:{who} a program")) }
}

fn words(news: &News) -> String {
    match news {
        News::Granted(grant) => {
            let leasehold_core::store::Term::For(term) = grant.term else { panic!("a term without an end") };
            let (started, contended) = (u8::from(grant.started), u8::from(grant.contended));
            let block = grant.tokens;
            format!("g {} {} {} {started} {contended}", block.first, block.len, term.as_micros())
        }
        News::Retry => "r".to_owned(),
        News::ReleaseRequested => "p".to_owned(),
        News::Gone(Lost::Revoked) => "x revoked".to_owned(),
        News::Gone(_) => "x expired".to_owned(),
    }
}

fn value(reply: Reply) -> Value {
    match reply {
        Reply::Int(n) => Value::Int(n),
        Reply::Bulk(bytes) => Value::BulkString(bytes),
        Reply::Status(text) => Value::SimpleString(text),
        Reply::Nil => Value::Nil,
        Reply::Array(items) => Value::Array(items.into_iter().map(value).collect()),
        Reply::Error(text) => panic!("the script failed: {text}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_watched_history_is_the_same_in_lua_and_in_rust(steps in history()) {
        let mut both = Both::new(true);
        steps.iter().for_each(|step| both.step(step));
        both.finish();
    }

    #[test]
    fn a_history_is_the_same_in_lua_and_in_rust(steps in history()) {
        let mut both = Both::new(false);
        steps.iter().for_each(|step| both.step(step));
        both.finish();
    }
}
