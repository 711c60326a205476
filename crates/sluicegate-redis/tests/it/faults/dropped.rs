//! Callers that are dropped before their answer arrives.

use crate::support::{LONG, alone, connect, panics, watch_for_panics};
use redis_testkit::{Options, Server};
use sluicegate::backend::{Answer, StoreFailure};
use sluicegate_redis::{RedisLimiter, check_each};
use std::time::Duration;
use tokio::time::sleep;

const LIMIT: u64 = 1000;
const KEYS: u64 = 40;
const CALLERS: u64 = 8;
const CALLS: u64 = 2500;

/// Each key has used a different part of its limit, and nothing more is charged, so that an answer
/// for another key shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answers_of_dropped_calls_reach_no_other_caller() {
    let _alone = alone().await;
    watch_for_panics();
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limits = ["token-bucket", "fixed-window", "sliding-log", "sliding-window"];
    let make = |limit: &str| {
        let limit = format!("{limit} {LIMIT}/{LONG}");
        RedisLimiter::builder(&limit).in_store(&store, &limit).build().unwrap()
    };
    let limiters: Vec<RedisLimiter> = limits.into_iter().map(make).collect();
    for (limiter, key) in all_keys(&limiters) {
        assert!(limiters[limiter].check_cost(name(key), used(limiter, key)).await.unwrap().allowed());
    }
    let caller = |_| {
        let limiters = limiters.clone();
        tokio::spawn(async move {
            let mut answered = 0;
            for _ in 0..CALLS {
                // A call takes a fraction of a millisecond: many are dropped, at any step. Some
                // wait for their answer however long it takes, because on a busy machine few others
                // would get one.
                if fastrand::u8(..4) == 0 {
                    call(&limiters).await;
                    answered += 1;
                    continue;
                }
                let patience = Duration::from_micros(fastrand::u64(..1500));
                tokio::select! {
                    () = call(&limiters) => answered += 1,
                    () = yield_for(patience) => {}
                }
            }
            answered
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    let mut answered = 0;
    for caller in callers {
        answered += caller.await.unwrap();
    }
    let dropped = CALLERS * CALLS - answered;
    assert!(answered > 1000 && dropped > 1000, "{answered} answered, {dropped} dropped");
    assert_eq!(panics(), Vec::<String>::new());
}

/// Calls one of three verbs that leave the key as it is.
async fn call(limiters: &[RedisLimiter]) {
    let any = || (fastrand::usize(..limiters.len()), fastrand::u64(..KEYS));
    let is_its_own = |(limiter, key), answer: Result<Answer, StoreFailure>| {
        assert_eq!(answer.unwrap().remaining(), LIMIT - used(limiter, key), "limiter {limiter}, key {key}");
    };
    let one = any();
    match fastrand::u8(..3) {
        0 => is_its_own(one, limiters[one.0].peek(name(one.1), 1).await),
        // More than remains: a denial changes nothing.
        1 => is_its_own(one, limiters[one.0].check_cost(name(one.1), LIMIT).await),
        _ => {
            let several = [one, any(), any()];
            let names = several.map(|(_, key)| name(key));
            let calls =
                [0, 1, 2].map(|index| limiters[several[index].0].call(names[index].as_bytes(), LIMIT));
            for (call, answer) in several.into_iter().zip(check_each(&calls).await) {
                is_its_own(call, answer);
            }
        }
    }
}

/// The timer's resolution is a millisecond: shorter times are spent yielding.
async fn yield_for(time: Duration) {
    if time >= Duration::from_millis(1) {
        return sleep(time).await;
    }
    let began = std::time::Instant::now();
    while began.elapsed() < time {
        tokio::task::yield_now().await;
    }
}

fn all_keys(limiters: &[RedisLimiter]) -> impl Iterator<Item = (usize, u64)> {
    (0..limiters.len()).flat_map(|limiter| (0..KEYS).map(move |key| (limiter, key)))
}

fn name(key: u64) -> String {
    format!("key {key}")
}

fn used(limiter: usize, key: u64) -> u64 {
    1 + u64::try_from(limiter).unwrap() * KEYS + key
}
