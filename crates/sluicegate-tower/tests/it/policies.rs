//! Custom backends, and responses when a backend fails.

use crate::support::{Body, answer, ask, field, get, limiter, text, with};
use http::Request;
use sluicegate::Time;
use sluicegate::backend::Reserved;
use sluicegate::backend::StoreFailure;
use sluicegate::backend::{Answer, Backend, BackendError, Pending};
use sluicegate::wait::Acquired;
use sluicegate::{Decision, Key, Limit, Limiter, Receipt, ReserveOptions, Usage};
use sluicegate_tower::{Completion, EventKind, RateLimitLayer};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tower::{Layer as _, Service as _, ServiceExt as _};

/// Decides like a limiter in memory, but not at once: after the scheduler has been elsewhere.
#[derive(Clone, Debug)]
struct Slow {
    limiter: Limiter,
    works: bool,
    closed: Arc<AtomicU32>,
}

type Later<T> = Pending<Result<T, BackendError>>;

impl Slow {
    fn later<T: Send + 'static>(&self, answer: Later<T>) -> Later<T> {
        let works = self.works;
        Pending::later(async move {
            tokio::task::yield_now().await;
            if !works {
                return Err(StoreFailure::Unavailable("10.0.0.3 does not answer".to_owned()).into());
            }
            answer.await
        })
    }
}

impl Backend for Slow {
    fn check(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Later<Answer> {
        self.later(Backend::check(&self.limiter, key, cost, at))
    }

    fn check_within(&self, key: &dyn Key, cost: u64, max_wait: Duration, at: Option<Time>) -> Later<Answer> {
        self.later(Backend::check_within(&self.limiter, key, cost, max_wait, at))
    }

    fn peek(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Later<Answer> {
        self.later(Backend::peek(&self.limiter, key, cost, at))
    }

    fn take(&self, key: &dyn Key, up_to: u64, at: Option<Time>) -> Later<(Answer, u64)> {
        self.later(Backend::take(&self.limiter, key, up_to, at))
    }

    fn refund(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Later<Answer> {
        self.later(Backend::refund(&self.limiter, key, cost, at))
    }

    fn reserve(
        &self,
        key: &dyn Key,
        cost: u64,
        options: &ReserveOptions,
        at: Option<Time>,
    ) -> Later<Reserved> {
        self.later(Backend::reserve(&self.limiter, key, cost, options, at))
    }

    fn extend(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
        at: Option<Time>,
    ) -> Later<Answer> {
        self.later(Backend::extend(&self.limiter, receipt, costs, ttl, at))
    }

    fn usage(&self, key: &dyn Key, at: Option<Time>) -> Later<Vec<(Limit, Usage)>> {
        self.later(Backend::usage(&self.limiter, key, at))
    }

    fn cancel(&self, receipt: &Receipt, at: Option<Time>) -> Later<bool> {
        self.closed.fetch_add(1, Ordering::Relaxed);
        self.later(Backend::cancel(&self.limiter, receipt, at))
    }

    fn settle(&self, receipt: &Receipt, used: &[u64], at: Option<Time>) -> Later<bool> {
        self.later(Backend::settle(&self.limiter, receipt, used, at))
    }

    fn settle_detached(&self, receipt: &Receipt, used: u64) {
        self.limiter.settle_detached(receipt, used);
        self.closed.fetch_add(1000, Ordering::Relaxed);
    }

    fn discard_receipt(&self, receipt: &Receipt) {
        self.limiter.discard_receipt(receipt);
        self.closed.fetch_add(100, Ordering::Relaxed);
    }

    fn standing(&self, _: &Receipt) -> Option<Decision> {
        None
    }

    fn next_window(&self, key: &dyn Key, at: Option<Time>) -> Later<Time> {
        self.later(Backend::next_window(&self.limiter, key, at))
    }

    fn reset(&self, key: &dyn Key) -> Later<()> {
        self.later(Backend::reset(&self.limiter, key))
    }

    fn acquire(&self, key: &dyn Key, cost: u64, max_wait: Option<Duration>) -> Later<Acquired> {
        self.later(Backend::acquire(&self.limiter, key, cost, max_wait))
    }

    fn delay(&self, delay: Duration) -> Pending<()> {
        Backend::delay(&self.limiter, delay)
    }

    fn limits(&self) -> Arc<[Limit]> {
        self.limiter.limits()
    }
}

fn slow(limits: &str, works: bool) -> Slow {
    Slow { limiter: limiter(limits).0, works, closed: Arc::default() }
}

#[tokio::test]
async fn a_pending_decision_is_the_same_decision() {
    let layer = RateLimitLayer::new(slow("sliding-log 1/60s", true)).observer(|seen| {
        let address: IpAddr = "203.0.113.9".parse().unwrap();
        assert_eq!(seen.key.unwrap().to_bytes(), address.to_bytes());
    });
    let first = ask(&layer, get()).await;
    assert_eq!((first.status().as_u16(), field(&first, "ratelimit")), (200, Some("\"default\";r=0;t=60")));
    assert_eq!(text(first).await, "hello");
    let second = ask(&layer, get()).await;
    assert_eq!((second.status().as_u16(), field(&second, "retry-after")), (429, Some("60")));
}

/// The service that is ready is called when the decision is there, not its clone.
#[tokio::test]
async fn the_ready_service_is_the_one_that_is_called() {
    let limited = tower::limit::ConcurrencyLimit::new(tower::service_fn(crate::support::answer), 1);
    let mut service = RateLimitLayer::new(slow("sliding-log 10/60s", true)).layer(limited);
    for _ in 0..3 {
        // It panics when it is called without having been ready.
        assert_eq!(service.ready().await.unwrap().call(get()).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_failed_backend_is_a_503_and_never_a_429() {
    let layer = RateLimitLayer::new(slow("sliding-log 1/60s", false)).observer(|seen| {
        let EventKind::BackendFailed(why) = seen.kind else { panic!("{:?}", seen.kind) };
        assert_eq!(why.to_string(), "the store is unavailable: 10.0.0.3 does not answer");
    });
    let response = ask(&layer, get()).await;
    assert_eq!((response.status().as_u16(), field(&response, "ratelimit")), (503, None));
    assert_eq!(field(&response, "content-type"), Some("application/problem+json"));
    let problem = text(response).await;
    assert!(!problem.contains("10.0.0.3"), "the client does not see internal hosts: {problem}");
    let grpc = ask(&layer, with(get(), "content-type", "application/grpc")).await;
    assert_eq!((grpc.status().as_u16(), field(&grpc, "grpc-status")), (200, Some("14")));
    assert_eq!(ask(&layer.shadow(), get()).await.status(), 200, "a shadow is not felt");
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_settled_before_the_response_is_sent() {
    let slow = slow("sliding-log 10/60s", true);
    let layer = RateLimitLayer::new(slow.clone()).settle(|outcome| match outcome {
        Completion::Dropped => sluicegate_tower::Charge::Keep,
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

#[tokio::test]
async fn a_dropped_request_still_settles_its_charge() {
    let slow = slow("sliding-log 10/60s", true);
    let layer = RateLimitLayer::new(slow.clone()).charge_if(|_| false);
    let mut response = Box::pin(layer.layer(tower::service_fn(answer)).oneshot(get()));
    let mut context = Context::from_waker(Waker::noop());
    while slow.closed.load(Ordering::Relaxed) == 0 {
        assert!(response.as_mut().poll(&mut context).is_pending(), "the store has not answered yet");
    }
    drop(response);
    assert_eq!(slow.closed.load(Ordering::Relaxed), 1001, "asked once, and once more in the background");
}
