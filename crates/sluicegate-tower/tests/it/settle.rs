//! Charges settled after the response: failed logins, refunds, extras, and clients that disconnect.

use crate::support::{Body, admitted, answer, ask, field, from, get, limiter, with};
use http::{Request, Response, StatusCode};
use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use sluicegate_tower::{Charge, Completion, RateLimitLayer, key};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::sync::{Barrier, Semaphore};
use tower::{Layer as _, Service as _, ServiceExt as _};

fn failed_logins(limits: &str) -> (RateLimitLayer<Limiter>, Limiter, ManualClock) {
    let (limiter, clock) = limiter(limits);
    let layer = RateLimitLayer::new(limiter.clone()).charge_if(|status| status == StatusCode::UNAUTHORIZED);
    (layer, limiter, clock)
}

fn login(status: &str) -> Request<Body> {
    with(get(), "x-status", status)
}

fn remaining(limiter: &Limiter) -> u64 {
    limiter.peek("203.0.113.9".parse::<std::net::IpAddr>().unwrap(), 0).remaining()
}

#[tokio::test]
async fn failed_logins_are_limited_and_logins_are_not() {
    let (layer, limiter, clock) = failed_logins("sliding-log 3/60s");
    assert_eq!(admitted(&layer, 100, || login("200")).await, 100);
    assert_eq!(remaining(&limiter), 3, "a success leaves no trace");
    assert_eq!(admitted(&layer, 5, || login("401")).await, 3);
    assert_eq!(ask(&layer, login("200")).await.status(), 429, "now even the right password has to wait");
    clock.advance(Duration::from_secs(60));
    assert_eq!(ask(&layer, login("200")).await.status(), 200);
}

#[tokio::test]
async fn the_fields_are_those_after_the_refund() {
    let (layer, ..) = failed_logins("sliding-log 3/60s");
    let fields = async |status| {
        let response = ask(&layer, login(status)).await;
        field(&response, "ratelimit").unwrap().to_owned()
    };
    assert_eq!(fields("200").await, "\"default\";r=3;t=0");
    assert_eq!(fields("401").await, "\"default\";r=2;t=60");
    assert_eq!(fields("200").await, "\"default\";r=2;t=60");
}

/// Concurrent guesses: those in flight are charged already, so at most the limit is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_failing_logins_cannot_bypass_the_limit() {
    for round in 0..20 {
        let (layer, limiter, _clock) = failed_logins("sliding-log 5/60s");
        let (checked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let start = Arc::new(Barrier::new(100));
        let (counter, door) = (Arc::clone(&checked), Arc::clone(&gate));
        let service = layer.layer(tower::service_fn(move |request| {
            counter.fetch_add(1, Ordering::SeqCst);
            let door = Arc::clone(&door);
            async move {
                // Every request waits for the others here, as if checking a password took long.
                drop(door.acquire().await);
                answer(request).await
            }
        }));
        let logins: Vec<_> = (0..100)
            .map(|_| {
                let (service, start) = (service.clone(), Arc::clone(&start));
                tokio::spawn(async move {
                    start.wait().await;
                    service.oneshot(login("401")).await.unwrap().status()
                })
            })
            .collect();
        // The denied requests are answered at once; then the others are released.
        while limiter.stats().denied < 95 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(100);
        let mut wrong = 0;
        for login in logins {
            wrong += usize::from(login.await.unwrap() == 401);
        }
        assert_eq!((wrong, checked.load(Ordering::SeqCst)), (5, 5), "round {round}");
        assert_eq!(remaining(&limiter), 0);
    }
}

/// For every completion and every limit with refunds, the final charge is exactly what `settle`
/// returned.
#[tokio::test]
async fn the_final_charge_is_exactly_what_settle_returns() {
    let mut random = fastrand::Rng::with_seed(3);
    for limits in [
        "sliding-log 1000/h",
        "fixed-window 1000/h start=first",
        "token-bucket 1000/h",
        "sliding-window 1000/h",
    ] {
        let (limiter, _clock) = limiter(limits);
        let layer = RateLimitLayer::new(limiter.clone()).cost(|_| 3).settle(|outcome| match outcome {
            Completion::Response { status, .. } => match status.as_u16() {
                200 => Charge::Keep,
                201 => Charge::Refund,
                202 => Charge::Exactly(1),
                203 => Charge::Exactly(3),
                204 => Charge::Exactly(0),
                _ => Charge::Extra(4),
            },
            _ => panic!("there always is a response"),
        });
        let mut charged = 0;
        for _ in 0..100 {
            let status = random.u16(200..206);
            assert_eq!(ask(&layer, login(&status.to_string())).await.status(), status);
            charged += match status {
                200 | 203 => 3,
                201 | 204 => 0,
                202 => 1,
                _ => 7,
            };
            assert_eq!(remaining(&limiter), 1000 - charged, "{limits}");
        }
    }
}

/// A refund is of the window that was charged: it must not make room in the next one.
#[tokio::test]
async fn a_late_refund_does_not_credit_the_next_window() {
    let (limiter, clock) = limiter("fixed-window 3/60s start=first");
    let layer = RateLimitLayer::new(limiter.clone()).charge_if(|status| status != 200);
    let mut service = layer.layer(tower::service_fn(answer));
    let slow = service.ready().await.unwrap().call(get());
    clock.advance(Duration::from_secs(60));
    assert_eq!(admitted(&layer, 3, || login("401")).await, 3);
    assert_eq!(slow.await.unwrap().status(), 200);
    assert_eq!(admitted(&layer, 1, || login("401")).await, 0);
}

#[tokio::test]
async fn a_client_that_disconnects_stays_charged() {
    let (layer, limiter, _clock) = failed_logins("sliding-log 3/60s");
    let never =
        layer.layer(tower::service_fn(|_| std::future::pending::<Result<Response<Body>, Infallible>>()));
    for left in [2, 1, 0] {
        let mut pending = Box::pin(never.clone().oneshot(login("200")));
        assert!(pending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(remaining(&limiter), left, "charged while it is under way");
        drop(pending);
        assert_eq!(remaining(&limiter), left, "and afterwards");
    }
    assert_eq!(ask(&layer, login("200")).await.status(), 429);
}

#[tokio::test]
async fn settle_may_refund_disconnects_and_failures() {
    let (limiter, _clock) = limiter("sliding-log 3/60s");
    let layer = RateLimitLayer::new(limiter.clone()).settle(|outcome| match outcome {
        Completion::Dropped | Completion::Failed => Charge::Refund,
        _ => Charge::Keep,
    });
    let never =
        layer.layer(tower::service_fn(|_| std::future::pending::<Result<Response<Body>, Infallible>>()));
    let mut pending = Box::pin(never.oneshot(get()));
    assert!(pending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(remaining(&limiter), 2);
    drop(pending);
    assert_eq!(remaining(&limiter), 3);
    let broken = layer.layer(tower::service_fn(async |_| Err::<Response<Body>, _>("broken")));
    assert_eq!(broken.oneshot(get()).await.unwrap_err(), "broken");
    assert_eq!(remaining(&limiter), 3);
}

#[tokio::test]
async fn a_failed_service_stays_charged_under_charge_if() {
    let (layer, limiter, _clock) = failed_logins("sliding-log 3/60s");
    let broken = layer.layer(tower::service_fn(async |_| Err::<Response<Body>, _>("broken")));
    assert_eq!(broken.oneshot(get()).await.unwrap_err(), "broken");
    assert_eq!(remaining(&limiter), 2);
}

/// A handler that panics sends no response.
#[tokio::test]
async fn a_panicking_handler_stays_charged() {
    let (layer, limiter, _clock) = failed_logins("sliding-log 3/60s");
    let panics =
        layer.layer(tower::service_fn(async |_: Request<Body>| -> Result<Response<Body>, Infallible> {
            panic!("on purpose")
        }));
    assert!(tokio::spawn(panics.oneshot(get())).await.is_err());
    assert_eq!(remaining(&limiter), 2);
    assert_eq!(ask(&layer, login("200")).await.status(), 200, "and the next one is served");
}

#[tokio::test]
async fn a_limit_without_refunds_is_a_misconfiguration() {
    let (limiter, _clock) = limiter("sliding-log 3/60s count=all");
    let layer = RateLimitLayer::new(limiter).charge_if(|status| status == 401);
    let response = ask(&layer, get()).await;
    assert_eq!(response.status(), 500);
    assert!(crate::support::text(response).await.contains("since denied calls count too"));
}

/// However long it runs, nothing is left of receipts.
#[tokio::test]
async fn settled_logins_leave_no_receipts() {
    let clock = ManualClock::default();
    let limiter = Limiter::builder("token-bucket 1000000/s").max_receipts(16).clock(clock).build().unwrap();
    let layer = RateLimitLayer::new(limiter).key(key::peer_ip()).charge_if(|status| status == 401);
    for number in 0..5000 {
        let (peer, status) = (format!("10.0.{}.{}", number / 250, number % 250), ["200", "401"][number % 2]);
        let response = ask(&layer, with(from(&peer), "x-status", status)).await;
        assert_eq!(response.status().as_str(), status);
    }
}
