//! Calls that are sent together are decided in their order, also where the store does not know every script yet.

use crate::in_redis::Connected;
use fastrand::Rng;
use redis_testkit::{Options, Server};
use sluicegate::MemoryStore;
use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Span, Time};
use sluicegate_redis::{RedisLimiter, check_each};

#[test]
fn the_first_call_that_costs_nothing_keeps_its_place_among_others() {
    let server = Server::start(&Options::redis());
    let lists: [&[&str]; 4] = [
        &["token-bucket 100/s burst=40"],
        &["sliding-window 300/1s"],
        &["sliding-log 300/1s"],
        &["fixed-window 400/1s", "token-bucket 300/s burst=90"],
    ];
    for limits in lists {
        // A call that costs nothing is a script of its own, which nobody has asked for before the second batch.
        server.cli(&["SCRIPT", "FLUSH"]);
        let connected = Connected::to(&server.url());
        let start = Time::from_micros(1_763_290_000_000_000).unwrap();
        let shared = RedisLimiter::builder(limits).in_store(&connected.store, &limits.join(" ")).build();
        let shared = shared.unwrap();
        let memory = Limiter::builder(limits).clock(ManualClock::at(start)).build().unwrap();
        let costs = (0..600_u64).map(|place| if place == 550 || place > 580 { 0 } else { 1 + place % 3 });
        let steps =
            std::iter::successors(Some(start), |now| Some(now.saturating_add(Span::from_micros(5_000))));
        let rows: Vec<(u64, Time)> = costs.zip(steps).collect();
        let mut denied = 0;
        for (batch, rows) in rows.chunks(512).enumerate() {
            let calls: Vec<_> =
                rows.iter().map(|(cost, now)| shared.call(b"Harry", *cost).at(*now)).collect();
            let answers = connected.runtime.block_on(check_each(&calls));
            for (place, (answer, (cost, now))) in answers.into_iter().zip(rows).enumerate() {
                let decision = answer.unwrap().decision();
                denied += u64::from(!decision.allowed());
                let expected = memory.check_at("Harry", *cost, *now);
                assert_eq!(decision, expected, "{limits:?}, batch {batch}, call {place}, cost {cost}");
            }
        }
        assert!(denied > 50, "{limits:?}: {denied} denied");
    }
}

#[test]
fn numbers_that_change_within_a_batch_are_taken_up_in_order() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let limits = ["15/3s burst=16", "1/30s burst=16", "30/1s burst=16", "7/9s burst=5"];
    let mut rng = Rng::with_seed(2);
    // As redis-cell does, and as a rule whose numbers change.
    for preserve_recovery_time in [true, false] {
        let scope = format!("keeps {preserve_recovery_time}");
        let memory = MemoryStore::builder().max_keys(16).build().unwrap();
        let pairs: Vec<(RedisLimiter, Limiter)> = limits
            .iter()
            .map(|numbers| {
                let limit = format!("token-bucket {numbers}");
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
                rows.iter().map(|(place, cost)| pairs[*place].0.call(b"Harry", *cost).at(now)).collect();
            let answers = connected.runtime.block_on(check_each(&calls));
            for (call, (answer, (place, cost))) in answers.into_iter().zip(&rows).enumerate() {
                let expected = pairs[*place].1.check_at("Harry", *cost, now);
                let context = format!(
                    "preserve_recovery_time {preserve_recovery_time}, batch {batch}, call {call}: {}",
                    limits[*place]
                );
                assert_eq!(answer.unwrap().decision(), expected, "{context}, cost {cost}");
            }
        }
    }
}
