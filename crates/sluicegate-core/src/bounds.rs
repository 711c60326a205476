//! The bounds on a limit's parameters, checked once, when the limit is created. After that nothing
//! overflows.

mod nearest;

use crate::time::{Span, YEAR};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The largest count, burst, capacity and queue. It also bounds the cost of a call, which is
/// checked where a cost comes in from outside; the core itself accepts any `u64`.
pub const COUNT_MAX: u64 = 1_000_000_000_000;
/// The most calls that a bulkhead, a breaker or an adaptive limit counts.
pub const PERMITS_MAX: u32 = 1_000_000_000;
/// The most permits that `smooth` stores.
pub const STORED_MAX: u64 = 1_000_000_000;
/// The most parts into which a bucket divides a microsecond: the largest
/// COUNT / gcd(COUNT, PERIOD), with PERIOD in microseconds.
pub const PARTS_MAX: u32 = 1_000_000_000;
/// The most that a window or a log holds, debt included: what settling charges beyond that is not
/// recorded.
pub const DEBT_MAX: u64 = 2 * COUNT_MAX;
/// The longest period: ten years of 365 days.
pub const PERIOD_MAX: Span = Span::from_micros(10 * YEAR);
/// The longest time to fill a bucket from empty, the largest debt beyond that, and the longest
/// `max_wait` of a reservation: a hundred years of 365 days.
pub const CENTURY: Span = Span::from_micros(100 * YEAR);
/// The largest count of a sliding log, which keeps 16 bytes per call. With this many, no call keeps
/// a shared store busy for longer than a millisecond.
pub const LOG_COUNT_MAX: u64 = 10_000;

/// A value out of bounds. It prints the value, the bound and what to write instead, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutOfBounds {
    what: &'static str,
    value: u64,
    side: Side,
    bound: u64,
    unit: Unit,
    advice: &'static str,
}

/// The unit of a value and its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Calls,
    Micros,
    Days,
    /// A count that needs too many parts of a microsecond, and the nearest one that does not.
    Parts {
        needed: u64,
        nearest: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Below,
    Above,
}

impl OutOfBounds {
    pub(crate) fn below(what: &'static str, value: u64, bound: u64, advice: &'static str) -> Self {
        Self { what, value, side: Side::Below, bound, unit: Unit::Calls, advice }
    }

    pub(crate) fn above(what: &'static str, value: u64, bound: u64, advice: &'static str) -> Self {
        Self { what, value, side: Side::Above, bound, unit: Unit::Calls, advice }
    }

    /// Prints the value and the bound as durations in microseconds.
    pub(crate) fn in_micros(self) -> Self {
        Self { unit: Unit::Micros, ..self }
    }

    /// Prints the value and the bound as durations in days.
    pub(crate) fn in_days(self) -> Self {
        Self { unit: Unit::Days, ..self }
    }

    /// Returns what to write instead.
    pub fn advice(&self) -> Cow<'static, str> {
        match self.unit {
            Unit::Parts { nearest, .. } => format!("use {nearest}, the nearest that is exact").into(),
            _ => self.advice.into(),
        }
    }

    /// Returns the message without the advice: the value and the bound.
    pub fn problem(&self) -> String {
        let Self { what, value, side, bound, unit, .. } = self;
        let (side, extreme) = match side {
            Side::Below => ("below", "minimum"),
            Side::Above => ("above", "maximum"),
        };
        // Durations are printed as the limit grammar writes them.
        match unit {
            Unit::Parts { needed, .. } => format!(
                "{what} {value} would divide a microsecond into {needed} parts, {side} the {extreme}, {bound}"
            ),
            Unit::Calls => format!("{what} {value} is {side} the {extreme}, {bound}"),
            Unit::Days => format!("{what} {value}d is {side} the {extreme}, {bound}d"),
            Unit::Micros => {
                let (value, bound) = (Span::from_micros(*value), Span::from_micros(*bound));
                format!("{what} {value} is {side} the {extreme}, {bound}")
            }
        }
    }
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem(), self.advice())
    }
}

impl core::error::Error for OutOfBounds {}

/// The advice for a count that is too small, and for one that is too large.
pub(crate) const COUNT_ADVICE: [&str; 2] =
    ["that would deny every call, use at least 1", "use a smaller number"];

/// Checks a count, burst, capacity or queue.
///
/// # Errors
/// If it is below `least` or above [`COUNT_MAX`].
pub fn checked_count(what: &'static str, value: u64, least: u64) -> Result<u64, OutOfBounds> {
    checked_number(what, value, (least, COUNT_MAX), COUNT_ADVICE)
}

/// Checks a number of calls of a bulkhead, a breaker or an adaptive limit.
///
/// # Errors
/// If it is below `least` or above [`PERMITS_MAX`].
pub fn checked_permits(what: &'static str, value: u64, least: u32) -> Result<u32, OutOfBounds> {
    checked_number(what, value, (least, PERMITS_MAX), COUNT_ADVICE)
}

/// Checks a number. The two pieces of advice are for a value below and for one above the bounds.
///
/// # Errors
/// If it is out of bounds.
pub fn checked_number<N: Copy + PartialOrd + Into<u64> + TryFrom<u64>>(
    what: &'static str,
    value: u64,
    (least, most): (N, N),
    [below, above]: [&'static str; 2],
) -> Result<N, OutOfBounds> {
    if value < least.into() {
        return Err(OutOfBounds::below(what, value, least.into(), below));
    }
    match N::try_from(value) {
        Ok(value) if value <= most => Ok(value),
        _ => Err(OutOfBounds::above(what, value, most.into(), above)),
    }
}

/// Checks a duration. The two pieces of advice are for a value below and for one above the bounds.
///
/// # Errors
/// If it is out of bounds.
pub fn checked_span(
    what: &'static str,
    span: Span,
    (least, most): (Span, Span),
    [below, above]: [&'static str; 2],
) -> Result<Span, OutOfBounds> {
    let value = span.as_micros();
    if span < least {
        return Err(OutOfBounds::below(what, value, least.as_micros(), below).in_micros());
    }
    if span > most {
        return Err(OutOfBounds::above(what, value, most.as_micros(), above).in_micros());
    }
    Ok(span)
}

/// A rate of `count` per `period`, within bounds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rate {
    count: u64,
    period: Span,
}

impl Rate {
    /// Creates a rate of `count` per `period`.
    ///
    /// # Errors
    /// If the count is 0 or above [`COUNT_MAX`], or the period is 0 or above [`PERIOD_MAX`].
    pub fn new(count: u64, period: Span) -> Result<Rate, OutOfBounds> {
        let count = checked_count("count", count, 1)?;
        Ok(Rate { count, period: checked_period("period", period)? })
    }

    /// Returns the count.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// Returns the period.
    pub const fn period(self) -> Span {
        self.period
    }

    /// Returns the time of one unit as a fraction in lowest terms.
    ///
    /// # Errors
    /// If the fraction needs more than [`PARTS_MAX`] parts of a microsecond. Buckets cannot keep
    /// such a rate exactly.
    pub fn ratio(self) -> Result<Ratio, OutOfBounds> {
        let (count, period) = (self.count, self.period.as_micros());
        let divisor = greatest_common_divisor(count, period);
        match u32::try_from(count / divisor) {
            Ok(parts) if parts <= PARTS_MAX => Ok(Ratio { micros: period / divisor, parts }),
            _ => Err(OutOfBounds {
                what: "count",
                value: count,
                side: Side::Above,
                bound: PARTS_MAX.into(),
                unit: Unit::Parts { needed: count / divisor, nearest: nearest::nearest_exact(count, period) },
                advice: "",
            }),
        }
    }
}

/// The time of one unit of a [`Rate`], `micros / parts` microseconds in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ratio {
    /// The numerator: a whole number of microseconds.
    pub micros: u64,
    /// The denominator: into how many parts a microsecond is divided. At most [`PARTS_MAX`].
    pub parts: u32,
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Checks a period or an interval.
///
/// # Errors
/// If it is 0 or above [`PERIOD_MAX`].
pub fn checked_period(what: &'static str, period: Span) -> Result<Span, OutOfBounds> {
    let bounds = (Span::from_micros(1), PERIOD_MAX);
    checked_span(what, period, bounds, ["use at least 1us", "use at most 3650d"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn errors_name_the_value_the_bound_and_the_remedy() {
        let message = |count, micros| Rate::new(count, Span::from_micros(micros)).unwrap_err().to_string();
        assert_eq!(
            message(0, 1),
            "count 0 is below the minimum, 1; that would deny every call, use at least 1"
        );
        assert_eq!(
            message(1_000_000_000_001, 1),
            "count 1000000000001 is above the maximum, 1000000000000; use a smaller number"
        );
        assert_eq!(message(1, 0), "period 0s is below the minimum, 1us; use at least 1us");
        assert_eq!(
            message(1, 10 * YEAR + 1),
            "period 315360000000001us is above the maximum, 3650d; use at most 3650d"
        );
    }

    #[test]
    fn the_bounds_themselves_are_valid() {
        assert!(Rate::new(1, Span::from_micros(1)).is_ok());
        assert!(Rate::new(COUNT_MAX, PERIOD_MAX).is_ok());
    }
}
