//! What all stores have in common before the first lock: URLs, passwords, servers of another kind. The real program and the
//! library, against real servers.
//!
//! # Layout
//!
//! - `redaction`: no part of a password is printed anywhere, whatever the URL looks like.
//! - `rotation`: a password that is replaced while a client runs.
//! - `foreign`: a URL that leads to a server of another kind.
//! - `log`: what is logged meanwhile.

mod foreign;
mod log;
mod redaction;
mod rotation;
