//! What tests of a shared store need.

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

/// So long a period that nothing comes back while a test runs.
pub(crate) const LONG: &str = "3650d";

/// Far longer than anything takes on a busy machine: a deadline that is not what is tested, and the limit on every wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A store whose deadline is not what is tested.
pub(crate) async fn connect(url: &str) -> RedisStore {
    connect_with(RedisStore::builder(url).deadline(PATIENCE)).await
}

/// A store with the deadline that callers get by default.
pub(crate) async fn connect_by_default(url: &str) -> RedisStore {
    connect_with(RedisStore::builder(url)).await
}

/// Connects, also on a machine so busy that it takes longer than a builder waits.
pub(crate) async fn connect_with(builder: RedisStoreBuilder) -> RedisStore {
    let began = Instant::now();
    loop {
        match builder.clone().connect().await {
            Ok(store) => return store,
            Err(ConnectError::Unreachable(_)) if began.elapsed() < PATIENCE => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Makes a call, and tells whether it was back by its deadline and a little.
///
/// However busy the machine is, this is exact: the call is asked before the timer, and one whose deadline is over has its
/// answer as soon as it is asked.
pub(crate) async fn by<T>(deadline: Duration, call: impl Future<Output = T>) -> (T, bool) {
    const GRACE: Duration = Duration::from_millis(25);
    let mut call = pin!(call);
    tokio::select! {
        biased;
        answer = &mut call => (answer, true),
        // Begins when the call has been asked for the first time, so that its own time began before.
        () = async { sleep(deadline + GRACE).await } => (call.await, false),
    }
}

/// A limiter of one limit, whose scope is its text.
pub(crate) fn limiter(store: &RedisStore, limit: &str) -> RedisLimiter {
    RedisLimiter::builder(limit).in_store(store, limit).build().unwrap()
}

/// Asks, without charging, until the store itself answers.
pub(crate) async fn until_answered(limiter: &RedisLimiter) {
    let began = Instant::now();
    loop {
        let answer = limiter.peek("is anybody there?", 1).await;
        if answer.as_ref().is_ok_and(|answer| answer.source() == Source::Store) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "after {PATIENCE:?} still {answer:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Everything that was written goes away by itself.
pub(crate) fn every_key_expires(server: &Server) {
    const FOREVER: &str = "\
local forever = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) == -1 then forever[#forever + 1] = key end
end
return forever";
    assert_ne!(server.cli(&["DBSIZE"]), "0", "there are keys to look at");
    assert_eq!(server.cli(&["EVAL", FOREVER, "0"]), "", "keys without an expiry");
}
