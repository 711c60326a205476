//! Leaky bucket: a funnel that fills by cost and leaks at a steady rate.
//!
//! A call pours its cost in, and the funnel leaks evenly, `count` every `period`. A call is allowed
//! if its cost still fits. It is the token bucket seen from below: free room in the funnel is what
//! the token bucket calls tokens, so the arithmetic is the same (gcra.rs).
//!
//! ```text
//!  \ ~~~~~ /   <- capacity
//!   \~~~~~/    cost goes in at the top, all of it or none
//!    \~~~/
//!     | |      count per period leaks out
//! ```
//!
//! ```text
//! Settings   count per period, capacity (default count)
//! State      the moment at which the funnel will be empty, in 16 bytes
//! Formula    water(t) = max(0, water - (t - last) * count / period)
//!            allow if water + cost <= capacity
//! Promise    any stretch of length w admits at most capacity + w * count / period.
//! Rounding   none in the decision; waits are rounded up, remaining is rounded down.
//! Clock      a step back raises the water of a funnel in use by what the step would have leaked,
//!            until the clock has caught up.
//! Cost       16 bytes per key; a multiplication and a division per decision.
//!
//! Example    1/2s capacity=3: three calls are allowed at once, then one every 2 s.
//! ```
//!
//! If calls should queue in the funnel instead of being denied, use `pacer`.

use crate::bounds::{OutOfBounds, Rate, checked_count};
use crate::gcra::{Bucket, FillTime, Gcra};

const FILL_TIME: FillTime =
    FillTime { name: "time to drain", advice: "use a smaller capacity, or a faster rate" };

/// The leaky bucket. Pick it if you think in terms of a funnel; it decides exactly like the token
/// bucket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeakyBucket {
    gcra: Gcra,
}

impl LeakyBucket {
    /// Creates a funnel that leaks at `rate` and holds at most `capacity`.
    ///
    /// # Errors
    /// If the capacity is 0 or above [`crate::bounds::COUNT_MAX`], or takes more than a century to
    /// drain.
    pub fn new(rate: Rate, capacity: u64) -> Result<LeakyBucket, OutOfBounds> {
        let capacity = checked_count("capacity", capacity, 1)?;
        Ok(LeakyBucket { gcra: Gcra::new(rate, capacity, &FILL_TIME)? })
    }
}

impl Bucket for LeakyBucket {
    #[inline]
    fn gcra(&self) -> &Gcra {
        &self.gcra
    }
}
