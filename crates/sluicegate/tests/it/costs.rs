//! Costs may be any `u64`. What happens to those that no limit allows.

use sluicegate::clock::ManualClock;
use sluicegate::semaphore::Semaphore;
use sluicegate::{Gate, Limiter, RetryAfter, check_all};
use std::time::Duration;

/// Around the largest `u32`. Cut off instead of saturated, these would be 0, 1 and `u32::MAX`.
const COSTS: [u64; 5] = [u32::MAX as u64, 1 << 32, (1 << 32) + 1, 1_000_000_000_000, u64::MAX];

/// Every algorithm that bounds its cost, with an idle limit of 5, and one at the largest count.
const LIMITS: [&str; 10] = [
    "token-bucket 5/h",
    "leaky-bucket 1/h capacity=5",
    "fixed-window 5/h",
    "fixed-window 5/month",
    "sliding-log 5/h",
    "sliding-log 5/h count=all",
    "sliding-window 5/h",
    "min-interval 1h",
    "pacer 1/h queue=4",
    "token-bucket 1000000000/s",
];

fn limiter(limit: &str) -> Limiter {
    Limiter::builder(limit).clock(ManualClock::default()).build().unwrap()
}

#[test]
fn a_cost_above_every_limit_is_denied_for_ever() {
    for (limit, cost) in LIMITS.iter().flat_map(|limit| COSTS.map(|cost| (limit, cost))) {
        let limiter = limiter(limit);
        let idle = limiter.peek("user:42", 0);
        let denied = |decision: sluicegate::Decision| {
            assert_eq!(decision.retry_after(), Some(RetryAfter::Never), "{limit}: {cost}");
            assert_eq!(limiter.peek("user:42", 0), idle, "{limit}: {cost} changed something");
        };
        denied(limiter.check_cost("user:42", cost));
        denied(limiter.peek("user:42", cost));
        denied(limiter.acquire("user:42", cost).blocking().decision());
        if !limit.contains("count=all") {
            denied(limiter.check_within("user:42", cost, Duration::MAX).unwrap());
            denied(limiter.reserve("user:42", cost, Duration::MAX).unwrap().decision());
            denied(check_all(&[limiter.call("user:42", cost), limiter.call("user:42", cost)]).unwrap());
        }
        let gate = Gate::new(*limit).unwrap();
        assert_eq!(gate.check_cost(cost).retry_after(), Some(RetryAfter::Never), "{limit}: {cost}");
    }
}

#[test]
fn a_take_above_every_limit_takes_what_remains() {
    for (limit, cost) in LIMITS.iter().flat_map(|limit| COSTS.map(|cost| (limit, cost))) {
        if limit.contains("count=all") {
            continue;
        }
        let limiter = limiter(limit);
        let remaining = limiter.peek("user:42", 0).remaining();
        let (decision, taken) = limiter.take("user:42", cost).unwrap();
        assert_eq!((decision.remaining(), taken), (0, remaining), "{limit}: {cost}");
    }
}

#[test]
fn a_refund_above_every_limit_returns_what_was_used() {
    for (limit, cost) in LIMITS.iter().flat_map(|limit| COSTS.map(|cost| (limit, cost))) {
        let limiter = limiter(limit);
        let idle = limiter.peek("user:42", 0);
        let _ = limiter.check("user:42");
        match limiter.refund("user:42", cost) {
            Ok(decision) => assert_eq!(decision.remaining(), idle.remaining(), "{limit}: {cost}"),
            Err(_) => assert!(limit.starts_with("pacer"), "{limit}"),
        }
    }
}

/// The excess over the reserved cost is debt. However large, it lets nothing through that a smaller
/// one denied.
#[test]
fn a_settle_above_every_limit_uses_it_up() {
    for (limit, used) in LIMITS.iter().flat_map(|limit| COSTS.map(|used| (limit, used))) {
        if limit.contains("count=all") {
            continue;
        }
        let limiter = limiter(limit);
        let reserve = |key| limiter.reserve(key, 1, Duration::ZERO).unwrap();
        assert!(reserve("user:42").settle(used), "{limit}: {used}");
        let receipt = reserve("user:43").keep().unwrap();
        assert!(limiter.settle(&receipt, used), "{limit}: {used}");
        assert!(reserve("user:44").settle(1_000_000_001), "{limit}");
        let [large, kept, smaller] = ["user:42", "user:43", "user:44"].map(|key| limiter.peek(key, 1));
        assert_eq!((large.allowed(), large.remaining()), (false, 0), "{limit}: {used}");
        assert_eq!(large, kept, "{limit}: {used}");
        assert!(large.retry_after() >= smaller.retry_after(), "{limit}: {used}");
        assert!(large.reset_after() >= smaller.reset_after(), "{limit}: {used}");
    }
}

/// `smooth` admits any cost and lets the next caller wait for it, here for at least a century.
#[test]
fn smooth_makes_the_next_caller_wait_for_any_cost() {
    for cost in COSTS {
        let limiter = limiter("smooth 1/h");
        assert!(limiter.check_cost("user:42", cost).allowed(), "{cost}");
        let Some(RetryAfter::After(wait)) = limiter.check("user:42").retry_after() else {
            panic!("{cost} was not charged");
        };
        assert!(Duration::from(wait) >= Duration::from_secs(100 * 365 * 86_400), "{cost}: {wait}");
    }
}

#[test]
fn a_lease_above_every_limit_is_denied_for_ever() {
    for (limit, cost) in ["concurrency 5", "concurrency 1000000000"]
        .into_iter()
        .flat_map(|limit| COSTS.map(|cost| (limit, cost)))
    {
        let semaphore = Semaphore::new(limit).unwrap();
        for grant in [
            semaphore.try_acquire("user:42", cost),
            semaphore.acquire("user:42", cost).blocking(),
            semaphore.acquire_within("user:42", cost, Duration::MAX).blocking(),
        ] {
            assert_eq!(grant.decision().retry_after(), Some(RetryAfter::Never), "{limit}: {cost}");
        }
        assert_eq!(semaphore.peek("user:42", cost).retry_after(), Some(RetryAfter::Never), "{limit}: {cost}");
        assert_eq!(semaphore.peek("user:42", 0).remaining(), semaphore.limit().at_once(), "{limit}: {cost}");
    }
}
