//! The promises, one by one, over random limits and traces, without the model.

use fastrand::Rng;
use sluicegate::Limit;
use sluicegate::limit::{Spec, WindowSpec};
use sluicegate_conformance::random::{self, Call};
use sluicegate_core::algorithm::NotCharged;
use sluicegate_core::bounds::CENTURY;
use sluicegate_core::verbs::Verbs as _;
use sluicegate_core::{Algorithm as _, AnyLimit, AnyState, Rate, RetryAfter, Span, Time};

/// Random traces per algorithm and property.
const TRACES: u64 = 300;
const LENGTH: usize = 60;

/// Runs a property over random limits of every algorithm, each with a trace of one key.
fn for_all(may_step_back: bool, mut property: impl FnMut(&Limit, &AnyLimit, &[Call])) {
    for algorithm in Limit::CHECKS {
        for seed in 0..TRACES {
            let mut rng = Rng::with_seed(seed);
            let limit = random::limit(&mut rng, algorithm);
            let limits = std::slice::from_ref(&limit);
            let trace = random::trace(&mut rng, limits, LENGTH, may_step_back);
            property(&limit, &limit.made_at(trace[0].at).unwrap(), &trace);
        }
    }
}

fn counts_denied(limit: &Limit) -> bool {
    matches!(limit.spec(), Spec::SlidingLog { count_all: true, .. })
}

fn is_smooth(limit: &Limit) -> bool {
    matches!(limit.spec(), Spec::Smooth { .. })
}

/// Returns `true` if the clock stepped back to before the start of the limit's windows: then all
/// calls are denied, and waits are until the start, whatever was used after it.
fn is_closed(limit: &Limit, at: Time) -> bool {
    matches!(limit.spec(), Spec::FixedWindow { windows: WindowSpec::Aligned { start, .. }, .. } if at < *start)
}

fn later(at: Time, wait: Span) -> Option<Time> {
    Time::from_micros(at.as_micros() + wait.as_micros())
}

/// Most checks take a fast path, which the full decision does not know.
#[test]
fn the_fast_path_and_the_full_decision_agree() {
    let mut allowed = 0;
    for_all(true, |limit, made, trace| {
        let (mut short, mut full) = (AnyState::default(), AnyState::default());
        for call in trace {
            let answer = made.check(&mut short, call.at, call.cost);
            let in_full = made.check_in_full(&mut full, call.at, call.cost, NotCharged::UNKNOWN);
            assert_eq!(answer, in_full, "{limit}: {call:?}");
            allowed += u64::from(answer.allowed());
        }
    });
    assert!(allowed > 10_000, "{allowed}");
}

#[test]
fn retry_after_is_tight() {
    let mut tried = 0;
    for_all(true, |limit, made, trace| {
        let mut state = AnyState::default();
        for call in trace {
            let decision = made.check(&mut state, call.at, call.cost);
            if is_closed(limit, call.at) && state != AnyState::default() {
                continue;
            }
            if let Some(RetryAfter::After(wait)) = decision.retry_after() {
                assert!(wait > Span::ZERO, "{limit}: a wait of 0 at {call:?}");
                let Some(then) = later(call.at, wait) else { continue };
                let before = Time::from_micros(then.as_micros() - 1).unwrap();
                assert!(made.peek(&state, then, call.cost).allowed(), "{limit}: still denied, {call:?}");
                assert!(!made.peek(&state, before, call.cost).allowed(), "{limit}: allowed before, {call:?}");
                tried += 1;
            }
        }
    });
    assert!(tried > 10_000, "only {tried} denials");
}

#[test]
fn reset_after_is_tight() {
    for_all(true, |limit, made, trace| {
        let mut state = AnyState::default();
        for call in trace {
            let wait = made.check(&mut state, call.at, call.cost).reset_after();
            if is_closed(limit, call.at) && state != AnyState::default() {
                continue;
            }
            let Some(then) = later(call.at, wait) else { continue };
            if is_smooth(limit) {
                // The rounding of doubles.
                assert!(made.reset_after(&state, then) <= Span::from_micros(1), "{limit}: {call:?}");
                continue;
            }
            assert_eq!(made.reset_after(&state, then), Span::ZERO, "{limit}: {call:?}");
            if wait > Span::ZERO {
                let before = Time::from_micros(then.as_micros() - 1).unwrap();
                assert_eq!(made.reset_after(&state, before), Span::from_micros(1), "{limit}: {call:?}");
            }
        }
    });
}

#[test]
fn a_denial_a_peek_and_a_cost_of_zero_change_nothing() {
    for_all(true, |limit, made, trace| {
        let mut state = AnyState::default();
        for call in trace {
            let before = state.clone();
            let _ = made.peek(&state, call.at, call.cost);
            let decision = made.check(&mut state, call.at, call.cost);
            // A log without entries may have been allocated.
            let is_same = before == state || before == AnyState::default() && made.is_idle(&state, call.at);
            if !decision.allowed() && !counts_denied(limit) || call.cost == 0 {
                assert!(is_same, "{limit}: {call:?}: {before:?} became {state:?}");
            }
        }
    });
}

#[test]
fn one_large_call_leaves_the_state_of_many_small_ones() {
    for_all(false, |limit, made, trace| {
        // Under `smooth` the second small call pays for the first.
        if is_smooth(limit) {
            return;
        }
        let (mut large, mut small) = (AnyState::default(), AnyState::default());
        for call in trace {
            let cost = call.cost.clamp(1, 20);
            let at_once = made.check(&mut large, call.at, cost);
            if at_once.allowed() {
                (0..cost).for_each(|_| assert!(made.check(&mut small, call.at, 1).allowed(), "{limit}"));
                assert_eq!(large, small, "{limit}: {call:?}");
            } else if counts_denied(limit) {
                return;
            }
        }
    });
}

#[test]
fn a_recovered_key_may_be_dropped() {
    let mut dropped_idle = 0;
    for_all(false, |limit, made, trace| {
        let (mut kept, mut dropped) = (AnyState::default(), AnyState::default());
        for call in trace {
            if made.is_idle(&dropped, call.at) {
                dropped = AnyState::default();
                dropped_idle += 1;
            }
            let (one, other) =
                (made.check(&mut kept, call.at, call.cost), made.check(&mut dropped, call.at, call.cost));
            assert_eq!(one, other, "{limit}: {call:?}");
        }
    });
    assert!(dropped_idle > 10_000, "only {dropped_idle}");
}

/// The allowed calls, each counted at the latest time at which one was allowed so far.
fn admitted(made: &AnyLimit, trace: &[Call]) -> Vec<(u64, u64)> {
    let (mut state, mut latest) = (AnyState::default(), 0);
    let mut admitted = Vec::new();
    for call in trace {
        if made.check(&mut state, call.at, call.cost).allowed() && call.cost > 0 {
            latest = call.at.as_micros().max(latest);
            admitted.push((latest, call.cost));
        }
    }
    admitted
}

/// Returns the most within any stretch: from each call on, while `within` holds for the elapsed
/// time.
fn worst(admitted: &[(u64, u64)], within: impl Fn(u64) -> bool) -> u64 {
    let from = |start: usize| {
        let rest = &admitted[start..];
        rest.iter().take_while(|(at, _)| within(at - rest[0].0)).map(|(_, cost)| cost).sum()
    };
    (0..admitted.len()).map(from).max().unwrap_or(0)
}

/// Checks `burst + w * count / period` in any stretch of length w, in integers.
fn keeps_to_bucket(limit: &Limit, admitted: &[(u64, u64)], rate: Rate, burst: u64) {
    for start in 0..admitted.len() {
        let mut total = 0;
        for (at, cost) in &admitted[start..] {
            total += u128::from(*cost);
            let width = u128::from(at - admitted[start].0);
            let (count, period) = (u128::from(rate.count()), u128::from(rate.period().as_micros()));
            let over = (total * period).saturating_sub(u128::from(burst) * period);
            assert!(over <= width * count, "{limit}: {total} within {width} µs");
        }
    }
}

fn keeps_its_promise(limit: &Limit, made: &AnyLimit, trace: &[Call]) {
    let admitted = admitted(made, trace);
    match limit.spec() {
        Spec::TokenBucket { rate, burst, .. } => keeps_to_bucket(limit, &admitted, *rate, *burst),
        Spec::LeakyBucket { rate, capacity } => {
            keeps_to_bucket(limit, &admitted, *rate, *capacity);
        }
        Spec::Pacer { rate, queue } => keeps_to_bucket(limit, &admitted, *rate, *queue + 1),
        Spec::MinInterval { interval } => {
            keeps_to_bucket(limit, &admitted, Rate::new(1, *interval).unwrap(), 1);
        }
        Spec::SlidingLog { rate, .. } => {
            let most = worst(&admitted, |since| since < rate.period().as_micros());
            assert!(most <= rate.count(), "{limit}: {most} in one period");
        }
        Spec::SlidingWindow { rate } => {
            let period = rate.period().as_micros();
            let in_window = |window: u64| admitted.iter().filter(move |(at, _)| at / period == window);
            for (at, _) in &admitted {
                let total: u64 = in_window(at / period).map(|(_, cost)| cost).sum();
                assert!(total <= rate.count(), "{limit}: {total} in one window");
            }
            // The estimate from its definition, at each call: the previous window, weighted, and
            // the current one.
            for (place, (at, _)) in admitted.iter().enumerate() {
                let so_far = |window: Option<u64>| -> u128 {
                    let calls = admitted[..=place].iter().filter(|(at, _)| Some(at / period) == window);
                    calls.map(|(_, cost)| u128::from(*cost)).sum()
                };
                let (window, left) = (at / period, u128::from(period - at % period));
                let estimate =
                    so_far(window.checked_sub(1)) * left + so_far(Some(window)) * u128::from(period);
                let most = u128::from(rate.count()) * u128::from(period);
                assert!(estimate <= most, "{limit}: an estimate of {estimate} of {most}");
            }
            let most = worst(&admitted, |since| since < period);
            assert!(most < 2 * rate.count(), "{limit}: {most} in one period");
        }
        Spec::Concurrency { .. } => panic!("{limit} gives leases"),
        Spec::Smooth { rate, .. } => {
            // A fraction of a permit may be stored as well.
            keeps_to_smooth(limit, &admitted, *rate, made.limit() + 1);
        }
        Spec::FixedWindow { count, windows } => {
            if let WindowSpec::Aligned { period, .. } | WindowSpec::First { period } = windows {
                let most = worst(&admitted, |since| since < period.as_micros());
                assert!(most <= 2 * *count, "{limit}: {most} in one period");
            }
            // Each window, from boundary to boundary, wherever the calendar or the first call puts
            // them.
            let (mut end, mut used) = (0, 0);
            for (at, cost) in &admitted {
                let now = Time::from_micros(*at).unwrap();
                if *at >= end {
                    used = 0;
                    let mut state = AnyState::default();
                    made.charge(&mut state, now, 1);
                    end = made.next_window(&state, now).as_micros();
                }
                used += cost;
                assert!(used <= *count, "{limit}: {used} in one window");
            }
        }
        other => unreachable!("{other:?} has no property"),
    }
}

/// Between two allowed calls, all but the last have been paid for: by stored permits, or by time at
/// the rate, where the time of each call is truncated to whole microseconds, at most twice.
fn keeps_to_smooth(limit: &Limit, admitted: &[(u64, u64)], rate: Rate, stored: u64) {
    let (count, period) = (u128::from(rate.count()), u128::from(rate.period().as_micros()));
    for start in 0..admitted.len() {
        let (mut paid, mut cuts) = (0, 0);
        for (at, cost) in &admitted[start..] {
            let width = u128::from(at - admitted[start].0);
            // Debt beyond a century is not charged.
            if width >= u128::from(CENTURY.as_micros()) {
                break;
            }
            // One more microsecond for the rounding of doubles.
            let most = u128::from(stored) * period + (width + cuts + 1) * count;
            assert!(paid * period <= most, "{limit}: {paid} within {width} µs");
            paid += u128::from(*cost);
            cuts += 2;
        }
    }
}

/// Calls that observe their delay leave at least one slot apart per unit of cost.
#[test]
fn paced_calls_leave_evenly() {
    let mut left = 0;
    for_all(false, |limit, made, trace| {
        let Spec::Pacer { rate, .. } = limit.spec() else { return };
        let (count, period) = (u128::from(rate.count()), u128::from(rate.period().as_micros()));
        let mut state = AnyState::default();
        let mut last: Option<(u128, u128)> = None;
        for call in trace {
            let decision = made.check(&mut state, call.at, call.cost);
            if !decision.allowed() || call.cost == 0 {
                continue;
            }
            let leaves = u128::from(call.at.as_micros() + decision.delay().as_micros());
            if let Some((before, cost)) = last {
                // Both moments are rounded up, so the gap may be short by less than a microsecond.
                assert!((leaves - before + 1) * count > cost * period, "{limit}: {before} then {leaves}");
                left += 1;
            }
            last = Some((leaves, u128::from(call.cost)));
        }
    });
    assert!(left > 2_000, "only {left} left");
}

#[test]
fn no_limit_admits_more_than_it_promises() {
    for_all(false, keeps_its_promise);
}

#[test]
fn a_step_back_admits_no_more() {
    for_all(true, keeps_its_promise);
}

#[test]
fn a_step_back_locks_out_for_at_most_step_plus_usual_wait() {
    for_all(true, |limit, made, trace| {
        let (mut state, mut latest) = (AnyState::default(), trace[0].at);
        for call in trace {
            let decision = made.check(&mut state, call.at, call.cost);
            if let (Some(RetryAfter::After(wait)), true) = (decision.retry_after(), call.at < latest) {
                let usual = match made.peek(&state, latest, call.cost).retry_after() {
                    Some(RetryAfter::After(wait)) => wait,
                    _ => Span::ZERO,
                };
                let step = latest.since(call.at);
                assert!(
                    wait.as_micros() <= step.as_micros() + usual.as_micros(),
                    "{limit}: {call:?} waits {wait} after a step of {step}, usually {usual}"
                );
            }
            latest = latest.max(call.at);
        }
    });
}

/// Thousands of calls in one microsecond are thousands of calls.
#[test]
fn equal_timestamps_are_ordinary() {
    let now = Time::from_micros(1_794_398_400_000_000).unwrap();
    for text in [
        "token-bucket 5000/s",
        "leaky-bucket 5000/s",
        "pacer 5000/s queue=4999",
        "fixed-window 5000/s",
        "fixed-window 5000/s start=first",
        "fixed-window 5000/day tz=Asia/Shanghai",
        "sliding-log 5000/s",
        "sliding-log 5000/s count=all",
        "sliding-window 5000/s",
    ] {
        let made = text.parse::<Limit>().unwrap().made_at(now).unwrap();
        let mut state = AnyState::default();
        let allowed = (0..10_000).filter(|_| made.check(&mut state, now, 1).allowed()).count();
        assert_eq!(allowed, 5_000, "{text}");
    }
}

/// A slow limit that is polled often still refills exactly: no fraction of a unit is lost.
#[test]
fn polling_loses_nothing() {
    for poll in [7, 999, 1_000, 333_333, 999_999] {
        let made = "token-bucket 3/s burst=1".parse::<Limit>().unwrap().made_at(Time::EPOCH).unwrap();
        let mut state = AnyState::default();
        let end = 20_000_000 / poll * poll;
        let polls = (0..=end / poll).map(|place| Time::from_micros(place * poll).unwrap());
        let allowed = polls.filter(|&now| made.check(&mut state, now, 1).allowed()).count() as u64;
        // One at once, then one every third of a second; each waits for less than one poll.
        let fewest = 1 + end / (333_334 + poll);
        assert!(
            allowed >= fewest && allowed <= 1 + end * 3 / 1_000_000,
            "every {poll} µs: {allowed} of {fewest}"
        );
        assert!(fewest > 10, "too short to show anything");
    }
}
