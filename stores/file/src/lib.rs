//! The file store: locks between the processes of one host, with no server.
//!
//! A lock is a small file that holds its queue. It is changed only under a short kernel lock, by the same pure rule that
//! every store runs. A session is a FIFO: others write wake-ups into it, and the kernel tells them when its reader dies.
//! So a crash is noticed at once, and nobody polls.
//!
//! A tokio runtime with I/O and time enabled is needed: sessions read their FIFO in a task.
//!
//! # The default folder
//!
//! `file:` without a path is one folder for all processes of a user on a host. It does not depend on `HOME`, `TMPDIR`,
//! `XDG_RUNTIME_DIR` or anything else in the environment, it survives a logout, and no one else can write to it:
//!
//! | user | folder |
//! | --- | --- |
//! | root | `/var/lib/leasehold` |
//! | system users (1 to 999), systemd's dynamic users, `nobody` | `/dev/shm/leasehold-UID`; empty after a restart of the host |
//! | all others | `~/.local/state/leasehold/host-…`, with the home of the user database |
//!
//! If it can't be used (no home, a home on a network filesystem, a home that is hidden from a service, an
//! `/etc/machine-id` that is missing or can't be read), that is an error, and never another folder. Processes of one
//! user still have different folders if they see different filesystems: containers, services with a `/dev/shm` or
//! `/var/lib` of their own, what sees the home with another `/etc/machine-id`, and whatever runs while a home that is
//! mounted at login is not. [`default_folder`] tells where it is. The folder of a system user is deleted when the
//! last service of that user with `RemoveIPC=yes` stops (`DynamicUser=` implies it), also while other processes of
//! that user hold locks there.
//!
//! # Who may use a folder
//!
//! A folder that this store creates belongs to one user (mode 0700). Others may use a folder that was made for it:
//! - for a group: `install -d -m 2770 -g GROUP /srv/locks`;
//! - for every user: `install -d -m 1777 /srv/locks`, by root.
//!
//! Its owner has to use it once before the others (`leasehold --store file:/srv/locks ls`). Whoever can write to a
//! folder can take every lock in it away, or forge one; but nothing outside of the folder can be reached through it.
//! What is in it is opened through directory handles and no link is followed, the folder itself must not be one
//! (folders above it may), permissions are set only on what was just created where only we can write, and a sweep
//! removes only FIFOs and regular files that this store made, by their names and contents.
//!
//! A folder that another user could have prepared is refused: one that belongs to another user and is not shared with a group
//! that we are in, and one that every user can write to without the sticky bit.
//!
//! # What can't be helped
//!
//! - FIFOs and file locks end at the host: a folder on a network filesystem is refused where it can be seen. A FUSE mount
//!   (sshfs, virtiofs, …) looks the same whether it is local or not, so it is not refused: don't put the folder on one
//!   that several machines share.
//! - In a folder that several users share, a kernel with `fs.protected_hardlinks=0` lets them link each other's files into it.
//!   Such a file is refused when it is opened, but they may race that check: then a file of another user can get a new time of
//!   change, or a byte `+` behind its end. Distributions set it to 1; the doctor tells.
//! - A full filesystem takes no new lock, and may not let one go. A release is tried again for as long as its client lives.
//! - Deleting files of a folder that is in use takes locks away from their holders. They notice with their next renewal.
//! - Writing to the FIFO of a process that just died raises `SIGPIPE`. Rust programs ignore that signal from the start; a
//!   program that restores its default action (or is not written in Rust) must ignore it itself.
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
//! - `default_folder`: where `file:` without a path is.
//! - `folder`: the tree of files, and whether it may be used.
//! - `dir`: an open directory, and the one way to open what is in it.
//! - `filename`: from a lock's name to a file's. Pure.
//! - `format`: the bytes of a queue file. Pure.
//! - `message`: the bytes of a wake-up. Pure.
//! - `bytes`: the little that the last two share.
//! - `floor`: the token below which no queue of this folder starts.
//! - `sweep`: removing what nobody has used for long.
//! - `listing`: which names there are.
//! - `doctor`: what the store can find out about itself.
//! - `watchers`: telling those who watch what happens, and their stream.
#![deny(unsafe_code)]

mod bytes;
mod chain;
pub mod config;
mod default_folder;
mod dir;
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
pub use default_folder::{DefaultFolder, default_folder};
pub use store::FileStore;
pub use traits::TRAITS;
