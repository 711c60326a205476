//! Support for the tests: a manual clock, requests, and a service that responds at once.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use sluicegate::Limiter;
use sluicegate::backend::Backend;
use sluicegate::clock::ManualClock;
use sluicegate_tower::{RateLimitLayer, Respond};
use std::convert::Infallible;
use std::net::SocketAddr;
use tower::{Layer as _, Service, ServiceExt as _};

pub(crate) type Body = Full<Bytes>;

pub(crate) fn limiter(limits: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limits).clock(clock.clone()).build().unwrap(), clock)
}

/// A request that says where it comes from.
pub(crate) fn from(peer: &str) -> Request<Body> {
    let mut request = Request::new(Body::default());
    let peer = format!("[{peer}]:4711").parse().or_else(|_| format!("{peer}:4711").parse::<SocketAddr>());
    request.extensions_mut().insert(peer.unwrap());
    request
}

pub(crate) fn get() -> Request<Body> {
    from("203.0.113.9")
}

/// The same with a header field.
pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

/// Answers with the status that the request asks for in `x-status`, or 200.
pub(crate) async fn answer(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let status =
        request.headers().get("x-status").map_or(200, |text| text.to_str().unwrap().parse().unwrap());
    let mut response = Response::new(Body::from("hello"));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    Ok(response)
}

/// What the layer makes of a request.
pub(crate) async fn ask<L, R>(layer: &RateLimitLayer<L, R>, request: Request<Body>) -> Response<Body>
where
    L: Backend + Clone + 'static,
    R: Respond<Body> + Clone,
{
    let Ok(response) = layer.layer(tower::service_fn(answer)).oneshot(request).await;
    response
}

/// Returns how many of `count` equal requests are admitted.
pub(crate) async fn admitted<L, R>(
    layer: &RateLimitLayer<L, R>,
    count: usize,
    request: impl Fn() -> Request<Body>,
) -> usize
where
    L: Backend + Clone + 'static,
    R: Respond<Body> + Clone,
{
    let mut admitted = 0;
    for _ in 0..count {
        admitted += usize::from(ask(layer, request()).await.status() != 429);
    }
    admitted
}

/// Calls a service that is ready by now.
pub(crate) async fn call<S: Service<Request<Body>>>(
    service: &mut S,
    request: Request<Body>,
) -> Result<S::Response, S::Error> {
    service.ready().await?.call(request).await
}

pub(crate) fn field<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

pub(crate) async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}
