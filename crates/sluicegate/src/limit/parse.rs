//! Reads the grammar. Every refusal points at the word and says what to write instead.

use super::error::{LimitError, shown};
use super::{Bounds, Initial, Limit, Spec, WindowSpec};
use crate::calendar::{CalendarUnit, Zone};
use jiff::Timestamp;
use sluicegate_core::bounds::{COUNT_MAX, OutOfBounds, checked_count};
use sluicegate_core::time::{DAY, SECOND};
use sluicegate_core::{Rate, Span, Time};
use std::str::FromStr;

/// The longest text that can be a limit, in bytes. The longest sensible one is below 100.
const TEXT_MAX: usize = 256;

const UNITS: &str = "us ms s m h d (or second minute hour day, and for fixed-window also week month year)";

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        limit(text, Bounds::default())
    }
}

/// What is wrong and what to write instead.
struct Mistake {
    problem: String,
    advice: String,
}

impl Mistake {
    fn new(problem: impl Into<String>, advice: impl Into<String>) -> Mistake {
        Mistake { problem: problem.into(), advice: advice.into() }
    }
}

impl From<OutOfBounds> for Mistake {
    fn from(out: OutOfBounds) -> Mistake {
        Mistake::new(out.problem(), out.advice())
    }
}

pub(super) fn limit(text: &str, bounds: Bounds) -> Result<Limit, LimitError> {
    let refuse = |Mistake { problem, advice }| LimitError::new(text, problem, advice);
    if text.len() > TEXT_MAX {
        let problem = format!("a limit of {} bytes is above the most, {TEXT_MAX}", text.len());
        return Err(refuse(Mistake::new(problem, "write one limit, such as sliding-log 5/60s")));
    }
    let spec = spec(text).map_err(refuse)?;
    Limit::new(spec, bounds).map_err(|out| refuse(out.into()))
}

fn spec(text: &str) -> Result<Spec, Mistake> {
    let mut words = text.split_ascii_whitespace();
    let Some(word) = words.next() else {
        return Err(Mistake::new("the limit is empty", "write one, such as sliding-log 5/60s"));
    };
    let algorithm = algorithm(word)?;
    let example = if algorithm == "min-interval" { "200ms" } else { "5/60s" };
    let measure = words.next().unwrap_or_default();
    if measure.is_empty() || measure.contains('=') {
        let problem = format!("{algorithm} needs its measure right after it");
        return Err(Mistake::new(problem, format!("write {algorithm} {example}")));
    }
    // The measure before the options: a space too many in `5 / 60s` is a mistake in the measure.
    match algorithm {
        "min-interval" => {
            let interval = interval(measure)?;
            Options::read(algorithm, words)?.refuse_the_rest()?;
            Ok(Spec::MinInterval { interval })
        }
        "fixed-window" => {
            let (count, period) = count_and_period(measure)?;
            let mut options = Options::read(algorithm, words)?;
            let windows = windows(period, &mut options)?;
            options.refuse_the_rest()?;
            Ok(Spec::FixedWindow { count: checked_count("count", count, 1)?, windows })
        }
        _ => {
            let rate = rate(measure)?;
            let mut options = Options::read(algorithm, words)?;
            let spec = match algorithm {
                "token-bucket" => token_bucket(rate, &mut options)?,
                "leaky-bucket" => Spec::LeakyBucket {
                    rate,
                    capacity: options.number("capacity", 1)?.unwrap_or(rate.count()),
                },
                "pacer" => Spec::Pacer { rate, queue: options.number("queue", 0)?.unwrap_or(rate.count()) },
                "sliding-log" => Spec::SlidingLog { rate, count_all: count_all(&mut options)? },
                _ => Spec::SlidingWindow { rate },
            };
            options.refuse_the_rest()?;
            Ok(spec)
        }
    }
}

fn algorithm(word: &str) -> Result<&'static str, Mistake> {
    if let Some(known) = Limit::ALGORITHMS.into_iter().find(|known| *known == word) {
        return Ok(known);
    }
    let all = Limit::ALGORITHMS.join(" ");
    if let "smooth" | "concurrency" = word {
        return Err(Mistake::new(
            format!("{word} is not available in this version"),
            format!("use one of {all}"),
        ));
    }
    let spelled = word.to_ascii_lowercase().replace('_', "-");
    let meant = Limit::ALGORITHMS.into_iter().find(|known| distance(known, &spelled) <= 2);
    let advice = meant.map_or_else(|| format!("use {all}"), |meant| format!("did you mean {meant}?"));
    Err(Mistake::new(format!("unknown algorithm {}", quoted(word)), advice))
}

/// How many letters have to be changed, added or dropped to turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let cheapest = (diagonal + usize::from(a != b)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], cheapest);
        }
    }
    row[other.len()]
}

fn count_all(options: &mut Options<'_>) -> Result<bool, Mistake> {
    match options.take("count") {
        None => Ok(false),
        Some("all") => Ok(true),
        Some(other) => Err(Mistake::new(
            format!("unknown count={}", quoted(other)),
            "use count=all, or leave it out to count allowed calls only",
        )),
    }
}

fn token_bucket(rate: Rate, options: &mut Options<'_>) -> Result<Spec, Mistake> {
    let burst = options.number("burst", 1)?.unwrap_or(rate.count());
    let tokens = options.number("initial", 0)?;
    let start = options.take("start").map(moment).transpose()?;
    if start.is_some() && tokens.is_none() {
        let problem = "start= says since when a bucket with initial= has been filling";
        return Err(Mistake::new(problem, "add initial=, such as initial=0, or leave start= out"));
    }
    // Starting full is the default, and then it does not matter since when.
    let initial = tokens.filter(|&tokens| tokens != burst).map(|tokens| Initial { tokens, start });
    Ok(Spec::TokenBucket { rate, burst, initial })
}

fn windows(period: Period<'_>, options: &mut Options<'_>) -> Result<WindowSpec, Mistake> {
    let start = options.take("start");
    let zone = options.take("tz").map(zone).transpose()?;
    match (period, zone) {
        (Period::Calendar(unit), zone) => calendar(unit, zone.unwrap_or_else(Zone::utc), start),
        (Period::Fixed { is_one_day: true, .. }, Some(zone)) => calendar(CalendarUnit::Day, zone, start),
        (Period::Fixed { word, .. }, Some(_)) => {
            let problem = format!("tz= goes with a calendar unit, not with {}", quoted(word));
            Err(Mistake::new(problem, "use day, week, month or year, or start=TIME"))
        }
        (Period::Fixed { period, .. }, None) => Ok(match start {
            None | Some("epoch") => WindowSpec::Aligned { start: Time::EPOCH, period },
            Some("first") => WindowSpec::First { period },
            Some(word) => WindowSpec::Aligned { start: moment(word)?, period },
        }),
    }
}

fn calendar(unit: CalendarUnit, zone: Zone, start: Option<&str>) -> Result<WindowSpec, Mistake> {
    if start.is_some() {
        let problem = format!("start= does not go with the calendar's {unit}");
        return Err(Mistake::new(problem, "leave start= out: the calendar says when it begins"));
    }
    if unit == CalendarUnit::Day && zone.is_utc() {
        // The UTC day is 24 hours from the epoch: one limit, one text.
        return Ok(WindowSpec::Aligned { start: Time::EPOCH, period: Span::from_micros(DAY) });
    }
    Ok(WindowSpec::Calendar { unit, zone })
}

fn zone(word: &str) -> Result<Zone, Mistake> {
    Zone::named(word).ok_or_else(|| {
        let problem = format!("unknown time zone {}", quoted(word));
        Mistake::new(problem, "use a name such as Asia/Shanghai, or an offset such as +08:00")
    })
}

fn moment(word: &str) -> Result<Time, Mistake> {
    let advice = "use an RFC 3339 time with its offset, such as 2026-11-11T00:00:00+08:00";
    let refuse = |problem: String| Mistake::new(problem, advice);
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

/// A period as it was written.
#[derive(Clone, Copy)]
enum Period<'a> {
    Fixed { period: Span, is_one_day: bool, word: &'a str },
    Calendar(CalendarUnit),
}

fn rate(measure: &str) -> Result<Rate, Mistake> {
    match count_and_period(measure)? {
        (count, Period::Fixed { period, .. }) => Ok(Rate::new(count, period)?),
        (_, Period::Calendar(unit)) => Err(calendar_only(unit)),
    }
}

fn calendar_only(unit: CalendarUnit) -> Mistake {
    let days = match unit {
        CalendarUnit::Day => "1d",
        CalendarUnit::Week => "7d",
        CalendarUnit::Month => "30d",
        CalendarUnit::Year => "365d",
    };
    let problem = format!("{} is a calendar unit of fixed-window", quoted(&unit.to_string()));
    Mistake::new(problem, format!("use {days}, or fixed-window"))
}

fn count_and_period(measure: &str) -> Result<(u64, Period<'_>), Mistake> {
    let Some((count, period)) = measure.split_once('/') else {
        let problem = format!("{} is not COUNT/PERIOD", quoted(measure));
        return Err(Mistake::new(problem, "write how many in how long without a space, such as 5/60s"));
    };
    let count = number("count", count)?;
    Ok((count, self::period(period)?))
}

fn interval(measure: &str) -> Result<Span, Mistake> {
    if measure.contains('/') {
        let problem = format!("{} is a rate, min-interval takes a duration", quoted(measure));
        let meant = rate(measure).map(|rate| rate.period().as_micros().div_ceil(u64::from(rate.count())));
        let meant = meant.map_or_else(|_| "200ms".to_owned(), |micros| Span::from_micros(micros).to_string());
        return Err(Mistake::new(problem, format!("write min-interval {meant}")));
    }
    match period(measure)? {
        Period::Fixed { period, .. } => Ok(period),
        Period::Calendar(unit) => Err(calendar_only(unit)),
    }
}

/// `[N]UNIT`.
fn period(word: &str) -> Result<Period<'_>, Mistake> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number_word, unit) = word.split_at(digits);
    if unit.starts_with(['.', '-', '+']) {
        let problem = format!("period {} is not a whole number and a unit", quoted(word));
        return Err(Mistake::new(problem, "use a smaller unit for parts, such as 1500ms for 1.5 s"));
    }
    let calendar = |unit| {
        if number_word.is_empty() {
            return Ok(Period::Calendar(unit));
        }
        let problem = format!("{} puts a number on a calendar unit", quoted(word));
        let days = if unit == CalendarUnit::Week { ", or days such as 7d" } else { "" };
        Err(Mistake::new(problem, format!("write {unit} alone{days}")))
    };
    let (size, is_day) = match unit {
        "us" => (1, false),
        "ms" => (1_000, false),
        "s" | "second" | "seconds" => (SECOND, false),
        "m" | "minute" | "minutes" => (60 * SECOND, false),
        "h" | "hour" | "hours" => (3_600 * SECOND, false),
        "d" | "day" | "days" => (DAY, true),
        "week" | "weeks" => return calendar(CalendarUnit::Week),
        "month" | "months" => return calendar(CalendarUnit::Month),
        "year" | "years" => return calendar(CalendarUnit::Year),
        "" => {
            let problem = match word {
                "" => "the period after / is missing".to_owned(),
                _ => format!("{} has no unit", quoted(word)),
            };
            return Err(Mistake::new(problem, format!("add one of {UNITS}")));
        }
        _ => {
            let meant = match unit {
                "sec" | "secs" | "S" => "write s; ",
                "min" | "mins" => "write m; ",
                "hr" | "hrs" | "H" => "write h; ",
                "D" => "write d; ",
                "\u{b5}s" | "\u{3bc}s" => "write us; ",
                _ => "",
            };
            return Err(Mistake::new(
                format!("unknown unit {}", quoted(unit)),
                format!("{meant}use {UNITS}"),
            ));
        }
    };
    let n = if number_word.is_empty() { Some(1) } else { number_word.parse::<u64>().ok() };
    let Some((n, micros)) = n.and_then(|n| Some((n, n.checked_mul(size)?))) else {
        let problem = format!("period {} is above the most, 3650d", shown(word));
        return Err(Mistake::new(problem, "use at most 3650d"));
    };
    let is_one_day = is_day && n == 1;
    Ok(Period::Fixed { period: Span::from_micros(micros), is_one_day, word })
}

/// A whole number of decimal digits.
fn number(what: &str, word: &str) -> Result<u64, Mistake> {
    if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_digit()) {
        let problem = format!("{what} {} is not a whole number", quoted(word));
        return Err(Mistake::new(problem, format!("use digits only, up to {COUNT_MAX}")));
    }
    word.parse().map_err(|_| {
        let problem = format!("{what} {} is above the most, {COUNT_MAX}", shown(word));
        Mistake::new(problem, "use a smaller number")
    })
}

fn quoted(word: &str) -> String {
    format!("\"{}\"", shown(word))
}

/// The `name=value` words.
struct Options<'a> {
    algorithm: &'static str,
    given: Vec<(&'a str, &'a str)>,
}

impl<'a> Options<'a> {
    fn read(algorithm: &'static str, words: impl Iterator<Item = &'a str>) -> Result<Options<'a>, Mistake> {
        let mut options: Vec<(&str, &str)> = Vec::new();
        for word in words {
            let Some((name, value)) = word.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                return Err(Mistake::new(format!("{} is not an option", quoted(word)), takes(algorithm)));
            };
            if value.is_empty() {
                return Err(Mistake::new(format!("{} has no value", quoted(word)), takes(algorithm)));
            }
            if options.iter().any(|(earlier, _)| *earlier == name) {
                let problem = format!("{} is given twice", quoted(name));
                return Err(Mistake::new(problem, "keep one of them"));
            }
            options.push((name, value));
        }
        Ok(Options { algorithm, given: options })
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let place = self.given.iter().position(|(option, _)| *option == name)?;
        Some(self.given.remove(place).1)
    }

    fn number(&mut self, name: &'static str, least: u32) -> Result<Option<u32>, Mistake> {
        let Some(value) = self.take(name) else { return Ok(None) };
        Ok(Some(checked_count(name, number(name, value)?, least)?))
    }

    fn refuse_the_rest(&self) -> Result<(), Mistake> {
        match self.given.first() {
            None => Ok(()),
            Some((name, _)) => {
                Err(Mistake::new(format!("unknown option {}", quoted(name)), takes(self.algorithm)))
            }
        }
    }
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
        _ => "min-interval takes no options",
    }
}
