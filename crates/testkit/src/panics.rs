//! Panics of the client's background thread: nobody joins what runs there, so a test has to look.

use std::sync::{Mutex, Once, PoisonError};

/// The name of the thread.
const THREAD: &str = "leasehold";

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on panics are seen. Tells how many there were before.
pub(crate) fn watch() -> usize {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some(THREAD) {
                SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            }
            usual(info);
        }));
    });
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).len()
}

/// Fails if the background thread has panicked since then.
pub(crate) fn check(before: usize) {
    let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner)[before..].join("\n");
    assert!(seen.is_empty(), "the background thread panicked: {seen}");
}
