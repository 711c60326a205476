//! Limiters that share a store.

use sluicegate::check_all_each_at;
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate::{BuildError, Decision, Limiter, LimiterBuilder, MemoryStore, OnFull, RetryAfter};
use std::time::Duration;

fn store() -> (MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    (MemoryStore::builder().clock(clock.clone()).max_keys(100_000).build().unwrap(), clock)
}

fn limiter(store: &MemoryStore, scope: &'static str, limits: &str) -> Limiter {
    Limiter::builder(limits).in_store(store, scope).build().unwrap()
}

#[test]
fn usage_belongs_to_scope_and_key() {
    let (store, _) = store();
    let (one, same) = (limiter(&store, "a", "sliding-log 5/60s"), limiter(&store, "a", "sliding-log 5/60s"));
    let other = limiter(&store, "b", "sliding-log 5/60s");
    assert_eq!(one.check("user:42").remaining(), 4);
    assert_eq!(same.check("user:42").remaining(), 3, "the same scope");
    assert_eq!(other.check("user:42").remaining(), 4, "another scope");
    assert_eq!(store.stats().keys, 2);
    assert_eq!(store.stats().allowed, 3);
}

/// By another limiter of the same scope, and by the same limiter: in a shared store any limits may
/// follow any others.
#[test]
fn other_limits_of_a_scope_continue_with_its_usage() {
    for (old, new, remaining) in [
        ("token-bucket 1/s burst=10", "token-bucket 100/s burst=20", 14),
        ("fixed-window 10/day", "fixed-window 20/day", 14),
        ("sliding-window 10/h", "sliding-window 7/h", 1),
        ("sliding-log 10/60s", "sliding-log 20/60s", 14),
        // Another period of a window, or another algorithm, starts with fresh state.
        ("fixed-window 10/day", "fixed-window 10/h", 10),
        ("sliding-log 10/60s", "token-bucket 1/s burst=10", 10),
        ("token-bucket 1/s burst=10", "sliding-log 10/60s", 10),
    ] {
        let (store, clock) = store();
        let before = limiter(&store, "a", old);
        assert!(before.check_cost("k", 8).allowed());
        assert!(before.refund("k", 2).unwrap().allowed());
        let after = limiter(&store, "a", new);
        assert_eq!(after.peek("k", 0).remaining(), remaining, "{old} -> {new}");
        assert_eq!(before.peek("k", 0).remaining(), 4, "no call under the new limits yet");
        before.change(new).unwrap();
        assert_eq!(before.peek("k", 0).remaining(), remaining, "{old} -> {new}");
        assert_eq!(before.check_cost("k", 1).remaining(), remaining - 1);
        clock.advance(Duration::from_secs(86_400));
        assert_eq!(after.peek("k", 0).remaining(), after.peek("new", 0).remaining());
    }
}

#[test]
fn a_list_can_become_one_limit_and_back() {
    let (store, _) = store();
    let limiter = limiter(&store, "a", "fixed-window 10/day");
    assert!(limiter.check_cost("k", 3).allowed());
    limiter.change(["fixed-window 10/day", "sliding-log 5/60s"]).unwrap();
    assert_eq!(limiter.check("k").remaining(), 4, "the log starts empty, the window has 4 used");
    limiter.change(["fixed-window 10/day", "sliding-log 5/60s", "min-interval 1s"]).unwrap();
    assert!(limiter.check("k").allowed() && !limiter.check("k").allowed());
    limiter.change("fixed-window 10/day").unwrap();
    assert_eq!(limiter.peek("k", 0).remaining(), 5);
}

/// As redis-cell interprets new parameters: the time until the bucket is full is kept.
#[test]
fn debt_can_be_preserved_as_recovery_time() {
    let (store, clock) = store();
    let throttle = |limit: &str| {
        Limiter::builder(limit).in_store(&store, "cl").preserve_recovery_time().build().unwrap()
    };
    let slow = throttle("token-bucket 1/s burst=10");
    assert_eq!(slow.check_cost("k", 6).remaining(), 4);
    let seconds = Duration::from_secs;
    // Six seconds of debt are 12 tokens at twice the rate.
    let fast = throttle("token-bucket 2/s burst=20");
    assert_eq!(fast.peek("k", 0).remaining(), 8);
    assert_eq!(Duration::from(fast.check("k").reset_after()), Duration::from_millis(6_500));
    clock.advance(seconds(2));
    // 4.5 seconds at one per three seconds are 1.5 tokens, which exceeds a burst of 1.
    let slower = throttle("token-bucket 1/3s burst=1");
    let denied = slower.check("k");
    assert_eq!(
        denied.retry_after(),
        Some(RetryAfter::After(seconds(4).saturating_add(Duration::from_millis(500)).into()))
    );
    clock.advance(Duration::from_millis(4_500));
    assert!(slower.check("k").allowed());
    // A third of a second, which is no whole number of microseconds, and back: rounded up, by less
    // than one.
    let thirds = throttle("token-bucket 3/s burst=3");
    assert!(thirds.check("thirds").allowed());
    let sevenths = throttle("token-bucket 7/s burst=7");
    let kept = Duration::from(sevenths.peek("thirds", 0).reset_after());
    assert_eq!(kept, Duration::from_micros(333_334));
    let _ = sevenths.check_cost("thirds", 1);
    assert!(thirds.peek("thirds", 0).remaining() < 3);
}

#[test]
fn receipts_work_in_the_store_and_survive_a_change() {
    let (store, _) = store();
    let mails = limiter(&store, "mails", "token-bucket 1/h burst=10");
    let others = limiter(&store, "others", "token-bucket 1/h burst=5");
    let reserve = |limiter: &Limiter| limiter.reserve("k", 3, Duration::ZERO).unwrap().keep().unwrap();
    let (one, two, three) = (reserve(&mails), reserve(&mails), reserve(&mails));
    let of_others = reserve(&others);
    assert_eq!(one.to_string().parse(), Ok(one.clone()));
    assert!(store.cancel(&one) && !store.cancel(&one), "a receipt works once");
    assert!(mails.settle(&two, 1), "and works at the limiter");
    assert_eq!(mails.peek("k", 0).remaining(), 6);
    assert!(store.settle(&of_others, 0));
    assert_eq!(others.peek("k", 0).remaining(), 5);
    mails.change("token-bucket 1/h burst=20").unwrap();
    assert!(mails.check("k").allowed(), "the new limit applies to the key");
    assert_eq!(mails.peek("k", 0).remaining(), 15);
    assert!(store.cancel(&three), "it is converted with the key");
    assert_eq!(mails.peek("k", 0).remaining(), 18);
}

/// Under whichever limits the receipts were created.
#[test]
fn a_reset_voids_all_receipts_of_the_key() {
    let (store, _) = store();
    let mails = limiter(&store, "mails", "fixed-window 10/day");
    let receipt = mails.reserve("k", 5, Duration::ZERO).unwrap().keep().unwrap();
    mails.change("fixed-window 20/day").unwrap();
    mails.reset("k");
    mails.change("fixed-window 10/day").unwrap();
    assert!((0..10).all(|_| mails.check("k").allowed()));
    assert!(!store.cancel(&receipt) && !store.settle(&receipt, 0));
    assert!(!mails.check("k").allowed());
}

#[test]
fn a_forged_receipt_does_nothing() {
    let (store, _) = store();
    let mails = limiter(&store, "mails", "token-bucket 1/h burst=10");
    let receipt = mails.reserve("k", 3, Duration::ZERO).unwrap().keep().unwrap().to_string();
    for made_up in [
        format!("m1.{}", "0".repeat(48)),
        format!("m1.{}", "f".repeat(48)),
        format!("{}{}", &receipt[..50], if receipt.ends_with('0') { '1' } else { '0' }),
        format!("m1.{}{}", if &receipt[3..4] == "0" { '1' } else { '0' }, &receipt[4..]),
    ] {
        assert!(
            !store.cancel(&made_up.parse().unwrap()) && !store.settle(&made_up.parse().unwrap(), 9),
            "{made_up}"
        );
    }
    assert_eq!(mails.peek("k", 0).remaining(), 7);
    assert!(store.cancel(&receipt.parse().unwrap()));
}

/// How many different limits the limiters of a store can have at once.
const LIMITS_MAX: usize = 64_512;

/// More lists of limits than a store has tags, one after another: those that no limiter has any
/// more make room, and no key is decided under the wrong limits.
#[test]
fn limits_without_a_limiter_make_room_and_their_keys_stay() {
    let (store, clock) = store();
    let kept = limiter(&store, "kept", "token-bucket 1/h burst=7");
    assert_eq!(kept.check("k").remaining(), 6);
    let receipt = kept.reserve("k", 1, Duration::ZERO).unwrap().keep().unwrap();
    let limiter_of = |n: u64, more: u64| {
        let limit = format!("token-bucket 1/h burst={}", 10 + n + more);
        Limiter::builder(limit).in_store(&store, n).build().unwrap()
    };
    for n in 0..70_000 {
        assert_eq!(limiter_of(n, 0).check("k").remaining(), 9 + n);
    }
    assert_eq!(kept.peek("k", 0).remaining(), 5);
    assert!(store.cancel(&receipt));
    for n in 0..70_000 {
        assert_eq!(limiter_of(n, 0).peek("k", 0).remaining(), 9 + n, "the limits that it had");
        assert_eq!(limiter_of(n, 5).check("k").remaining(), 13 + n, "other limits convert it");
    }
    let stats = store.stats();
    assert_eq!((stats.evicted, stats.limits_evicted, stats.no_limit_room), (0, 0, 0), "{stats:?}");
    clock.advance(Duration::from_secs(2 * 3_600));
    assert_eq!(kept.peek("k", 0).remaining(), 7, "recovered, and decided under its own limit");
}

/// As after many reloads: most keys of most versions have not called since.
#[test]
fn keys_and_receipts_keep_the_limits_of_their_last_call_through_many_changes() {
    let (store, clock) = store();
    let version = |version: u64| -> Vec<Limiter> {
        let limit = |scope: u64| format!("fixed-window {}/365d", 100 + 20 * version + scope % 7);
        (0..6_000)
            .map(|scope| Limiter::builder(limit(scope)).in_store(&store, scope).build().unwrap())
            .collect()
    };
    let (mut limiters, mut receipts) = (Vec::new(), Vec::new());
    for number in 0..14 {
        limiters = version(number);
        for limiter in &limiters {
            assert!(limiter.check_cost(number, number + 1).allowed());
        }
        receipts.push(limiters[5].reserve("reserved", 2, Duration::ZERO).unwrap().keep().unwrap());
        let only_receipts = limiters[6].reserve(number, 3, Duration::ZERO).unwrap().keep().unwrap();
        receipts.push(only_receipts);
        clock.advance(Duration::from_secs(60));
    }
    let stats = store.stats();
    assert_eq!((stats.keys, stats.evicted, stats.no_limit_room), (14 * 6_000 + 1, 0, 0), "{stats:?}");
    for (scope, limiter) in (0..).zip(&limiters) {
        for number in 0..14 {
            let reserved = if scope == 6 { 3 } else { 0 };
            let left = 100 + 20 * 13 + scope % 7 - (number + 1) - reserved;
            assert_eq!(limiter.peek(number, 0).remaining(), left, "scope {scope}, version {number}");
        }
    }
    for receipt in &receipts {
        assert!(store.settle(receipt, 1), "{receipt:?}");
    }
    assert_eq!(limiters[5].peek("reserved", 0).remaining(), 100 + 20 * 13 + 5 - 14);
    assert_eq!(limiters[6].peek(4, 0).remaining(), 100 + 20 * 13 + 6 - 5 - 1);
}

/// Limiters need their tags. Only then is there none for others.
#[test]
fn limits_are_rejected_while_limiters_have_all_tags() {
    let (store, clock) = store();
    let build =
        |n: usize| Limiter::builder(format!("fixed-window {}/day", n + 1)).in_store(&store, "a").build();
    let mut limiters: Vec<Limiter> = (0..LIMITS_MAX).map(|n| build(n).unwrap()).collect();
    let rejected = build(LIMITS_MAX).map(|_| ());
    assert_eq!(rejected, Err(BuildError::TooManyLimits { most: LIMITS_MAX }));
    let evicted = limiters.pop().unwrap();
    assert!(evicted.check_cost("k", 9).allowed());
    drop(evicted);
    clock.advance(Duration::from_secs(1));
    assert_eq!(build(20).unwrap().peek("k", 0).remaining(), 12);
    assert_eq!(build(LIMITS_MAX).unwrap().peek("k", 0).remaining(), LIMITS_MAX as u64 + 1 - 9);
}

/// One caller makes up more limits than there are tags, all with debt for a year.
#[test]
fn made_up_limits_make_room_for_each_other_only() {
    for keys in [1, 3] {
        let (store, _) = store();
        let made_up = |limit: &str, kind: fn(LimiterBuilder) -> LimiterBuilder| {
            let limiter =
                kind(Limiter::builder(limit).in_store(&store, limit.to_owned()).untrusted()).build().unwrap();
            (0..keys).map(|key: u32| limiter.check(key).allowed()).collect::<Vec<_>>()
        };
        let inline = |limit: &str| made_up(limit, |builder| builder);
        let rule = limiter(&store, "rule", "fixed-window 1/day");
        assert!((0..500_u32).all(|key| rule.check(key).allowed()));
        let unheld = limiter(&store, "unheld", "fixed-window 1/day");
        assert!(unheld.check("k").allowed());
        drop(unheld);
        assert!(inline("fixed-window 1/365d").into_iter().all(|allowed| allowed));
        for n in 2..60_000_u64 {
            assert!(inline(&format!("fixed-window {n}/365d"))[0], "limit {n}");
        }
        assert!(inline("sliding-log 5/60s")[0], "a newcomer");
        assert!(made_up("token-bucket 2/s burst=3", LimiterBuilder::preserve_recovery_time)[0]);
        assert!(!inline("fixed-window 1/365d")[0], "the limits with the least debt made room");
        assert!((0..500_u32).all(|key| !rule.check(key).allowed()), "a rule was harmed");
        assert!(!limiter(&store, "unheld", "fixed-window 1/day").check("k").allowed(), "a rule was harmed");
        let stats = store.stats();
        assert!(stats.limits_evicted > 10_000 && stats.limits <= 48_384, "{stats:?}");
        let changing = limiter(&store, "changing", "fixed-window 5/day");
        for n in 0..10_000 {
            changing.change(format!("fixed-window {}/day", 5 + n % 7)).unwrap();
        }
    }
}

/// Under `Deny` no debt is lost, so made-up limits are rejected, and there is room again once some
/// have recovered. Rules have tags of their own.
#[test]
fn made_up_limits_leave_tags_to_rules_under_deny() {
    let clock = ManualClock::default();
    let builder = MemoryStore::builder().max_keys(100_000).on_full(OnFull::Deny).clock(clock.clone());
    let store = builder.build().unwrap();
    let made_up = |n: u64| {
        let limiter = Limiter::builder(format!("fixed-window {n}/365d")).in_store(&store, n).untrusted();
        limiter.build().map(|limiter| limiter.check("k").allowed())
    };
    let rejected = (1..70_000).find_map(|n| made_up(n).err());
    assert_eq!(rejected, Some(BuildError::TooManyLimits { most: 48_384 }));
    assert_eq!(made_up(1), Ok(false), "a known limit keeps working: its one call is used");
    let stats = store.stats();
    assert_eq!((stats.limits, stats.limits_evicted, stats.no_limit_room), (48_384, 0, 1));
    assert_eq!(limiter(&store, "rule", "fixed-window 5/day").check("k").remaining(), 4);
    let changing = limiter(&store, "changing", "fixed-window 5/day");
    for n in 0..10_000 {
        changing.change(format!("fixed-window {}/day", 5 + n % 7)).unwrap();
    }
    clock.advance(Duration::from_secs(365 * 86_400));
    assert!((80_000..90_000).any(|n| made_up(n).is_ok()), "limits that nothing needs make room");
}

#[test]
fn limiters_of_one_store_are_charged_all_or_nothing() {
    let (store, clock) = store();
    let (user, site) =
        (limiter(&store, "user", "sliding-log 2/60s"), limiter(&store, "site", "fixed-window 100/day"));
    let now = clock.now();
    let calls = [user.call("user:42", 1), site.call("", 1), user.call("user:43", 2)];
    let (decision, each) = check_all_each_at(&calls, now).unwrap();
    assert!(decision.allowed());
    assert_eq!(each.iter().map(Decision::remaining).collect::<Vec<_>>(), [1, 99, 0]);
    let (decision, each) = check_all_each_at(&calls, now).unwrap();
    assert_eq!((decision.denied_call(), decision.denied_by()), (Some(2), Some(0)));
    assert_eq!(each[2].denied_call(), Some(2));
    assert_eq!(each.iter().map(Decision::allowed).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(site.peek("", 0).remaining(), 99, "nothing was charged");
    // Calls on the same key are merged, and both get the same decision.
    let (decision, each) =
        check_all_each_at(&[user.call("user:44", 1), user.call("user:44", 1)], now).unwrap();
    assert!(decision.allowed() && each.len() == 2 && each[0] == each[1] && each[0].remaining() == 0);
}

/// Hashed first and then checked: the decisions are those of plain checks.
#[test]
fn a_batch_decides_like_single_calls() {
    let (store, clock) = store();
    let limiter = limiter(&store, "a", "token-bucket 1/h burst=3");
    let batch = [("k", 1), ("k", 2), ("k", 1), ("other", 3)].map(|(key, cost)| (limiter.hash(key), cost));
    let allowed = batch.map(|(key, cost)| limiter.check_hashed_at(key, cost, clock.now()).allowed());
    assert_eq!(allowed, [true, true, false, true]);
}

#[test]
fn all_limiters_share_the_capacity() {
    let store = MemoryStore::builder().max_keys(100).on_full(OnFull::Deny).build().unwrap();
    let limiters = ["sliding-log 5/h", "fixed-window 5/day"].map(|limit| limiter(&store, limit, limit));
    let allowed = (0..1_000_u32).filter(|n| limiters[(n % 2) as usize].check(*n).allowed()).count();
    // A key whose two buckets are full has no room even then.
    assert!((90..=100).contains(&allowed), "{allowed}");
    assert_eq!(store.stats().keys, allowed);
}

/// A receipt names the limits under which it was made. It does not bring them back.
#[test]
fn a_receipt_is_closed_under_the_limits_of_the_last_call() {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1_000_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let rule = |limits: &str| Limiter::builder(limits).in_store(&store, "rule").build().unwrap();

    let reserve =
        |limiter: &Limiter, key: &str| limiter.reserve(key, 1, Duration::ZERO).unwrap().keep().unwrap();
    let before = rule("sliding-log 5/60s");
    let receipt = reserve(&before, "longer");
    let after = rule("sliding-log 5/1h");
    clock.advance(Duration::from_secs(10));
    assert_eq!((0..9).filter(|_| after.check("longer").allowed()).count(), 4);
    clock.advance(Duration::from_secs(190));
    assert!(after.settle(&receipt, 2));
    assert!(!after.check("longer").allowed(), "calls that count were dropped");

    let receipts = ["cancelled", "settled"].map(|key| reserve(&after, key));
    let list = rule("sliding-log 5/1h + fixed-window 2/day");
    for key in ["cancelled", "settled"] {
        assert_eq!((0..9).filter(|_| list.check(key).allowed()).count(), 2);
    }
    assert!(list.cancel(&receipts[0]) && list.settle(&receipts[1], 1));
    for key in ["cancelled", "settled"] {
        assert!(!list.check(key).allowed(), "{key}: the new limit started fresh");
    }
}

/// A receipt names its key, not the limits under which it was reserved: they may be gone.
#[test]
fn a_receipt_does_not_bring_old_limits_back() {
    for by_limiter in [false, true] {
        let clock = ManualClock::default();
        let store = MemoryStore::builder().clock(clock.clone()).max_keys(64).build().unwrap();
        let limiter = |limit: &str| Limiter::builder(limit).in_store(&store, "api").build().unwrap();
        let fast = limiter("token-bucket 100/s burst=10");
        let reserve = || fast.reserve("k", 5, Duration::ZERO).unwrap().keep().unwrap();
        let (settled, cancelled) = (reserve(), reserve());
        let slow = limiter("token-bucket 1/h burst=10");
        assert!(!slow.check("k").allowed());
        if by_limiter {
            assert!(slow.settle(&settled, 5) && slow.cancel(&cancelled));
        } else {
            assert!(store.settle(&settled, 5) && store.cancel(&cancelled));
        }
        clock.advance(Duration::from_secs(60));
        assert_eq!(slow.peek("k", 0).remaining(), 5, "nothing has leaked at the old rate");
    }
}
