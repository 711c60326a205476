//! Delayed calls in virtual time, as an event log in the manner of Guava's tests: `R0.20` is a call
//! that waited 0.2 s, `U0.20` is 0.2 s of other work. The values are those of Guava 31.1.

use sluicegate::clock::ManualClock;
use sluicegate::limit::ListError;
use sluicegate::{CheckAllError, Gate, Limiter, RetryAfter, Span, check_all};
use std::time::Duration;

/// A caller of one limit.
struct Caller {
    gate: Gate,
    clock: ManualClock,
    log: Vec<String>,
}

impl Caller {
    fn of(limit: &str) -> Caller {
        let clock = ManualClock::default();
        let gate = Limiter::builder(limit).clock(clock.clone()).build_gate().unwrap();
        Caller { gate, clock, log: Vec::new() }
    }

    /// Guava's `acquire(permits)`: charged now, then the clock advances by the wait.
    fn acquire(&mut self, permits: u64) -> &mut Caller {
        let decision = self.gate.check_within(permits, Duration::MAX).unwrap();
        assert!(decision.allowed(), "{decision:?}");
        self.passes('R', decision.delay().into())
    }

    fn acquires(&mut self, times: u64) -> &mut Caller {
        for _ in 0..times {
            self.acquire(1);
        }
        self
    }

    /// Guava's `tryAcquire(1, timeout)`, without the sleep of a denial.
    fn try_acquire(&mut self, millis: u64) -> bool {
        let decision = self.gate.check_within(1, Duration::from_millis(millis)).unwrap();
        if decision.allowed() {
            self.passes('R', decision.delay().into());
        }
        decision.allowed()
    }

    fn sleeps(&mut self, millis: u64) -> &mut Caller {
        self.passes('U', Duration::from_millis(millis))
    }

    fn set_rate(&mut self, limit: &str) -> &mut Caller {
        self.gate.change(limit).unwrap();
        self
    }

    fn passes(&mut self, event: char, time: Duration) -> &mut Caller {
        // Hundredths, halves rounded up, as Java prints them.
        let hundredths = (time.as_micros() + 5_000) / 10_000;
        self.log.push(format!("{event}{}.{:02}", hundredths / 100, hundredths % 100));
        self.clock.advance(time);
        self
    }

    fn happened(&self) -> String {
        self.log.join(", ")
    }
}

#[test]
fn calls_are_evenly_spaced() {
    assert_eq!(Caller::of("smooth 5/s").acquires(3).happened(), "R0.00, R0.20, R0.20");
}

#[test]
fn idle_time_shortens_the_wait() {
    let mut caller = Caller::of("smooth 5/s");
    assert_eq!(caller.acquires(1).sleeps(200).acquires(2).happened(), "R0.00, U0.20, R0.00, R0.20");
}

#[test]
fn at_most_one_second_is_stored() {
    let mut caller = Caller::of("smooth 5/s");
    caller.sleeps(1_000).sleeps(1_000).acquire(1).acquire(1).acquire(3).acquire(1).acquire(1);
    assert_eq!(caller.happened(), "U1.00, U1.00, R0.00, R0.00, R0.00, R0.00, R0.20");
}

#[test]
fn burst_sets_how_much_is_stored() {
    let mut caller = Caller::of("smooth 5/s burst=10");
    caller.sleeps(1_000).sleeps(1_000).acquire(10).acquire(1).acquire(1);
    assert_eq!(caller.happened(), "U1.00, U1.00, R0.00, R0.00, R0.20");
}

#[test]
fn initial_sets_what_is_stored_at_the_start() {
    let mut caller = Caller::of("smooth 5/s initial=2");
    assert_eq!(caller.acquires(4).happened(), "R0.00, R0.00, R0.00, R0.20");
}

#[test]
fn the_next_caller_pays_for_a_large_call() {
    let mut caller = Caller::of("smooth 5/s");
    caller.acquire(10).acquire(1).acquire(2).acquire(1);
    assert_eq!(caller.happened(), "R0.00, R2.00, R0.20, R0.40");
}

#[test]
fn a_new_rate_applies_after_the_old_debt() {
    let mut caller = Caller::of("smooth 1/s");
    caller.acquire(1).acquire(1).set_rate("smooth 2/s").acquire(1).acquire(2).acquire(4).acquire(1);
    assert_eq!(caller.happened(), "R0.00, R1.00, R1.00, R0.50, R1.00, R2.00");
}

#[test]
fn a_warm_up_starts_slowly_and_again_after_idle_time() {
    let mut caller = Caller::of("smooth 2/s warmup=4s");
    caller.acquires(8).sleeps(500).sleeps(4_000).acquires(8).sleeps(500).sleeps(2_000).acquires(8);
    let cold = "R0.00, R1.38, R1.13, R0.88, R0.63, R0.50, R0.50, R0.50";
    let warm = "R0.00, R0.50, R0.50, R0.50, R0.50, R0.50, R0.50, R0.50";
    assert_eq!(caller.happened(), format!("{cold}, U0.50, U4.00, {cold}, U0.50, U2.00, {warm}"));
}

#[test]
fn a_cold_factor_of_ten_starts_slower() {
    let mut caller = Caller::of("smooth 5/s warmup=4s cold=10");
    caller.acquires(8).sleeps(200).sleeps(4_000).acquires(8).sleeps(200).sleeps(1_000).acquires(8);
    let cold = "R0.00, R1.75, R1.26, R0.76, R0.30, R0.20, R0.20, R0.20";
    let warm = "R0.00, R0.20, R0.20, R0.20, R0.20, R0.20, R0.20, R0.20";
    assert_eq!(caller.happened(), format!("{cold}, U0.20, U4.00, {cold}, U0.20, U1.00, {warm}"));
}

#[test]
fn a_cold_factor_of_one_has_no_warm_up() {
    let mut caller = Caller::of("smooth 5/s warmup=4s cold=1");
    caller.acquires(8).sleeps(340).acquires(8);
    let even = "R0.00, R0.20, R0.20, R0.20, R0.20, R0.20, R0.20, R0.20";
    assert_eq!(caller.happened(), format!("{even}, U0.34, {even}"));
}

#[test]
fn a_new_rate_keeps_the_stored_share() {
    let mut caller = Caller::of("smooth 2/s warmup=4s");
    caller.acquires(8).sleeps(4_500).acquires(3).set_rate("smooth 4/s warmup=4s").acquire(1).acquires(4);
    caller.sleeps(4_250).acquires(11);
    assert_eq!(
        caller.happened(),
        "R0.00, R1.38, R1.13, R0.88, R0.63, R0.50, R0.50, R0.50, U4.50, R0.00, R1.38, R1.13, R0.88, \
         R0.34, R0.28, R0.25, R0.25, U4.25, \
         R0.00, R0.72, R0.66, R0.59, R0.53, R0.47, R0.41, R0.34, R0.28, R0.25, R0.25"
    );
}

/// The threshold is at 20 permits and the maximum at 40: the first 20 take the warm-up, the next 20
/// half as long.
#[test]
fn a_warm_up_takes_its_time_whatever_calls_cost() {
    for permits in [1, 2, 4, 5, 10, 20] {
        let mut caller = Caller::of("smooth 10/s warmup=4s");
        let began = caller.gate.now();
        for end in [4_000_000, 6_000_000] {
            for _ in 0..20 / permits {
                caller.acquire(permits);
            }
            assert_eq!(caller.gate.next_window().since(began), Span::from_micros(end), "by {permits}");
        }
    }
}

#[test]
fn a_wait_that_is_too_long_is_denied_and_free() {
    let mut caller = Caller::of("smooth 5/s");
    assert!(caller.try_acquire(0) && !caller.try_acquire(0));
    caller.sleeps(100);
    assert!(!caller.try_acquire(0) && !caller.try_acquire(99));
    assert!(caller.try_acquire(100));
    assert_eq!(caller.happened(), "R0.00, U0.10, R0.10");
    let denied = caller.gate.check_within(1, Duration::from_millis(150)).unwrap();
    assert_eq!(denied.retry_after(), Some(RetryAfter::After(Span::from_micros(50_000))));
    assert_eq!(denied.delay(), Span::ZERO);
    caller.clock.advance(Duration::from_millis(50));
    assert!(caller.try_acquire(150));
}

#[test]
fn a_pacer_stores_nothing() {
    let mut caller = Caller::of("pacer 10/s queue=3");
    caller.acquires(3).sleeps(1_000).acquires(3).sleeps(50).acquires(2);
    assert_eq!(caller.happened(), "R0.00, R0.10, R0.10, U1.00, R0.00, R0.10, R0.10, U0.05, R0.05, R0.10");
    // Calls at one time are queued one behind another, and the one after the last is denied.
    let caller = Caller::of("pacer 10/s queue=3");
    let asked = || caller.gate.check_within(1, Duration::MAX).unwrap();
    let delays: Vec<u64> = (0..4).map(|_| asked().delay().as_micros() / 1_000).collect();
    assert_eq!((delays, asked().allowed()), (vec![0, 100, 200, 300], false));
}

#[test]
fn a_bucket_lends_to_delayed_calls_a_window_does_not() {
    let mut caller = Caller::of("token-bucket 10/s burst=2");
    assert_eq!(caller.acquires(4).acquire(2).happened(), "R0.00, R0.00, R0.10, R0.10, R0.20");
    let window = Caller::of("fixed-window 2/s");
    assert!((0..2).all(|_| window.gate.check_within(1, Duration::MAX).unwrap().allowed()));
    assert!(!window.gate.check_within(1, Duration::MAX).unwrap().allowed());
    assert!(!window.gate.check_within(3, Duration::MAX).unwrap().allowed());
    assert!(Caller::of("sliding-log 2/s count=all").gate.check_within(1, Duration::MAX).is_err());
}

#[test]
fn a_delay_covers_every_limit_of_a_list() {
    let clock = ManualClock::default();
    let limits = ["token-bucket 10/s burst=1", "pacer 2/s queue=2", "fixed-window 3/h"];
    let list = Limiter::builder(limits).clock(clock).build().unwrap();
    let asked = || list.check_within("k", 1, Duration::from_secs(10)).unwrap();
    let delays: Vec<u64> = (0..3).map(|_| asked().delay().as_micros() / 1_000).collect();
    assert_eq!(delays, [0, 500, 1_000]);
    let denied = asked();
    assert_eq!((denied.allowed(), denied.denied_by()), (false, Some(2)));
}

#[test]
fn permits_can_be_returned() {
    let mut caller = Caller::of("smooth 5/s");
    caller.acquires(1).sleeps(400);
    assert_eq!(caller.gate.refund(3).unwrap().remaining(), 4);
    caller.acquire(4).acquires(2);
    assert_eq!(caller.happened(), "R0.00, U0.40, R0.00, R0.00, R0.20");
    assert_eq!(caller.gate.refund(100).unwrap().remaining(), 5);
}

#[test]
fn unsupported_verbs_are_rejected() {
    let gate = Gate::new("smooth 5/s").unwrap();
    assert!(gate.take(1).is_err() && gate.reserve(1, Duration::ZERO).is_err());
    assert!(Gate::new("smooth 5/s warmup=1s").unwrap().refund(1).is_err());
    let refused = Limiter::new(["smooth 5/s", "fixed-window 5/day"]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "smooth 5/s: smooth does not go with other limits; use it alone, or token-bucket, leaky-bucket or pacer in its place"
    );
    assert_eq!(refused, ListError::Smooth("smooth 5/s".to_owned()).into());
    let (smooth, other) = (Limiter::new("smooth 5/s").unwrap(), Limiter::new("fixed-window 5/day").unwrap());
    let refused = check_all(&[other.call("k", 1), smooth.call("k", 1)]).unwrap_err();
    assert_eq!(refused, CheckAllError::Smooth("smooth 5/s".to_owned()));
    assert_eq!(refused.to_string(), "smooth 5/s: smooth does not go with other calls; check it alone");
}

#[test]
fn removing_the_warm_up_keeps_the_stored_share() {
    let mut caller = Caller::of("smooth 10/s warmup=4s");
    caller.acquire(20).set_rate("smooth 10/s");
    // Half of what can be stored is stored, and the cost of the last call is waited for.
    assert_eq!(caller.gate.peek(0).remaining(), 5);
    assert_eq!(caller.acquire(5).acquires(2).happened(), "R0.00, R4.00, R0.00, R0.10");
}
