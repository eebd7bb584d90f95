//! Servers that must prove who they are.
#![allow(missing_docs)] // Scenarios say by their names what they show.

use std::path::Path;

use leasehold_core::Kind;
use tokio::task::spawn_blocking;

use super::{Database, SqlServer, client, fresh_url, try_client};
use crate::servers::certificates::Certificates;
use crate::wait::eventually;

pub async fn an_encrypted_server_must_prove_who_it_is<D: Database>(db: D) {
    let server = spawn_blocking(move || db.start_with_tls()).await.expect("a server");
    let admin = fresh_url(&server);
    client(db, &admin).await.close().await.expect("a goodbye");
    server.add_user("bob");
    let plain = server.for_user(&admin, "bob");
    client(db, &plain).await.close().await.expect("a goodbye");
    server.insist_on_tls("bob");
    let with = |ca: &Path| format!("{plain}&sslmode=require&ca={}", ca.display());

    // Encrypted, and by the right authority.
    let ours = client(db, &with(&server.ca())).await;
    ours.mutex("x").lock().await.expect("a lock").release().await.expect("a release");
    ours.close().await.expect("a goodbye");
    // Not encrypted: the server refuses.
    eventually("a plain connection is refused", || async {
        match try_client(db, &plain).await {
            Err(error) if error.kind() == Kind::Refused => Ok(()),
            other => Err(other.map(drop)),
        }
    })
    .await;
    // By another authority, or one that is generally trusted: the client refuses.
    let others = Certificates::make();
    for strange in [with(&others.ca()), format!("{plain}&sslmode=require")] {
        let error = try_client(db, &strange).await.expect_err("a strange certificate");
        assert_eq!(error.kind(), Kind::Refused, "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    // A file that is none is bad input, and not a server that can't be reached.
    for bad in ["/no/such/file", "/dev/null"] {
        let error = try_client(db, &with(Path::new(bad))).await.expect_err("no authority");
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains(bad), "{error}");
    }
}
