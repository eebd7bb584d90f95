//! What a store promises is so, and what it lacks is refused clearly.

use std::sync::Arc;
use std::time::Duration;

use leasehold_client::Client;
use leasehold_core::Kind;
use leasehold_core::traits::Death;
use leasehold_core::url::StoreUrl;

use super::take;
use crate::stage::Stage;
use crate::wait::soon;

/// The url that a store prints is one of those it says it has.
pub async fn the_url_is_one_of_the_stores_own(stage: Arc<Stage>) {
    let url = stage.observer().store_url();
    let scheme = StoreUrl::parse(&url).expect("a url").scheme;
    let own = stage.traits().urls.iter().any(|form| form.split(':').next() == Some(scheme.as_str()));
    assert!(own, "{url} is none of {:?}", stage.traits().urls);
    assert_eq!(stage.observer().traits(), stage.traits());
}

/// A table that is printed for people has no empty fields.
pub async fn every_promise_is_in_words(stage: Arc<Stage>) {
    let traits = stage.traits();
    for words in [traits.store, traits.reach, traits.tokens, traits.order, traits.wakeup, traits.breaks] {
        assert!(!words.trim().is_empty(), "{traits:#?}");
    }
    assert!(
        traits.shortest_lease < traits.longest_lease && traits.shortest_lease > Duration::ZERO,
        "{traits:#?}"
    );
    // A third of it must be enough for a renewal, and a lease that people write must be one that it can keep.
    assert!(
        traits.shortest_lease <= Duration::from_secs(5) && traits.longest_lease >= Duration::from_secs(3600)
    );
}

/// A lease below or above what the store can keep is refused, with the number that it can.
pub async fn a_lease_that_the_store_cant_keep_is_invalid(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let traits = stage.traits();
    let too_long = traits.longest_lease.checked_add(Duration::from_secs(1));
    for lease in [Some(Duration::ZERO), Some(traits.shortest_lease / 2), too_long].into_iter().flatten() {
        let refused = client.mutex("x").lease(lease).lock().await.err();
        let refused = refused.unwrap_or_else(|| panic!("a lease of {lease:?} was granted"));
        assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
        assert!(refused.advice_text().is_some(), "{refused} says what to do");
        let opened = Client::builder().default_lease(lease).open(stage.store()).await.err();
        assert_eq!(opened.map(|e| e.kind()), Some(Kind::Invalid), "a default lease of {lease:?}");
    }
    let longest = client.mutex("x").lease(traits.longest_lease).lock().await.expect("the longest lease");
    longest.release().await.expect("a release");
}

/// A store without shared claims says so; one with them keeps them.
pub async fn shared_claims_and_permits_work_or_are_refused(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    let claims = [
        soon("a read lock", client.rwlock("x").read()).await,
        soon("permits", client.semaphore("y", 2).acquire(1)).await,
    ];
    for claim in claims {
        match claim {
            Ok(guard) => {
                assert!(stage.traits().shared, "it says that it has no shared claims");
                guard.release().await.expect("a release");
            }
            Err(refused) => {
                assert!(!stage.traits().shared, "{refused}");
                assert_eq!(refused.kind(), Kind::Refused, "{refused}");
            }
        }
    }
}

/// Where a death is noticed at once, a kept lease has no end of its own; elsewhere it has one.
pub async fn a_kept_lease_has_an_end_only_where_death_is_noticed_by_it(stage: Arc<Stage>) {
    let guard = take(&stage.client("a").await, "x").await;
    match stage.traits().death {
        Death::AtOnce => assert_eq!((guard.remaining(), guard.deadline()), (None, None)),
        Death::LeaseEnd => assert!(guard.remaining().is_some() && guard.deadline().is_some()),
    }
    guard.release().await.expect("a release");
}

/// A client that was closed says so, whatever it is asked for.
pub async fn a_closed_client_refuses(stage: Arc<Stage>) {
    let client = stage.client("a").await;
    client.close().await.expect("a close");
    let errors = [
        client.mutex("x").lock().await.err(),
        client.mutex("x").try_lock().await.err(),
        client.rwlock("x").read().await.err(),
        client.semaphore("x", 1).acquire(1).await.err(),
        client.inspect("x").await.err(),
        client.force_release("x", None).await.err(),
    ];
    for (verb, error) in errors.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("verb {verb} worked on a closed client"));
        assert_eq!(error.kind(), Kind::Refused, "{error}");
    }
}
