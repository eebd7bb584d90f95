//! The same words without `async`, for threads.
//!
//! Run it with `cargo run -p leasehold --example blocking`.
#![allow(clippy::print_stdout)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use leasehold::blocking;

fn main() -> leasehold::Result<()> {
    let client = blocking::connect("memory:")?;
    let counter = AtomicU32::new(0);

    // Read and write are two steps on purpose: without the lock, increments would be lost.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let guard = client.mutex("counter").lock().expect("the memory store answers");
                    let seen = counter.load(Ordering::Relaxed);
                    thread::yield_now();
                    counter.store(seen + 1, Ordering::Relaxed);
                    guard.release().expect("it is held");
                }
            });
        }
    });
    println!("8 threads counted to {}", counter.load(Ordering::Relaxed));
    assert_eq!(counter.load(Ordering::Relaxed), 800);

    // The owner is the thread, so a re-entrant claim of the same thread joins the first.
    let outer = client.mutex("counter").reentrant().lock()?;
    let inner = client.mutex("counter").reentrant().lock()?;
    assert_eq!((inner.hold_count(), inner.token()), (2, outer.token()));
    println!("entered twice, token {}", outer.token());
    inner.release()?;
    outer.release()?;

    client.close()
}
