//! The times of a log, in all their forms.
//!
//! - `2026-10-10T13:55:36.123Z`: RFC 3339, also with a space for the `T` and an offset such as
//!   `+02:00`, `+0200` or `+02`;
//! - `10/Oct/2026:13:55:36 -0700`: as in common logs, months in English;
//! - `1791640536.123456`: seconds since 1970; what is too large for that is milliseconds from 10^11
//!   on, microseconds from 10^14 on and nanoseconds from 10^17 on.
//!
//! A time without an offset is taken as UTC, and what is finer than a microsecond is cut off.

use super::Problem;
use crate::values::{MONTHS, shown};
use jiff::civil::Date;
use jiff::tz::Offset;
use sluicegate_core::Time;

/// From so much on a number is not in seconds but in a finer unit, and the power of ten that makes
/// microseconds of it.
const UNITS: [(u128, i32); 3] = [(10_u128.pow(17), -3), (10_u128.pow(14), 0), (10_u128.pow(11), 3)];
/// Powers of ten that make microseconds out of seconds.
const SECONDS: i32 = 6;
/// This many digits of a number are read, which is enough: the largest has 21
/// before its point and, down to a microsecond, the smallest unit has 6 behind.
const DIGITS_MAX: i32 = 30;

/// Reads times. Lines that follow each other mostly share a second, so the last time is remembered
/// with its text.
#[derive(Default, Debug)]
pub(super) struct Moments {
    text: Vec<u8>,
    at: Time,
}

/// Why a text is no moment.
enum Fault {
    NoTime,
    TooEarly,
    TooLate,
}

impl Moments {
    /// The moment that a text says.
    pub(super) fn read(&mut self, text: &[u8]) -> Result<Time, Problem> {
        if text == self.text && !text.is_empty() {
            return Ok(self.at);
        }
        let at = moment(text).map_err(|fault| problem(&fault, text))?;
        self.text.clear();
        self.text.extend_from_slice(text);
        self.at = at;
        Ok(at)
    }
}

fn problem(fault: &Fault, text: &[u8]) -> Problem {
    let (what, advice) = match fault {
        Fault::NoTime => (
            "is in no form that is known",
            "use 2026-10-10T13:55:36Z, 10/Oct/2026:13:55:36 +0000 or seconds since 1970",
        ),
        Fault::TooEarly => ("is before 1970", "leave the line out, or correct the clock that wrote it"),
        Fault::TooLate => ("is after the year 9891", "use seconds, or whole milli-, micro- or nanoseconds"),
    };
    Problem { what: format!("the time {} {what}", shown(text)), advice }
}

fn moment(text: &[u8]) -> Result<Time, Fault> {
    let micros = match text {
        [_, _, b'/', ..] => common(text),
        [_, _, _, _, b'-', ..] => rfc3339(text),
        [b'-', digits @ ..] => return Err(number(digits).map_or(Fault::NoTime, |_| Fault::TooEarly)),
        _ => number(text),
    };
    let micros = micros.ok_or(Fault::NoTime)?;
    if micros < 0 {
        return Err(Fault::TooEarly);
    }
    u64::try_from(micros).ok().and_then(Time::from_micros).ok_or(Fault::TooLate)
}

/// `10/Oct/2026:13:55:36 -0700`.
fn common(text: &[u8]) -> Option<i128> {
    let (day, rest) = digits(text, 2)?;
    let (month, rest) = rest.strip_prefix(b"/")?.split_first_chunk::<3>()?;
    let month = (1..).zip(MONTHS).find(|(_, name)| name.as_bytes() == month)?.0;
    let (year, rest) = digits(rest.strip_prefix(b"/")?, 4)?;
    clock(Date::new(year, month, i8::try_from(day).ok()?).ok()?, rest.strip_prefix(b":")?)
}

/// `2026-10-10T13:55:36.123+02:00`.
fn rfc3339(text: &[u8]) -> Option<i128> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(rest.strip_prefix(b"-")?, 2)?;
    let (day, rest) = digits(rest.strip_prefix(b"-")?, 2)?;
    let [b'T' | b't' | b' ', rest @ ..] = rest else { return None };
    clock(Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?, rest)
}

/// `13:55:36`, perhaps with decimals, and perhaps an offset: on that day, in microseconds since
/// 1970.
fn clock(date: Date, text: &[u8]) -> Option<i128> {
    let (hour, rest) = digits(text, 2)?;
    let (minute, rest) = digits(rest.strip_prefix(b":")?, 2)?;
    let (second, rest) = digits(rest.strip_prefix(b":")?, 2)?;
    // A leap second is taken for the one before it, as computers' clocks do.
    let second = if second == 60 { 59 } else { second };
    let [hour, minute, second] = [hour, minute, second].map(i8::try_from);
    let local = date.to_datetime(jiff::civil::Time::new(hour.ok()?, minute.ok()?, second.ok()?, 0).ok()?);
    let (fraction, rest) = fraction(rest)?;
    // The last days of the year 9999 have no timestamp, and are too late anyway.
    let whole = Offset::UTC.to_timestamp(local).map_or(i64::MAX, jiff::Timestamp::as_microsecond);
    Some(i128::from(whole) + i128::from(fraction) - i128::from(offset(rest)?) * 1_000_000)
}

/// The microseconds that `.123` says, and what follows. Nothing says zero; some write a comma.
fn fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let [b'.' | b',', rest @ ..] = text else { return Some((0, text)) };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (decimals, rest) = rest.split_at_checked(length).filter(|_| length > 0)?;
    let decimal = |place: usize| u32::from(decimals.get(place).map_or(0, |byte| byte - b'0'));
    Some(((0..6).fold(0, |micros, place| micros * 10 + decimal(place)), rest))
}

/// The seconds that `Z`, `+02:00`, `+0200` or `+02` is ahead of UTC. Nothing is UTC.
fn offset(text: &[u8]) -> Option<i32> {
    let (sign, text) = match text.strip_prefix(b" ").unwrap_or(text) {
        [] | [b'Z' | b'z'] => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, rest) = digits(text, 2)?;
    let minutes =
        if rest.is_empty() { (0, rest) } else { digits(rest.strip_prefix(b":").unwrap_or(rest), 2)? };
    let is_offset = hours < 24 && minutes.0 < 60 && minutes.1.is_empty();
    is_offset.then_some(sign * (i32::from(hours) * 3600 + i32::from(minutes.0) * 60))
}

/// The number that the first `count` bytes are, at most four, and what follows.
fn digits(text: &[u8], count: usize) -> Option<(i16, &[u8])> {
    let (digits, rest) = text.split_at_checked(count)?;
    let all = digits.iter().all(u8::is_ascii_digit);
    all.then(|| (digits.iter().fold(0, |number, byte| number * 10 + i16::from(byte - b'0')), rest))
}

/// `1791640536.123456` in microseconds since 1970, also as `1.791640536123456e9`, computed in whole
/// numbers: a float would be off by a microsecond now and then.
fn number(text: &[u8]) -> Option<i128> {
    let mut value: u128 = 0;
    // The number is `value` × 10^`power`.
    let mut power: i32 = 0;
    let (mut is_behind, mut any, mut kept) = (false, false, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'0'..=b'9' => {
                any = true;
                if kept < DIGITS_MAX {
                    // Zeros in front do not count. Cannot overflow: 10^30 is below 2^128.
                    value = value * 10 + u128::from(byte - b'0');
                    kept += i32::from(value > 0);
                    power -= i32::from(is_behind);
                } else {
                    // At most as large as the line is long.
                    power += i32::from(!is_behind);
                }
            }
            b'.' if !is_behind => is_behind = true,
            b'e' | b'E' if any => {
                power += exponent(bytes.as_slice())?;
                break;
            }
            _ => return None,
        }
    }
    let shifted = |power: i32| {
        let by = 10_u128.saturating_pow(power.unsigned_abs());
        if power < 0 { value / by } else { value.saturating_mul(by) }
    };
    let whole = shifted(power);
    let unit = UNITS.iter().find(|(least, _)| whole >= *least).map_or(SECONDS, |(_, unit)| *unit);
    any.then(|| i128::try_from(shifted(power + unit)).unwrap_or(i128::MAX))
}

/// `9`, `+09` or `-9`.
fn exponent(text: &[u8]) -> Option<i32> {
    let (sign, text) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    // Three digits are more than any time needs.
    let is_exponent = (1..=3).contains(&text.len());
    is_exponent.then(|| digits(text, text.len())).flatten().map(|(number, _)| sign * i32::from(number))
}
