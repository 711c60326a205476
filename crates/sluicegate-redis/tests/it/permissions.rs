//! The permissions in the manual are sufficient.

use crate::support::connect;
use redis_testkit::{Options, Server};
use sluicegate::backend::BackendError;
use sluicegate::{Limit, ReserveOptions, Ttl, VerbError};
use sluicegate_redis::{
    RedisLimiter, RedisReservation, RedisSemaphore, RedisStore, check_all, check_each, reserve_all,
};
use std::time::Duration;

const MANUAL: &str = include_str!("../../../../docs/shared.md");

/// One per algorithm, and those with another kind of state.
const LIMITS: [&str; 13] = [
    "min-interval 1ms",
    "token-bucket 100/s burst=50",
    "leaky-bucket 100/s capacity=50",
    "pacer 100/s",
    "fixed-window 100/1s",
    "fixed-window 100/day tz=Europe/Berlin",
    "sliding-window 100/1s",
    "sliding-log 100/1s",
    "sliding-log 5000/1h",
    "sliding-log 100/1s count=all",
    "sliding-log 5000/1h count=all",
    "smooth 100/s",
    "smooth 100/s warmup=1s",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_manuals_user_has_all_permissions_it_needs() {
    let line = MANUAL.lines().find(|line| line.starts_with("ACL SETUSER ")).expect("an ACL line");
    assert!(line.contains(">PASSWORD"), "{line}");
    let line = line.replace("PASSWORD", "secret");
    let words: Vec<&str> = line.split_whitespace().collect();
    let user = words[2];
    for options in [Some(Options::redis()), Options::valkey()].into_iter().flatten() {
        let server = Server::start(&options);
        assert_eq!(server.cli(&words), "OK");
        let url = format!("redis://{user}:secret@127.0.0.1:{}", server.port());
        let store = connect(&url).await;
        for algorithm in Limit::CHECKS {
            assert!(LIMITS.iter().any(|limit| limit.starts_with(algorithm)), "{algorithm} is not tested");
        }
        for limit in LIMITS {
            every_verb(&store, limit, &[limit]).await;
        }
        every_verb(
            &store,
            "list",
            &["token-bucket 100/s burst=50", "sliding-log 100/1s", "fixed-window 9/1s"],
        )
        .await;
        every_verb_of_a_semaphore(&store).await;
        // As the store sees it: calls that a script was not allowed are included.
        assert_eq!(server.cli(&["ACL", "LOG"]), "");
    }
}

async fn every_verb(store: &RedisStore, scope: &str, limits: &[&str]) {
    let limiter = RedisLimiter::builder(limits).in_store(store, scope).build().unwrap();
    let key = "user:42";
    let _ = limiter.check(key).await.unwrap();
    let _ = limiter.check_cost(key, 0).await.unwrap();
    let _ = limiter.peek(key, 1).await.unwrap();
    limiter.next_window(key).await.unwrap();
    limiter.usage(key).await.unwrap();
    supported(limiter.take(key, 3).await);
    supported(limiter.refund(key, 1).await);
    for settles in [false, true] {
        let reserved = supported(limiter.reserve(key, 1, Duration::from_secs(1)).await);
        match reserved.and_then(RedisReservation::keep) {
            Some(receipt) if settles => drop(limiter.settle(&receipt, 2).await.unwrap()),
            Some(receipt) => drop(limiter.cancel(&receipt).await.unwrap()),
            None => {}
        }
    }
    let options = ReserveOptions::default().ttl(Ttl::cancel(Duration::from_millis(20)));
    for options in [options, options.at_least(1)] {
        let reserved = supported(limiter.reserve(key, 1, options).await);
        if let Some(receipt) = reserved.and_then(RedisReservation::keep) {
            let _ = limiter.extend(&receipt, 1, None).await.unwrap();
        }
    }
    // The receipts have expired.
    tokio::time::sleep(Duration::from_millis(25)).await;
    let _ = limiter.peek(key, 1).await.unwrap();
    let _ = limiter.check(key).await.unwrap();
    // Enough for a log that is too long to be read at once.
    let many: Vec<_> = (0..600).map(|_| limiter.call(key.as_bytes(), 1)).collect();
    for answer in check_each(&many).await {
        let _ = answer.unwrap();
    }
    // The bucket is empty by now, so this call waits.
    let _ = limiter.acquire_within(key, 1, Duration::from_millis(20)).await.unwrap();
    supported(limiter.check_within(key, 1, Duration::from_secs(1)).await);
    let goes_alone = limits.iter().any(|limit| limit.contains("count=all") || limit.contains("smooth"));
    if !goes_alone {
        let calls = [limiter.call(b"user:42", 1), limiter.call(b"user:43", 2)];
        let _ = check_all(&calls).await.unwrap();
        let _ = reserve_all(&calls, Duration::from_secs(100)).await.unwrap().cancel().await.unwrap();
    }
    // The same keys with another limit.
    let changed: Vec<String> =
        limits.iter().map(|limit| limit.replace("100/", "70/").replace("5000/", "3000/")).collect();
    let changed: Vec<&str> = changed.iter().map(String::as_str).collect();
    let changed = RedisLimiter::builder(changed.as_slice()).in_store(store, scope).build().unwrap();
    let _ = changed.check(key).await.unwrap();
    supported(changed.refund(key, 1).await);
    changed.reset(key).await.unwrap();
}

async fn every_verb_of_a_semaphore(store: &RedisStore) {
    let key = "user:42";
    let jobs = RedisSemaphore::builder("concurrency 3 ttl=20ms").in_store(store, "jobs").build().unwrap();
    // A lease that expires, and one whose permit a call waits for.
    let _expires = jobs.try_acquire(key, 3).await.unwrap().lease().unwrap().keep();
    let lease = jobs.acquire(key, 2).await.unwrap().lease().unwrap();
    let _ = jobs.acquire_within(key, 3, Duration::ZERO).await.unwrap();
    let _ = jobs.peek(key, 1).await.unwrap();
    let _ = lease.renew().await.unwrap();
    let _ = lease.release().await.unwrap();
    jobs.reset(key).await.unwrap();
}

/// Not every limit supports every verb.
fn supported<T>(result: Result<T, BackendError>) -> Option<T> {
    match result {
        Ok(answered) => Some(answered),
        Err(BackendError::Verb(VerbError::Unsupported(_))) => None,
        Err(error) => panic!("{error}"),
    }
}
