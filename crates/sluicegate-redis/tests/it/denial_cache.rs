//! Cached denials: fewer round trips, and the same answers.

use crate::support::WAIT_MAX;
use redis_testkit::{Options, Server};
use sluicegate::backend::{Answer, Source};
use sluicegate::{RetryAfter, Time};
use sluicegate_redis::{DENIAL_CACHE_AGE_MAX, RedisLimiter, RedisStore, RedisStoreBuilder, check_each};
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

fn store_of(server: &Server) -> RedisStoreBuilder {
    RedisStore::builder(&server.url()).deadline(WAIT_MAX)
}

fn limiter_in(store: &RedisStore, limit: &str) -> RedisLimiter {
    RedisLimiter::builder(limit).in_store(store, "api").build().unwrap()
}

async fn limiter_with_cache(server: &Server, limit: &str) -> RedisLimiter {
    limiter_in(&store_of(server).remember_denials(true).connect().await.unwrap(), limit)
}

/// The number of script calls so far.
fn script_calls(server: &Server) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = stats.split_once("cmdstat_evalsha:calls=").and_then(|(_, rest)| rest.split_once(','));
    calls.map_or(0, |(calls, _)| calls.parse().unwrap())
}

fn wait_of(answer: &Answer) -> Duration {
    match answer.retry_after() {
        Some(RetryAfter::After(wait)) => Duration::from_micros(wait.as_micros()),
        other => panic!("{other:?}"),
    }
}

async fn use_up(limiter: &RedisLimiter, key: &str, limit: u64) {
    assert!(limiter.check_cost(key, limit).await.unwrap().allowed());
    let denied = limiter.check(key).await.unwrap();
    assert!(!denied.allowed() && denied.source() == Source::Store);
}

#[tokio::test]
async fn constant_retries_cost_one_round_trip_until_retry_after() {
    let server = Server::start(&Options::redis());
    let limiter = limiter_with_cache(&server, "token-bucket 1/2s burst=1").await;
    assert!(limiter.check("user:42").await.unwrap().allowed());
    let before = script_calls(&server);
    let denied = limiter.check("user:42").await.unwrap();
    let ends = Instant::now() + wait_of(&denied);
    assert_eq!((denied.allowed(), denied.source()), (false, Source::Store));
    let (mut cached, mut last) = (0, denied);
    let allowed = loop {
        let called_at = Instant::now();
        let answer = limiter.check("user:42").await.unwrap();
        if answer.allowed() {
            break answer;
        }
        if answer.source() == Source::Remembered {
            assert!(called_at <= ends, "denied for too long");
            assert!(answer.retry_after() <= last.retry_after());
            cached += 1;
        }
        last = answer;
        yield_now().await;
    };
    assert_eq!(allowed.source(), Source::Store);
    // The cached denial ends slightly before the one in the store: by the time that a call takes to
    // get there.
    let round_trips = script_calls(&server) - before;
    assert!(cached > 100 && round_trips < 10, "{cached} cached, {round_trips} round trips");
}

#[tokio::test]
async fn a_caller_that_waits_for_retry_after_is_allowed() {
    let server = Server::start(&Options::redis());
    let limiter = limiter_with_cache(&server, "token-bucket 1/s burst=1").await;
    assert!(limiter.check("user:42").await.unwrap().allowed());
    for _ in 0..3 {
        let denied = limiter.check("user:42").await.unwrap();
        assert_eq!((denied.allowed(), denied.source()), (false, Source::Store));
        let again = limiter.check("user:42").await.unwrap();
        assert!(!again.allowed() && again.retry_after() <= denied.retry_after(), "{again:?}");
        sleep(wait_of(&again)).await;
        let answer = limiter.check("user:42").await.unwrap();
        assert_eq!((answer.allowed(), answer.source()), (true, Source::Store));
    }
}

#[tokio::test]
async fn a_cached_denial_has_the_fields_of_the_first() {
    let server = Server::start(&Options::redis());
    let store = store_of(&server).remember_denials(true).connect().await.unwrap();
    let limits = ["token-bucket 10/h burst=9", "fixed-window 3/h"];
    let limiter = RedisLimiter::builder(&limits[..]).in_store(&store, "api").build().unwrap();
    assert!(limiter.check_cost("user:42", 2).await.unwrap().allowed());
    let first = limiter.check_cost("user:42", 2).await.unwrap();
    let again = limiter.check_cost("user:42", 3).await.unwrap();
    assert_eq!((first.source(), again.source()), (Source::Store, Source::Remembered));
    let (first, again) = (first.decision(), again.decision());
    assert_eq!(
        (again.allowed(), again.limit(), again.remaining(), again.denied_by()),
        (false, first.limit(), first.remaining(), first.denied_by())
    );
    assert!(again.reset_after() <= first.reset_after() && again.retry_after() <= first.retry_after());
    // Smaller and impossible costs reach the store, and the latter are cached too.
    assert!(limiter.check_cost("user:42", 1).await.unwrap().allowed());
    for source in [Source::Store, Source::Remembered] {
        let never = limiter.check_cost("user:43", 4).await.unwrap();
        assert_eq!((never.source(), never.retry_after()), (source, Some(RetryAfter::Never)));
    }
    assert!(limiter.check_cost("user:43", 3).await.unwrap().allowed());
}

#[tokio::test]
async fn returns_by_this_process_are_seen_at_once() {
    let server = Server::start(&Options::redis());
    let store = store_of(&server).remember_denials(true).connect().await.unwrap();
    let (limiter, other) =
        (limiter_in(&store, "token-bucket 5/h"), limiter_in(&store, "token-bucket 5/h burst=9"));
    let reserved = limiter.reserve("user:42", 1, Duration::ZERO).await.unwrap().keep().unwrap();
    use_up(&limiter, "user:42", 4).await;
    assert!(limiter.refund("user:42", 1).await.unwrap().allowed());
    use_up(&limiter, "user:42", 1).await;
    assert!(limiter.cancel(&reserved).await.unwrap());
    let reserved = limiter.reserve("user:42", 1, Duration::ZERO).await.unwrap().keep().unwrap();
    assert_eq!(limiter.check("user:42").await.unwrap().source(), Source::Store);
    assert!(limiter.settle(&reserved, 0).await.unwrap());
    use_up(&limiter, "user:42", 1).await;
    limiter.reset("user:42").await.unwrap();
    use_up(&limiter, "user:42", 5).await;
    // Another limiter of the scope shares the keys.
    assert!(other.refund("user:42", 1).await.unwrap().allowed());
    use_up(&limiter, "user:42", 1).await;
}

#[tokio::test]
async fn returns_by_another_process_are_seen_a_second_later() {
    let server = Server::start(&Options::redis());
    let (here, there) = (
        limiter_with_cache(&server, "token-bucket 5/h").await,
        limiter_with_cache(&server, "token-bucket 5/h").await,
    );
    use_up(&here, "user:42", 5).await;
    assert!(there.refund("user:42", 1).await.unwrap().allowed());
    let refunded = Instant::now();
    loop {
        let late = refunded.elapsed() > DENIAL_CACHE_AGE_MAX;
        let answer = here.check("user:42").await.unwrap();
        if answer.allowed() {
            break;
        }
        assert!(answer.source() == Source::Remembered && !late, "{answer:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn nothing_is_cached_under_count_all_or_at_a_given_time() {
    let server = Server::start(&Options::redis());
    let store = store_of(&server).remember_denials(true).connect().await.unwrap();
    let counting =
        RedisLimiter::builder("sliding-log 2/h count=all").in_store(&store, "all").build().unwrap();
    for _ in 0..10 {
        assert_eq!(counting.check("user:42").await.unwrap().source(), Source::Store);
    }
    let limiter = limiter_in(&store, "token-bucket 5/h");
    use_up(&limiter, "user:42", 5).await;
    let now = Time::from_micros(1_000_000).unwrap();
    for _ in 0..3 {
        assert_eq!(limiter.check_at("user:43", 6, now).await.unwrap().source(), Source::Store);
        assert_eq!(limiter.check_at("user:42", 1, now).await.unwrap().source(), Source::Store);
    }
    assert_eq!(limiter.check_cost("user:43", 6).await.unwrap().source(), Source::Store);
    // In a batch too.
    let batch = [
        limiter.call(b"user:42", 1),
        limiter.call(b"user:42", 1).at(now),
        limiter.call(b"Ann", 5),
        limiter.call(b"Ann", 1),
    ];
    let sources = |answers: Vec<Result<Answer, _>>| -> Vec<Source> {
        answers.into_iter().map(|answer| answer.unwrap().source()).collect()
    };
    let (store, cached) = (Source::Store, Source::Remembered);
    assert_eq!(sources(check_each(&batch).await), [cached, store, store, store]);
    assert_eq!(sources(check_each(&batch).await), [cached, store, cached, cached]);
}

#[tokio::test]
async fn nothing_is_cached_by_default() {
    let server = Server::start(&Options::redis());
    let limiter = limiter_in(&store_of(&server).connect().await.unwrap(), "token-bucket 5/h");
    use_up(&limiter, "user:42", 5).await;
    let before = script_calls(&server);
    for _ in 0..10 {
        assert_eq!(limiter.check("user:42").await.unwrap().source(), Source::Store);
    }
    assert_eq!(script_calls(&server) - before, 10);
}
