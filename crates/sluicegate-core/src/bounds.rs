//! The bounds on a limit's parameters, checked once, when the limit is created. After that nothing
//! overflows.

use crate::time::{Span, YEAR};
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The largest count, burst, capacity and queue. It also bounds the cost of a call, which is
/// checked where a cost comes in from outside; the core itself accepts any `u32`.
pub const COUNT_MAX: u32 = 1_000_000_000;
/// The longest period: ten years of 365 days.
pub const PERIOD_MAX: Span = Span::from_micros(10 * YEAR);
/// The longest time to fill a bucket from empty, the largest debt beyond that, and the longest
/// `max_wait` of a reservation: a hundred years of 365 days.
pub const CENTURY: Span = Span::from_micros(100 * YEAR);
/// The largest count of a sliding log, which keeps 16 bytes per call. With this many, no call keeps
/// a shared store busy for longer than a millisecond.
pub const LOG_COUNT_MAX: u32 = 10_000;

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
    pub fn advice(&self) -> &'static str {
        self.advice
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
        write!(f, "{}; {}", self.problem(), self.advice)
    }
}

impl core::error::Error for OutOfBounds {}

/// Checks a count, burst, capacity or queue.
///
/// # Errors
/// If it is below `least` or above [`COUNT_MAX`].
pub fn checked_count(what: &'static str, value: u64, least: u32) -> Result<u32, OutOfBounds> {
    let advice = ["that would deny every call, use at least 1", "use a smaller number"];
    checked_number(what, value, (least, COUNT_MAX), advice)
}

/// Checks a number. The two pieces of advice are for a value below and for one above the bounds.
///
/// # Errors
/// If it is out of bounds.
pub fn checked_number(
    what: &'static str,
    value: u64,
    (least, most): (u32, u32),
    [below, above]: [&'static str; 2],
) -> Result<u32, OutOfBounds> {
    if value < u64::from(least) {
        return Err(OutOfBounds::below(what, value, u64::from(least), below));
    }
    match u32::try_from(value) {
        Ok(value) if value <= most => Ok(value),
        _ => Err(OutOfBounds::above(what, value, u64::from(most), above)),
    }
}

/// Narrows a cost from the public API, where counts are `u64`, to the `u32` of the core.
///
/// Saturating is exact wherever a limit bounds the cost: no limit exceeds [`COUNT_MAX`], so a cost
/// above `u32::MAX` is never allowed either way, and a take is reduced to what remains. A refund of
/// more than `u32::MAX` returns at most that, which never leaves a key better off. Only where any
/// cost is charged, by `smooth` and by a settle above what was reserved, is the excess over
/// `u32::MAX` not charged; such costs are above [`COUNT_MAX`], the largest cost accepted.
#[inline]
pub fn saturating_count(cost: u64) -> u32 {
    u32::try_from(cost).unwrap_or(u32::MAX)
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
    count: u32,
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
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Returns the period.
    pub const fn period(self) -> Span {
        self.period
    }
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
            message(1_000_000_001, 1),
            "count 1000000001 is above the maximum, 1000000000; use a smaller number"
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
        assert!(Rate::new(u64::from(COUNT_MAX), PERIOD_MAX).is_ok());
    }
}
