//! The methods of a limiter and a gate.

use sluicegate::clock::ManualClock;
use sluicegate::{BuildError, Decision, Gate, Limit, Limiter, Observer, RetryAfter, Span, Time, check_all};
use sluicegate::{MAX_KEYS_MAX, MAX_RECEIPTS_MAX, OnFull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(limits: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limits).clock(clock.clone()).build().unwrap(), clock)
}

#[test]
fn five_replies_per_minute_per_user() {
    let (replies, clock) = limiter("sliding-log 5/60s");
    let allowed = |user: &str| (0..20).filter(|_| replies.check(user).allowed()).count();
    assert_eq!([allowed("user:42"), allowed("user:43"), allowed("user:42")], [5, 5, 0]);
    let denied = replies.check("user:42");
    assert_eq!(format!("{:?}", denied.retry_after()), "Some(After(1min))");
    clock.advance(60 * SECOND);
    assert_eq!(allowed("user:42"), 5);
}

#[test]
fn every_verb_has_a_form_that_reads_the_clock() {
    let (limiter, clock) = limiter("token-bucket 1/s burst=10");
    assert_eq!(limiter.check_cost("k", 4).remaining(), 6);
    assert_eq!(limiter.peek("k", 7).retry_after(), Some(RetryAfter::After(Span::from(SECOND))));
    assert_eq!(limiter.take("k", 100).unwrap().1, 6);
    assert_eq!(limiter.take("k", 100).unwrap().1, 0);
    assert_eq!(limiter.refund("k", 3).unwrap().remaining(), 3);
    assert_eq!(limiter.next_window("k"), limiter.now().saturating_add(Span::from(SECOND)));
    clock.advance(SECOND);
    assert_eq!(limiter.peek("k", 0).remaining(), 4);
    limiter.reset("k");
    assert_eq!(limiter.peek("k", 0).remaining(), 10);
    assert!(!limiter.contains("k"));
}

#[test]
fn several_limits_are_charged_all_or_none() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("token-bucket 10/s burst=5").and("fixed-window 8/day");
    let api = builder.clock(clock.clone()).build().unwrap();
    assert_eq!(api.check_cost("k", 5).remaining(), 0);
    clock.advance(SECOND);
    assert_eq!(api.check_cost("k", 4).denied_by(), Some(1), "only 3 are left today");
    assert!(api.check_cost("k", 3).allowed());
    clock.advance(SECOND);
    assert_eq!(api.peek("k", 1).denied_by(), Some(1));
    assert_eq!(Limiter::new(["min-interval 1s", "fixed-window 5/h"]).unwrap().limits().len(), 2);
}

#[test]
fn a_gate_is_a_limiter_with_one_key() {
    let clock = ManualClock::default();
    let gate = Limiter::builder("token-bucket 1/s burst=3").clock(clock.clone()).build_gate().unwrap();
    assert_eq!((0..9).filter(|_| gate.check().allowed()).count(), 3);
    assert_eq!(gate.refund(2).unwrap().remaining(), 2);
    assert_eq!(gate.take(9).unwrap().1, 2);
    assert!(gate.reserve(1, SECOND).unwrap().cancel());
    assert!(gate.cancel(&gate.reserve(1, SECOND).unwrap().keep().unwrap()));
    assert!(gate.settle(&gate.reserve(1, SECOND).unwrap().keep().unwrap(), 0));
    assert_eq!(gate.peek(0).remaining(), 0);
    clock.advance(SECOND);
    assert_eq!(gate.next_window(), gate.now().saturating_add(Span::from(SECOND)));
    assert!(gate.check_cost(1).allowed());
    gate.reset();
    assert_eq!(gate.check_at(3, gate.now()).remaining(), 0);
    gate.change("token-bucket 1/s burst=5").unwrap();
    assert_eq!(gate.peek(0).remaining(), 2);
    assert_eq!((gate.stats().keys, gate.stats().max_keys), (1, 1));
    assert!(Gate::new("fixed-window 5/h").unwrap().clone().check().allowed());
}

/// A free, denied or peeked call leaves nothing behind.
#[test]
fn only_charged_keys_are_stored() {
    let (limiter, _) = limiter("fixed-window 5/h");
    let _ = limiter.check_cost("free", 0);
    let _ = limiter.check_cost("too much", 6);
    let _ = limiter.peek("looked at", 5);
    limiter.next_window("asked");
    let _ = limiter.refund("given back", 5).unwrap();
    assert_eq!(limiter.stats().keys, 0);
    let _ = limiter.check("charged");
    assert_eq!(limiter.stats().keys, 1);
    assert_eq!((limiter.stats().allowed, limiter.stats().denied), (2, 1));
}

#[test]
fn a_bucket_fills_from_the_creation_of_its_limiter() {
    let (limiter, clock) = limiter("token-bucket 50/10s initial=0");
    clock.advance(SECOND);
    assert_eq!(limiter.peek("new", 0).remaining(), 5);
}

#[test]
fn invalid_limits_are_rejected_by_the_builder() {
    let said = |built: Result<Limiter, BuildError>| built.unwrap_err().to_string();
    assert!(said(Limiter::new("sliding-log 5/60x")).starts_with("sliding-log 5/60x: unknown unit"));
    assert!(said(Limiter::builder("min-interval 1s").and("nonsense").build()).starts_with("nonsense:"));
    assert!(said(Limiter::builder("nonsense").and("min-interval 1s").build()).starts_with("nonsense:"));
    let none: [&str; 0] = [];
    assert!(said(Limiter::new(none)).starts_with("there is no limit"));
    let counting = Limiter::new(["sliding-log 5/60s count=all", "min-interval 1s"]);
    assert!(said(counting).contains("count=all does not go with other limits"));
    let sized = |keys| Limiter::builder("min-interval 1s").max_keys(keys).build();
    assert_eq!(said(sized(0)), "max_keys is 0; use 1 to 1000000000");
    assert_eq!(said(sized(MAX_KEYS_MAX + 1)), "max_keys is 1000000001; use 1 to 1000000000");
    let receipts = Limiter::builder("min-interval 1s").max_receipts(MAX_RECEIPTS_MAX + 1).build();
    assert_eq!(said(receipts), "max_receipts is 10000001; use 0 to 10000000");
}

#[test]
fn limits_may_be_text_or_parsed() {
    let limit: Limit = "fixed-window 5/h".parse().unwrap();
    for limiter in [
        Limiter::new(&limit).unwrap(),
        Limiter::new(limit.clone()).unwrap(),
        Limiter::new(limit.to_string()).unwrap(),
        Limiter::new(vec![limit.clone()]).unwrap(),
        Limiter::builder(std::slice::from_ref(&limit)).build().unwrap(),
        Limiter::new([limit.clone()].as_slice()).unwrap(),
    ] {
        assert_eq!(*limiter.limits(), *std::slice::from_ref(&limit));
        assert_eq!(format!("{limiter:?}"), r#"Limiter { limits: ["fixed-window 5/h"], .. }"#);
    }
}

/// An observer runs while no lock is held, so it may call the limiter.
#[test]
fn an_observer_may_call_its_limiter() {
    #[derive(Default)]
    struct Counting(OnceLock<Limiter>, AtomicU32);
    impl Observer for Counting {
        fn decided(&self, decision: &Decision) {
            let again = self.0.get().map(|limiter| limiter.peek("k", 0).remaining());
            assert_eq!(again, Some(decision.remaining()));
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let observer = Arc::new(Counting::default());
    let builder = Limiter::builder("fixed-window 9/h").clock(ManualClock::default());
    let limiter = builder.observer(Arc::clone(&observer)).build().unwrap();
    observer.0.set(limiter.clone()).unwrap();
    let _ = limiter.check("k");
    let _ = limiter.take("k", 2).unwrap();
    assert!(limiter.reserve("k", 1, Duration::ZERO).unwrap().allowed());
    let _ = check_all(&[limiter.call("k", 1)]).unwrap();
    let _ = limiter.peek("k", 1);
    assert_eq!(observer.1.load(Ordering::Relaxed), 4, "a peek is not observed");
}

/// A refund to a bucket that is still filling is state that needs a slot.
#[test]
fn a_refund_without_room_returns_nothing() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("token-bucket 1/h burst=5 initial=0").max_keys(1).on_full(OnFull::Deny);
    let limiter = builder.clock(clock.clone()).build().unwrap();
    assert_eq!(limiter.refund("first", 2).unwrap().remaining(), 2);
    assert_eq!(limiter.refund("second", 2).unwrap().remaining(), 0);
    assert_eq!((limiter.stats().keys, limiter.peek("first", 0).remaining()), (1, 2));
}

/// The system clock: a window that was open closes again.
#[test]
fn the_system_clock_runs() {
    let limiter = Limiter::new("fixed-window 1/100us start=first").unwrap();
    let began = std::time::Instant::now();
    let mut allowed = 0;
    while allowed < 20 {
        allowed += u32::from(limiter.check("k").allowed());
        assert!(began.elapsed() < Duration::from_secs(60), "{allowed} windows in a minute");
    }
    assert!(began.elapsed() >= Duration::from_micros(1_900 - 100), "{:?}", began.elapsed());
    assert!(limiter.now() > Time::from_micros(1_700_000_000_000_000).unwrap());
}
