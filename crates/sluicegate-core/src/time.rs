//! Moments and lengths of time in whole microseconds, the one tick that everything here counts in.
//!
//! The core has no clock: `now` is always an argument. A [`Time`] is checked once, when it is made, so that
//! no sum in this crate can wrap: the latest moment is below 2^58, and the longest wait added to it
//! (a full bucket and a century of debt) is below 2^53.

use core::fmt;

/// One second in ticks.
pub const SECOND: u64 = 1_000_000;
/// One day of 24 hours in ticks.
pub const DAY: u64 = 86_400 * SECOND;
/// A year of 365 days in ticks, the year that the bounds are written in.
pub const YEAR: u64 = 365 * DAY;

/// A moment: whole microseconds since the Unix epoch, up to the year 9892.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(u64);

impl Time {
    /// 1970-01-01T00:00:00Z, the earliest moment.
    pub const EPOCH: Time = Time(0);
    /// 9892-03-08T12:26:40Z, the latest moment: a round number of microseconds, and far enough from where calendars
    /// end (with the year 9999) for every window that holds a moment to end within them.
    pub const MAX: Time = Time(250_000_000_000_000_000);

    /// The moment that many microseconds after the epoch, or `None` beyond [`Time::MAX`].
    pub const fn from_micros(micros: u64) -> Option<Time> {
        if micros <= Time::MAX.0 { Some(Time(micros)) } else { None }
    }

    /// The moment that many microseconds after the epoch, or the latest one.
    pub const fn saturating_from_micros(micros: u64) -> Time {
        if micros <= Time::MAX.0 { Time(micros) } else { Time::MAX }
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// How long after the Unix epoch, to be added to `std::time::UNIX_EPOCH`.
    pub const fn since_epoch(self) -> core::time::Duration {
        core::time::Duration::from_micros(self.0)
    }

    /// How long from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// So long before this moment, at the earliest [`Time::EPOCH`].
    #[must_use]
    pub const fn before(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }

    /// This moment and a wait after it, at most [`Time::MAX`].
    #[must_use]
    pub const fn after(self, wait: Span) -> Time {
        Time::saturating_from_micros(self.0.saturating_add(wait.0))
    }
}

/// A length of time in whole microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// The longest length there is.
    pub const MAX: Span = Span(u64::MAX);

    /// That many microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros)
    }

    /// The length in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The length in milliseconds, rounded **up**: a caller who is told 0 would come back at once and fail.
    pub const fn as_millis_up(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// The length in seconds, rounded **up**, as the header `Retry-After` wants it.
    pub const fn as_secs_up(self) -> u64 {
        self.0.div_ceil(SECOND)
    }

    /// Both lengths, one after the other; at most [`Span::MAX`].
    #[must_use]
    pub const fn and(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// What is left of this length after another; zero if the other is longer.
    #[must_use]
    pub const fn less(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

/// A length or a moment to a fraction of a microsecond, `whole + part / count`, where the count is that of the limit
/// it belongs to. (The heights of other piles use it as a plain number, with no part.)
///
/// The order of the fields is the order of the values, as `part < count` always.
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

    /// To the next whole microsecond.
    #[inline]
    pub(crate) const fn up(self) -> u64 {
        // Cannot wrap: lengths and moments are below 2^62.
        if self.part > 0 { self.whole + 1 } else { self.whole }
    }
}

impl From<Span> for core::time::Duration {
    fn from(span: Span) -> Self {
        core::time::Duration::from_micros(span.0)
    }
}

impl From<core::time::Duration> for Span {
    /// Rounded up to a whole microsecond; lengths beyond [`Span::MAX`] become it.
    fn from(duration: core::time::Duration) -> Self {
        let micros = duration.as_nanos().div_ceil(1_000);
        Span(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Time {
    /// In UTC, as RFC 3339 writes it: `2026-11-16T08:30:00Z`, with as many microseconds as there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, micros) = (self.0 / DAY, self.0 % DAY);
        // Years that begin with March, so that a leap day is the last day of one: 400 of them are 146 097 days.
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
    /// The length in the largest unit that divides it, as the limit grammar writes it: `90s`, `2h`, `250ms`.
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
    /// As it is displayed, so that a wait can be read in whatever holds it: `Some(After(2s))`.
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
    fn waits_are_told_in_milliseconds_rounded_up() {
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
    fn there_is_no_moment_after_the_last() {
        assert_eq!(Time::from_micros(Time::MAX.as_micros() + 1), None);
        assert_eq!(Time::MAX.after(Span::from_micros(1)), Time::MAX);
    }

    #[test]
    fn a_duration_is_rounded_up_to_whole_microseconds() {
        assert_eq!(Span::from(core::time::Duration::from_nanos(1)), Span::from_micros(1));
        assert_eq!(Span::from(core::time::Duration::MAX), Span::MAX);
    }
}
