//! Typed construction against the grammar: random limits of every algorithm, rebuilt from their
//! parts.

use fastrand::Rng;
use sluicegate::limit::{Initial, LimitError, Spec, WindowSpec};
use sluicegate::{Limit, Limiter};
use sluicegate_conformance::random;
use sluicegate_core::Span;
use std::time::Duration;

/// Builds the limit again, from its parts.
fn rebuilt(limit: &Limit) -> Result<Limit, LimitError> {
    // A `Duration` where one is exact, as it always is for a whole number of microseconds.
    let period = |span: Span| Duration::from_micros(span.as_micros());
    match limit.spec() {
        Spec::TokenBucket { rate, burst, initial } => {
            let mut typed = Limit::token_bucket(rate.count(), period(rate.period())).burst(*burst);
            if let Some(Initial { tokens, start, .. }) = initial {
                typed = typed.initial(*tokens);
                typed = start.map_or(typed.clone(), |start| typed.start_at(start));
            }
            typed.build()
        }
        Spec::LeakyBucket { rate, capacity } => {
            Limit::leaky_bucket(rate.count(), period(rate.period())).capacity(*capacity).build()
        }
        Spec::MinInterval { interval } => Limit::min_interval(period(*interval)).build(),
        Spec::Pacer { rate, queue } => {
            Limit::pacer(rate.count(), period(rate.period())).queue(*queue).build()
        }
        Spec::FixedWindow { count, windows } => match windows {
            WindowSpec::Aligned { start, period: length } => {
                Limit::fixed_window(*count, period(*length)).start_at(*start).build()
            }
            WindowSpec::First { period: length } => {
                Limit::fixed_window(*count, period(*length)).start_at_first_call().build()
            }
            WindowSpec::Calendar { unit, zone } => {
                Limit::fixed_window(*count, *unit).tz(&zone.to_string()).build()
            }
            other => panic!("{other:?} has no typed form"),
        },
        Spec::SlidingLog { rate, count_all } => {
            Limit::sliding_log(rate.count(), rate.period()).count_denied(*count_all).build()
        }
        Spec::SlidingWindow { rate } => Limit::sliding_window(rate.count(), rate.period()).build(),
        Spec::Smooth { rate, warm_up, burst, initial, start } => {
            let mut typed = Limit::smooth(rate.count(), period(rate.period()));
            if let Some(warm_up) = warm_up {
                typed = typed.warmup(warm_up.period).cold(f64::from(warm_up.cold.thousandths()) / 1_000.0);
            }
            typed = burst.map_or(typed.clone(), |burst| typed.burst(burst));
            typed = initial.map_or(typed.clone(), |initial| typed.initial(initial));
            start.map_or(typed.clone(), |start| typed.start_at(start)).build()
        }
        Spec::Concurrency { count, ttl } => {
            let typed = Limit::concurrency(*count);
            ttl.map_or(typed.clone(), |ttl| typed.ttl(ttl)).build()
        }
        other => panic!("{other:?} has no typed form"),
    }
}

#[test]
fn a_typed_limit_equals_the_parsed_text() {
    for algorithm in Limit::CHECKS {
        for seed in 0..3_000 {
            let limit = random::limit(&mut Rng::with_seed(seed), algorithm);
            let typed = rebuilt(&limit).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(typed, limit, "seed {seed}");
            assert_eq!(
                (typed.to_string(), typed.at_once()),
                (limit.to_string(), limit.at_once()),
                "seed {seed}"
            );
        }
    }
    for text in ["concurrency 1", "concurrency 1000000000 ttl=3650d", "concurrency 7 ttl=1us"] {
        let limit: Limit = text.parse().unwrap();
        assert_eq!(rebuilt(&limit).unwrap(), limit);
    }
}

#[test]
fn tuples_and_arrays_of_typed_limits_are_lists() {
    let (bucket, window) =
        (Limit::token_bucket(10, Duration::from_secs(1)), Limit::sliding_log(5, Span::MAX));
    assert!(Limiter::new((bucket.clone(), window)).is_err(), "a period of 584 542 years");
    let window = Limit::fixed_window(5, Duration::from_secs(60));
    let list = Limiter::new((bucket.clone(), window, "min-interval 1ms")).unwrap();
    assert_eq!(list.limits().len(), 3);
    assert_eq!(Limiter::new([bucket.clone(), bucket.burst(20)]).unwrap().limits().len(), 2);
}
