//! Counts and costs around 10^9, 2^32 and 10^12, and the bounds of debt.

use sluicegate::clock::ManualClock;
use sluicegate::semaphore::Semaphore;
use sluicegate::{BuildError, Limit, Limiter, MemoryStore, RetryAfter, Span, Time};
use std::time::Duration;

const COUNT_MAX: u64 = 1_000_000_000_000;
/// The most that a window or a log holds, debt included.
const DEBT_MAX: u64 = 2 * COUNT_MAX;
const SMALL_MAX: u64 = 0xffff_ffff;
/// Both sides of every bound that a number crosses on its way up.
const EDGES: [u64; 8] = [
    999_999_999,
    1_000_000_000,
    1_000_000_001,
    SMALL_MAX,
    SMALL_MAX + 1,
    SMALL_MAX + 2,
    COUNT_MAX - 1,
    COUNT_MAX,
];
const ABOVE: u64 = COUNT_MAX + 1;

fn limiter(limit: &str) -> Limiter {
    Limiter::builder(limit).clock(ManualClock::default()).build().unwrap()
}

/// Each parameter at each edge: what the limit admits at once, and the next number is rejected.
#[test]
fn every_parameter_is_exact_up_to_ten_to_the_twelfth() {
    // A rate of one per microsecond, whatever the number, so that every one of them fits.
    for (pattern, at_once) in [
        ("token-bucket N/Nus", 0),
        ("token-bucket 1/us burst=N", 0),
        ("leaky-bucket N/Nus", 0),
        ("leaky-bucket 1/us capacity=N", 0),
        ("pacer N/Nus", 1),
        ("pacer 1/us queue=N", 1),
        ("fixed-window N/d", 0),
        ("fixed-window N/month", 0),
        ("fixed-window N/d start=first", 0),
        ("sliding-window N/d", 0),
        ("sliding-window N/3650d", 0),
    ] {
        let text = |number: u64| pattern.replace('N', &number.to_string());
        for edge in EDGES {
            let (text, most) = (text(edge), edge + at_once);
            let limit: Limit = text.parse().unwrap();
            assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit), "{text}");
            let limiter = limiter(&text);
            assert_eq!(limiter.peek("k", 0).limit(), most, "{text}");
            let too_much = limiter.check_cost("k", most + 1);
            assert_eq!(too_much.retry_after(), Some(RetryAfter::Never), "{text}");
            assert!(limiter.check_cost("k", most - 1).allowed(), "{text}");
            assert_eq!(limiter.peek("k", 0).remaining(), 1, "{text}");
            assert!(!limiter.check_cost("k", 2).allowed(), "{text}");
            assert!(limiter.check("k").allowed(), "{text}");
            assert_eq!(limiter.usage("k")[0].1.used, most, "{text}");
            assert!(!limiter.check("k").allowed(), "{text}");
            if !text.starts_with("pacer") {
                assert!(limiter.refund("k", most - 1).unwrap().allowed(), "{text}");
                assert_eq!(limiter.peek("k", 0).remaining(), most - 1, "{text}");
            }
        }
        let error = text(ABOVE).parse::<Limit>().unwrap_err().to_string();
        assert!(error.contains("1000000000001 is above the maximum, 1000000000000"), "{error}");
    }
}

#[test]
fn leases_and_initial_tokens_are_exact_up_to_ten_to_the_twelfth() {
    for edge in EDGES {
        let semaphore = Semaphore::new(format!("concurrency {edge}")).unwrap();
        let held = semaphore.try_acquire("k", edge - 1);
        assert_eq!(semaphore.peek("k", 0).remaining(), 1);
        assert!(!semaphore.peek("k", 2).allowed());
        drop(held);
        assert_eq!(semaphore.peek("k", 0).remaining(), edge);

        let limiter = limiter(&format!("token-bucket 1/us burst={COUNT_MAX} initial={edge}"));
        assert_eq!(limiter.peek("k", 0).remaining(), edge);
    }
    let error = format!("concurrency {ABOVE}").parse::<Limit>().unwrap_err().to_string();
    assert!(error.contains("is above the maximum"), "{error}");
}

/// Three receipts of cost 1, each settled for far more: the count stops at the bound, and its waits
/// are still exact.
#[test]
fn debt_stops_at_its_bound() {
    for (limit, bound) in [
        ("fixed-window 10/d", DEBT_MAX),
        ("fixed-window 10/month", DEBT_MAX),
        ("fixed-window 10/d start=first", DEBT_MAX),
        ("fixed-window 1000000000000/d", DEBT_MAX),
        ("sliding-log 10/d", DEBT_MAX),
        ("sliding-window 4294967296/d", DEBT_MAX),
        ("sliding-window 1000000000000/d", DEBT_MAX),
        // Its counters have 32 bits.
        ("sliding-window 10/d", SMALL_MAX),
        ("sliding-window 4294967295/d", SMALL_MAX),
    ] {
        let limiter = limiter(limit);
        let used = || limiter.usage("k")[0].1.used;
        let receipts: Vec<_> =
            (0..4).map(|_| limiter.reserve("k", 1, Duration::ZERO).unwrap().keep().unwrap()).collect();
        let mut expected = 4;
        for (receipt, excess) in receipts.iter().zip([bound - 5, 0, 1, COUNT_MAX]) {
            assert!(limiter.settle(receipt, 1 + excess), "{limit}");
            expected = (expected + excess).min(bound);
            assert_eq!(used(), expected, "{limit}: {excess} too much");
        }
        assert_eq!(expected, bound, "{limit} did not reach its bound");
        let denied = limiter.peek("k", 1);
        assert_eq!((denied.allowed(), denied.remaining()), (false, 0), "{limit}");
        let Some(RetryAfter::After(wait)) = denied.retry_after() else { panic!("{limit}: {denied:?}") };
        let at = limiter.now().as_micros() + wait.as_micros();
        let then = |micros: u64| limiter.peek_at("k", 1, Time::from_micros(micros).unwrap()).allowed();
        assert!(!then(at - 1) && then(at), "{limit}: {wait}");
    }
}

/// In a shared store a sliding window keeps its counters from one size to the other. Only what the
/// smaller one has no room for is not kept.
#[test]
fn a_sliding_window_changes_its_size_in_a_shared_store() {
    let now = Time::from_micros(86_400_000_000 * 20_000).unwrap();
    for (old, used, new, remaining) in [
        (SMALL_MAX, 3_000_000_000, SMALL_MAX + 1, SMALL_MAX + 1 - 3_000_000_000),
        (10, 7, COUNT_MAX, COUNT_MAX - 7),
        (SMALL_MAX + 1, 3_000_000_000, SMALL_MAX, SMALL_MAX - 3_000_000_000),
        (COUNT_MAX, 7, 10, 3),
        (COUNT_MAX, COUNT_MAX, 10, 0),
    ] {
        let memory = MemoryStore::builder().max_keys(16).build().unwrap();
        let limiter = |count: u64| {
            let builder = Limiter::builder(format!("sliding-window {count}/d")).in_store(&memory, "budget");
            builder.clock(ManualClock::default()).build().unwrap()
        };
        let before = limiter(old);
        let receipt = before.reserve_at("k", used, Span::ZERO, now).unwrap().keep().unwrap();
        let after = limiter(new);
        assert_eq!(after.peek_at("k", 0, now).remaining(), remaining, "{old} to {new}");
        assert_eq!(after.usage_at("k", now)[0].1.used, used.min(new.max(SMALL_MAX)), "{old} to {new}");
        // The receipt stays open.
        if used <= SMALL_MAX.max(new) {
            assert!(after.settle_at(&receipt, 1, now), "{old} to {new}");
            assert_eq!(after.usage_at("k", now)[0].1.used, 1, "{old} to {new}");
        }
    }
}

/// A limiter's own slots have the size of its counters.
#[test]
fn a_limiter_keeps_the_size_of_its_sliding_window() {
    for (old, new) in [(SMALL_MAX, SMALL_MAX + 1), (SMALL_MAX + 1, SMALL_MAX)] {
        let limiter = limiter(&format!("sliding-window {old}/d"));
        assert!(limiter.check_cost("k", 7).allowed());
        let error = limiter.change(format!("sliding-window {new}/d")).unwrap_err();
        assert_eq!(error, BuildError::AlgorithmChanged);
        assert!(error.to_string().contains("2^32"), "{error}");
        assert_eq!(limiter.peek("k", 0).remaining(), old - 7);
    }
    let limiter = limiter(&format!("sliding-window {}/d", SMALL_MAX + 1));
    assert!(limiter.check_cost("k", 7).allowed());
    limiter.change(format!("sliding-window {COUNT_MAX}/d")).unwrap();
    assert_eq!(limiter.peek("k", 0).remaining(), COUNT_MAX - 7);
}
