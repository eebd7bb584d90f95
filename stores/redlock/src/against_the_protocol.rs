//! The scripts and the protocol in Rust, driven by the same random histories on a real server with a clock and a process that the test
//! sets: every answer, note, event, counter and the whole state must be the same after each step.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_redis::wire::Script;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::servers::resp::{Connection, Reply};
use proptest::prelude::*;

use crate::protocol::BLOCK;
use crate::protocol::node::{Acquired, Ask, Attempt, Extend, Extended, KEEP, Node, Now, Release, Told};
use crate::protocol::standing::{Standing, Step as Tend};
use crate::scripts::{Keys, Scripts, Setting};

static SERVER: LazyLock<Redis> = LazyLock::new(|| Redis::start(RedisOptions::new()));

/// One step of a history. Real keys expire by the server's own clock, so leases are long and the test's clock is fast. People are entries; each has a few attempts.
#[derive(Debug, Clone)]
enum Step {
    Acquire {
        who: Attempt,
        ttl: u64,
        floor: i64,
        up_to: u64,
        place: u64,
        barges: bool,
    },
    Confirm {
        who: Attempt,
        above: u64,
    },
    Extend {
        who: Attempt,
        ttl: u64,
        up_to: u64,
        token: i64,
    },
    Release {
        who: Attempt,
        used: Option<u64>,
        how: u8,
        place: u64,
    },
    Revoke {
        who: Attempt,
    },
    /// Of this attempt, or of whoever owns it.
    Request {
        who: Option<Attempt>,
    },
    Stand {
        what: u8,
        set: u64,
        right: bool,
        floor: i64,
        longest: u64,
    },
    Restart,
    Wipe,
    Wait {
        micros: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let who = || (1..5u64, 1..3u32).prop_map(|(entry, number)| Attempt { entry, number });
    let place = || prop_oneof![1 => Just(0u64), 3 => 10_000..80_000u64];
    let acquire = (
        who(),
        5_000..90_000u64,
        -3000..3000i64,
        prop_oneof![6 => Just(0), 1 => 1..5000u64],
        place(),
        any::<bool>(),
    );
    let release = (who(), prop::option::of(0..2000u64), 0..6u8, 10_000..80_000u64);
    prop_oneof![
        10 => acquire.prop_map(|(who, ttl, floor, up_to, place, barges)| Step::Acquire { who, ttl, floor, up_to, place, barges }),
        3 => (who(), 0..3000u64).prop_map(|(who, above)| Step::Confirm { who, above }),
        4 => (who(), prop_oneof![Just(0), 5_000..90_000u64], 0..4000u64, -3000..3000i64)
            .prop_map(|(who, ttl, up_to, token)| Step::Extend { who, ttl, up_to, token }),
        8 => release.prop_map(|(who, used, how, place)| Step::Release { who, used, how, place }),
        1 => who().prop_map(|who| Step::Revoke { who }),
        4 => prop::option::of(who()).prop_map(|who| Step::Request { who }),
        2 => (0..5u8, 0..3u64, any::<bool>(), -3000..3000i64, 0..100u64)
            .prop_map(|(what, set, right, floor, longest)| Step::Stand { what, set, right, floor, longest }),
        1 => Just(Step::Restart),
        1 => Just(Step::Wipe),
        4 => (0..60_000u64).prop_map(|micros| Step::Wait { micros }),
        3 => (0..40_000_000u64).prop_map(|micros| Step::Wait { micros }),
        1 => (0..120_000_000u64).prop_map(|micros| Step::Wait { micros }),
    ]
}

/// Both sides, and what is needed to compare them.
struct Both {
    commands: Connection,
    pushes: Connection,
    scripts: Scripts,
    keys: Keys,
    prefix: String,
    watched: bool,
    model: Node,
    told: Vec<Told>,
    start: u64,
    micros: u64,
    run: u64,
}

const NAME: &str = "a lock: {}\n*\0.";

impl Both {
    fn new(watched: bool) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("t{}:", COUNT.fetch_add(1, Ordering::Relaxed));
        let scripts = Scripts::new(&Setting {
            prefix: &prefix,
            events: &format!("{prefix}e"),
            sessions: &format!("{prefix}s:"),
            clock: &format!("redis.call('HMGET', '{prefix}clock', 's', 'u')"),
            info: &format!("redis.call('GET', '{prefix}info')"),
        });
        let (commands, mut pushes) = (SERVER.connect().unwrap(), SERVER.connect().unwrap());
        pushes.ask(&["PSUBSCRIBE", &format!("{prefix}*")]).unwrap();
        let keys = Keys::of(&prefix, NAME);
        // Real keys expire by the server's own clock, so ours starts there.
        let start = leasehold_core::clock::wall_micros();
        let (model, told) = (Node::default(), Vec::new());
        Both { commands, pushes, scripts, keys, prefix, watched, model, told, start, micros: start, run: 1 }
    }

    fn identity(run: u64) -> String {
        format!("{run:x}:0:-1")
    }

    fn run(&mut self, script: &Script, keys: &[String], args: &[String]) -> Reply {
        let (s, u) = ((self.micros / 1_000_000).to_string(), (self.micros % 1_000_000).to_string());
        let (clock, info) = (format!("{}clock", self.prefix), format!("{}info", self.prefix));
        let text = format!("run_id:{:x}\r\nmaster_replid2:0\r\nsecond_repl_offset:-1\r\n", self.run);
        self.commands.ask(&["HSET", &clock, "s", &s, "u", &u]).unwrap();
        self.commands.ask(&["SET", &info, &text]).unwrap();
        let until = if self.watched { u64::MAX >> 12 } else { 0 };
        self.commands.ask(&["HSET", &self.keys.marker, "watched", &until.to_string()]).unwrap();
        let count = keys.len().to_string();
        let mut command = vec!["EVAL", script.source(), &count];
        command.extend(keys.iter().map(String::as_str));
        command.extend(args.iter().map(String::as_str));
        match self.commands.ask(&command).unwrap() {
            Reply::Error(what) => panic!("{what}"),
            reply => reply,
        }
    }

    fn on_the_lock(&mut self, script: fn(&Scripts) -> &Script, args: &[String]) -> Vec<i64> {
        let (script, keys) = (script(&self.scripts).clone(), self.keys.all().map(str::to_owned));
        numbers(&self.run(&script, &keys, args))
    }

    /// The token that stands this far above (or below) the start: small numbers make it easy to meet.
    fn token(&self, offset: i64) -> u64 {
        self.start.saturating_add_signed(offset)
    }

    fn step(&mut self, step: &Step) {
        let run = Self::identity(self.run);
        let now = Now { micros: self.micros, run: &run };
        let mut told = Vec::new();
        match step {
            Step::Wait { micros } => self.micros += micros,
            Step::Restart => {
                self.run += 1;
                // It takes longer than the scripts trust a marker.
                self.micros += 2_500;
            }
            Step::Wipe => {
                for key in self.keys.all().map(str::to_owned) {
                    self.commands.ask(&["DEL", &key]).unwrap();
                }
                self.model = Node::default();
            }
            Step::Acquire { who, ttl, floor, up_to, place, barges } => {
                let (floor, up_to) = (self.token(*floor), if *up_to > 0 { self.start + up_to } else { 0 });
                let ask = Ask {
                    id: *who,
                    session: session(who),
                    ttl: *ttl,
                    floor,
                    block: BLOCK,
                    up_to,
                    place: *place,
                    barges: *barges,
                };
                let expected = self.model.acquire(now, NAME, &ask, &mut told);
                let args = [
                    id(who),
                    entry(who),
                    session(who),
                    "a label".into(),
                    ttl.to_string(),
                    floor.to_string(),
                    BLOCK.to_string(),
                    up_to.to_string(),
                    place.to_string(),
                    u8::from(*barges).to_string(),
                ];
                let got = self.on_the_lock(|s| &s.acquire, &args);
                let standing = code(self.model.standing(now));
                let expected = match expected {
                    Acquired::NotYet(standing) => vec![code(standing)],
                    Acquired::Granted { x, counted, contended } => {
                        vec![standing, 1, x as i64, counted.into(), contended.into()]
                    }
                    Acquired::Denied { rest, before } => vec![standing, 0, rest as i64, before as i64],
                };
                assert_eq!(got, expected);
            }
            Step::Confirm { who, above } => {
                let token = self.start + above;
                let expected = self.model.confirm(now, NAME, *who, token, BLOCK, &mut told);
                let got = self.on_the_lock(|s| &s.confirm, &[id(who), token.to_string(), BLOCK.to_string()]);
                assert_eq!(got, [code(self.model.standing(now)), expected.into()]);
            }
            Step::Extend { who, ttl, up_to, token } => {
                let (up_to, token) = (self.start + up_to, self.token(*token));
                let ask = Extend { id: *who, ttl: *ttl, up_to, token };
                let expected = self.model.extend(now, NAME, &ask, &mut told);
                let args = [id(who), entry(who), ttl.to_string(), up_to.to_string(), token.to_string()];
                let got = self.on_the_lock(|s| &s.extend, &args);
                let expected = match expected {
                    Extended::Owned { x, counted, contended, rest, asked } => {
                        vec![1, x as i64, counted.into(), contended.into(), rest as i64, asked.into()]
                    }
                    Extended::Expired => vec![0; 6],
                    Extended::Revoked => vec![2, 0, 0, 0, 0, 0],
                    Extended::Wiped => vec![3, 0, 0, 0, 0, 0],
                };
                assert_eq!((got[0], &got[1..]), (code(self.model.standing(now)), &expected[..]));
            }
            Step::Release { who, used, how, place } => {
                let session = session(who);
                let (how, letter) = match how {
                    0 => (Release::GiveBack, "r"),
                    1 => (Release::Wait(*place, place % 2 == 1, &session), "a"),
                    2 => (Release::GoAway, "g"),
                    3 => (Release::Leave, "l"),
                    4 => (Release::Forget, "f"),
                    _ => (Release::Nothing, "n"),
                };
                let used = used.map(|used| self.start + used);
                let expected = self.model.release(now, NAME, *who, used, how, &mut told);
                let used = used.map_or("-1".into(), |used| used.to_string());
                let args = [
                    id(who),
                    entry(who),
                    used,
                    letter.into(),
                    place.to_string(),
                    (place % 2).to_string(),
                    session.clone(),
                    "a label".into(),
                ];
                assert_eq!(self.on_the_lock(|s| &s.release, &args), [i64::from(expected)]);
            }
            Step::Revoke { who } => {
                let expected = self.model.revoke(now, NAME, *who, &mut told);
                assert_eq!(self.on_the_lock(|s| &s.revoke, &[id(who)]), [i64::from(expected)]);
            }
            Step::Request { who } => {
                let owner = self.model.locks.get(NAME).and_then(|lock| lock.seat.owner).map(|owner| owner.id);
                let Some(who) = who.or(owner) else { return };
                let expected = self.model.request(now, NAME, who, &mut told);
                assert_eq!(self.on_the_lock(|s| &s.request, &[id(&who)]), [i64::from(expected)]);
            }
            Step::Stand { what, set, right, floor, longest } => {
                self.stand(*what, *set, *right, self.token(*floor), *longest, now)
            }
        }
        self.told.extend(told);
        self.compare(now.micros);
    }

    fn stand(&mut self, what: u8, set: u64, right: bool, floor: u64, longest: u64, now: Now<'_>) {
        let since = self.model.report(now).since + u64::from(!right);
        let (args, step) = match what {
            0 => (vec!["new".into(), set.to_string()], None),
            1 => (vec!["clear".into(), set.to_string()], Some(Tend::Clear(set))),
            2 => (vec!["open".into(), set.to_string()], Some(Tend::Open(set))),
            3 => (vec!["quarantine".into(), set.to_string()], Some(Tend::Quarantine(set))),
            _ => (
                ["lift".into(), since.to_string(), set.to_string(), floor.to_string(), longest.to_string()]
                    .into(),
                Some(Tend::Lift { since, set, floor, longest }),
            ),
        };
        let done = match step {
            None => self.model.make_new(now, set),
            Some(step) => self.model.tended(now, step),
        };
        let report = self.model.report(now);
        let (script, marker) = (self.scripts.standing.clone(), [self.keys.marker.clone()]);
        let reply = self.run(&script, &marker, &args);
        let Reply::Array(reply) = reply else { panic!("{reply:?}") };
        let got: Vec<i64> = numbers(&Reply::Array(reply[2..].to_vec()));
        let expected = [
            code(report.standing),
            report.set as i64,
            report.since as i64,
            report.top as i64,
            report.longest as i64,
            done.into(),
        ];
        assert_eq!(got, expected);
        assert_eq!(reply[1].to_string(), now.run);
    }

    /// The whole state, and what was told since.
    fn compare(&mut self, now: u64) {
        let lock = self.model.locks.get(NAME).cloned().unwrap_or_default();
        let field = |name: &str, this: &mut Self| match this
            .commands
            .ask(&["HGET", &this.keys.lock, name])
            .unwrap()
        {
            Reply::Nil => None,
            reply => Some(reply.to_string()),
        };
        let counter = field("c", self).map_or(0, |c| c.parse::<u64>().unwrap());
        assert_eq!(counter.max(now - KEEP), lock.seat.counter.max(now - KEEP), "the counter");
        assert_eq!(field("id", self), lock.seat.owner.map(|o| id(&o.id)), "the owner");
        assert_eq!(field("x", self), lock.seat.owner.map(|o| o.x.to_string()), "its token");
        assert_eq!(field("e", self), lock.seat.owner.map(|_| lock.ends.to_string()), "its end");
        assert_eq!(field("n", self), lock.turn.map(|(entry, _)| format!("{entry:032x}")), "whose turn it is");
        let denied = lock.denied_a_waiter.then(|| "1".to_owned());
        assert_eq!(field("d", self), denied, "whether a waiter was denied");
        let line = self.commands.ask(&["ZRANGE", &self.keys.line, "0", "-1"]).unwrap();
        let Reply::Array(line) = line else { panic!("{line:?}") };
        let expected: Vec<String> = lock.line.iter().map(|slip| format!("{:032x}", slip.entry)).collect();
        assert_eq!(line.iter().map(Reply::to_string).collect::<Vec<_>>(), expected, "who waits");
        self.compare_told();
    }

    fn compare_told(&mut self) {
        let end = format!("{}end", self.prefix);
        self.commands.ask(&["PUBLISH", &end, "."]).unwrap();
        let mut heard = Vec::new();
        loop {
            let Reply::Array(message) = self.pushes.read().unwrap() else { panic!() };
            let (channel, payload) = (message[2].to_string(), message[3].to_string());
            if channel == end {
                break;
            }
            heard.push((channel[self.prefix.len()..].to_owned(), payload));
        }
        let watched = self.watched;
        let expected: Vec<(String, String)> = std::mem::take(&mut self.told)
            .into_iter()
            .filter_map(|told| match told {
                Told::Turn(session, entry) => Some((format!("s:{session}"), format!("r{entry:032x}"))),
                Told::Revoked(session, who) => Some((format!("s:{session}"), format!("g{}", id(&who)))),
                Told::Asked(session, who) => Some((format!("s:{session}"), format!("p{}", id(&who)))),
                Told::Holder(what, who, x) => {
                    watched.then(|| ("e".into(), format!("{what} {} {x}", id(&who))))
                }
                Told::Waiter(what, entry) => watched.then(|| ("e".into(), format!("{what} {entry:032x} 0"))),
            })
            .collect();
        let heard: Vec<(String, String)> = heard
            .into_iter()
            .map(|(channel, payload)| {
                if channel != "e" {
                    return (channel, payload);
                }
                let words: Vec<&str> = payload.splitn(7, '\n').collect();
                assert_eq!((words[5], words[6]), ("a label", NAME));
                (channel, format!("{} {} {}", words[0], words[2], words[3]))
            })
            .collect();
        assert_eq!(heard, expected, "what was told");
    }
}

fn entry(who: &Attempt) -> String {
    format!("{:032x}", who.entry)
}

fn session(who: &Attempt) -> String {
    format!("{:032x}", who.entry + 100)
}

fn id(who: &Attempt) -> String {
    format!("{:032x}.{}", who.entry, who.number)
}

fn code(standing: Standing) -> i64 {
    match standing {
        Standing::Blank => 0,
        Standing::New => 1,
        Standing::Open => 2,
        Standing::Quarantined => 3,
    }
}

fn numbers(reply: &Reply) -> Vec<i64> {
    match reply {
        Reply::Int(n) => vec![*n],
        Reply::Array(all) => all.iter().flat_map(numbers).collect(),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_scripts_do_what_the_protocol_says(steps in prop::collection::vec(step(), 1..70), watched in any::<bool>(), open in prop::bool::weighted(0.9)) {
        let mut both = Both::new(watched);
        if open {
            both.step(&Step::Stand { what: 0, set: 1, right: true, floor: 0, longest: 0 });
            both.step(&Step::Stand { what: 2, set: 1, right: true, floor: 0, longest: 0 });
        }
        for step in &steps {
            both.step(step);
        }
    }
}
