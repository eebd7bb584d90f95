//! A store of its own for each test, with or without a proxy in front of it.

use std::time::Duration;

use leasehold_client::{Client, Guard, Mutex};
use leasehold_core::Result;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::servers::ZooKeeper;
use leasehold_testkit::wait::{eventually, soon};
use tokio::task::JoinHandle;

use super::common;

/// A part of a server that nobody else uses.
pub(crate) struct Scene {
    pub(crate) server: &'static ZooKeeper,
    pub(crate) root: String,
    /// The store as others see it.
    pub(crate) url: String,
    proxy: Option<Proxy>,
}

impl Scene {
    /// With sessions of this length.
    pub(crate) fn new(session: &str) -> Scene {
        let (server, root) = (common::server(), common::root());
        let url = format!("{}?root={root}&session={session}", server.url());
        Scene { server, root, url, proxy: None }
    }

    /// The same with a proxy; [`Scene::behind`] opens clients behind it.
    pub(crate) fn with_proxy(session: &str) -> Scene {
        let scene = Scene::new(session);
        let proxy = Proxy::to_zookeeper(scene.server.address());
        Scene { proxy: Some(proxy), ..scene }
    }

    pub(crate) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("a proxy")
    }

    pub(crate) async fn client(&self, label: &str) -> Client {
        connected(&self.url, label).await
    }

    /// The store as it is seen through the proxy.
    pub(crate) fn behind_url(&self) -> String {
        self.url.replacen(&self.server.port().to_string(), &self.proxy().port().to_string(), 1)
    }

    /// A client behind the proxy.
    pub(crate) async fn behind(&self, label: &str) -> Client {
        connected(&self.behind_url(), label).await
    }

    /// The nodes of a lock, without their path.
    pub(crate) fn nodes(&self, lock: &str) -> Vec<String> {
        let inside = format!("/{}/{lock}/", self.root);
        let nodes = self.server.nodes();
        nodes.iter().filter_map(|node| node.strip_prefix(&inside)).map(str::to_owned).collect()
    }

    /// The ZooKeeper session that a lock's only node belongs to.
    pub(crate) fn session_of(&self, lock: &str) -> i64 {
        let [node] = &self.nodes(lock)[..] else { panic!("one entry: {:?}", self.nodes(lock)) };
        let path = format!("/{}/{lock}/{node}", self.root);
        self.server.connect().expect("a connection").stat(&path).expect("an answer").expect("a node").owner
    }

    /// Waits until a lock has so many nodes.
    pub(crate) async fn until(&self, lock: &str, count: usize) {
        eventually(&format!("{lock} has {count} nodes"), || async {
            let nodes = self.nodes(lock);
            if nodes.len() == count { Ok(()) } else { Err(nodes) }
        })
        .await;
    }

    /// Waits until nothing of this test is left at the server: no node, no container.
    pub(crate) async fn is_clean(&self) {
        let root = format!("/{}", self.root);
        eventually("nothing is left", || async {
            let left: Vec<String> =
                self.server.nodes().into_iter().filter(|node| node.starts_with(&root)).collect();
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }
}

/// A client of the store at a URL. One that is patient with trouble.
pub(crate) async fn open(url: &str, label: &str) -> Result<Client> {
    Client::builder().label(label).retry_for(Duration::from_secs(30)).open(common::open(url)?).await
}

/// As [`open`], until it works: where sessions are short, so is the time to connect.
async fn connected(url: &str, label: &str) -> Client {
    eventually("a client", || open(url, label)).await
}

/// Waits for a mutex in a task of its own.
pub(crate) fn waiter(mutex: &Mutex) -> JoinHandle<Result<Guard>> {
    let mutex = mutex.clone();
    tokio::spawn(async move { mutex.lock().await })
}

pub(crate) async fn granted(waiter: JoinHandle<Result<Guard>>) -> Guard {
    soon("a grant", waiter).await.expect("a task").expect("a lock")
}

pub(crate) async fn lock(client: &Client, name: &str) -> Guard {
    soon("a lock", client.mutex(name).lock()).await.expect("a lock")
}
