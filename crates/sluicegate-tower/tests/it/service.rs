//! What a tower service owes those around it.

use crate::support::{Body, admitted, answer, ask, call, field, from, get, limiter, text, with};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use sluicegate::{Key as _, Limiter};
use sluicegate_tower::{EventKind, RateLimitLayer, key};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{Layer as _, Service, ServiceExt as _};

#[tokio::test]
async fn clones_and_services_of_one_layer_share_the_limit() {
    let (limiter, _clock) = limiter("sliding-log 3/60s");
    let layer = RateLimitLayer::new(limiter.clone());
    let mut one = layer.layer(tower::service_fn(answer));
    let (mut clone, mut other) = (one.clone(), layer.clone().layer(tower::service_fn(answer)));
    assert_eq!(call(&mut one, get()).await.unwrap().status(), 200);
    assert_eq!(call(&mut clone, get()).await.unwrap().status(), 200);
    assert_eq!(call(&mut other, get()).await.unwrap().status(), 200);
    assert_eq!(call(&mut one, get()).await.unwrap().status(), 429);
    assert_eq!(call(&mut one, from("203.0.113.10")).await.unwrap().status(), 200, "another address");
    assert!(!limiter.check("203.0.113.9".parse::<std::net::IpAddr>().unwrap()).allowed());
}

#[tokio::test]
async fn a_denial_does_not_reach_the_service_and_costs_nothing() {
    let (limiter, clock) = limiter("token-bucket 1/s burst=2");
    let layer = RateLimitLayer::new(limiter);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let mut service = layer.layer(tower::service_fn(move |request| {
        counted.fetch_add(1, Ordering::Relaxed);
        answer(request)
    }));
    for _ in 0..50 {
        call(&mut service, get()).await.unwrap();
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    clock.advance(Duration::from_secs(1));
    call(&mut service, get()).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

/// Obeying `Retry-After` to the second is admitted; coming one tick before the exact moment is not.
#[tokio::test]
async fn a_client_that_obeys_retry_after_is_admitted() {
    for limits in
        ["token-bucket 3/s burst=1", "sliding-log 5/60s", "fixed-window 7/1500ms", "min-interval 1ms"]
    {
        let (limiter, clock) = limiter(limits);
        let layer = RateLimitLayer::new(limiter);
        let mut random = fastrand::Rng::with_seed(20);
        let mut denied = 0;
        for _ in 0..2000 {
            let response = ask(&layer, get()).await;
            if response.status() == 200 {
                clock.advance(Duration::from_micros(random.u64(..2000)));
                continue;
            }
            denied += 1;
            let wait: u64 = field(&response, "retry-after").unwrap().parse().unwrap();
            assert!(wait > 0, "{limits}");
            clock.advance(Duration::from_secs(wait));
            assert_eq!(ask(&layer, get()).await.status(), 200, "{limits}");
        }
        assert!(denied > 10, "{limits}: {denied} denials");
    }
}

#[tokio::test]
async fn a_request_above_the_limit_has_no_retry_after() {
    let (limiter, _clock) = limiter("sliding-log 5/60s");
    let layer = RateLimitLayer::new(limiter).cost(|_| 6);
    let response = ask(&layer, get()).await;
    assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (429, None));
    assert!(text(response).await.contains("retrying will not help"));
}

#[tokio::test]
async fn the_cost_is_charged() {
    let (limiter, _clock) = limiter("sliding-log 10/60s");
    let layer = RateLimitLayer::new(limiter).cost(|head| if head.method == "POST" { 4 } else { 1 });
    let post = || {
        let mut request = get();
        *request.method_mut() = http::Method::POST;
        request
    };
    assert_eq!(admitted(&layer, 3, post).await, 2);
    assert_eq!(admitted(&layer, 3, get).await, 2);
}

#[tokio::test]
async fn skipped_requests_are_neither_limited_nor_reported() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let layer = RateLimitLayer::new(limiter.clone())
        .skip(|head| head.uri.path() == "/health")
        .observer(|seen| assert_eq!(seen.head.uri.path(), "/"));
    let health = || {
        let mut request = Request::new(Body::default());
        *request.uri_mut() = "/health".parse().unwrap();
        request
    };
    for _ in 0..5 {
        let response = ask(&layer, health()).await;
        assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (200, None));
    }
    assert_eq!(limiter.stats().allowed, 0);
    assert_eq!(admitted(&layer, 2, get).await, 1);
}

#[tokio::test]
async fn an_observer_sees_the_key_and_the_decision() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&seen);
    let layer = RateLimitLayer::new(limiter).key(key::header("x-api-key")).observer(move |seen| {
        let key = String::from_utf8(seen.key.unwrap().to_bytes().into_owned()).unwrap();
        let kind = match seen.kind {
            EventKind::Allowed(_) => "allowed",
            EventKind::Denied(_) => "denied",
            _ => "else",
        };
        book.lock().unwrap().push(format!("{key} {kind}"));
    });
    assert_eq!(admitted(&layer, 2, || with(get(), "x-api-key", "acme")).await, 1);
    assert_eq!(admitted(&layer, 1, || with(get(), "x-api-key", "other")).await, 1);
    assert_eq!(*seen.lock().unwrap(), ["acme allowed", "acme denied", "other allowed"]);
}

#[tokio::test]
async fn a_closure_may_write_the_response_and_fields_are_added() {
    let (limiter, _clock) = limiter("sliding-log 1/60s");
    let layer = RateLimitLayer::new(limiter).respond_with(|denial| {
        let mut response = Response::new(Full::from(format!("slow down, {}", denial.head().uri.path())));
        *response.status_mut() = denial.status();
        response
    });
    ask(&layer, get()).await;
    let response = ask(&layer, get()).await;
    assert_eq!(response.status(), 429);
    assert_eq!(field(&response, "retry-after"), Some("60"));
    assert_eq!(field(&response, "ratelimit"), Some("\"default\";r=0;t=60"));
    assert_eq!(text(response).await, "slow down, /");
}

/// A service that must be ready before it is called, and whose clones are not ready.
struct Careful {
    ready: bool,
    door: Arc<AtomicBool>,
}

impl Clone for Careful {
    fn clone(&self) -> Careful {
        Careful { ready: false, door: Arc::clone(&self.door) }
    }
}

impl Service<Request<Body>> for Careful {
    type Response = Response<Body>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response<Body>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        if !self.door.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been ready");
        std::future::ready(Err("broken"))
    }
}

#[tokio::test]
async fn the_inner_service_is_readied_and_its_error_passed_on() {
    let (limiter, _clock) = limiter("sliding-log 100/60s");
    let door = Arc::new(AtomicBool::new(false));
    let mut service = RateLimitLayer::new(limiter).layer(Careful { ready: false, door: Arc::clone(&door) });
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert!(Service::<Request<Body>>::poll_ready(&mut service, &mut context).is_pending());
    door.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(call(&mut service, get()).await.unwrap_err(), "broken");
    }
}

/// A body in pieces, which cannot be cloned or made out of bytes.
struct Pieces(VecDeque<&'static str>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(Bytes::from(piece)))))
    }
}

#[tokio::test]
async fn bodies_go_through_untouched() {
    let (limiter, _clock) = limiter("sliding-log 100/60s");
    let echo = |request: Request<Pieces>| async { Ok::<_, Infallible>(Response::new(request.into_body())) };
    // The writer of a denial must be given.
    let layer = RateLimitLayer::new(limiter).respond_with(|_| Response::new(Pieces(VecDeque::new())));
    let request = get().map(|_| Pieces(["one", "two", "three"].into()));
    let mut body = layer.layer(tower::service_fn(echo)).oneshot(request).await.unwrap().into_body();
    let mut pieces = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        pieces.push(frame.into_data().unwrap());
    }
    assert_eq!(pieces, ["one", "two", "three"], "not even joined");
}

#[tokio::test]
async fn two_layers_report_both_policies() {
    let (hourly, _clock) = limiter("sliding-log 100/h");
    let (minutely, _clock) = limiter("sliding-log 5/60s");
    let service = RateLimitLayer::new(minutely).name("minute").layer(tower::service_fn(answer));
    let service = RateLimitLayer::new(hourly).name("hour").layer(service);
    let response = service.oneshot(get()).await.unwrap();
    let fields: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(fields, ["\"minute\";r=4;t=60", "\"hour\";r=99;t=3600"]);
}

/// Sharing needs no more than `Clone` of the service behind, and the layer can be debugged.
#[test]
fn the_types_are_what_servers_need() {
    fn is_service<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn is_future<T: Send + 'static>(_: &T) {}
    let layer = RateLimitLayer::new(Limiter::new("sliding-log 5/60s").unwrap());
    let mut service = layer.layer(tower::service_fn(|_: Request<Body>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::default())))
    }));
    is_service(&service);
    is_future(&service.call(get()));
    assert!(format!("{layer:?}").contains("sliding-log 5/min"), "{layer:?}");
}
