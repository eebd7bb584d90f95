//! Fetches what was left for a session: when somebody rings, and every now and then where nobody can.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::backend::Backend;
use crate::desk::Desk;

/// How soon mail is looked for after some came, where nobody rings. Doubles up to the limits below.
const SOON: Duration = Duration::from_millis(10);

/// How long a waiting entry may have mail before it is looked for, where nobody rings.
const WAITING: Duration = Duration::from_millis(100);

/// The same for a session that only holds, or watches.
const HOLDING: Duration = Duration::from_millis(500);

/// How often mail is looked for although nobody rang, where one would hear it.
const IN_CASE: Duration = Duration::from_secs(30);

/// How long a session waits before it tries again what failed.
const AFTER_TROUBLE: Duration = Duration::from_millis(200);

/// Looks for mail until the session is gone.
pub(crate) async fn deliver<B: Backend>(desk: Weak<Desk<B>>) {
    let mut pause = SOON;
    // Whether mail may have been taken out of the database without arriving here.
    let mut missed = false;
    loop {
        let Some((wake, longest)) = desk.upgrade().map(|desk| (desk.wake.clone(), longest_pause(&desk)))
        else {
            return;
        };
        pause = pause.min(longest);
        let stirred = timeout(pause, wake.mail.notified()).await.is_ok();
        let rung = wake.take_ring();
        let Some(desk) = desk.upgrade() else { return };
        if desk.is_closed() {
            return;
        }
        if wake.any_waits().is_none() && !wake.watchers.any() {
            // Nobody can be meant.
            pause = IN_CASE;
            continue;
        }
        let heard = is_heard(&desk);
        if heard && stirred && !rung {
            // Somebody came. Whoever has something for it rings.
            pause = IN_CASE;
            continue;
        }
        match desk.backend.mail(desk.me.id).await {
            Ok(letters) => {
                pause = match (heard, letters.is_empty()) {
                    (true, _) => IN_CASE,
                    (false, true) if !stirred => pause * 2,
                    (false, _) => SOON,
                };
                letters.iter().for_each(|text| wake.deliver(text));
                if std::mem::take(&mut missed) {
                    wake.all_ask();
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the mail can't be looked for");
                drop(desk);
                sleep(AFTER_TROUBLE).await;
                (pause, missed) = (SOON, true);
            }
        }
    }
}

/// Whether whoever has something for this session rings, and is heard.
fn is_heard<B: Backend>(desk: &Arc<Desk<B>>) -> bool {
    desk.bell.heard() && desk.wake.all_are_told(&desk.bell.wake())
}

fn longest_pause<B: Backend>(desk: &Arc<Desk<B>>) -> Duration {
    match desk.wake.any_waits() {
        _ if is_heard(desk) => IN_CASE,
        Some(true) => WAITING,
        Some(false) => HOLDING,
        None if desk.wake.watchers.any() => WAITING,
        None => IN_CASE,
    }
}
