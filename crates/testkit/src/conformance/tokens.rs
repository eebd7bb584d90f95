//! Tokens rise on every kind of grant (scenario 12).

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::{Budget, Client, Guard, Owner};
use leasehold_core::{Fence, Order, Token};
use tokio::task::JoinSet;

use super::{FIXED, granted, take, waiter};
use crate::stage::Stage;
use crate::wait::soon;

/// Checks that tokens rise.
struct Rising(Token);

impl Rising {
    fn see(&mut self, how: &str, guard: &Guard) {
        let token = guard.token();
        assert!(token > self.0, "{how}: token {token} is not above {}", self.0);
        assert!(token.get() < Token::END, "{how}: token {token} does not fit a BIGINT");
        self.0 = token;
    }
}

async fn by_itself(client: &Client, rising: &mut Rising, shared: bool) {
    let (mutex, rw) = (client.mutex("x"), client.rwlock("x"));
    let ways = ["try", "lock", "within", "barge", "spin", "fixed", "write"];
    let shared: &[&str] = if shared { &["read", "permits"] } else { &[] };
    for how in ways.iter().chain(shared).copied() {
        let guard = match how {
            "try" => mutex.try_lock().await.expect("a try").expect("a free lock"),
            "lock" => mutex.lock().await.expect("a lock"),
            "within" => {
                mutex.lock_within(Duration::from_secs(9)).await.expect("a lock").expect("a free lock")
            }
            "barge" => mutex.clone().order(Order::Barge).lock().await.expect("a lock"),
            "spin" => mutex.clone().order(Order::spin()).lock().await.expect("a lock"),
            "fixed" => mutex.clone().lease(Duration::from_secs(9)).lock().await.expect("a lock"),
            "read" => rw.read().await.expect("a read lock"),
            "write" => rw.write().await.expect("a write lock").into_guard(),
            _ => client.semaphore("x", 2).acquire(1).await.expect("permits"),
        };
        rising.see(how, &guard);
        guard.release().await.expect("a release");
    }
}

/// Scenario 12.
pub async fn tokens_rise_on_every_kind_of_grant(stage: Arc<Stage>) {
    let mut rising = Rising(Token(0));
    // A budget that no slow store uses up: the hand-over below has to be a local one.
    let budget = Budget { handovers: 1024, time: Duration::from_secs(60) };
    let local = stage.open(Client::builder().label("local").local_queue(budget)).await;
    let direct = stage.direct("direct").await;
    for client in [&local, &direct, &local] {
        by_itself(client, &mut rising, stage.traits().shared).await;
    }
    let guard = take(&local, "x").await;
    rising.see("a free lock", &guard);
    let (own, other) = (waiter(&local.mutex("x")), waiter(&direct.mutex("x")));
    stage.waiters("x", 1).await;
    guard.release().await.expect("a release");
    let guard = granted(own).await;
    rising.see("a local hand-over", &guard);
    guard.release().await.expect("a release");
    let guard = granted(other).await;
    rising.see("a hand-over by the store", &guard);
    drop(guard);
    let guard = soon("a dropped lock", local.mutex("x").lock()).await.expect("a lock");
    rising.see("a dropped guard before", &guard);
    guard.release().await.expect("a release");
}

/// Scenario 12: expiry, force release and the end of a client don't make them go back.
pub async fn tokens_rise_after_every_kind_of_loss(stage: Arc<Stage>) {
    let mut rising = Rising(Token(0));
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let expiring = a.mutex("x").lease(FIXED).lock().await.expect("a lock");
    rising.see("a fixed lease", &expiring);
    let guard = soon("an expired lock", b.mutex("x").lock()).await.expect("a lock");
    rising.see("after expiry", &guard);
    stage.observer().force_release("x", None).await.expect("a force release");
    let guard_again = soon("a revoked lock", a.mutex("x").lock()).await.expect("a lock");
    rising.see("after a force release", &guard_again);
    a.close().await.expect("a close");
    let last = soon("a closed client's lock", b.mutex("x").lock()).await.expect("a lock");
    rising.see("after a close", &last);
    last.release().await.expect("a release");
    drop((expiring, guard, guard_again));
}

/// Local hand-overs have tokens of their own, also when the block that a grant reserved is used up.
pub async fn tokens_rise_through_thousands_of_local_hand_overs(stage: Arc<Stage>) {
    let client = stage.client("one").await;
    let tokens = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut all = JoinSet::new();
    for _ in 0..8 {
        let (mutex, tokens) = (client.mutex("x"), tokens.clone());
        all.spawn(async move {
            for _ in 0..500 {
                let guard = mutex.lock().await.expect("a lock");
                tokens.lock().expect("no panic").push(guard.token());
                guard.release().await.expect("a release");
            }
        });
    }
    while let Some(done) = soon("hand-overs", all.join_next()).await {
        done.expect("a task");
    }
    let tokens = tokens.lock().expect("no panic");
    assert_eq!(tokens.len(), 4000);
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens rise in the order of grants");
}

/// A re-entry is the same hold, so it has the same token.
pub async fn a_re_entry_has_the_same_token(stage: Arc<Stage>) {
    let mutex = stage.client("a").await.mutex("x").owner(Owner::new()).reentrant();
    let outer = mutex.lock().await.expect("a lock");
    let inner = mutex.lock().await.expect("a re-entry");
    assert_eq!(inner.token(), outer.token());
    inner.release().await.expect("a release");
    outer.release().await.expect("a release");
}

/// What tokens are for: a holder that was paused past the end of its lease can do no harm.
pub async fn a_fence_refuses_a_late_holder(stage: Arc<Stage>) {
    let (a, b, fence) = (stage.client("a").await, stage.client("b").await, Fence::new());
    let late = a.mutex("x").lease(FIXED).lock().await.expect("a lock");
    fence.check(late.token()).expect("the first holder passes");
    let next = soon("an expired lock", b.mutex("x").lock()).await.expect("a lock");
    fence.check(next.token()).expect("the next holder passes");
    let refused = fence.check(late.token()).expect_err("the late write is refused");
    assert_eq!(refused.highest, next.token());
    next.release().await.expect("a release");
}

/// A writer that comes after readers has a higher token than all of them.
pub async fn a_writer_has_a_higher_token_than_the_readers_before_it(stage: Arc<Stage>) {
    let (a, b) = (stage.client("a").await.rwlock("x"), stage.client("b").await.rwlock("x"));
    let mut readers = Vec::new();
    for lock in [&a, &a, &b, &a] {
        readers.push(lock.read().await.expect("a read lock"));
    }
    let highest = readers.iter().map(|guard| guard.token()).max().expect("readers");
    for guard in readers {
        guard.release().await.expect("a release");
    }
    let guard = soon("a write lock", b.write()).await.expect("a write lock");
    assert!(guard.token() > highest);
    guard.into_guard().release().await.expect("a release");
}
