//! Statistics of a breaker.

use super::machine::{Counts, State, Totals};

/// The state and the counts of a breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BreakerStats {
    /// The current state.
    pub state: State,
    /// Totals since the breaker was created.
    pub totals: Totals,
    /// The calls of the window or, in a half-open breaker, the probes that have ended. See
    /// [`Counts::failure_rate`] and [`Counts::slow_rate`].
    pub window: Counts,
}
