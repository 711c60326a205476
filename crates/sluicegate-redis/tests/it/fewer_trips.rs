//! Denials that are remembered, and trips that are shared: fewer of them, and the same answers.

use crate::support::PATIENCE;
use redis_testkit::{Options, Server};
use sluicegate::{Limiter, RetryAfter, Span, Time};
use sluicegate_redis::{
    Answer, OnStoreFailure, REMEMBERED_MAX, RedisLimiter, RedisStore, RedisStoreBuilder, Source, check_each,
};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};

fn store_of(server: &Server) -> RedisStoreBuilder {
    RedisStore::builder(&server.url()).deadline(PATIENCE)
}

fn limiter_in(store: &RedisStore, limit: &str) -> RedisLimiter {
    RedisLimiter::builder(limit).in_store(store, "api").build().unwrap()
}

async fn remembering(server: &Server, limit: &str) -> RedisLimiter {
    limiter_in(&store_of(server).remember_denials(true).connect().await.unwrap(), limit)
}

async fn sharing(server: &Server, limit: &str) -> RedisLimiter {
    limiter_in(&store_of(server).share_trips(true).connect().await.unwrap(), limit)
}

/// How many scripts were called so far.
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

async fn use_up(limiter: &RedisLimiter, key: &str, limit: u32) {
    assert!(limiter.check_cost(key, limit).await.unwrap().allowed());
    let denied = limiter.check(key).await.unwrap();
    assert!(!denied.allowed() && denied.source() == Source::Store);
}

#[tokio::test]
async fn who_does_not_stop_calling_costs_one_trip_until_it_is_time() {
    let server = Server::start(&Options::redis());
    let limiter = remembering(&server, "token-bucket 1/2s burst=1").await;
    assert!(limiter.check("Harry").await.unwrap().allowed());
    let before = script_calls(&server);
    let denied = limiter.check("Harry").await.unwrap();
    let ends = Instant::now() + wait_of(&denied);
    assert_eq!((denied.allowed(), denied.source()), (false, Source::Store));
    let (mut remembered, mut last) = (0, denied);
    let allowed = loop {
        let asked = Instant::now();
        let answer = limiter.check("Harry").await.unwrap();
        if answer.allowed() {
            break answer;
        }
        if answer.source() == Source::Remembered {
            assert!(asked <= ends, "it is denied for too long");
            assert!(answer.retry_after() <= last.retry_after());
            remembered += 1;
        }
        last = answer;
        yield_now().await;
    };
    assert_eq!(allowed.source(), Source::Store);
    // The denial is forgotten here a moment before it is over there, as long as a call takes to get there.
    let trips = script_calls(&server) - before;
    assert!(remembered > 100 && trips < 10, "{remembered} remembered, {trips} trips");
}

#[tokio::test]
async fn who_waits_as_told_is_allowed() {
    let server = Server::start(&Options::redis());
    let limiter = remembering(&server, "token-bucket 1/s burst=1").await;
    assert!(limiter.check("Harry").await.unwrap().allowed());
    for _ in 0..3 {
        let denied = limiter.check("Harry").await.unwrap();
        assert_eq!((denied.allowed(), denied.source()), (false, Source::Store));
        let again = limiter.check("Harry").await.unwrap();
        assert!(!again.allowed() && again.retry_after() <= denied.retry_after(), "{again:?}");
        sleep(wait_of(&again)).await;
        let answer = limiter.check("Harry").await.unwrap();
        assert_eq!((answer.allowed(), answer.source()), (true, Source::Store));
    }
}

#[tokio::test]
async fn a_remembered_denial_has_the_fields_of_the_first() {
    let server = Server::start(&Options::redis());
    let store = store_of(&server).remember_denials(true).connect().await.unwrap();
    let limits = ["token-bucket 10/h burst=9", "fixed-window 3/h"];
    let limiter = RedisLimiter::builder(&limits[..]).in_store(&store, "api").build().unwrap();
    assert!(limiter.check_cost("Harry", 2).await.unwrap().allowed());
    let first = limiter.check_cost("Harry", 2).await.unwrap();
    let again = limiter.check_cost("Harry", 3).await.unwrap();
    assert_eq!((first.source(), again.source()), (Source::Store, Source::Remembered));
    let (first, again) = (first.decision(), again.decision());
    assert_eq!(
        (again.allowed(), again.limit(), again.remaining(), again.denied_by()),
        (false, first.limit(), first.remaining(), first.denied_by())
    );
    assert!(again.reset_after() <= first.reset_after() && again.retry_after() <= first.retry_after());
    // What costs less, or can never be, is asked; and the latter is remembered as well.
    assert!(limiter.check_cost("Harry", 1).await.unwrap().allowed());
    for source in [Source::Store, Source::Remembered] {
        let never = limiter.check_cost("Sally", 4).await.unwrap();
        assert_eq!((never.source(), never.retry_after()), (source, Some(RetryAfter::Never)));
    }
    assert!(limiter.check_cost("Sally", 3).await.unwrap().allowed());
}

#[tokio::test]
async fn what_this_process_gives_back_is_seen_at_once() {
    let server = Server::start(&Options::redis());
    let store = store_of(&server).remember_denials(true).connect().await.unwrap();
    let (limiter, other) =
        (limiter_in(&store, "token-bucket 5/h"), limiter_in(&store, "token-bucket 5/h burst=9"));
    let reserved = limiter.reserve("Harry", 1, Span::ZERO, None).await.unwrap().receipt.unwrap();
    use_up(&limiter, "Harry", 4).await;
    assert!(limiter.refund("Harry", 1, None).await.unwrap().allowed());
    use_up(&limiter, "Harry", 1).await;
    assert!(limiter.cancel(&reserved, None).await.unwrap());
    let reserved = limiter.reserve("Harry", 1, Span::ZERO, None).await.unwrap().receipt.unwrap();
    assert_eq!(limiter.check("Harry").await.unwrap().source(), Source::Store);
    assert!(limiter.settle(&reserved, 0, None).await.unwrap());
    use_up(&limiter, "Harry", 1).await;
    limiter.reset("Harry").await.unwrap();
    use_up(&limiter, "Harry", 5).await;
    // Another limiter of the scope is about the same keys.
    assert!(other.refund("Harry", 1, None).await.unwrap().allowed());
    use_up(&limiter, "Harry", 1).await;
}

#[tokio::test]
async fn what_another_process_gives_back_is_seen_a_second_later() {
    let server = Server::start(&Options::redis());
    let (here, there) =
        (remembering(&server, "token-bucket 5/h").await, remembering(&server, "token-bucket 5/h").await);
    use_up(&here, "Harry", 5).await;
    assert!(there.refund("Harry", 1, None).await.unwrap().allowed());
    let refunded = Instant::now();
    loop {
        let late = refunded.elapsed() > REMEMBERED_MAX;
        let answer = here.check("Harry").await.unwrap();
        if answer.allowed() {
            break;
        }
        assert!(answer.source() == Source::Remembered && !late, "{answer:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn where_denied_calls_count_and_at_times_of_the_callers_nothing_is_remembered() {
    let server = Server::start(&Options::redis());
    let store = store_of(&server).remember_denials(true).connect().await.unwrap();
    let counting =
        RedisLimiter::builder("sliding-log 2/h count=all").in_store(&store, "all").build().unwrap();
    for _ in 0..10 {
        assert_eq!(counting.check("Harry").await.unwrap().source(), Source::Store);
    }
    let limiter = limiter_in(&store, "token-bucket 5/h");
    use_up(&limiter, "Harry", 5).await;
    let now = Time::from_micros(1_000_000).unwrap();
    for _ in 0..3 {
        assert_eq!(limiter.check_at("Sally", 6, now).await.unwrap().source(), Source::Store);
        assert_eq!(limiter.check_at("Harry", 1, now).await.unwrap().source(), Source::Store);
    }
    assert_eq!(limiter.check_cost("Sally", 6).await.unwrap().source(), Source::Store);
    // In a batch too.
    let batch = [
        limiter.on(b"Harry", 1),
        limiter.on(b"Harry", 1).at(now),
        limiter.on(b"Ann", 5),
        limiter.on(b"Ann", 1),
    ];
    let sources = |answers: Vec<Result<Answer, _>>| -> Vec<Source> {
        answers.into_iter().map(|answer| answer.unwrap().source()).collect()
    };
    let (store, remembered) = (Source::Store, Source::Remembered);
    assert_eq!(sources(check_each(&batch).await), [remembered, store, store, store]);
    assert_eq!(sources(check_each(&batch).await), [remembered, store, remembered, remembered]);
}

#[tokio::test]
async fn without_being_told_to_nothing_is_remembered() {
    let server = Server::start(&Options::redis());
    let limiter = limiter_in(&store_of(&server).connect().await.unwrap(), "token-bucket 5/h");
    use_up(&limiter, "Harry", 5).await;
    let before = script_calls(&server);
    for _ in 0..10 {
        assert_eq!(limiter.check("Harry").await.unwrap().source(), Source::Store);
    }
    assert_eq!(script_calls(&server) - before, 10);
}

/// The answers to so many checks that are made at the same time, on several threads.
async fn crowd(limiter: &RedisLimiter, checks: usize) -> Vec<Answer> {
    let tasks: Vec<_> = (0..checks)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check("Harry").await.unwrap() })
        })
        .collect();
    let mut answers = Vec::with_capacity(checks);
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn is_exactly_the_limit(answers: &[Answer]) {
    let remaining: Vec<u32> =
        answers.iter().filter(|answer| answer.allowed()).map(Answer::remaining).collect();
    assert_eq!(remaining.len(), 100);
    assert_eq!(remaining.into_iter().collect::<BTreeSet<u32>>(), (0..100).collect());
    assert!(answers.iter().all(|answer| answer.source() == Source::Store));
    assert!(answers.iter().filter(|answer| !answer.allowed()).all(|answer| answer.remaining() == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_shares_trips_and_gets_exactly_the_limit() {
    let server = Server::start(&Options::redis());
    for limit in ["token-bucket 100/h", "fixed-window 100/1000h", "sliding-window 100/1000h"] {
        let limiter = sharing(&server, limit).await;
        let before = script_calls(&server);
        is_exactly_the_limit(&crowd(&limiter, 200).await);
        let calls = script_calls(&server) - before;
        assert!(calls < 60, "{limit}: {calls} script calls for 200 checks");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn logs_are_asked_check_by_check_in_shared_trips() {
    let server = Server::start(&Options::redis());
    let limiter = sharing(&server, "sliding-log 100/h").await;
    // The server has to know the script.
    assert!(limiter.check("Sally").await.unwrap().allowed());
    let before = script_calls(&server);
    is_exactly_the_limit(&crowd(&limiter, 200).await);
    assert_eq!(script_calls(&server) - before, 200);
}

#[tokio::test]
async fn the_answers_are_those_of_one_after_another_in_the_order_of_arrival() {
    let server = Server::start(&Options::redis());
    for limit in ["token-bucket 100/h", "sliding-log 100/h", "pacer 100/h queue=99"] {
        let limiter = sharing(&server, limit).await;
        let model = Limiter::new(limit).unwrap();
        // A single thread starts them in this order.
        let costs = [1, 1, 1, 7, 1, 1, 0, 3, 3, 40, 1, 1, 60, 1, 30, 1, 1, 1, 13, 2, 1, 1, 101, 1];
        let checks: Vec<_> = costs
            .iter()
            .map(|cost| {
                let (limiter, cost) = (limiter.clone(), *cost);
                (cost, tokio::spawn(async move { limiter.check_cost("Harry", cost).await.unwrap() }))
            })
            .collect();
        for (cost, check) in checks {
            let (answer, expected) = (check.await.unwrap(), model.check_at("Harry", cost, Time::EPOCH));
            // What costs nothing changes nothing, and goes by itself.
            if cost > 0 {
                assert_eq!(
                    (answer.allowed(), answer.remaining()),
                    (expected.allowed(), expected.remaining()),
                    "{limit}, cost {cost}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_check_that_is_dropped_takes_nobody_along() {
    let server = Server::start(&Options::redis());
    let limiter = sharing(&server, "token-bucket 100/h").await;
    server.stop();
    let check = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check("Harry").await.unwrap() })
    };
    let (first, second, third, fourth) = (check(), check(), check(), check());
    // All of them have started: one is under way, the others are in line.
    for _ in 0..10 {
        yield_now().await;
    }
    first.abort();
    third.abort();
    assert!(first.await.unwrap_err().is_cancelled() && third.await.unwrap_err().is_cancelled());
    server.cont();
    let (second, fourth) =
        timeout(PATIENCE, async { (second.await.unwrap(), fourth.await.unwrap()) }).await.unwrap();
    assert!(second.allowed() && fourth.allowed() && second.remaining() > fourth.remaining());
    assert!(timeout(PATIENCE, limiter.check("Harry")).await.unwrap().unwrap().allowed());
}

#[tokio::test]
async fn a_shared_trip_that_fails_is_each_ones_own_failure_in_its_own_time() {
    let server = Server::start(&Options::redis());
    let deadline = Duration::from_millis(200);
    let store =
        RedisStore::builder(&server.url()).deadline(deadline).share_trips(true).connect().await.unwrap();
    let limiter = |scope: &str, policy| {
        let builder = RedisLimiter::builder("token-bucket 100/h").in_store(&store, scope);
        builder.on_store_failure(policy).build().unwrap()
    };
    let (strict, denying) = (limiter("a", OnStoreFailure::Error), limiter("b", OnStoreFailure::Deny));
    server.stop();
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let limiter = if number % 2 == 0 { strict.clone() } else { denying.clone() };
            tokio::spawn(async move {
                sleep(Duration::from_millis(5 * number)).await;
                let began = Instant::now();
                (limiter.check("Harry").await, began.elapsed())
            })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        let (answer, took) = task.await.unwrap();
        match answer {
            Err(failure) => assert!(number % 2 == 0, "{failure}"),
            Ok(answer) => assert_eq!((number % 2, answer.source()), (1, Source::Denied)),
        }
        assert!(took < deadline + Duration::from_millis(300), "{took:?}");
    }
    server.cont();
    let is_back = async {
        while strict.check("Harry").await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, is_back).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn both_together_admit_exactly_the_limit() {
    let server = Server::start(&Options::redis());
    let store = store_of(&server).share_trips(true).remember_denials(true).connect().await.unwrap();
    let limiter = limiter_in(&store, "token-bucket 100/h");
    let answers = crowd(&limiter, 400).await;
    assert_eq!(answers.iter().filter(|answer| answer.allowed()).count(), 100);
    assert_eq!(limiter.check("Harry").await.unwrap().source(), Source::Remembered);
}
