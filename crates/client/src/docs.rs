//! What a program can see of its locks without changing its code.
//!
//! Recorders and subscribers are called on the user's threads and on the background thread, which renews all locks of
//! the process. They must not block there. A panic of one costs only what it was to record or log, where the client
//! calls it; stores that log about their connections don't look after panics.
//!
//! # Metrics
//!
//! Through the [`metrics`](https://docs.rs/metrics) facade: install any exporter in the program, or none (then they cost
//! next to nothing).
//!
//! | name | kind | labels | what it counts |
//! | --- | --- | --- | --- |
//! | `leasehold_acquired_total` | counter | | locks acquired |
//! | `leasehold_busy_total` | counter | | tries and timed waits that ended without the lock |
//! | `leasehold_wait_seconds` | histogram | | from the claim to the lock; 0 if it was free and the store answered on the spot |
//! | `leasehold_hold_seconds` | histogram | | from the lock to its release |
//! | `leasehold_handoffs_total` | counter | `to` = `local`, `store` | releases that passed the lock on inside the client, or gave it back to the store |
//! | `leasehold_renewals_total` | counter | `result` = `ok`, `error` | leases and places in queues renewed |
//! | `leasehold_lost_total` | counter | | held locks that were lost |
//!
//! # Tracing
//!
//! A claim that has to wait does so inside the span `wait` (level `DEBUG`, fields `name` and `want`). Events, all of the
//! target `leasehold` (the stores write more about their connections at level `DEBUG`, with their modules as targets):
//!
//! | level | what |
//! | --- | --- |
//! | `WARN` | an outage of the store began (error, how many locks are held, how long they are certain); one ended that cost locks (how long it lasted, how many); held locks were lost without one (name or number, why); a lock can't be given back and is tried again (name, error, until when), and others get no line until none is left. Redis: the server lets our user subscribe to no channel, so waiting takes longer (error). Redlock: a node lost its data and is not counted for a while (node) |
//! | `INFO` | an outage ended that cost nothing; no lock is left that can't be given back (after what time, how many were given up). Redis: the Sentinels named another master. Redlock: a new set is open (number of nodes); a node that lost its data is counted again (node) |
//! | `DEBUG` | a lock was acquired (name, token, time waited); a renewal failed, or a release, and is tried again; a held lock was lost, in an outage or not |
//! | `TRACE` | a try found the lock busy; a guard was given back and where it went |
