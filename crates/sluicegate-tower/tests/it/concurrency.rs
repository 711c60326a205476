//! A limit on the requests in flight per key: in front of test services, and over real sockets.

use crate::sockets::{Server, read, until};
use crate::support::{Body, answer, field, from, get, text, with};
use axum::Router;
use axum::body::Body as AxumBody;
use axum::routing::get as route;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use sluicegate::clock::ManualClock;
use sluicegate::semaphore::Semaphore;
use sluicegate_tower::{ConcurrencyLayer, HoldUntil, LeasedBody, OnMissingKey, Respond, key};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tower::{Layer as _, Service as _, ServiceExt as _};

type Held = Response<LeasedBody<Body>>;

fn semaphore(limit: &str) -> Semaphore {
    Semaphore::new(limit).unwrap()
}

async fn ask<R: Respond<Body> + Clone>(
    layer: &ConcurrencyLayer<Semaphore, R>,
    request: Request<Body>,
) -> Held {
    let Ok(response) = layer.layer(tower::service_fn(answer)).oneshot(request).await;
    response
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Leases that are out, under all keys.
fn held(semaphore: &Semaphore) -> usize {
    semaphore.stats().leases
}

async fn whole(response: Held) -> String {
    text(response.map(|body| {
        assert!(body.holds_lease());
        body.get_ref().clone()
    }))
    .await
}

#[tokio::test]
async fn one_too_many_is_429_with_problem_details() {
    let limiter = semaphore("concurrency 2");
    let layer = ConcurrencyLayer::new(limiter.clone()).name("exports");
    let (one, two) = (ask(&layer, get()).await, ask(&layer.clone(), get()).await);
    assert_eq!([one.status().as_u16(), two.status().as_u16()], [200, 200]);
    assert_eq!(held(&limiter), 2, "the responses hold their leases");
    let rejected = ask(&layer, get()).await;
    assert_eq!(
        (rejected.status().as_u16(), field(&rejected, "retry-after")),
        (429, None),
        "the wait is unknown"
    );
    assert_eq!(field(&rejected, "content-type"), Some("application/problem+json"));
    assert!(!rejected.body().holds_lease());
    let problem = rejected.into_body().collect().await.unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&problem).unwrap();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&problem["status"], &problem["violated-policies"][0]), (&429.into(), &"exports".into()));
    assert_eq!(
        problem["detail"],
        "too many requests in flight for `exports`; retry when one of them has ended"
    );
    assert_eq!(ask(&layer, from("198.51.100.7")).await.status(), 200, "another key has permits of its own");
    assert_eq!(whole(one).await, "hello");
    assert_eq!(ask(&layer, get()).await.status(), 200);
    drop(two);
    assert_eq!(held(&limiter), 0);
}

#[tokio::test]
async fn with_a_ttl_there_is_a_retry_after() {
    let clock = ManualClock::default();
    let limiter = Semaphore::builder("concurrency 1 ttl=30s").clock(clock.clone()).build().unwrap();
    let layer = ConcurrencyLayer::new(limiter);
    let _held = ask(&layer, get()).await;
    clock.advance(Duration::from_secs(10));
    let rejected = ask(&layer, get()).await;
    assert_eq!((rejected.status().as_u16(), field(&rejected, "retry-after")), (429, Some("20")));
    let call = ask(&layer, with(get(), "content-type", "application/grpc")).await;
    assert_eq!((call.status().as_u16(), field(&call, "grpc-status")), (200, Some("8")));
    assert_eq!(field(&call, "grpc-retry-pushback-ms"), Some("20000"));
    clock.advance(Duration::from_secs(20));
    assert_eq!(ask(&layer, get()).await.status(), 200, "it has expired, though its response is still there");
}

#[tokio::test]
async fn unavailable_and_a_full_semaphore_are_503() {
    let layer = ConcurrencyLayer::new(semaphore("concurrency 1")).key(key::everyone()).unavailable();
    let _held = ask(&layer, get()).await;
    let rejected = ask(&layer, from("198.51.100.7")).await;
    assert_eq!((rejected.status().as_u16(), field(&rejected, "retry-after")), (503, Some("1")));
    let call = ask(&layer, with(get(), "content-type", "application/grpc")).await;
    assert_eq!(field(&call, "grpc-status"), Some("14"));
    let full = Semaphore::builder("concurrency 1").max_leases(1).build().unwrap();
    let layer = ConcurrencyLayer::new(full);
    let _held = ask(&layer, get()).await;
    assert_eq!(ask(&layer, from("198.51.100.7")).await.status(), 503);
    assert_eq!(ask(&layer, get()).await.status(), 429);
}

#[tokio::test]
async fn cost_skip_and_missing_keys_work() {
    let limiter = semaphore("concurrency 3");
    let layer = ConcurrencyLayer::new(limiter.clone())
        .key(key::header("x-customer"))
        .cost(|head| if head.headers.contains_key("x-big") { 2 } else { 1 })
        .skip(|head| head.uri.path() == "/health");
    let acme = || with(get(), "x-customer", "acme");
    let held_by = [ask(&layer, with(acme(), "x-big", "")).await, ask(&layer, acme()).await];
    assert!(held_by.iter().all(|response| response.status() == 200));
    assert_eq!(ask(&layer, acme()).await.status(), 429);
    let mut health = acme();
    *health.uri_mut() = "/health".parse().unwrap();
    let healthy = ask(&layer, health).await;
    assert!(healthy.status() == 200 && !healthy.body().holds_lease());
    assert!(ask(&layer, get()).await.body().holds_lease(), "those without a key share one");
    assert_eq!(ask(&layer.clone().on_missing_key(OnMissingKey::Reject), get()).await.status(), 400);
    assert!(!ask(&layer.clone().on_missing_key(OnMissingKey::Admit), get()).await.body().holds_lease());
    let dear = ask(&layer.clone().cost(|_| 4), with(get(), "x-customer", "sally")).await;
    assert_eq!((dear.status().as_u16(), field(&dear, "retry-after")), (429, None));
    let words = dear.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&words).contains("retrying will not help"));
    let unknown = ask(&ConcurrencyLayer::new(limiter), Request::new(Body::default())).await;
    assert_eq!(
        unknown.status(),
        500,
        "an address that the server did not provide is a mistake in the set-up"
    );
}

#[tokio::test]
async fn a_closure_writes_the_response() {
    let layer = ConcurrencyLayer::new(semaphore("concurrency 1")).respond_with(|denial| {
        Response::builder().status(420).body(Body::from(denial.head().uri.path().to_owned())).unwrap()
    });
    let _held = ask(&layer, get()).await;
    assert_eq!(ask(&layer, get()).await.status(), 420);
}

/// Many services are ready, and none holds a permit.
#[tokio::test]
async fn being_ready_takes_no_permit() {
    let limiter = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(limiter.clone());
    let mut services: Vec<_> = (0..3).map(|_| layer.layer(tower::service_fn(answer))).collect();
    for service in &mut services {
        let _ = service.ready().await;
    }
    assert_eq!(held(&limiter), 0);
    for service in &mut services {
        assert_eq!(service.call(get()).await.unwrap().status(), 200);
    }
}

#[test]
fn a_dropped_response_future_releases_its_lease() {
    let limiter = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(limiter.clone());
    let hangs =
        tower::service_fn(async |_: Request<Body>| pending::<Result<Response<Body>, Infallible>>().await);
    let mut service = layer.layer(hangs);
    let mut begun = Box::pin(service.call(get()));
    assert!(poll(begun.as_mut()).is_pending() && held(&limiter) == 1);
    drop(begun);
    assert_eq!(held(&limiter), 0);
}

#[tokio::test]
async fn an_error_of_the_service_releases_the_lease() {
    let limiter = semaphore("concurrency 1");
    let fails = tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("connection reset"));
    let failed = ConcurrencyLayer::new(limiter.clone()).layer(fails).oneshot(get()).await;
    assert_eq!((failed.unwrap_err(), held(&limiter)), ("connection reset", 0));
}

#[test]
fn requests_wait_in_order_and_leave_when_dropped() {
    let limiter = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(limiter.clone()).wait(Duration::from_secs(60));
    let log = Arc::new(Mutex::new(Vec::new()));
    let request = |name: &'static str| {
        let log = Arc::clone(&log);
        Box::pin(
            layer
                .layer(tower::service_fn(move |request| {
                    log.lock().unwrap().push(name);
                    answer(request)
                }))
                .oneshot(get()),
        )
    };
    let (mut one, mut two, mut three, mut four) =
        (request("one"), request("two"), request("three"), request("four"));
    let Poll::Ready(Ok(first)) = poll(one.as_mut()) else { panic!("a permit is free") };
    assert!(
        poll(two.as_mut()).is_pending()
            && poll(three.as_mut()).is_pending()
            && poll(four.as_mut()).is_pending()
    );
    assert_eq!(limiter.stats().waiting, 3);
    drop(two);
    drop(first);
    assert!(poll(four.as_mut()).is_pending(), "three is before it");
    let Poll::Ready(Ok(third)) = poll(three.as_mut()) else { panic!("it is the first waiter") };
    // A request dropped after its permit was granted, before it is polled, passes it on.
    let mut five = request("five");
    assert!(poll(five.as_mut()).is_pending());
    drop(third);
    drop(four);
    assert!(poll(five.as_mut()).is_ready());
    assert_eq!(*log.lock().unwrap(), ["one", "three", "five"]);
    drop(five);
    assert_eq!((held(&limiter), limiter.stats().waiting), (0, 0));
}

#[test]
fn too_long_a_wait_and_a_full_queue_are_429() {
    let clock = ManualClock::default();
    let limiter = Semaphore::builder("concurrency 1").max_queue(1).clock(clock.clone()).build().unwrap();
    let layer = ConcurrencyLayer::new(limiter).wait(Duration::from_secs(2));
    let mut requests: Vec<_> = (0..3).map(|_| Box::pin(ask(&layer, get()))).collect();
    let Poll::Ready(_first) = poll(requests[0].as_mut()) else { panic!("a permit is free") };
    assert!(poll(requests[1].as_mut()).is_pending());
    assert!(
        matches!(poll(requests[2].as_mut()), Poll::Ready(rejected) if rejected.status() == 429),
        "at once"
    );
    clock.advance(Duration::from_secs(2));
    assert!(matches!(poll(requests[1].as_mut()), Poll::Ready(rejected) if rejected.status() == 429));
}

/// Frames from a list, the last of them trailers.
struct Frames(VecDeque<Frame<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(5)
    }
}

impl From<Bytes> for Frames {
    fn from(bytes: Bytes) -> Frames {
        Frames([Frame::data(bytes)].into())
    }
}

#[tokio::test]
async fn trailers_and_sizes_are_kept_and_the_end_releases() {
    let limiter = semaphore("concurrency 1");
    let streams = tower::service_fn(async |_: Request<Body>| {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let frames = [Frame::data(Bytes::from("hello")), Frame::trailers(trailers)];
        Ok::<_, Infallible>(Response::new(Frames(frames.into())))
    });
    let Ok(response) = ConcurrencyLayer::new(limiter.clone()).layer(streams).oneshot(get()).await;
    let mut body = response.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(5), false));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
    assert_eq!(held(&limiter), 1);
    let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!((trailers["grpc-status"].as_bytes(), held(&limiter)), (&b"0"[..], 1));
    assert!(body.frame().await.is_none());
    assert_eq!((held(&limiter), body.holds_lease()), (0, false));
}

/// A body that reports its last frame is not polled again, and an empty one is never polled.
#[tokio::test]
async fn the_last_frame_of_a_sized_body_releases_the_lease() {
    let limiter = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(limiter.clone());
    let mut body = ask(&layer, get()).await.into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    assert!(!body.holds_lease() && held(&limiter) == 0);
    let empty =
        tower::service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::default())));
    let Ok(response) = layer.layer(empty).oneshot(get()).await;
    assert!(!response.body().holds_lease() && held(&limiter) == 0);
}

#[tokio::test]
async fn until_the_head_only() {
    let limiter = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(limiter.clone()).hold_until(HoldUntil::ResponseHead);
    let response = ask(&layer, get()).await;
    assert!(!response.body().holds_lease() && held(&limiter) == 0);
}

/// A body that the other end writes to.
struct Streamed(mpsc::Receiver<&'static str>);

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|text| text.map(|text| Ok(Frame::data(Bytes::from(text)))))
    }
}

/// An app whose downloads are written by hand: the writers come out of the channel.
fn downloads(
    layer: ConcurrencyLayer<Semaphore>,
) -> (Router, mpsc::UnboundedReceiver<mpsc::Sender<&'static str>>) {
    let (writers, begun) = mpsc::unbounded_channel();
    let handler = async move || {
        let (writer, reader) = mpsc::channel(1);
        writers.send(writer).unwrap();
        AxumBody::new(Streamed(reader))
    };
    (Router::new().route("/", route(handler)).route("/health", route(async || "well")).layer(layer), begun)
}

#[tokio::test]
async fn a_download_holds_its_lease_until_it_ends_or_is_aborted() {
    let limiter = semaphore("concurrency 2");
    let layer = ConcurrencyLayer::new(limiter.clone()).key(key::peer_ip());
    let (app, mut begun) = downloads(layer);
    let server = Server::start(app).await;
    let mut one = server.send("/").await;
    let writer_of_one = begun.recv().await.unwrap();
    let two = server.send("/").await;
    let writer_of_two = begun.recv().await.unwrap();
    writer_of_one.send("first").await.unwrap();
    // The head and part of the body are there, and the lease is still held.
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("first") {
        assert!(one.read_buf(&mut seen).await.unwrap() > 0);
    }
    assert_eq!(held(&limiter), 2);
    let (status, rejected) = server.get("/").await;
    assert!(status == 429 && rejected.contains("too many requests in flight"), "{rejected}");
    // Its end frees one.
    drop(writer_of_one);
    one.read_to_end(&mut seen).await.unwrap();
    until(|| held(&limiter) == 1).await;
    let three = server.send("/").await;
    let _writer_of_three = begun.recv().await.unwrap();
    assert_eq!(server.get("/").await.0, 429);
    // Disconnecting releases another, although nothing is written to it.
    drop(two);
    until(|| held(&limiter) == 1).await;
    assert!(writer_of_two.is_closed());
    drop(three);
    until(|| held(&limiter) == 0).await;
    assert_eq!(server.get("/health").await.0, 200);
}

#[tokio::test]
async fn requests_over_sockets_wait_and_disconnects_leave_the_queue() {
    let limiter = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(limiter.clone()).key(key::everyone()).wait(Duration::from_secs(60));
    let (app, mut begun) = downloads(layer);
    let server = Server::start(app).await;
    let one = server.send("/").await;
    let writer = begun.recv().await.unwrap();
    let two = server.send("/").await;
    until(|| limiter.stats().waiting == 1).await;
    let three = server.send("/").await;
    until(|| limiter.stats().waiting == 2).await;
    drop(two);
    until(|| limiter.stats().waiting == 1).await;
    drop(writer);
    assert_eq!(read(one).await.0, 200);
    let writer = begun.recv().await.unwrap();
    writer.send("at last").await.unwrap();
    drop(writer);
    let (status, body) = read(three).await;
    assert!(status == 200 && body.contains("at last"), "{body}");
    until(|| held(&limiter) == 0).await;
    assert_eq!(limiter.stats().waiting, 0);
}

#[tokio::test]
async fn keys_over_sockets_have_separate_permits() {
    let limiter = semaphore("concurrency 1");
    let (app, mut begun) = downloads(ConcurrencyLayer::new(limiter).key(key::header("x-customer")));
    let server = Server::start(app).await;
    let _harry = server.send_with("/", "x-customer: acme\r\n").await;
    let _writer = begun.recv().await.unwrap();
    assert_eq!(read(server.send_with("/", "x-customer: acme\r\n").await).await.0, 429);
    assert_eq!(read(server.send_with("/health", "x-customer: sally\r\n").await).await.0, 200);
}

/// The limit is never exceeded, with any number of connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_is_never_exceeded() {
    const PERMITS: usize = 3;
    let limiter = semaphore("concurrency 3");
    let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let (at_work, most) = (Arc::clone(&at_work), Arc::clone(&most));
        async move || {
            most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            at_work.fetch_sub(1, Ordering::SeqCst);
            "done"
        }
    };
    let layer = ConcurrencyLayer::new(limiter.clone()).wait(Duration::from_secs(60));
    let server = Arc::new(Server::start(Router::new().route("/", route(handler)).layer(layer)).await);
    let clients = (0..40).map(|_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.get("/").await.0 })
    });
    for client in clients.collect::<Vec<_>>() {
        assert_eq!(client.await.unwrap(), 200);
    }
    assert!((1..=PERMITS).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    until(|| held(&limiter) == 0).await;
}
