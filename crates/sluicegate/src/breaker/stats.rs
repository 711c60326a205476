//! What breakers have done, for metrics.

use sluicegate_core::breaker::{Counts, State, Totals};

/// What a breaker has seen since it was made, and how it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BreakerStats {
    /// What it does now.
    pub state: State,
    /// Calls that were let through and have ended, however they did.
    pub allowed: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that went well.
    pub successes: u64,
    /// Calls that failed.
    pub failures: u64,
    /// Calls that were slow, whether they succeeded or failed.
    pub slow: u64,
    /// Calls that said nothing about what was called.
    pub ignored: u64,
    /// Calls that were dropped before they ended.
    pub dropped: u64,
    /// Probes that had not ended in time. They are counted above when they end after all.
    pub lapsed: u64,
    /// Calls that ended in a later phase than theirs, and changed nothing. They are counted above.
    pub late: u64,
    /// How often it opened.
    pub opened: u64,
    /// How often it would have opened while it only counted.
    pub would_have_opened: u64,
    /// What counts now: the calls of the window, or when half-open the probes that have ended. Their rates are
    /// [`Counts::failure_rate`] and [`Counts::slow_rate`].
    pub window: Counts,
}

impl BreakerStats {
    pub(super) fn of(state: State, totals: Totals, window: Counts) -> BreakerStats {
        let Totals {
            denied,
            successes,
            failures,
            slow,
            ignored,
            dropped,
            lapsed,
            late,
            opened,
            would_have_opened,
        } = totals;
        BreakerStats {
            state,
            allowed: totals.ended(),
            denied,
            successes,
            failures,
            slow,
            ignored,
            dropped,
            lapsed,
            late,
            opened,
            would_have_opened,
            window,
        }
    }
}
