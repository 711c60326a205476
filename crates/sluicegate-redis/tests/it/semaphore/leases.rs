//! The life of a lease.

use super::{KEY, connect, leases, name, number, semaphore, until};
use crate::support::every_key_expires;
use redis_testkit::{Options, Server};
use sluicegate::BuildError;
use sluicegate::backend::{LeaseBackend, Source, StoreFailure};
use sluicegate::wait::Denial;
use sluicegate::{Span, Time};
use sluicegate_core::RetryAfter;
use sluicegate_redis::{LeaseLost, RedisLimiter, RedisSemaphore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn a_permit_is_held_until_its_lease_is_released_or_dropped() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let jobs = semaphore(&store, "concurrency 3 ttl=30s");
    let first = jobs.try_acquire(KEY, 1).await.unwrap();
    assert_eq!((first.allowed(), first.source(), first.denial()), (true, Source::Store, None));
    let second = jobs.try_acquire(KEY, 2).await.unwrap().lease().unwrap();
    let third = jobs.try_acquire(KEY, 1).await.unwrap();
    assert_eq!((third.allowed(), third.denial()), (false, Some(Denial::TooLong)));
    assert!(matches!(third.decision().retry_after(), Some(RetryAfter::After(_))), "{third:?}");
    assert!(third.lease().is_none());
    every_key_expires(&server);
    assert!(second.release().await.unwrap());
    assert_eq!(jobs.peek(KEY, 1).await.unwrap().remaining(), 2);
    drop(first);
    until("the dropped grant has released its lease", || server.cli(&["DBSIZE"]).trim() == "0").await;
}

#[tokio::test]
async fn a_kept_lease_is_renewed_and_released_by_its_id() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let here = semaphore(&store, "concurrency 1 ttl=30s");
    let text = here.try_acquire(KEY, 1).await.unwrap().lease().unwrap().keep().to_string();
    let there = semaphore(&connect(&server.url()).await, "concurrency 1 ttl=30s");
    let lease = text.parse().unwrap();
    assert!(there.renew(KEY, &lease).await.unwrap());
    assert!(!there.renew("user:43", &lease).await.unwrap(), "it is a lease of user:42");
    assert!(!there.try_acquire(KEY, 1).await.unwrap().allowed());
    assert!(there.release(KEY, &lease).await.unwrap());
    assert!(!there.release(KEY, &lease).await.unwrap(), "once");
    assert!(!there.renew(KEY, &lease).await.unwrap());
}

#[tokio::test]
async fn cost_0_needs_no_lease_and_too_much_is_never_granted() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 2 ttl=30s");
    let held = jobs.try_acquire(KEY, 2).await.unwrap().lease().unwrap();
    for grant in [jobs.try_acquire(KEY, 0).await.unwrap(), jobs.acquire(KEY, 0).await.unwrap()] {
        assert!(grant.allowed() && grant.lease().is_none());
    }
    for grant in [jobs.try_acquire(KEY, 3).await.unwrap(), jobs.acquire(KEY, 3).await.unwrap()] {
        assert_eq!(grant.denial(), Some(Denial::Never));
        assert_eq!(grant.decision().retry_after(), Some(RetryAfter::Never));
    }
    assert!(held.release().await.unwrap());
}

#[tokio::test]
async fn a_lower_limit_leaves_held_leases_alone() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let (many, few) =
        (semaphore(&store, "concurrency 5 ttl=30s"), semaphore(&store, "concurrency 2 ttl=10s"));
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(many.try_acquire(KEY, 1).await.unwrap().lease().unwrap());
    }
    assert!(!few.try_acquire(KEY, 1).await.unwrap().allowed());
    for lease in held.split_off(1) {
        assert!(lease.renew().await.unwrap() && lease.release().await.unwrap());
    }
    assert!(few.try_acquire(KEY, 1).await.unwrap().lease().unwrap().release().await.unwrap());
}

#[tokio::test]
async fn after_a_reset_the_leases_are_gone() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 3 ttl=30s");
    let lease = jobs.try_acquire(KEY, 3).await.unwrap().lease().unwrap();
    jobs.reset(KEY).await.unwrap();
    assert_eq!(server.cli(&["DBSIZE"]).trim(), "0");
    assert!(!lease.renew().await.unwrap());
    let next = jobs.try_acquire(KEY, 3).await.unwrap().lease().unwrap();
    assert!(!lease.release().await.unwrap(), "it releases no other lease");
    assert!(next.release().await.unwrap());
}

#[tokio::test]
async fn a_clock_that_steps_back_only_extends_leases() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 2 ttl=30s");
    let at = |second: u64| Time::from_micros(1_780_000_000_000_000 + second * 1_000_000).unwrap();
    let lease = jobs.try_acquire_at(KEY, 2, at(100)).await.unwrap().lease().unwrap().keep();
    let back = jobs.try_acquire_at(KEY, 1, at(40)).await.unwrap();
    assert_eq!(back.decision().retry_after(), Some(RetryAfter::After(Span::from_micros(90_000_000))));
    // Once seen as expired it is gone, even if the clock steps back.
    assert!(jobs.peek_at(KEY, 2, at(130)).await.unwrap().allowed());
    assert!(!jobs.renew_at(KEY, &lease, at(100)).await.unwrap());
    assert!(jobs.try_acquire_at(KEY, 2, at(100)).await.unwrap().lease().is_some());
}

#[tokio::test]
async fn work_continues_while_its_lease_is_renewed() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 1 ttl=1s");
    let lease = jobs.try_acquire(KEY, 1).await.unwrap().lease().unwrap();
    let until_three_ttls = sleep(Duration::from_secs(3));
    assert_eq!(
        lease
            .renew_while(async {
                until_three_ttls.await;
                7
            })
            .await,
        Ok(7)
    );
    assert!(lease.release().await.unwrap());
}

#[tokio::test]
async fn work_is_dropped_when_its_lease_is_lost() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 1 ttl=300ms");
    let lease = jobs.try_acquire(KEY, 1).await.unwrap().lease().unwrap();
    jobs.reset(KEY).await.unwrap();
    let is_dropped = Arc::new(AtomicBool::new(false));
    let work = Dropped(Arc::clone(&is_dropped));
    let lost = lease.renew_while(async move {
        let _work = work;
        std::future::pending::<()>().await;
    });
    assert_eq!(lost.await, Err(LeaseLost { failure: None }));
    assert!(is_dropped.load(Relaxed));
    // The store is unavailable for a whole ttl: another call may hold the permit by then.
    let began = Instant::now();
    let lease = jobs.try_acquire(KEY, 1).await.unwrap().lease().unwrap();
    server.kill();
    let lost = lease.renew_while(std::future::pending::<()>()).await.unwrap_err();
    assert!(
        matches!(lost.failure, Some(StoreFailure::Unavailable(_) | StoreFailure::Disconnected(_))),
        "{lost:?}"
    );
    assert!(began.elapsed() >= Duration::from_millis(250), "it retried until the lease may have expired");
    assert!(lost.to_string().contains("may have expired"), "{lost}");
}

#[tokio::test]
async fn costs_are_stored_only_if_one_exceeds_1() {
    let server = Server::start(&Options::redis());
    let jobs = semaphore(&connect(&server.url()).await, "concurrency 10 ttl=30s");
    let one = jobs.try_acquire(KEY, 1).await.unwrap().lease().unwrap();
    assert_eq!(server.cli(&["EXISTS", &name('k')]).trim(), "0");
    let four = jobs.try_acquire(KEY, 4).await.unwrap().lease().unwrap();
    assert_eq!((number(&server, &["HLEN", &name('k')]), leases(&server)), (2, 2));
    assert!(four.release().await.unwrap());
    assert_eq!(server.cli(&["EXISTS", &name('k')]).trim(), "0");
    assert!(one.release().await.unwrap());
}

#[tokio::test]
async fn an_invalid_semaphore_is_rejected_with_a_reason() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let said = |limits: &[&str]| {
        RedisSemaphore::builder(limits).in_store(&store, "jobs").build().unwrap_err().to_string()
    };
    assert_eq!(
        said(&["concurrency 10"]),
        "concurrency 10: on a shared store a lease must expire, or the permits of a dead process would never be freed; add ttl=DURATION, such as concurrency 10 ttl=30s"
    );
    assert_eq!(
        said(&["token-bucket 5/s"]),
        "token-bucket 5/s: a semaphore takes one concurrency limit; write concurrency 10 ttl=30s, or build a limiter from it"
    );
    assert!(said(&["concurrency 10 ttl=1s", "concurrency 5 ttl=1s"]).contains("one concurrency limit"));
    let no_store = RedisSemaphore::builder("concurrency 10 ttl=30s").build();
    assert_eq!(no_store.unwrap_err(), BuildError::NoStore);
    let bad_scope = RedisSemaphore::builder("concurrency 10 ttl=30s").in_store(&store, "a|b").build();
    assert!(matches!(bad_scope, Err(BuildError::BadScope(_))));
    let limiter = RedisLimiter::builder("concurrency 10 ttl=30s").in_store(&store, "jobs").build();
    assert!(matches!(limiter, Err(BuildError::Limit(_))), "{limiter:?}");
}

#[tokio::test]
async fn a_backends_lease_is_released_on_drop_unless_kept() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let jobs = semaphore(&store, "concurrency 1 ttl=30s");
    let backend: &dyn LeaseBackend = &jobs;
    let granted = backend.try_acquire(&KEY, 1, None).await.unwrap();
    assert!(granted.allowed() && granted.source() == Source::Store);
    drop(granted);
    let granted = backend.acquire(&KEY, 1, Some(Duration::from_secs(10))).await.unwrap();
    let kept = granted.lease().unwrap().keep();
    assert!(backend.renew(&KEY, &kept, None).await.unwrap());
    assert!(!backend.peek(&KEY, 1, None).await.unwrap().allowed());
    let refused = backend.acquire(&KEY, 1, Some(Duration::ZERO)).await.unwrap();
    assert_eq!(refused.denial(), Some(Denial::TooLong));
    assert!(backend.release(&KEY, &kept, None).await.unwrap());
    backend.reset(&KEY).await.unwrap();
    assert_eq!(backend.limit(), jobs.limit());
}
