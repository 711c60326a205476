//! The slow model behind the interface of the suite: limits in, decisions out.

use crate::subject::{Fields, Subject};
use sluicegate::Limit;
use sluicegate::limit::{Initial, Spec, WindowSpec};
use sluicegate_core::fixed_window::FixedWindow;
use sluicegate_core::smooth::WarmUp;
use sluicegate_core::{Algorithm as _, AnyLimit, Cell, CellLimit, Rate, RetryAfter, Span, Time};
use sluicegate_model as model;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// The model of a list of limits, for any number of keys.
#[derive(Debug)]
pub struct Oracle {
    rules: Vec<model::Rule>,
    keys: HashMap<Vec<u8>, model::Model>,
}

impl Oracle {
    /// Creates the model of a limiter created at `start`. Calendars are computed for calls within
    /// `times`.
    pub fn new(limits: &[Limit], start: Time, times: RangeInclusive<Time>) -> Oracle {
        Oracle { rules: rules(limits, start, &times), keys: HashMap::new() }
    }
}

impl Subject for Oracle {
    fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Fields {
        let new = || model::Model::new(self.rules.clone());
        self.keys.entry(key.to_vec()).or_insert_with(new).check(at.as_micros(), cost).into()
    }
}

impl From<model::Decision> for Fields {
    fn from(answer: model::Decision) -> Fields {
        Fields {
            allowed: answer.allowed,
            limit: answer.limit,
            remaining: answer.remaining,
            retry_after: answer.retry_after.map(|retry_after| match retry_after {
                model::RetryAfter::After(wait) => RetryAfter::After(Span::from_micros(wait)),
                model::RetryAfter::Never => RetryAfter::Never,
            }),
            reset_after: answer.reset_after,
            delay: answer.delay,
        }
    }
}

/// Converts limits to the model's rules.
pub fn rules(limits: &[Limit], start: Time, times: &RangeInclusive<Time>) -> Vec<model::Rule> {
    limits.iter().map(|limit| rule(limit, start, times)).collect()
}

/// Returns where the windows of each limit lie.
pub(crate) fn places(
    limits: &[Limit],
    start: Time,
    times: &RangeInclusive<Time>,
) -> Vec<Option<model::Windows>> {
    let place = |rule| match rule {
        model::Rule::FixedWindow { windows, .. } => Some(windows),
        _ => None,
    };
    rules(limits, start, times).into_iter().map(place).collect()
}

fn rule(limit: &Limit, made_at: Time, times: &RangeInclusive<Time>) -> model::Rule {
    let count = |rate: &Rate| rate.count();
    let period = |rate: &Rate| rate.period().as_micros();
    match limit.spec() {
        Spec::TokenBucket { rate, burst, initial } => {
            let initial = initial.map(|Initial { tokens, start, .. }| model::Initial {
                tokens,
                start: start.unwrap_or(made_at).as_micros(),
            });
            model::Rule::Bucket { count: count(rate), period: period(rate), burst: *burst, initial }
        }
        Spec::LeakyBucket { rate, capacity } => {
            model::Rule::LeakyBucket { count: count(rate), period: period(rate), capacity: *capacity }
        }
        Spec::MinInterval { interval } => model::Rule::MinInterval { interval: interval.as_micros() },
        Spec::Pacer { rate, queue } => {
            model::Rule::Pacer { count: count(rate), period: period(rate), queue: *queue }
        }
        Spec::FixedWindow { count, windows } => {
            model::Rule::FixedWindow { count: *count, windows: self::windows(limit, windows, times) }
        }
        Spec::SlidingLog { rate, count_all } => {
            model::Rule::SlidingLog { count: count(rate), period: period(rate), count_all: *count_all }
        }
        Spec::Concurrency { .. } => unreachable!("{limit} grants leases, which have a model of their own"),
        Spec::SlidingWindow { rate } => {
            model::Rule::SlidingWindow { count: count(rate), period: period(rate) }
        }
        Spec::Smooth { rate, warm_up, burst, initial, start } => model::Rule::Smooth(model::Smooth {
            count: count(rate),
            period: period(rate),
            permits: match (warm_up, burst) {
                (Some(WarmUp { period, cold }), _) => model::Permits::WarmUp {
                    period: period.as_micros(),
                    cold_thousandths: u64::from(cold.thousandths()),
                },
                (None, Some(burst)) => model::Permits::Burst(*burst),
                (None, None) => model::Permits::OneSecond,
            },
            initial: initial.map(u64::from),
            start: start.unwrap_or(made_at).as_micros(),
        }),
        other => unreachable!("{other:?} has no model"),
    }
}

fn windows(limit: &Limit, windows: &WindowSpec, times: &RangeInclusive<Time>) -> model::Windows {
    match windows {
        WindowSpec::Aligned { start, period } if *start == Time::EPOCH => {
            model::Windows::Epoch { period: period.as_micros() }
        }
        WindowSpec::Aligned { start, period } => {
            model::Windows::From { start: start.as_micros(), period: period.as_micros() }
        }
        WindowSpec::First { period } => model::Windows::First { period: period.as_micros() },
        // Where calendar windows begin is tested against another time-zone library, not here.
        WindowSpec::Calendar { .. } => match limit.made_at(Time::EPOCH) {
            Some(AnyLimit::Cell(CellLimit::FixedWindow(calendar))) => {
                model::Windows::Boundaries(boundaries(&calendar, times))
            }
            other => unreachable!("calendar windows belong to a fixed window, not {other:?}"),
        },
        other => unreachable!("{other:?} has no model"),
    }
}

fn boundaries(calendar: &FixedWindow, times: &RangeInclusive<Time>) -> Vec<u64> {
    // The end of the window that a call at that time opens; the last one may lie beyond
    // `Time::MAX`.
    let end = |at: u64| {
        let mut cell = Cell::UNSEEN;
        calendar.charge(&mut cell, Time::saturating_from_micros(at), 1);
        cell.at
    };
    let first = calendar.window(&Cell::UNSEEN, *times.start()).map_or(0, |window| window.start.as_micros());
    let mut boundaries = vec![first, end(times.start().as_micros())];
    while let Some(&last) = boundaries.last().filter(|last| **last <= times.end().as_micros()) {
        boundaries.push(end(last));
    }
    boundaries
}
