//! Helpers for tests of a shared store.

mod alone;
mod load;
mod panics;

pub(crate) use alone::alone;
pub(crate) use load::{Load, Report};
pub(crate) use panics::{panics, watch_for_panics};

use redis_testkit::Server;
use sluicegate::backend::Source;
use sluicegate_redis::{ConnectError, RedisLimiter, RedisStore, RedisStoreBuilder};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A period so long that nothing recovers during a test.
pub(crate) const LONG: &str = "3650d";

/// Far longer than anything takes on a busy machine: a deadline that is not under test, and the
/// bound on every wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// A store whose deadline is not under test.
pub(crate) async fn connect(url: &str) -> RedisStore {
    connect_with(RedisStore::builder(url).deadline(WAIT_MAX)).await
}

/// A store with the default deadline.
pub(crate) async fn connect_by_default(url: &str) -> RedisStore {
    connect_with(RedisStore::builder(url)).await
}

/// Connects, even on a machine so busy that it takes longer than the builder waits.
pub(crate) async fn connect_with(builder: RedisStoreBuilder) -> RedisStore {
    let began = Instant::now();
    loop {
        match builder.clone().connect().await {
            Ok(store) => return store,
            Err(ConnectError::Unreachable(_)) if began.elapsed() < WAIT_MAX => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WAIT_MAX, "timed out waiting until {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Runs a call, and returns whether it ended by its deadline and a little more.
///
/// This is exact however busy the machine is: the call is polled before the timer, and a call past
/// its deadline ends on its next poll.
pub(crate) async fn by<T>(deadline: Duration, call: impl Future<Output = T>) -> (T, bool) {
    const GRACE: Duration = Duration::from_millis(25);
    let mut call = pin!(call);
    tokio::select! {
        biased;
        answer = &mut call => (answer, true),
        // Starts after the first poll of the call, so that the call's own deadline started before
        // it.
        () = async { sleep(deadline + GRACE).await } => (call.await, false),
    }
}

/// A limiter of one limit, with its text as the scope.
pub(crate) fn limiter(store: &RedisStore, limit: &str) -> RedisLimiter {
    RedisLimiter::builder(limit).in_store(store, limit).build().unwrap()
}

/// Peeks until the store itself answers.
pub(crate) async fn until_answered(limiter: &RedisLimiter) {
    let began = Instant::now();
    loop {
        let answer = limiter.peek("is anybody there?", 1).await;
        if answer.as_ref().is_ok_and(|answer| answer.source() == Source::Store) {
            return;
        }
        assert!(began.elapsed() < WAIT_MAX, "still {answer:?} after {WAIT_MAX:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Every key has an expiry.
pub(crate) fn every_key_expires(server: &Server) {
    const FOREVER: &str = "\
local forever = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) == -1 then forever[#forever + 1] = key end
end
return forever";
    assert_ne!(server.cli(&["DBSIZE"]), "0", "there are keys");
    assert_eq!(server.cli(&["EVAL", FOREVER, "0"]), "", "keys without an expiry");
}
