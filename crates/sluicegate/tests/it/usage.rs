//! What a key has used, computed by hand.

use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate::semaphore::Semaphore;
use sluicegate::{Limiter, MemoryStore, Span, Time, Usage, Window};
use std::time::Duration;

const S: u64 = 1_000_000;

fn at(micros: u64) -> Time {
    Time::from_micros(micros).unwrap()
}

fn limiter(limits: &str) -> Limiter {
    Limiter::builder(limits).start(at(0)).build().unwrap()
}

/// Used, remaining, `reset_after`, and the window in microseconds.
type Fields = (u64, u64, u64, Option<(u64, u64)>);

fn fields(usage: Usage) -> Fields {
    let window = usage.window.map(|Window { start, end }| (start.as_micros(), end.as_micros()));
    (usage.used, usage.remaining, usage.reset_after.as_micros(), window)
}

/// What a key has used of its only limit.
fn used(limiter: &Limiter, now: u64) -> Fields {
    let [(_, usage)] = limiter.usage_at("k", at(now))[..] else { panic!("one limit") };
    fields(usage)
}

#[test]
fn each_algorithm_says_what_is_used() {
    let minute = Some((60 * S, 120 * S));
    // The costs charged at 60 s, the time of the question, and the answer.
    let cases: [(&str, &[u64], u64, Fields); 18] = [
        // 3 of 7 used at a rate of one per 333333.3 us: after 1 us a part of a token has refilled.
        ("token-bucket 3/s burst=7", &[3], 60 * S, (3, 4, S, None)),
        ("token-bucket 3/s burst=7", &[3], 60 * S + 1, (3, 4, S - 1, None)),
        ("token-bucket 3/s burst=7", &[3], 60 * S + 333_334, (2, 5, 666_666, None)),
        ("token-bucket 50/10s initial=0 start=1970-01-01T00:01:00Z", &[], 61 * S, (45, 5, 9 * S, None)),
        ("token-bucket 50/10s initial=0 start=1970-01-01T00:01:00Z", &[], 59 * S, (50, 0, 11 * S, None)),
        ("leaky-bucket 1/2s capacity=3", &[2], 61 * S, (2, 1, 3 * S, None)),
        ("min-interval 200ms", &[1], 60 * S + 1, (1, 0, 199_999, None)),
        ("pacer 10/s queue=20", &[4], 60 * S, (4, 17, 400_000, None)),
        ("fixed-window 5/60s", &[3], 119 * S, (3, 2, S, minute)),
        ("fixed-window 5/60s", &[3], 120 * S, (0, 5, 0, Some((120 * S, 180 * S)))),
        ("fixed-window 5/60s start=first", &[], 60 * S, (0, 5, 0, None)),
        ("fixed-window 5/60s start=first", &[3], 119 * S, (3, 2, S, Some((60 * S, 120 * S)))),
        ("fixed-window 5/60s start=1970-01-01T00:02:00Z", &[], 119 * S, (0, 0, S, None)),
        ("sliding-log 5/60s", &[3], 119 * S, (3, 2, S, None)),
        ("sliding-window 1000/min", &[7], 61 * S, (7, 993, 119 * S, minute)),
        // A quarter of the next window has passed: 7 * 3/4 = 5.25.
        ("sliding-window 1000/min", &[7], 135 * S, (6, 994, 45 * S, Some((120 * S, 180 * S)))),
        ("smooth 10/s", &[4], 60 * S, (4, 6, 400_000, None)),
        ("smooth 10/s", &[40], 60 * S, (10, 0, 4 * S, None)),
    ];
    for (limit, costs, now, expected) in cases {
        let limiter = limiter(limit);
        for cost in costs {
            assert!(limiter.check_at("k", *cost, at(60 * S)).allowed(), "{limit}");
        }
        assert_eq!(used(&limiter, now), expected, "{limit} at {now}");
        assert_eq!(used(&limiter, now), expected, "{limit}: reading changes nothing");
        assert_eq!(limiter.contains("k"), !costs.is_empty(), "{limit}");
    }
}

#[test]
fn debt_is_used_beyond_the_limit() {
    for (limit, window) in [
        ("token-bucket 1/s burst=10", None),
        ("fixed-window 10/10s", Some((60 * S, 70 * S))),
        ("sliding-log 10/10s", None),
        ("sliding-window 10/10s", Some((60 * S, 70 * S))),
    ] {
        let limiter = limiter(limit);
        let reserved = limiter.reserve_at("k", 4, Span::ZERO, at(60 * S)).unwrap();
        assert!(limiter.settle_at(&reserved.keep().unwrap(), 25, at(60 * S)));
        let (used, remaining, _, in_window) = used(&limiter, 60 * S);
        assert_eq!((used, remaining, in_window), (25, 0, window), "{limit}");
    }
    let counts_denied = limiter("sliding-log 5/60s count=all");
    for _ in 0..9 {
        _ = counts_denied.check_at("k", 1, at(60 * S));
    }
    assert_eq!(used(&counts_denied, 60 * S), (5, 0, 60 * S, None), "older calls decide nothing");
}

#[test]
fn a_list_says_what_is_used_of_each_limit_in_order() {
    let limits = ["token-bucket 10/s burst=50", "fixed-window 1000/month"];
    let limiter = Limiter::new(limits).unwrap();
    // 2023-11-14T22:13:20Z. November is 30 days.
    let now = at(1_700_000_000 * S);
    assert!(limiter.check_at("k", 31, now).allowed());
    let usages = limiter.usage_at("k", now);
    assert_eq!(usages.iter().map(|(limit, _)| limit.to_string()).collect::<Vec<_>>(), limits);
    let november = 1_698_796_800 * S;
    let in_november = Some((november, november + 30 * 86_400 * S));
    let left = november + 30 * 86_400 * S - now.as_micros();
    let expected = [(31, 19, 3_100_000, None), (31, 969, left, in_november)];
    assert_eq!(usages.iter().map(|(_, usage)| fields(*usage)).collect::<Vec<_>>(), expected);
    assert_eq!(usages.iter().map(|(_, usage)| usage.limit).collect::<Vec<_>>(), [50, 1000]);
}

#[test]
fn a_gate_says_what_is_used() {
    let clock = ManualClock::default();
    let gate = Limiter::builder("token-bucket 1/s burst=5").clock(clock).build_gate().unwrap();
    assert!(gate.check_cost(2).allowed());
    assert_eq!(fields(gate.usage()[0].1), (2, 3, 2 * S, None));
}

#[test]
fn a_changed_limit_keeps_what_was_used() {
    let limiter = limiter("fixed-window 10/60s");
    assert!(limiter.check_at("k", 8, at(0)).allowed());
    limiter.change("fixed-window 5/60s").unwrap();
    let [(limit, usage)] = &limiter.usage_at("k", at(S))[..] else { panic!("one limit") };
    assert_eq!(limit.to_string(), "fixed-window 5/min");
    assert_eq!((usage.limit, usage.used, usage.remaining), (5, 8, 0));
}

#[test]
fn a_key_that_has_not_called_takes_no_room() {
    let store = MemoryStore::builder().max_keys(1).build().unwrap();
    let limiter = Limiter::builder("fixed-window 10/60s").in_store(&store, "a").build().unwrap();
    assert!(limiter.check_at("first", 1, at(0)).allowed());
    assert_eq!(used(&limiter, 0).0, 0);
    assert_eq!(limiter.usage_at("first", at(0))[0].1.used, 1, "nothing was evicted");
}

#[test]
fn windows_are_in_utc_also_after_the_clock_was_set() {
    let clock = ManualClock::default();
    let limiter = Limiter::builder("fixed-window 10/60s").clock(clock.clone()).build().unwrap();
    assert!(limiter.check("k").allowed());
    let before = limiter.usage("k")[0].1.window.unwrap();
    assert_eq!(before.start.as_micros() % (60 * S), 0);
    assert!(before.start <= clock.now() && clock.now() < before.end);

    // Set forward by 7 h and 40 s: limiter time stays, and the windows follow UTC.
    let utc = clock.now().saturating_add(Span::from_micros((7 * 3_600 + 40) * S));
    clock.set_utc(utc);
    let after = limiter.usage("k")[0].1.window.unwrap();
    assert_eq!(after.start.as_micros() % (60 * S), 0);
    assert!(after.start <= utc && utc < after.end);
}

#[test]
fn a_semaphore_says_what_is_held() {
    let clock = ManualClock::default();
    let exports = Semaphore::builder("concurrency 5 ttl=30s").clock(clock.clone()).build().unwrap();
    let lease = exports.try_acquire("acme", 3).lease().unwrap();
    clock.advance(Duration::from_secs(10));
    let held = |semaphore: &Semaphore| {
        let (limit, usage) = semaphore.usage("acme");
        (limit.to_string(), usage.limit, fields(usage))
    };
    assert_eq!(held(&exports), ("concurrency 5 ttl=30s".to_owned(), 5, (3, 2, 20 * S, None)));
    exports.change("concurrency 2 ttl=30s").unwrap();
    assert_eq!(held(&exports), ("concurrency 2 ttl=30s".to_owned(), 2, (3, 0, 20 * S, None)));
    drop(lease);
    assert_eq!(held(&exports).2, (0, 2, 0, None));
}
