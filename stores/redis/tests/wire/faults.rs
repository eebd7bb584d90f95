//! Connections that end, hang or lose what passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use leasehold_core::{Kind, Retry};
use leasehold_redis::Config;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::redis::{Redis, RedisOptions};
use redis::Value;

use crate::common::{Bed, PATIENCE, call, eventually, redis, text, until_done};

/// A server behind a proxy.
struct Behind {
    server: Redis,
    proxy: Proxy,
    bed: Bed,
}

impl Behind {
    async fn open() -> Behind {
        let server = redis();
        let proxy = Proxy::start(server.address());
        let bed = Bed::open(&format!("redis://{}?timeout=1s", proxy.address())).await;
        assert!(bed.wire.listening(0).await);
        Behind { server, proxy, bed }
    }
}

#[tokio::test]
async fn a_restart_is_survived() {
    let server = Redis::start(RedisOptions::new().append_only());
    let bed = Bed::open(&server.url()).await;
    assert!(bed.wire.listening(0).await);
    bed.heard.resumed(0).await;
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
    for _ in 0..3 {
        server.kill();
        server.restart();
        assert_eq!(text(until_done(&bed.wire, &["GET", "a"]).await), "1");
        bed.heard.resumed(0).await;
        server.cli(&["PUBLISH", &bed.channel(""), "hello"]);
        bed.heard.note("hello").await;
    }
}

#[tokio::test]
async fn a_call_without_a_connection_was_certainly_not_sent() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    server.kill();
    // The first may have been on its way.
    let _ = bed.wire.run(call(&["INCR", "a"])).await;
    for _ in 0..3 {
        let e = bed.wire.run(call(&["INCR", "a"])).await.unwrap_err();
        assert_eq!((e.kind(), e.retry_advice()), (Kind::Unavailable, Retry::Later), "{e}");
        assert!(e.to_string().contains(&server.address().to_string()), "{e}");
        for answer in bed.wire.run_all(vec![call(&["INCR", "a"]), call(&["INCR", "a"])]).await {
            assert_eq!(answer.unwrap_err().retry_advice(), Retry::Later);
        }
    }
    server.restart_empty();
    assert_eq!(until_done(&bed.wire, &["INCR", "a"]).await, Value::Int(1));
}

#[tokio::test]
async fn a_lost_answer_leaves_the_outcome_open() {
    let Behind { server, proxy, bed } = Behind::open().await;
    proxy.lose_answer_to(b"INCR");
    let e = bed.wire.run(call(&["INCR", "a"])).await.unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Unavailable, Retry::SameId), "{e}");
    // It was done, which the client can't know.
    assert_eq!(server.cli(&["GET", "a"]).trim(), "1");
    assert_eq!(text(until_done(&bed.wire, &["GET", "a"]).await), "1");

    proxy.lose_answer_to(b"INCR");
    for answer in bed.wire.run_all(vec![call(&["INCR", "a"]), call(&["GET", "a"])]).await {
        assert_eq!(answer.unwrap_err().retry_advice(), Retry::SameId);
    }
}

#[tokio::test]
async fn a_cut_connection_is_replaced_and_pushes_resume() {
    let Behind { server, proxy, bed } = Behind::open().await;
    bed.heard.resumed(0).await;
    for round in 0..5 {
        proxy.cut();
        bed.heard.resumed(0).await;
        let word = round.to_string();
        server.cli(&["PUBLISH", &bed.channel(""), &word]);
        bed.heard.note(&word).await;
        until_done(&bed.wire, &["SET", "a", &word]).await;
    }
}

#[tokio::test]
async fn a_server_that_hangs_does_not_hang_its_callers() {
    let server = redis();
    let bed = Bed::open(&format!("{}?timeout=300ms", server.url())).await;
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
    server.pause();
    let e = bed.wire.run(call(&["SET", "a", "2"])).await.unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Unavailable, Retry::SameId), "{e}");
    // Once the connection is found to hang, nothing is sent on it any more.
    let limit = Instant::now() + PATIENCE;
    loop {
        let e = bed.wire.run(call(&["SET", "a", "3"])).await.unwrap_err();
        if e.retry_advice() == Retry::Later {
            break;
        }
        assert!(Instant::now() < limit, "{e}");
    }
    server.resume();
    until_done(&bed.wire, &["SET", "a", "4"]).await;
}

#[tokio::test]
async fn a_connection_that_swallows_everything_is_replaced() {
    let Behind { server: _server, proxy, bed } = Behind::open().await;
    let before = proxy.traffic().connections;
    proxy.swallow_answers();
    let e = bed.wire.run(call(&["GET", "a"])).await.unwrap_err();
    assert_eq!(e.retry_advice(), Retry::SameId, "{e}");
    eventually("another connection is made", || match proxy.traffic().connections {
        now if now > before => Ok(()),
        now => Err(now.to_string()),
    })
    .await;
    proxy.pass();
    until_done(&bed.wire, &["GET", "a"]).await;
}

#[tokio::test]
async fn pushes_that_stop_without_a_word_are_noticed() {
    let Behind { server, proxy, bed } = Behind::open().await;
    bed.heard.resumed(0).await;
    // Nobody sends anything: only the heartbeat can find it.
    proxy.swallow_answers();
    let before = proxy.traffic().connections;
    eventually("the connection for pushes is replaced", || match proxy.traffic().connections {
        now if now > before => Ok(()),
        now => Err(now.to_string()),
    })
    .await;
    proxy.pass();
    bed.heard.resumed(0).await;
    server.cli(&["PUBLISH", &bed.channel(""), "back"]);
    bed.heard.note("back").await;
}

#[tokio::test]
async fn an_end_of_the_subscription_by_the_server_is_noticed() {
    let server = redis();
    let bed = Bed::open(&server.url()).await;
    bed.heard.resumed(0).await;
    for _ in 0..3 {
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        bed.heard.resumed(0).await;
    }
    assert!(bed.wire.listening(0).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_waited_for() {
    let server = Redis::start(RedisOptions::new().append_only());
    let bed = Bed::open(&format!("{}?timeout=20s", server.url())).await;
    server.cli(&["DEBUG", "POPULATE", "1000"]);
    // Half a second, in which it answers LOADING now and then.
    server.cli(&["CONFIG", "SET", "key-load-delay", "500"]);
    server.cli(&["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    let mut other = server.connect().unwrap();
    other.send(&["DEBUG", "RELOAD"]).unwrap();
    bed.wire.run(call(&["SET", "b", "1"])).await.unwrap();
}

#[tokio::test]
async fn a_long_script_of_others_is_a_reason_to_come_back() {
    let server = Redis::start(RedisOptions::new().line("busy-reply-threshold 1"));
    let bed = Bed::open(&server.url()).await;
    let mut other = server.connect().unwrap();
    other.send(&["EVAL", "while true do end", "0"]).unwrap();
    let limit = Instant::now() + PATIENCE;
    let e = loop {
        match bed.wire.run(call(&["SET", "a", "1"])).await {
            Ok(_) => assert!(Instant::now() < limit, "the script never got in the way"),
            Err(e) => break e,
        }
    };
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Unavailable, Retry::Later), "{e}");
    server.cli(&["SCRIPT", "KILL"]);
    until_done(&bed.wire, &["SET", "a", "2"]).await;
}

#[tokio::test]
async fn a_server_out_of_memory_says_so() {
    let server = Redis::start(RedisOptions::new().line("maxmemory-policy noeviction").max_memory("3mb"));
    let bed = Bed::open(&server.url()).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let e = bed.wire.run(call(&["SET", "a", "1"])).await.unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Refused, Retry::Later), "{e}");
    assert!(e.to_string().contains("out of memory"), "{e}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    until_done(&bed.wire, &["SET", "a", "1"]).await;
}

#[tokio::test]
async fn a_master_that_becomes_a_replica_says_so() {
    let (server, other) = (redis(), redis());
    let bed = Bed::open(&server.url()).await;
    server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let e = bed.wire.run(call(&["SET", "a", "1"])).await.unwrap_err();
    assert_eq!((e.kind(), e.retry_advice()), (Kind::Unavailable, Retry::Later), "{e}");
    assert!(e.to_string().contains("replica"), "{e}");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    until_done(&bed.wire, &["SET", "a", "1"]).await;
}

#[tokio::test]
async fn the_time_of_a_command_is_that_of_the_configuration() {
    let server = redis();
    let proxy = Proxy::start(server.address());
    let config = Config::parse(&format!("redis://{}", proxy.address())).unwrap();
    let bed = Bed::with(config.with_timeout(Duration::from_secs(20))).await.unwrap();
    // Longer than the half second that is usual in the library below.
    proxy.delay(Duration::from_millis(600));
    bed.wire.run(call(&["SET", "a", "1"])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_goes_to_the_wrong_caller() {
    let Behind { server: _server, proxy, bed } = Behind::open().await;
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..32)
        .map(|number| {
            let (wire, stop) = (bed.wire.clone(), stop.clone());
            tokio::spawn(async move {
                let mut answered = 0;
                for round in 0.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    let word = format!("{number}-{round}");
                    match wire.run(call(&["ECHO", &word])).await {
                        Ok(answer) => assert_eq!(text(answer), word),
                        Err(e) => assert_ne!(e.retry_advice(), Retry::Never, "{e}"),
                    }
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    for _ in 0..20 {
        let requests = proxy.requests();
        eventually("some calls pass", || match proxy.requests() {
            now if now > requests + 500 => Ok(()),
            now => Err(now.to_string()),
        })
        .await;
        proxy.cut();
    }
    stop.store(true, Relaxed);
    for task in tasks {
        let ended = tokio::time::timeout(PATIENCE, task).await;
        assert!(
            ended.expect("every call ends, also one that was sent while its connection ended").unwrap() > 0
        );
    }
}
