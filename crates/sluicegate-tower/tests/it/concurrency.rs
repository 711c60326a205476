//! At most so many requests at once for each key: before services of our own, and over real sockets.

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
async fn one_too_many_is_429_and_says_what_happened() {
    let places = semaphore("concurrency 2");
    let layer = ConcurrencyLayer::new(places.clone()).name("exports");
    let (one, two) = (ask(&layer, get()).await, ask(&layer.clone(), get()).await);
    assert_eq!([one.status().as_u16(), two.status().as_u16()], [200, 200]);
    assert_eq!(held(&places), 2, "the responses hold their places");
    let refused = ask(&layer, get()).await;
    assert_eq!((refused.status().as_u16(), field(&refused, "retry-after")), (429, None), "nobody knows when");
    assert_eq!(field(&refused, "content-type"), Some("application/problem+json"));
    assert!(!refused.body().holds_lease());
    let problem = refused.into_body().collect().await.unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&problem).unwrap();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&problem["status"], &problem["violated-policies"][0]), (&429.into(), &"exports".into()));
    assert_eq!(problem["detail"], "too many requests at once; come back when one of them has ended");
    assert_eq!(ask(&layer, from("198.51.100.7")).await.status(), 200, "another key has places of its own");
    assert_eq!(whole(one).await, "hello");
    assert_eq!(ask(&layer, get()).await.status(), 200);
    drop(two);
    assert_eq!(held(&places), 0);
}

#[tokio::test]
async fn with_a_ttl_the_client_is_told_when_to_come_back() {
    let clock = ManualClock::default();
    let places = Semaphore::builder("concurrency 1 ttl=30s").clock(clock.clone()).build().unwrap();
    let layer = ConcurrencyLayer::new(places);
    let _held = ask(&layer, get()).await;
    clock.advance(Duration::from_secs(10));
    let refused = ask(&layer, get()).await;
    assert_eq!((refused.status().as_u16(), field(&refused, "retry-after")), (429, Some("20")));
    let call = ask(&layer, with(get(), "content-type", "application/grpc")).await;
    assert_eq!((call.status().as_u16(), field(&call, "grpc-status")), (200, Some("8")));
    assert_eq!(field(&call, "grpc-retry-pushback-ms"), Some("20000"));
    clock.advance(Duration::from_secs(20));
    assert_eq!(ask(&layer, get()).await.status(), 200, "it has lapsed, though its response is still there");
}

#[tokio::test]
async fn a_limit_of_the_service_itself_is_503_and_so_is_a_semaphore_without_room() {
    let layer = ConcurrencyLayer::new(semaphore("concurrency 1")).key(key::everyone()).unavailable();
    let _held = ask(&layer, get()).await;
    let refused = ask(&layer, from("198.51.100.7")).await;
    assert_eq!((refused.status().as_u16(), field(&refused, "retry-after")), (503, Some("1")));
    let call = ask(&layer, with(get(), "content-type", "application/grpc")).await;
    assert_eq!(field(&call, "grpc-status"), Some("14"));
    let full = Semaphore::builder("concurrency 1").max_leases(1).build().unwrap();
    let layer = ConcurrencyLayer::new(full);
    let _held = ask(&layer, get()).await;
    assert_eq!(ask(&layer, from("198.51.100.7")).await.status(), 503);
    assert_eq!(ask(&layer, get()).await.status(), 429);
}

#[tokio::test]
async fn requests_cost_are_skipped_or_have_no_key() {
    let places = semaphore("concurrency 3");
    let layer = ConcurrencyLayer::new(places.clone())
        .key(key::header("x-customer"))
        .cost(|head| if head.headers.contains_key("x-big") { 2 } else { 1 })
        .skip(|head| head.uri.path() == "/health");
    let harry = || with(get(), "x-customer", "harry");
    let held_by = [ask(&layer, with(harry(), "x-big", "")).await, ask(&layer, harry()).await];
    assert!(held_by.iter().all(|response| response.status() == 200));
    assert_eq!(ask(&layer, harry()).await.status(), 429);
    let mut health = harry();
    *health.uri_mut() = "/health".parse().unwrap();
    let healthy = ask(&layer, health).await;
    assert!(healthy.status() == 200 && !healthy.body().holds_lease());
    assert!(ask(&layer, get()).await.body().holds_lease(), "those without a key share one");
    assert_eq!(ask(&layer.clone().on_missing_key(OnMissingKey::Reject), get()).await.status(), 400);
    assert!(!ask(&layer.clone().on_missing_key(OnMissingKey::Admit), get()).await.body().holds_lease());
    let dear = ask(&layer.clone().cost(|_| 4), with(get(), "x-customer", "sally")).await;
    assert_eq!((dear.status().as_u16(), field(&dear, "retry-after")), (429, None));
    let words = dear.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&words).contains("will never be admitted"));
    let unknown = ask(&ConcurrencyLayer::new(places), Request::new(Body::default())).await;
    assert_eq!(
        unknown.status(),
        500,
        "an address that the server did not provide is a mistake in the set-up"
    );
}

#[tokio::test]
async fn a_closure_writes_the_answer() {
    let layer = ConcurrencyLayer::new(semaphore("concurrency 1")).respond_with(|denial| {
        Response::builder().status(420).body(Body::from(denial.head().uri.path().to_owned())).unwrap()
    });
    let _held = ask(&layer, get()).await;
    assert_eq!(ask(&layer, get()).await.status(), 420);
}

/// Many services that are ready, and none of them holds a place.
#[tokio::test]
async fn being_ready_takes_no_place() {
    let places = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(places.clone());
    let mut services: Vec<_> = (0..3).map(|_| layer.layer(tower::service_fn(answer))).collect();
    for service in &mut services {
        let _ = service.ready().await;
    }
    assert_eq!(held(&places), 0);
    for service in &mut services {
        assert_eq!(service.call(get()).await.unwrap().status(), 200);
    }
}

#[test]
fn a_dropped_response_future_returns_its_place() {
    let places = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(places.clone());
    let hangs =
        tower::service_fn(async |_: Request<Body>| pending::<Result<Response<Body>, Infallible>>().await);
    let mut service = layer.layer(hangs);
    let mut begun = Box::pin(service.call(get()));
    assert!(poll(begun.as_mut()).is_pending() && held(&places) == 1);
    drop(begun);
    assert_eq!(held(&places), 0);
}

#[tokio::test]
async fn an_error_of_the_service_returns_the_place() {
    let places = semaphore("concurrency 1");
    let fails = tower::service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("connection reset"));
    let failed = ConcurrencyLayer::new(places.clone()).layer(fails).oneshot(get()).await;
    assert_eq!((failed.unwrap_err(), held(&places)), ("connection reset", 0));
}

#[test]
fn requests_wait_in_line_and_whoever_gives_up_leaves_it() {
    let places = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(places.clone()).wait(Duration::from_secs(60));
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
    let Poll::Ready(Ok(first)) = poll(one.as_mut()) else { panic!("there is a place") };
    assert!(
        poll(two.as_mut()).is_pending()
            && poll(three.as_mut()).is_pending()
            && poll(four.as_mut()).is_pending()
    );
    assert_eq!(places.stats().waiting, 3);
    drop(two);
    drop(first);
    assert!(poll(four.as_mut()).is_pending(), "three is before it");
    let Poll::Ready(Ok(third)) = poll(three.as_mut()) else { panic!("it is its turn") };
    // One that is dropped when its place has come, and before it has taken it, passes it on.
    let mut five = request("five");
    assert!(poll(five.as_mut()).is_pending());
    drop(third);
    drop(four);
    assert!(poll(five.as_mut()).is_ready());
    assert_eq!(*log.lock().unwrap(), ["one", "three", "five"]);
    drop(five);
    assert_eq!((held(&places), places.stats().waiting), (0, 0));
}

#[test]
fn a_wait_that_was_too_long_and_a_full_line_are_429() {
    let clock = ManualClock::default();
    let places = Semaphore::builder("concurrency 1").max_queue(1).clock(clock.clone()).build().unwrap();
    let layer = ConcurrencyLayer::new(places).wait(Duration::from_secs(2));
    let mut requests: Vec<_> = (0..3).map(|_| Box::pin(ask(&layer, get()))).collect();
    let Poll::Ready(_first) = poll(requests[0].as_mut()) else { panic!("there is a place") };
    assert!(poll(requests[1].as_mut()).is_pending());
    assert!(matches!(poll(requests[2].as_mut()), Poll::Ready(refused) if refused.status() == 429), "at once");
    clock.advance(Duration::from_secs(2));
    assert!(matches!(poll(requests[1].as_mut()), Poll::Ready(refused) if refused.status() == 429));
}

/// Frames as they are told to come, the last of them trailers.
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
async fn trailers_and_sizes_pass_and_the_end_frees_the_place() {
    let places = semaphore("concurrency 1");
    let streams = tower::service_fn(async |_: Request<Body>| {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let frames = [Frame::data(Bytes::from("hello")), Frame::trailers(trailers)];
        Ok::<_, Infallible>(Response::new(Frames(frames.into())))
    });
    let Ok(response) = ConcurrencyLayer::new(places.clone()).layer(streams).oneshot(get()).await;
    let mut body = response.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(5), false));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
    assert_eq!(held(&places), 1);
    let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!((trailers["grpc-status"].as_bytes(), held(&places)), (&b"0"[..], 1));
    assert!(body.frame().await.is_none());
    assert_eq!((held(&places), body.holds_lease()), (0, false));
}

/// A body that says that a frame was its last one is not asked again, and an empty one is never asked.
#[tokio::test]
async fn a_body_that_knows_its_end_frees_the_place_with_its_last_frame() {
    let places = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(places.clone());
    let mut body = ask(&layer, get()).await.into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    assert!(!body.holds_lease() && held(&places) == 0);
    let empty =
        tower::service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::default())));
    let Ok(response) = layer.layer(empty).oneshot(get()).await;
    assert!(!response.body().holds_lease() && held(&places) == 0);
}

#[tokio::test]
async fn until_the_head_only() {
    let places = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(places.clone()).hold_until(HoldUntil::ResponseHead);
    let response = ask(&layer, get()).await;
    assert!(!response.body().holds_lease() && held(&places) == 0);
}

/// A body that whoever holds the other end writes to.
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
async fn a_download_holds_its_place_until_its_end_and_a_client_that_hangs_up_frees_it() {
    let places = semaphore("concurrency 2");
    let layer = ConcurrencyLayer::new(places.clone()).key(key::peer_ip());
    let (app, mut begun) = downloads(layer);
    let server = Server::start(app).await;
    let mut one = server.send("/").await;
    let writer_of_one = begun.recv().await.unwrap();
    let two = server.send("/").await;
    let writer_of_two = begun.recv().await.unwrap();
    writer_of_one.send("first").await.unwrap();
    // The head and a piece of the body are there, and the place is still held.
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("first") {
        assert!(one.read_buf(&mut seen).await.unwrap() > 0);
    }
    assert_eq!(held(&places), 2);
    let (status, refused) = server.get("/").await;
    assert!(status == 429 && refused.contains("too many requests at once"), "{refused}");
    // Its end frees one.
    drop(writer_of_one);
    one.read_to_end(&mut seen).await.unwrap();
    until(|| held(&places) == 1).await;
    let three = server.send("/").await;
    let _writer_of_three = begun.recv().await.unwrap();
    assert_eq!(server.get("/").await.0, 429);
    // Hanging up frees another, though nobody writes to it.
    drop(two);
    until(|| held(&places) == 1).await;
    assert!(writer_of_two.is_closed());
    drop(three);
    until(|| held(&places) == 0).await;
    assert_eq!(server.get("/health").await.0, 200);
}

#[tokio::test]
async fn requests_over_sockets_wait_for_a_place_and_clients_that_are_gone_leave_the_line() {
    let places = semaphore("concurrency 1");
    let layer = ConcurrencyLayer::new(places.clone()).key(key::everyone()).wait(Duration::from_secs(60));
    let (app, mut begun) = downloads(layer);
    let server = Server::start(app).await;
    let one = server.send("/").await;
    let writer = begun.recv().await.unwrap();
    let two = server.send("/").await;
    until(|| places.stats().waiting == 1).await;
    let three = server.send("/").await;
    until(|| places.stats().waiting == 2).await;
    drop(two);
    until(|| places.stats().waiting == 1).await;
    drop(writer);
    assert_eq!(read(one).await.0, 200);
    let writer = begun.recv().await.unwrap();
    writer.send("at last").await.unwrap();
    drop(writer);
    let (status, body) = read(three).await;
    assert!(status == 200 && body.contains("at last"), "{body}");
    until(|| held(&places) == 0).await;
    assert_eq!(places.stats().waiting, 0);
}

#[tokio::test]
async fn keys_over_sockets_have_places_of_their_own() {
    let places = semaphore("concurrency 1");
    let (app, mut begun) = downloads(ConcurrencyLayer::new(places).key(key::header("x-customer")));
    let server = Server::start(app).await;
    let _harry = server.send_with("/", "x-customer: harry\r\n").await;
    let _writer = begun.recv().await.unwrap();
    assert_eq!(read(server.send_with("/", "x-customer: harry\r\n").await).await.0, 429);
    assert_eq!(read(server.send_with("/health", "x-customer: sally\r\n").await).await.0, 200);
}

/// Never more at once than there are places, however many connections there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_at_once_than_there_are_places() {
    const PLACES: usize = 3;
    let places = semaphore("concurrency 3");
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
    let layer = ConcurrencyLayer::new(places.clone()).wait(Duration::from_secs(60));
    let server = Arc::new(Server::start(Router::new().route("/", route(handler)).layer(layer)).await);
    let clients = (0..40).map(|_| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.get("/").await.0 })
    });
    for client in clients.collect::<Vec<_>>() {
        assert_eq!(client.await.unwrap(), 200);
    }
    assert!((1..=PLACES).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    until(|| held(&places) == 0).await;
}
