//! Back-ends of one's own, and answers when nobody can decide.

use crate::bed::{Body, ask, field, get, limiter, text, with};
use http::Request;
use sluicegate::{Decision, Limit, Limiter};
use sluicegate_tower::backend::{Answer, Ask, Decided, Step, Undecided, Used};
use sluicegate_tower::{Backend, Outcome, RateLimitLayer, RequestKey, Verdict};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tower::{Layer as _, Service as _, ServiceExt as _};

/// Decides like a limiter in memory, but not at once: after the scheduler has been elsewhere.
#[derive(Clone)]
struct Slow {
    limiter: Limiter,
    works: bool,
    closed: Arc<AtomicU32>,
}

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Backend for Slow {
    type Held = u32;
    type Asking = Later<Answer<u32>>;
    type Closing = Later<Option<Decision>>;

    fn ask(&self, key: &RequestKey<'_>, ask: Ask) -> Step<Self::Asking> {
        let (slow, key) = (self.clone(), key.to_bytes().into_owned());
        Step::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            if !slow.works {
                return Err(Undecided::for_now("10.0.0.3 does not answer"));
            }
            let decision = slow.limiter.check_cost(key, ask.cost);
            Ok(Decided { decision, held: (ask.hold && decision.allowed()).then_some(ask.cost) })
        }))
    }

    fn close(&self, _: u32, used: Used) -> Step<Self::Closing> {
        let closed = Arc::clone(&self.closed);
        Step::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            assert_eq!(used, Used::Only(0));
            closed.fetch_add(1, Ordering::Relaxed);
            None
        }))
    }

    fn close_unwatched(&self, _: u32, used: Used) {
        assert_eq!(used, Used::All);
        self.closed.fetch_add(100, Ordering::Relaxed);
    }

    fn limits(&self) -> Arc<[Limit]> {
        self.limiter.limits()
    }
}

fn slow(limits: &str, works: bool) -> Slow {
    Slow { limiter: limiter(limits).0, works, closed: Arc::default() }
}

#[tokio::test]
async fn a_decision_that_takes_time_is_the_same_decision() {
    let layer = RateLimitLayer::new(slow("sliding-log 1/60s", true)).observe(|seen| {
        assert_eq!(&*seen.key.unwrap().to_bytes(), b"203.0.113.9");
    });
    let first = ask(&layer, get()).await;
    assert_eq!((first.status().as_u16(), field(&first, "ratelimit")), (200, Some("\"default\";r=0;t=60")));
    assert_eq!(text(first).await, "hello");
    let second = ask(&layer, get()).await;
    assert_eq!((second.status().as_u16(), field(&second, "retry-after")), (429, Some("60")));
}

/// A service that has to be ready is called when the decision is there, not a clone of it that is not.
#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let limited = tower::limit::ConcurrencyLimit::new(tower::service_fn(crate::bed::answer), 1);
    let mut service = RateLimitLayer::new(slow("sliding-log 10/60s", true)).layer(limited);
    for _ in 0..3 {
        // It panics when it is called without having been ready.
        assert_eq!(service.ready().await.unwrap().call(get()).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn when_nobody_can_decide_it_is_a_503_and_never_a_429() {
    let layer = RateLimitLayer::new(slow("sliding-log 1/60s", false)).observe(|seen| {
        let Verdict::Undecided(why) = seen.verdict else { panic!("{:?}", seen.verdict) };
        assert_eq!(why.to_string(), "10.0.0.3 does not answer");
    });
    let response = ask(&layer, get()).await;
    assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (503, None));
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    let problem = text(response).await;
    assert!(!problem.contains("10.0.0.3"), "the client is not told about machines inside: {problem}");
    let grpc = ask(&layer, with(get(), "content-type", "application/grpc")).await;
    assert_eq!((grpc.status().as_u16(), field(&grpc, "grpc-status")), (200, Some("14")));
    assert_eq!(ask(&layer.shadow(), get()).await.status(), 200, "a shadow is not felt");
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_settled_before_the_response_goes_out_and_kept_if_nobody_waits() {
    let slow = slow("sliding-log 10/60s", true);
    let layer = RateLimitLayer::new(slow.clone()).after(|outcome| match outcome {
        Outcome::Dropped => sluicegate_tower::Charge::Keep,
        _ => sluicegate_tower::Charge::Refund,
    });
    let response = ask(&layer, get()).await;
    assert_eq!(slow.closed.load(Ordering::Relaxed), 1);
    assert_eq!(field(&response, "ratelimit"), Some("\"default\";r=9;t=60"), "as it was when it was decided");
    let hung_up = layer.layer(tower::service_fn(async |_: Request<Body>| {
        std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>().await
    }));
    let waited = tokio::time::timeout(std::time::Duration::from_millis(20), hung_up.oneshot(get())).await;
    assert!(waited.is_err());
    assert_eq!(slow.closed.load(Ordering::Relaxed), 101);
}
