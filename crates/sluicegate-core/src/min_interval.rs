//! Minimum interval: two allowed calls are at least so far apart.
//!
//! In plain words: after an allowed call the door stays shut for `interval`. That is a token bucket with a
//! single token which takes `interval` to come back, so the arithmetic is the very same (gcra.rs).
//!
//! ```text
//! Settings   interval
//! State      the moment at which the door opens again, in 16 bytes
//! Formula    allow if now >= last allowed + interval
//! Promise    any two allowed calls are at least `interval` apart; a stretch of length w admits 1 + w / interval.
//! Rounding   none: everything is whole microseconds.
//! Clock      a step back keeps the door shut for the step longer.
//! Cost       16 bytes a key; a multiplication and a division a decision, as for every bucket.
//!
//! Example    200ms: a call at t = 0 passes, one at 150 ms is told to wait 50 ms, one at 200 ms passes.
//! ```

use crate::bounds::{OutOfBounds, Rate, checked_period};
use crate::gcra::{Bucket, FillTime, Gcra};
use crate::time::Span;

const FILL_TIME: FillTime = FillTime { name: "interval", advice: "use a shorter interval" };

/// The minimum interval. Pick it for "not again within": a resent code, a saved draft, a polled device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MinInterval {
    gcra: Gcra,
}

impl MinInterval {
    /// At least `interval` between two allowed calls.
    ///
    /// # Errors
    /// When the interval is 0 or above [`crate::bounds::PERIOD_MAX`].
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
