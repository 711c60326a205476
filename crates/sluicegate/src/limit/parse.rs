//! Reads the grammar. Every denial points at the word and says what to write instead.

use super::error::LimitError;
use super::{Bounds, Initial, Limit, Spec, WindowSpec};
use crate::calendar::{CalendarUnit, Zone};
use crate::grammar::{Options, Period, SyntaxError, count_and_period, name, number, quoted, rate, span};
use jiff::Timestamp;
use sluicegate_core::bounds::checked_count;
use sluicegate_core::smooth::{ColdFactor, WarmUp};
use sluicegate_core::time::DAY;
use sluicegate_core::{Rate, Span, Time};
use std::str::FromStr;

/// The longest text that can be a limit, in bytes. The longest sensible one is below 100.
const TEXT_MAX: usize = 256;

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        limit(text, Bounds::default())
    }
}

pub(super) fn limit(text: &str, bounds: Bounds) -> Result<Limit, LimitError> {
    let refuse = |SyntaxError { problem, advice }| LimitError::new(text, problem, advice);
    if text.len() > TEXT_MAX {
        let problem = format!("a limit of {} bytes is above the most, {TEXT_MAX}", text.len());
        return Err(refuse(SyntaxError::new(problem, "write one limit, such as sliding-log 5/60s")));
    }
    let spec = spec(text).map_err(refuse)?;
    Limit::new(spec, bounds).map_err(|out| refuse(out.into()))
}

fn spec(text: &str) -> Result<Spec, SyntaxError> {
    let mut words = text.split_ascii_whitespace();
    let Some(word) = words.next() else {
        return Err(SyntaxError::new("the limit is empty", "write one, such as sliding-log 5/60s"));
    };
    let algorithm = algorithm(word)?;
    let example = match algorithm {
        "min-interval" => "200ms",
        "concurrency" => "10",
        _ => "5/60s",
    };
    let measure = words.next().unwrap_or_default();
    if measure.is_empty() || measure.contains('=') {
        let problem = format!("{algorithm} needs its measure right after it");
        return Err(SyntaxError::new(problem, format!("write {algorithm} {example}")));
    }
    // The measure before the options: a space too many in `5 / 60s` is a mistake in the measure.
    match algorithm {
        "min-interval" => {
            let interval = interval(measure)?;
            Options::read(takes(algorithm), words)?.refuse_the_rest()?;
            Ok(Spec::MinInterval { interval })
        }
        "concurrency" => {
            let count = at_once(measure)?;
            let mut options = Options::read(takes(algorithm), words)?;
            let ttl = options.take("ttl").map(span).transpose()?;
            options.refuse_the_rest()?;
            Ok(Spec::Concurrency { count, ttl })
        }
        "fixed-window" => {
            let (count, period) = count_and_period(measure)?;
            let mut options = Options::read(takes(algorithm), words)?;
            let windows = windows(period, &mut options)?;
            options.refuse_the_rest()?;
            Ok(Spec::FixedWindow { count: checked_count("count", count, 1)?, windows })
        }
        _ => {
            let rate = rate(measure)?;
            let mut options = Options::read(takes(algorithm), words)?;
            let spec = match algorithm {
                "token-bucket" => token_bucket(rate, &mut options)?,
                "leaky-bucket" => Spec::LeakyBucket {
                    rate,
                    capacity: options.number("capacity", 1)?.unwrap_or(rate.count()),
                },
                "pacer" => Spec::Pacer { rate, queue: options.number("queue", 0)?.unwrap_or(rate.count()) },
                "sliding-log" => Spec::SlidingLog { rate, count_all: count_all(&mut options)? },
                "smooth" => smooth(rate, &mut options)?,
                "sliding-window" => Spec::SlidingWindow { rate },
                other => unreachable!("{other} is in `Limit::ALGORITHMS` and has no arm here"),
            };
            options.refuse_the_rest()?;
            Ok(spec)
        }
    }
}

fn algorithm(word: &str) -> Result<&'static str, SyntaxError> {
    name("algorithm", word, &Limit::ALGORITHMS)
}

fn count_all(options: &mut Options<'_>) -> Result<bool, SyntaxError> {
    match options.take("count") {
        None => Ok(false),
        Some("all") => Ok(true),
        Some(other) => Err(SyntaxError::new(
            format!("unknown count={}", quoted(other)),
            "use count=all, or leave it out to count allowed calls only",
        )),
    }
}

fn token_bucket(rate: Rate, options: &mut Options<'_>) -> Result<Spec, SyntaxError> {
    let burst = options.number("burst", 1)?.unwrap_or(rate.count());
    let tokens = options.number("initial", 0)?;
    let start = options.take("start").map(moment).transpose()?;
    if start.is_some() && tokens.is_none() {
        let problem = "start= says since when a bucket with initial= has been filling";
        return Err(SyntaxError::new(problem, "add initial=, such as initial=0, or leave start= out"));
    }
    // Starting full is the default, and then it does not matter since when.
    let initial = tokens.filter(|&tokens| tokens != burst).map(|tokens| Initial { tokens, start });
    Ok(Spec::TokenBucket { rate, burst, initial })
}

fn smooth(rate: Rate, options: &mut Options<'_>) -> Result<Spec, SyntaxError> {
    let period = options.take("warmup").map(span).transpose()?;
    let cold = options.take("cold").map(cold).transpose()?;
    let burst = options.number("burst", 1)?;
    let initial = options.number("initial", 0)?;
    let start = options.take("start").map(moment).transpose()?;
    if period.is_none() && cold.is_some() {
        let problem = "cold= says how much slower a limiter is before its warm-up";
        return Err(SyntaxError::new(problem, "add warmup=, such as warmup=4s, or leave cold= out"));
    }
    if period.is_some() && burst.is_some() {
        let problem = "burst= does not go with warmup=, which itself says how much is stored";
        return Err(SyntaxError::new(problem, "leave one of them out"));
    }
    let warm_up = period.map(|period| WarmUp { period, cold: cold.unwrap_or(ColdFactor::DEFAULT) });
    Ok(Spec::Smooth { rate, warm_up, burst, initial, start })
}

/// A factor such as `3` or `2.5`.
fn cold(word: &str) -> Result<ColdFactor, SyntaxError> {
    let refuse = |problem: &str| {
        let problem = format!("cold {} {problem}", quoted(word));
        SyntaxError::new(problem, "use 1 to 1000 with up to three places after the point, such as 3 or 2.5")
    };
    let (whole, part) = word.split_once('.').unwrap_or((word, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return Err(refuse("is not a number"));
    }
    let places = part.trim_end_matches('0');
    if places.len() > 3 {
        return Err(refuse("is too fine"));
    }
    format!("{whole}{places:0<3}")
        .parse()
        .ok()
        .and_then(ColdFactor::from_thousandths)
        .ok_or_else(|| refuse("is not from 1 to 1000"))
}

fn windows(period: Period<'_>, options: &mut Options<'_>) -> Result<WindowSpec, SyntaxError> {
    let start = options.take("start");
    let zone = options.take("tz").map(zone).transpose()?;
    match (period, zone) {
        (Period::Calendar(unit), zone) => calendar(unit, zone.unwrap_or_else(Zone::utc), start),
        (Period::Fixed { is_one_day: true, .. }, Some(zone)) => calendar(CalendarUnit::Day, zone, start),
        (Period::Fixed { word, .. }, Some(_)) => {
            let problem = format!("tz= goes with a calendar unit, not with {}", quoted(word));
            Err(SyntaxError::new(problem, "use day, week, month or year, or start=TIME"))
        }
        (Period::Fixed { period, .. }, None) => Ok(match start {
            None | Some("epoch") => WindowSpec::Aligned { start: Time::EPOCH, period },
            Some("first") => WindowSpec::First { period },
            Some(word) => WindowSpec::Aligned { start: moment(word)?, period },
        }),
    }
}

fn calendar(unit: CalendarUnit, zone: Zone, start: Option<&str>) -> Result<WindowSpec, SyntaxError> {
    if start.is_some() {
        let problem = format!("start= does not go with the calendar's {unit}");
        return Err(SyntaxError::new(problem, "leave start= out: the calendar says when it begins"));
    }
    if unit == CalendarUnit::Day && zone.is_utc() {
        // The UTC day is 24 hours from the epoch: one limit, one text.
        return Ok(WindowSpec::Aligned { start: Time::EPOCH, period: Span::from_micros(DAY) });
    }
    Ok(WindowSpec::Calendar { unit, zone })
}

fn zone(word: &str) -> Result<Zone, SyntaxError> {
    Zone::named(word).ok_or_else(|| {
        let problem = format!("unknown time zone {}", quoted(word));
        SyntaxError::new(problem, "use a name such as Asia/Shanghai, or an offset such as +08:00")
    })
}

fn moment(word: &str) -> Result<Time, SyntaxError> {
    let advice = "use an RFC 3339 time with its offset, such as 2026-11-11T00:00:00+08:00";
    let refuse = |problem: String| SyntaxError::new(problem, advice);
    let moment: Timestamp = Some(word)
        .filter(|word| is_rfc_3339(word))
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| refuse(format!("{} is not a time", quoted(word))))?;
    u64::try_from(moment.as_microsecond())
        .ok()
        .and_then(Time::from_micros)
        .ok_or_else(|| refuse(format!("{} is outside 1970 to 9892, all the time there is", quoted(word))))
}

/// `2026-11-11T00:00:00[.123456]+08:00` or `Z` in its shape; whether there is such a day is another question.
fn is_rfc_3339(word: &str) -> bool {
    let shaped = |text: &str, shape: &str| {
        text.len() == shape.len()
            && text
                .bytes()
                .zip(shape.bytes())
                .all(|(a, b)| if b == b'0' { a.is_ascii_digit() } else { a == b })
    };
    let Some((date_time, rest)) = word.split_at_checked(19) else { return false };
    let fraction = rest.trim_start_matches('.').bytes().take_while(u8::is_ascii_digit).count();
    let offset = if rest.starts_with('.') { rest.get(fraction + 1..).unwrap_or_default() } else { rest };
    let fraction_fits = !rest.starts_with('.') || (1..=6).contains(&fraction);
    let offset_fits = offset == "Z" || shaped(offset, "+00:00") || shaped(offset, "-00:00");
    // A leap second has no microseconds of its own.
    shaped(date_time, "0000-00-00T00:00:00") && !date_time.ends_with("60") && fraction_fits && offset_fits
}

fn interval(measure: &str) -> Result<Span, SyntaxError> {
    if measure.contains('/') {
        let problem = format!("{} is a rate, min-interval takes a duration", quoted(measure));
        let meant = rate(measure).map(|rate| rate.period().as_micros().div_ceil(u64::from(rate.count())));
        let meant = meant.map_or_else(|_| "200ms".to_owned(), |micros| Span::from_micros(micros).to_string());
        return Err(SyntaxError::new(problem, format!("write min-interval {meant}")));
    }
    span(measure)
}

/// How many at once.
fn at_once(measure: &str) -> Result<u32, SyntaxError> {
    if let Some((count, _)) = measure.split_once('/') {
        let problem = format!("{} is a rate, concurrency takes how many at once", quoted(measure));
        let meant = number("count", count).map_or_else(|_| "10".to_owned(), |count| count.to_string());
        return Err(SyntaxError::new(problem, format!("write concurrency {meant}")));
    }
    Ok(checked_count("count", number("count", measure)?, 1)?)
}

/// The options of an algorithm.
fn takes(algorithm: &str) -> &'static str {
    match algorithm {
        "token-bucket" => "token-bucket takes burst=N initial=N start=TIME",
        "leaky-bucket" => "leaky-bucket takes capacity=N",
        "pacer" => "pacer takes queue=N",
        "fixed-window" => "fixed-window takes start=first, start=TIME or tz=ZONE",
        "sliding-log" => "sliding-log takes count=all",
        "sliding-window" => "sliding-window takes no options",
        "concurrency" => "concurrency takes ttl=DURATION",
        "smooth" => "smooth takes warmup=DURATION cold=FACTOR burst=N initial=N start=TIME",
        _ => "min-interval takes no options",
    }
}
