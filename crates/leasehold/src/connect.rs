//! From a URL to a client.

use std::sync::Arc;

use leasehold_client::{Client, ClientBuilder};
use leasehold_core::store::Store;
use leasehold_core::url::{StoreUrl, redact};
use leasehold_core::{Error, Kind, Result};

use crate::stores::KNOWN;

/// Connects to the store at `url`, with the usual options. An empty URL means the embedded default, as `file:` does: the
/// files of this user on this host, the same in every environment.
///
/// Works in any async runtime. What the client does in the background runs on a thread of Leasehold's own, one for all clients
/// of the process.
pub async fn connect(url: &str) -> Result<Client> {
    connect_with(Client::builder(), url).await
}

/// Connects to the store at `url`, with options.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
/// let options = leasehold::Client::builder().label("billing 7").default_lease(Duration::from_secs(10));
/// let client = leasehold::connect_with(options, "memory:").await?;
/// # drop(client); Ok(()) }
/// ```
pub async fn connect_with(options: ClientBuilder, url: &str) -> Result<Client> {
    options.open(open_store(url).await?).await
}

/// Opens the store at `url` without a client on it.
pub async fn open_store(url: &str) -> Result<Arc<dyn Store>> {
    let url = if url.trim().is_empty() { "file:" } else { url };
    let parsed = StoreUrl::parse(url)?;
    let known =
        KNOWN.iter().find(|known| known.schemes.contains(&parsed.scheme.as_str())).ok_or_else(|| {
            let schemes: Vec<String> =
                KNOWN.iter().flat_map(|k| k.schemes).map(|s| format!("{s}:")).collect();
            let what = format!("no store is known for the URL {}", redact(url));
            let known = match schemes.as_slice() {
                [] => "this program was compiled without any store".to_owned(),
                schemes => format!("the stores of this program are {}", schemes.join(", ")),
            };
            Error::new(Kind::Invalid, what).advice(known)
        })?;
    (known.open)(parsed).await
}
