//! The store's own synchronisation under a model checker: every order in which two or three threads can meet.
//!
//! ```text
//! cargo xtask loom
//! ```
//!
//! What is checked is what the store adds to its locks: the numbers of keys and receipts that all places share, limits
//! that change while others call, and several locks at once. Each model is small enough to be explored to the end.

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use loom::thread;
use sluicegate::{Limiter, ManualClock, OnFull, SharedStore, check_all};
use std::time::Duration;

fn limiter(limits: &str, max_keys: usize) -> Limiter {
    let builder = Limiter::builder(limits).clock(ManualClock::default()).max_keys(max_keys);
    builder.on_full(OnFull::Deny).build().unwrap()
}

/// Three threads, one new key, a burst of two: two are allowed.
#[test]
fn a_burst_is_admitted_exactly_once() {
    for limits in ["token-bucket 1/h burst=2", "sliding-log 2/h"] {
        loom::model(move || {
            let limiter = limiter(limits, 1);
            let call = |limiter: Limiter| thread::spawn(move || u32::from(limiter.check("k").allowed()));
            let others = [call(limiter.clone()), call(limiter.clone())];
            let own = u32::from(limiter.check("k").allowed());
            let allowed: u32 = others.into_iter().map(|other| other.join().unwrap()).sum::<u32>() + own;
            assert_eq!(allowed, 2);
            assert_eq!(limiter.stats().keys, 1);
        });
    }
}

/// Two new keys and room for one: never two held, never none. Of four keys in three places some two are not in the same.
#[test]
fn the_number_of_keys_is_shared_by_all_places() {
    for (left, right) in [("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")] {
        loom::model(move || {
            let limiter = limiter("fixed-window 5/h", 3);
            assert!(limiter.check("old").allowed() && limiter.check("older").allowed());
            let other = limiter.clone();
            let other = thread::spawn(move || other.check(left).allowed());
            let own = limiter.check(right).allowed();
            assert!(own ^ other.join().unwrap());
            assert_eq!(limiter.stats().keys, 3);
        });
    }
}

/// Two limiters named in opposite orders: no deadlock, and both are charged the same.
#[test]
fn several_are_charged_all_or_none_in_any_order() {
    loom::model(|| {
        let (left, right) = (limiter("fixed-window 1/h", 1), limiter("token-bucket 1/h burst=5", 1));
        let (other_left, other_right) = (left.clone(), right.clone());
        let other = thread::spawn(move || {
            check_all(&[other_right.on("k", 1), other_left.on("k", 1)]).unwrap().allowed()
        });
        let own = check_all(&[left.on("k", 1), right.on("k", 1)]).unwrap().allowed();
        assert!(own ^ other.join().unwrap());
        assert_eq!((left.peek("k", 0).remaining(), right.peek("k", 0).remaining()), (0, 4));
    });
}

/// A change of limits while a key calls for the first time: it meets the new limit afterwards in any case.
#[test]
fn a_change_misses_no_place() {
    loom::model(|| {
        let limiter = limiter("fixed-window 5/h", 1);
        let other = limiter.clone();
        let other = thread::spawn(move || other.check_cost("k", 2).allowed());
        limiter.change("fixed-window 9/h").unwrap();
        assert!(other.join().unwrap());
        let decision = limiter.check("k");
        assert_eq!((decision.limit(), decision.remaining()), (9, 6));
    });
}

/// The count of versions starts again while a key calls: what it used is neither lost nor read twice.
#[test]
fn versions_start_again_under_one_lock() {
    loom::model(|| {
        // Read twice, what was used at one rate would be taken for more or less at another.
        let limiter = limiter("token-bucket 1/h burst=60", 1);
        assert!(limiter.check("k").allowed());
        let other = limiter.clone();
        let other = thread::spawn(move || other.check_cost("k", 2).allowed());
        for count in [20, 3, 40] {
            limiter.change(format!("token-bucket {count}/h burst=60")).unwrap();
        }
        assert!(other.join().unwrap());
        assert_eq!(limiter.check("k").remaining(), 56);
    });
}

/// The numbers of limits that nobody needs are given out again while a key calls: it is judged by its own limit throughout.
#[test]
fn a_limit_that_is_needed_keeps_its_number() {
    loom::model(|| {
        let clock = ManualClock::default();
        let store = SharedStore::builder().clock(clock).max_keys(3).build().unwrap();
        let limiter = |limit: &str, scope: u32| Limiter::builder(limit).in_store(&store, scope).build();
        let kept = limiter("fixed-window 5/h", 0).unwrap();
        let other = kept.clone();
        let other = thread::spawn(move || other.check_cost("k", 2).remaining());
        // Four numbers, all but one of which are free again when the fifth limit comes.
        for scope in 1..=4 {
            let brief = limiter(&format!("fixed-window {}/h", 10 + scope), scope).unwrap();
            assert_eq!(brief.peek("k", 0).remaining(), 10 + scope);
        }
        assert_eq!(other.join().unwrap(), 3);
        assert_eq!(kept.check("k").remaining(), 2);
    });
}

/// One receipt for two: one of them gets it, and it is there again after the cancel.
#[test]
fn receipts_are_counted() {
    loom::model(|| {
        let builder = Limiter::builder("fixed-window 9/h").clock(ManualClock::default()).max_keys(1);
        let limiter = builder.max_receipts(1).build().unwrap();
        let other = limiter.clone();
        let reserve = |limiter: &Limiter| limiter.reserve("k", 1, Duration::ZERO).ok()?.keep();
        let other = thread::spawn(move || other.reserve("k", 1, Duration::ZERO).ok()?.keep());
        let (own, other) = (reserve(&limiter), other.join().unwrap());
        assert!(own.is_some() ^ other.is_some());
        assert!(own.or(other).is_some_and(|receipt| limiter.cancel(receipt)));
        assert!(reserve(&limiter).is_some());
        assert_eq!(limiter.peek("k", 0).remaining(), 8);
    });
}
