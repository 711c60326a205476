//! Reads the grammar. Every rejection points at a word and says what to write instead.

use super::error::LimitError;
use super::{Bounds, Initial, Limit, Spec, WindowSpec};
use crate::calendar::{CalendarUnit, Zone};
use crate::grammar::{
    Options, Period, SyntaxError, count_and_period, letters, name, number, quoted, rate, span, whole_rate,
};
use jiff::Timestamp;
use sluicegate_core::bounds::checked_count;
use sluicegate_core::smooth::{ColdFactor, WarmUp};
use sluicegate_core::time::DAY;
use sluicegate_core::{Rate, Span, Time};
use std::str::FromStr;

/// The longest text of one limit, in bytes. The longest sensible one is below 100.
pub const LIMIT_LEN_MAX: usize = 256;
/// The most limits in one list.
pub const LIMITS_MAX: usize = 8;
/// Between the limits of a list.
pub(super) const SEPARATOR: &str = " + ";
/// The longest text of a list of limits, in bytes: as many limits as there may be, and what is
/// between them.
pub const LIST_LEN_MAX: usize = LIMITS_MAX * LIMIT_LEN_MAX + (LIMITS_MAX - 1) * SEPARATOR.len();

/// What the algorithms are called elsewhere, as letters only.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("gcra", "token-bucket"),
    ("throttle", "token-bucket"),
    ("token", "token-bucket"),
    ("tokens", "token-bucket"),
    ("bucket", "token-bucket"),
    ("leaky", "leaky-bucket"),
    ("funnel", "leaky-bucket"),
    ("fixed", "fixed-window"),
    ("window", "fixed-window"),
    ("quota", "fixed-window"),
    ("log", "sliding-log"),
    ("slidingwindowlog", "sliding-log"),
    ("movingwindow", "sliding-log"),
    ("slidingcounter", "sliding-window"),
    ("slidingwindowcounter", "sliding-window"),
    ("rollingwindow", "sliding-window"),
    ("interval", "min-interval"),
    ("cooldown", "min-interval"),
    ("debounce", "min-interval"),
    ("pacing", "pacer"),
    ("shaper", "pacer"),
    ("guava", "smooth"),
    ("ratelimiter", "smooth"),
    ("smoothbursty", "smooth"),
    ("smoothwarmingup", "smooth"),
    ("semaphore", "concurrency"),
    ("concurrent", "concurrency"),
    ("inflight", "concurrency"),
    ("bulkhead", "concurrency"),
];

/// Why a limit is rejected, and the word that it is about.
struct Rejected<'a> {
    error: SyntaxError,
    word: &'a str,
}

/// Says which word an error is about.
fn at<'a>(word: &'a str) -> impl FnOnce(SyntaxError) -> Rejected<'a> {
    move |error| Rejected { error, word }
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        limit(text, Bounds::default())
    }
}

pub(super) fn limit(text: &str, bounds: Bounds) -> Result<Limit, LimitError> {
    let listed = parts(text).count();
    if listed > 1 {
        let problem = format!("a list of {listed} limits is not one limit");
        return Err(
            SyntaxError::new(problem, "write one, or read the list with Limit::parse_list").in_line(text)
        );
    }
    one(text, bounds).map_err(|Rejected { error, word }| LimitError::at(text, text, word, error))
}

/// Reads `A + B`.
pub(super) fn list(text: &str, bounds: Bounds) -> Result<Vec<Limit>, LimitError> {
    if text.len() > LIST_LEN_MAX {
        let problem = format!("limits of {} bytes are above the maximum, {LIST_LEN_MAX}", text.len());
        return Err(SyntaxError::new(problem, "shorten them, or leave some out").in_line(text));
    }
    let listed = parts(text).count();
    if listed > LIMITS_MAX {
        let problem = format!("a list of {listed} limits is above the maximum, {LIMITS_MAX}");
        return Err(SyntaxError::new(problem, "leave some out").in_line(text));
    }
    let read = |part| {
        let limit = if listed > 1 && str::is_empty(part) {
            let error = SyntaxError::new("there is no limit beside a +", "write one on each side of it");
            Err(Rejected { error, word: part })
        } else {
            one(part, bounds)
        };
        limit.map_err(|Rejected { error, word }| LimitError::at(text, part, word, error))
    };
    parts(text).map(read).collect()
}

/// Splits a text at every word that is a `+`. (`tz=+08:00` has a plus too.)
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let is_gap = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_whitespace);
    let is_separator = move |at: &usize| {
        let before = at.checked_sub(1).and_then(|before| text.as_bytes().get(before));
        is_gap(before) && is_gap(text.as_bytes().get(at + 1))
    };
    let ends = text.match_indices('+').map(|(at, _)| at).filter(is_separator).chain([text.len()]);
    ends.scan(0, |start, end| {
        let part = text.get(*start..end).unwrap_or_default();
        *start = end + 1;
        Some(part.trim_ascii())
    })
}

fn one(text: &str, bounds: Bounds) -> Result<Limit, Rejected<'_>> {
    if text.len() > LIMIT_LEN_MAX {
        let problem = format!("a limit of {} bytes is above the maximum, {LIMIT_LEN_MAX}", text.len());
        let error = SyntaxError::new(problem, "write a shorter one, such as sliding-log 5/60s");
        return Err(Rejected { error, word: text });
    }
    let spec = spec(text)?;
    Limit::new(spec, bounds).map_err(|out| Rejected { error: out.into(), word: text })
}

/// A measure, as the algorithm takes it.
enum Measure<'a> {
    Interval(Span),
    AtOnce(u64),
    Windows(u64, Period<'a>),
    Rate(Rate),
}

fn spec(text: &str) -> Result<Spec, Rejected<'_>> {
    let mut words = text.split_ascii_whitespace();
    if let Some(word) = words.clone().find(|word| runs_into_plus(word)) {
        let problem = format!("the + in {} is part of a word", quoted(word));
        return Err(at(word)(SyntaxError::new(problem, "put a space on each side of it, as in A + B")));
    }
    let Some(word) = words.next() else {
        return Err(at(text)(SyntaxError::new("the limit is empty", "write one, such as sliding-log 5/60s")));
    };
    let algorithm = algorithm(word).map_err(at(word))?;
    let example = match algorithm {
        "min-interval" => "200ms",
        "concurrency" => "10",
        _ => "5/60s",
    };
    let measure = words.next().unwrap_or_default();
    if measure.is_empty() || measure.contains('=') {
        let problem = format!("{algorithm} needs its measure right after it");
        return Err(at(word)(SyntaxError::new(problem, format!("write {algorithm} {example}"))));
    }
    // The measure before the options: a space too many in `5 / 60s` is a mistake in the measure.
    let measure = self::measure(algorithm, measure).map_err(at(measure))?;
    let mut options = Options::none(takes(algorithm));
    for word in words {
        options.push(word).map_err(at(word))?;
    }
    let spec = with_options(algorithm, measure, &mut options);
    let spec = spec.map_err(at(options.taken().unwrap_or(text)))?;
    options.reject_unknown().map_err(at(options.first().unwrap_or(text)))?;
    Ok(spec)
}

/// Returns `true` for a word such as `5/s+pacer`, which was meant as two limits.
fn runs_into_plus(word: &str) -> bool {
    word.split_once('+').is_some_and(|(before, after)| {
        Limit::ALGORITHMS.contains(&after) || (after.is_empty() && !before.is_empty())
    })
}

fn measure<'a>(algorithm: &str, word: &'a str) -> Result<Measure<'a>, SyntaxError> {
    Ok(match algorithm {
        "min-interval" => Measure::Interval(interval(word)?),
        "concurrency" => Measure::AtOnce(at_once(word)?),
        "fixed-window" => {
            let (count, period) = count_and_period(word)?;
            Measure::Windows(checked_count("count", count, 1)?, period)
        }
        _ => Measure::Rate(rate(word)?),
    })
}

#[allow(clippy::needless_pass_by_value, reason = "its parts go into the limit")]
fn with_options(
    algorithm: &str,
    measure: Measure<'_>,
    options: &mut Options<'_>,
) -> Result<Spec, SyntaxError> {
    let rate = match measure {
        Measure::Interval(interval) => return Ok(Spec::MinInterval { interval }),
        Measure::AtOnce(count) => {
            return Ok(Spec::Concurrency { count, ttl: options.take("ttl").map(span).transpose()? });
        }
        Measure::Windows(count, period) => {
            return Ok(Spec::FixedWindow { count, windows: windows(period, options)? });
        }
        Measure::Rate(rate) => rate,
    };
    Ok(match algorithm {
        "token-bucket" => token_bucket(rate, options)?,
        "leaky-bucket" => {
            Spec::LeakyBucket { rate, capacity: options.number("capacity", 1)?.unwrap_or(rate.count()) }
        }
        "pacer" => Spec::Pacer { rate, queue: options.number("queue", 0)?.unwrap_or(rate.count()) },
        "sliding-log" => Spec::SlidingLog { rate, count_all: count_all(options)? },
        "smooth" => smooth(rate, options)?,
        "sliding-window" => Spec::SlidingWindow { rate },
        other => unreachable!("{other} is in `Limit::ALGORITHMS` and has no arm here"),
    })
}

fn algorithm(word: &str) -> Result<&'static str, SyntaxError> {
    if word.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') {
        return Err(missing_algorithm(word));
    }
    name("algorithm", word, &Limit::ALGORITHMS).map_err(|error| {
        let spelled: String = letters(word).collect();
        let advice = match OTHER_NAMES.iter().find(|(other, _)| *other == spelled) {
            _ if spelled == "sliding" => "did you mean sliding-log or sliding-window?".to_owned(),
            Some((other, here)) => format!("{other} is called {here} here"),
            None => error.advice,
        };
        SyntaxError::new(error.problem, advice)
    })
}

/// The error for a measure without an algorithm: `5/s`.
fn missing_algorithm(word: &str) -> SyntaxError {
    let rate = whole_rate(word).or_else(|| rate(word).is_ok().then(|| word.to_owned()));
    let (what, example) = if let Some(rate) = rate {
        ("a rate", format!("token-bucket {rate}"))
    } else if count_and_period(word).is_ok() {
        ("a rate", format!("fixed-window {word}"))
    } else if span(word).is_ok() {
        ("a duration", format!("min-interval {word}"))
    } else if number("count", word).is_ok() {
        ("a count", format!("concurrency {word}, or token-bucket {word}/s"))
    } else {
        ("a measure", "token-bucket 5/s".to_owned())
    };
    let problem = format!("{} is {what} without an algorithm", quoted(word));
    SyntaxError::new(problem, format!("name an algorithm, for example {example}"))
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
    if period.is_none() && cold.is_some() {
        let problem = "cold= says how much slower a limiter is before its warm-up";
        return Err(SyntaxError::new(problem, "add warmup=, such as warmup=4s, or leave cold= out"));
    }
    let burst = options.number("burst", 1)?;
    if period.is_some() && burst.is_some() {
        let problem = "burst= does not go with warmup=, which itself says how much is stored";
        return Err(SyntaxError::new(problem, "leave one of them out"));
    }
    let initial = options.number("initial", 0)?;
    let start = options.take("start").map(moment).transpose()?;
    let warm_up = period.map(|period| WarmUp { period, cold: cold.unwrap_or(ColdFactor::DEFAULT) });
    Ok(Spec::Smooth { rate, warm_up, burst, initial, start })
}

/// A factor such as `3` or `2.5`.
fn cold(word: &str) -> Result<ColdFactor, SyntaxError> {
    let reject = |problem: &str| {
        let problem = format!("cold {} {problem}", quoted(word));
        SyntaxError::new(problem, "use 1 to 1000 with up to three places after the point, such as 3 or 2.5")
    };
    let (whole, part) = word.split_once('.').unwrap_or((word, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return Err(reject("is not a number"));
    }
    let places = part.trim_end_matches('0');
    if places.len() > 3 {
        return Err(reject("is too fine"));
    }
    format!("{whole}{places:0<3}")
        .parse()
        .ok()
        .and_then(ColdFactor::from_thousandths)
        .ok_or_else(|| reject("is not from 1 to 1000"))
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
        let advice = Zone::nearest(word).map_or_else(
            || "use a name such as Asia/Shanghai, or an offset such as +08:00".to_owned(),
            |meant| format!("did you mean {meant}?"),
        );
        SyntaxError::new(format!("unknown time zone {}", quoted(word)), advice)
    })
}

fn moment(word: &str) -> Result<Time, SyntaxError> {
    let advice = "use an RFC 3339 time with its offset, such as 2026-11-11T00:00:00+08:00";
    let reject = |problem: String| SyntaxError::new(problem, advice);
    let moment: Timestamp = Some(word)
        .filter(|word| is_rfc_3339(word))
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| reject(format!("{} is not a time", quoted(word))))?;
    u64::try_from(moment.as_microsecond())
        .ok()
        .and_then(Time::from_micros)
        .ok_or_else(|| reject(format!("{} is outside the years 1970 to 9892", quoted(word))))
}

/// Returns `true` for the shape of `2026-11-11T00:00:00[.123456]+08:00` or `Z`. There may be no
/// such day.
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
        let meant = rate(measure).map(|rate| rate.period().as_micros().div_ceil(rate.count()));
        let meant = meant.map_or_else(|_| "200ms".to_owned(), |micros| Span::from_micros(micros).to_string());
        return Err(SyntaxError::new(problem, format!("write min-interval {meant}")));
    }
    span(measure)
}

/// How many at once.
fn at_once(measure: &str) -> Result<u64, SyntaxError> {
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
