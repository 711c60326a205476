//! Logs that are too long to be read at once agree with those in memory, under every verb.

use crate::in_redis::Connected;
use fastrand::Rng;
use redis_testkit::{Options, Server};
use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Span, Time};
use sluicegate_redis::RedisLimiter;
use std::collections::VecDeque;

const KEY: &str = "user:42";
const START: u64 = 1_763_290_000_000_000;

#[test]
fn every_verb_on_a_long_log_agrees_with_memory() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let mut rng = Rng::with_seed(4);
    let lists = [
        (["sliding-log 4000/10s", "sliding-log 3000/6s"], 5_000),
        (["sliding-log 2500/1s count=all", "sliding-log 2000/700ms count=all"], 500),
    ];
    for (limits, step) in lists {
        let [limit, _] = limits;
        let other = |limit: &str| RedisLimiter::builder(limit).in_store(&connected.store, limits[0]).build();
        let mut shared = other(limit).unwrap();
        let mut now = Time::from_micros(START).unwrap();
        let memory = Limiter::builder(limit).clock(ManualClock::at(now)).build().unwrap();
        let mut receipts = VecDeque::new();
        let (mut denied, mut longest) = (0, 0);
        for place in 0..6_000 {
            // Now and then many entries age out at once.
            let pause = if rng.u16(..700) == 0 { 8_000_000 } else { rng.u64(..step) };
            now = now.saturating_add(Span::from_micros(pause));
            let cost = if rng.u8(..100) == 0 { rng.u64(..900) } else { rng.u64(1..=3) };
            let context = format!("{limit}, call {place}, cost {cost}");
            // The period changes too: calls that have aged out stay so.
            if rng.u16(..300) == 0 {
                let changed = limits[rng.usize(..2)];
                shared = other(changed).unwrap();
                memory.change(changed).unwrap();
            }
            match rng.u8(..40) {
                0 => {
                    let expected = memory.refund_at(KEY, cost, now).unwrap();
                    let answer = connected.runtime.block_on(shared.refund_at(KEY, cost, now)).unwrap();
                    assert_eq!(answer.decision(), expected, "{context}: refund");
                }
                1 => {
                    let expected = memory.next_window_at(KEY, now);
                    let next = connected.runtime.block_on(shared.next_window_at(KEY, now)).unwrap();
                    assert_eq!(next, expected, "{context}: next window");
                    let usage = connected.runtime.block_on(shared.usage_at(KEY, now)).unwrap();
                    assert_eq!(usage, memory.usage_at(KEY, now), "{context}: usage");
                }
                2 | 3 if !limit.contains("all") => {
                    let expected = memory.reserve_at(KEY, cost, Span::ZERO, now).unwrap();
                    let reserved = shared.reserve_at(KEY, cost, Span::ZERO, now);
                    let reserved = connected.runtime.block_on(reserved).unwrap();
                    assert_eq!(reserved.decision(), expected.decision(), "{context}: reserve");
                    receipts.extend(reserved.keep().zip(expected.keep()));
                }
                4 | 5 if receipts.len() > 5 => {
                    let (receipt, known) = receipts.remove(rng.usize(..receipts.len())).unwrap();
                    let expected = memory.settle_at(&known, cost, now);
                    let settled = connected.runtime.block_on(shared.settle_at(&receipt, cost, now));
                    assert_eq!(settled.unwrap(), expected, "{context}: settle");
                }
                6 => {
                    let expected = memory.peek_at(KEY, cost, now);
                    let answer = connected.runtime.block_on(shared.peek_at(KEY, cost, now)).unwrap();
                    assert_eq!(answer.decision(), expected, "{context}: peek");
                }
                _ => {
                    let expected = memory.check_at(KEY, cost, now);
                    let answer = connected.runtime.block_on(shared.check_at(KEY, cost, now)).unwrap();
                    assert_eq!(answer.decision(), expected, "{context}");
                    denied += u64::from(!answer.allowed());
                }
            }
            if place % 100 == 0 {
                let name = format!("sluice:1/{limit}:0g|{{{KEY}}}");
                // A short log is a string.
                if server.cli(&["TYPE", &name]).trim() == "hash" {
                    longest = longest.max(server.cli(&["HLEN", &name]).trim().parse::<u64>().unwrap());
                }
            }
        }
        assert!(denied > 100 && longest > 5, "{limit}: {denied} denied, {longest} fields");
    }
}

/// Cancels, refunds and settlements in any order, until blocks of the log were lowered,
/// emptied and joined.
#[test]
fn returns_across_the_blocks_of_a_long_log_agree_with_memory() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let mut rng = Rng::with_seed(5);
    let limit = "sliding-log 9000/1h";
    let shared = RedisLimiter::builder(limit).in_store(&connected.store, "log").build().unwrap();
    let run = &connected.runtime;
    let mut now = Time::from_micros(START).unwrap();
    let memory = Limiter::builder(limit).clock(ManualClock::at(now)).build().unwrap();
    let name = format!("sluice:1/log:0g|{{{KEY}}}");
    let fields = || server.cli(&["HLEN", &name]).trim().parse::<u64>().unwrap();
    let mut receipts = Vec::new();
    for round in 0..4 {
        let mut most = 0;
        while receipts.len() < 1_000 {
            now = now.saturating_add(Span::from_micros(rng.u64(..6)));
            let cost = rng.u64(1..4);
            let expected = memory.reserve_at(KEY, cost, Span::ZERO, now).unwrap();
            let reserved = run.block_on(shared.reserve_at(KEY, cost, Span::ZERO, now)).unwrap();
            assert_eq!(reserved.decision(), expected.decision(), "round {round}");
            receipts.extend(reserved.keep().zip(expected.keep()));
            if receipts.len() % 500 == 0 {
                most = most.max(fields());
            }
        }
        rng.shuffle(&mut receipts);
        // The last round returns everything that is left.
        while receipts.len() > if round == 3 { 0 } else { 60 } {
            let (receipt, known) = receipts.pop().unwrap();
            let used = if rng.u8(..4) == 0 { rng.u64(..5) } else { 0 };
            let context = format!("round {round}, {} receipts left, {used} used", receipts.len());
            let expected = memory.settle_at(&known, used, now);
            assert_eq!(run.block_on(shared.settle_at(&receipt, used, now)).unwrap(), expected, "{context}");
            if rng.u8(..50) == 0 {
                let returned = rng.u64(..150);
                let expected = memory.refund_at(KEY, returned, now).unwrap();
                let refunded = run.block_on(shared.refund_at(KEY, returned, now)).unwrap();
                assert_eq!(refunded.decision(), expected, "{context}: refund of {returned}");
            }
            // A denial depends on every total between the oldest entry and the newest.
            let cost = rng.u64(8_000..=9_000);
            let peeked = run.block_on(shared.peek_at(KEY, cost, now)).unwrap();
            assert_eq!(peeked.decision(), memory.peek_at(KEY, cost, now), "{context}: peek of {cost}");
            let next = run.block_on(shared.next_window_at(KEY, now)).unwrap();
            assert_eq!(next, memory.next_window_at(KEY, now), "{context}: next window");
            let usage = run.block_on(shared.usage_at(KEY, now)).unwrap();
            assert_eq!(usage, memory.usage_at(KEY, now), "{context}: usage");
        }
        assert!(most > 6 && fields() < most, "round {round}: {most} fields, then {}", fields());
    }
}
