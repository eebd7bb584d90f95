//! Streams of what people want to see: the locks in use, and what happens to them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use leasehold_background::Background;
use leasehold_core::store::Pending;
use leasehold_core::view::{Event, Events, Snapshot};
use leasehold_core::{Name, Result};

use crate::client::{Client, stripped};

/// How many locks one page brings.
const PAGE: usize = 256;

/// The locks in use, in the order of their names. A [`Stream`]; [`next`](Listing::next) serves those who have no stream
/// combinators at hand. After an error it ends.
pub struct Listing {
    client: Client,
    prefix: String,
    page: VecDeque<Snapshot>,
    after: Option<Name>,
    asking: Option<Pending<Vec<Snapshot>>>,
    ended: bool,
}

impl Listing {
    pub(crate) fn new(client: Client, prefix: String) -> Self {
        let prefix = format!("{}{prefix}", client.engine.about.namespace);
        Listing { client, prefix, page: VecDeque::new(), after: None, asking: None, ended: false }
    }

    /// The next lock. `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Snapshot>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    fn ask(&mut self) -> Pending<Vec<Snapshot>> {
        let (client, prefix, after) = (self.client.clone(), self.prefix.clone(), self.after.clone());
        Box::pin(async move { client.ask(|s| s.list(prefix.clone(), after.clone(), PAGE)).await })
    }
}

impl Stream for Listing {
    type Item = Result<Snapshot>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(snapshot) = self.page.pop_front() {
                return Poll::Ready(Some(Ok(self.client.strip(snapshot))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let mut asking = match self.asking.take() {
                Some(asking) => asking,
                None => self.ask(),
            };
            match asking.as_mut().poll(cx) {
                Poll::Pending => {
                    self.asking = Some(asking);
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(Ok(page)) => {
                    self.ended = page.len() < PAGE;
                    self.after = page.last().map(|s| s.name.clone());
                    self.page = page.into();
                }
            }
        }
    }
}

/// What happens to locks. A [`Stream`]; [`next`](Watch::next) serves those who have no stream combinators at hand.
pub struct Watch {
    /// `None` once it has ended.
    events: Option<Events>,
    background: Background,
    namespace: usize,
    closed: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Watch {
    pub(crate) fn new(events: Events, client: &Client) -> Self {
        let closed: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(client.engine.closed());
        let (namespace, background) = (client.engine.about.namespace.len(), client.engine.background);
        Watch { events: Some(events), background, namespace, closed: Some(closed) }
    }

    /// The next event. An error tells that events were missed; the stream goes on after it. `None` when the client is
    /// [closed](Client::close), and in a forked child.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Watch {
    /// This is a forked child: the events are the parent's, and what they touch may be locked for ever.
    fn forget(&mut self) {
        std::mem::forget((self.events.take(), self.closed.take()));
    }
}

impl Stream for Watch {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.background.is_alive() {
            self.forget();
        }
        let is_open = self.closed.as_mut().is_some_and(|closed| closed.as_mut().poll(cx).is_pending());
        if !is_open {
            self.closed = None;
            return Poll::Ready(None);
        }
        let namespace = self.namespace;
        let strip = |event: Event| Event { name: stripped(&event.name, namespace), ..event };
        let Some(events) = &mut self.events else { return Poll::Ready(None) };
        events.as_mut().poll_next(cx).map(|event| event.map(|event| event.map(strip)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.background.is_alive() {
            self.forget();
        }
    }
}
