//! Moments and durations in whole microseconds, the tick of every computation in this crate.
//!
//! The core has no clock: `now` is always an argument. A [`Time`] is bounded when it is created, so
//! no sum in this crate can wrap: the latest moment is below 2^58, and the longest wait added to it
//! (a full bucket and a century of debt) is below 2^53.
//!
//! `Time` and [`Span`] have no `+` and `-`: their sums saturate, and the method names say so.

use core::fmt;

/// One second in ticks.
pub const SECOND: u64 = 1_000_000;
/// One day of 24 hours in ticks.
pub const DAY: u64 = 86_400 * SECOND;
/// A year of 365 days in ticks, the year that the bounds are written in.
pub const YEAR: u64 = 365 * DAY;

/// A moment: whole microseconds since the Unix epoch, up to the year 9892.
///
/// ```
/// use sluicegate_core::{Span, Time};
///
/// let noon = Time::from_micros(1_794_916_800_000_000).unwrap();
/// let later = noon.saturating_add(Span::from_micros(1_500_000));
/// assert_eq!(later.since(noon), Span::from_micros(1_500_000));
/// assert_eq!(noon.since(later), Span::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(u64);

impl Time {
    /// 1970-01-01T00:00:00Z, the earliest moment.
    pub const EPOCH: Time = Time(0);
    /// 9892-03-08T12:26:40Z, the latest moment: 2.5 * 10^17 microseconds. Calendars end with the
    /// year 9999, so every calendar window that contains a `Time` ends before they do.
    pub const MAX: Time = Time(250_000_000_000_000_000);

    /// Creates a moment from microseconds since the Unix epoch. Returns `None` beyond
    /// [`Time::MAX`].
    pub const fn from_micros(micros: u64) -> Option<Time> {
        if micros <= Time::MAX.0 { Some(Time(micros)) } else { None }
    }

    /// Creates a moment from microseconds since the Unix epoch, at most [`Time::MAX`].
    pub const fn saturating_from_micros(micros: u64) -> Time {
        if micros <= Time::MAX.0 { Time(micros) } else { Time::MAX }
    }

    /// Returns the microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the duration since the Unix epoch, to be added to `std::time::UNIX_EPOCH`.
    pub const fn since_epoch(self) -> core::time::Duration {
        core::time::Duration::from_micros(self.0)
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is the later one.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Adds a duration, up to [`Time::MAX`].
    #[must_use]
    pub const fn saturating_add(self, span: Span) -> Time {
        Time::saturating_from_micros(self.0.saturating_add(span.0))
    }

    /// Subtracts a duration, down to [`Time::EPOCH`].
    #[must_use]
    pub const fn saturating_sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }

    /// Adds microseconds, or subtracts them if negative, between [`Time::EPOCH`] and [`Time::MAX`].
    #[inline]
    #[must_use]
    pub const fn shifted(self, micros: i64) -> Time {
        Time::saturating_from_micros(self.0.saturating_add_signed(micros))
    }
}

/// A duration in whole microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// The empty duration.
    pub const ZERO: Span = Span(0);
    /// The longest duration.
    pub const MAX: Span = Span(u64::MAX);

    /// Creates a duration from microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros)
    }

    /// Returns the duration in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the duration in milliseconds, rounded **up**: a client that reads a wait of 0 would
    /// retry immediately and be denied.
    pub const fn as_millis_up(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Returns the duration in seconds, rounded **up**, as the `Retry-After` header requires.
    pub const fn as_secs_up(self) -> u64 {
        self.0.div_ceil(SECOND)
    }

    /// Adds two durations, up to [`Span::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// Subtracts a duration, down to zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

/// A duration or moment with a fraction of a microsecond: `whole + part / count`, where `count` is
/// that of the limit it belongs to. (Windows and logs use it for whole heights, with `part` 0.)
///
/// The derived order, by field, is the order of the values, since `part < count`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Exact {
    pub(crate) whole: u64,
    pub(crate) part: u32,
}

impl Exact {
    pub(crate) const ZERO: Exact = Exact { whole: 0, part: 0 };

    pub(crate) const fn from_whole(whole: u64) -> Exact {
        Exact { whole, part: 0 }
    }

    /// Rounds up to a whole microsecond.
    #[inline]
    pub(crate) const fn ceil(self) -> u64 {
        // Cannot wrap: durations and moments are below 2^62.
        if self.part > 0 { self.whole + 1 } else { self.whole }
    }
}

impl From<Span> for core::time::Duration {
    fn from(span: Span) -> Self {
        core::time::Duration::from_micros(span.0)
    }
}

impl From<core::time::Duration> for Span {
    /// Rounds up to a whole microsecond, and saturates at [`Span::MAX`].
    fn from(duration: core::time::Duration) -> Self {
        let part = u64::from(duration.subsec_nanos().div_ceil(1_000));
        Span(duration.as_secs().saturating_mul(SECOND).saturating_add(part))
    }
}

/// Here and not in a crate with a clock, because only the crate of a type may implement `From` for
/// it.
#[cfg(feature = "std")]
mod system {
    use super::Time;
    use std::time::{SystemTime, UNIX_EPOCH};

    impl From<SystemTime> for Time {
        /// Rounded down to a whole microsecond; [`Time::EPOCH`] if it is before the Unix epoch, and
        /// at most [`Time::MAX`].
        fn from(time: SystemTime) -> Time {
            let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            Time::saturating_from_micros(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
        }
    }

    impl From<Time> for SystemTime {
        fn from(time: Time) -> SystemTime {
            UNIX_EPOCH + time.since_epoch()
        }
    }
}

impl fmt::Display for Time {
    /// Writes UTC in RFC 3339: `2026-11-16T08:30:00Z`, with six decimals if the second is not
    /// whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, micros) = (self.0 / DAY, self.0 % DAY);
        // Years start in March here, so a leap day ends its year; 400 years are 146,097 days.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let (hour, minute, second) =
            (micros / (3_600 * SECOND), micros / (60 * SECOND) % 60, micros / SECOND % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match micros % SECOND {
            0 => f.write_str("Z"),
            micros => write!(f, ".{micros:06}Z"),
        }
    }
}

impl fmt::Display for Span {
    /// Writes the duration in the largest unit that divides it, as the limit grammar does: `90s`,
    /// `2h`, `250ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] =
            [(DAY, "d"), (3_600 * SECOND, "h"), (60 * SECOND, "min"), (SECOND, "s"), (1_000, "ms")];
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let (size, name) =
            UNITS.into_iter().find(|(size, _)| self.0.is_multiple_of(*size)).unwrap_or((1, "us"));
        write!(f, "{}{name}", self.0 / size)
    }
}

impl fmt::Debug for Span {
    /// Writes the `Display` form, so that a wait inside another type stays readable:
    /// `Some(After(2s))`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn spans_print_in_the_largest_unit_that_divides_them() {
        let printed = |micros| Span::from_micros(micros).to_string();
        assert_eq!(printed(0), "0s");
        assert_eq!(printed(1), "1us");
        assert_eq!(printed(1_500), "1500us");
        assert_eq!(printed(250_000), "250ms");
        assert_eq!(printed(90 * SECOND), "90s");
        assert_eq!(printed(120 * SECOND), "2min");
        assert_eq!(printed(7_200 * SECOND), "2h");
        assert_eq!(printed(10 * YEAR), "3650d");
    }

    #[test]
    fn milliseconds_and_seconds_are_rounded_up() {
        assert_eq!(Span::from_micros(1).as_millis_up(), 1);
        assert_eq!(Span::from_micros(2_000).as_millis_up(), 2);
        assert_eq!((Span::from_micros(1).as_secs_up(), Span::from_micros(2 * SECOND).as_secs_up()), (1, 2));
    }

    #[test]
    fn moments_print_as_utc() {
        let printed = |micros| Time::from_micros(micros).unwrap().to_string();
        assert_eq!(printed(0), "1970-01-01T00:00:00Z");
        assert_eq!(printed(951_782_400 * SECOND), "2000-02-29T00:00:00Z");
        assert_eq!(printed(951_868_799 * SECOND + 1), "2000-02-29T23:59:59.000001Z");
        assert_eq!(printed(1_794_816_000 * SECOND), "2026-11-16T08:00:00Z");
        assert_eq!(printed(4_107_542_400 * SECOND), "2100-03-01T00:00:00Z");
        assert_eq!(Time::MAX.to_string(), "9892-03-08T12:26:40Z");
    }

    #[test]
    fn sums_saturate_at_both_ends_of_time() {
        let tick = Span::from_micros(1);
        assert_eq!(Time::from_micros(Time::MAX.as_micros() + 1), None);
        assert_eq!(Time::MAX.saturating_add(tick), Time::MAX);
        assert_eq!(Time::EPOCH.saturating_sub(tick), Time::EPOCH);
        assert_eq!(
            (Span::MAX.saturating_add(tick), Span::ZERO.saturating_sub(tick)),
            (Span::MAX, Span::ZERO)
        );
    }

    #[test]
    fn a_duration_is_rounded_up_to_whole_microseconds() {
        assert_eq!(Span::from(core::time::Duration::from_nanos(1)), Span::from_micros(1));
        assert_eq!(Span::from(core::time::Duration::MAX), Span::MAX);
        assert_eq!(Span::from(core::time::Duration::from_nanos(1_999_999_001)), Span::from_micros(2_000_000));
        let longest = core::time::Duration::from_micros(u64::MAX);
        let nano = core::time::Duration::from_nanos(1);
        assert_eq!(Span::from(longest.saturating_sub(nano)), Span::MAX);
        assert_eq!(Span::from(longest.saturating_sub(1_000 * nano)), Span::from_micros(u64::MAX - 1));
    }

    #[cfg(feature = "std")]
    #[test]
    fn a_system_time_is_rounded_down_and_bounded() {
        use std::time::{Duration, SystemTime, UNIX_EPOCH};
        assert_eq!(Time::from(UNIX_EPOCH + Duration::from_nanos(1_999)), Time(1));
        assert_eq!(Time::from(UNIX_EPOCH - Duration::from_secs(1)), Time::EPOCH);
        assert_eq!(Time::from(UNIX_EPOCH + Duration::from_secs(300_000_000_000)), Time::MAX);
        assert_eq!(Time::from(SystemTime::from(Time::MAX)), Time::MAX);
    }
}
