//! Counts, periods and rates: `1k`, `15min`, `10/s`.

use super::{SyntaxError, quoted, shown, suggest};
use crate::calendar::CalendarUnit;
use crate::limit::print::unit as without_one;
use sluicegate_core::bounds::COUNT_MAX;
use sluicegate_core::time::{DAY, SECOND};
use sluicegate_core::{Rate, Span};

const UNITS: &str = "us ms s min h d (or second minute hour day, and for fixed-window also week month year)";
/// The spellings that a misspelt unit is compared with.
const LONG_UNITS: [&str; 9] =
    ["microseconds", "milliseconds", "seconds", "minutes", "hours", "days", "week", "month", "year"];

/// A period as it was written.
#[derive(Clone, Copy)]
pub(crate) enum Period<'a> {
    Fixed { period: Span, is_one_day: bool, word: &'a str },
    Calendar(CalendarUnit),
}

/// Reads `COUNT/PERIOD`, such as `10/s`.
///
/// # Errors
/// If it is anything else, or out of bounds.
pub fn rate(measure: &str) -> Result<Rate, SyntaxError> {
    match count_and_period(measure)? {
        (count, Period::Fixed { period, .. }) => Ok(Rate::new(count, period)?),
        (_, Period::Calendar(unit)) => Err(calendar_only(unit)),
    }
}

/// Reads a duration, such as `90s`.
///
/// # Errors
/// If it is not a duration, or a unit of the calendar.
pub fn span(word: &str) -> Result<Span, SyntaxError> {
    match period(word)? {
        Period::Fixed { period, .. } => Ok(period),
        Period::Calendar(unit) => Err(calendar_only(unit)),
    }
}

fn calendar_only(unit: CalendarUnit) -> SyntaxError {
    let days = match unit {
        CalendarUnit::Day => "1d",
        CalendarUnit::Week => "7d",
        CalendarUnit::Month => "30d",
        CalendarUnit::Year => "365d",
    };
    let problem = format!("{} is a calendar unit of fixed-window", quoted(&unit.to_string()));
    SyntaxError::new(problem, format!("use {days}, or fixed-window"))
}

pub(crate) fn count_and_period(measure: &str) -> Result<(u64, Period<'_>), SyntaxError> {
    super::reject_comma(measure)?;
    let Some((count, period)) = measure.split_once('/') else {
        let problem = format!("{} is not COUNT/PERIOD", quoted(measure));
        return Err(SyntaxError::new(problem, "write how many in how long without a space, such as 5/60s"));
    };
    let count = match number("count", count) {
        Err(_) if is_fraction(count) => {
            let problem = format!("count {} has a fraction, counts are whole numbers", quoted(count));
            let meant = whole_rate(measure);
            return Err(SyntaxError::new(
                problem,
                meant.map_or_else(|| "write 1/2s for 0.5/s".to_owned(), |meant| format!("write {meant}")),
            ));
        }
        count => count?,
    };
    Ok((count, self::period(period)?))
}

/// Returns the rate that `0.5/s` means in whole numbers: `1/2s`.
pub(crate) fn whole_rate(measure: &str) -> Option<String> {
    let (count, period) = measure.split_once('/')?;
    let (digits, factor) = suffixed(count);
    let (whole, part) = digits.split_once('.').filter(|_| is_fraction(count))?;
    let numerator = format!("{whole}{part}").parse::<u64>().ok()?.checked_mul(factor)?;
    let denominator = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    let common = gcd(numerator, denominator);
    let Period::Fixed { period, .. } = self::period(period).ok()? else { return None };
    let micros = period.as_micros().checked_mul(denominator / common)?;
    let rate = Rate::new(numerator / common, Span::from_micros(micros)).ok()?;
    Some(format!("{}/{}", rate.count(), without_one(rate.period())))
}

/// Returns `true` for a decimal fraction such as `0.5`, `.5` or `1.5k`.
fn is_fraction(word: &str) -> bool {
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (digits, _) = suffixed(word);
    digits
        .split_once('.')
        .is_some_and(|(whole, part)| !part.is_empty() && all_digits(whole) && all_digits(part))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Reads `[N]UNIT`.
pub(crate) fn period(word: &str) -> Result<Period<'_>, SyntaxError> {
    super::reject_comma(word)?;
    if word.contains(char::is_whitespace) {
        let together: String = word.split_whitespace().collect();
        let problem = format!("{} has a space", quoted(word));
        return Err(SyntaxError::new(problem, format!("write {}", quoted(&together))));
    }
    let digits = word.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'_').count();
    let (number_word, unit_word) = word.split_at(digits);
    if unit_word.starts_with(['.', '-', '+']) {
        let problem = format!("period {} is not a whole number and a unit", quoted(word));
        return Err(SyntaxError::new(problem, "use a smaller unit for parts, such as 1500ms for 1.5 s"));
    }
    let (size, is_day) = match unit(unit_word) {
        Some(PeriodUnit::Fixed { micros, is_day }) => (micros, is_day),
        Some(PeriodUnit::Calendar(unit)) if number_word.is_empty() => return Ok(Period::Calendar(unit)),
        Some(PeriodUnit::Calendar(unit)) => {
            let problem = format!("{} puts a number on a calendar unit", quoted(word));
            let days = if unit == CalendarUnit::Week { ", or days such as 7d" } else { "" };
            return Err(SyntaxError::new(problem, format!("write {unit} alone{days}")));
        }
        None => return Err(unknown_unit(word, unit_word)),
    };
    let n = match number_word {
        "" => Some(1),
        _ => whole_number("period", number_word)?,
    };
    let Some((n, micros)) = n.and_then(|n| Some((n, n.checked_mul(size)?))) else {
        let problem = format!("period {} is above the maximum, 3650d", shown(word));
        return Err(SyntaxError::new(problem, "use at most 3650d"));
    };
    let is_one_day = is_day && n == 1;
    Ok(Period::Fixed { period: Span::from_micros(micros), is_one_day, word })
}

enum PeriodUnit {
    Fixed { micros: u64, is_day: bool },
    Calendar(CalendarUnit),
}

/// Reads a unit, in any case.
fn unit(word: &str) -> Option<PeriodUnit> {
    // A lone M could be minutes or months, and is a million in a count.
    if word == "M" {
        return None;
    }
    let micros = match word.to_ascii_lowercase().as_str() {
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" | "\u{b5}s" | "\u{3bc}s" => 1,
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => 1_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600 * SECOND,
        "d" | "day" | "days" => DAY,
        "week" | "weeks" => return Some(PeriodUnit::Calendar(CalendarUnit::Week)),
        "month" | "months" => return Some(PeriodUnit::Calendar(CalendarUnit::Month)),
        "year" | "years" => return Some(PeriodUnit::Calendar(CalendarUnit::Year)),
        _ => return None,
    };
    Some(PeriodUnit::Fixed { micros, is_day: micros == DAY })
}

fn unknown_unit(word: &str, unit: &str) -> SyntaxError {
    match unit {
        "" => {
            let problem = match word {
                "" => "the period after / is missing".to_owned(),
                _ => format!("{} has no unit", quoted(word)),
            };
            SyntaxError::new(problem, format!("add one of {UNITS}"))
        }
        "M" => SyntaxError::new("the unit \"M\" could be minutes or months", "write min or month"),
        _ => {
            let advice = suggest::nearest(unit, LONG_UNITS)
                .map_or_else(|| format!("use {UNITS}"), |meant| format!("did you mean {meant}?"));
            SyntaxError::new(format!("unknown unit {}", quoted(unit)), advice)
        }
    }
}

/// Reads a whole number: `1000`, `1_000`, `1k`, `1M`, `1G`, `1T`.
///
/// # Errors
/// If it is not a whole number, or far too large.
pub fn number(what: &str, word: &str) -> Result<u64, SyntaxError> {
    super::reject_comma(word)?;
    let (digits, factor) = suffixed(word);
    if !digits.starts_with(|letter: char| letter.is_ascii_digit() || letter == '_')
        || !digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
    {
        let problem = format!("{what} {} is not a whole number", quoted(word));
        return Err(SyntaxError::new(problem, meant_count(word)));
    }
    whole_number(what, digits)?.and_then(|number| number.checked_mul(factor)).ok_or_else(|| {
        let problem = format!("{what} {} is above the maximum, {COUNT_MAX}", shown(word));
        SyntaxError::new(problem, "use a smaller number")
    })
}

/// The digits of a count, and what its suffix multiplies them by. `K` is `k`, but `m` is not `M`:
/// it could be meant as minutes.
fn suffixed(word: &str) -> (&str, u64) {
    let factors =
        [("k", 1_000), ("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000), ("T", 1_000_000_000_000)];
    factors
        .into_iter()
        .find_map(|(suffix, factor)| Some((word.strip_suffix(suffix)?, factor)))
        .unwrap_or((word, 1))
}

fn meant_count(word: &str) -> String {
    let usual = || format!("write a number up to {COUNT_MAX}, such as 500, 1_000 or 2k");
    let suffix = match word.bytes().last() {
        Some(b'm') => "M",
        Some(b'g' | b'b' | b'B') => "G",
        Some(b't') => "T",
        _ => return usual(),
    };
    let digits = &word[..word.len() - 1];
    match digits.parse::<u32>() {
        Ok(digits) => format!("write {digits}{suffix}"),
        Err(_) => usual(),
    }
}

/// Reads digits with single underscores between them; `None` if they overflow.
fn whole_number(what: &str, digits: &str) -> Result<Option<u64>, SyntaxError> {
    if digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        let problem = format!("{what} {} has a misplaced underscore", quoted(digits));
        return Err(SyntaxError::new(problem, "write single underscores between digits, such as 1_000"));
    }
    Ok(digits.replace('_', "").parse().ok())
}

/// Reads a whole percentage: `50%`.
///
/// # Errors
/// If there is no `%`, or no whole number before it.
pub fn percent(what: &str, word: &str) -> Result<u64, SyntaxError> {
    match word.strip_suffix('%') {
        Some(digits) => number(what, digits).map_err(|error| {
            // A percentage has bounds of its own, not those of a count.
            let advice = "write a whole percentage, such as 50%";
            SyntaxError { advice: advice.to_owned(), ..error }
        }),
        None => Err(SyntaxError::new(
            format!("{what} {} has no %", quoted(word)),
            format!("write {}%", meant_percent(word)),
        )),
    }
}

/// The percentage that was meant by one without its sign: `50`, or `0.5`.
fn meant_percent(word: &str) -> u32 {
    let meant = match word.strip_prefix("0.") {
        Some(tenths) if tenths.len() == 1 => tenths.parse().ok().map(|tenths: u32| tenths * 10),
        Some(hundredths) if hundredths.len() == 2 => hundredths.parse().ok(),
        Some(_) => None,
        None => word.parse().ok(),
    };
    meant.filter(|percent| (1..1_000).contains(percent)).unwrap_or(50)
}
