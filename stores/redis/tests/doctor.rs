//! What the store finds out about real servers.

use std::time::Duration;

use leasehold_core::doctor::{Finding, Grade};
use leasehold_core::store::Store;
use leasehold_core::{Kind, Result};
use leasehold_redis::config::Server;
use leasehold_redis::wire::Link;
use leasehold_redis::{Config, Redis as RedisStore, doctor};
use leasehold_testkit::servers::process::Process;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use leasehold_testkit::servers::resp::{Connection, Reply};
use leasehold_testkit::servers::{Cluster, Sentinels, until};

fn look(url: &str) -> Result<Vec<Finding>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { RedisStore::new(Config::parse(url)?).examine().await })
}

fn look_at(url: &str) -> Vec<Finding> {
    look(url).expect("a server that answers")
}

#[track_caller]
fn find<'a>(found: &'a [Finding], check: &str) -> &'a Finding {
    found.iter().find(|finding| finding.check == check).unwrap_or_else(|| panic!("no {check}: {found:#?}"))
}

#[track_caller]
fn grade(found: &[Finding], check: &str) -> Grade {
    find(found, check).grade
}

fn worst(found: &[Finding]) -> Grade {
    found.iter().map(|finding| finding.grade).max().expect("findings")
}

#[test]
fn a_server_that_keeps_what_it_is_told_endangers_nothing() {
    let redis = Redis::start(RedisOptions::new().append_only());
    let found = look_at(&redis.url());
    for check in ["encryption", "version", "eviction", "memory", "persistence", "clock", "rights", "scripts"]
    {
        assert_eq!(grade(&found, check), Grade::Good, "{check}: {found:#?}");
    }
    assert!(worst(&found) < Grade::Warning, "{found:#?}");
    assert!(find(&found, "version").what.contains(&redis.info("redis_version")), "{found:#?}");
}

#[test]
fn one_server_can_be_looked_at_without_a_store() {
    let redis =
        Redis::start(RedisOptions::new().line("maxmemory 100mb").line("maxmemory-policy allkeys-lru"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let facts = runtime.block_on(async {
        let time = Duration::from_secs(3);
        let link = Link::open(Server::parse(&redis.url()).expect("a server"), time);
        doctor::facts(&link, time).await.expect("a server that answers")
    });
    assert_eq!(facts.run_id.as_deref(), Some(redis.info("run_id").as_str()));
    assert!(facts.clock.is_some() && facts.replication.replica_of.is_none(), "{facts:?}");
    assert_eq!(grade(&doctor::judge_server(&facts), "eviction"), Grade::Danger);
}

#[test]
fn a_look_changes_nothing() {
    let redis = Redis::start(RedisOptions::new());
    look_at(&redis.url());
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
    assert_eq!(redis.info("number_of_functions"), "0");
    assert_eq!(redis.cli(&["ACL", "LOG"]), "");
}

#[test]
fn a_server_that_evicts_keys_endangers_locks() {
    let options = RedisOptions::new().line("maxmemory 100mb").line("maxmemory-policy allkeys-lru");
    let redis = Redis::start(options);
    let found = look_at(&redis.url());
    let eviction = find(&found, "eviction");
    assert_eq!(eviction.grade, Grade::Danger);
    assert!(eviction.what.contains("allkeys-lru") && eviction.fix.is_some(), "{eviction:?}");
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(grade(&look_at(&redis.url()), "eviction"), Grade::Warning);
}

#[test]
fn a_server_that_keeps_nothing_is_a_warning() {
    let redis = Redis::start(RedisOptions::new());
    let found = look_at(&redis.url());
    assert_eq!(grade(&found, "persistence"), Grade::Warning, "{found:#?}");
    assert_eq!(worst(&found), Grade::Warning, "{found:#?}");
}

#[test]
fn rights_that_are_missing_are_named() {
    let rules = "ana on >sesame ~leasehold:* +@all -@dangerous -hset -zadd resetchannels";
    let redis = Redis::start(RedisOptions::new().user(rules).user("default on nopass ~* &* +@all"));
    let found = look_at(&format!("redis://ana:sesame@{}/", redis.address()));
    let rights = find(&found, "rights");
    assert_eq!(rights.grade, Grade::Danger);
    for command in ["HSET", "ZADD", "PUBLISH", "SUBSCRIBE"] {
        assert!(rights.what.contains(command), "{command}: {rights:?}");
    }
    assert!(!format!("{found:?}").contains("sesame"), "{found:#?}");
    let trusted = look_at(&redis.url());
    assert_eq!(grade(&trusted, "rights"), Grade::Good, "{trusted:#?}");
}

#[test]
fn the_rights_that_the_fix_names_are_enough() {
    let redis =
        Redis::start(RedisOptions::new().user("ana on >sesame +eval").user("default on nopass ~* &* +@all"));
    let url = format!("redis://ana:sesame@{}/", redis.address());
    let found = look_at(&url);
    let fix = find(&found, "rights").fix.clone().expect("a fix");
    let words: Vec<&str> = fix.split(' ').map(|word| if word == "…" { "ana" } else { word }).collect();
    redis.cli(&words);
    let found = look_at(&url);
    assert_eq!(grade(&found, "rights"), Grade::Good, "{fix}: {found:#?}");
}

#[test]
fn a_server_that_hides_its_settings_is_looked_at_as_far_as_it_goes() {
    let options = RedisOptions::new().line("maxmemory 100mb").line("maxmemory-policy volatile-lru");
    let redis =
        Redis::start(options.user("ana on >x ~* &* +@all -config").user("default on nopass ~* &* +@all"));
    let found = look_at(&format!("redis://ana:x@{}/", redis.address()));
    assert_eq!(grade(&found, "eviction"), Grade::Danger, "{found:#?}");
    assert!(find(&found, "hidden").what.contains("CONFIG GET"), "{found:#?}");
}

#[test]
fn replicas_are_held_against_the_policy_of_the_store() {
    let master = Redis::start(RedisOptions::new());
    let wants_one = format!("{}?replicas=1", master.url());
    let found = look_at(&wants_one);
    assert_eq!(grade(&found, "replicas"), Grade::Danger, "{found:#?}");
    let replica = Redis::start(RedisOptions::new().line(format!("replicaof 127.0.0.1 {}", master.port())));
    until("the replica follows", || match master.info("connected_slaves").as_str() {
        "1" if master.info("slave0").contains("state=online") => Ok(()),
        other => Err(other.to_owned()),
    });
    let found = look_at(&wants_one);
    assert_eq!(grade(&found, "replicas"), Grade::Note, "{found:#?}");
    let found = look_at(&master.url());
    assert_eq!(grade(&found, "replicas"), Grade::Warning, "{found:#?}");
    assert!(find(&found, "replica lag").what.contains("behind"), "{found:#?}");
    drop(replica);
}

#[test]
fn a_clock_behind_its_tokens_is_told() {
    let redis = Redis::start(RedisOptions::new());
    // A lock that was last granted in the year 2199, as a server remembers it whose clock was set back since.
    redis.cli(&["SET", "leasehold:n:{payments}", "f 7226582400000000"]);
    let found = look_at(&redis.url());
    assert_eq!(grade(&found, "clock"), Grade::Warning, "{found:#?}");
}

/// Tells a Sentinel something that it must agree to.
#[track_caller]
fn tell(sentinel: &Process, words: &[&str]) {
    let answer = Connection::tcp(sentinel.address()).and_then(|mut connection| connection.ask(words));
    assert!(matches!(&answer, Ok(Reply::Status(_))), "{words:?}: {answer:?}");
}

#[test]
fn sentinels_are_asked_and_counted_by_the_master() {
    let sentinels = Sentinels::start();
    let found = look_at(&sentinels.url());
    for check in ["sentinels", "sentinel quorum", "sentinel agreement", "replicas"] {
        assert_eq!(grade(&found, check), Grade::Good, "{check}: {found:#?}");
    }
    assert!(find(&found, "sentinel quorum").what.starts_with("2 of 3 "), "{found:#?}");
    let master = format!("127.0.0.1:{}", sentinels.master());
    assert!(find(&found, "sentinel agreement").what.contains(&master), "{found:#?}");
    sentinels.sentinels()[0].kill();
    let node = sentinels.node(sentinels.master());
    until("the master notices", || match node.cli(&["PUBSUB", "NUMSUB", "__sentinel__:hello"]).as_str() {
        "__sentinel__:hello\n2" => Ok(()),
        other => Err(other.to_owned()),
    });
    let found = look_at(&sentinels.url());
    let silent = find(&found, "sentinels");
    assert_eq!(silent.grade, Grade::Warning, "{found:#?}");
    assert!(silent.what.contains(&sentinels.sentinels()[0].address().to_string()), "{silent:?}");
    // Two of three can still elect.
    assert_eq!(grade(&found, "sentinel quorum"), Grade::Good, "{found:#?}");
    sentinels.sentinels()[1].kill();
    let alone = until("the last one misses the others", || {
        let found = look_at(&sentinels.url());
        let quorum = find(&found, "sentinel quorum").clone();
        if quorum.grade == Grade::Warning { Ok(quorum) } else { Err(format!("{quorum:?}")) }
    });
    assert!(alone.what.contains("no failover is possible") && alone.fix.is_some(), "{alone:?}");
}

#[test]
fn a_quorum_that_can_not_be_reached_or_is_not_agreed_on_is_a_warning() {
    let sentinels = Sentinels::start();
    let name = sentinels.master_name();
    tell(&sentinels.sentinels()[2], &["SENTINEL", "SET", name, "quorum", "3"]);
    let found = look_at(&sentinels.url());
    let quorum = find(&found, "sentinel quorum");
    assert_eq!(quorum.grade, Grade::Warning, "{found:#?}");
    assert!(quorum.what.contains(" wants 3 "), "{quorum:?}");
    sentinels.sentinels().iter().for_each(|one| tell(one, &["SENTINEL", "SET", name, "quorum", "3"]));
    let found = look_at(&sentinels.url());
    let quorum = find(&found, "sentinel quorum");
    assert_eq!(quorum.grade, Grade::Warning, "{found:#?}");
    assert!(quorum.what.contains("the loss of one"), "{quorum:?}");
    sentinels.sentinels().iter().for_each(|one| tell(one, &["SENTINEL", "SET", name, "quorum", "4"]));
    let found = look_at(&sentinels.url());
    assert!(find(&found, "sentinel quorum").what.contains("no failover is possible"), "{found:#?}");
}

#[test]
fn sentinels_that_name_different_masters_endanger_locks() {
    let (sentinels, elsewhere) = (Sentinels::start(), Redis::start(RedisOptions::new()));
    let (name, astray) = (sentinels.master_name(), &sentinels.sentinels()[2]);
    tell(astray, &["SENTINEL", "REMOVE", name]);
    let found = look_at(&sentinels.url());
    let unknown = find(&found, "sentinels");
    assert_eq!(unknown.grade, Grade::Warning, "{found:#?}");
    assert!(unknown.what.contains("No such master"), "{unknown:?}");
    tell(astray, &["SENTINEL", "MONITOR", name, "127.0.0.1", &elsewhere.port().to_string(), "2"]);
    let found = look_at(&sentinels.url());
    let agreement = find(&found, "sentinel agreement");
    assert_eq!(agreement.grade, Grade::Danger, "{found:#?}");
    let place = format!("{} by {}", elsewhere.address(), astray.address());
    assert!(agreement.what.contains(&place) && agreement.fix.is_some(), "{agreement:?}");
}

#[test]
fn every_master_of_a_cluster_is_looked_at() {
    let cluster = Cluster::start(3, 1);
    let found = look_at(&cluster.url());
    for check in ["cluster", "failover"] {
        assert_eq!(grade(&found, check), Grade::Good, "{check}: {found:#?}");
    }
    let nodes: Vec<&str> =
        found.iter().filter(|f| f.check == "eviction").filter_map(|f| f.node.as_deref()).collect();
    assert_eq!(nodes.len(), 3, "{found:#?}");
    let rights = found.iter().filter(|finding| finding.check == "rights");
    assert!(rights.clone().count() == 3 && rights.clone().all(|f| f.grade == Grade::Good), "{found:#?}");
}

#[test]
fn a_cluster_without_replicas_is_a_warning() {
    let cluster = Cluster::start(3, 0);
    let found = look_at(&format!("{}?replicas=0", cluster.url()));
    assert_eq!(grade(&found, "failover"), Grade::Warning, "{found:#?}");
    let found = look_at(&cluster.url());
    assert_eq!(grade(&found, "replicas"), Grade::Danger, "{found:#?}");
}

#[test]
fn a_master_of_a_cluster_that_is_gone_is_a_danger_and_the_others_are_looked_at() {
    let cluster = Cluster::start(3, 0);
    let gone = cluster.owner_of_slot(0);
    gone.kill();
    let others = cluster.nodes().iter().find(|node| node.port() != gone.port()).expect("another node");
    let found = look_at(&format!("redis+cluster://{}?replicas=0&timeout=500ms", others.address()));
    assert_eq!(worst(&found), Grade::Danger, "{found:#?}");
    assert!(found.iter().filter(|finding| finding.check == "eviction").count() >= 2, "{found:#?}");
}

#[test]
fn a_server_that_is_gone_is_an_error_and_no_finding() {
    let redis = Redis::start(RedisOptions::new());
    redis.kill();
    assert_eq!(look(&redis.url()).unwrap_err().kind(), Kind::Unavailable);
}
