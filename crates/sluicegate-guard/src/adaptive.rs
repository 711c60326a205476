//! Adaptive limits: a limit on the calls in flight, found from how calls end.
//!
//! The right limit for a dependency is rarely known, and it changes. But every call that ends says
//! something: its duration, the calls in flight when it began, and whether it was dropped. An
//! algorithm turns each such [`Sample`] into a new limit, always within `min..=max`:
//!
//! - [`Aimd`] considers only whether calls are dropped or far too slow: one more after each good
//!   call, a tenth less after each bad one.
//! - [`Gradient`] compares the duration of calls with that of a healthy dependency, so it shrinks
//!   before calls are dropped.
//!
//! Both are those of Netflix's concurrency-limits with its defaults; each file says where it
//! differs and why.
//!
//! All of it except `parse.rs` is pure: no clock, lock or I/O; time is an argument.
//!
//! ```
//! use sluicegate_guard::adaptive::{Adaptive, Aimd, Sample};
//! use sluicegate_guard::{Span, Time};
//!
//! let mut limit = Adaptive::new(Aimd::starting_at(20)?);
//! let good = Sample { rtt: Span::from_micros(30_000), in_flight: 20, dropped: false };
//! assert_eq!(limit.sample(Time::EPOCH, good), 21);
//! assert_eq!(limit.sample(Time::EPOCH, Sample { in_flight: 5, ..good }), 21); // no need for more
//! assert_eq!(limit.sample(Time::EPOCH, good), 22);
//! assert_eq!(limit.sample(Time::EPOCH, Sample { dropped: true, ..good }), 20); // 22 * 0.9, in range
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

use gradient::GradientState;
use sluicegate_core::bounds::{OutOfBounds, checked_number, checked_permits};
use sluicegate_core::time::SECOND;
use sluicegate_core::{Span, Time};

/// Default of `min`; a lower start lowers it.
pub const MIN_DEFAULT: u32 = 20;
/// Default of `max`; a higher start raises it.
pub const MAX_DEFAULT: u32 = 200;
/// Longer durations count as this one, so a clock step cannot spoil an average for long.
pub const RTT_MAX: Span = Span::from_micros(3_600 * SECOND);

/// A call that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Its duration.
    pub rtt: Span,
    /// Calls in flight when it began, including itself.
    pub in_flight: u32,
    /// Whether the dependency did not do the work: it timed out, or denied the call. A negative
    /// answer is not a drop.
    pub dropped: bool,
}

/// The initial limit and its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    start: u32,
    min: u32,
    max: u32,
}

impl Range {
    /// Creates a range from `min` to `max` that starts with `start`.
    ///
    /// # Errors
    /// If one of them is 0 or above [`PERMITS_MAX`](sluicegate_core::bounds::PERMITS_MAX), or they are
    /// out of order.
    pub fn new(start: u64, min: u64, max: u64) -> Result<Range, OutOfBounds> {
        let checked = |what, value| checked_permits(what, value, 1);
        let (start, min, max) = (checked("start", start)?, checked("min", min)?, checked("max", max)?);
        let advice = ["lower min=, or start higher", "raise max=, or start lower"];
        checked_number("start", start.into(), (min, max), advice)?;
        Ok(Range { start, min, max })
    }

    /// Creates a range from [`MIN_DEFAULT`] to [`MAX_DEFAULT`], extended to include `start`.
    ///
    /// # Errors
    /// If the start is 0 or too large.
    pub fn starting_at(start: u64) -> Result<Range, OutOfBounds> {
        Range::new(start, start.min(MIN_DEFAULT.into()), start.max(MAX_DEFAULT.into()))
    }

    /// Returns the initial limit.
    pub const fn start(self) -> u32 {
        self.start
    }

    /// Returns the lowest limit.
    pub const fn min(self) -> u32 {
        self.min
    }

    /// Returns the highest limit.
    pub const fn max(self) -> u32 {
        self.max
    }
}

/// An adaptive limit on the calls in flight: the algorithm and its settings, within bounds.
///
/// | line | the limit |
/// |---|---|
/// | `aimd 20` | starts at 20; +1 after a good call, -10 % after a drop or a call above 5 s |
/// | `gradient 20` | starts at 20; grows while calls take up to 150 % of the usual time |
///
/// Both stay within `min=20` and `max=200` by default; a start outside extends that range.
/// [`guide::adaptive`](crate::guide::adaptive) says which to choose.
///
/// ```
/// use sluicegate_guard::AdaptiveLimit;
///
/// let limit: AdaptiveLimit = "gradient 20 max=500 tolerance=150%".parse()?;
/// assert_eq!(limit.to_string(), "gradient 20 max=500");
///
/// let error = "aimd 20 backoff=0.9".parse::<AdaptiveLimit>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"aimd 20 backoff=0.9: backoff "0.9" has no %; write 90%"#
/// );
/// # Ok::<(), sluicegate_guard::LimitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AdaptiveLimit {
    /// Reacts to drops.
    Aimd(Aimd),
    /// Reacts to the duration of calls.
    Gradient(Gradient),
}

impl AdaptiveLimit {
    /// Returns the range of the limit.
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

/// An adaptive limit with its state.
#[derive(Clone, Debug)]
pub struct Adaptive {
    inner: Inner,
}

#[derive(Clone, Debug)]
enum Inner {
    Aimd { config: Aimd, limit: u32 },
    Gradient { config: Gradient, state: GradientState },
}

impl Adaptive {
    /// Creates an adaptive limit that has seen no calls.
    pub fn new(config: impl Into<AdaptiveLimit>) -> Adaptive {
        let inner = match config.into() {
            AdaptiveLimit::Aimd(config) => Inner::Aimd { config, limit: config.range().start },
            AdaptiveLimit::Gradient(config) => Inner::Gradient { config, state: GradientState::new(config) },
        };
        Adaptive { inner }
    }

    /// Returns the configuration.
    pub fn config(&self) -> AdaptiveLimit {
        match &self.inner {
            Inner::Aimd { config, .. } => AdaptiveLimit::Aimd(*config),
            Inner::Gradient { config, .. } => AdaptiveLimit::Gradient(*config),
        }
    }

    /// Returns the current limit.
    pub fn limit(&self) -> u32 {
        match &self.inner {
            Inner::Aimd { limit, .. } => *limit,
            Inner::Gradient { state, .. } => state.limit(),
        }
    }

    /// Returns the usual duration of a call, as far as a gradient has learned it.
    pub fn baseline(&self) -> Option<Span> {
        match &self.inner {
            Inner::Aimd { .. } => None,
            Inner::Gradient { state, .. } => state.baseline(),
        }
    }

    /// Returns `true` if a call of this duration, so far, is too slow for the limit to grow.
    pub fn is_slow(&self, rtt: Span) -> bool {
        match &self.inner {
            Inner::Aimd { config, .. } => rtt > config.timeout(),
            Inner::Gradient { config, state } => state.is_slow(config, rtt.min(RTT_MAX)),
        }
    }

    /// Records a call, and returns the new limit.
    pub fn sample(&mut self, now: Time, sample: Sample) -> u32 {
        // A duration of zero would divide by zero.
        let rtt = sample.rtt.clamp(Span::from_micros(1), RTT_MAX);
        let sample = Sample { rtt, ..sample };
        match &mut self.inner {
            Inner::Aimd { config, limit } => {
                *limit = config.next(*limit, sample);
                *limit
            }
            Inner::Gradient { config, state } => state.sample(config, now, sample),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_outside_its_range_is_rejected() {
        let said = |start, min, max| Range::new(start, min, max).unwrap_err().to_string();
        assert_eq!(said(5, 20, 200), "start 5 is below the minimum, 20; lower min=, or start higher");
        assert_eq!(said(300, 20, 200), "start 300 is above the maximum, 200; raise max=, or start lower");
        assert_eq!(
            said(0, 1, 2),
            "start 0 is below the minimum, 1; that would deny every call, use at least 1"
        );
        assert!(said(1, 1, 1_000_000_001).starts_with("max 1000000001 is above the maximum, 1000000000"));
    }

    #[test]
    fn the_default_range_extends_to_its_start() {
        let range = |start| {
            let range = Range::starting_at(start).unwrap();
            (range.min(), range.start(), range.max())
        };
        assert_eq!((range(20), range(5), range(500)), ((20, 20, 200), (5, 5, 200), (20, 500, 500)));
    }
}
