//! What tests of a shared store need.

mod alone;
mod heartbeat;
mod load;
mod panics;

pub(crate) use alone::alone;
pub(crate) use load::Load;
pub(crate) use panics::{panics, watch_for_panics};

use sluicegate::Source;
use sluicegate_redis::{RedisLimiter, RedisStore};
use sluicegate_servers::Server;
use std::time::{Duration, Instant};

/// So long a period that nothing comes back while a test runs.
pub(crate) const LONG: &str = "3650d";

/// How long it may take a store that is back until it is used again.
const BACK_AGAIN: Duration = Duration::from_secs(5);

pub(crate) async fn connect(url: &str) -> RedisStore {
    RedisStore::connect(url).await.unwrap()
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
        assert!(began.elapsed() < BACK_AGAIN, "after {BACK_AGAIN:?} still {answer:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
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
