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
        let said = out.to_string();
        let (problem, advice) =
            said.split_once("; ").unwrap_or((&said, "see the bounds in the documentation"));
        Mistake::new(problem, advice)
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
    let Some(algorithm) = words.next() else {
        return Err(Mistake::new("the limit is empty", "write one, such as sliding-log 5/60s"));
    };
    check_algorithm(algorithm)?;
    let Some(measure) = words.next() else {
        let example = if algorithm == "min-interval" { "min-interval 200ms" } else { "5/60s" };
        return Err(Mistake::new(
            format!("{algorithm} needs a measure after it"),
            format!("write {example}"),
        ));
    };
    let mut options = Options::read(words)?;
    let spec = match algorithm {
        "token-bucket" => token_bucket(rate(measure)?, &mut options)?,
        "leaky-bucket" => {
            let rate = rate(measure)?;
            Spec::LeakyBucket { rate, capacity: options.number("capacity", 1)?.unwrap_or(rate.count()) }
        }
        "min-interval" => Spec::MinInterval { interval: interval(measure)? },
        "pacer" => {
            let rate = rate(measure)?;
            Spec::Pacer { rate, queue: options.number("queue", 0)?.unwrap_or(rate.count()) }
        }
        "fixed-window" => fixed_window(measure, &mut options)?,
        "sliding-log" => {
            let count_all = match options.take("count") {
                None => false,
                Some("all") => true,
                Some(other) => {
                    let problem = format!("unknown count={}", quoted(other));
                    return Err(Mistake::new(
                        problem,
                        "use count=all, or leave it out to count allowed calls only",
                    ));
                }
            };
            Spec::SlidingLog { rate: rate(measure)?, count_all }
        }
        _ => Spec::SlidingWindow { rate: rate(measure)? },
    };
    options.refuse_the_rest(algorithm)?;
    Ok(spec)
}

fn check_algorithm(word: &str) -> Result<(), Mistake> {
    if Limit::ALGORITHMS.contains(&word) {
        return Ok(());
    }
    let all = Limit::ALGORITHMS.join(" ");
    Err(match word {
        "smooth" => Mistake::new("smooth is not available in this version", "use token-bucket or pacer"),
        "concurrency" => Mistake::new(
            "concurrency is not available in this version",
            format!("a limit on calls at once is none on their rate, use one of {all}"),
        ),
        _ => Mistake::new(format!("unknown algorithm {}", quoted(word)), format!("use {all}")),
    })
}

fn token_bucket(rate: Rate, options: &mut Options<'_>) -> Result<Spec, Mistake> {
    let burst = options.number("burst", 1)?.unwrap_or(rate.count());
    let tokens = options.number("initial", 0)?;
    let start = match options.take("start") {
        None => None,
        Some(_) if tokens.is_none_or(|tokens| tokens == burst) => {
            let problem = "start= says since when a bucket with initial= has been filling";
            return Err(Mistake::new(problem, "add initial=, such as initial=0, or leave start= out"));
        }
        Some(word) => Some(moment(word)?),
    };
    // Starting full is the default, and then it does not matter since when.
    let initial = tokens.filter(|&tokens| tokens != burst).map(|tokens| Initial { tokens, start });
    Ok(Spec::TokenBucket { rate, burst, initial })
}

fn fixed_window(measure: &str, options: &mut Options<'_>) -> Result<Spec, Mistake> {
    let (count, period) = count_and_period(measure)?;
    let start = options.take("start");
    let zone = options.take("tz").map(zone).transpose()?;
    let unit = match (period, &zone) {
        (Period::Calendar(unit), _) => Some(unit),
        (Period::Fixed { is_one_day: true, .. }, Some(_)) => Some(CalendarUnit::Day),
        (Period::Fixed { .. }, None) => None,
        (Period::Fixed { word, .. }, Some(_)) => {
            let problem = format!("tz= goes with a calendar unit, not with {}", quoted(word));
            return Err(Mistake::new(problem, "use day, week, month or year, or start=TIME"));
        }
    };
    let windows = match (unit, period) {
        (Some(unit), _) => {
            if start.is_some() {
                let problem = format!("start= does not go with the calendar's {unit}");
                return Err(Mistake::new(problem, "leave start= out: the calendar says when it begins"));
            }
            let zone = zone.unwrap_or_else(Zone::utc);
            if unit == CalendarUnit::Day && zone.is_utc() {
                // The UTC day is 24 hours from the epoch: one limit, one text.
                WindowSpec::Aligned { start: Time::EPOCH, period: Span::from_micros(DAY) }
            } else {
                WindowSpec::Calendar { unit, zone }
            }
        }
        (None, Period::Fixed { period, .. }) => match start {
            None | Some("epoch") => WindowSpec::Aligned { start: Time::EPOCH, period },
            Some("first") => WindowSpec::First { period },
            Some(word) => WindowSpec::Aligned { start: moment(word)?, period },
        },
        (None, Period::Calendar(_)) => unreachable!("a calendar period has a unit"),
    };
    Ok(Spec::FixedWindow { count: checked_count("count", count, 1)?, windows })
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
    let moment: Timestamp = word.parse().map_err(|_| refuse(format!("{} is not a time", quoted(word))))?;
    if moment.subsec_nanosecond() % 1_000 != 0 {
        return Err(refuse(format!("{} is finer than a microsecond", quoted(word))));
    }
    u64::try_from(moment.as_microsecond())
        .ok()
        .and_then(Time::from_micros)
        .ok_or_else(|| refuse(format!("{} is before 1970, the earliest time there is", quoted(word))))
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
        return Err(Mistake::new(problem, "write how many in how long, such as 5/60s"));
    };
    let count = number("count", count)?;
    Ok((count, self::period(period)?))
}

fn interval(measure: &str) -> Result<Span, Mistake> {
    if measure.contains('/') {
        let problem = format!("{} is a rate, min-interval takes a duration", quoted(measure));
        return Err(Mistake::new(problem, "write min-interval 200ms for at most one each 200 ms"));
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
    let calendar = |unit| {
        if number_word.is_empty() {
            return Ok(Period::Calendar(unit));
        }
        let problem = format!("{} puts a number on a calendar unit", quoted(word));
        let days = if unit == CalendarUnit::Week { ", or days such as 14d" } else { "" };
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
            let problem = format!("{} has no unit", quoted(word));
            return Err(Mistake::new(problem, format!("add one of {UNITS}")));
        }
        _ => return Err(Mistake::new(format!("unknown unit {}", quoted(unit)), format!("use {UNITS}"))),
    };
    let n = if number_word.is_empty() { 1 } else { number("period", number_word)? };
    let Some(micros) = n.checked_mul(size) else {
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
struct Options<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Options<'a> {
    fn read(words: impl Iterator<Item = &'a str>) -> Result<Options<'a>, Mistake> {
        let mut options = Vec::new();
        for word in words {
            let Some((name, value)) = word.split_once('=').filter(|(_, value)| !value.is_empty()) else {
                let problem = format!("{} is not an option", quoted(word));
                return Err(Mistake::new(problem, "write options as name=value, such as burst=15"));
            };
            if options.iter().any(|(earlier, _)| *earlier == name) {
                let problem = format!("{} is given twice", quoted(name));
                return Err(Mistake::new(problem, "keep one of them"));
            }
            options.push((name, value));
        }
        Ok(Options(options))
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let place = self.0.iter().position(|(option, _)| *option == name)?;
        Some(self.0.remove(place).1)
    }

    fn number(&mut self, name: &'static str, least: u32) -> Result<Option<u32>, Mistake> {
        let Some(value) = self.take(name) else { return Ok(None) };
        Ok(Some(checked_count(name, number(name, value)?, least)?))
    }

    fn refuse_the_rest(&self, algorithm: &str) -> Result<(), Mistake> {
        let Some((name, _)) = self.0.first() else { return Ok(()) };
        let takes = match algorithm {
            "token-bucket" => "token-bucket takes burst= initial= start=",
            "leaky-bucket" => "leaky-bucket takes capacity=",
            "pacer" => "pacer takes queue=",
            "fixed-window" => "fixed-window takes start= tz=",
            "sliding-log" => "sliding-log takes count=all",
            "sliding-window" => "sliding-window takes no options",
            _ => "min-interval takes no options",
        };
        Err(Mistake::new(format!("unknown option {}", quoted(name)), takes))
    }
}
