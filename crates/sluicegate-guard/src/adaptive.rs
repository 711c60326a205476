//! Adaptive concurrency: how many may be at work at once, found out from how the work goes.
//!
//! In plain words: nobody knows the right limit for a dependency, and it changes. But each call that ends tells something:
//! it took so long, so many were at work when it began, and it was answered or dropped. A rule turns each such [`Sample`]
//! into a new limit, always within `min..=max`:
//!
//! - [`Aimd`] asks only whether calls are dropped or far too slow: a little more after each that was not, a tenth less
//!   after each that was.
//! - [`Gradient`] compares how long calls take with how long they take when all is well: it shrinks before anything is dropped.
//!
//! Both are those of Netflix's concurrency-limits with its defaults; each file says where it differs and why.
//!
//! All but `spec.rs`, the line of text, is pure: no clock, no lock, no I/O; the time is an argument.
//!
//! ```
//! use sluicegate_guard::adaptive::{Adaptive, Aimd, Sample};
//! use sluicegate_guard::{Span, Time};
//!
//! let mut limit = Adaptive::new(Aimd::starting_at(20)?);
//! let good = Sample { rtt: Span::from_micros(30_000), in_flight: 20, dropped: false };
//! assert_eq!(limit.sample(Time::EPOCH, good), 21);
//! assert_eq!(limit.sample(Time::EPOCH, Sample { in_flight: 5, ..good }), 21); // nobody needs more
//! assert_eq!(limit.sample(Time::EPOCH, good), 22);
//! assert_eq!(limit.sample(Time::EPOCH, Sample { dropped: true, ..good }), 20); // 22 * 0.9, but at least min
//! # Ok::<(), sluicegate_core::bounds::OutOfBounds>(())
//! ```

#![deny(clippy::float_arithmetic, clippy::as_conversions, clippy::indexing_slicing)]

mod aimd;
mod gradient;
mod parse;
mod window;

pub use aimd::{Aimd, BACKOFF_DEFAULT, BACKOFF_MAX, BACKOFF_MIN, TIMEOUT_DEFAULT};
pub use gradient::{
    Gradient, QUEUE_DEFAULT, SMOOTHING_DEFAULT, SMOOTHING_MAX, TOLERANCE_DEFAULT, TOLERANCE_MAX,
    TOLERANCE_MIN, WINDOW_DEFAULT, WINDOW_MAX,
};
pub use window::{SAMPLE_MAX, SAMPLE_MIN, SAMPLES_MIN, SHORTEST_RTT};

use gradient::Slope;
use sluicegate_core::bounds::{OutOfBounds, checked_count, checked_number};
use sluicegate_core::time::SECOND;
use sluicegate_core::{Span, Time};

/// The least limit unless told otherwise, and the start is not below it.
pub const MIN_DEFAULT: u32 = 20;
/// The largest limit unless told otherwise, and the start is not above it.
pub const MAX_DEFAULT: u32 = 200;
/// Calls that took longer count as this long: no clock that jumps can spoil an average for long.
pub const RTT_MAX: Span = Span::from_micros(3_600 * SECOND);

/// What one call that has ended tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// How long it took.
    pub rtt: Span,
    /// How many were at work when it began, itself included.
    pub in_flight: u32,
    /// Whether the dependency did not do the work: it timed out, or refused. An answer that says no is none of these.
    pub dropped: bool,
}

/// Where a limit begins and between what it moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    start: u32,
    min: u32,
    max: u32,
}

impl Range {
    /// From `min` to `max`, beginning with `start`.
    ///
    /// # Errors
    /// When one of them is 0 or above [`COUNT_MAX`](sluicegate_core::bounds::COUNT_MAX), or they are out of order.
    pub fn new(start: u64, min: u64, max: u64) -> Result<Range, OutOfBounds> {
        let checked = |what, value| checked_count(what, value, 1);
        let (start, min, max) = (checked("start", start)?, checked("min", min)?, checked("max", max)?);
        let advice = ["lower min=, or start with more", "raise max=, or start with less"];
        checked_number("start", start.into(), (min, max), advice)?;
        Ok(Range { start, min, max })
    }

    /// Beginning with `start`, from [`MIN_DEFAULT`] to [`MAX_DEFAULT`] or as far as the start itself.
    ///
    /// # Errors
    /// When the start is 0 or too large.
    pub fn starting_at(start: u64) -> Result<Range, OutOfBounds> {
        Range::new(start, start.min(MIN_DEFAULT.into()), start.max(MAX_DEFAULT.into()))
    }

    /// What the limit is before anything is known.
    pub const fn start(self) -> u32 {
        self.start
    }

    /// The least that the limit becomes.
    pub const fn min(self) -> u32 {
        self.min
    }

    /// The most that the limit becomes.
    pub const fn max(self) -> u32 {
        self.max
    }
}

/// A limit on how many calls run at once, found from how the calls end: the rule and its settings, within their bounds.
///
/// | line | the limit |
/// |---|---|
/// | `aimd 20` | begins with 20; one more after a good call, a tenth less after one that was dropped or took more than 5 s |
/// | `gradient 20` | begins with 20; grows while calls take at most half as long again as usual, shrinks as they take longer |
///
/// Both keep within `min=20` and `max=200` by default; a start outside of that moves them. Which to take is in
/// [`guide::adaptive`](crate::guide::adaptive).
///
/// ```
/// use sluicegate_guard::AdaptiveLimit;
///
/// let limit: AdaptiveLimit = "gradient 20 max=500 tolerance=150%".parse()?;
/// assert_eq!(limit.to_string(), "gradient 20 max=500");
///
/// let mistake = "aimd 20 backoff=0.9".parse::<AdaptiveLimit>().unwrap_err();
/// assert_eq!(
///     mistake.to_string(),
///     r#"aimd 20 backoff=0.9: backoff "0.9" has no %; write 90%"#
/// );
/// # Ok::<(), sluicegate_guard::LimitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AdaptiveLimit {
    /// By what is dropped.
    Aimd(Aimd),
    /// By how long calls take.
    Gradient(Gradient),
}

impl AdaptiveLimit {
    /// Between what the limit moves.
    pub const fn range(&self) -> Range {
        match self {
            AdaptiveLimit::Aimd(config) => config.range(),
            AdaptiveLimit::Gradient(config) => config.range(),
        }
    }
}

impl From<Aimd> for AdaptiveLimit {
    fn from(config: Aimd) -> AdaptiveLimit {
        AdaptiveLimit::Aimd(config)
    }
}

impl From<Gradient> for AdaptiveLimit {
    fn from(config: Gradient) -> AdaptiveLimit {
        AdaptiveLimit::Gradient(config)
    }
}

/// A limit that moves, with what it has learned so far.
#[derive(Clone, Debug)]
pub struct Adaptive {
    inner: Inner,
}

#[derive(Clone, Debug)]
enum Inner {
    Aimd { config: Aimd, limit: u32 },
    Gradient { config: Gradient, slope: Slope },
}

impl Adaptive {
    /// One that has learned nothing.
    pub fn new(config: impl Into<AdaptiveLimit>) -> Adaptive {
        let inner = match config.into() {
            AdaptiveLimit::Aimd(config) => Inner::Aimd { config, limit: config.range().start },
            AdaptiveLimit::Gradient(config) => Inner::Gradient { config, slope: Slope::new(config) },
        };
        Adaptive { inner }
    }

    /// How it moves.
    pub fn config(&self) -> AdaptiveLimit {
        match &self.inner {
            Inner::Aimd { config, .. } => AdaptiveLimit::Aimd(*config),
            Inner::Gradient { config, .. } => AdaptiveLimit::Gradient(*config),
        }
    }

    /// The limit now.
    pub fn limit(&self) -> u32 {
        match &self.inner {
            Inner::Aimd { limit, .. } => *limit,
            Inner::Gradient { slope, .. } => slope.limit(),
        }
    }

    /// How long a call takes when all is well, as far as a gradient has learned it.
    pub fn baseline(&self) -> Option<Span> {
        match &self.inner {
            Inner::Aimd { .. } => None,
            Inner::Gradient { slope, .. } => slope.baseline(),
        }
    }

    /// Whether a call that took so long, or has taken so long so far, was too slow for the limit to grow.
    pub fn is_slow(&self, rtt: Span) -> bool {
        match &self.inner {
            Inner::Aimd { config, .. } => rtt > config.timeout(),
            Inner::Gradient { config, slope } => slope.is_slow(config, rtt.min(RTT_MAX)),
        }
    }

    /// A call has ended: the limit after that.
    pub fn sample(&mut self, now: Time, sample: Sample) -> u32 {
        // A call that took no time at all would divide by zero.
        let rtt = sample.rtt.clamp(Span::from_micros(1), RTT_MAX);
        let sample = Sample { rtt, ..sample };
        match &mut self.inner {
            Inner::Aimd { config, limit } => {
                *limit = config.next(*limit, sample);
                *limit
            }
            Inner::Gradient { config, slope } => slope.sample(config, now, sample),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_outside_its_range_is_refused() {
        let said = |start, min, max| Range::new(start, min, max).unwrap_err().to_string();
        assert_eq!(said(5, 20, 200), "start 5 is below the least, 20; lower min=, or start with more");
        assert_eq!(said(300, 20, 200), "start 300 is above the most, 200; raise max=, or start with less");
        assert_eq!(
            said(0, 1, 2),
            "start 0 is below the least, 1; that would deny every call, use at least 1"
        );
        assert!(said(1, 1, 1_000_000_001).starts_with("max 1000000001 is above the most, 1000000000"));
    }

    #[test]
    fn the_usual_range_makes_room_for_its_start() {
        let range = |start| {
            let range = Range::starting_at(start).unwrap();
            (range.min(), range.start(), range.max())
        };
        assert_eq!((range(20), range(5), range(500)), ((20, 20, 200), (5, 5, 200), (20, 500, 500)));
    }
}
