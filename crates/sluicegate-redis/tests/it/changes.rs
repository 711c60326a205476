//! Changed limits, calendars by the store's clock, and expiries.

use crate::in_redis::Connected;
use redis_testkit::{Options, Server};
use sluicegate::{Limiter, MemoryStore, ReserveOptions, Span, TTL_MAX, Time, Ttl, VerbError};
use sluicegate_core::time::SECOND;
use sluicegate_redis::{RedisLimiter, check_all};
use std::time::Duration;

const KEY: &str = "user:42";
/// A second after `at(0)`.
const START: &str = "2025-11-16T10:46:41Z";

fn at(micros: u64) -> Time {
    Time::from_micros(1_763_290_000 * SECOND + micros).unwrap()
}

fn limiter(connected: &Connected, limits: &str, scope: &str) -> RedisLimiter {
    RedisLimiter::builder(limits).in_store(&connected.store, scope).build().unwrap()
}

/// The expiry of a key, in milliseconds.
fn stays(server: &Server, name: &str) -> i64 {
    server.cli(&["PTTL", name]).trim().parse().unwrap()
}

#[test]
fn a_bucket_whose_rate_changes_keeps_its_usage_as_in_memory() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let rates =
        ["7/3s burst=15", "100/1s burst=15", "1/7s burst=30", "999999937/365d burst=9", "7/3s burst=2"];
    let mut rng = fastrand::Rng::with_seed(3);
    for algorithm in ["token-bucket", "leaky-bucket"] {
        let memory = MemoryStore::builder().max_keys(16).build().unwrap();
        let mut now = 0;
        for step in 0..300 {
            let rate = rates[rng.usize(..rates.len())];
            let limit = format!("{algorithm} {rate}");
            let limit = if algorithm == "leaky-bucket" { limit.replace("burst", "capacity") } else { limit };
            let shared = limiter(&connected, &limit, algorithm);
            let own = Limiter::builder(limit.as_str()).in_store(&memory, algorithm).build().unwrap();
            for _ in 0..rng.u8(1..4) {
                now += rng.u64(..2 * SECOND);
                let cost = rng.u64(1..4);
                // A peek first, which must agree and change nothing.
                let peeked = connected.runtime.block_on(shared.peek_at(KEY, cost, at(now))).unwrap();
                assert_eq!(peeked.decision(), own.peek_at(KEY, cost, at(now)), "{limit}, step {step}: peek");
                let checked = connected.runtime.block_on(shared.check_at(KEY, cost, at(now))).unwrap();
                assert_eq!(checked.decision(), own.check_at(KEY, cost, at(now)), "{limit}, step {step}");
            }
        }
    }
}

#[test]
fn smooth_whose_limit_changes_keeps_its_state_as_in_memory() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let parameters = [
        "10/s",
        "40/s",
        "7/3s burst=15",
        "7/3s burst=15 initial=4",
        "10/s warmup=4s",
        "10/s warmup=4s cold=2.5",
        "333/9s warmup=50ms start=1970-01-01T00:00:01Z",
    ];
    let mut rng = fastrand::Rng::with_seed(5);
    let memory = MemoryStore::builder().max_keys(16).build().unwrap();
    let mut now = 10 * SECOND;
    for step in 0..400 {
        let limit = format!("smooth {}", parameters[rng.usize(..parameters.len())]);
        let shared = RedisLimiter::builder(limit.as_str()).in_store(&connected.store, "smooth");
        let shared = shared.start(at(SECOND)).build().unwrap();
        // Its limit names the same start.
        let own = if limit.contains("start=") { limit.clone() } else { format!("{limit} start={START}") };
        let own = Limiter::builder(own.as_str()).in_store(&memory, "smooth").build().unwrap();
        for _ in 0..rng.u8(1..4) {
            now += rng.u64(..SECOND);
            let (cost, max_wait) = (rng.u64(..6), Span::from_micros(rng.u64(..SECOND)));
            let context = format!("{limit}, step {step}, cost {cost}");
            let peeked = connected.runtime.block_on(shared.peek_at(KEY, cost, at(now))).unwrap();
            assert_eq!(peeked.decision(), own.peek_at(KEY, cost, at(now)), "{context}: peek");
            if rng.bool() {
                let checked = connected.runtime.block_on(shared.check_at(KEY, cost, at(now))).unwrap();
                assert_eq!(checked.decision(), own.check_at(KEY, cost, at(now)), "{context}");
            } else if cost > 0 {
                let checked = shared.check_within_at(KEY, cost, max_wait, at(now));
                let checked = connected.runtime.block_on(checked).unwrap().decision();
                assert_eq!(Ok(checked), own.check_within_at(KEY, cost, max_wait, at(now)), "{context}");
            }
        }
    }
}

/// Across 2^32, where the counters get another size in memory, with debt beyond either size.
#[test]
fn a_sliding_window_whose_count_changes_keeps_its_usage_as_in_memory() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let (run, counts) = (&connected.runtime, [10, 4_294_967_295, 4_294_967_296, 1_000_000_000_000]);
    let memory = MemoryStore::builder().max_keys(16).build().unwrap();
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut now, mut receipts, mut capped) = (0, Vec::new(), 0);
    for step in 0..300 {
        let limit = format!("sliding-window {}/h", counts[rng.usize(..counts.len())]);
        let shared = limiter(&connected, &limit, "window");
        let own = Limiter::builder(limit.as_str()).in_store(&memory, "window").build().unwrap();
        for _ in 0..rng.u8(1..5) {
            now += rng.u64(..1_000 * SECOND);
            let (now, cost) = (at(now), counts[rng.usize(..counts.len())] / rng.u64(1..4));
            let context = format!("{limit}, step {step}, cost {cost}");
            let usage = own.usage_at(KEY, now)[0].1;
            let most =
                if usage.limit > u64::from(u32::MAX) { 2_000_000_000_000 } else { u64::from(u32::MAX) };
            capped += u32::from(usage.used >= most);
            assert_eq!(run.block_on(shared.usage_at(KEY, now)).unwrap(), own.usage_at(KEY, now), "{context}");
            if rng.bool() {
                let checked = run.block_on(shared.check_at(KEY, cost, now)).unwrap();
                assert_eq!(checked.decision(), own.check_at(KEY, cost, now), "{context}");
            } else if receipts.len() < 3 {
                let reserved = run.block_on(shared.reserve_at(KEY, 1, Span::ZERO, now)).unwrap();
                let own_reserved = own.reserve_at(KEY, 1, Span::ZERO, now).unwrap();
                assert_eq!(reserved.decision(), own_reserved.decision(), "{context}");
                receipts.extend(reserved.keep().zip(own_reserved.keep()));
            } else {
                let (receipt, own_receipt) = receipts.swap_remove(rng.usize(..receipts.len()));
                let settled = run.block_on(shared.settle_at(&receipt, cost, now)).unwrap();
                assert_eq!(settled, own.settle_at(&own_receipt, cost, now), "{context}");
            }
        }
    }
    assert!(capped > 10, "{capped}");
}

#[test]
fn a_smooth_key_expires_once_it_equals_an_unseen_key() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let stays_for = |limit: &str, scope: &str, cost| {
        let smooth = limiter(&connected, limit, scope);
        assert!(connected.runtime.block_on(smooth.check_cost(KEY, cost)).unwrap().allowed());
        stays(&server, &format!("sluice:1/{scope}:0o|{{user:42}}")) / 1000
    };
    // Ten seconds until the next call, and one until all permits are stored. The key is as old as
    // the limiter, which has stored nothing.
    let bursty = stays_for("smooth 10/s", "bursty", 100);
    assert!((10..=12).contains(&bursty), "{bursty} s");
    let warming = stays_for("smooth 10/s warmup=1h", "warming", 1);
    assert!((1..=2).contains(&warming), "{warming} s");
    let unseen = stays_for("smooth 10/s burst=1000000 start=2200-01-01T00:00:00Z", "unseen", 1);
    assert!(unseen > 5_000_000_000, "{unseen} s");
}

#[test]
fn a_calendar_day_follows_the_stores_clock() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let check_in = limiter(&connected, "fixed-window 1/day tz=+08:00", "check-in");
    let first = connected.runtime.block_on(check_in.check(KEY)).unwrap();
    let second = connected.runtime.block_on(check_in.check(KEY)).unwrap();
    assert!(first.allowed() && !second.allowed());
    let next = connected.runtime.block_on(check_in.next_window(KEY)).unwrap();
    // Midnight there is 16:00 UTC.
    assert_eq!(next.as_micros() % (86_400 * SECOND), 16 * 3_600 * SECOND);
}

/// These limiters have not seen the store's time yet, so the script has to ask for the windows.
#[test]
fn every_verb_can_be_the_first_on_a_calendar() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let first = |scope: &str| limiter(&connected, "fixed-window 5/month tz=+08:00", scope);
    let run = &connected.runtime;
    assert_eq!(run.block_on(first("peek").peek(KEY, 1)).unwrap().remaining(), 5);
    assert_eq!(run.block_on(first("take").take(KEY, 2)).unwrap().1, 2);
    assert_eq!(run.block_on(first("refund").refund(KEY, 2)).unwrap().remaining(), 5);
    assert!(run.block_on(first("reserve").reserve(KEY, 2, Duration::ZERO)).unwrap().keep().is_some());
    assert!(run.block_on(first("next").next_window(KEY)).is_ok());
    let list = RedisLimiter::builder(["fixed-window 5/month tz=+08:00", "token-bucket 9/s"]);
    let list = list.in_store(&connected.store, "list").build().unwrap();
    assert_eq!(run.block_on(list.check(KEY)).unwrap().remaining(), 4);
}

#[test]
fn a_log_whose_period_grows_expires_later() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    for limit in ["sliding-log 9/2s", "sliding-log 9/1h"] {
        assert!(connected.runtime.block_on(limiter(&connected, limit, "log").check(KEY)).unwrap().allowed());
    }
    assert!(stays(&server, "sluice:1/log:0g|{user:42}") > 3_600_000);
}

#[test]
fn a_full_bucket_is_kept_while_unseen_ones_are_filling() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    let start = Time::from_micros(u64::try_from(now).unwrap()).unwrap();
    let bucket = RedisLimiter::builder("token-bucket 1/300d burst=2 initial=1").start(start);
    let bucket = bucket.in_store(&connected.store, "slow").build().unwrap();
    assert!(connected.runtime.block_on(bucket.check(KEY)).unwrap().allowed());
    let refunded = connected.runtime.block_on(bucket.refund(KEY, 2)).unwrap();
    assert_eq!(refunded.remaining(), 2);
    assert!(stays(&server, "sluice:1/slow:0t|{user:42}") > 299 * 86_400_000);
}

#[test]
fn the_open_receipts_of_a_key_are_bounded() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let bucket = limiter(&connected, "fixed-window 20000/1h start=first", "receipts");
    for _ in 0..16_384 {
        let reserved = connected.runtime.block_on(bucket.reserve(KEY, 1, Duration::ZERO)).unwrap();
        assert!(reserved.keep().is_some());
    }
    let full = connected.runtime.block_on(bucket.reserve(KEY, 1, Duration::ZERO));
    assert_eq!(full.unwrap_err(), VerbError::TooManyReceiptsOfKey.into());
    let peeked = connected.runtime.block_on(bucket.peek(KEY, 1)).unwrap();
    assert_eq!(peeked.remaining(), 20_000 - 16_384, "a rejected reservation is not charged");
}

#[test]
fn old_receipts_that_are_worth_nothing_make_room() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let window = limiter(&connected, "fixed-window 20000/1s", "old");
    let reserve = |now| connected.runtime.block_on(window.reserve_at(KEY, 1, Span::ZERO, at(now)));
    let settle = |receipt| connected.runtime.block_on(window.settle_at(receipt, 2, at(3_601 * SECOND)));
    // Neither stops the search: one has a time to live, and one has several charges.
    let options = ReserveOptions::default().ttl(Ttl::keep(TTL_MAX));
    let stays = connected.runtime.block_on(window.reserve_at(KEY, 1, options, at(0)));
    let stays = stays.unwrap().keep().unwrap();
    let extended = reserve(0).unwrap().keep().unwrap();
    for _ in 0..30 {
        let extend = window.extend_at(&extended, 1, None, at(0));
        assert!(connected.runtime.block_on(extend).unwrap().allowed());
    }
    let oldest = reserve(0).unwrap().keep().unwrap();
    for _ in 33..16_384 {
        assert!(reserve(0).unwrap().keep().is_some());
    }
    // Worth nothing after a second, but kept for an hour.
    assert_eq!(reserve(3_600 * SECOND).unwrap_err(), VerbError::TooManyReceiptsOfKey.into());
    for _ in 0..300 {
        assert!(reserve(3_601 * SECOND).unwrap().keep().is_some());
    }
    assert!(!settle(&oldest).unwrap() && !settle(&extended).unwrap(), "the oldest made room");
    assert!(settle(&stays).unwrap());
}

#[test]
fn limiters_in_different_stores_are_not_charged_together() {
    let servers = [Server::start(&Options::redis()), Server::start(&Options::redis())];
    let connected = servers.each_ref().map(|server| Connected::to(&server.url()));
    let limiters = connected.each_ref().map(|connected| limiter(connected, "fixed-window 2/1h", "same"));
    let calls = [limiters[0].call(b"user:42", 1), limiters[1].call(b"user:42", 1)];
    let refused = connected[0].runtime.block_on(check_all(&calls));
    assert_eq!(refused.unwrap_err(), VerbError::StoresDiffer.into());
}
