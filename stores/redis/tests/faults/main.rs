//! What becomes of locks when connections, messages, servers and data are lost, on real servers.

#[path = "../common/mod.rs"]
mod common;

mod load;
mod messages;
mod readers;
mod scene;
mod table;
mod vandals;
mod wiped;
