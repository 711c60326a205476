//! In front of axum's router and its routes.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use sluicegate_tower::{RateLimitLayer, key};
use tower::ServiceExt as _;

use crate::support::limiter;

async fn status(app: &Router, path: &str) -> u16 {
    let request = Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_route_is_one_key_for_all_paths_that_match_it() {
    let (limiter, _clock) = limiter("sliding-log 2/60s");
    let app = Router::new()
        .route("/users/{id}", get(async || "user"))
        .route("/orders/{id}", get(async || "order"))
        .route_layer(RateLimitLayer::new(limiter).key(key::route()));
    assert_eq!([status(&app, "/users/1").await, status(&app, "/users/2").await], [200, 200]);
    assert_eq!(status(&app, "/users/3").await, 429);
    assert_eq!(
        status(&app, "/orders/3").await,
        200,
        "all routes of a layer share the limiter, and have keys of their own"
    );
    assert_eq!(status(&app, "/nowhere").await, 404, "what matches no route does not come here");
}

#[tokio::test]
async fn where_no_route_can_be_known_that_is_said() {
    let (limiter, _clock) = limiter("sliding-log 2/60s");
    let app = Router::new().fallback(async || "else").layer(RateLimitLayer::new(limiter).key(key::route()));
    assert_eq!(status(&app, "/nowhere").await, 500);
}

/// A layer of a router counts its fallback too: whoever looks for holes is counted.
#[tokio::test]
async fn what_is_not_found_is_counted() {
    let (limiter, _clock) = limiter("sliding-log 2/60s");
    let layer = RateLimitLayer::new(limiter).key(key::everyone());
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    assert_eq!(
        [status(&app, "/a").await, status(&app, "/").await, status(&app, "/b").await],
        [404, 200, 429]
    );
}
