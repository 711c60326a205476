//! Two processes with different limits on one busy key, as while a change is rolled out.

use crate::support::connect;
use redis_testkit::{Options, Server};
use sluicegate::backend::{BackendError, StoreFailure};
use sluicegate::{Span, Time, VerbError};
use sluicegate_redis::{RedisLimiter, check_all};
use std::time::Duration;

const KEY: &str = "user:42";
const WAIT: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_check_fails_while_two_rates_are_in_use() {
    let server = Server::start(&Options::redis());
    let changes = [
        ["token-bucket 100/s", "token-bucket 120/s"],
        ["leaky-bucket 7/3s capacity=15", "leaky-bucket 1/7s capacity=30"],
        ["min-interval 1ms", "min-interval 3ms"],
        ["pacer 1000/s queue=5", "pacer 900/min queue=5"],
    ];
    for limits in changes {
        let mut callers = Vec::new();
        for limit in limits {
            let store = connect(&server.url()).await;
            let limiter = RedisLimiter::builder(limit).in_store(&store, limits[0]).build().unwrap();
            for _ in 0..16 {
                let limiter = limiter.clone();
                callers.push(tokio::spawn(async move {
                    let mut failures = Vec::new();
                    for _ in 0..250 {
                        failures.extend(limiter.check("user:42").await.err());
                    }
                    failures
                }));
            }
        }
        let mut failures = Vec::new();
        for caller in callers {
            failures.extend(caller.await.unwrap());
        }
        assert!(failures.is_empty(), "{limits:?}: {} of 8000, {:?}", failures.len(), failures[0]);
    }
}

/// Calls every verb, and returns the failures of the store.
async fn call_all(limiter: &RedisLimiter) -> Vec<StoreFailure> {
    let mut errors: Vec<BackendError> = Vec::new();
    errors.extend(limiter.check(KEY).await.err().map(BackendError::Store));
    errors.extend(limiter.peek(KEY, 1).await.err().map(BackendError::Store));
    errors.extend(limiter.next_window(KEY).await.err().map(BackendError::Store));
    errors.extend(limiter.take(KEY, 2).await.err());
    errors.extend(limiter.check_within(KEY, 1, WAIT).await.err());
    for used in [0, 1, 3] {
        match limiter.reserve(KEY, 2, WAIT).await {
            Ok(reserved) if used == 0 => errors.extend(reserved.cancel().await.err()),
            Ok(reserved) => errors.extend(reserved.settle(used).await.err()),
            Err(error) => errors.push(error),
        }
    }
    errors.extend(limiter.refund(KEY, 1).await.err());
    let failure = |error| match error {
        BackendError::Store(failure) => Some(failure),
        BackendError::Verb(VerbError::Unsupported(_)) => None,
        other => panic!("{other}"),
    };
    errors.into_iter().filter_map(failure).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_verb_fails_while_two_limits_are_in_use() {
    let server = Server::start(&Options::redis());
    let changes: [[&[&str]; 2]; 4] = [
        [&["token-bucket 100/s"], &["token-bucket 120/s"]],
        [
            &["token-bucket 100/s initial=5 start=2026-01-01T00:00:00Z"],
            &["token-bucket 7/3s burst=9 initial=5 start=2026-01-01T00:00:00Z"],
        ],
        [&["smooth 1000/s"], &["smooth 900/s burst=7"]],
        [
            &["token-bucket 1000/s", "leaky-bucket 7/3s capacity=900", "fixed-window 9000/1h"],
            &["token-bucket 900/s", "leaky-bucket 9/2s capacity=900", "fixed-window 8000/1h"],
        ],
    ];
    for limits in changes {
        let mut callers = Vec::new();
        for list in limits {
            let store = connect(&server.url()).await;
            let limiter = RedisLimiter::builder(list).in_store(&store, limits[0][0]).build().unwrap();
            for _ in 0..8 {
                let limiter = limiter.clone();
                callers.push(tokio::spawn(async move {
                    let mut failures = Vec::new();
                    for _ in 0..20 {
                        failures.extend(call_all(&limiter).await);
                    }
                    failures
                }));
            }
        }
        let mut failures = Vec::new();
        for caller in callers {
            failures.extend(caller.await.unwrap());
        }
        assert!(failures.is_empty(), "{limits:?}: {} failures, {:?}", failures.len(), failures[0]);
    }
}

/// Rates of such numbers are not converted in the store.
#[tokio::test]
async fn the_longest_lists_survive_a_change_of_every_rate() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limiters = |count: u64| -> Vec<RedisLimiter> {
        let limits: Vec<String> = (count..count + 8).map(|n| format!("token-bucket {n}/3650d")).collect();
        let limiter = |n| RedisLimiter::builder(&*limits).in_store(&store, &format!("list{n}")).build();
        (0..8).map(|n| limiter(n).unwrap()).collect()
    };
    let (before, after) = (limiters(900_001), limiters(800_001));
    for limiters in [&before, &after, &before] {
        assert!(limiters[0].check(KEY).await.unwrap().allowed());
        let calls: Vec<_> = limiters.iter().map(|limiter| limiter.call(KEY, 1)).collect();
        assert!(check_all(&calls).await.unwrap().0.allowed());
        assert!(limiters[7].reserve(KEY, 1, Duration::ZERO).await.is_ok());
    }
}

/// The second pair of rates is converted outside the store, because it takes more than 53 bits.
#[tokio::test]
async fn receipts_survive_a_change_of_rate() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let now = Time::from_micros(1_763_290_000_000_000).unwrap();
    let rates = [["10/s", "7/3s"], ["900001/3650d", "800001/3650d"]];
    for (open, [before, after]) in
        [1, 200, 1_000].into_iter().flat_map(|open| rates.map(|rates| (open, rates)))
    {
        let scope = format!("{before}x{open}");
        let limiter = |rate: &str| {
            let limiter = RedisLimiter::builder(format!("token-bucket {rate} burst=9000"));
            limiter.in_store(&store, &scope).build().unwrap()
        };
        let (before, after) = (limiter(before), limiter(after));
        let mut receipts = Vec::new();
        for _ in 0..open {
            let reserved = before.reserve_at(KEY, 3, Span::ZERO, now).await.unwrap();
            receipts.push(reserved.keep().unwrap());
        }
        let mut used = 3 * open;
        for (index, receipt) in receipts.iter().enumerate() {
            let limiter = if index % 10 == 9 { &before } else { &after };
            if index % 2 == 0 {
                assert!(limiter.cancel_at(receipt, now).await.unwrap(), "{open} open: {index}");
                used -= 3;
            } else {
                assert!(limiter.settle_at(receipt, 1, now).await.unwrap(), "{open} open: {index}");
                used -= 2;
            }
            let remaining = limiter.peek_at(KEY, 1, now).await.unwrap().remaining();
            // Each conversion rounds up, by less than a unit in all.
            let expected = 9_000 - used;
            assert!(
                (expected - 1..=expected).contains(&remaining),
                "{open} open: {index}: {remaining}, {expected}"
            );
            assert!(!limiter.cancel_at(receipt, now).await.unwrap(), "used");
        }
    }
}
