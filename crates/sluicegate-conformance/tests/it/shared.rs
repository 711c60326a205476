//! Limiters in a shared `MemoryStore`: the whole suite and every verb, while others use the same
//! keys; and churn.

use fastrand::Rng;
use sluicegate::MemoryStore;
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate::{Limit, Limiter};
use sluicegate_conformance::{
    BackendSubject, Changes, Fields, Report, Subject, random, random_changes, random_verbs, suite,
};
use sluicegate_core::{Account, AnyLimit, Time};
use std::collections::HashMap;

fn store(start: Time, max_keys: usize) -> MemoryStore {
    MemoryStore::builder().clock(ManualClock::at(start)).max_keys(max_keys).build().unwrap()
}

/// A limiter among others that have calls on the same keys.
struct Among {
    subject: BackendSubject,
    others: Vec<Limiter>,
}

impl Among {
    fn new(limits: &[Limit], start: Time) -> Among {
        let store = store(start, 1_000);
        let other =
            |(scope, limit): (u64, &str)| Limiter::builder(limit).in_store(&store, scope).build().unwrap();
        let others = ["token-bucket 1/h burst=3", "sliding-log 4/h", "fixed-window 7/day", "sliding-log 4/h"];
        Among {
            others: (1..).zip(others).map(other).collect(),
            subject: BackendSubject::shared_memory(limits, &store, 0),
        }
    }
}

impl Subject for Among {
    fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Fields {
        for other in &self.others {
            let _ = other.check_at(key, cost % 3, at);
        }
        self.subject.check(at, key, cost)
    }
}

#[test]
fn a_limiter_in_a_shared_store_passes_the_suite() {
    let report = suite(Among::new).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(report.checks > 30_000 && report.denied > 10_000, "{report:?}");
}

#[test]
fn every_verb_in_a_shared_store_agrees_with_the_model() {
    let mut report = Report::default();
    let in_store =
        |limits: &[Limit], start: Time| BackendSubject::shared_memory(limits, &store(start, 64), 7);
    if let Err(mismatch) = random_verbs(12, 40_000, false, in_store, &mut report) {
        panic!("{mismatch}");
    }
    assert!(report.returned > 300 && report.indebted > 30, "{report:?}");
}

/// As the server's reload does: another limiter of the same scope.
#[test]
fn every_verb_agrees_with_the_model_while_other_limiters_take_over_the_scope() {
    let mut report = Report::default();
    let in_store =
        |limits: &[Limit], start: Time| BackendSubject::shared_memory(limits, &store(start, 64), 7);
    if let Err(mismatch) = random_changes(14, 40_000, false, Changes::All, in_store, &mut report) {
        panic!("{mismatch}");
    }
    assert!(report.changed > 2_000 && report.returned > 100 && report.indebted > 10, "{report:?}");
}

/// With so few tags that limits are retired again and again, while keys and receipts need them.
#[test]
fn every_verb_agrees_with_the_model_while_old_limits_are_retired() {
    const LIMITS_MAX: u64 = 64_512;
    let mut report = Report::default();
    let in_store = |limits: &[Limit], start: Time| {
        let clock = ManualClock::at(start);
        let store = MemoryStore::builder().clock(clock.clone()).max_keys(64).build().unwrap();
        let limiter = {
            let store = store.clone();
            move |scope: u64, limits: &[Limit]| {
                Limiter::builder(limits).in_store(&store, scope).start(start).build()
            }
        };
        let taken = |n: u64| limiter(1, &[format!("fixed-window {}/day", n + 1).parse().unwrap()]).unwrap();
        let taken: Vec<Limiter> = (0..LIMITS_MAX - 3).map(taken).collect();
        BackendSubject::shared_memory(limits, &store, 7).changed_by(move |limits, _| {
            assert_eq!(taken.len() as u64, LIMITS_MAX - 3);
            // Another pass is due. No key has recovered at an earlier time.
            clock.set(Time::saturating_from_micros(clock.now().as_micros().saturating_sub(2_000_000)));
            Some(Box::new(limiter(7, limits).ok()?))
        })
    };
    if let Err(mismatch) = random_changes(15, 2_000, false, Changes::All, in_store, &mut report) {
        panic!("{mismatch}");
    }
    assert!(report.changed > 100 && report.returned > 5, "{report:?}");
}

/// Many limits, and many more keys than fit. A key in the store decides as if no key had ever been
/// removed.
#[test]
fn keys_of_many_limits_that_were_not_evicted_stay_exact() {
    let (mut rng, start) = (Rng::with_seed(8), Time::from_micros(1_700_000_000_000_000).unwrap());
    let (mut evicted, mut dropped_idle, mut denied) = (0, 0, 0);
    for max_keys in [1, 10, 300, 1_000] {
        let store = store(start, max_keys);
        let rulings: Vec<(Vec<Limit>, Limiter, Vec<AnyLimit>)> = (0..12_u64)
            .map(|scope| {
                let limits = match Limit::CHECKS.get(rng.usize(..=Limit::CHECKS.len())) {
                    Some(algorithm) => vec![random::small_limit(&mut rng, algorithm)],
                    None => random::list(&mut rng),
                };
                let limiter = Limiter::builder(limits.as_slice()).in_store(&store, scope).build().unwrap();
                let made = limits.iter().map(|limit| limit.made_at(start).unwrap()).collect();
                (limits, limiter, made)
            })
            .collect();
        let mut accounts: HashMap<(usize, u64), Account<AnyLimit>> = HashMap::new();
        let mut now = start;
        for _ in 0..20_000 {
            let scope = rng.usize(..rulings.len());
            let (limits, limiter, made) = &rulings[scope];
            let step = random::step(&mut rng, limits).min(86_400_000_000) / 64;
            now = random::advance(&mut rng, now, step, false);
            let key = if rng.bool() { rng.u64(..8) } else { rng.u64(..) };
            let cost = random::cost(&mut rng, limits);
            let account = accounts.entry((scope, key)).or_default();
            if !limiter.contains(key) && !account.is_idle(made, now) {
                *account = Account::default();
                evicted += 1;
            } else if !limiter.contains(key) && !account.is_idle(made, start) {
                dropped_idle += 1;
            }
            let (expected, answered) = (account.check(made, now, cost), limiter.check_at(key, cost, now));
            assert_eq!(answered, expected, "{limits:?} key {key} at {now:?}");
            denied += u64::from(!answered.allowed());
        }
        assert!(store.stats().keys <= max_keys);
    }
    assert!(evicted > 500 && dropped_idle > 500 && denied > 5_000, "{evicted} {dropped_idle} {denied}");
}
