//! Shadow mode: decides and counts, and denies nothing.

use crate::support::{Body, ask, field, get, limiter};
use http::Request;
use sluicegate_tower::{EventKind, RateLimitLayer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test]
async fn a_shadow_reports_denials_and_denies_nothing() {
    let (limiter, _clock) = limiter("sliding-log 3/60s");
    let would = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&would);
    let layer = RateLimitLayer::new(limiter.clone()).shadow().observer(move |seen| match seen.kind {
        EventKind::WouldDeny(decision) => {
            assert!(!decision.allowed());
            count.fetch_add(1, Ordering::Relaxed);
        }
        EventKind::Denied(_) => panic!("a shadow denies nothing"),
        _ => {}
    });
    for _ in 0..10 {
        let response = ask(&layer, get()).await;
        assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (200, None));
        assert_eq!(field(&response, "retry-after"), None);
    }
    assert_eq!(would.load(Ordering::Relaxed), 7);
    assert_eq!((limiter.stats().allowed, limiter.stats().denied), (3, 7));
}

/// A pacer would delay requests; a shadow does not. The test ends only because of that: the clock
/// stands still.
#[tokio::test]
async fn a_shadow_delays_no_request() {
    let (limiter, _clock) = limiter("pacer 1/h queue=9");
    let layer = RateLimitLayer::new(limiter.clone()).shadow();
    for _ in 0..4 {
        assert_eq!(ask(&layer, get()).await.status(), 200);
    }
    assert_eq!(limiter.stats().allowed, 4);
}

#[tokio::test]
async fn a_shadow_admits_even_if_misconfigured() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let seen = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&seen);
    let layer = RateLimitLayer::new(limiter).shadow().observer(move |seen| {
        assert!(matches!(seen.kind, EventKind::Misconfigured(_)));
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(ask(&layer, Request::new(Body::default())).await.status(), 200);
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_shadow_can_send_the_fields() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let layer = RateLimitLayer::new(limiter).shadow().headers(true);
    ask(&layer, get()).await;
    let response = ask(&layer, get()).await;
    assert_eq!(
        (response.status().as_u16(), field(&response, "ratelimit")),
        (200, Some("\"default\";r=0;t=60"))
    );
}
