//! Waiting for conditions, with a deadline: no test sleeps and hopes.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// How long anything may take that should happen soon. Far longer than it takes on a loaded machine: only a hang is
/// found by it, and no scenario passes or fails by speed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long something is watched that should *not* happen.
pub const A_WHILE: Duration = Duration::from_millis(60);

/// Waits until `check` gives a value. Panics with `what` and the last look if it takes too long.
pub async fn eventually<T, E, F, Fut>(what: &str, mut check: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: Debug,
{
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(200);
    loop {
        match check().await {
            Ok(found) => return found,
            Err(seen) if Instant::now() > deadline => {
                panic!("it never came true that {what}; seen last: {seen:#?}")
            }
            Err(_) => sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Awaits something that should finish soon.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("it takes too long: {what}"),
    }
}

/// Watches something for a while that should not finish.
pub async fn not_yet<F: Future + Unpin>(what: &str, future: &mut F) {
    assert!(timeout(A_WHILE, future).await.is_err(), "it happened, and should not have: {what}");
}
