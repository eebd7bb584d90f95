//! One server.

use std::time::{Duration, Instant};

use leasehold_core::{Kind, Retry};
use leasehold_redis::config::Server;
use leasehold_redis::wire::{Call, Link, Script, Slot};
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use redis::Value;

use crate::common::{Bed, Heard, call, redis, text, until_connections};

#[tokio::test]
async fn a_command_is_answered() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    assert_eq!(bed.wire.run(call(&["SET", "a", "1"])).await.unwrap(), Value::Okay);
    assert_eq!(text(bed.wire.run(call(&["GET", "a"])).await.unwrap()), "1");
}

#[tokio::test]
async fn a_script_that_the_server_does_not_know_is_sent_in_full() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    let script = Script::new("return ARGV[1] .. KEYS[1]");
    for _ in 0..3 {
        let call = || Call::script(&script, Slot(0), &["k"]).arg("a");
        assert_eq!(text(bed.wire.run(call()).await.unwrap()), "ak");
        assert_eq!(text(bed.wire.run(call()).await.unwrap()), "ak");
        server.cli(&["SCRIPT", "FLUSH"]);
        for answer in bed.wire.run_all(vec![call(), call(), call()]).await {
            assert_eq!(text(answer.unwrap()), "ak");
        }
        server.cli(&["SCRIPT", "FLUSH"]);
    }
}

#[tokio::test]
async fn pushes_arrive_in_order() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    let post = bed.wire.post(Slot(0));
    assert!(bed.wire.listening(post.node).await);
    bed.heard.resumed(post.node).await;
    for number in 0..100 {
        server.cli(&["PUBLISH", &bed.channel(&post.tag), &number.to_string()]);
    }
    for number in 0..100 {
        bed.heard.note(&number.to_string()).await;
    }
}

#[tokio::test]
async fn events_are_heard_while_they_are_wanted() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    assert!(bed.wire.listening(0).await);
    bed.wire.watch_events(true).await.unwrap();
    assert_eq!(server.cli(&["PUBLISH", "leasehold:e:0", "one"]).trim(), "1");
    bed.heard.event("one").await;
    bed.wire.watch_events(false).await.unwrap();
    assert_eq!(server.cli(&["PUBLISH", "leasehold:e:0", "two"]).trim(), "0");
    bed.wire.watch_events(true).await.unwrap();
    assert_eq!(server.cli(&["PUBLISH", "leasehold:e:0", "three"]).trim(), "1");
    bed.heard.event("three").await;
}

#[tokio::test]
async fn each_of_many_is_answered_on_its_own() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    let calls = vec![call(&["SET", "a", "1"]), call(&["LPUSH", "a", "x"]), call(&["GET", "a"])];
    let mut answers = bed.wire.run_all(calls).await.into_iter();
    assert_eq!(answers.next().unwrap().unwrap(), Value::Okay);
    let e = answers.next().unwrap().unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Mismatch, Retry::Never), "{e}");
    assert_eq!(text(answers.next().unwrap().unwrap()), "1");
    assert!(bed.wire.run_all(Vec::new()).await.is_empty());
}

#[tokio::test]
async fn a_unix_socket_is_as_good_as_a_port() {
    let server = Redis::start(RedisOptions::new().unix_socket());
    let path = server.socket_path();
    for scheme in ["unix", "redis+unix"] {
        let bed = Bed::open(&format!("{scheme}:{}?db=1", path.display())).await;
        bed.wire.run(call(&["SET", "a", scheme])).await.unwrap();
        let mut direct = server.connect().unwrap();
        direct.ask(&["SELECT", "1"]).unwrap();
        assert_eq!(direct.ask(&["GET", "a"]).unwrap().to_string(), scheme);
        assert!(bed.wire.listening(0).await);
    }
}

#[tokio::test]
async fn a_database_has_its_own_keys_and_its_own_events() {
    let server = redis();
    let bed = Bed::open(&format!("{}3", server.url())).await;
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
    bed.wire.watch_events(true).await.unwrap();
    server.cli(&["PUBLISH", "leasehold:e:0", "of another database"]);
    server.cli(&["PUBLISH", "leasehold:e:3", "of this one"]);
    bed.heard.event("of this one").await;
    let other = Bed::open(&server.url()).await;
    assert_eq!(other.wire.run(call(&["GET", "a"])).await.unwrap(), Value::Nil);
    assert!(!bed.heard.all().contains(&Heard::Event("of another database".to_owned())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_share_one_connection() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    let tasks: Vec<_> = (0..200)
        .map(|number: u32| {
            let wire = bed.wire.clone();
            tokio::spawn(async move {
                for round in 0..50 {
                    let word = format!("{number}-{round}");
                    let answer = wire.run(call(&["ECHO", &word])).await.unwrap();
                    assert_eq!(text(answer), word);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(bed.wire.listening(0).await);
    until_connections(&server, &["leasehold", "leasehold-push"]).await;
}

#[tokio::test]
async fn a_caller_that_takes_no_answer_harms_nobody() {
    let server = redis();
    let bed = Bed::open(&format!("{}?timeout=100ms", server.url())).await;
    let id = || async { bed.wire.run(call(&["CLIENT", "ID"])).await.unwrap() };
    let before = id().await;
    // It is sent, and then nobody looks for its answer until long after its time.
    let mut forgotten = Box::pin(bed.wire.run(call(&["SET", "a", "1"])));
    assert!(futures_util::poll!(&mut forgotten).is_pending());
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        assert_eq!(id().await, before, "the connection was replaced");
    }
    assert_eq!(forgotten.await.unwrap(), Value::Okay);
}

#[tokio::test]
async fn a_link_can_be_used_on_its_own() {
    let server = redis();
    let link = Link::open(Server::parse(&server.url()).unwrap(), Duration::from_secs(3));
    link.ready(Duration::from_secs(3)).await.unwrap();
    let script = Script::new("return ARGV[1]");
    let echo = Call::script(&script, Slot(0), &["k"]).arg("hello");
    assert_eq!(text(link.run(&echo, Duration::from_secs(3)).await.unwrap()), "hello");
    until_connections(&server, &["leasehold"]).await;
    drop(link);
    until_connections(&server, &[]).await;
}

#[tokio::test]
async fn an_address_of_the_sixth_version_is_written_in_brackets() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        // This machine has none.
        return;
    }
    let server = Redis::start(RedisOptions::new().line("bind 127.0.0.1 ::1"));
    let bed = Bed::open(&format!("redis://[::1]:{}", server.port())).await;
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
}
