//! Failures of other gateways' token budgets, as their issues describe them, and what the budget
//! verbs do instead.

use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, ReserveOptions, Ttl};
use std::sync::Barrier;
use std::time::Duration;

fn limiter(limit: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limit).clock(clock.clone()).build().unwrap(), clock)
}

fn used(limiter: &Limiter) -> u64 {
    limiter.usage("team").iter().map(|(_, usage)| usage.used).max().unwrap()
}

/// Five calls at once under 100 tokens a minute used 663: each saw an unused budget, and was
/// charged at its end.
#[test]
fn litellm_18730_calls_in_flight_do_not_share_the_same_tokens() {
    for limit in ["token-bucket 100/min", "fixed-window 100/min", "sliding-log 100/min"] {
        let (tokens, _) = limiter(limit);
        let (start, all_reserved) = (Barrier::new(5), Barrier::new(5));
        let call = || {
            start.wait();
            let reserved = tokens.reserve("team", 40, ReserveOptions::default()).unwrap();
            all_reserved.wait();
            if reserved.settle(33) { 33 } else { 0 }
        };
        let sum: u64 = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..5).map(|_| scope.spawn(call)).collect();
            calls.into_iter().map(|call| call.join().unwrap()).sum()
        });
        assert_eq!((sum, used(&tokens)), (66, 66), "{limit}");
    }
}

/// A request that named no maximum reserved one token, and its usage was reconciled as zero.
#[test]
fn litellm_34728_usage_beyond_the_estimate_is_charged() {
    let (tokens, clock) = limiter("token-bucket 100/min");
    let reserved = tokens.reserve("team", 1, ReserveOptions::default()).unwrap();
    assert!(reserved.settle(150));
    assert_eq!(used(&tokens), 150);
    let denied = tokens.check("team");
    assert!(!denied.allowed());
    // The debt of 50 and the next token leak at 100 a minute.
    clock.advance(Duration::from_micros(30_599_999));
    assert!(!tokens.check("team").allowed());
    clock.advance(Duration::from_micros(1));
    assert!(tokens.check("team").allowed());
}

/// The first request of all was denied, since the default estimate exceeded the limit.
#[test]
fn litellm_29193_an_estimate_above_the_limit_is_granted_in_part() {
    let (tokens, _) = limiter("fixed-window 500/min");
    let options = ReserveOptions::default().at_least(100);
    let reserved = tokens.reserve("team", 1_024, options).unwrap();
    assert!(reserved.allowed());
    assert_eq!(reserved.granted(), 500, "what the gateway sends as max_tokens");
    assert!(reserved.settle(320));
    assert_eq!(used(&tokens), 320);
}

/// One call reserved all that was left of a team's $2,000. The team was blocked although it had
/// spent $0.144.
#[test]
fn litellm_27509_a_call_reserves_its_estimate_and_not_the_rest() {
    let (spend, clock) = limiter("fixed-window 2000000000/month");
    let estimate = ReserveOptions::default().ttl(Ttl::cancel(Duration::from_mins(1)));
    let first = spend.reserve("team", 144_000, estimate).unwrap();
    let second = spend.reserve("team", 144_000, estimate).unwrap();
    assert!(first.allowed() && second.allowed());
    assert!(first.settle(144_000));
    // The gateway of the second call dies.
    drop(second);
    assert_eq!(used(&spend), 288_000);
    clock.advance(Duration::from_mins(1));
    assert_eq!(used(&spend), 144_000);
}

/// Around the edge of a window, calls were denied for tokens of the window before.
#[test]
fn litellm_24677_a_new_window_is_not_charged_for_the_one_before() {
    let (tokens, clock) = limiter("fixed-window 100/min");
    let over_the_edge = tokens.reserve("team", 60, ReserveOptions::default()).unwrap();
    let before = tokens.reserve("team", 40, ReserveOptions::default()).unwrap();
    assert!(over_the_edge.allowed() && before.settle(40));
    assert!(!tokens.check("team").allowed());
    clock.advance(Duration::from_mins(1));
    let all = tokens.reserve("team", 100, ReserveOptions::default()).unwrap();
    assert!(all.allowed(), "all of the new window");
    assert!(over_the_edge.settle(10) && all.settle(70));
    assert_eq!(used(&tokens), 70, "nothing is returned from, or to, another window");
}
