//! Redis servers that know nothing of each other, as Redlock wants them.

use std::ops::Index;
use std::thread;

use super::redis::{Redis, RedisOptions};

/// Some masters, each alone.
pub struct Independent {
    servers: Vec<Redis>,
}

impl Independent {
    /// Starts `n` servers.
    pub fn start(n: usize) -> Independent {
        Self::start_with(n, RedisOptions::new())
    }

    /// Starts `n` servers with the same options.
    pub fn start_with(n: usize, options: RedisOptions) -> Independent {
        Independent { servers: start_all((0..n).map(|_| options.clone()).collect()) }
    }

    /// All servers, in the order of the [`url`](Self::url).
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// `redlock://127.0.0.1:PORT,127.0.0.1:PORT,…`
    pub fn url(&self) -> String {
        format!("redlock://{}{}", self.servers[0].credentials(), addresses(&self.servers))
    }
}

impl Index<usize> for Independent {
    type Output = Redis;

    fn index(&self, at: usize) -> &Redis {
        &self.servers[at]
    }
}

/// Starts servers side by side.
pub(crate) fn start_all(options: Vec<RedisOptions>) -> Vec<Redis> {
    thread::scope(|scope| {
        let starting: Vec<_> =
            options.into_iter().map(|options| scope.spawn(|| Redis::start(options))).collect();
        starting.into_iter().map(|one| one.join().expect("a started server")).collect()
    })
}

/// `HOST:PORT,HOST:PORT,…`
pub(crate) fn addresses<'a>(servers: impl IntoIterator<Item = &'a Redis>) -> String {
    let addresses: Vec<String> = servers.into_iter().map(|server| server.address().to_string()).collect();
    addresses.join(",")
}
