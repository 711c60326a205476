//! Requests that wait for their turn, in the time of a clock that is moved by hand.

use crate::support::{Body, answer, ask, field, get, limiter, with};
use http::{Request, Response, StatusCode};
use sluicegate::Limiter;
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate_tower::RateLimitLayer;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tower::{Layer as _, ServiceExt as _};

type Answer = Result<Response<Body>, Infallible>;
type Pending = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A layer before a service that writes down when it is called, and by whom.
struct Shop {
    layer: RateLimitLayer<Limiter>,
    clock: ManualClock,
    log: Arc<Mutex<Vec<String>>>,
    waiting: Vec<Pending>,
}

impl Shop {
    fn new(limits: &str, set: impl FnOnce(RateLimitLayer<Limiter>) -> RateLimitLayer<Limiter>) -> Shop {
        let (limiter, clock) = limiter(limits);
        Shop { layer: set(RateLimitLayer::new(limiter)), clock, log: Arc::default(), waiting: Vec::new() }
    }

    /// A request comes in, and is answered at once or waits.
    fn comes(&mut self, name: &'static str) -> Option<Response<Body>> {
        self.comes_with(name, get())
    }

    fn comes_with(&mut self, name: &'static str, request: Request<Body>) -> Option<Response<Body>> {
        let (log, clock) = (Arc::clone(&self.log), self.clock.clone());
        let service = self.layer.layer(tower::service_fn(move |request| {
            // A clock that is moved by hand starts at a round time.
            let now = clock.now().as_micros() / 1000 % 1_000_000;
            log.lock().unwrap().push(format!("{name} {now}"));
            answer(request)
        }));
        let mut pending: Pending = Box::pin(service.oneshot(request));
        match poll(&mut pending) {
            Poll::Ready(Ok(response)) => Some(response),
            Poll::Pending => {
                self.waiting.push(pending);
                None
            }
        }
    }

    /// Advances the clock by milliseconds, one at a time.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.clock.advance(Duration::from_millis(1));
            self.waiting.retain_mut(|pending| poll(pending).is_pending());
        }
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

fn poll(pending: &mut Pending) -> Poll<Answer> {
    pending.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn requests_wait_in_order_and_too_long_a_wait_is_denied() {
    let mut shop = Shop::new("token-bucket 10/s burst=1", |layer| layer.wait(Duration::from_millis(250)));
    assert_eq!(shop.comes("one").unwrap().status(), 200);
    assert!(shop.comes("two").is_none());
    assert!(shop.comes("three").is_none());
    let denied = shop.comes("four").unwrap();
    assert_eq!((denied.status().as_u16(), field(&denied, "retry-after")), (429, Some("1")));
    assert_eq!(field(&denied, "content-type"), Some("application/problem+json"));
    assert!(field(&denied, "ratelimit").is_some());
    shop.pass(300);
    assert_eq!(shop.log(), ["one 0", "two 100", "three 200"]);
}

#[test]
fn a_full_queue_denies_immediately() {
    let clock = ManualClock::default();
    let limiter =
        Limiter::builder("token-bucket 10/s burst=1").max_queue(2).clock(clock.clone()).build().unwrap();
    let mut shop =
        Shop::new("sliding-log 1/s", |_| RateLimitLayer::new(limiter).wait(Duration::from_secs(60)));
    shop.clock = clock;
    assert!(shop.comes("one").is_some() && shop.comes("two").is_none() && shop.comes("three").is_none());
    assert_eq!(shop.comes("four").unwrap().status(), 429);
}

#[test]
fn a_client_that_gives_up_leaves_no_trace() {
    let mut shop = Shop::new("token-bucket 10/s burst=1", |layer| layer.wait(Duration::from_secs(60)));
    shop.comes("one");
    shop.comes("two");
    shop.comes("three");
    drop(shop.waiting.remove(0));
    shop.pass(300);
    assert_eq!(shop.log(), ["one 0", "three 100"]);
}

#[test]
fn a_pacer_spaces_requests_without_wait() {
    let mut shop = Shop::new("pacer 10/s queue=2", |layer| layer);
    assert_eq!(shop.comes("one").unwrap().status(), 200);
    assert!(shop.comes("two").is_none() && shop.comes("three").is_none());
    assert_eq!(shop.comes("four").unwrap().status(), 429);
    shop.pass(300);
    assert_eq!(shop.log(), ["one 0", "two 100", "three 200"]);
}

#[test]
fn a_request_may_wait_and_be_refunded() {
    let settle = |layer: RateLimitLayer<Limiter>| {
        layer.wait(Duration::from_millis(250)).charge_if(|status| status == StatusCode::UNAUTHORIZED)
    };
    let mut shop = Shop::new("token-bucket 10/s burst=1", settle);
    let wrong = || with(get(), "x-status", "401");
    assert_eq!(shop.comes("one").unwrap().status(), 200);
    assert_eq!(shop.comes_with("two", wrong()).unwrap().status(), 401, "one was given back");
    assert!(shop.comes_with("three", wrong()).is_none());
    assert!(shop.comes_with("four", wrong()).is_none());
    assert_eq!(shop.comes_with("five", wrong()).unwrap().status(), 429);
    // Four gives up, and what it had reserved is there for six.
    drop(shop.waiting.pop());
    assert!(shop.comes_with("six", wrong()).is_none());
    shop.pass(300);
    assert_eq!(shop.log(), ["one 0", "two 0", "three 100", "six 200"]);
}

/// In real time, on a real runtime.
#[tokio::test]
async fn a_waiting_request_is_woken() {
    let layer =
        RateLimitLayer::new(Limiter::new("token-bucket 50/s burst=1").unwrap()).wait(Duration::from_secs(5));
    let began = std::time::Instant::now();
    for _ in 0..4 {
        assert_eq!(ask(&layer, get()).await.status(), 200);
    }
    assert!(began.elapsed() >= Duration::from_millis(59), "three of them had to wait for 20 ms");
}
