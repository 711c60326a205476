//! Additive increase, multiplicative decrease, as in TCP.
//!
//! In plain words: after each call that went well, one more; after each that was dropped or took too long, a tenth less.
//! It needs no idea of how long calls should take, only of how long is far too long.
//!
//! ```text
//! Settings   range (20, from 20 to 200), backoff (90 %), timeout (5 s)
//! State      the limit, a whole number
//! Formula    dropped, or rtt > timeout     limit = limit * backoff
//!            in_flight * 2 >= limit        limit = limit + 1
//!            otherwise                     nobody needs more: as it was
//!            and then within min..=max
//! Rounding   `limit * backoff` down, so that it falls by one at least.
//! Promise    always within min..=max. From the most to the least in 21 drops
//!            with the defaults, and back with one good call for each one more.
//! Clock      not asked.
//! ```
//!
//! Reference: Netflix concurrency-limits, `AIMDLimit`. The same but for what rounds: they multiply with doubles, so that for
//! some ratios (58 % of 100) theirs is one less.

use super::{Range, Sample};
use sluicegate_core::Span;
use sluicegate_core::bounds::{OutOfBounds, checked_number, checked_period};
use sluicegate_core::time::SECOND;

/// What is left of the limit after a drop unless told otherwise, in per cent.
pub const BACKOFF_DEFAULT: u32 = 90;
/// The least that may be left, in per cent: a single drop halves the limit at most.
pub const BACKOFF_MIN: u32 = 50;
/// The most that may be left, in per cent: a drop that changes nothing would be no rule.
pub const BACKOFF_MAX: u32 = 99;
/// A call that took longer counts as dropped unless told otherwise.
pub const TIMEOUT_DEFAULT: Span = Span::from_micros(5 * SECOND);

/// The settings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aimd {
    range: Range,
    backoff: u32,
    timeout: Span,
}

impl Aimd {
    /// With `backoff` in per cent.
    ///
    /// # Errors
    /// When the backoff is not from [`BACKOFF_MIN`] to [`BACKOFF_MAX`], or the timeout is 0 or above ten years.
    pub fn new(range: Range, backoff: u64, timeout: Span) -> Result<Aimd, OutOfBounds> {
        let advice = "use 50% to 99%, what is left of the limit after a drop";
        let backoff = checked_number("backoff", backoff, (BACKOFF_MIN, BACKOFF_MAX), [advice; 2])?;
        Ok(Aimd { range, backoff, timeout: checked_period("timeout", timeout)? })
    }

    /// With the defaults.
    ///
    /// # Errors
    /// When the start is 0 or too large.
    pub fn starting_at(start: u64) -> Result<Aimd, OutOfBounds> {
        Aimd::new(Range::starting_at(start)?, BACKOFF_DEFAULT.into(), TIMEOUT_DEFAULT)
    }

    /// Between what the limit moves.
    pub const fn range(&self) -> Range {
        self.range
    }

    /// What is left after a drop, in per cent.
    pub const fn backoff(&self) -> u32 {
        self.backoff
    }

    /// What took longer counts as dropped.
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
        // At most one above a `u32` within bounds, so what does not fit is above the most anyway.
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
    fn one_more_after_each_good_call_up_to_the_most() {
        assert_eq!(
            (usual().next(20, GOOD), usual().next(199, GOOD), usual().next(200, GOOD)),
            (21, 200, 200)
        );
    }

    #[test]
    fn nobody_who_needs_less_than_half_gets_more() {
        let with = |in_flight| usual().next(100, Sample { in_flight, ..GOOD });
        assert_eq!((with(49), with(50)), (100, 101));
    }

    #[test]
    fn a_tenth_less_after_a_drop_down_to_the_least() {
        let dropped = |limit| usual().next(limit, Sample { dropped: true, ..GOOD });
        assert_eq!((dropped(200), dropped(101), dropped(21), dropped(20)), (180, 90, 20, 20));
    }

    #[test]
    fn a_call_above_the_timeout_counts_as_dropped() {
        let took = |micros| usual().next(100, Sample { rtt: Span::from_micros(micros), ..GOOD });
        assert_eq!((took(5_000_000), took(5_000_001)), (101, 90));
    }

    #[test]
    fn a_limit_of_one_comes_back() {
        let config = Aimd::new(Range::new(1, 1, 3).unwrap(), 50, TIMEOUT_DEFAULT).unwrap();
        assert_eq!(config.next(1, Sample { dropped: true, ..GOOD }), 1);
        assert_eq!(config.next(1, Sample { in_flight: 1, ..GOOD }), 2);
    }

    #[test]
    fn the_bounds_are_named_in_the_refusal() {
        let range = usual().range();
        let said = |backoff, timeout| {
            Aimd::new(range, backoff, Span::from_micros(timeout)).map_err(|error| error.to_string())
        };
        assert!(said(49, 1).unwrap_err().starts_with("backoff 49 is below the least, 50; use 50% to 99%"));
        assert!(said(100, 1).unwrap_err().starts_with("backoff 100 is above the most, 99; use 50% to 99%"));
        assert!(said(90, 0).unwrap_err().starts_with("timeout 0s is below the least"));
        assert!(said(50, 1).is_ok() && said(99, 1).is_ok());
    }
}
