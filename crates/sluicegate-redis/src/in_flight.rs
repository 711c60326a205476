//! The in-flight limit: how many calls may be in flight to a store.
//!
//! A store executes one call after another. Calls beyond what it executes in a moment would only
//! queue there, with their deadlines running, and be charged even if the reply is too late. So they
//! wait here instead, where waiting costs nothing. The limit follows the latency: it falls when
//! replies take a good part of the deadline, and rises when they are quick and calls are waiting.
//!
//! It is not the library's `Bulkhead`: a batch takes several permits at once, and the latency is
//! compared with the deadline, not with past latency.

use sluicegate::backend::StoreFailure;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// The lowest limit, and the most permits for one batch.
const LIMIT_MIN: usize = 128;
/// The initial limit: enough to keep a store busy, and far from a deadline of 50 ms.
const LIMIT_INITIAL: usize = 256;
/// The highest limit: enough for a large cluster.
const LIMIT_MAX: usize = 8_192;

/// The in-flight limit of a store.
pub(crate) struct InFlight {
    permits: Semaphore,
    /// The limit. It stays locked while permits are added or removed, so that there are never fewer
    /// than [`LIMIT_MIN`]: otherwise a batch, and every call behind it, would wait forever.
    limit: Mutex<usize>,
    deadline: Duration,
}

impl InFlight {
    pub(crate) fn new(deadline: Duration) -> InFlight {
        InFlight { permits: Semaphore::new(LIMIT_INITIAL), limit: Mutex::new(LIMIT_INITIAL), deadline }
    }

    /// Returns permits for a batch, if they are free.
    pub(crate) fn try_acquire(&self, calls: usize) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire_many(permits_for(calls)).ok()
    }

    /// Waits for permits for a batch, for at most the deadline of a call.
    pub(crate) async fn acquire(&self, calls: usize) -> Result<SemaphorePermit<'_>, StoreFailure> {
        match timeout(self.deadline, self.permits.acquire_many(permits_for(calls))).await {
            Ok(Ok(permit)) => Ok(permit),
            // (The semaphore is never closed.)
            Ok(Err(_)) | Err(_) => Err(StoreFailure::Unavailable(format!(
                "too many calls in flight for its deadline of {:?}; this one was not sent",
                self.deadline
            ))),
        }
    }

    /// Adapts the limit to the latency of an answer.
    pub(crate) fn answered_after(&self, took: Duration) {
        if self.is_slow(took) {
            self.lower();
        } else if took < self.deadline / 16 && self.permits.available_permits() == 0 {
            let mut limit = self.limit();
            let more = (*limit / 16).min(LIMIT_MAX.saturating_sub(*limit));
            *limit += more;
            self.permits.add_permits(more);
        }
    }

    /// Adapts the limit to the time that a call took to fail. A quick failure says nothing about
    /// the load.
    pub(crate) fn failed_after(&self, took: Duration) {
        if self.is_slow(took) {
            self.lower();
        }
    }

    fn is_slow(&self, took: Duration) -> bool {
        took > self.deadline / 4
    }

    fn lower(&self) {
        let mut limit = self.limit();
        // Only free permits can be removed, not those of calls in flight.
        *limit -= self.permits.forget_permits((*limit / 8).min(limit.saturating_sub(LIMIT_MIN)));
    }

    fn limit(&self) -> MutexGuard<'_, usize> {
        // Nothing panics under this lock, and the value is always valid.
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No batch takes more permits than the lowest limit.
fn permits_for(calls: usize) -> u32 {
    u32::try_from(calls.min(LIMIT_MIN)).unwrap_or(u32::MAX)
}

#[cfg(all(test, feature = "_testkit"))]
mod tests {
    use super::*;
    use crate::{OnStoreFailure, RedisLimiter, RedisStore, RedisStoreBuilder, check_all, check_each};
    use redis_testkit::{Options, Server};
    use sluicegate::backend::Source;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::{Arc, Barrier};
    use std::thread;
    use std::time::Instant;

    const DEADLINE: Duration = Duration::from_millis(50);
    /// Longer than any answer takes.
    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn slow_answers_lower_the_limit_but_never_below_a_batch() {
        let in_flight = InFlight::new(DEADLINE);
        for _ in 0..100 {
            in_flight.answered_after(DEADLINE / 2);
        }
        assert_eq!((*in_flight.limit(), in_flight.permits.available_permits()), (LIMIT_MIN, LIMIT_MIN));
        assert!(in_flight.acquire(1_000).await.is_ok(), "a larger batch takes no more permits than that");
    }

    #[tokio::test]
    async fn quick_answers_raise_the_limit_only_if_no_permit_is_free() {
        let in_flight = InFlight::new(DEADLINE);
        in_flight.answered_after(Duration::ZERO);
        assert_eq!(*in_flight.limit(), LIMIT_INITIAL);
        for _ in 0..1_000 {
            let free = in_flight.permits.available_permits();
            let _held = in_flight.permits.acquire_many(u32::try_from(free).unwrap()).await;
            in_flight.answered_after(Duration::ZERO);
        }
        assert_eq!(*in_flight.limit(), LIMIT_MAX);
        assert_eq!(*in_flight.limit(), in_flight.permits.available_permits(), "none is lost");
    }

    #[test]
    fn concurrent_slow_answers_leave_enough_permits_for_a_batch() {
        const AT_ONCE: usize = 4;
        for round in 0..500 {
            let (in_flight, begin) = (InFlight::new(DEADLINE), Barrier::new(AT_ONCE));
            thread::scope(|scope| {
                for _ in 0..AT_ONCE {
                    scope.spawn(|| {
                        begin.wait();
                        for _ in 0..50 {
                            in_flight.answered_after(DEADLINE);
                        }
                    });
                }
            });
            let left = (*in_flight.limit(), in_flight.permits.available_permits());
            assert_eq!(left, (LIMIT_MIN, LIMIT_MIN), "round {round}");
        }
    }

    /// A store at an address where nothing listens.
    async fn unavailable(scheme: &str) -> RedisStore {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        connected(RedisStore::builder(&format!("{scheme}://127.0.0.1:{port}")).connect_later(), LONG).await
    }

    async fn connected(store: RedisStoreBuilder, deadline: Duration) -> RedisStore {
        store.deadline(deadline).connect().await.unwrap()
    }

    fn limiter(store: &RedisStore, on_store_failure: OnStoreFailure) -> RedisLimiter {
        let builder = RedisLimiter::builder("fixed-window 1000/day").in_store(store, "api");
        builder.on_store_failure(on_store_failure).build().unwrap()
    }

    async fn all_permits(store: &RedisStore) -> Vec<SemaphorePermit<'_>> {
        let mut permits = Vec::new();
        for _ in 0..LIMIT_INITIAL / LIMIT_MIN {
            permits.push(store.inner.in_flight.acquire(LIMIT_MIN).await.unwrap());
        }
        permits
    }

    #[tokio::test]
    async fn a_store_that_was_never_reached_is_not_up() {
        for scheme in ["redis", "redis+cluster"] {
            let store = unavailable(scheme).await;
            assert!(!store.is_up() && !store.is_partly_up(), "{scheme}: {:?}", store.health());
        }
    }

    #[tokio::test]
    async fn no_call_waits_for_a_permit_while_the_store_is_unavailable() {
        let store = unavailable("redis").await;
        let allows = limiter(&store, OnStoreFailure::Allow);
        let _all = all_permits(&store).await;
        let began = Instant::now();
        let answers = check_each(&[allows.call("user:42", 1)]).await;
        assert_eq!(answers[0].as_ref().unwrap().source(), Source::Allowed);
        assert_eq!(allows.peek("user:42", 1).await.unwrap().source(), Source::Allowed);
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
        assert_eq!(store.stats().answers_by(Source::Allowed), 2);
    }

    #[tokio::test]
    async fn a_call_that_gets_no_permit_in_time_uses_its_fallback() {
        let redis = Server::start(&Options::redis());
        let store = connected(RedisStore::builder(&redis.url()), Duration::from_secs(1)).await;
        let [allows, fails] =
            [OnStoreFailure::Allow, OnStoreFailure::Error].map(|policy| limiter(&store, policy));
        let all = all_permits(&store).await;
        let (each, together) =
            ([allows.call("user:42", 1), fails.call("user:42", 1)], [allows.call("user:42", 1)]);
        let (answers, together) = tokio::join!(check_each(&each), check_all(&together));
        assert_eq!(answers[0].as_ref().unwrap().source(), Source::Allowed);
        let failure = answers[1].as_ref().unwrap_err();
        assert!(!failure.may_have_charged() && failure.to_string().contains("was not sent"), "{failure}");
        assert!(together.is_err_and(|error| error.to_string().contains("was not sent")));
        assert_eq!(store.stats().failures.unavailable, 3);
        drop(all);
        loop {
            let answer = allows.peek("user:42", 1).await.unwrap();
            // A busy machine may miss the deadline.
            if answer.source() == Source::Store {
                break assert_eq!(answer.remaining(), 1000, "nothing was charged");
            }
        }
    }

    #[tokio::test]
    async fn a_waiter_dropped_before_it_is_sent_cancels_nothing() {
        let redis = Server::start(&Options::redis());
        let sent = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&sent);
        let builder = RedisStore::builder(&redis.url())
            .on_round_trip(move |calls, _| _ = counter.fetch_add(calls, Relaxed));
        let store = connected(builder, LONG).await;
        let limiter = RedisLimiter::builder("token-bucket 1/h").in_store(&store, "api").build().unwrap();
        let all = all_permits(&store).await;
        let dropped = tokio::time::timeout(DEADLINE, limiter.acquire("user:42", 1)).await;
        assert!(dropped.is_err(), "no permit is free, so the call is not sent");
        drop(all);
        // A cancel would be sent by another task, before this call.
        tokio::time::sleep(DEADLINE).await;
        assert!(limiter.check("user:42").await.unwrap().allowed(), "nothing was charged");
        assert_eq!(sent.load(Relaxed), 1, "the check alone");
    }

    #[tokio::test]
    async fn answers_that_never_come_lower_the_limit() {
        let redis = Server::start(&Options::redis());
        let store = connected(RedisStore::builder(&redis.url()), DEADLINE).await;
        let allows = limiter(&store, OnStoreFailure::Allow);
        redis.stop();
        let answers = check_each(&[allows.call("user:42", 1)]).await;
        redis.cont();
        assert_eq!(answers[0].as_ref().unwrap().source(), Source::Allowed);
        assert!(*store.inner.in_flight.limit() < LIMIT_INITIAL);
    }
}
