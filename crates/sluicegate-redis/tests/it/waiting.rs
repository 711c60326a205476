//! Waiting for a turn over a shared store: in order, without loss, and never above the limit.

use crate::damaged::state;
use crate::semaphore::calls;
use crate::support::{LONG, PATIENCE, connect, until};
use redis_testkit::{Options, Server};
use sluicegate::backend::Source;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::wait::{Acquired, Denial};
use sluicegate_redis::{OnStoreFailure, RedisLimiter, RedisStore};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const KEY: &str = "Harry";

fn limiter(store: &RedisStore, limit: &str) -> RedisLimiter {
    RedisLimiter::builder(limit).in_store(store, &limit.replace(' ', "-")).build().unwrap()
}

/// When a bucket is full again, as it is written: the moment and the part of a microsecond.
fn full_at(server: &Server, limit: &str, letter: char) -> Vec<u8> {
    let state = state(server, &format!("sluice:1/{}:0{letter}|{{{KEY}}}", limit.replace(' ', "-")));
    [&state[..8], &state[16..20]].concat()
}

#[tokio::test]
async fn callers_of_a_process_go_in_the_order_in_which_they_came_whatever_they_cost() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    // Each is told its time by the store, and times that are far apart stay in order on a busy machine too.
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
                // Every fifth wants all there is, and is not overtaken by those who want little.
                let turn = limiter.acquire(KEY, if caller % 5 == 2 { 5 } else { 1 }).await.unwrap();
                assert!(turn.allowed() && turn.decision().delay().as_micros() == 0, "{limit}: {turn:?}");
                order.lock().unwrap().push(caller);
            });
        }
        (limit, tasks, order)
    });
    for (limit, tasks, order) in lines {
        timeout(PATIENCE, tasks.join_all()).await.unwrap_or_else(|_| panic!("{limit}: still waiting"));
        let order = order.lock().unwrap();
        assert!(order.is_sorted() && order.len() == 20, "{limit}: {order:?}");
    }
}

#[tokio::test]
async fn a_dropped_waiter_gives_back_exactly_what_it_held() {
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
            until("given back", || full_at(&server, &limit, letter) == before).await;
        }
    }
}

#[tokio::test]
async fn who_is_dropped_while_the_store_is_asked_holds_nothing() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limit = format!("token-bucket 7/{LONG} burst=1");
    let limiter = limiter(&store, &limit);
    assert!(limiter.check(KEY).await.unwrap().allowed());
    // From here on the server knows the script.
    assert!(limiter.acquire("Ron", 1).await.unwrap().allowed());
    let before = full_at(&server, &limit, 't');
    server.stop();
    assert!(timeout(Duration::from_millis(20), limiter.acquire(KEY, 1)).await.is_err());
    server.cont();
    // It was charged all the same, and then cancelled.
    let called = |command: &str| {
        let calls = server.cli(&["INFO", "commandstats"]);
        calls.lines().any(|line| line.starts_with(&format!("cmdstat_{command}:calls=")))
    };
    until("charged", || called("hset")).await;
    until("cancelled", || called("hdel")).await;
    assert_eq!(full_at(&server, &limit, 't'), before);
}

#[tokio::test]
async fn a_waiter_with_a_later_one_behind_it_gives_nothing_back() {
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
    // The limits' name and the second one's receipt.
    until("cancelled", || server.cli(&["HLEN", &receipts]).trim() == "2").await;
    assert_eq!(full_at(&server, &limit, 't'), both, "the second has been told its time");
    second.abort();
    until("given back", || full_at(&server, &limit, 't') == one).await;
}

#[tokio::test]
async fn who_cannot_make_it_is_told_at_once_and_holds_nothing() {
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
        let turn = limiter.acquire_within(KEY, 1, PATIENCE).await.unwrap();
        assert!(turn.allowed() && turn.waited() < PATIENCE, "{limit}: {turn:?}");
        let before = limiter.next_window(KEY).await.unwrap();
        let turn = limiter.acquire_within(KEY, 1, PATIENCE).await.unwrap();
        assert_eq!(turn.denial(), Some(Denial::TooLong), "{limit}: {turn:?}");
        assert!(turn.waited() < PATIENCE && turn.decision().retry_after().is_some(), "{limit}: {turn:?}");
        let deadline = SystemClock.now().saturating_add(PATIENCE.into());
        let late = limiter.acquire_until(KEY, 1, deadline).await.unwrap();
        assert_eq!(late.denial(), Some(Denial::TooLong), "{limit}: {late:?}");
        let never = limiter.acquire(KEY, 3).await.unwrap();
        assert_eq!(never.denial(), Some(Denial::Never), "{limit}: {never:?}");
        assert!(limiter.acquire(KEY, 0).await.unwrap().allowed(), "{limit}");
        assert_eq!(limiter.next_window(KEY).await.unwrap(), before, "{limit}");
    }
}

#[tokio::test]
async fn who_finds_a_pacers_queue_full_is_told_so() {
    let server = Server::start(&Options::redis());
    let limiter = limiter(&connect(&server.url()).await, "pacer 1/1h queue=0");
    assert!(limiter.acquire(KEY, 1).await.unwrap().allowed());
    let turn = limiter.acquire(KEY, 1).await.unwrap();
    assert_eq!(turn.denial(), Some(Denial::QueueFull), "{turn:?}");
}

#[tokio::test]
async fn a_line_has_its_bound_and_those_in_it_hear_of_a_deadline_that_cannot_be_met() {
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
    // The server stands still, so that the first one is asking while the others come.
    server.stop();
    let first = wait(None);
    tokio::task::yield_now().await;
    let (short, long) = (wait(Some(PATIENCE)), wait(None));
    tokio::task::yield_now().await;
    let turn = limiter.acquire(KEY, 1).await.unwrap();
    assert_eq!(turn.denial(), Some(Denial::QueueFull), "{turn:?}");
    server.cont();
    let turn = timeout(PATIENCE / 2, short).await.unwrap().unwrap();
    assert_eq!(turn.denial(), Some(Denial::TooLong), "{turn:?}");
    // Who comes now knows from the first one that it would be too long.
    let turn = limiter.acquire_within(KEY, 1, PATIENCE).await.unwrap();
    assert_eq!((turn.denial(), turn.source()), (Some(Denial::TooLong), Source::Remembered), "{turn:?}");
    assert!(!first.is_finished() && !long.is_finished());
    first.abort();
    long.abort();
}

/// Who acted when, since before the first one asked. For so long, and for longer if by then only so few have acted.
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
                let turn = match random.u8(..3) {
                    // Some wait, some have a deadline, and some lose patience.
                    0 => limiter.acquire(KEY, cost).await.unwrap(),
                    1 => limiter.acquire_within(KEY, cost, patience).await.unwrap(),
                    _ => match timeout(patience, limiter.acquire(KEY, cost)).await {
                        Ok(turn) => turn.unwrap(),
                        Err(_) => continue,
                    },
                };
                if turn.allowed() {
                    let now = began.elapsed();
                    times.lock().unwrap().extend((0..cost).map(|_| now));
                } else {
                    assert_eq!(turn.denial(), Some(Denial::TooLong));
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    timeout(PATIENCE, callers.join_all()).await.expect("enough acted");
    let mut times = times.lock().unwrap().clone();
    times.sort();
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_eight_tasks_never_act_above_the_limit_whoever_is_dropped() {
    let server = Server::start(&Options::redis());
    let stores = [connect(&server.url()).await, connect(&server.url()).await];
    let lasting = Duration::from_millis(1500);
    for (limit, burst, each, units) in [
        ("token-bucket 100/s burst=5", 5, Duration::from_millis(10), 1),
        ("pacer 100/s queue=60", 3, Duration::from_millis(10), 1),
        // What the next one pays for is at most 3.
        ("smooth 100/s burst=1", 4, Duration::from_millis(10), 1),
        ("sliding-log 10/100ms", 10, Duration::from_millis(100), 10),
        // Aligned windows: two of them can touch the first moment.
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
        until("receipts are forgotten or cancelled", left).await;
    }
}

#[tokio::test]
async fn who_was_charged_acts_even_if_the_store_dies_meanwhile() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limiter = limiter(&store, "token-bucket 2/s burst=1");
    assert!(limiter.check(KEY).await.unwrap().allowed());
    let waiting = tokio::spawn(async move { limiter.acquire(KEY, 1).await });
    until("charged", || server.cli(&["KEYS", "*:r|*"]).contains(KEY)).await;
    server.kill();
    let turn = timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert!(turn.allowed() && turn.source() == Source::Store, "{turn:?}");
}

#[tokio::test]
async fn who_asks_a_dead_store_again_is_answered_as_the_limiter_says() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let used_up = async |policy: OnStoreFailure, max_wait: Duration| {
        // So long that the store is dead before anybody asks it again.
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
    let error = wait(used_up(OnStoreFailure::Error, PATIENCE).await, PATIENCE);
    let allow = wait(used_up(OnStoreFailure::Allow, PATIENCE).await, PATIENCE);
    let local = wait(used_up(OnStoreFailure::Local, PATIENCE).await, PATIENCE);
    let deny = wait(used_up(OnStoreFailure::Deny, short).await, short);
    let deny_and_back = wait(used_up(OnStoreFailure::Deny, PATIENCE).await, PATIENCE);
    until("all have asked", || calls(&server) >= 10).await;
    server.kill();
    let ended = |waiting: tokio::task::JoinHandle<Result<Acquired, _>>| async {
        timeout(PATIENCE, waiting).await.unwrap().unwrap()
    };
    assert!(ended(error).await.is_err());
    let turn = ended(allow).await.unwrap();
    assert!(turn.allowed() && turn.source() == Source::Allowed, "{turn:?}");
    let turn = ended(local).await.unwrap();
    assert!(turn.allowed() && turn.source() == Source::Local, "{turn:?}");
    let turn = ended(deny).await.unwrap();
    assert_eq!((turn.denial(), turn.source()), (Some(Denial::TooLong), Source::Denied), "{turn:?}");
    server.restart();
    let turn = ended(deny_and_back).await.unwrap();
    assert!(turn.allowed() && turn.source() == Source::Store, "{turn:?}");
}
