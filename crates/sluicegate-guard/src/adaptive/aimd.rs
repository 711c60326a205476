//! Additive increase, multiplicative decrease, as in TCP.
//!
//! One more after each good call; a tenth less after each call that was dropped or took too long.
//! It needs to know only what is far too long, not the usual duration.
//!
//! ```text
//! Settings   range (20, from 20 to 200), backoff (90 %), timeout (5 s)
//! State      the limit, a whole number
//! Formula    dropped, or rtt > timeout     limit = limit * backoff
//!            in_flight * 2 >= limit        limit = limit + 1
//!            otherwise                     unchanged: no need for more
//!            and then within min..=max
//! Rounding   `limit * backoff` down, so that it falls by at least one.
//! Promise    always within min..=max. From max to min in 21 drops with the defaults,
//!            and back with one good call per step.
//! Clock      not used.
//! ```
//!
//! Reference: Netflix concurrency-limits, `AIMDLimit`. It differs only in rounding: Netflix
//! multiplies doubles, so for some ratios (58 % of 100) its limit is one lower.

use super::{Range, Sample};
use sluicegate_core::Span;
use sluicegate_core::bounds::{OutOfBounds, checked_number, checked_period};
use sluicegate_core::time::SECOND;

/// Default of `backoff`: what is left of the limit after a drop, in percent.
pub const BACKOFF_DEFAULT: u32 = 90;
/// Lower bound of `backoff`, in percent: a single drop at most halves the limit.
pub const BACKOFF_MIN: u32 = 50;
/// Upper bound of `backoff`, in percent: a drop must have an effect.
pub const BACKOFF_MAX: u32 = 99;
/// Default of `timeout`: a call that took longer counts as dropped.
pub const TIMEOUT_DEFAULT: Span = Span::from_micros(5 * SECOND);

/// The settings of AIMD.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aimd {
    range: Range,
    backoff: u32,
    timeout: Span,
}

impl Aimd {
    /// Creates the settings, with `backoff` in percent.
    ///
    /// # Errors
    /// If the backoff is not within [`BACKOFF_MIN`] to [`BACKOFF_MAX`], or the timeout is 0 or
    /// above ten years.
    pub fn new(range: Range, backoff: u64, timeout: Span) -> Result<Aimd, OutOfBounds> {
        let advice = "use 50% to 99%, what is left of the limit after a drop";
        let backoff = checked_number("backoff", backoff, (BACKOFF_MIN, BACKOFF_MAX), [advice; 2])?;
        Ok(Aimd { range, backoff, timeout: checked_period("timeout", timeout)? })
    }

    /// Creates default settings with this start.
    ///
    /// # Errors
    /// If the start is 0 or too large.
    pub fn starting_at(start: u64) -> Result<Aimd, OutOfBounds> {
        Aimd::new(Range::starting_at(start)?, BACKOFF_DEFAULT.into(), TIMEOUT_DEFAULT)
    }

    /// Returns the range of the limit.
    pub const fn range(&self) -> Range {
        self.range
    }

    /// Returns what is left of the limit after a drop, in percent.
    pub const fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Returns the duration above which a call counts as dropped.
    pub const fn timeout(&self) -> Span {
        self.timeout
    }

    pub(super) fn next(&self, limit: u32, sample: Sample) -> u32 {
        let next = if sample.dropped || sample.rtt > self.timeout {
            u64::from(limit) * u64::from(self.backoff) / 100
        } else if u64::from(sample.in_flight) * 2 >= u64::from(limit) {
            u64::from(limit) + 1
        } else {
            u64::from(limit)
        };
        // At most one above a `u32` within bounds, so a value that does not fit is above `max`
        // anyway.
        u32::try_from(next).unwrap_or(u32::MAX).clamp(self.range.min, self.range.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Sample = Sample { rtt: Span::from_micros(1_000), in_flight: 1_000, dropped: false };

    fn usual() -> Aimd {
        Aimd::starting_at(20).unwrap()
    }

    #[test]
    fn a_good_call_raises_the_limit_up_to_max() {
        assert_eq!(
            (usual().next(20, GOOD), usual().next(199, GOOD), usual().next(200, GOOD)),
            (21, 200, 200)
        );
    }

    #[test]
    fn the_limit_holds_while_less_than_half_is_used() {
        let with = |in_flight| usual().next(100, Sample { in_flight, ..GOOD });
        assert_eq!((with(49), with(50)), (100, 101));
    }

    #[test]
    fn a_drop_lowers_the_limit_by_a_tenth_down_to_min() {
        let dropped = |limit| usual().next(limit, Sample { dropped: true, ..GOOD });
        assert_eq!((dropped(200), dropped(101), dropped(21), dropped(20)), (180, 90, 20, 20));
    }

    #[test]
    fn a_call_above_the_timeout_counts_as_dropped() {
        let took = |micros| usual().next(100, Sample { rtt: Span::from_micros(micros), ..GOOD });
        assert_eq!((took(5_000_000), took(5_000_001)), (101, 90));
    }

    #[test]
    fn a_limit_of_one_recovers() {
        let config = Aimd::new(Range::new(1, 1, 3).unwrap(), 50, TIMEOUT_DEFAULT).unwrap();
        assert_eq!(config.next(1, Sample { dropped: true, ..GOOD }), 1);
        assert_eq!(config.next(1, Sample { in_flight: 1, ..GOOD }), 2);
    }

    #[test]
    fn errors_name_the_bounds() {
        let range = usual().range();
        let error = |backoff, timeout| {
            Aimd::new(range, backoff, Span::from_micros(timeout)).map_err(|error| error.to_string())
        };
        assert!(error(49, 1).unwrap_err().starts_with("backoff 49 is below the minimum, 50; use 50% to 99%"));
        assert!(
            error(100, 1).unwrap_err().starts_with("backoff 100 is above the maximum, 99; use 50% to 99%")
        );
        assert!(error(90, 0).unwrap_err().starts_with("timeout 0s is below the minimum"));
        assert!(error(50, 1).is_ok() && error(99, 1).is_ok());
    }
}
