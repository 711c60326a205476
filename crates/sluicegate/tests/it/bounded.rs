//! Bounded memory, and which keys make room.

use sluicegate::OnFull;
use sluicegate::clock::ManualClock;
use sluicegate::{FullPool, Limit, Limiter, MemoryStore, RetryAfter, Span, check_all};
use std::time::Duration;

fn limiter(limits: &str, max_keys: usize, on_full: OnFull) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    let builder = Limiter::builder(limits).max_keys(max_keys).on_full(on_full).clock(clock.clone());
    (builder.build().unwrap(), clock)
}

#[test]
fn the_store_never_exceeds_max_keys() {
    for max_keys in [1, 2, 15, 16, 17, 192, 193, 1_000, 5_000] {
        for limits in ["token-bucket 5/60s", "sliding-log 5/60s"] {
            let (limiter, _) = limiter(limits, max_keys, OnFull::Evict);
            (0..4 * max_keys).for_each(|key| assert!(limiter.check(key).allowed()));
            let (stats, held) =
                (limiter.stats(), (0..4 * max_keys).filter(|key| limiter.contains(*key)).count());
            assert_eq!((stats.keys, held), (max_keys, max_keys), "{limits}");
            assert_eq!(stats.evicted, 3 * max_keys as u64, "{limits}");
        }
    }
}

/// Half a million keys into a store for as many: hardly one is lost because both its buckets were
/// full.
#[test]
fn max_keys_fit() {
    let keys = 500_000;
    let (limiter, _) = limiter("token-bucket 5/60s", keys, OnFull::Evict);
    (0..keys).for_each(|key| assert!(limiter.check(key).allowed()));
    let stats = limiter.stats();
    assert!(stats.keys * 10_000 >= keys * 9_999, "{stats:?}");
}

/// As a store fills up some keys go to their secondary bucket, and some move there later: none may
/// be lost, or found with the state of another.
#[test]
fn moved_keys_keep_their_usage() {
    for limits in [
        vec!["fixed-window 1000/h"],
        vec!["token-bucket 1000/h"],
        vec!["sliding-log 1000/h"],
        vec!["fixed-window 1000/h", "sliding-log 900/h"],
    ] {
        let clock = ManualClock::default();
        let builder = Limiter::builder(limits.as_slice()).max_keys(20_000).clock(clock);
        let limiter = builder.build().unwrap();
        let (keys, cost) = (0..20_000_u64, |key: u64| 1 + key % 7);
        keys.clone().for_each(|key| assert!(limiter.check_cost(key, cost(key)).allowed()));
        let evicted = limiter.stats().evicted;
        assert!(evicted <= 4, "{limits:?}: {evicted} of 20 000");
        let held: Vec<u64> = keys.filter(|key| limiter.contains(*key)).collect();
        assert_eq!(held.len() as u64, 20_000 - evicted);
        for key in held {
            let decision = limiter.peek(key, 0);
            assert_eq!(decision.remaining(), decision.limit() - cost(key), "{limits:?}: {key}");
        }
    }
}

#[test]
fn recovered_keys_make_room_first() {
    let (limiter, clock) = limiter("token-bucket 1/s burst=5", 100, OnFull::Evict);
    (0..100).for_each(|key| assert!(limiter.check(key).allowed()));
    clock.advance(Duration::from_secs(1));
    (100..200).for_each(|key| assert!(limiter.check(key).allowed()));
    let stats = limiter.stats();
    assert_eq!((stats.keys, stats.evicted), (100, 0));
}

/// Each new key has a debt of a fifth; the offender's is the whole limit, so it stays.
#[test]
fn a_flood_of_new_keys_does_not_evict_an_offender() {
    for limits in ["token-bucket 5/60s", "fixed-window 5/h", "sliding-window 5/h", "sliding-log 5/h"] {
        // In stores of any size.
        for max_keys in [2, 3, 10, 50, 100, 200, 400, 1_000] {
            let (limiter, _) = limiter(limits, max_keys, OnFull::Evict);
            assert!(limiter.check_cost("offender", 5).allowed());
            for key in 0..20_000 {
                let _ = limiter.check(key);
                if key % 50 == 0 {
                    assert!(
                        !limiter.check("offender").allowed(),
                        "{limits}, {max_keys}: free after {key} keys"
                    );
                }
            }
        }
    }
}

#[test]
fn debt_is_that_of_the_most_used_limit() {
    let both = Limiter::builder(["fixed-window 1000/day", "fixed-window 4/h"]).max_keys(500);
    let both = both.clock(ManualClock::default()).build().unwrap();
    assert!(both.check_cost("offender", 4).allowed());
    (0..50_000).for_each(|key| {
        let _ = both.check(key);
    });
    assert!(!both.check("offender").allowed());
}

/// What evicting a key would let through again decides, not the share of its limit: an exception
/// with a larger limit has used a small share, and far more than a new key.
#[test]
fn keys_of_one_scope_are_compared_by_what_they_have_used() {
    for (rule, exception) in [
        ("token-bucket 10/h", "token-bucket 10000/h"),
        ("fixed-window 10/h", "fixed-window 10000/h"),
        ("sliding-window 10/h", "sliding-window 10000/h"),
        ("sliding-log 10/h", "sliding-log 10000/h"),
        ("fixed-window 10/h + token-bucket 20/h", "fixed-window 10000/h + token-bucket 20000/h"),
    ] {
        let store = MemoryStore::builder().max_keys(1_000).clock(ManualClock::default()).build().unwrap();
        let limiter = |limits| {
            let limits = Limit::parse_list(limits).unwrap();
            Limiter::builder(limits).in_store(&store, "rule").build().unwrap()
        };
        let (ordinary, large) = (limiter(rule), limiter(exception));
        // 2 % of its limit. Each new key uses half of its own, but only 5.
        assert!(large.check_cost("large", 200).allowed());
        assert!(ordinary.check_cost("offender", 10).allowed());
        (0..50_000).for_each(|key| {
            let _ = ordinary.check_cost(key, 5);
        });
        assert_eq!(large.peek("large", 0).remaining(), 9_800, "{rule}");
        assert!(!ordinary.check("offender").allowed(), "{rule}");
        assert!(store.stats().evicted > 40_000, "a flood evicts its own kind");
    }
}

#[test]
fn of_keys_that_have_used_as_much_the_first_to_recover_makes_room() {
    let store = MemoryStore::builder().max_keys(1_000).clock(ManualClock::default()).build().unwrap();
    let limiter = |limit| Limiter::builder(limit).in_store(&store, "rule").build().unwrap();
    let (hourly, daily) = (limiter("fixed-window 5/h start=first"), limiter("fixed-window 5/d start=first"));
    (0..20).for_each(|key| assert!(daily.check_cost(("slow", key), 5).allowed()));
    (0..50_000).for_each(|key| {
        let _ = hourly.check_cost(("fast", key), 5);
    });
    assert!((0..20).all(|key| !daily.check(("slow", key)).allowed()));
}

#[test]
fn a_full_store_may_deny_new_keys() {
    let (limiter, clock) = limiter("token-bucket 1/s burst=2", 10, OnFull::Deny);
    (0..10).for_each(|key| assert!(limiter.check(key).allowed()));
    let denied = limiter.check("new");
    assert!(!denied.allowed());
    assert_eq!((denied.limit(), denied.remaining(), denied.denied_by()), (2, 0, None));
    assert_eq!(denied.full_pool(), Some(FullPool::Keys));
    assert_eq!((limiter.stats().no_room, limiter.stats().denied), (1, 1));
    assert_eq!(denied.retry_after(), Some(RetryAfter::After(Span::from_micros(1_000_000))));
    assert!(!limiter.contains("new") && limiter.check(3).allowed(), "stored keys continue");
    assert!(!limiter.take("new", 2).unwrap().0.allowed());
    assert!(!limiter.reserve("new", 1, Duration::ZERO).unwrap().allowed());
    assert!(limiter.check_cost("new", 0).allowed(), "cost 0 needs no slot");
    assert_eq!(limiter.check_cost("new", 3).retry_after(), Some(RetryAfter::Never));
    assert!(limiter.peek("new", 1).allowed(), "a peek needs no slot");
    clock.advance(Duration::from_secs(1));
    assert!(limiter.check("new").allowed());
    assert_eq!((limiter.stats().keys, limiter.stats().evicted), (10, 0));
}

#[test]
fn a_reset_makes_room() {
    let (limiter, _) = limiter("fixed-window 1/day", 3, OnFull::Deny);
    (0..3).for_each(|key| assert!(limiter.check(key).allowed()));
    limiter.reset(1);
    limiter.reset(1);
    limiter.reset("never seen");
    assert_eq!(limiter.stats().keys, 2);
    assert!(limiter.check(3).allowed() && !limiter.check(4).allowed());
}

/// A caller that obeys `retry_after` finds room, and not a microsecond earlier; under a list too.
#[test]
fn a_full_store_reports_the_exact_wait() {
    for limits in [
        vec!["token-bucket 1/s burst=1000"],
        vec!["token-bucket 10/s burst=2", "fixed-window 1000/d"],
        vec!["token-bucket 1/s burst=10", "sliding-log 50/60s"],
        vec!["fixed-window 5/60s start=first"],
    ] {
        let clock = ManualClock::default();
        let builder = Limiter::builder(limits.as_slice()).max_keys(192).on_full(OnFull::Deny);
        let limiter = builder.clock(clock.clone()).build().unwrap();
        for key in 0..192_u64 {
            clock.advance(Duration::from_millis(key % 7));
            assert!(limiter.check_cost(key, 1 + key % 2).allowed());
        }
        let Some(RetryAfter::After(wait)) = limiter.check("new").retry_after() else { panic!("{limits:?}") };
        let then = limiter.now().saturating_add(wait);
        let before = limiter.now().saturating_add(wait.saturating_sub(Span::from_micros(1)));
        assert!(!limiter.check_at("new", 1, before).allowed(), "{limits:?}: {wait} is too long");
        assert!(limiter.check_at("new", 1, then).allowed(), "{limits:?}: {wait} is too short");
    }
}

/// A key whose two buckets are full gets the room of a recovered key elsewhere in the shard: its
/// neighbors move.
#[test]
fn a_recovered_key_makes_room_for_any_key() {
    for round in 0..50 {
        let (limiter, clock) = limiter("token-bucket 1/s burst=1000", 192, OnFull::Deny);
        assert!(limiter.check_cost("soon", 5).allowed());
        (0..191).for_each(|key| assert!(limiter.check_cost((round, key), 1_000).allowed()));
        assert!(!limiter.check("new").allowed());
        clock.advance(Duration::from_secs(5));
        assert!(limiter.check("new").allowed() && !limiter.contains("soon"));
        assert_eq!((limiter.stats().keys, limiter.stats().evicted), (192, 0));
    }
}

/// A refund that returns nothing to an unseen key evicts no other, under any limits.
#[test]
fn a_refund_to_an_unseen_key_evicts_no_key() {
    for limits in [
        vec!["sliding-log 5/60s"],
        vec!["sliding-log 5/60s", "token-bucket 10/h"],
        vec!["sliding-window 5/60s", "token-bucket 10/h"],
        vec!["fixed-window 5/60s", "sliding-log 10/h"],
    ] {
        let builder = Limiter::builder(limits.as_slice()).max_keys(1).clock(ManualClock::default());
        let limiter = builder.build().unwrap();
        assert!(limiter.check_cost("offender", 5).allowed());
        assert!(limiter.refund("stranger", 1).unwrap().allowed());
        assert!(!limiter.contains("stranger") && !limiter.check("offender").allowed(), "{limits:?}");
        assert_eq!((limiter.stats().keys, limiter.stats().evicted), (1, 0), "{limits:?}");
    }
}

/// Whether a key has recovered is decided by the limits that would apply to it. What had aged out
/// under the old ones does not count again.
#[test]
fn after_a_change_eviction_follows_the_new_limits() {
    let (limiter, clock) = limiter("sliding-log 5/1s", 1, OnFull::Deny);
    assert!(limiter.check_cost("a", 5).allowed());
    limiter.change("sliding-log 5/1h").unwrap();
    clock.advance(Duration::from_secs(10));
    assert!(limiter.check("b").allowed() && !limiter.contains("a"), "its calls have aged out");

    let (limiter, _) = self::limiter("fixed-window 5/1d", 1, OnFull::Deny);
    assert!(limiter.check_cost("a", 5).allowed());
    limiter.change("fixed-window 5/1s").unwrap();
    assert!(limiter.check("b").allowed() && !limiter.contains("a"), "it would start with fresh state");
}

/// While keys have not been converted to new limits, the time of the next recovery is not known.
#[test]
fn keys_that_recover_sooner_after_a_change_go_first() {
    for round in 0..50 {
        let (limiter, clock) = limiter("token-bucket 10/10h", 150, OnFull::Evict);
        (0..150).for_each(|key| {
            assert!(limiter.check_cost((round, key), if key < 20 { 5 } else { 10 }).allowed());
        });
        limiter.change("token-bucket 10/1h").unwrap();
        assert!(limiter.check_cost("first", 10).allowed());
        assert_eq!(limiter.stats().evicted, 1);
        // Some are converted to the new limits now, and will have recovered in half an hour.
        let held = (0..20).filter(|key| limiter.contains((round, *key)));
        held.for_each(|key| assert!(!limiter.check_cost((round, key), 10).allowed()));
        clock.advance(Duration::from_secs(1_900));
        assert!(limiter.check_cost("second", 10).allowed());
        assert_eq!(limiter.stats().evicted, 1, "round {round}");
    }
}

/// A bucket that was refunded while it was filling has recovered when all others are full too.
#[test]
fn a_full_store_reports_the_wait_of_filling_buckets() {
    for limits in [
        vec!["token-bucket 1/1s burst=100 initial=0"],
        vec!["token-bucket 1/1s burst=100 initial=0", "fixed-window 1000/d"],
    ] {
        let clock = ManualClock::default();
        let builder =
            Limiter::builder(limits.as_slice()).max_keys(1).on_full(OnFull::Deny).clock(clock.clone());
        let limiter = builder.build().unwrap();
        clock.advance(Duration::from_secs(10));
        assert!(limiter.check("a").allowed());
        assert!(limiter.refund("a", 50).unwrap().allowed());
        let Some(RetryAfter::After(wait)) = limiter.check("b").retry_after() else { panic!("{limits:?}") };
        let then = limiter.now().saturating_add(wait);
        assert!(limiter.check_at("b", 1, then).allowed(), "{limits:?}: not after {wait}");
    }
}

/// Keys of the same call are not evicted, but are not lost for later calls either.
#[test]
fn keys_of_one_call_can_make_room_later() {
    let (limiter, clock) = limiter("token-bucket 1/s burst=1000", 192, OnFull::Deny);
    assert!(limiter.check_cost("soon", 5).allowed());
    (0..191).for_each(|key| assert!(limiter.check_cost(key, 1_000).allowed()));
    for key in 0..20 {
        assert!(!check_all(&[limiter.call("soon", 1), limiter.call(("new", key), 1)]).unwrap().allowed());
    }
    clock.advance(Duration::from_secs(6));
    assert!(limiter.check("newer").allowed());
}
