//! Logs that are too long to be read at once give the answers of memory, whatever is done to them.

use crate::in_redis::Connected;
use fastrand::Rng;
use redis_testkit::{Options, Server};
use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Span, Time};
use sluicegate_redis::RedisLimiter;
use std::collections::VecDeque;

const KEY: &str = "Harry";
const START: u64 = 1_763_290_000_000_000;

#[test]
fn every_verb_on_a_log_of_a_thousand_entries_is_answered_as_in_memory() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let mut rng = Rng::with_seed(4);
    for (limit, step) in [("sliding-log 4000/10s", 5_000), ("sliding-log 2500/1s count=all", 500)] {
        let shared = RedisLimiter::builder(limit).in_store(&connected.store, limit).build().unwrap();
        let mut now = Time::from_micros(START).unwrap();
        let memory = Limiter::builder(limit).clock(ManualClock::at(now)).build().unwrap();
        let run = |future| connected.runtime.block_on(future);
        let mut receipts = VecDeque::new();
        let (mut denied, mut longest) = (0, 0);
        for place in 0..6_000 {
            // Now and then many leave at once.
            let pause = if rng.u16(..700) == 0 { 8_000_000 } else { rng.u64(..step) };
            now = now.saturating_add(Span::from_micros(pause));
            let cost = if rng.u8(..100) == 0 { rng.u64(..900) } else { rng.u64(1..=3) };
            let context = format!("{limit}, call {place}, cost {cost}");
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
                    let answer = run(shared.check_at(KEY, cost, now)).unwrap();
                    assert_eq!(answer.decision(), expected, "{context}");
                    denied += u64::from(!answer.allowed());
                }
            }
            if place % 100 == 0 {
                let name = format!("sluice:1/{limit}:0g|{{{KEY}}}");
                longest = longest.max(server.cli(&["STRLEN", &name]).trim().parse::<u64>().unwrap());
            }
        }
        assert!(denied > 100 && longest > 7_000, "{limit}: {denied} denied, {longest} bytes");
    }
}
