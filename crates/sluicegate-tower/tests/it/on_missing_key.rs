//! Requests without a key.

use crate::support::{Body, admitted, ask, field, get, limiter, text, with};
use http::Request;
use sluicegate_tower::{OnMissingKey, RateLimitLayer, key};
use std::net::SocketAddr;

#[tokio::test]
async fn by_default_they_share_one_key() {
    let (limiter, _clock) = limiter("sliding-log 2/60s");
    let layer = RateLimitLayer::new(limiter).key(key::header("x-api-key"));
    assert_eq!(admitted(&layer, 5, get).await, 2);
    // An empty one is none, and several are not one.
    assert_eq!(admitted(&layer, 1, || with(get(), "x-api-key", " ")).await, 0);
    assert_eq!(admitted(&layer, 1, || with(with(get(), "x-api-key", "a"), "x-api-key", "b")).await, 0);
    assert_eq!(
        admitted(&layer, 5, || with(get(), "x-api-key", "acme")).await,
        2,
        "a request with a key is not affected"
    );
}

#[tokio::test]
async fn they_can_be_rejected_or_admitted() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let layer = RateLimitLayer::new(limiter.clone()).key(key::header("x-api-key"));
    let refused = ask(&layer.clone().on_missing_key(OnMissingKey::Reject), get()).await;
    assert_eq!((refused.status().as_u16(), field(&refused, "retry-after")), (400, None));
    let problem: serde_json::Value = serde_json::from_str(&text(refused).await).unwrap();
    assert_eq!((&problem["type"], &problem["status"]), (&"about:blank".into(), &400.into()));
    assert_eq!(admitted(&layer.on_missing_key(OnMissingKey::Admit), 9, get).await, 9);
    assert_eq!(limiter.stats().allowed, 0);
}

/// One limit for all clients together would look fine until there are many of them.
#[tokio::test]
async fn a_missing_peer_address_is_reported() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    for layer in [
        RateLimitLayer::new(limiter.clone()),
        RateLimitLayer::new(limiter.clone()).on_missing_key(OnMissingKey::Admit),
    ] {
        let response = ask(&layer, Request::new(Body::default())).await;
        assert_eq!(response.status(), 500);
        let words = text(response).await;
        assert!(words.contains("into_make_service_with_connect_info::<SocketAddr>()"), "{words}");
    }
}

#[tokio::test]
async fn axums_connect_info_and_its_mock_are_found() {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
    let peer: SocketAddr = "203.0.113.9:1".parse().unwrap();
    let (limiter, _clock) = limiter("sliding-log 2/60s");
    let layer = RateLimitLayer::new(limiter);
    let mut real = Request::new(Body::default());
    real.extensions_mut().insert(ConnectInfo(peer));
    let mut mock = Request::new(Body::default());
    mock.extensions_mut().insert(MockConnectInfo(peer));
    assert_eq!(ask(&layer, real).await.status(), 200);
    assert_eq!(ask(&layer, mock).await.status(), 200);
    assert_eq!(ask(&layer, get()).await.status(), 429, "all three are the same client");
}

#[tokio::test]
async fn a_pair_that_lacks_one_part_is_no_key() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let layer = RateLimitLayer::new(limiter)
        .key((key::header("x-api-key"), key::path()))
        .on_missing_key(OnMissingKey::Reject);
    assert_eq!(ask(&layer, get()).await.status(), 400);
    let to = |path: &str| {
        let mut request = with(get(), "x-api-key", "acme");
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    assert_eq!([ask(&layer, to("/a")).await.status(), ask(&layer, to("/b?x=1")).await.status()], [200, 200]);
    assert_eq!([ask(&layer, to("/a?y=2")).await.status(), ask(&layer, to("/b")).await.status()], [429, 429]);
}
