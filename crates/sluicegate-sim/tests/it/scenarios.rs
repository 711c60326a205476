//! The classic scenarios, call by call.

use sluicegate::Limit;
use sluicegate_core::Account;
use sluicegate_core::{Span, Time};
use sluicegate_sim::{Replay, scenarios};

#[test]
fn every_scenario_goes_as_it_says() {
    for scenario in scenarios::all() {
        let limit: Limit = scenario.limit.parse().expect(scenario.limit);
        let mut replay = Replay::new(vec![limit]).expect("one limit");
        for (place, call) in scenario.calls.iter().enumerate() {
            let decision = replay.check(call.at, call.key.as_bytes(), 1);
            assert_eq!(decision.allowed(), call.allowed, "{}: call {place}: {decision:?}", scenario.wish);
        }
    }
}

#[test]
fn paced_callers_get_slots_100_ms_apart() {
    let mut replay = Replay::new(vec!["pacer 10/s queue=10".parse().unwrap()]).unwrap();
    let delays: Vec<u64> =
        (0..11).map(|_| replay.check(Time::EPOCH, b"worker", 1).delay().as_micros()).collect();
    assert_eq!(delays, (0..11).map(|slot| slot * 100_000).collect::<Vec<_>>());
}

/// "When does my next window start?"
#[test]
fn the_next_window_of_each_algorithm() {
    let second = 1_000_000;
    // 2026-11-11T12:00:10Z; calls at 12:00:00.
    let (noon, now) = (1_794_398_400 * second, 1_794_398_410 * second);
    for (limit, expected) in [
        ("fixed-window 5/60s", noon + 60 * second),
        ("fixed-window 5/60s start=first", noon + 60 * second),
        ("fixed-window 1/day tz=+08:00", noon + 4 * 3_600 * second),
        // 2026-12-01T00:00:00 in Shanghai.
        ("fixed-window 1/month tz=Asia/Shanghai", 1_796_054_400 * second),
        ("fixed-window 9/1h start=2026-11-11T12:30:00Z", noon + 1_800 * second),
        ("sliding-window 5/60s", noon + 60 * second),
        ("sliding-log 5/60s", noon + 60 * second),
        ("token-bucket 1/60s burst=5", noon + 60 * second),
        ("min-interval 30min", noon + 1_800 * second),
        ("pacer 1/min queue=3", noon + 60 * second),
    ] {
        let limits = [limit.parse::<Limit>().unwrap().made_at(Time::EPOCH).unwrap()];
        let mut account = Account::default();
        let _ = account.check(&limits, Time::from_micros(noon).unwrap(), 1);
        let next = account.next_window(&limits, Time::from_micros(now).unwrap());
        assert_eq!(next.as_micros(), expected, "{limit}");
    }
}

#[test]
fn an_idle_bucket_or_log_is_ready_now() {
    let now = Time::from_micros(1_794_398_410_000_000).unwrap();
    for limit in ["token-bucket 1/60s", "sliding-log 5/60s", "fixed-window 5/60s start=first", "pacer 1/s"] {
        let limits = [limit.parse::<Limit>().unwrap().made_at(now).unwrap()];
        assert_eq!(Account::default().next_window(&limits, now), now, "{limit}");
    }
}

#[test]
fn a_reservation_borrows_and_a_cancel_returns_it() {
    let limits = ["token-bucket 1/s burst=2".parse::<Limit>().unwrap().made_at(Time::EPOCH).unwrap()];
    let mut account = Account::default();
    let now = Time::from_micros(1_000_000).unwrap();
    assert!(account.check(&limits, now, 2).allowed());
    let (decision, receipt) = account.reserve(&limits, now, 2, Span::from_micros(5_000_000)).unwrap();
    assert_eq!(decision.delay(), Span::from_micros(2_000_000));
    assert!(account.cancel(&limits, now, receipt.unwrap()));
    assert!(!account.cancel(&limits, now, receipt.unwrap()), "a receipt is good for one cancel");
    assert_eq!(account.peek(&limits, now, 0).reset_after(), Span::from_micros(2_000_000));
}
