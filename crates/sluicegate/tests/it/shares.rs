//! Scopes that share a store: no flood of one scope harms another.

use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, MemoryStore, OnFull, Receipt, RetryAfter};
use std::time::Duration;

const LIMITS: [&str; 9] = [
    "token-bucket 5/h",
    "leaky-bucket 1/h capacity=5",
    "min-interval 30min",
    "pacer 1/h queue=4",
    "fixed-window 1/day",
    "sliding-log 5/60s",
    "sliding-window 5/h",
    "smooth 1/h",
    "token-bucket 5/h + fixed-window 1/year",
];

/// Where the limits of a flood come from.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Scope {
    Rule,
    Inline,
    Throttle,
}

const VICTIMS: u32 = 200;

fn store(max_keys: usize, on_full: OnFull) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1_000_000_000));
    (MemoryStore::builder().max_keys(max_keys).on_full(on_full).clock(clock.clone()).build().unwrap(), clock)
}

fn limiter(store: &MemoryStore, scope: Scope, name: &'static str, limit: &str) -> Limiter {
    let limits = sluicegate::Limit::parse_list(limit).unwrap();
    let builder = Limiter::builder(limits).in_store(store, name);
    match scope {
        Scope::Rule => builder,
        Scope::Inline => builder.untrusted(),
        Scope::Throttle => builder.untrusted().preserve_recovery_time(),
    }
    .build()
    .unwrap()
}

/// Uses up the limit of a key.
fn use_up(limiter: &Limiter, key: u32) {
    assert!((0..10).any(|_| !limiter.check(key).allowed()), "{key} is never denied");
}

/// Floods one scope with new keys while 200 keys of another are at their limit. Returns how many of
/// these are free afterwards, and how many newcomers are locked out.
fn flood(scopes: [(Scope, &str); 2], max_keys: u32, on_full: OnFull) -> (usize, usize) {
    let (store, _) = store(max_keys as usize, on_full);
    let [attacker, victim] = scopes;
    let flooding = limiter(&store, attacker.0, "flooding", attacker.1);
    let victims = limiter(&store, victim.0, "victims", victim.1);
    (0..VICTIMS).for_each(|key| use_up(&victims, key));
    // Under `Deny` the store is full after one round.
    let rounds = if on_full == OnFull::Deny { 2 } else { 3 };
    (0..rounds * max_keys).for_each(|key| {
        let _ = flooding.check(key);
    });
    let freed = (0..VICTIMS).filter(|key| victims.check(*key).allowed()).count();
    let newcomers = VICTIMS..VICTIMS + VICTIMS / 4;
    (freed, newcomers.filter(|key| !victims.check(*key).allowed()).count())
}

#[test]
fn a_flood_of_one_scope_frees_and_locks_out_no_key_of_another() {
    for max_keys in [1_000, 2_500, 6_000] {
        for on_full in [OnFull::Evict, OnFull::Deny] {
            for attacker in LIMITS {
                for victim in LIMITS {
                    let scopes = [(Scope::Rule, attacker), (Scope::Rule, victim)];
                    assert_eq!(
                        flood(scopes, max_keys, on_full),
                        (0, 0),
                        "{scopes:?}, {max_keys} keys, {on_full:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn rules_and_untrusted_limits_do_not_harm_each_other() {
    for on_full in [OnFull::Evict, OnFull::Deny] {
        for limit in LIMITS {
            for untrusted in [(Scope::Inline, limit), (Scope::Throttle, "token-bucket 5/h")] {
                for scopes in [[untrusted, (Scope::Rule, limit)], [(Scope::Rule, limit), untrusted]] {
                    assert_eq!(flood(scopes, 5_000, on_full), (0, 0), "{scopes:?}, {on_full:?}");
                }
            }
        }
    }
}

/// One rule in many: its keys per shard are few, and so are those of a borrower.
#[test]
fn small_shares_hold() {
    for on_full in [OnFull::Evict, OnFull::Deny] {
        let (store, _) = store(50_000, on_full);
        let names: Vec<&'static str> =
            (0..100).map(|n| &*Box::leak(format!("rule {n}").into_boxed_str())).collect();
        let rules: Vec<Limiter> =
            names.iter().map(|name| limiter(&store, Scope::Rule, name, "fixed-window 1/day")).collect();
        // Each within its share of more than 400 keys.
        for rule in &rules[1..] {
            (0..400).for_each(|key| assert!(rule.check(key).allowed()));
        }
        (0..200_000).for_each(|key| {
            let _ = rules[0].check(key);
        });
        let freed: usize =
            rules[1..].iter().map(|rule| (0..400).filter(|key| rule.check(*key).allowed()).count()).sum();
        assert_eq!(freed, 0, "{on_full:?}");
        assert!(store.stats().keys <= 50_000);
    }
}

#[test]
fn unused_room_is_lent_and_taken_back() {
    let (store, _) = store(1_600, OnFull::Evict);
    let borrower = limiter(&store, Scope::Rule, "borrower", "fixed-window 1/day");
    let owner = limiter(&store, Scope::Rule, "owner", "fixed-window 1/day");
    let held = |limiter: &Limiter| (0..1_500_u32).filter(|key| limiter.contains(*key)).count();
    (0..1_500_u32).for_each(|key| {
        let _ = borrower.check(key);
    });
    assert_eq!(held(&borrower), 1_500, "all that is lent");
    (0..750_u32).for_each(|key| {
        let _ = owner.check(key);
    });
    assert_eq!(held(&owner), 750, "its own share is taken back");
    assert!(held(&borrower) >= 750, "and no more: {}", held(&borrower));
    assert!(store.stats().keys <= 1_600);
}

#[test]
fn shares_follow_weights() {
    let (store, _) = store(1_000, OnFull::Deny);
    let large = limiter(&store, Scope::Rule, "large", "fixed-window 1/day");
    let small = limiter(&store, Scope::Rule, "small", "fixed-window 1/day");
    large.set_share(4);
    let allowed = |limiter: &Limiter| (0..2_000_u32).filter(|key| limiter.check(*key).allowed()).count();
    assert_eq!((allowed(&small), allowed(&large)), (200, 800));
    drop(large);
    assert_eq!(
        (200..2_000_u32).filter(|key| small.check(*key).allowed()).count(),
        0,
        "the keys are still there"
    );
}

/// The recovered keys of a small share are in other shards than most new keys.
#[test]
fn a_full_share_recovers_under_deny() {
    let (store, clock) = store(20_000, OnFull::Deny);
    let others = limiter(&store, Scope::Rule, "others", "fixed-window 1/day");
    let small = limiter(&store, Scope::Rule, "small", "sliding-log 1/60s");
    others.set_share(999);
    let allowed: Vec<u32> = (0..1_000).filter(|key| small.check(*key).allowed()).collect();
    assert_eq!(allowed.len(), 20);
    let denied = small.check(5_000);
    assert!(!denied.allowed() && matches!(denied.retry_after(), Some(RetryAfter::After(_))), "{denied:?}");
    clock.advance(Duration::from_secs(60));
    // Each denied call sweeps a few shards.
    let first = (10_000..11_000_u32).position(|key| {
        clock.advance(Duration::from_millis(1));
        small.check(key).allowed()
    });
    assert!(first.is_some_and(|calls| calls <= 20_000 / 192 / 16 + 1), "{first:?}");
}

const MAX_RECEIPTS: u32 = 1_600;

/// A store with few receipts.
fn store_of_receipts(on_full: OnFull) -> (MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1_000_000_000));
    let builder = MemoryStore::builder().max_keys(5_000).max_receipts(MAX_RECEIPTS as usize);
    (builder.on_full(on_full).clock(clock.clone()).build().unwrap(), clock)
}

/// Opens a receipt that stays open.
fn open(limiter: &Limiter, key: u32) -> Option<Receipt> {
    limiter.reserve(key, 1, Duration::ZERO).ok()?.keep()
}

/// One scope opens all the receipts it can, on few keys or on many. Those of another scope stay
/// open, and it can open its whole share.
#[test]
fn receipts_of_one_scope_harm_no_other() {
    let reservable = "token-bucket 1000000/s";
    let scopes = [Scope::Rule, Scope::Inline, Scope::Throttle];
    let pairs = scopes.into_iter().flat_map(|attacker| [(attacker, Scope::Rule), (Scope::Rule, attacker)]);
    for ((attacker, victim), on_full) in
        pairs.flat_map(|pair| [OnFull::Evict, OnFull::Deny].map(|on_full| (pair, on_full)))
    {
        for keys in [1, 10, 5_000] {
            let case = format!("{attacker:?}, {victim:?}, {on_full:?}, {keys} keys");
            let (store, clock) = store_of_receipts(on_full);
            let limit = if attacker == Scope::Throttle { reservable } else { "fixed-window 1000000/year" };
            let flooding = limiter(&store, attacker, "flooding", limit);
            let victims = limiter(&store, victim, "victims", reservable);
            let before: Vec<Receipt> = (0..100).filter_map(|key| open(&victims, key)).collect();
            let opened = (0..10 * MAX_RECEIPTS).filter(|call| open(&flooding, call % keys).is_some()).count();
            assert!(opened < 10 * MAX_RECEIPTS as usize, "{case}");
            // The costs no longer count, but an excess can still be reported.
            clock.advance(Duration::from_millis(1));
            let share = if victim == Scope::Inline || victim == Scope::Throttle { 4 } else { 2 };
            // Under `evict` a part of the receipts belongs to no share.
            let rest = MAX_RECEIPTS / share * 15 / 16 - 100;
            let after: Vec<Receipt> = (0..rest).map_while(|key| open(&victims, key)).collect();
            assert_eq!(after.len(), rest as usize, "{case}");
            clock.advance(Duration::from_micros(1));
            assert_eq!(before.iter().filter(|receipt| store.settle(receipt, 2)).count(), 100, "{case}");
            assert!(after.iter().all(|receipt| store.settle(receipt, 2)), "{case}");
            assert!(store.stats().receipts <= MAX_RECEIPTS as usize, "{case}");
        }
    }
}
