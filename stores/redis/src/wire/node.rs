//! One server and all that goes to it: commands, pushes, and waiting for its replicas.

use std::sync::{Arc, OnceLock};

use leasehold_core::{Error, Kind, Result, Retry};
use tokio::sync::watch;

use super::Post;
use super::context::Context;
use super::link::Link;
use super::push::{self, Alarm, Push};
use super::replicas::Replicas;
use super::target::Target;

/// One server.
pub(crate) struct Node {
    /// What [`Pushes::resumed`](super::Pushes::resumed) says.
    pub(crate) number: u64,
    pub(crate) link: Arc<Link>,
    pub(crate) push: Push,
    replicas: OnceLock<Replicas>,
    tag: watch::Sender<Arc<str>>,
    target: Target,
    context: Arc<Context>,
}

impl Node {
    /// Connects in the background. `changed` is called when the node may no longer be what it was.
    pub(crate) fn start(
        number: u64,
        target: Target,
        tag: Arc<str>,
        context: Arc<Context>,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let link = Arc::new(Link::to(target.clone(), context.config.timeout()));
        let (tag, tags) = watch::channel(tag);
        let watched = Arc::downgrade(&link);
        let alarm = move |alarm| {
            if let Some(link) = watched.upgrade() {
                match alarm {
                    Alarm::Silent => link.doubt(),
                    Alarm::Changed => link.leave(),
                }
            }
            changed();
        };
        let place = push::Place { node: number, target: target.clone(), tag: tags, alarm: Arc::new(alarm) };
        let push = Push::to(place, context.clone());
        Node { number, link, push, replicas: OnceLock::new(), tag, target, context }
    }

    /// How scripts reach sessions on this node.
    pub(crate) fn post(&self) -> Post {
        Post { tag: self.tag.borrow().clone(), node: self.number }
    }

    /// The node's lowest slot is another now.
    pub(crate) fn set_tag(&self, tag: Arc<str>) {
        self.tag.send_if_modified(|old| {
            let changed = *old != tag;
            *old = tag;
            changed
        });
    }

    /// Waits until enough replicas have what this connection for commands was told.
    ///
    /// The connection has to be the same before and after, and to the server that was asked about its replicas: after a
    /// failover, the replicas of the new master know nothing of what was lost with the old one.
    pub(crate) async fn replicated(&self, generation: u64) -> Result<()> {
        let waited = self.replicas().wait().await?;
        match self.link.source() {
            Some(source) if source.generation == generation && source.is_same_server(&waited) => Ok(()),
            _ => Err(Error::new(Kind::Unavailable, "the master changed while its replicas were waited for")
                .advice("ask again: the command may have been lost")
                .retry(Retry::SameId)),
        }
    }

    fn replicas(&self) -> &Replicas {
        self.replicas
            .get_or_init(|| Replicas::of(self.target.clone(), self.tag.subscribe(), self.context.clone()))
    }

    /// Closes all its connections.
    pub(crate) fn close(&self) {
        self.link.close();
        self.push.close();
        self.target.close();
        if let Some(replicas) = self.replicas.get() {
            replicas.close();
        }
    }
}
