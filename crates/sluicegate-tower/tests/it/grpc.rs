//! gRPC calls: a status in the header fields of a response without a body.

use crate::support::{Body, ask, field, get, limiter, text, with};
use http::{Request, Response};
use sluicegate_tower::{RateLimitLayer, key};
use std::convert::Infallible;
use tower::{Layer as _, ServiceExt as _};

fn call(content_type: &str) -> Request<Body> {
    let mut request = with(get(), "content-type", content_type);
    *request.uri_mut() = "/helloworld.Greeter/SayHello".parse().unwrap();
    with(request, "te", "trailers")
}

#[tokio::test]
async fn a_denied_call_is_resource_exhausted_with_pushback() {
    let (limiter, _clock) = limiter("sliding-log 1/1500ms");
    let layer = RateLimitLayer::new(limiter).name("greeter");
    for content_type in ["application/grpc", "application/grpc+proto", "application/grpc-web+proto"] {
        ask(&layer, call(content_type)).await;
        let response = ask(&layer, call(content_type)).await;
        assert_eq!(response.status(), 200, "the status of the call is gRPC's own");
        assert_eq!(field(&response, "content-type"), Some(content_type));
        assert_eq!(field(&response, "grpc-status"), Some("8"));
        assert_eq!(field(&response, "grpc-message"), Some("denied by `greeter`; retry in 2 s"));
        assert_eq!(field(&response, "grpc-retry-pushback-ms"), Some("1500"));
        assert_eq!(field(&response, "retry-after"), Some("2"));
        assert_eq!(field(&response, "ratelimit"), Some("\"greeter\";r=0;t=2"));
        assert_eq!(text(response).await, "");
    }
    assert_eq!(ask(&layer, with(get(), "content-type", "application/json")).await.status(), 429);
}

#[tokio::test]
async fn a_call_above_the_limit_must_not_be_retried() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let response = ask(&RateLimitLayer::new(limiter).cost(|_| 2), call("application/grpc")).await;
    assert_eq!(field(&response, "grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(field(&response, "retry-after"), None);
}

/// As tonic's: a body that can be empty but is not made out of bytes.
#[derive(Default)]
struct Opaque(bool);

#[tokio::test]
async fn bodies_not_made_from_bytes_work_with_grpc() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let layer = RateLimitLayer::new(limiter).key(key::everyone()).grpc();
    let service = layer
        .layer(tower::service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Opaque(true)))));
    let first = service.clone().oneshot(call("application/grpc")).await.unwrap();
    assert!(first.body().0 && field(&first, "ratelimit").is_some());
    let second = service.oneshot(call("application/grpc")).await.unwrap();
    assert!(!second.body().0);
    assert_eq!(
        (field(&second, "grpc-status"), field(&second, "content-type")),
        (Some("8"), Some("application/grpc"))
    );
}
