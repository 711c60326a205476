//! Several limiters decided together.

use sluicegate::OnFull;
use sluicegate::clock::ManualClock;
use sluicegate::{CALLS_MAX, Call, Gate, Limiter, RetryAfter, VerbError, check_all};
use std::net::IpAddr;
use std::time::Duration;

fn limiter(limits: &str) -> Limiter {
    Limiter::builder(limits).clock(ManualClock::default()).build().unwrap()
}

#[test]
fn calls_are_charged_all_or_nothing() {
    let (per_user, per_ip) = (limiter("sliding-log 3/60s"), limiter("token-bucket 10/s"));
    let site = Limiter::builder("fixed-window 100/h").clock(ManualClock::default()).build_gate().unwrap();
    let ip: IpAddr = "203.0.113.9".parse().unwrap();
    let check = |user_cost, site_cost| {
        let calls = [per_user.call("user:42", user_cost), per_ip.call(ip, 1), site.call(site_cost)];
        let decision = check_all(&calls).unwrap();
        (decision.allowed(), decision.limit(), decision.remaining(), decision.denied_call())
    };
    assert_eq!(check(1, 50), (true, 3, 2, None), "the user has the least remaining");
    assert_eq!(check(3, 10), (false, 3, 2, Some(0)), "the user has only 2 left");
    assert_eq!(check(1, 51), (false, 100, 50, Some(2)), "the site was not charged for that");
    assert_eq!(check(1, 50), (true, 100, 0, None), "so this is still allowed, and uses up the site");
    assert_eq!(per_ip.peek(ip, 0).remaining(), 8);
    assert_eq!((per_user.stats().allowed, per_user.stats().denied), (2, 2));
}

#[test]
fn a_denial_names_its_call_and_the_limit_of_that_call() {
    let (per_user, per_tenant) =
        (limiter("sliding-log 3/60s"), limiter("token-bucket 10/s + fixed-window 20/day"));
    let denied = |calls: &[Call<'_>]| {
        let decision = check_all(calls).unwrap();
        (decision.denied_call(), decision.denied_by())
    };
    assert_eq!(denied(&[per_user.call("k", 3), per_tenant.call("acme", 10)]), (None, None));
    assert_eq!(denied(&[per_user.call("j", 1), per_tenant.call("acme", 1)]), (Some(1), Some(0)));
    assert_eq!(denied(&[per_user.call("k", 1), per_tenant.call("acme", 1)]), (Some(0), Some(0)));
    assert_eq!(
        denied(&[per_user.call("j", 1), per_tenant.call("acme", 21)]),
        (Some(1), Some(0)),
        "the first on a tie"
    );
    // Calls on one key count as the first of them.
    let (other, acme) = (per_user.call("j", 1), per_tenant.call("acme", 8));
    assert_eq!(denied(&[other, other, acme, acme]), (Some(2), Some(0)));
    per_tenant.change("token-bucket 100/s + fixed-window 20/day").unwrap();
    assert_eq!(denied(&[other, other, acme, acme]), (Some(2), Some(1)));
}

#[test]
fn equal_keys_are_merged() {
    let limiter = limiter("token-bucket 1/s burst=5");
    let twice = |first, second| check_all(&[limiter.call("k", first), limiter.call("k", second)]).unwrap();
    assert_eq!(twice(2, 4).retry_after(), Some(RetryAfter::Never));
    assert_eq!(twice(2, 2).remaining(), 1);
    assert_eq!(twice(u64::MAX, u64::MAX).retry_after(), Some(RetryAfter::Never));
    let other = Limiter::new("token-bucket 1/s burst=5").unwrap();
    assert!(
        check_all(&[limiter.call("k", 1), other.call("k", 5)]).unwrap().allowed(),
        "the same key of another limiter is another key"
    );
}

/// Keys of one shard and of many, more of them than a bucket has slots.
#[test]
fn one_call_can_have_many_keys_of_a_limiter() {
    for limits in ["fixed-window 3/h", "sliding-log 3/60s"] {
        let limiter = limiter(limits);
        let calls: Vec<Call<'_>> = (0..CALLS_MAX).map(|key| limiter.call(key, 1)).collect();
        assert!((0..3).all(|_| check_all(&calls).unwrap().allowed()));
        assert!(!check_all(&calls).unwrap().allowed());
        assert!((0..CALLS_MAX).all(|key| limiter.peek(key, 0).remaining() == 0));
    }
}

#[test]
fn calls_that_cannot_be_combined_are_rejected() {
    let limiter = limiter("token-bucket 1/s burst=500");
    let calls: Vec<Call<'_>> = (0..=CALLS_MAX).map(|key| limiter.call(key, 1)).collect();
    let refused = check_all(&calls).unwrap_err();
    assert_eq!(refused, VerbError::TooManyCalls(65));
    assert_eq!(refused.to_string(), "65 calls are too many to charge all or nothing; use at most 64");
    let counting = Limiter::new("sliding-log 5/60s count=all").unwrap();
    let refused = check_all(&[limiter.call("k", 1), counting.call("k", 1)]).unwrap_err();
    assert_eq!(refused, VerbError::CountsDenied("sliding-log 5/min count=all".to_owned()));
    assert_eq!(limiter.stats().keys, 0, "nothing was charged");
    assert!(check_all(&[]).unwrap().allowed(), "an empty list is allowed");
}

/// If one limiter has no room for its new key, none is charged and no slot is kept.
#[test]
fn without_room_for_one_key_none_is_charged() {
    let small = Limiter::builder("fixed-window 9/h").max_keys(2).on_full(OnFull::Deny);
    let small = small.clock(ManualClock::default()).build().unwrap();
    let large = limiter("fixed-window 9/h");
    assert!(small.check("old").allowed());
    let call = || check_all(&[large.call("k", 1), small.call("new", 1), small.call("newer", 1)]).unwrap();
    assert!(!call().allowed());
    assert_eq!((large.stats().keys, small.stats().keys), (0, 1));
    assert_eq!(large.peek("k", 0).remaining(), 9);
    small.reset("old");
    assert!(call().allowed());
    assert_eq!((large.stats().keys, small.stats().keys), (1, 2));
}

/// A call that may evict others evicts none of its own keys.
#[test]
fn keys_of_one_call_do_not_evict_each_other() {
    let tiny =
        Limiter::builder("fixed-window 9/h").max_keys(1).clock(ManualClock::default()).build().unwrap();
    let denied = check_all(&[tiny.call("a", 1), tiny.call("b", 1)]).unwrap();
    assert_eq!(denied.retry_after(), Some(RetryAfter::Never));
    assert_eq!(tiny.stats().keys, 0);
    assert!(tiny.check("a").allowed());
    assert!(check_all(&[tiny.call("b", 2)]).unwrap().allowed());
    assert!(!tiny.contains("a"));
}

#[test]
fn receipts_account_for_combined_charges() {
    let gate = Gate::new("token-bucket 1/h burst=10").unwrap();
    let reserved = gate.reserve(5, Duration::ZERO).unwrap();
    assert!(check_all(&[gate.call(3)]).unwrap().allowed());
    assert!(reserved.cancel());
    assert_eq!(gate.peek(0).remaining(), 7);
}

/// No key is evicted for a call that finds no room elsewhere.
#[test]
fn a_denied_call_evicts_no_key() {
    let evicting = Limiter::builder("token-bucket 1/h burst=10").max_keys(1).clock(ManualClock::default());
    let evicting = evicting.build().unwrap();
    let denying = Limiter::builder("token-bucket 1/h burst=10").max_keys(1).on_full(OnFull::Deny);
    let denying = denying.clock(ManualClock::default()).build().unwrap();
    assert!(evicting.check_cost("offender", 10).allowed() && denying.check("x").allowed());
    assert!(!check_all(&[evicting.call("n", 1), denying.call("m", 1)]).unwrap().allowed());
    assert!(!evicting.check("offender").allowed());
}

/// More keys than one of the limiters holds never fit, so none is evicted from another for them.
#[test]
fn a_call_that_cannot_fit_evicts_no_key() {
    let [one, other] = [(), ()].map(|()| {
        let builder = Limiter::builder("token-bucket 5/1h").max_keys(1).clock(ManualClock::default());
        builder.build().unwrap()
    });
    assert!(one.check_cost("offender", 5).allowed() && other.check_cost("held", 5).allowed());
    let denied = check_all(&[one.call("new", 1), other.call("x", 1), other.call("y", 1)]).unwrap();
    assert_eq!(denied.retry_after(), Some(RetryAfter::Never));
    assert!(!one.check("offender").allowed() && !other.check("held").allowed());
    assert_eq!((one.stats().evicted, other.stats().evicted), (0, 0));
}
