//! The canonical form: PERIOD in the largest unit that divides it, an N of 1 and defaults omitted,
//! COUNT never reduced.

use super::{Initial, Limit, Spec, WindowSpec};
use jiff::Timestamp;
use sluicegate_core::smooth::{ColdFactor, WarmUp};
use sluicegate_core::{Rate, Span, Time};
use std::fmt;

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.algorithm())?;
        match &self.spec {
            Spec::TokenBucket { rate, burst, initial } => {
                write!(f, "{}", measure(*rate))?;
                option_unless_default(f, "burst", *burst, rate.count())?;
                option(f, "initial", initial.map(|Initial { tokens, .. }| tokens))?;
                option(f, "start", initial.and_then(|Initial { start, .. }| start).map(moment))
            }
            Spec::LeakyBucket { rate, capacity } => {
                write!(f, "{}", measure(*rate))?;
                option_unless_default(f, "capacity", *capacity, rate.count())
            }
            Spec::MinInterval { interval } => write!(f, "{interval}"),
            Spec::Pacer { rate, queue } => {
                write!(f, "{}", measure(*rate))?;
                option_unless_default(f, "queue", *queue, rate.count())
            }
            Spec::FixedWindow { count, windows } => match windows {
                WindowSpec::Aligned { start, period } => {
                    write!(f, "{count}/{}", unit(*period))?;
                    if *start == Time::EPOCH { Ok(()) } else { write!(f, " start={}", moment(*start)) }
                }
                WindowSpec::First { period } => write!(f, "{count}/{} start=first", unit(*period)),
                WindowSpec::Calendar { unit, zone } if zone.is_utc() => write!(f, "{count}/{unit}"),
                WindowSpec::Calendar { unit, zone } => write!(f, "{count}/{unit} tz={zone}"),
            },
            Spec::SlidingLog { rate, count_all } => {
                write!(f, "{}{}", measure(*rate), if *count_all { " count=all" } else { "" })
            }
            Spec::Concurrency { count, ttl } => {
                write!(f, "{count}")?;
                option(f, "ttl", *ttl)
            }
            Spec::SlidingWindow { rate } => write!(f, "{}", measure(*rate)),
            Spec::Smooth { rate, warm_up, burst, initial, start } => {
                write!(f, "{}", measure(*rate))?;
                if let Some(WarmUp { period, cold }) = warm_up {
                    write!(f, " warmup={period}")?;
                    if *cold != ColdFactor::DEFAULT {
                        write!(f, " cold={cold}")?;
                    }
                }
                option(f, "burst", *burst)?;
                option(f, "initial", *initial)?;
                option(f, "start", start.map(moment))
            }
        }
    }
}

fn measure(rate: Rate) -> String {
    format!("{}/{}", rate.count(), unit(rate.period()))
}

/// Writes a period without an N of 1: `60s` is `min`.
pub fn unit(period: Span) -> String {
    let text = period.to_string();
    match text.strip_prefix('1') {
        Some(unit) if !unit.starts_with(|letter: char| letter.is_ascii_digit()) => unit.to_owned(),
        _ => text,
    }
}

fn option_unless_default(f: &mut fmt::Formatter<'_>, name: &str, value: u64, default: u64) -> fmt::Result {
    if value == default { Ok(()) } else { write!(f, " {name}={value}") }
}

fn option(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
}

/// Writes a moment in UTC, so that equal moments have equal texts.
fn moment(time: Time) -> String {
    i64::try_from(time.as_micros())
        .ok()
        .and_then(|micros| Timestamp::from_microsecond(micros).ok())
        .map_or_else(|| time.as_micros().to_string(), |moment| moment.to_string())
}
