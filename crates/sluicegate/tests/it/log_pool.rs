//! The memory of logs is bounded, and divided between scopes.

use sluicegate::clock::ManualClock;
use sluicegate::{FullPool, Limiter, MemoryStore, OnFull};
use std::time::Duration;

const MAX: usize = 4_000;

fn store(on_full: OnFull) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1_000_000_000));
    let builder = MemoryStore::builder().max_keys(1_000).max_log_entries(MAX).on_full(on_full);
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

fn limiter(store: &MemoryStore, name: &'static str, limit: &str) -> Limiter {
    Limiter::builder(limit).in_store(store, name).build().unwrap()
}

/// Calls that are recorded, over all keys, as their decisions report them.
fn recorded(limiter: &Limiter, keys: u32) -> u64 {
    (0..keys).map(|key| limiter.peek(key, 0)).map(|decision| decision.limit() - decision.remaining()).sum()
}

#[test]
fn log_entries_are_bounded() {
    for on_full in [OnFull::Evict, OnFull::Deny] {
        for limit in ["sliding-log 1000/365d", "sliding-log 1000/365d + fixed-window 100000/day"] {
            let (store, clock) = store(on_full);
            let flooding = limiter(&store, "flooding", limit);
            for call in 0..40_000_u32 {
                clock.advance(Duration::from_micros(1));
                let _ = flooding.check(call * 7 % 300);
                assert!(store.stats().log_entries <= MAX);
            }
            let (stats, recorded) = (store.stats(), recorded(&flooding, 300));
            assert!(recorded <= MAX as u64 && recorded > MAX as u64 / 4, "{limit}: {recorded}");
            assert!(stats.log_entries as u64 >= recorded, "{limit}: {stats:?}, {recorded}");
            let denies = on_full == OnFull::Deny;
            assert_eq!((stats.log_entries_evicted == 0, stats.no_log_room > 0), (denies, denies), "{limit}");
        }
    }
}

#[test]
fn a_flood_of_logs_leaves_those_of_another_scope_whole() {
    for on_full in [OnFull::Evict, OnFull::Deny] {
        let (store, clock) = store(on_full);
        let flooding = limiter(&store, "flooding", "sliding-log 1000/365d");
        let victims = limiter(&store, "victims", "sliding-log 50/365d");
        for call in 0..1_000_u32 {
            clock.advance(Duration::from_micros(1));
            assert!(victims.check(call % 20).allowed());
        }
        for call in 0..40_000_u32 {
            clock.advance(Duration::from_micros(1));
            let _ = flooding.check(call % 300);
        }
        assert_eq!(recorded(&victims, 20), 1_000, "{on_full:?}");
        // There is room for newcomers within the share.
        for call in 0..200_u32 {
            clock.advance(Duration::from_millis(2));
            assert!(victims.check(100 + call % 10).allowed(), "{on_full:?}, call {call}");
        }
        assert!(store.stats().log_entries <= MAX);
    }
}

/// A settlement charges an excess in any case. It takes no memory that the pool does not have, and
/// what it charged counts for as long as it should.
#[test]
fn settlements_do_not_exceed_the_pool() {
    for on_full in [OnFull::Evict, OnFull::Deny] {
        let (store, clock) = store(on_full);
        let settling = limiter(&store, "settling", "sliding-log 5/365d");
        let other = limiter(&store, "other", "sliding-log 5/365d");
        for _ in 0..2 * MAX {
            clock.advance(Duration::from_micros(1));
            let reserved = settling.reserve("key", 0, Duration::ZERO).unwrap();
            assert!(reserved.settle(1));
            assert!(store.stats().log_entries <= MAX, "{on_full:?}: {:?}", store.stats());
        }
        assert!(other.check("key").allowed(), "{on_full:?}");
        clock.advance(Duration::from_secs(364 * 86_400));
        assert!(!settling.check("key").allowed(), "{on_full:?}");
        clock.advance(Duration::from_secs(2 * 86_400));
        assert!(settling.check("key").allowed(), "{on_full:?}");
    }
}

#[test]
fn resets_and_recovery_return_log_entries() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("sliding-log 100/60s").max_keys(300).max_log_entries(1_000);
    let limiter = builder.on_full(OnFull::Deny).clock(clock.clone()).build().unwrap();
    let fill = || {
        let call = |call: u32| {
            clock.advance(Duration::from_micros(1));
            limiter.check(call % 10).allowed()
        };
        (0..1_000).filter(|number| call(*number)).count()
    };
    assert_eq!(fill(), 1_000);
    assert_eq!(limiter.stats().log_entries, 1_000);
    assert_eq!(limiter.check(10_u32).full_pool(), Some(FullPool::LogEntries));
    assert_eq!((limiter.stats().no_log_room, limiter.stats().no_room), (1, 0));
    limiter.reset(0_u32);
    assert_eq!(limiter.stats().log_entries, 900);
    assert!(limiter.check(10_u32).allowed());
    clock.advance(Duration::from_secs(60));
    assert!((11..200_u32).all(|key| limiter.check(key).allowed()), "recovered logs make room");
    (0..200_u32).for_each(|key| limiter.reset(key));
    assert_eq!(limiter.stats().log_entries, 0);
}

#[test]
fn entries_of_evicted_logs_are_counted() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("sliding-log 100/60s").max_keys(300).max_log_entries(100);
    let limiter = builder.clock(clock.clone()).build().unwrap();
    for _ in 0..100 {
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check("first").allowed());
    }
    assert_eq!((limiter.stats().log_entries, limiter.stats().log_entries_evicted), (100, 0));
    assert!(limiter.check("second").allowed());
    let stats = limiter.stats();
    assert_eq!((stats.evicted, stats.log_entries_evicted), (1, 100), "one key, with its entries");
}
