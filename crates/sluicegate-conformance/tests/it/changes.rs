//! A limit whose parameters change keeps what its keys have used.

use fastrand::Rng;
use sluicegate::Limit;
use sluicegate_conformance::random;
use sluicegate_core::rollback::Times;
use sluicegate_core::verbs::Verbs as _;
use sluicegate_core::{Account, Algorithm as _, AnyState, RetryAfter, Span, Time};

fn at(micros: u64) -> Time {
    Time::from_micros(micros).unwrap()
}

/// A clock that has not stepped back.
fn still(now: Time) -> Times {
    Times { now, latest: now }
}

fn remaining_after_change(old: &str, used: u64, new: &str, then: u64) -> u64 {
    let now = at(1_794_398_400_000_000);
    let (old, new) = [old, new].map(|text| text.parse::<Limit>().unwrap().made_at(now).unwrap()).into();
    let mut state = AnyState::default();
    assert!(old.check(&mut state, now, used).allowed());
    let then = at(now.as_micros() + then);
    new.adopt(&old, &mut state, still(then));
    new.remaining(&state, then)
}

#[test]
fn a_bucket_keeps_its_tokens_used_and_a_window_or_log_its_count() {
    let second = 1_000_000;
    for (old, used, new, then, expected) in [
        // Six used, of which two have refilled after 2 s at the old rate: 4 of the new burst are
        // used.
        ("token-bucket 1/s burst=10", 6, "token-bucket 100/s burst=20", 2 * second, 16),
        ("token-bucket 1/s burst=10", 6, "token-bucket 1/s burst=3", 2 * second, 0),
        ("leaky-bucket 1/s capacity=10", 6, "leaky-bucket 1/h capacity=10", 2 * second, 6),
        ("pacer 1/s queue=9", 6, "pacer 3/s queue=9", 2 * second, 6),
        ("fixed-window 5/d", 3, "fixed-window 10/d", second, 7),
        ("fixed-window 5/d", 3, "fixed-window 2/d", second, 0),
        ("fixed-window 5/day tz=Asia/Shanghai", 3, "fixed-window 9/day tz=Asia/Shanghai", second, 6),
        ("sliding-log 5/60s", 3, "sliding-log 10/60s", second, 7),
        ("sliding-log 5/60s", 3, "sliding-log 10/10s", second, 7),
        ("sliding-window 5/60s", 3, "sliding-window 10/60s", second, 7),
        // Any other change discards the state.
        ("fixed-window 5/d", 3, "fixed-window 5/h", second, 5),
        ("fixed-window 5/d", 3, "fixed-window 5/d start=first", second, 5),
        ("fixed-window 5/d start=first", 3, "fixed-window 5/h start=first", second, 5),
        ("fixed-window 5/d start=first", 3, "fixed-window 9/d start=first", second, 6),
        ("fixed-window 5/d", 3, "fixed-window 5/d start=2026-01-01T00:00:00Z", second, 5),
        ("fixed-window 5/day tz=Asia/Shanghai", 3, "fixed-window 5/day tz=Asia/Tokyo", second, 5),
        ("sliding-window 5/60s", 3, "sliding-window 5/10s", second, 5),
        ("token-bucket 1/s burst=10", 6, "leaky-bucket 1/s capacity=10", second, 10),
        ("sliding-log 5/60s", 3, "fixed-window 5/60s", second, 5),
        ("fixed-window 5/60s", 3, "sliding-log 5/60s", second, 5),
    ] {
        assert_eq!(remaining_after_change(old, used, new, then), expected, "{old} to {new}");
    }
}

/// With a faster rate or a larger burst, the limit allows at least as much as before, from the
/// change on.
#[test]
fn raising_a_rate_never_denies_more() {
    let mut compared = 0;
    for seed in 0..4_000 {
        let mut rng = Rng::with_seed(seed);
        let (count, period) =
            (random::number(&mut rng, 1, 1_000_000), random::number(&mut rng, 1, 1_000_000_000));
        let burst = random::number(&mut rng, 1, 1_000_000);
        let (more, less) = (random::number(&mut rng, count, 1_000_000), random::number(&mut rng, 1, period));
        let texts =
            [(count, period, burst), (more, less, burst + rng.u64(..10))].map(|(count, period, burst)| {
                format!("token-bucket {count}/{period}us burst={burst}").parse::<Limit>()
            });
        let [Ok(old), Ok(new)] = texts else { continue };
        let trace = random::trace(&mut rng, std::slice::from_ref(&old), 20, false);
        let (old_made, new_made) = (old.made_at(trace[0].at).unwrap(), new.made_at(trace[0].at).unwrap());
        let mut state = AnyState::default();
        for call in &trace {
            let mut changed = state.clone();
            new_made.adopt(&old_made, &mut changed, still(call.at));
            let (before, after) =
                (old_made.remaining(&state, call.at), new_made.remaining(&changed, call.at));
            assert!(after >= before, "{old} to {new} at {call:?}: {before} became {after}");
            compared += 1;
            let _ = old_made.check(&mut state, call.at, call.cost);
        }
    }
    assert!(compared > 20_000, "only {compared}");
}

#[test]
fn any_change_is_safe_and_equal_parameters_change_nothing() {
    for seed in 0..4_000 {
        let mut rng = Rng::with_seed(seed);
        let algorithm = Limit::CHECKS[rng.usize(..Limit::CHECKS.len())];
        let (old, new) = (random::limit(&mut rng, algorithm), random::limit(&mut rng, algorithm));
        let trace = random::trace(&mut rng, std::slice::from_ref(&old), 20, true);
        let (old_made, new_made) = (old.made_at(trace[0].at).unwrap(), new.made_at(trace[0].at).unwrap());
        let mut state = AnyState::default();
        for call in &trace {
            let _ = old_made.check(&mut state, call.at, call.cost);
            let mut same = state.clone();
            old_made.adopt(&old_made, &mut same, still(call.at));
            if algorithm == "smooth" {
                // Like Guava, it stores the permits until then: the same wait, and the same permits
                // but for the last bit.
                let [before, after] = [&state, &same].map(|state| old_made.peek(state, call.at, 1));
                assert_eq!(after.retry_after(), before.retry_after(), "{old}");
                assert!(after.remaining().abs_diff(before.remaining()) <= 1, "{old}");
            } else {
                assert_eq!(same, state, "{old}");
            }
            let mut changed = state.clone();
            new_made.adopt(&old_made, &mut changed, still(call.at));
            assert!(new_made.remaining(&changed, call.at) <= new_made.limit(), "{old} to {new}");
        }
    }
}

/// Compared with fractions: a change keeps the units used, at the change and from then on.
#[test]
fn a_bucket_is_changed_exactly() {
    let mut compared = 0;
    for seed in 0..4_000 {
        let mut rng = Rng::with_seed(seed);
        let mut bucket = || {
            let (count, period) =
                (random::number(&mut rng, 1, 1_000), random::number(&mut rng, 1, 1_000_000));
            (count, period, random::number(&mut rng, 1, 1_000))
        };
        let ((count, period, burst), (new_count, new_period, new_burst)) = (bucket(), bucket());
        let text =
            |count, period, burst| format!("token-bucket {count}/{period}us burst={burst}").parse::<Limit>();
        let (Ok(old), Ok(new)) = (text(count, period, burst), text(new_count, new_period, new_burst)) else {
            continue;
        };
        let (old, new) = (old.made_at(at(0)).unwrap(), new.made_at(at(0)).unwrap());
        let (mut state, used, wait) = (AnyState::default(), rng.u64(1..=burst), rng.u64(..2 * period));
        assert!(old.check(&mut state, at(0), used).allowed());
        new.adopt(&old, &mut state, still(at(wait)));
        for later in [0, 1, rng.u64(..2 * new_period)] {
            // Units used, over period * new_period: (used * period - wait * count) / period - later
            // * new_count / new_period.
            let whole = i128::from(period) * i128::from(new_period);
            let at_change =
                (i128::from(used * period) - i128::from(wait * count)).max(0) * i128::from(new_period);
            let left = (at_change - i128::from(later * new_count) * i128::from(period)).max(0);
            let expected = (i128::from(new_burst) - (left + whole - 1).div_euclid(whole)).max(0);
            let remaining = new.remaining(&state, at(wait + later));
            assert_eq!(
                i128::from(remaining),
                expected,
                "{old:?} to {new:?}: {used} used, {wait} and {later} later"
            );
            compared += 1;
        }
    }
    assert!(compared > 5_000, "only {compared}");
}

/// If the clock has stepped back a day at the change, the usage is still the same.
#[test]
fn a_step_back_does_not_count_as_usage() {
    let day = 86_400_000_000;
    let noon = 1_794_398_400_000_000;
    for (old, new) in [
        ("token-bucket 1000/s burst=10", "token-bucket 1/s burst=10"),
        ("token-bucket 1/s burst=10", "token-bucket 1000/s burst=10"),
    ] {
        let [old, new] = [old, new].map(|text| [text.parse::<Limit>().unwrap().made_at(at(0)).unwrap()]);
        let mut account = Account::default();
        assert!(account.check(&old, at(noon + day), 10).allowed());
        account.adopt(&new, &old, at(noon));
        // Nothing until the clock has caught up, and the first unit one interval later.
        let denied = account.peek(&new, at(noon), 1);
        let Some(RetryAfter::After(wait)) = denied.retry_after() else { panic!("{denied:?}") };
        assert!(wait > Span::from_micros(day) && wait <= Span::from_micros(day + 1_000_000), "{wait}");
        assert_eq!(account.peek(&new, at(noon + day), 0).remaining(), 0);
    }
}
