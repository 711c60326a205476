//! Reservations with options, extensions and receipts of several calls: their bounds, and receipts
//! that are not open.

use crate::support::{connect, connect_by_default, every_key_expires, limiter, until};
use redis_testkit::{Options, Server};
use sluicegate::backend::{BackendError, Source};
use sluicegate::{CALLS_MAX, Receipt, ReserveOptions, Span, TTL_MAX, TTL_MIN, Time, Ttl, VerbError};
use sluicegate_redis::{
    OnStoreFailure, RedisCall, RedisLimiter, cancel_all, check_all, extend_all, reserve_all, settle_all,
};
use std::time::Duration;
use tokio::time::sleep;

const KEY: &str = "user:42";
const TRILLION: u64 = 1_000_000_000_000;

fn options() -> ReserveOptions {
    ReserveOptions::default()
}

async fn reserve(limiter: &RedisLimiter, cost: u64, options: ReserveOptions) -> Receipt {
    limiter.reserve(KEY, cost, options).await.unwrap().keep().unwrap()
}

async fn used(limiter: &RedisLimiter) -> u64 {
    limiter.usage(KEY).await.unwrap()[0].1.used
}

fn verb_error<T: std::fmt::Debug>(result: Result<T, BackendError>) -> VerbError {
    match result {
        Err(BackendError::Verb(error)) => error,
        result => panic!("{result:?}"),
    }
}

/// Much later than the end of the receipts, since no call came before.
#[tokio::test]
async fn a_charge_is_returned_however_late_its_end_is_noticed() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limits = [
        "token-bucket 100/1000h",
        "leaky-bucket 1/10h capacity=100",
        "fixed-window 100/1000h",
        "sliding-window 100/1000h",
        "sliding-log 100/1000h",
        "fixed-window 100/1000h + token-bucket 100/1000h",
    ];
    let short = Duration::from_millis(50);
    let cancelling = options().ttl(Ttl::cancel(short));
    let limiters = limits.map(|limit| limiter(&store, limit));
    for limiter in &limiters {
        reserve(limiter, 30, cancelling).await;
        let extended = reserve(limiter, 3, cancelling).await;
        assert!(limiter.extend(&extended, 4, Some(short)).await.unwrap().allowed());
        let calls = [limiter.call("one", 5), limiter.call("two", 6)];
        assert!(reserve_all(&calls, cancelling).await.unwrap().keep().is_some());
    }
    // Keys outlive what they are needed for by a second.
    sleep(3 * Duration::from_secs(1)).await;
    for (limiter, limit) in limiters.iter().zip(limits) {
        assert_eq!(used(limiter).await, 0, "{limit}: a peek sees it returned");
        for key in [KEY, "one", "two"] {
            assert_eq!(limiter.check_cost(key, 100).await.unwrap().remaining(), 0, "{limit}, {key}");
        }
    }
    every_key_expires(&server);
}

#[tokio::test]
async fn by_the_stores_clock_a_receipt_ends_when_its_time_is_over() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    for limit in [
        "token-bucket 100/1000h",
        "fixed-window 100/1000h",
        "sliding-window 100/1000h",
        "sliding-log 100/1000h",
    ] {
        let limiter = limiter(&store, limit);
        let short = Duration::from_millis(200);
        let cancels = reserve(&limiter, 30, options().ttl(Ttl::cancel(short))).await;
        let keeps = reserve(&limiter, 7, options().ttl(Ttl::keep(short))).await;
        let restarted = reserve(&limiter, 5, options().ttl(Ttl::cancel(short))).await;
        assert!(limiter.extend(&restarted, 4, Some(Duration::from_secs(3_600))).await.unwrap().allowed());
        assert_eq!(used(&limiter).await, 46, "{limit}");
        every_key_expires(&server);
        sleep(short).await;
        assert_eq!(used(&limiter).await, 16, "{limit}: a peek sees it returned");
        assert_eq!(limiter.check(KEY).await.unwrap().remaining(), 83, "{limit}: and so does a check");
        for closed in [&cancels, &keeps] {
            assert_eq!(verb_error(limiter.extend(closed, 0, None).await), VerbError::NotOpen, "{limit}");
            assert!(!limiter.settle(closed, 1).await.unwrap(), "{limit}");
            assert!(!limiter.cancel(closed).await.unwrap(), "{limit}");
        }
        assert!(limiter.settle(&restarted, 6).await.unwrap(), "{limit}");
        assert_eq!(used(&limiter).await, 14, "{limit}");
        every_key_expires(&server);
        let receipts = server.cli(&["KEYS", &format!("sluice:1/{limit}:[rd]|*")]);
        assert_eq!(receipts, "", "{limit}: no receipt is left");
    }
}

#[tokio::test]
async fn a_dropped_reservation_keeps_its_charge_until_its_receipt_cancels() {
    let server = Server::start(&Options::redis());
    let limiter = limiter(&connect(&server.url()).await, "token-bucket 100/1000h");
    let short = Duration::from_millis(200);
    drop(limiter.reserve(KEY, 30, options().ttl(Ttl::cancel(short))).await.unwrap());
    drop(limiter.reserve(KEY, 7, options().ttl(Ttl::keep(short))).await.unwrap());
    drop(reserve_all(&[limiter.call(KEY, 20)], options().ttl(Ttl::cancel(short))).await.unwrap());
    assert_eq!(used(&limiter).await, 57);
    sleep(2 * short).await;
    assert_eq!(used(&limiter).await, 7);
}

#[tokio::test]
async fn a_receipt_of_many_charges_is_discarded_as_a_whole() {
    let server = Server::start(&Options::redis());
    let limiter = limiter(&connect(&server.url()).await, "token-bucket 100/1000h");
    let reserved = limiter.reserve(KEY, 1, options()).await.unwrap();
    for _ in 0..70 {
        assert!(reserved.extend(1, None).await.unwrap().allowed());
    }
    drop(reserved);
    // Three script calls: one closes 24 charges.
    until("no receipt is left", || server.cli(&["KEYS", "sluice:1/*:[rd]|*"]).is_empty()).await;
    assert_eq!(used(&limiter).await, 71);
}

#[tokio::test]
async fn what_is_reserved_locally_stays_charged() {
    let server = Server::start(&Options::redis());
    let builder = RedisLimiter::builder("token-bucket 100/1000h");
    let builder = builder.in_store(&connect_by_default(&server.url()).await, "local");
    let limiter = builder.on_store_failure(OnStoreFailure::Local).build().unwrap();
    server.stop();
    let short = Duration::from_millis(50);
    let reserved = limiter.reserve(KEY, 30, options().ttl(Ttl::cancel(short))).await.unwrap();
    assert_eq!((reserved.answer().source(), reserved.keep()), (Source::Local, None));
    sleep(2 * short).await;
    assert_eq!(limiter.peek(KEY, 0).await.unwrap().remaining(), 70);
}

#[tokio::test]
async fn the_bounds_of_options_are_checked() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let window = limiter(&store, "fixed-window 1000000000000/1000h");
    let micro = Span::from_micros(1);
    for bad in [Span::ZERO, TTL_MIN.saturating_sub(micro), TTL_MAX.saturating_add(micro), Span::MAX] {
        let reserved = window.reserve(KEY, 1, options().ttl(Ttl::cancel(bad))).await;
        assert_eq!(verb_error(reserved), VerbError::TtlOutOfBounds(bad));
    }
    let receipt = reserve(&window, 1, options().ttl(Ttl::keep(TTL_MAX))).await;
    let longer = Duration::from(TTL_MAX) + Duration::from_micros(1);
    let extended = window.extend(&receipt, 1, Some(longer)).await;
    assert_eq!(verb_error(extended), VerbError::TtlOutOfBounds(longer.into()));
    assert_eq!(used(&window).await, 1, "nothing was charged");
    for (options, error) in [
        (options().at_least(0), VerbError::AtLeastOutOfBounds { at_least: 0, cost: 5 }),
        (options().at_least(6), VerbError::AtLeastOutOfBounds { at_least: 6, cost: 5 }),
        (options().at_least(5).max_wait(micro), VerbError::AtLeastWaits),
    ] {
        assert_eq!(verb_error(window.reserve(KEY, 5, options).await), error);
    }
    for limit in ["pacer 5/s", "smooth 5/s", "sliding-log 5/s count=all"] {
        let reserved = limiter(&store, limit).reserve(KEY, 5, options().at_least(1)).await;
        assert!(matches!(verb_error(reserved), VerbError::Unsupported(_)), "{limit}");
    }
    // The latest time of a window: the end of the receipt is beyond what a script can count.
    let latest = Time::saturating_from_micros((1 << 53) - 3_600_000_000_000 - 2);
    let at_end = options().ttl(Ttl::cancel(TTL_MAX));
    let late = window.reserve_at("late", 1, at_end, latest).await.unwrap().keep().unwrap();
    assert!(window.cancel_at(&late, latest).await.unwrap());
}

#[tokio::test]
async fn the_largest_costs_are_granted_extended_and_settled() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    for limit in [
        "token-bucket 1000000000000/1000000000000us",
        "fixed-window 1000000000000/1000h",
        "sliding-window 1000000000000/1000h",
    ] {
        let limiter = limiter(&store, limit);
        let at = Time::saturating_from_micros(1_763_290_000_000_000);
        let reserved = limiter.reserve_at(KEY, TRILLION, options().at_least(1), at).await.unwrap();
        assert_eq!(reserved.granted(), TRILLION, "{limit}");
        let first = reserved.keep().unwrap();
        assert!(limiter.settle_at(&first, TRILLION - 10, at).await.unwrap());
        let reserved = limiter.reserve_at(KEY, TRILLION, options().at_least(10), at).await.unwrap();
        assert_eq!(reserved.granted(), 10, "{limit}");
        let second = reserved.keep().unwrap();
        let denied = limiter.extend_at(&second, TRILLION, None, at).await.unwrap();
        assert!(!denied.allowed());
        let denied = limiter.reserve_at(KEY, TRILLION, options().at_least(1), at).await.unwrap();
        assert_eq!((denied.allowed(), denied.granted()), (false, 0), "{limit}");
        assert!(limiter.settle_at(&second, u64::MAX, at).await.unwrap(), "{limit}: debt is capped");
    }
}

#[tokio::test]
async fn receipts_that_are_unknown_used_or_foreign_do_nothing() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limiter = limiter(&store, "fixed-window 100/1000h");
    let other = RedisLimiter::builder("fixed-window 100/1000h").in_store(&store, "other").build().unwrap();
    let used_up = reserve(&limiter, 5, options()).await;
    assert!(limiter.settle(&used_up, 5).await.unwrap());
    let foreign = other.reserve(KEY, 5, options()).await.unwrap().keep().unwrap();
    let reset = reserve(&limiter, 5, options()).await;
    limiter.reset(KEY).await.unwrap();
    for closed in [&used_up, &foreign, &reset] {
        assert!(!limiter.settle(closed, 9).await.unwrap() && !limiter.cancel(closed).await.unwrap());
        assert_eq!(verb_error(limiter.extend(closed, 9, None).await), VerbError::NotOpen);
        let wrong = VerbError::WrongCount { numbers: 2, calls: 1 };
        assert_eq!(verb_error(limiter.settle_each(closed, &[1, 2]).await), wrong);
        assert_eq!(verb_error(limiter.extend_each(closed, &[1, 2], None).await), wrong);
    }
    assert_eq!(used(&limiter).await, 0);
    let memory: Receipt = format!("m1.{}", "0".repeat(48)).parse().unwrap();
    assert_eq!(verb_error(limiter.extend(&memory, 1, None).await), VerbError::BadReceipt);
    assert_eq!(verb_error(settle_all(&memory, &[]).await), VerbError::BadReceipt);
    // The receipt of another key is not one of these calls.
    let calls = [limiter.call("user:43", 1)];
    assert!(!settle_all(&foreign, &calls).await.unwrap() && !cancel_all(&foreign, &calls).await.unwrap());
    assert_eq!(verb_error(extend_all(&foreign, &calls, None).await), VerbError::NotOpen);
}

#[tokio::test]
async fn sixty_four_calls_are_reserved_and_one_more_is_rejected() {
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limiter = limiter(&store, "fixed-window 100/1000h");
    let calls: Vec<RedisCall<'_>> = (0..=CALLS_MAX).map(|key| limiter.call(format!("key{key}"), 2)).collect();
    let rejected = verb_error(reserve_all(&calls, options()).await);
    assert_eq!(rejected, VerbError::TooManyCalls(CALLS_MAX + 1));
    let reserved = reserve_all(&calls[..CALLS_MAX], options()).await.unwrap();
    assert_eq!(reserved.granted(), 128);
    let receipt = reserved.keep().unwrap();
    assert_eq!(
        verb_error(limiter.settle_each(&receipt, &[1; 63]).await),
        VerbError::WrongCount { numbers: 63, calls: 64 }
    );
    assert!(limiter.extend_each(&receipt, &[3; 64], None).await.unwrap().allowed());
    limiter.reset("key7").await.unwrap();
    assert!(limiter.settle_each(&receipt, &[1]).await.unwrap());
    for (key, expected) in [("key0", 1), ("key7", 0), ("key63", 1)] {
        assert_eq!(limiter.usage(key).await.unwrap()[0].1.used, expected, "{key}");
    }
    // Calls on keys without a limit alone have no receipt.
    let unlimited = reserve_all(&[RedisCall::unlimited(7)], options()).await.unwrap();
    assert_eq!((unlimited.allowed(), unlimited.granted(), unlimited.keep()), (true, 7, None));
    let several = reserve_all(&calls[..2], options().at_least(1)).await;
    assert_eq!(verb_error(several), VerbError::AtLeastOfSeveral);
    assert!(check_all(&calls[..2]).await.unwrap().0.allowed());
}

#[tokio::test]
async fn a_reservation_stays_open_if_it_cannot_be_settled() {
    let server = Server::start(&Options::redis());
    let limiter = limiter(&connect(&server.url()).await, "fixed-window 100/1000h");
    let calls = [limiter.call(KEY, 20), limiter.call("user:43", 30)];
    let mut reserved = reserve_all(&calls, options()).await.unwrap();
    let wrong = VerbError::WrongCount { numbers: 3, calls: 2 };
    assert_eq!(verb_error(reserved.settle_each(&[1, 2, 3]).await), wrong);
    assert!(reserved.settle_each(&[1, 2]).await.unwrap());
    assert!(!reserved.settle_each(&[1, 2]).await.unwrap(), "it is settled");
    assert_eq!(used(&limiter).await, 1);
}

/// Prints what calls over 6 keys take without a receipt and with one.
#[tokio::test]
#[ignore = "a measurement, for an idle machine: run it with --ignored --nocapture"]
#[allow(clippy::print_stdout, reason = "the figures are for `--nocapture`")]
async fn a_receipt_over_six_keys() {
    const ROUNDS: usize = 2_000;
    let server = Server::start(&Options::redis());
    let store = connect(&server.url()).await;
    let limiter = limiter(&store, "token-bucket 1000000/1000h");
    let calls: Vec<RedisCall<'_>> = (0..6).map(|key| limiter.call(format!("key{key}"), 1)).collect();
    let (mut checks, mut with_receipts) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = std::time::Instant::now();
        assert!(check_all(&calls).await.unwrap().0.allowed());
        checks.push(began.elapsed());
        let began = std::time::Instant::now();
        let reserved = reserve_all(&calls, options()).await.unwrap();
        with_receipts.push(began.elapsed());
        assert!(reserved.cancel().await.unwrap());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[ROUNDS / 2].as_nanos()
    };
    let (check, reserve) = (median(&mut checks), median(&mut with_receipts));
    println!("check_all {} µs, reserve_all {} µs", check / 1_000, reserve / 1_000);
}
