//! A limit on the calls in flight of a service that is not HTTP.

use sluicegate_guard::{Bulkhead, Denial, ManualClock};
use sluicegate_tower::{BulkheadDenied, BulkheadLayer, BulkheadService};
use std::future::Future as _;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Semaphore;
use tower::limit::ConcurrencyLimitLayer;
use tower::util::BoxCloneService;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

type Doubling = BoxCloneService<u32, u32, io::Error>;

/// Doubles when it is let; 0 is an error, and 13 a panic.
fn doubling(lets: &Arc<Semaphore>) -> Doubling {
    let lets = Arc::clone(lets);
    BoxCloneService::new(service_fn(move |number: u32| {
        let lets = Arc::clone(&lets);
        async move {
            lets.acquire().await.unwrap().forget();
            assert!(number != 13, "an unlucky number");
            if number == 0 { Err(io::Error::other("nothing to double")) } else { Ok(2 * number) }
        }
    }))
}

fn behind(text: &str, lets: &Arc<Semaphore>) -> (BulkheadService<Doubling>, Bulkhead) {
    let layer = BulkheadLayer::new(Bulkhead::new(text).unwrap());
    let bulkhead = layer.bulkhead().clone();
    (layer.layer(doubling(lets)), bulkhead)
}

fn in_use(bulkhead: &Bulkhead) -> (u32, usize) {
    let stats = bulkhead.stats();
    (stats.in_use, stats.waiting)
}

#[tokio::test]
async fn a_permit_is_held_until_the_call_ends() {
    let lets = Arc::new(Semaphore::new(0));
    let (service, bulkhead) = behind("bulkhead 2", &lets);
    assert_eq!(in_use(&bulkhead), (0, 0));
    let good = tokio::spawn(service.clone().oneshot(7));
    let bad = tokio::spawn(service.clone().oneshot(0));
    while in_use(&bulkhead).0 < 2 {
        tokio::task::yield_now().await;
    }
    let refused = service.clone().oneshot(1).await.unwrap_err();
    assert_eq!(refused.downcast_ref::<BulkheadDenied>().map(BulkheadDenied::denial), Some(Denial::QueueFull));
    assert!(refused.to_string().starts_with("denied by the bulkhead: the queue is full"), "{refused}");
    lets.add_permits(2);
    assert_eq!(good.await.unwrap().unwrap(), 14);
    assert!(bad.await.unwrap().unwrap_err().is::<io::Error>(), "its own errors are passed on");
    assert_eq!(in_use(&bulkhead), (0, 0));

    lets.add_permits(1);
    assert!(tokio::spawn(service.clone().oneshot(13)).await.unwrap_err().is_panic());
    assert_eq!(in_use(&bulkhead), (0, 0));
    let dropped = tokio::spawn(service.oneshot(7));
    while in_use(&bulkhead).0 == 0 {
        tokio::task::yield_now().await;
    }
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    assert_eq!(in_use(&bulkhead), (0, 0));
}

#[tokio::test]
async fn waiters_are_served_in_order_and_leave_when_dropped() {
    let lets = Arc::new(Semaphore::new(0));
    let (service, bulkhead) = behind("bulkhead 1 queue=2 wait=1min", &lets);
    let mut context = Context::from_waker(Waker::noop());
    let mut first = pin!(service.clone().oneshot(1));
    let mut second = pin!(service.clone().oneshot(2));
    assert!(
        first.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending()
    );
    {
        let mut third = pin!(service.clone().oneshot(3));
        assert!(third.as_mut().poll(&mut context).is_pending());
        assert_eq!(in_use(&bulkhead), (1, 2));
        assert!(service.clone().oneshot(4).await.unwrap_err().is::<BulkheadDenied>(), "the queue is full");
    }
    assert_eq!(in_use(&bulkhead), (1, 1));
    lets.add_permits(2);
    assert!(matches!(first.poll(&mut context), Poll::Ready(Ok(2))));
    assert!(matches!(second.poll(&mut context), Poll::Ready(Ok(4))));
    assert_eq!(in_use(&bulkhead), (0, 0));
}

#[test]
fn a_wait_is_bounded() {
    let clock = ManualClock::default();
    let bulkhead = Bulkhead::builder("bulkhead 1 queue=1 wait=1s").clock(clock.clone()).build().unwrap();
    let _held = bulkhead.try_acquire().unwrap();
    let service = BulkheadLayer::new(bulkhead).layer(doubling(&Arc::new(Semaphore::new(9))));
    let mut context = Context::from_waker(Waker::noop());
    let mut call = pin!(service.oneshot(1));
    assert!(call.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_secs(1));
    let Poll::Ready(Err(error)) = call.poll(&mut context) else { panic!("it goes on waiting") };
    assert_eq!(error.downcast_ref::<BulkheadDenied>().map(BulkheadDenied::denial), Some(Denial::TooLong));
}

#[tokio::test]
async fn the_ready_service_is_the_one_that_is_called() {
    // It has one permit, which it takes when it is ready: a clone of it is not.
    let lets = Arc::new(Semaphore::new(9));
    let (bulkhead, limit) =
        (Bulkhead::new("bulkhead 1 queue=1 wait=1min").unwrap(), ConcurrencyLimitLayer::new(1));
    let mut service = BulkheadLayer::new(bulkhead.clone()).layer(limit.layer(doubling(&lets)));
    let held = bulkhead.try_acquire();
    let ready: &mut _ = service.ready().await.unwrap();
    let call = ready.call(5);
    drop(held);
    assert_eq!(call.await.unwrap(), 10);
}

#[tokio::test]
async fn an_adaptive_bulkhead_sees_outcomes() {
    let lets = Arc::new(Semaphore::new(9));
    let bulkhead = Bulkhead::adaptive("aimd 20 min=5").unwrap();
    let service = BulkheadLayer::new(bulkhead.clone()).layer(doubling(&lets));
    assert_eq!(service.clone().oneshot(1).await.unwrap(), 2);
    assert_eq!(bulkhead.stats().limit, 20, "less than half of it was used");
    assert!(service.oneshot(0).await.is_err());
    assert_eq!(bulkhead.stats().limit, 18);
}
