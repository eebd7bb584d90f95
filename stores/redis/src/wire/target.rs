//! Which server a connection goes to: always the same one, or the one that is master now.

use std::fmt;
use std::sync::Arc;

use leasehold_core::Result;
use tokio::time::Instant;

use super::check::Expected;
use super::sentinel::Follower;
use crate::config::{Address, Server};

/// Where to connect.
#[derive(Clone)]
pub(crate) enum Target {
    /// To this server.
    Fixed(Arc<Server>, Expected),
    /// To the master that Sentinels name.
    Followed(Arc<Follower>),
}

impl Target {
    /// The server to connect to now.
    pub(crate) async fn find(&self, deadline: Instant) -> Result<Arc<Server>> {
        match self {
            Target::Fixed(server, _) => Ok(server.clone()),
            Target::Followed(follower) => follower.find(deadline).await,
        }
    }

    /// What was found can't be connected to, or is not what it should be.
    pub(crate) fn distrust(&self) {
        match self {
            Target::Fixed(..) => {}
            Target::Followed(follower) => follower.distrust(),
        }
    }

    /// Ends what is needed to find it.
    pub(crate) fn close(&self) {
        match self {
            Target::Fixed(..) => {}
            Target::Followed(follower) => follower.close(),
        }
    }

    /// What it has to be.
    pub(crate) fn expected(&self) -> Expected {
        match self {
            Target::Fixed(_, expected) => *expected,
            Target::Followed(_) => Expected::CurrentMaster,
        }
    }

    /// Whether it can lead to another server one day.
    pub(crate) fn follows(&self) -> bool {
        matches!(self, Target::Followed(_))
    }

    /// Waits until another server than this one is the one to connect to.
    pub(crate) async fn left(&self, address: &Address) {
        match self {
            Target::Fixed(..) => std::future::pending().await,
            Target::Followed(follower) => follower.left(address).await,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Fixed(server, _) => write!(f, "the server {}", server.address),
            Target::Followed(follower) => write!(f, "the master {:?}", follower.name()),
        }
    }
}
