//! Waiting on a shared store: in order, without loss, and never above the limit.

use crate::damaged::state;
use crate::semaphore::calls;
use crate::support::{LONG, WAIT_MAX, connect, until};
use redis_testkit::{Options, Server};
use sluicegate::backend::Source;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::wait::{Acquired, Denial};
use sluicegate_redis::{OnStoreFailure, RedisLimiter, RedisStore};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const KEY: &str = "user:42";

fn limiter(store: &RedisStore, limit: &str) -> RedisLimiter {
    RedisLimiter::builder(limit).in_store(store, &limit.replace(' ', "-")).build().unwrap()
}

/// When a bucket is full again, as stored: the time, and the part of a microsecond.
fn full_at(server: &Server, limit: &str, letter: char) -> Vec<u8> {
    let state = state(server, &format!("sluice:1/{}:0{letter}|{{{KEY}}}", limit.replace(' ', "-")));
    [&state[..8], &state[16..20]].concat()
}

#[tokio::test]
async fn callers_of_a_process_are_admitted_in_order_of_arrival() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    // The store tells each caller its time, and times that are far apart stay in order even on a
    // busy machine.
    let lines = [
        "token-bucket 10/s burst=5",
        "leaky-bucket 10/s capacity=5",
        "pacer 10/s queue=100",
        "smooth 10/s",
        "smooth 10/s warmup=100ms",
        "fixed-window 5/100ms",
        "fixed-window 5/100ms start=first",
        "sliding-window 5/100ms",
        "sliding-log 5/100ms",
        "sliding-log 5/100ms count=all",
    ]
    .map(|limit| {
        let limiter = limiter(&store, limit);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for caller in 0..20_u32 {
            let (limiter, order) = (limiter.clone(), Arc::clone(&order));
            tasks.spawn(async move {
                // Every fifth call wants everything, and is not overtaken by small ones.
                let acquired = limiter.acquire(KEY, if caller % 5 == 2 { 5 } else { 1 }).await.unwrap();
                assert!(
                    acquired.allowed() && acquired.decision().delay().as_micros() == 0,
                    "{limit}: {acquired:?}"
                );
                order.lock().unwrap().push(caller);
            });
        }
        (limit, tasks, order)
    });
    for (limit, tasks, order) in lines {
        timeout(WAIT_MAX, tasks.join_all()).await.unwrap_or_else(|_| panic!("{limit}: still waiting"));
        let order = order.lock().unwrap();
        assert!(order.is_sorted() && order.len() == 20, "{limit}: {order:?}");
    }
}

#[tokio::test]
async fn a_dropped_waiter_returns_exactly_its_charge() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    for (limit, letter) in [
        (format!("token-bucket 7/{LONG} burst=3"), 't'),
        (format!("leaky-bucket 7/{LONG} capacity=3"), 'l'),
        (format!("pacer 7/{LONG} queue=9"), 'p'),
    ] {
        let limiter = limiter(&store, &limit);
        for _ in 0..3 {
            assert!(limiter.check(KEY).await.unwrap().allowed());
        }
        let before = full_at(&server, &limit, letter);
        for cost in [1, 3] {
            let waiting = tokio::spawn({
                let limiter = limiter.clone();
                async move { limiter.acquire(KEY, cost).await }
            });
            until("charged", || full_at(&server, &limit, letter) != before).await;
            waiting.abort();
            until("returned", || full_at(&server, &limit, letter) == before).await;
        }
    }
}

#[tokio::test]
async fn a_waiter_dropped_in_flight_is_cancelled() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limit = format!("token-bucket 7/{LONG} burst=1");
    let limiter = limiter(&store, &limit);
    assert!(limiter.check(KEY).await.unwrap().allowed());
    // The server has the script from here on.
    assert!(limiter.acquire("user:44", 1).await.unwrap().allowed());
    let before = full_at(&server, &limit, 't');
    server.stop();
    assert!(timeout(Duration::from_millis(20), limiter.acquire(KEY, 1)).await.is_err());
    server.cont();
    // It was charged nevertheless, and then cancelled.
    let called = |command: &str| {
        let calls = server.cli(&["INFO", "commandstats"]);
        calls.lines().any(|line| line.starts_with(&format!("cmdstat_{command}:calls=")))
    };
    until("charged", || called("hset")).await;
    until("cancelled", || called("hdel")).await;
    assert_eq!(full_at(&server, &limit, 't'), before);
}

#[tokio::test]
async fn a_waiter_with_a_later_one_behind_it_returns_nothing() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limit = format!("token-bucket 7/{LONG} burst=1");
    let limiter = limiter(&store, &limit);
    assert!(limiter.check(KEY).await.unwrap().allowed());
    let states: Vec<_> = std::iter::once(full_at(&server, &limit, 't')).collect();
    let wait = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire(KEY, 1).await })
    };
    let first = wait();
    until("charged", || full_at(&server, &limit, 't') != states[0]).await;
    let one = full_at(&server, &limit, 't');
    let second = wait();
    until("charged", || full_at(&server, &limit, 't') != one).await;
    let both = full_at(&server, &limit, 't');
    first.abort();
    let receipts = format!("sluice:1/{}:r|{{{KEY}}}", limit.replace(' ', "-"));
    // The header, a block, and the second waiter's receipt.
    until("cancelled", || server.cli(&["HLEN", &receipts]).trim() == "3").await;
    assert_eq!(full_at(&server, &limit, 't'), both, "the second waiter knows its time");
    second.abort();
    until("returned", || full_at(&server, &limit, 't') == one).await;
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_denied_at_once_and_charges_nothing() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    for limit in ["token-bucket", "leaky-bucket", "pacer", "fixed-window", "sliding-window", "sliding-log"]
        .map(|algorithm| {
            let option = if algorithm == "fixed-window" { " start=first" } else { "" };
            let option = if algorithm == "pacer" { " queue=1" } else { option };
            format!("{algorithm} 1/1h{option}")
        })
    {
        let limiter = limiter(&store, &limit);
        let acquired = limiter.acquire_within(KEY, 1, WAIT_MAX).await.unwrap();
        assert!(acquired.allowed() && acquired.waited() < WAIT_MAX, "{limit}: {acquired:?}");
        let before = limiter.next_window(KEY).await.unwrap();
        let acquired = limiter.acquire_within(KEY, 1, WAIT_MAX).await.unwrap();
        assert_eq!(acquired.denial(), Some(Denial::TooLong), "{limit}: {acquired:?}");
        assert!(
            acquired.waited() < WAIT_MAX && acquired.decision().retry_after().is_some(),
            "{limit}: {acquired:?}"
        );
        let deadline = SystemClock.now().saturating_add(WAIT_MAX.into());
        let late = limiter.acquire_until(KEY, 1, deadline).await.unwrap();
        assert_eq!(late.denial(), Some(Denial::TooLong), "{limit}: {late:?}");
        let never = limiter.acquire(KEY, 3).await.unwrap();
        assert_eq!(never.denial(), Some(Denial::Never), "{limit}: {never:?}");
        assert!(limiter.acquire(KEY, 0).await.unwrap().allowed(), "{limit}");
        assert_eq!(limiter.next_window(KEY).await.unwrap(), before, "{limit}");
    }
}

#[tokio::test]
async fn a_full_pacer_queue_is_reported() {
    let server = Server::start(&Options::redis());
    let limiter = limiter(&connect(&server.url()).await, "pacer 1/1h queue=0");
    assert!(limiter.acquire(KEY, 1).await.unwrap().allowed());
    let acquired = limiter.acquire(KEY, 1).await.unwrap();
    assert_eq!(acquired.denial(), Some(Denial::QueueFull), "{acquired:?}");
}

#[tokio::test]
async fn queues_are_bounded_and_deny_deadlines_that_cannot_be_met() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limiter = RedisLimiter::builder("sliding-log 1/1h").in_store(&store, "line").max_queue(2);
    let limiter = limiter.build().unwrap();
    assert!(limiter.check(KEY).await.unwrap().allowed());
    let wait = |max_wait: Option<Duration>| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            match max_wait {
                Some(max_wait) => limiter.acquire_within(KEY, 1, max_wait).await.unwrap(),
                None => limiter.acquire(KEY, 1).await.unwrap(),
            }
        })
    };
    // The server is frozen, so that the head's call is in flight while the others arrive.
    server.stop();
    let first = wait(None);
    tokio::task::yield_now().await;
    let (short, long) = (wait(Some(WAIT_MAX)), wait(None));
    tokio::task::yield_now().await;
    let acquired = limiter.acquire(KEY, 1).await.unwrap();
    assert_eq!(acquired.denial(), Some(Denial::QueueFull), "{acquired:?}");
    server.cont();
    let acquired = timeout(WAIT_MAX / 2, short).await.unwrap().unwrap();
    assert_eq!(acquired.denial(), Some(Denial::TooLong), "{acquired:?}");
    // A caller that arrives now is denied because of the head's denial.
    let acquired = limiter.acquire_within(KEY, 1, WAIT_MAX).await.unwrap();
    assert_eq!(
        (acquired.denial(), acquired.source()),
        (Some(Denial::TooLong), Source::Remembered),
        "{acquired:?}"
    );
    assert!(!first.is_finished() && !long.is_finished());
    first.abort();
    long.abort();
}

/// When callers acted, since before the first call. Runs for `lasting`, and longer if fewer than
/// `fewest` have acted by then.
async fn acted(limiters: &[RedisLimiter], tasks: usize, lasting: Duration, fewest: usize) -> Vec<Duration> {
    let began = Instant::now();
    let times = Arc::new(Mutex::new(Vec::new()));
    let mut callers = JoinSet::new();
    for caller in 0..tasks {
        let (limiter, times) = (limiters[caller % limiters.len()].clone(), Arc::clone(&times));
        callers.spawn(async move {
            let mut random = fastrand::Rng::with_seed(caller as u64);
            while began.elapsed() < lasting || times.lock().unwrap().len() < fewest {
                let cost = random.u64(1..4);
                let patience = Duration::from_millis(random.u64(1..200));
                let acquired = match random.u8(..3) {
                    // Some wait, some have a deadline, and some are dropped.
                    0 => limiter.acquire(KEY, cost).await.unwrap(),
                    1 => limiter.acquire_within(KEY, cost, patience).await.unwrap(),
                    _ => match timeout(patience, limiter.acquire(KEY, cost)).await {
                        Ok(acquired) => acquired.unwrap(),
                        Err(_) => continue,
                    },
                };
                if acquired.allowed() {
                    let now = began.elapsed();
                    times.lock().unwrap().extend((0..cost).map(|_| now));
                } else {
                    assert_eq!(acquired.denial(), Some(Denial::TooLong));
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    timeout(WAIT_MAX, callers.join_all()).await.expect("enough callers acted");
    let mut times = times.lock().unwrap().clone();
    times.sort();
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_never_exceed_the_limit_while_callers_are_dropped() {
    let server = Server::start(&Options::redis());
    let stores = [connect(&server.url()).await, connect(&server.url()).await];
    let lasting = Duration::from_millis(1500);
    for (limit, burst, each, units) in [
        ("token-bucket 100/s burst=5", 5, Duration::from_millis(10), 1),
        ("pacer 100/s queue=60", 3, Duration::from_millis(10), 1),
        // The next caller pays for at most 3.
        ("smooth 100/s burst=1", 4, Duration::from_millis(10), 1),
        ("sliding-log 10/100ms", 10, Duration::from_millis(100), 10),
        // Two aligned windows can touch the first moment.
        ("fixed-window 10/100ms", 20, Duration::from_millis(100), 10),
    ] {
        let limiters = stores.each_ref().map(|store| limiter(store, limit));
        let times = acted(&limiters, 8, lasting, 60).await;
        for (acted, at) in (1..).zip(&times) {
            let most = burst + units * (at.as_nanos() / each.as_nanos());
            assert!(acted <= most, "{limit}: {acted} by {at:?}, at most {most}");
        }
        let receipts = format!("sluice:1/{}:r|{{{KEY}}}", limit.replace(' ', "-"));
        let left = || server.cli(&["HLEN", &receipts]).trim().parse::<u64>().unwrap() <= 1;
        until("receipts are deleted or cancelled", left).await;
    }
}

#[tokio::test]
async fn a_charged_waiter_acts_even_if_the_store_dies() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limiter = limiter(&store, "token-bucket 2/s burst=1");
    assert!(limiter.check(KEY).await.unwrap().allowed());
    let waiting = tokio::spawn(async move { limiter.acquire(KEY, 1).await });
    until("charged", || server.cli(&["KEYS", "*:r|*"]).contains(KEY)).await;
    server.kill();
    let acquired = timeout(WAIT_MAX, waiting).await.unwrap().unwrap().unwrap();
    assert!(acquired.allowed() && acquired.source() == Source::Store, "{acquired:?}");
}

#[tokio::test]
async fn a_retry_on_a_dead_store_uses_the_fallback() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let used_up = async |policy: OnStoreFailure, max_wait: Duration| {
        // Long enough that the store is dead before the next retry.
        let builder =
            RedisLimiter::builder("sliding-log 1/2s").in_store(&store, &format!("{policy:?}{max_wait:?}"));
        let limiter = builder.on_store_failure(policy).build().unwrap();
        assert!(limiter.check(KEY).await.unwrap().allowed());
        limiter
    };
    let wait = |limiter: RedisLimiter, max_wait: Duration| {
        tokio::spawn(async move { limiter.acquire_within(KEY, 1, max_wait).await })
    };
    let short = Duration::from_secs(4);
    let error = wait(used_up(OnStoreFailure::Error, WAIT_MAX).await, WAIT_MAX);
    let allow = wait(used_up(OnStoreFailure::Allow, WAIT_MAX).await, WAIT_MAX);
    let local = wait(used_up(OnStoreFailure::Local, WAIT_MAX).await, WAIT_MAX);
    let deny = wait(used_up(OnStoreFailure::Deny, short).await, short);
    let deny_and_back = wait(used_up(OnStoreFailure::Deny, WAIT_MAX).await, WAIT_MAX);
    until("all have called", || calls(&server) >= 10).await;
    server.kill();
    let ended = |waiting: tokio::task::JoinHandle<Result<Acquired, _>>| async {
        timeout(WAIT_MAX, waiting).await.unwrap().unwrap()
    };
    assert!(ended(error).await.is_err());
    let acquired = ended(allow).await.unwrap();
    assert!(acquired.allowed() && acquired.source() == Source::Allowed, "{acquired:?}");
    let acquired = ended(local).await.unwrap();
    assert!(acquired.allowed() && acquired.source() == Source::Local, "{acquired:?}");
    let acquired = ended(deny).await.unwrap();
    assert_eq!(
        (acquired.denial(), acquired.source()),
        (Some(Denial::TooLong), Source::Denied),
        "{acquired:?}"
    );
    server.restart();
    let acquired = ended(deny_and_back).await.unwrap();
    assert!(acquired.allowed() && acquired.source() == Source::Store, "{acquired:?}");
}
