//! The library on its store in memory: the whole suite, every verb, and churn with eviction.

use fastrand::Rng;
use sluicegate::OnFull;
use sluicegate::clock::ManualClock;
use sluicegate::{Limit, Limiter};
use sluicegate_conformance::{
    BackendSubject, Changes, MemoryKeys, Report, random, random_changes, random_keys, random_verbs, suite,
};
use sluicegate_core::{Account, Time};
use std::collections::HashMap;

#[test]
fn it_passes_the_suite() {
    let report = suite(BackendSubject::memory).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    assert!(report.checks > 30_000 && report.denied > 10_000, "{report:?}");
}

#[test]
fn every_verb_in_any_order_agrees_with_the_model() {
    let mut report = Report::default();
    if let Err(mismatch) = random_verbs(11, 60_000, false, BackendSubject::memory, &mut report) {
        panic!("{mismatch}");
    }
    assert!(report.returned > 500 && report.indebted > 50, "{report:?}");
}

#[test]
fn every_verb_agrees_with_the_model_while_the_limits_change() {
    let mut report = Report::default();
    let changed = random_changes(13, 60_000, false, Changes::All, BackendSubject::memory, &mut report);
    if let Err(mismatch) = changed {
        panic!("{mismatch}");
    }
    assert!(report.changed > 2_000 && report.returned > 200 && report.indebted > 20, "{report:?}");
}

#[test]
fn every_verb_on_several_keys_agrees_with_the_model() {
    let mut report = Report::default();
    if let Err(mismatch) = random_keys(17, 60_000, (false, false), MemoryKeys::in_store, &mut report) {
        panic!("{mismatch}");
    }
    if let Err(mismatch) = random_keys(19, 60_000, (false, true), MemoryKeys::of_one_limiter, &mut report) {
        panic!("{mismatch}");
    }
    assert!(report.returned > 1_000 && report.indebted > 200, "{report:?}");
}

/// What happened in a run under churn.
#[derive(Default, Debug)]
struct Churn {
    calls: u64,
    evicted: u64,
    dropped_idle: u64,
    denied: u64,
}

/// Many more keys than fit. A key in the store decides exactly as if no key had ever been removed,
/// and so does one that was dropped after it recovered. Only an evicted key starts again.
fn under_churn(limits: &[Limit], seed: u64, max_keys: usize) -> Churn {
    let mut rng = Rng::with_seed(seed);
    let start = Time::from_micros(1_700_000_000_000_000).unwrap();
    let limiter = Limiter::builder(limits).clock(ManualClock::at(start)).max_keys(max_keys).build().unwrap();
    let made: Vec<_> = limits.iter().map(|limit| limit.made_at(start).unwrap()).collect();
    let mut accounts: HashMap<u64, Account<_>> = HashMap::new();
    let (mut churn, mut now) = (Churn::default(), start);
    for _ in 0..20_000 {
        let step = random::step(&mut rng, limits).min(86_400_000_000) / 8;
        now = random::advance(&mut rng, now, step, false);
        // A few keys call often, most only once.
        let key = if rng.bool() { rng.u64(..32) } else { rng.u64(..) };
        let cost = random::cost(&mut rng, limits);
        let account = accounts.entry(key).or_default();
        if !limiter.contains(key) && !account.is_idle(&made, now) {
            *account = Account::default();
            churn.evicted += 1;
        } else if !limiter.contains(key) && !account.is_idle(&made, start) {
            churn.dropped_idle += 1;
        }
        let (expected, answered) = (account.check(&made, now, cost), limiter.check_at(key, cost, now));
        assert_eq!(answered, expected, "{limits:?} key {key} at {now:?}");
        churn.calls += 1;
        churn.denied += u64::from(!answered.allowed());
    }
    let stats = limiter.stats();
    assert!(stats.keys <= max_keys, "{stats:?}");
    assert_eq!(stats.allowed + stats.denied, churn.calls);
    assert_eq!(stats.denied, churn.denied);
    assert!(stats.evicted >= churn.evicted, "who was not held must have been evicted: {stats:?} {churn:?}");
    churn
}

#[test]
fn keys_that_were_not_evicted_stay_exact() {
    let mut all = Churn::default();
    let mut rng = Rng::with_seed(3);
    for seed in 0..24 {
        let limits = match Limit::CHECKS.get(rng.usize(..=Limit::CHECKS.len())) {
            Some(algorithm) => vec![random::small_limit(&mut rng, algorithm)],
            None => random::list(&mut rng),
        };
        let churn = under_churn(&limits, seed, [1, 10, 300, 1_000][rng.usize(..4)]);
        all.evicted += churn.evicted;
        all.dropped_idle += churn.dropped_idle;
        all.denied += churn.denied;
    }
    // A run without any of these would prove little.
    assert!(all.evicted > 500 && all.dropped_idle > 500 && all.denied > 5_000, "{all:?}");
}

/// With `deny` no key is evicted: every key in the store, or recovered, decides as if it were
/// alone.
#[test]
fn a_store_that_denies_when_full_never_loses_a_debt() {
    let limits: Vec<Limit> = vec!["token-bucket 2/s burst=4".parse().unwrap()];
    let start = Time::from_micros(1_700_000_000_000_000).unwrap();
    let limiter = Limiter::builder(limits.as_slice())
        .clock(ManualClock::at(start))
        .max_keys(50)
        .on_full(OnFull::Deny)
        .build()
        .unwrap();
    let made = [limits[0].made_at(start).unwrap()];
    let mut accounts: HashMap<u64, Account<_>> = HashMap::new();
    let (mut rng, mut now, mut full) = (Rng::with_seed(5), start, 0);
    for _ in 0..50_000 {
        now = now.saturating_add(sluicegate::Span::from_micros(rng.u64(..40_000)));
        let (key, cost) = (rng.u64(..200), rng.u64(..5));
        let account = accounts.entry(key).or_default();
        let was_held = limiter.contains(key);
        let answered = limiter.check_at(key, cost, now);
        let expected = account.clone().check(&made, now, cost);
        if !was_held && !limiter.contains(key) && expected.allowed() && cost > 0 {
            assert!(!answered.allowed() && answered.remaining() == 0, "no room: {answered:?}");
            assert!(answered.retry_after().is_some());
            full += 1;
            continue;
        }
        assert_eq!(answered, account.check(&made, now, cost));
    }
    assert!(full > 500 && limiter.stats().evicted == 0 && limiter.stats().keys <= 50, "{full}");
}
