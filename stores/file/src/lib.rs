//! The file store: locks between the processes of one host, with no server.
//!
//! A lock is a small file that holds its queue. It is changed only under a short kernel lock, by the same pure rule that
//! every store runs. A session is a FIFO: others write wake-ups into it, and the kernel tells them when its reader dies.
//! So a crash is noticed at once, and nobody polls.
//!
//! A tokio runtime with I/O and time enabled is needed: sessions read their FIFO in a task.
//!
//! # Who may use a folder
//!
//! A folder that this store creates belongs to one user (mode 0700). To share locks between users, make the folder yourself
//! with the mode you want: the files inside take their permissions from it.
//!
//! # What can't be helped
//!
//! - FIFOs and file locks end at the host: a folder on a network filesystem is refused where it can be seen. A FUSE mount
//!   (sshfs, virtiofs, …) looks the same whether it is local or not, so it is not refused: don't put the folder on one
//!   that several machines share.
//! - Deleting files of a folder that is in use takes locks away from their holders. They notice with their next renewal.
//! - Writing to the FIFO of a process that just died raises `SIGPIPE`. Rust programs ignore that signal from the start; a
//!   program that restores its default action (or is not written in Rust) must ignore it itself.
//! - A child process that was forked without `exec` keeps the session of its parent alive for as long as it runs.
//!
//! # Layout
//!
//! - [`config`]: `file:` and `file:PATH` URLs.
//! - [`traits`]: what this store promises.
//! - [`store`]: [`FileStore`], the store.
//! - [`session`]: one client's presence: what each call asks of a queue.
//! - [`state`]: where a queue lives, and how one event is applied to it atomically.
//! - [`wake`]: how sessions are told: their FIFOs, the messages, what a message causes.
//! - `event`: one event on one queue from its lock to its notes, dead sessions included.
//! - `chain`: who watches whom, so that each death is noticed by the one that must act. Pure.
//! - `liveness`: watching other sessions.
//! - `folder`: the tree of files, its checks, and what a new boot voids.
//! - `filename`: from a lock's name to a file's. Pure.
//! - `format`: the bytes of a queue file. Pure.
//! - `message`: the bytes of a wake-up. Pure.
//! - `bytes`: the little that the last two share.
//! - `floor`: the token below which no queue of this folder starts.
//! - `sweep`: removing what nobody has used for long.
//! - `listing`: which names there are.
//! - `doctor`: what the store can find out about itself.
//! - `watchers`: telling those who watch what happens, and their stream.
#![forbid(unsafe_code)]

mod bytes;
mod chain;
pub mod config;
mod doctor;
mod event;
mod filename;
mod floor;
mod folder;
mod format;
mod listing;
mod liveness;
mod message;
pub mod session;
pub mod state;
pub mod store;
mod sweep;
pub mod traits;
pub mod wake;
mod watchers;

pub use config::open;
pub use store::FileStore;
pub use traits::TRAITS;
