//! Limits that change while a limiter is in use.

use sluicegate::clock::ManualClock;
use sluicegate::{BuildError, Limiter, Span, Time};
use std::time::Duration;

fn limiter(limits: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limits).clock(clock.clone()).build().unwrap(), clock)
}

#[test]
fn keys_keep_their_usage() {
    for (old, new, remaining) in [
        ("token-bucket 1/s burst=10", "token-bucket 100/s burst=20", 14),
        ("fixed-window 10/day", "fixed-window 20/day", 14),
        ("sliding-window 10/h", "sliding-window 7/h", 1),
        ("sliding-log 10/60s", "sliding-log 20/60s", 14),
        // Another period of a window starts with fresh state.
        ("fixed-window 10/day", "fixed-window 10/h", 10),
    ] {
        let (limiter, clock) = limiter(old);
        assert!(limiter.check_cost("k", 8).allowed());
        assert!(limiter.refund("k", 2).unwrap().allowed());
        limiter.change(new).unwrap();
        assert_eq!(limiter.peek("k", 0).remaining(), remaining, "{old} -> {new}");
        assert_eq!(limiter.limits()[0], new.parse().unwrap());
        clock.advance(Duration::from_secs(86_400));
        assert_eq!(limiter.peek("k", 0).remaining(), limiter.peek("new", 0).remaining());
    }
}

/// A key is decided under the new limit from its next call on: until then its usage leaks at the
/// old rate.
#[test]
fn a_bucket_leaks_at_the_old_rate_until_the_next_call() {
    let (limiter, clock) = limiter("token-bucket 2/s burst=10");
    assert!(limiter.check_cost("k", 10).allowed() && limiter.check_cost("other", 10).allowed());
    limiter.change("token-bucket 1/h burst=10").unwrap();
    assert!(!limiter.check("other").allowed(), "the new limit applies now");
    clock.advance(Duration::from_secs(3));
    assert_eq!(limiter.peek("k", 0).remaining(), 6);
    assert_eq!(limiter.peek("other", 0).remaining(), 0);
}

/// More versions than a slot can count; keys that called under any of them keep their usage.
#[test]
fn limits_can_change_a_thousand_times() {
    let (limiter, _) = limiter("fixed-window 10000/day");
    for version in 0..1_000_u64 {
        assert!(limiter.check_cost(("k", version), version).allowed());
        limiter.change(format!("fixed-window {}/day", 10_001 + version)).unwrap();
    }
    for version in 0..1_000_u64 {
        assert_eq!(limiter.peek(("k", version), 0).remaining(), 11_000 - version, "{version}");
    }
}

/// Of several changes between two calls only the last one counts. A state that was converted in
/// between starts fresh.
#[test]
fn a_state_is_converted_from_the_version_of_its_last_call() {
    let (one, _) = limiter("fixed-window 10/day");
    let _ = one.check_cost("k", 4);
    one.change("fixed-window 10/h").unwrap();
    one.change("fixed-window 10/day").unwrap();
    assert_eq!(one.peek("k", 0).remaining(), 6);
    one.change("fixed-window 10/h").unwrap();
    let _ = one.check_cost("k", 1);
    one.change("fixed-window 10/day").unwrap();
    assert_eq!(one.peek("k", 0).remaining(), 10);
    let list = Limiter::builder(["fixed-window 10/day", "min-interval 1us"]).clock(ManualClock::default());
    let list = list.build().unwrap();
    let _ = list.check_cost("k", 1);
    list.change(["token-bucket 10/s", "min-interval 1us"]).unwrap();
    list.change(["fixed-window 10/day", "token-bucket 9/s"]).unwrap();
    assert_eq!(list.peek("k", 0).remaining(), 9);
    assert_eq!(list.peek("k", 0).limit(), 10, "the window's usage is kept");
}

#[test]
fn lists_can_grow_and_shrink() {
    let clock = ManualClock::default();
    let builder = Limiter::builder(["fixed-window 10/day", "token-bucket 1/s burst=10"]).clock(clock);
    let limiter = builder.build().unwrap();
    let _ = limiter.check_cost("k", 4);
    limiter.change(["fixed-window 20/day", "token-bucket 1/s burst=30", "sliding-log 5/60s"]).unwrap();
    assert_eq!(limiter.peek("k", 0).remaining(), 5, "the log starts empty");
    assert!(limiter.check_cost("k", 5).allowed());
    limiter.change(["fixed-window 20/day", "token-bucket 1/s burst=30"]).unwrap();
    assert_eq!(limiter.peek("k", 0).remaining(), 11);
}

#[test]
fn another_kind_of_state_needs_another_limiter() {
    let (limiter, _) = limiter("token-bucket 1/s burst=10");
    let _ = limiter.check_cost("k", 4);
    for limits in
        [vec!["sliding-log 5/60s"], vec!["leaky-bucket 1/s"], vec!["token-bucket 1/s", "fixed-window 5/h"]]
    {
        assert_eq!(limiter.change(limits), Err(BuildError::AlgorithmChanged));
    }
    assert!(matches!(limiter.change("nonsense"), Err(BuildError::Limit(_))));
    assert!(BuildError::AlgorithmChanged.to_string().contains("build a new limiter"));
    assert_eq!(limiter.peek("k", 0).remaining(), 6, "nothing has changed");
}

#[test]
fn receipts_survive_a_change_of_parameters() {
    for (old, new, after_settle) in [
        ("token-bucket 1/h burst=100", "token-bucket 2/h burst=200", 140),
        ("leaky-bucket 1/h capacity=100", "leaky-bucket 1/d capacity=100", 40),
        ("fixed-window 100/day", "fixed-window 200/day", 140),
        ("sliding-window 100/d", "sliding-window 200/d", 140),
        ("sliding-log 100/d", "sliding-log 200/h", 140),
    ] {
        for called_between in [false, true] {
            let (limiter, _) = limiter(old);
            let reserve = || limiter.reserve("k", 10, Duration::ZERO).unwrap().keep().unwrap();
            let (settled, cancelled) = (reserve(), reserve());
            limiter.change(new).unwrap();
            if called_between {
                assert!(limiter.check_cost("k", 0).allowed() && limiter.check_cost("k", 1).allowed());
                assert!(limiter.refund("k", 1).unwrap().allowed());
            }
            assert!(limiter.cancel(&cancelled), "{old} -> {new}");
            assert!(limiter.settle(&settled, 60), "{old} -> {new}");
            assert_eq!(limiter.peek("k", 0).remaining(), after_settle, "{old} -> {new}");
            assert!(!limiter.settle(&settled, 60), "it is used");
        }
    }
}

/// Heights are converted by more versions than a slot can count.
#[test]
fn receipts_survive_a_thousand_changes() {
    let (limiter, _) = limiter("token-bucket 1/h burst=100");
    let reserve = || limiter.reserve("k", 10, Duration::ZERO).unwrap().keep().unwrap();
    let (first, second) = (reserve(), reserve());
    for version in 0..1_000_u64 {
        limiter.change(format!("token-bucket {}/d burst=100", 10 + version)).unwrap();
        if version % 7 == 0 {
            assert!(limiter.check_cost("k", 1).allowed() && limiter.refund("k", 1).unwrap().allowed());
        }
    }
    assert!(limiter.cancel(&first) && limiter.cancel(&second));
    assert_eq!(limiter.peek("k", 0).remaining(), 100);
}

/// In a list, a receipt keeps its charges under the limits that keep their state.
#[test]
fn a_receipt_keeps_the_charges_whose_state_is_kept() {
    let clock = ManualClock::default();
    let builder =
        Limiter::builder(["fixed-window 10/day", "sliding-log 20/day"]).clock(clock).max_receipts(1);
    let limiter = builder.build().unwrap();
    let receipt = limiter.reserve("k", 5, Duration::ZERO).unwrap().keep().unwrap();
    limiter.change(["fixed-window 10/h", "sliding-log 8/day", "token-bucket 1/d burst=9"]).unwrap();
    assert_eq!(limiter.peek("k", 0).remaining(), 3);
    assert!(limiter.cancel(&receipt));
    assert_eq!(limiter.peek("k", 0).remaining(), 8);
    let receipt = limiter.reserve("k", 5, Duration::ZERO).unwrap().keep().unwrap();
    limiter.change(["fixed-window 10/day", "sliding-window 20/day"]).unwrap();
    assert!(!limiter.settle(&receipt, 9), "no state of its charges is kept");
    assert_eq!(limiter.peek("k", 0).remaining(), 10);
    assert!(limiter.reserve("k", 1, Duration::ZERO).unwrap().allowed(), "its room is freed");
}

/// One call with a wrong time, on another key or by a peek, locks no key out.
#[test]
fn a_wrong_time_on_another_key_has_no_effect() {
    for change_first in [false, true] {
        let (limiter, _) = limiter("token-bucket 1/s burst=10");
        let now = limiter.now();
        (0..500).for_each(|key| assert!(limiter.check_at(key, 1, now).allowed()));
        let glimpse = || (0..500).for_each(|key| assert!(limiter.peek_at(key, 1, Time::MAX).allowed()));
        if !change_first {
            glimpse();
            assert!(limiter.check_at("other", 1, now.saturating_add(Span::from_micros(1 << 50))).allowed());
        }
        limiter.change("token-bucket 2/s burst=10").unwrap();
        if change_first {
            glimpse();
        }
        let later = now.saturating_add(Span::from_micros(3_600_000_000));
        assert!((0..500).all(|key| limiter.check_at(key, 1, later).remaining() == 9));
    }
}

/// The key had recovered and lost its slot, but not its receipt.
#[test]
fn receipts_of_dropped_keys_survive_too() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("token-bucket 1/s burst=10").max_keys(1).max_receipts(1);
    let limiter = builder.clock(clock.clone()).build().unwrap();
    let receipt = limiter.reserve("a", 5, Duration::ZERO).unwrap().keep().unwrap();
    clock.advance(Duration::from_secs(10));
    let _ = limiter.check("b");
    limiter.change("token-bucket 2/s burst=10").unwrap();
    assert!(limiter.settle(&receipt, 9));
    assert_eq!(limiter.peek("a", 0).remaining(), 6, "the excess is charged");
    assert!(limiter.reserve("b", 1, Duration::ZERO).unwrap().allowed(), "its receipt is freed");
}
