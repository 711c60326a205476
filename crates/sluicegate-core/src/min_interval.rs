//! Minimum interval: two allowed calls are at least that far apart.
//!
//! After an allowed call, all calls are denied for `interval`. That is a token bucket with a single
//! token that takes `interval` to come back, so the arithmetic is the same (gcra.rs).
//!
//! ```text
//! Settings   interval
//! State      the moment at which the next call is allowed, in 16 bytes
//! Formula    allow if now >= last allowed + interval
//! Promise    two allowed calls are at least `interval` apart, so a stretch of length w admits at
//!            most 1 + w / interval.
//! Rounding   none: everything is in whole microseconds.
//! Clock      a step back extends the wait by the step.
//! Cost       16 bytes per key; a multiplication and a division per decision, as for every bucket.
//!
//! Example    200ms: calls at 0 ms and 200 ms are allowed; one at 150 ms may retry in 50 ms.
//! ```

use crate::bounds::{OutOfBounds, Rate, checked_period};
use crate::gcra::{Bucket, FillTime, Gcra};
use crate::time::Span;

const FILL_TIME: FillTime = FillTime { name: "interval", advice: "use a shorter interval" };

/// The minimum interval. Pick it to space out repeats: a resent code, a saved draft, a polled
/// device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MinInterval {
    gcra: Gcra,
}

impl MinInterval {
    /// Creates a limit of at least `interval` between two allowed calls.
    ///
    /// # Errors
    /// If the interval is 0 or above [`crate::bounds::PERIOD_MAX`].
    pub fn new(interval: Span) -> Result<MinInterval, OutOfBounds> {
        let rate = Rate::new(1, checked_period("interval", interval)?)?;
        Ok(MinInterval { gcra: Gcra::new(rate, 1, &FILL_TIME)? })
    }
}

impl Bucket for MinInterval {
    #[inline]
    fn gcra(&self) -> &Gcra {
        &self.gcra
    }
}
