//! What a breaker has done, for metrics.

use super::machine::{Counts, State, Totals};

/// What a breaker has counted since it was made, and its state now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BreakerStats {
    /// The state now.
    pub state: State,
    /// All calls since it was made.
    pub totals: Totals,
    /// What counts now: the calls of the window, or when half-open the probes that have ended. Their rates are
    /// [`Counts::failure_rate`] and [`Counts::slow_rate`].
    pub window: Counts,
}
