//! The calls of a batch are decided in order, even if the store does not have every script yet.

use crate::in_redis::Connected;
use fastrand::Rng;
use redis_testkit::{Options, Server};
use sluicegate::MemoryStore;
use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Span, Time};
use sluicegate_redis::{RedisLimiter, check_each};

#[test]
fn the_first_call_of_cost_0_keeps_its_position() {
    let server = Server::start(&Options::redis());
    let lists: [&[&str]; 4] = [
        &["token-bucket 100/s burst=40"],
        &["sliding-window 300/1s"],
        &["sliding-log 300/1s"],
        &["fixed-window 400/1s", "token-bucket 300/s burst=90"],
    ];
    for limits in lists {
        // A call of cost 0 has a script of its own, which is first used in the second batch.
        server.cli(&["SCRIPT", "FLUSH"]);
        let connected = Connected::to(&server.url());
        let start = Time::from_micros(1_763_290_000_000_000).unwrap();
        let shared = RedisLimiter::builder(limits).in_store(&connected.store, &limits.join(" ")).build();
        let shared = shared.unwrap();
        let memory = Limiter::builder(limits).clock(ManualClock::at(start)).build().unwrap();
        let costs = (0..600_u64).map(|index| if index == 550 || index > 580 { 0 } else { 1 + index % 3 });
        let steps =
            std::iter::successors(Some(start), |now| Some(now.saturating_add(Span::from_micros(5_000))));
        let rows: Vec<(u64, Time)> = costs.zip(steps).collect();
        let mut denied = 0;
        for (batch, rows) in rows.chunks(512).enumerate() {
            let calls: Vec<_> =
                rows.iter().map(|(cost, now)| shared.call(b"user:42", *cost).at(*now)).collect();
            let answers = connected.runtime.block_on(check_each(&calls));
            for (index, (answer, (cost, now))) in answers.into_iter().zip(rows).enumerate() {
                let decision = answer.unwrap().decision();
                denied += u64::from(!decision.allowed());
                let expected = memory.check_at("user:42", *cost, *now);
                assert_eq!(decision, expected, "{limits:?}, batch {batch}, call {index}, cost {cost}");
            }
        }
        assert!(denied > 50, "{limits:?}: {denied} denied");
    }
}

#[test]
fn limits_that_change_within_a_batch_apply_in_order() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let limits = ["15/3s burst=16", "1/30s burst=16", "30/1s burst=16", "7/9s burst=5"];
    let mut rng = Rng::with_seed(2);
    // Like redis-cell, and like a rule whose limit changes.
    for preserve_recovery_time in [true, false] {
        let scope = format!("keeps {preserve_recovery_time}");
        let memory = MemoryStore::builder().max_keys(16).build().unwrap();
        let pairs: Vec<(RedisLimiter, Limiter)> = limits
            .iter()
            .map(|rate| {
                let limit = format!("token-bucket {rate}");
                let shared = RedisLimiter::builder(limit.as_str()).in_store(&connected.store, &scope);
                let own = Limiter::builder(limit.as_str()).in_store(&memory, scope.clone());
                let (shared, own) = if preserve_recovery_time {
                    (shared.preserve_recovery_time(), own.preserve_recovery_time())
                } else {
                    (shared, own)
                };
                (shared.build().unwrap(), own.build().unwrap())
            })
            .collect();
        let mut now = Time::from_micros(1_763_290_000_000_000).unwrap();
        for batch in 0..60 {
            now = now.saturating_add(Span::from_micros(rng.u64(..3_000_000)));
            let rows: Vec<(usize, u64)> =
                (0..rng.usize(2..20)).map(|_| (rng.usize(..limits.len()), rng.u64(..4))).collect();
            let calls: Vec<_> =
                rows.iter().map(|(index, cost)| pairs[*index].0.call(b"user:42", *cost).at(now)).collect();
            let answers = connected.runtime.block_on(check_each(&calls));
            for (call, (answer, (index, cost))) in answers.into_iter().zip(&rows).enumerate() {
                let expected = pairs[*index].1.check_at("user:42", *cost, now);
                let context = format!(
                    "preserve_recovery_time {preserve_recovery_time}, batch {batch}, call {call}: {}",
                    limits[*index]
                );
                assert_eq!(answer.unwrap().decision(), expected, "{context}, cost {cost}");
            }
        }
    }
}
