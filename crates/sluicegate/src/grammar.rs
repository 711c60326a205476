//! How a line of text is read, a limit's or any other that is written in the same way: a name, a measure, options.
//!
//! Not for users of the library: lines of text of this workspace's other crates are read by it too.
//!
//! Every denial is a [`SyntaxError`]: what is wrong with which word, and what to write instead.

use crate::calendar::CalendarUnit;
use crate::limit::LimitError;
use sluicegate_core::bounds::{COUNT_MAX, OutOfBounds, checked_count};
use sluicegate_core::time::{DAY, SECOND};
use sluicegate_core::{Rate, Span};
use std::fmt;

const UNITS: &str = "us ms s m h d (or second minute hour day, and for fixed-window also week month year)";

/// Longer texts are cut where an error repeats them, in characters.
const SHOWN_MAX: usize = 80;

/// What is wrong and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// What is wrong, with the value.
    pub problem: String,
    /// What to write instead.
    pub advice: String,
}

impl SyntaxError {
    /// A problem and its advice.
    pub fn new(problem: impl Into<String>, advice: impl Into<String>) -> SyntaxError {
        SyntaxError { problem: problem.into(), advice: advice.into() }
    }

    /// The error for the whole line in which the mistake is.
    pub fn in_line(self, text: &str) -> LimitError {
        LimitError::new(text, self.problem, self.advice)
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.advice)
    }
}

impl std::error::Error for SyntaxError {}

impl From<OutOfBounds> for SyntaxError {
    fn from(out: OutOfBounds) -> SyntaxError {
        SyntaxError::new(out.problem(), out.advice())
    }
}

/// The name that was written; or which is meant, if one is close, or else all of them.
///
/// # Errors
/// When it is none of the known ones.
pub fn name(what: &str, word: &str, known: &[&'static str]) -> Result<&'static str, SyntaxError> {
    let spelled = word.to_ascii_lowercase().replace('_', "-");
    if let Some(known) = known.iter().find(|known| **known == word) {
        return Ok(known);
    }
    let meant = nearest(&spelled, known.iter().copied());
    let advice =
        meant.map_or_else(|| format!("use {}", known.join(" ")), |meant| format!("did you mean {meant}?"));
    Err(SyntaxError::new(format!("unknown {what} {}", quoted(word)), advice))
}

/// The known name nearest to a misspelt one; the first on a tie. It must be at most two edits away,
/// and one edit per three of its letters: a short name suggests itself only for an obvious slip.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().filter_map(|known| {
        let edits_max = (known.len() / 3).min(2);
        // Checked first, as it is cheap and the word may be long.
        let edits = (known.len().abs_diff(word.len()) <= edits_max).then(|| distance(known, word))?;
        (edits <= edits_max).then_some((edits, known))
    });
    near.min_by_key(|(edits, _)| *edits).map(|(_, known)| known)
}

/// The number of edits that turn one word into the other: a letter changed, added or dropped, or two
/// neighbours swapped.
fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut before = vec![0; other.len() + 1];
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut next = vec![i; other.len() + 1];
        for j in 1..=other.len() {
            let changed = row[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            next[j] = changed.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        (before, row) = (row, next);
    }
    row[other.len()]
}

/// A period as it was written.
#[derive(Clone, Copy)]
pub(crate) enum Period<'a> {
    Fixed { period: Span, is_one_day: bool, word: &'a str },
    Calendar(CalendarUnit),
}

/// `COUNT/PERIOD`, such as `10/s`.
///
/// # Errors
/// When it is not that, or out of bounds.
pub fn rate(measure: &str) -> Result<Rate, SyntaxError> {
    match count_and_period(measure)? {
        (count, Period::Fixed { period, .. }) => Ok(Rate::new(count, period)?),
        (_, Period::Calendar(unit)) => Err(calendar_only(unit)),
    }
}

/// A length of time, such as `90s`.
///
/// # Errors
/// When it is not one, or a unit of the calendar.
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
    let Some((count, period)) = measure.split_once('/') else {
        let problem = format!("{} is not COUNT/PERIOD", quoted(measure));
        return Err(SyntaxError::new(problem, "write how many in how long without a space, such as 5/60s"));
    };
    let count = number("count", count)?;
    Ok((count, self::period(period)?))
}

/// `[N]UNIT`.
pub(crate) fn period(word: &str) -> Result<Period<'_>, SyntaxError> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number_word, unit) = word.split_at(digits);
    if unit.starts_with(['.', '-', '+']) {
        let problem = format!("period {} is not a whole number and a unit", quoted(word));
        return Err(SyntaxError::new(problem, "use a smaller unit for parts, such as 1500ms for 1.5 s"));
    }
    let calendar = |unit| {
        if number_word.is_empty() {
            return Ok(Period::Calendar(unit));
        }
        let problem = format!("{} puts a number on a calendar unit", quoted(word));
        let days = if unit == CalendarUnit::Week { ", or days such as 7d" } else { "" };
        Err(SyntaxError::new(problem, format!("write {unit} alone{days}")))
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
            return Err(SyntaxError::new(problem, format!("add one of {UNITS}")));
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
            return Err(SyntaxError::new(
                format!("unknown unit {}", quoted(unit)),
                format!("{meant}use {UNITS}"),
            ));
        }
    };
    let n = if number_word.is_empty() { Some(1) } else { number_word.parse::<u64>().ok() };
    let Some((n, micros)) = n.and_then(|n| Some((n, n.checked_mul(size)?))) else {
        let problem = format!("period {} is above the most, 3650d", shown(word));
        return Err(SyntaxError::new(problem, "use at most 3650d"));
    };
    let is_one_day = is_day && n == 1;
    Ok(Period::Fixed { period: Span::from_micros(micros), is_one_day, word })
}

/// A whole number of decimal digits.
///
/// # Errors
/// When there is anything but digits, or far too many of them.
pub fn number(what: &str, word: &str) -> Result<u64, SyntaxError> {
    if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_digit()) {
        let problem = format!("{what} {} is not a whole number", quoted(word));
        return Err(SyntaxError::new(problem, format!("use digits only, up to {COUNT_MAX}")));
    }
    word.parse().map_err(|_| {
        let problem = format!("{what} {} is above the most, {COUNT_MAX}", shown(word));
        SyntaxError::new(problem, "use a smaller number")
    })
}

/// A whole number of per cent: `50%`.
///
/// # Errors
/// When there is no `%`, or no whole number before it.
pub fn percent(what: &str, word: &str) -> Result<u64, SyntaxError> {
    match word.strip_suffix('%') {
        Some(digits) => number(what, digits),
        None => Err(SyntaxError::new(
            format!("{what} {} has no %", quoted(word)),
            format!("write {}%", meant_percent(word)),
        )),
    }
}

/// How many per cent somebody meant who wrote them without the sign: `50`, or `0.5`.
fn meant_percent(word: &str) -> u32 {
    let meant = match word.strip_prefix("0.") {
        Some(tenths) if tenths.len() == 1 => tenths.parse().ok().map(|tenths: u32| tenths * 10),
        Some(hundredths) if hundredths.len() == 2 => hundredths.parse().ok(),
        Some(_) => None,
        None => word.parse().ok(),
    };
    meant.filter(|percent| (1..1_000).contains(percent)).unwrap_or(50)
}

/// A word in quotes, safe to print in one line.
pub fn quoted(word: &str) -> String {
    format!("\"{}\"", shown(word))
}

/// The `name=value` words.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    takes: &'static str,
    given: Vec<(&'a str, &'a str)>,
}

impl<'a> Options<'a> {
    /// Reads them; `takes` is the advice that lists those there are.
    ///
    /// # Errors
    /// When a word is not an option, has no value, or comes twice.
    pub fn read(
        takes: &'static str,
        words: impl Iterator<Item = &'a str>,
    ) -> Result<Options<'a>, SyntaxError> {
        let mut options: Vec<(&str, &str)> = Vec::new();
        for word in words {
            let Some((name, value)) = word.split_once('=').filter(|(name, _)| !name.is_empty()) else {
                return Err(SyntaxError::new(format!("{} is not an option", quoted(word)), takes));
            };
            if value.is_empty() {
                return Err(SyntaxError::new(format!("{} has no value", quoted(word)), takes));
            }
            if options.iter().any(|(earlier, _)| *earlier == name) {
                let problem = format!("{} is given twice", quoted(name));
                return Err(SyntaxError::new(problem, "keep one of them"));
            }
            options.push((name, value));
        }
        Ok(Options { takes, given: options })
    }

    /// The value of an option, which is then no longer there.
    pub fn take(&mut self, name: &str) -> Option<&'a str> {
        let place = self.given.iter().position(|(option, _)| *option == name)?;
        Some(self.given.remove(place).1)
    }

    /// The value of an option as a number up to the largest count.
    ///
    /// # Errors
    /// When it is not a number, or out of bounds.
    pub fn number(&mut self, name: &'static str, least: u32) -> Result<Option<u32>, SyntaxError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        Ok(Some(checked_count(name, number(name, value)?, least)?))
    }

    /// Says so if there are options that nobody has taken.
    ///
    /// # Errors
    /// With the first of them.
    pub fn refuse_the_rest(&self) -> Result<(), SyntaxError> {
        match self.given.first() {
            None => Ok(()),
            Some((name, _)) => Err(SyntaxError::new(format!("unknown option {}", quoted(name)), self.takes)),
        }
    }
}

/// A text that is safe to print in one line: what cannot be seen is escaped, and it is cut where it gets long.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::new();
    let mut left = SHOWN_MAX;
    for letter in text.chars() {
        // Control characters, and those that would change the direction or the line.
        let escaped: String = match letter {
            '"' | '\'' | '\\' => letter.to_string(),
            _ => letter.escape_debug().collect(),
        };
        let width = escaped.chars().count();
        if width > left {
            shown.push('…');
            break;
        }
        left -= width;
        shown.push_str(&escaped);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_a_near_name_is_suggested() {
        let known = ["server", "store", "memory", "log", "rule", "api.key"];
        for (word, meant) in [
            ("sever", Some("server")),
            ("sotre", Some("store")),
            ("lgo", Some("log")),
            ("api.kye", Some("api.key")),
            ("api", None),
            ("foo", None),
            ("logs", Some("log")),
            ("memoires", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
