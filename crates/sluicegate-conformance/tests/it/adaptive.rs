//! Adaptive limits compared with Netflix's arithmetic in doubles, and properties of every rule on
//! any samples.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times here are below a day in microseconds, and whole"
)]

use fastrand::Rng;
use sluicegate_guard::adaptive::{Adaptive, AdaptiveLimit, Aimd, Gradient, Range, Sample};
use sluicegate_guard::{Span, Time};
use sluicegate_model::adaptive as model;

/// The tolerance between a limit and the model's, in calls: both are rounded down, which can differ
/// by one.
const TOLERANCE: f64 = 1.0;

fn moves(range: Range) -> model::LimitRange {
    model::LimitRange { start: range.start().into(), min: range.min().into(), max: range.max().into() }
}

fn any_range(random: &mut Rng) -> Range {
    let mut three = [random.u64(1..400), random.u64(1..400), random.u64(1..400)];
    three.sort_unstable();
    Range::new(three[1], three[0], three[2]).unwrap()
}

fn any_aimd(random: &mut Rng) -> Aimd {
    let range = any_range(random);
    Aimd::new(range, random.u64(50..=99), Span::from_micros(random.u64(1_000..200_000))).unwrap()
}

fn any_gradient(random: &mut Rng) -> Gradient {
    let rule = Gradient::new(any_range(random)).with_queue(random.u64(1..20)).unwrap();
    let rule = rule.with_smoothing(random.u64(1..=100)).unwrap();
    rule.with_tolerance(random.u64(100..=400)).unwrap().with_window(random.u64(1..=1_000)).unwrap()
}

fn any_rule(random: &mut Rng) -> AdaptiveLimit {
    match random.u8(0..3) {
        0 => any_aimd(random).into(),
        1 => any_gradient(random).into(),
        _ => any_gradient(random)
            .with_sample(Span::from_micros(random.u64(100_000..2_000_000)))
            .unwrap()
            .into(),
    }
}

/// Samples in phases, like those of a service: fast, slow, failing, idle.
struct Weather {
    rtt: u64,
    in_flight: u32,
    drops: u32,
}

impl Weather {
    fn any(random: &mut Rng) -> Weather {
        let in_flight = if random.bool() { 1_000 } else { random.u32(0..400) };
        Weather { rtt: 10_u64.pow(random.u32(2..6)), in_flight, drops: [0, 0, 5, 100][random.usize(0..4)] }
    }

    fn sample(&self, random: &mut Rng) -> Sample {
        let rtt = Span::from_micros(self.rtt + random.u64(0..self.rtt));
        Sample { rtt, in_flight: self.in_flight, dropped: random.u32(0..100) < self.drops }
    }
}

#[test]
fn aimd_matches_netflix_to_one_call() {
    let random = &mut Rng::with_seed(1);
    for _ in 0..200 {
        let rule = any_aimd(random);
        let start = f64::from(rule.range().start());
        let mut theirs = model::Aimd {
            moves: moves(rule.range()),
            backoff: f64::from(rule.backoff()) / 100.0,
            timeout: rule.timeout().as_micros() as f64,
            limit: start,
        };
        let mut ours = Adaptive::new(rule);
        let mut weather = Weather::any(random);
        for step in 0..500 {
            if step % 50 == 0 {
                weather = Weather::any(random);
            }
            let sample = weather.sample(random);
            let rtt = sample.rtt.as_micros() as f64;
            let limit = ours.sample(Time::EPOCH, sample);
            let expected = theirs.sample(rtt, sample.in_flight.into(), sample.dropped);
            // Only a decrease rounds (58 % of 100 in doubles), and the error does not accumulate.
            let rounds = sample.dropped || sample.rtt > rule.timeout();
            let apart = (f64::from(limit) - expected).abs();
            assert!(apart <= if rounds { TOLERANCE } else { 0.0 }, "{rule:?}: {limit} and {expected}");
            theirs.limit = limit.into();
        }
    }
}

#[test]
fn the_gradient_matches_doubles_to_one_call() {
    let random = &mut Rng::with_seed(2);
    for _ in 0..200 {
        let rule = any_gradient(random);
        let mut slow = model::Gradient {
            queue: rule.queue().into(),
            smoothing: f64::from(rule.smoothing()) / 100.0,
            tolerance: f64::from(rule.tolerance()) / 100.0,
            window: rule.window().into(),
            ..model::Gradient::with_defaults(moves(rule.range()), true)
        };
        let mut fast = Adaptive::new(rule);
        let mut weather = Weather::any(random);
        for step in 0..1_000 {
            if step % 100 == 0 {
                weather = Weather::any(random);
            }
            let sample = weather.sample(random);
            let rtt = sample.rtt.as_micros() as f64;
            let limit = fast.sample(Time::EPOCH, sample);
            let expected = slow.sample(rtt, sample.in_flight.into(), sample.dropped);
            assert!((f64::from(limit) - expected).abs() <= TOLERANCE, "{rule:?}: {limit} and {expected}");
        }
    }
}

#[test]
fn a_limit_stays_in_its_range_for_any_samples_and_clock() {
    let random = &mut Rng::with_seed(3);
    for _ in 0..300 {
        let rule = any_rule(random);
        let mut limit = Adaptive::new(rule);
        let within = rule.range().min()..=rule.range().max();
        assert_eq!(limit.limit(), rule.range().start());
        for _ in 0..300 {
            let now = Time::saturating_from_micros(random.u64(..) >> random.u32(0..64));
            let rtt = Span::from_micros(random.u64(..) >> random.u32(0..64));
            let in_flight = random.u32(..) >> random.u32(0..32);
            let said = limit.sample(now, Sample { rtt, in_flight, dropped: random.bool() });
            assert!(within.contains(&said) && said == limit.limit(), "{rule:?}: {said}");
        }
    }
}

#[test]
fn no_limit_gets_stuck() {
    let random = &mut Rng::with_seed(4);
    for _ in 0..300 {
        let rule = any_rule(random);
        let mut limit = Adaptive::new(rule);
        for _ in 0..500 {
            let now = Time::saturating_from_micros(random.u64(..) >> random.u32(0..64));
            let rtt = Span::from_micros(random.u64(..) >> random.u32(0..64));
            let dropped = random.u8(0..4) == 0;
            limit.sample(now, Sample { rtt, in_flight: random.u32(0..1_000), dropped });
        }
        // The clock goes on from where it was set, which is in the past.
        let mut clock = 5_000_000;
        let mut go_on = |dropped, until: u32| {
            for _ in 0..2_000_000 {
                clock += 20_000;
                let sample = Sample { rtt: Span::from_micros(1_000), in_flight: 1_000, dropped };
                if limit.sample(Time::saturating_from_micros(clock), sample) == until {
                    return true;
                }
            }
            false
        };
        assert!(go_on(false, rule.range().max()), "{rule:?} does not grow");
        assert!(go_on(true, rule.range().min()), "{rule:?} does not shrink");
        assert!(go_on(false, rule.range().max()), "{rule:?} does not grow again");
    }
}

/// The latency of a dependency that serves 40 calls at once in 50 ms each, with as many calls in
/// flight as the limit.
fn at_forty_workers(limit: f64) -> f64 {
    50_000.0 * (limit / 40.0).max(1.0)
}

#[test]
fn netflix_134_a_gradient_of_four_fifths_is_overload_and_does_not_grow() {
    // Calls take 1.875 times the baseline: 1.5 / 1.875 = 0.8. The baseline does not follow within
    // these samples.
    let range = Range::new(10, 1, 200).unwrap();
    let mut theirs = model::Gradient::with_defaults(moves(range), false);
    let mut ours = Adaptive::new(Gradient::new(range).with_window(1_000_000).unwrap());
    theirs.window = 1_000_000.0;
    let at = |micros| Sample { rtt: Span::from_micros(micros), in_flight: 1_000, dropped: false };
    for _ in 0..10 {
        theirs.sample(40_000.0, 1_000.0, false);
        ours.sample(Time::EPOCH, at(40_000));
    }
    theirs.limit = 10.0;
    for _ in 0..200 {
        theirs.sample(75_000.0, 1_000.0, false);
        ours.sample(Time::EPOCH, at(75_000));
    }
    assert!(theirs.limit > 19.0, "theirs grows to queue / (1 - 0.8), {}", theirs.limit);
    assert_eq!(ours.limit(), 1, "ours sheds load until there is none to shed");
}

#[test]
fn netflix_134_and_165_a_limit_does_not_creep_up_on_the_delays_that_it_makes_itself() {
    let range = Range::new(20, 20, 1_000).unwrap();
    let mut theirs = model::Gradient::with_defaults(moves(range), false);
    let mut ours = Adaptive::new(Gradient::new(range));
    for _ in 0..20_000 {
        theirs.sample(at_forty_workers(theirs.limit), theirs.limit, false);
        let rtt = at_forty_workers(ours.limit().into());
        let rtt = Span::from_micros(rtt as u64);
        ours.sample(Time::EPOCH, Sample { rtt, in_flight: ours.limit(), dropped: false });
    }
    assert!(theirs.limit >= 999.0, "theirs is at its most, {}", theirs.limit);
    assert!((40..=61).contains(&ours.limit()), "ours is at 1.5 times the workers, {}", ours.limit());
}

#[test]
fn netflix_137_a_dependency_that_always_times_out_does_not_look_even() {
    let range = Range::new(100, 20, 200).unwrap();
    let mut theirs = model::Gradient::with_defaults(moves(range), false);
    let mut ours = Adaptive::new(Gradient::new(range));
    for _ in 0..2_000 {
        theirs.sample(5_000_000.0, 1_000.0, true);
        let timed_out = Sample { rtt: Span::from_micros(5_000_000), in_flight: 1_000, dropped: true };
        ours.sample(Time::EPOCH, timed_out);
    }
    assert!(theirs.limit >= 200.0);
    assert_eq!(ours.limit(), 20);
}
