//! Limits whose keys live in a real Redis.

use crate::support::{Body, admitted, answer, ask, field, get, text, with};
use http::Response;
use redis_testkit::{Options, Server};
use sluicegate::Span;
use sluicegate::backend::Backend;
use sluicegate_redis::{ConnectError, OnStoreFailure, RedisLimiter, RedisSemaphore, RedisStore};
use sluicegate_tower::{ConcurrencyLayer, LeasedBody, RateLimitLayer};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tower::{Layer as _, ServiceExt as _};

/// Longer than anything takes on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The key of [`get`].
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

async fn connected(server: &Server) -> RedisStore {
    let builder = RedisStore::builder(&server.url()).deadline(TEST_TIMEOUT);
    let began = Instant::now();
    loop {
        match builder.clone().connect().await {
            Ok(store) => return store,
            // A busy machine can take longer than a builder waits.
            Err(ConnectError::Unreachable(_)) if began.elapsed() < TEST_TIMEOUT => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn limiter(limits: &str, store: &RedisStore, on_failure: OnStoreFailure) -> RedisLimiter {
    RedisLimiter::builder(limits).in_store(store, "tower").on_store_failure(on_failure).build().unwrap()
}

async fn remaining(limiter: &RedisLimiter) -> u64 {
    Backend::peek(limiter, &PEER, 0, None).await.unwrap().remaining()
}

#[tokio::test]
async fn two_processes_share_a_limit_through_the_store() {
    let server = Server::start(&Options::redis());
    let layer = async || {
        let store = connected(&server).await;
        RateLimitLayer::new(limiter("sliding-log 5/h", &store, OnStoreFailure::Error)).name("api")
    };
    let (one, other) = (layer().await, layer().await);
    assert_eq!(admitted(&one, 3, get).await, 3);
    let response = ask(&other, get()).await;
    assert_eq!(field(&response, "ratelimit"), Some("\"api\";r=1;t=3600"));
    assert_eq!(text(response).await, "hello");
    assert_eq!(admitted(&other, 3, get).await, 1);
    let denied = ask(&one, get()).await;
    assert_eq!(
        (denied.status().as_u16(), field(&denied, "ratelimit-policy")),
        (429, Some("\"api\";q=5;w=3600"))
    );
}

#[tokio::test]
async fn an_unavailable_store_is_a_503_or_the_configured_fallback() {
    let server = Server::start(&Options::redis());
    let store = connected(&server).await;
    let layer = |on_failure| RateLimitLayer::new(limiter("sliding-log 5/h", &store, on_failure));
    let (error, deny) = (layer(OnStoreFailure::Error), layer(OnStoreFailure::Deny));
    let (allow, local) = (layer(OnStoreFailure::Allow), layer(OnStoreFailure::Local));
    server.kill();
    for refusing in [error, deny] {
        let response = ask(&refusing, get()).await;
        assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (503, Some("1")));
        assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    }
    assert_eq!(admitted(&allow, 20, get).await, 20);
    assert_eq!(admitted(&local, 20, get).await, 5);
}

#[tokio::test]
async fn failed_logins_are_reserved_and_settled_in_the_store() {
    let server = Server::start(&Options::redis());
    let store = connected(&server).await;
    let limiter = limiter("sliding-log 3/h", &store, OnStoreFailure::Error);
    let layer = RateLimitLayer::new(limiter.clone()).charge_if(|status| status == 401);
    let login = |status: &'static str| move || with(get(), "x-status", status);
    assert_eq!(admitted(&layer, 10, login("200")).await, 10);
    assert_eq!(remaining(&limiter).await, 3);
    // Concurrent: requests in flight are charged already, so the others are denied before any of
    // them ends.
    let may_end = Arc::new(Semaphore::new(0));
    let logins = (0..20).map(|_| {
        let may_end = Arc::clone(&may_end);
        let service = layer.layer(tower::service_fn(move |request| {
            let may_end = Arc::clone(&may_end);
            async move {
                drop(may_end.acquire().await);
                answer(request).await
            }
        }));
        tokio::spawn(service.oneshot(login("401")()))
    });
    let logins: Vec<_> = logins.collect();
    crate::sockets::until(|| logins.iter().filter(|login| login.is_finished()).count() == 17).await;
    may_end.add_permits(3);
    let mut wrong = 0;
    for login in logins {
        wrong += usize::from(login.await.unwrap().unwrap().status() == 401);
    }
    assert_eq!((wrong, remaining(&limiter).await), (3, 0));
}

/// What is dropped is settled by a task of its own; the test waits until it is.
#[tokio::test]
async fn disconnects_can_be_refunded_in_the_store() {
    let server = Server::start(&Options::redis());
    let store = connected(&server).await;
    let limiter = limiter("sliding-log 3/h", &store, OnStoreFailure::Error);
    let layer = RateLimitLayer::new(limiter.clone()).settle(|_| sluicegate_tower::Charge::Refund);
    let never =
        layer.layer(tower::service_fn(|_| std::future::pending::<Result<Response<Body>, Infallible>>()));
    let pending = tokio::spawn(never.oneshot(get()));
    while remaining(&limiter).await == 3 {}
    pending.abort();
    while remaining(&limiter).await < 3 {}
}

/// A window cannot reserve ahead: waiters queue in this process, and retry after the announced
/// wait.
#[tokio::test]
async fn requests_wait_for_a_window_in_the_store_too() {
    let server = Server::start(&Options::redis());
    let store = connected(&server).await;
    let limiter = limiter("sliding-log 2/2s", &store, OnStoreFailure::Error);
    let layer = RateLimitLayer::new(limiter).wait(TEST_TIMEOUT);
    let began = Instant::now();
    assert_eq!(admitted(&layer, 4, get).await, 4);
    assert!(
        began.elapsed() >= Duration::from_millis(1_990),
        "the third had to wait for the first to be over"
    );
    let impatient = layer.wait(Duration::from_millis(1));
    assert_eq!(ask(&impatient, get()).await.status(), 429);
}

#[tokio::test]
async fn a_waiting_request_that_gives_up_leaves_no_trace() {
    let server = Server::start(&Options::redis());
    let store = connected(&server).await;
    let limiter = limiter("token-bucket 2/s burst=1", &store, OnStoreFailure::Error);
    let layer = RateLimitLayer::new(limiter.clone()).wait(Duration::from_millis(1_250));
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(ask(&layer, get()).await.status(), 200);
    }
    assert!(began.elapsed() >= Duration::from_millis(990), "two had to wait for 500 ms each");
    // Four at once: two wait within the bound, the others are denied at once.
    let crowd: Vec<_> =
        (0..4).map(|_| tokio::spawn(layer.layer(tower::service_fn(answer)).oneshot(get()))).collect();
    let mut denied = 0;
    for request in crowd {
        denied += usize::from(request.await.unwrap().unwrap().status() == 429);
    }
    assert!((1..=2).contains(&denied), "{denied}");
    // One that gives up gives back.
    Backend::reset(&limiter, &PEER).await.unwrap();
    assert_eq!(ask(&layer, get()).await.status(), 200);
    let gives_up = tokio::spawn(layer.layer(tower::service_fn(answer)).oneshot(get()));
    let owed = async || {
        Backend::reserve(&limiter, &PEER, 0, &Duration::ZERO.into(), None).await.unwrap().answer.reset_after()
    };
    while owed().await <= Span::from_micros(500_000) && !gives_up.is_finished() {}
    gives_up.abort();
    while owed().await > Span::from_micros(500_000) {}
}

fn places(store: &RedisStore, on_failure: OnStoreFailure) -> RedisSemaphore {
    let builder = RedisSemaphore::builder("concurrency 2 ttl=60s").in_store(store, "places");
    builder.on_store_failure(on_failure).build().unwrap()
}

async fn enter(layer: &ConcurrencyLayer<RedisSemaphore>) -> Response<LeasedBody<Body>> {
    let Ok(response) = layer.layer(tower::service_fn(answer)).oneshot(get()).await;
    response
}

#[tokio::test]
async fn two_processes_share_permits_in_the_store() {
    let server = Server::start(&Options::redis());
    let layer = async || ConcurrencyLayer::new(places(&connected(&server).await, OnStoreFailure::Error));
    let (one, other) = (layer().await, layer().await);
    let (first, second) = (enter(&one).await, enter(&other).await);
    assert!(first.body().holds_lease() && second.body().holds_lease());
    let refused = enter(&one).await;
    assert_eq!(refused.status(), 429);
    let reported: u64 = field(&refused, "retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&reported), "{reported}");
    drop(first);
    // A task releases it, and the waiter gets it.
    let third = enter(&other.clone().wait(TEST_TIMEOUT)).await;
    assert!(third.status() == 200 && third.body().holds_lease());
}

#[tokio::test]
async fn without_the_store_it_is_503_or_permits_in_memory() {
    let server = Server::start(&Options::redis());
    let store = connected(&server).await;
    let layer = |on_failure| ConcurrencyLayer::new(places(&store, on_failure));
    let (error, deny) = (layer(OnStoreFailure::Error), layer(OnStoreFailure::Deny));
    let local = layer(OnStoreFailure::Local);
    server.kill();
    for refusing in [error, deny] {
        let response = enter(&refusing).await;
        assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (503, Some("1")));
    }
    let here = [enter(&local).await, enter(&local).await, enter(&local).await];
    assert_eq!(here.map(|response| response.status().as_u16()), [200, 200, 429]);
}
