//! A guard around services, and over real sockets.

use crate::sockets::{Server, until};
use crate::support::{Body, answer, field, get, text, with};
use axum::Router;
use axum::routing::get as route;
use http::{Method, Request, Response, StatusCode};
use sluicegate_guard::breaker::State;
use sluicegate_guard::{Guard, ManualClock, Outcome};
use sluicegate_tower::{GuardLayer, Reason, Rejection};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tower::{Layer as _, Service, ServiceExt as _};

async fn ask(layer: &GuardLayer, request: Request<Body>) -> Response<Body> {
    let Ok(response) = layer.layer(tower::service_fn(answer)).oneshot(request).await;
    response
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn five_hundreds_open_the_breaker_and_then_the_answer_is_503() {
    let guard = Guard::builder("g")
        .breaker("breaker 100%/2calls min=2")
        .clock(ManualClock::default())
        .build()
        .unwrap();
    let layer = GuardLayer::new(guard.clone());
    assert_eq!(ask(&layer, with(get(), "x-status", "404")).await.status(), 404);
    assert_eq!(guard.breaker().unwrap().stats().totals.failures, 0);
    for _ in 0..2 {
        assert_eq!(ask(&layer.clone(), with(get(), "x-status", "500")).await.status(), 500);
    }
    assert_eq!(guard.breaker().unwrap().state(), State::Open, "clones of a layer share the breaker");
    let rejected = ask(&layer, get()).await;
    assert_eq!((rejected.status().as_u16(), field(&rejected, "retry-after")), (503, Some("5")));
    assert_eq!(field(&rejected, "content-type"), Some("application/problem+json"));
    let body: serde_json::Value = serde_json::from_str(&text(rejected).await).unwrap();
    assert_eq!(
        (&body["status"], &body["detail"]),
        (&503.into(), &"temporarily unavailable; retry in 5 s".into())
    );
    let grpc = ask(&layer, with(get(), "content-type", "application/grpc")).await;
    assert_eq!((grpc.status().as_u16(), field(&grpc, "grpc-status")), (200, Some("14")));
}

#[tokio::test]
async fn a_classifier_decides_what_is_a_failure() {
    let guard = Guard::builder("g").breaker("breaker 100%/1calls min=1").build().unwrap();
    let layer = GuardLayer::new(guard.clone()).classify(|status, _| match status.as_u16() {
        429 => Outcome::Failure,
        501 => Outcome::Ignored,
        _ => Outcome::Success,
    });
    for status in ["500", "501"] {
        assert_eq!(ask(&layer, with(get(), "x-status", status)).await.status().as_str(), status);
    }
    assert_eq!(guard.breaker().unwrap().state(), State::Closed);
    assert_eq!(ask(&layer, with(get(), "x-status", "429")).await.status(), 429);
    assert_eq!(ask(&layer, get()).await.status(), 503);
}

#[tokio::test]
async fn a_timeout_is_504() {
    let guard = Guard::builder("g").timeout(Duration::from_millis(5)).build().unwrap();
    let hangs =
        tower::service_fn(async |_: Request<Body>| pending::<Result<Response<Body>, Infallible>>().await);
    let Ok(response) = GuardLayer::new(guard).layer(hangs).oneshot(get()).await;
    assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (504, None));
}

/// Many services are ready, and none holds a permit.
#[tokio::test]
async fn being_ready_takes_no_permit() {
    let guard = Guard::builder("g").bulkhead("bulkhead 1").build().unwrap();
    let layer = GuardLayer::new(guard.clone());
    let mut services: Vec<_> = (0..3).map(|_| layer.layer(tower::service_fn(answer))).collect();
    for service in &mut services {
        let _ = service.ready().await;
    }
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
    for service in &mut services {
        // One after another each holds the permit, and a future that was never polled holds none.
        let unpolled = service.call(get());
        assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
        let Ok(response) = unpolled.await;
        assert_eq!(response.status(), 200);
        let _ = service.ready().await;
    }
    let permit = guard.bulkhead().unwrap().try_acquire();
    let rejected = ask(&layer, get()).await;
    assert_eq!((rejected.status().as_u16(), field(&rejected, "retry-after")), (503, Some("1")));
    drop(permit);
}

/// Only requests that can be copied are retried, and each retry waits until the service is ready.
#[tokio::test]
async fn only_requests_that_can_be_copied_are_retried() {
    let (calls, clock) = (Arc::new(AtomicUsize::new(0)), ManualClock::default());
    let fails_twice = {
        let calls = Arc::clone(&calls);
        tower::service_fn(move |_: Request<Body>| {
            let status = if calls.fetch_add(1, Ordering::SeqCst) < 2 { 500 } else { 200 };
            async move { Ok::<_, Infallible>(Response::builder().status(status).body(Body::default()).unwrap()) }
        })
    };
    let fails_twice = tower::limit::ConcurrencyLimit::new(fails_twice, 1);
    let builder = Guard::builder("g").retry("retry 3 backoff=0s").clock(clock);
    let layer = GuardLayer::new(builder.build().unwrap());
    let Ok(response) = layer.layer(fails_twice.clone()).oneshot(get()).await;
    assert_eq!(
        (response.status().as_u16(), calls.swap(0, Ordering::SeqCst)),
        (500, 1),
        "no copies, no retries"
    );
    let layer = layer
        .retry_with(|request: &Request<Body>| (request.method() == Method::GET).then(|| request.clone()));
    let mut order = get();
    *order.method_mut() = Method::POST;
    let Ok(response) = layer.layer(fails_twice.clone()).oneshot(order).await;
    assert_eq!(
        (response.status().as_u16(), calls.swap(0, Ordering::SeqCst)),
        (500, 1),
        "an order is made once"
    );
    let Ok(response) = layer.layer(fails_twice).oneshot(get()).await;
    assert_eq!((response.status().as_u16(), calls.load(Ordering::SeqCst)), (200, 3));
}

#[tokio::test]
async fn errors_of_the_service_are_passed_on() {
    let guard = Guard::builder("g").breaker("breaker 100%/1calls min=1").build().unwrap();
    let fails = tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("connection reset"));
    let layer = GuardLayer::new(guard);
    assert_eq!(layer.layer(fails).oneshot(get()).await.unwrap_err(), "connection reset");
    assert_eq!(layer.layer(fails).oneshot(get()).await.unwrap().status(), 503);
}

/// Dropping a response releases its permit, and a dropped probe does not keep the breaker
/// half-open.
#[test]
fn a_dropped_response_releases_everything() {
    let clock = ManualClock::default();
    let builder = Guard::builder("g").breaker("breaker 100%/1calls min=1").bulkhead("bulkhead 1");
    let guard = builder.clock(clock.clone()).build().unwrap();
    let layer = GuardLayer::new(guard.clone());
    let hangs =
        tower::service_fn(async |_: Request<Body>| pending::<Result<Response<Body>, Infallible>>().await);
    let mut begun = Box::pin(layer.layer(hangs).oneshot(get()));
    assert!(poll(begun.as_mut()).is_pending());
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 1);
    drop(begun);
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
    guard.breaker().unwrap().try_acquire().admitted().unwrap().failure();
    clock.advance(Duration::from_secs(5));
    let mut probe = Box::pin(layer.layer(hangs).oneshot(get()));
    assert!(poll(probe.as_mut()).is_pending());
    let status = |layer: &GuardLayer| {
        let mut asked = Box::pin(ask(layer, get()));
        let Poll::Ready(response) = poll(asked.as_mut()) else { panic!("it answers at once") };
        response.status().as_u16()
    };
    assert_eq!(status(&layer), 503, "one probe at a time");
    drop(probe);
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
    assert_eq!(status(&layer), 503, "a probe that gave no answer has failed");
    clock.advance(Duration::from_secs(5));
    assert_eq!(status(&layer), 200, "and does not keep the next one from being made");
    assert_eq!(guard.breaker().unwrap().state(), State::Closed);
}

/// Waiters in the bulkhead's queue are served in order, and a dropped one leaves it.
#[test]
fn waiters_are_served_and_dropped_ones_leave_the_queue() {
    let guard = Guard::builder("g").bulkhead("bulkhead 1 queue=2 wait=60s").build().unwrap();
    let layer = GuardLayer::new(guard.clone());
    let permit = guard.bulkhead().unwrap().try_acquire();
    let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(ask(&layer, get()))).collect();
    assert!(waiting.iter_mut().all(|one| poll(one.as_mut()).is_pending()));
    let mut third = Box::pin(ask(&layer, get()));
    assert!(
        matches!(poll(third.as_mut()), Poll::Ready(rejected) if rejected.status() == 503),
        "the queue is full"
    );
    drop(waiting.remove(0));
    drop(permit);
    assert!(matches!(poll(waiting[0].as_mut()), Poll::Ready(response) if response.status() == 200));
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
}

#[tokio::test]
async fn a_fallback_replaces_failures_denials_and_timeouts() {
    let builder = Guard::builder("g").breaker("breaker 100%/2calls min=2 open=1h");
    let guard = builder.timeout(Duration::from_millis(5)).build().unwrap();
    let layer = GuardLayer::new(guard.clone()).fallback(|why| {
        let reason = match why.reason() {
            Reason::Failed(Some(status)) => format!("{status} for {}", why.head().uri.path()),
            other => format!("{other:?}"),
        };
        Response::new(Body::from(reason))
    });
    let fails = layer.layer(tower::service_fn(answer));
    assert_eq!(text(fails.clone().oneshot(get()).await.unwrap()).await, "hello");
    let Ok(instead) = fails.clone().oneshot(with(get(), "x-status", "500")).await;
    assert_eq!((instead.status().as_u16(), &*text(instead).await), (200, "500 Internal Server Error for /"));
    let hangs =
        tower::service_fn(async |_: Request<Body>| pending::<Result<Response<Body>, Infallible>>().await);
    assert_eq!(text(layer.layer(hangs).oneshot(get()).await.unwrap()).await, "TimedOut");
    assert_eq!(guard.breaker().unwrap().state(), State::Open, "the fallback changes nothing about that");
    let Ok(instead) = fails.oneshot(get()).await;
    assert_eq!(field(&instead, "retry-after"), None, "there is nothing to come back for");
    assert!(text(instead).await.starts_with("GuardDenied(Breaker"));
    let error = tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("connection reset"));
    let layer = GuardLayer::new(Guard::builder("g").build().unwrap());
    let layer = layer.fallback(|why| Response::new(Body::from(why.status().to_string())));
    assert_eq!(text(layer.layer(error).oneshot(get()).await.unwrap()).await, "502 Bad Gateway");
}

/// Fallbacks of a layer are the guard's: counted, reported and bounded. Beyond that the failure is
/// returned.
#[tokio::test]
async fn fallbacks_are_counted_and_bounded() {
    let builder = Guard::builder("g").breaker("breaker 100%/3calls min=3 open=1h");
    let guard = builder.max_fallbacks(1).build().unwrap();
    let layer = GuardLayer::new(guard.clone()).fallback(|_| Response::new(Body::from("[]")));
    let service = layer.layer(tower::service_fn(answer));
    let status = async |request| {
        let Ok(response) = service.clone().oneshot(request).await;
        (response.status().as_u16(), field(&response, "retry-after").is_some())
    };
    let fails = || with(get(), "x-status", "500");
    assert_eq!(status(fails()).await, (200, false));
    let fallbacks = || (guard.stats().fell_back, guard.stats().fallbacks_denied);
    assert_eq!(fallbacks(), (1, 0));
    let permit = guard.try_fallback();
    assert!(permit.is_some());
    assert_eq!(status(fails()).await, (500, false), "the answer itself");
    let error = tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("connection reset"));
    assert_eq!(layer.layer(error).oneshot(get()).await.unwrap_err(), "connection reset");
    assert_eq!(guard.breaker().unwrap().state(), State::Open);
    assert_eq!(status(get()).await, (503, true), "as without a fallback");
    assert_eq!(fallbacks(), (2, 3));
    drop(permit);
    assert_eq!((status(get()).await, fallbacks()), ((200, false), (3, 3)));
}

/// In either order of the methods: a denial without a permit for a fallback uses the configured
/// responses.
#[tokio::test]
async fn a_fallback_is_kept_with_any_response_writer() {
    let open = || {
        let guard =
            Guard::builder("g").breaker("breaker 100%/1calls min=1").max_fallbacks(1).build().unwrap();
        guard.breaker().unwrap().try_acquire().admitted().unwrap().failure();
        guard
    };
    let instead = |_: &Rejection<'_>| Response::new(Body::from("[]"));
    let teapot = |_: &Rejection<'_>| {
        Response::builder().status(StatusCode::IM_A_TEAPOT).body(Body::default()).unwrap()
    };
    let guard = open();
    for layer in [
        GuardLayer::new(guard.clone()).fallback(instead).respond_with(teapot),
        GuardLayer::new(guard.clone()).respond_with(teapot).fallback(instead),
    ] {
        let service = layer.layer(tower::service_fn(answer));
        let Ok(fell_back) = service.clone().oneshot(get()).await;
        assert_eq!(fell_back.status(), 200);
        let _place = guard.try_fallback();
        let Ok(rejected) = service.oneshot(get()).await;
        assert_eq!((rejected.status().as_u16(), field(&rejected, "retry-after")), (418, Some("5")));
    }
    let guard = open();
    let layer = GuardLayer::new(guard.clone()).fallback(|_| Response::new(Opaque(true))).grpc();
    let service = layer
        .layer(tower::service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Opaque(false)))));
    let Ok(fell_back) = service.clone().oneshot(get()).await;
    assert!(fell_back.body().0);
    let _place = guard.try_fallback();
    let Ok(rejected) = service.oneshot(get()).await;
    assert_eq!((rejected.body().0, field(&rejected, "grpc-status")), (false, Some("14")));
}

/// A gRPC call that fails has the status 200; what it says in its header fields counts.
#[tokio::test]
async fn a_grpc_status_in_the_header_fields_is_a_failure() {
    for (status, state) in
        [("0", State::Closed), ("5", State::Closed), ("14", State::Open), ("13", State::Open)]
    {
        let guard = Guard::builder("g").breaker("breaker 100%/1calls min=1").build().unwrap();
        let layer = GuardLayer::new(guard.clone()).grpc();
        let service = layer.layer(tower::service_fn(async |_: Request<Body>| {
            Ok::<_, Infallible>(Response::builder().header("grpc-status", status).body(Opaque(true)).unwrap())
        }));
        let Ok(served) = service.clone().oneshot(get()).await;
        assert!(served.body().0 && guard.breaker().unwrap().state() == state, "{status}");
        if state == State::Open {
            let Ok(rejected) = service.oneshot(get()).await;
            assert_eq!((rejected.body().0, field(&rejected, "grpc-status")), (false, Some("14")));
            assert_eq!(field(&rejected, "content-type"), Some("application/grpc"));
        }
    }
}

/// As tonic's: a body that can be empty but is not made out of bytes.
#[derive(Default)]
struct Opaque(bool);

/// A copy that is declined once is not made later: the present failure is the response.
#[tokio::test]
async fn without_a_copy_there_is_no_retry() {
    let calls = AtomicUsize::new(0);
    let copies = AtomicUsize::new(0);
    let fails = tower::service_fn(|request: Request<Body>| {
        calls.fetch_add(1, Ordering::SeqCst);
        answer(request)
    });
    let guard = Guard::builder("g").retry("retry 5 backoff=0s").build().unwrap();
    let layer = GuardLayer::new(guard).retry_with(|request: &Request<Body>| {
        (copies.fetch_add(1, Ordering::SeqCst) == 0).then(|| request.clone())
    });
    let Ok(response) = layer.layer(fails).oneshot(with(get(), "x-status", "502")).await;
    assert_eq!((response.status().as_u16(), calls.load(Ordering::SeqCst)), (502, 2));
}

/// Over real sockets, in front of axum's router: connections share the breaker, and a probe closes
/// it.
#[tokio::test]
async fn connections_share_the_breaker_and_a_probe_closes_it() {
    let clock = ManualClock::default();
    let breaker = "breaker 50%/10s min=4 open=3s";
    let guard = Guard::builder("g").breaker(breaker).clock(clock.clone()).build().unwrap();
    let healthy = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&healthy);
    let handler =
        async move || if state.load(Ordering::SeqCst) { Ok("hello") } else { Err(StatusCode::BAD_GATEWAY) };
    let app = Router::new().route("/", route(handler)).layer(GuardLayer::new(guard.clone()));
    let server = Server::start(app).await;
    for _ in 0..4 {
        assert_eq!(server.get("/").await.0, 502);
    }
    let (status, rejected) = server.get("/").await;
    assert_eq!(status, 503);
    assert!(
        rejected.contains("\r\nretry-after: 3\r\n") && rejected.contains(r#""status":503"#),
        "{rejected}"
    );
    clock.advance(Duration::from_secs(3));
    assert_eq!(server.get("/").await.0, 502, "the probe fails");
    assert_eq!(server.get("/").await.0, 503);
    healthy.store(true, Ordering::SeqCst);
    clock.advance(Duration::from_secs(3));
    assert_eq!([server.get("/").await.0, server.get("/").await.0], [200, 200]);
    assert_eq!(guard.breaker().unwrap().state(), State::Closed);
}

#[tokio::test]
async fn a_slow_handler_is_504_over_a_socket_and_is_dropped() {
    let guard = Guard::builder("g").bulkhead("bulkhead 1").timeout(Duration::from_millis(5)).build().unwrap();
    let (is_there, held) = (Arc::new(()), Arc::new(Mutex::new(None)));
    *held.lock().unwrap() = Some(Arc::clone(&is_there));
    let handler = async move || {
        let _is_there = held.lock().unwrap().take();
        pending::<&str>().await
    };
    let app = Router::new().route("/slow", route(handler)).layer(GuardLayer::new(guard.clone()));
    let server = Server::start(app).await;
    let (status, answer) = server.get("/slow").await;
    assert!(status == 504 && answer.contains("the service did not respond in time"), "{answer}");
    assert_eq!(Arc::strong_count(&is_there), 1, "the handler is gone");
    assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
    assert_eq!(guard.stats().timed_out, 1);
}

/// A client that disconnects frees its permit.
#[tokio::test]
async fn a_client_that_disconnects_frees_its_permit() {
    let guard = Guard::builder("g").bulkhead("bulkhead 1").build().unwrap();
    let app = Router::new()
        .route("/slow", route(async || pending::<&str>().await))
        .route("/", route(async || "hello"))
        .layer(GuardLayer::new(guard.clone()));
    let server = Server::start(app).await;
    let in_use = || guard.bulkhead().unwrap().stats().in_use;
    let slow = server.send("/slow").await;
    until(|| in_use() == 1).await;
    assert_eq!(server.get("/").await.0, 503);
    drop(slow);
    until(|| in_use() == 0).await;
    assert_eq!(server.get("/").await.0, 200);
}
