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
async fn a_route_is_one_key_for_all_its_paths() {
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
async fn an_unknown_route_is_reported() {
    let (limiter, _clock) = limiter("sliding-log 2/60s");
    let app = Router::new().fallback(async || "else").layer(RateLimitLayer::new(limiter).key(key::route()));
    assert_eq!(status(&app, "/nowhere").await, 500);
}

/// A router's layer counts its fallback too, and so clients that probe for paths.
#[tokio::test]
async fn requests_without_a_route_are_counted() {
    let (limiter, _clock) = limiter("sliding-log 2/60s");
    let layer = RateLimitLayer::new(limiter).key(key::everyone());
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    assert_eq!(
        [status(&app, "/a").await, status(&app, "/").await, status(&app, "/b").await],
        [404, 200, 429]
    );
}
