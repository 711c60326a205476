//! Keys with many open receipts, in many blocks of the store, agree with those in memory.

use crate::in_redis::Connected;
use fastrand::Rng;
use redis_testkit::{Options, Server};
use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Span, Time};
use sluicegate_redis::RedisLimiter;

const KEY: &str = "user:42";
const START: u64 = 1_763_290_000_000_000;

/// Several blocks, in memory and in the store.
const MOST: usize = 1_000;

/// Opens and closes receipts at random, from none to many and back, twice.
fn agrees(connected: &Connected, server: &Server, limits: &[&str], seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let scope = format!("many{seed}");
    let shared = RedisLimiter::builder(limits).in_store(&connected.store, &scope).build().unwrap();
    let mut now = Time::from_micros(START).unwrap();
    let memory = Limiter::builder(limits).clock(ManualClock::at(now)).build().unwrap();
    let run = &connected.runtime;
    let mut receipts = Vec::new();
    let (mut returned, mut most_fields) = (0, 0);
    for phase in 0..4 {
        let grows = phase % 2 == 0;
        let mut step = 0;
        while if grows { receipts.len() < MOST } else { !receipts.is_empty() } && step < 4_000 {
            step += 1;
            // Equal times too: calls of one microsecond are one entry of a log.
            let pause = if rng.u8(..3) == 0 { 0 } else { rng.u64(..400) };
            now = now.saturating_add(Span::from_micros(pause));
            let cost = rng.u64(1..=5);
            let context = format!("{limits:?}, phase {phase}, step {step}, cost {cost}");
            match rng.u8(..100) {
                0..4 => {
                    let cost = if rng.u8(..8) == 0 { cost * 150 } else { cost };
                    let expected = memory.refund_at(KEY, cost, now).unwrap();
                    let answer = run.block_on(shared.refund_at(KEY, cost, now)).unwrap();
                    assert_eq!(answer.decision(), expected, "{context}: refund");
                }
                4..15 => {
                    let expected = memory.check_at(KEY, cost, now);
                    let answer = run.block_on(shared.check_at(KEY, cost, now)).unwrap();
                    assert_eq!(answer.decision(), expected, "{context}: check");
                }
                action if (action < 85) == grows => {
                    let max_wait = Span::from_micros(rng.u64(..2_000_000));
                    let expected = memory.reserve_at(KEY, cost, max_wait, now).unwrap();
                    let reserved = run.block_on(shared.reserve_at(KEY, cost, max_wait, now)).unwrap();
                    assert_eq!(reserved.decision(), expected.decision(), "{context}: reserve");
                    receipts.extend(reserved.keep().zip(expected.keep()));
                }
                action if !receipts.is_empty() => {
                    // Mostly neighbours, so that some blocks empty before others.
                    let place = if rng.bool() { rng.usize(..receipts.len()) } else { receipts.len() / 3 };
                    let (receipt, known) = receipts.remove(place);
                    if action % 2 == 0 {
                        let expected = memory.cancel_at(&known, now);
                        let cancelled = run.block_on(shared.cancel_at(&receipt, now)).unwrap();
                        assert_eq!(cancelled, expected, "{context}: cancel");
                        returned += u64::from(expected);
                    } else {
                        let expected = memory.settle_at(&known, cost, now);
                        let settled = run.block_on(shared.settle_at(&receipt, cost, now)).unwrap();
                        assert_eq!(settled, expected, "{context}: settle");
                    }
                }
                _ => {}
            }
            let expected = memory.peek_at(KEY, 1, now);
            let peeked = run.block_on(shared.peek_at(KEY, 1, now)).unwrap();
            assert_eq!(peeked.decision(), expected, "{context}: peek");
        }
        let fields = server.cli(&["HLEN", &format!("sluice:1/{scope}:r|{{{KEY}}}")]);
        let fields: usize = fields.trim().parse().unwrap();
        most_fields = most_fields.max(fields);
        // The header, and blocks that are half full on average.
        assert!(fields <= receipts.len() + 2 + receipts.len() / 64, "{limits:?}: {fields} fields");
    }
    assert!(returned > 20 && most_fields > 200, "{limits:?}: {returned} returned, {most_fields} fields");
}

#[test]
fn many_receipts_agree_with_memory() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let lists: [&[&str]; 8] = [
        &["token-bucket 7000/3s burst=9000"],
        &["leaky-bucket 1000003/700s capacity=20000"],
        &["token-bucket 1000/1s burst=50"],
        &["fixed-window 100000/300ms"],
        &["fixed-window 100000/200ms start=first"],
        &["sliding-window 100000/100ms"],
        &["sliding-log 10000/10s"],
        &["token-bucket 7000/3s burst=9000", "sliding-log 10000/1s", "fixed-window 100000/1s"],
    ];
    for (seed, limits) in lists.into_iter().enumerate() {
        agrees(&connected, &server, limits, seed as u64);
    }
}
