//! The real program, driven from outside on stores of its own: mostly `file:`.
//!
//! # Layout
//!
//! - `house`: a store in a temporary folder, and the program run against it.
//! - `usage`: bad input and the exit codes that it ends with.
//! - `running`: what the command gets and what its end means; times.
//! - `waiting`: busy, waiting, signals while waiting, order.
//! - `group`: the process group: signals while running, what is left behind, a killed runner.
//! - `guard`: the command does not outlive its lock, whoever is stopped or killed.
//! - `jobs`: job control as an interactive shell does it: pipelines, a pager, Ctrl-Z, `fg`.
//! - `loss`: the lock is taken away, or its lease ends.
//! - `outages`: how long the link to a store may be down.
//! - `patience`: a store that is not available yet, or not any more; limits.
//! - `requests`: somebody asks for the lock back.
//! - `nested`: a run inside a run.
//! - `processes`: what /proc tells.
//! - `views`: `ls`, `show`, `watch`, `release`, `stores`, `completions`, `man`; closed pipes; colours.
//! - `doctor`: what is found about a store, and what that means for the exit code.
//! - `sql`: the tables of SQL stores made by hand, and what is found about real databases.
//! - `zookeeper`: leases that are as long as a session.
//! - `terminal`: what differs on a terminal.
//! - `default_store`: the folder of a user who names no store, in all environments.
//! - `crowd`: many at once: exact counts, kills, mixed claims.

mod crowd;
mod default_store;
mod doctor;
mod group;
mod guard;
mod house;
mod jobs;
mod loss;
mod nested;
mod outages;
mod patience;
mod processes;
mod requests;
mod running;
mod sql;
mod terminal;
mod usage;
mod views;
mod waiting;
mod zookeeper;
