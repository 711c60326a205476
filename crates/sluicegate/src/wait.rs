//! Waiting in line: `acquire` instead of `check`.
//!
//! `acquire.rs` is the call that waits, `lines.rs` and `desk.rs` know who waits under which key, `seats.rs` what has come of it,
//! `park.rs` waits in a thread.

mod acquire;
mod desk;
mod lines;
mod park;
mod seats;

pub use acquire::{Acquire, Patience};
pub use lines::wake_all;
pub(crate) use lines::{Host, LineBounds, Lines};
pub use park::wait_here;
pub use sluicegate_core::line::Priority;

use sluicegate_core::{Decision, Span};
use std::fmt;
use std::time::Duration;

/// What came of waiting for a turn.
///
/// ```
/// use sluicegate::{Limiter, ManualClock, Refusal};
/// use std::time::Duration;
///
/// let orders = Limiter::builder("min-interval 30m").clock(ManualClock::default()).build()?;
/// assert!(orders.check("shopper-1").allowed());
/// let turn = orders.acquire_within("shopper-1", 1, Duration::from_secs(60)).blocking();
/// assert_eq!(turn.refusal(), Some(Refusal::TooLong)); // at once, as it would be half an hour
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a call that was refused must not happen: ask `allowed()`"]
pub struct Turn {
    decision: Decision,
    waited: Span,
    refusal: Option<Refusal>,
}

/// Why somebody had no turn. Nothing was charged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The turn would not have come in time; or whoever asked does not wait, and could have.
    TooLong,
    /// As many wait as may: `max_line`, `max_waiting`, or a `queue=`.
    LineFull,
    /// The cost is above the limit: no wait helps.
    Never,
    /// The limiter holds as many keys as it may, and is to deny new ones; or the semaphore as many leases.
    NoRoom,
}

impl Turn {
    pub(crate) fn after(decision: Decision, waited: Span) -> Turn {
        Turn { decision, waited, refusal: None }
    }

    pub(crate) fn refused(refusal: Refusal, decision: Decision, waited: Span) -> Turn {
        Turn { decision, waited, refusal: Some(refusal) }
    }

    /// Whether the turn has come, and was charged.
    pub fn allowed(&self) -> bool {
        self.refusal.is_none()
    }

    /// The whole answer. Refused, its `retry_after` is the shortest wait after which asking in the same way would do.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// How long it waited.
    pub fn waited(&self) -> Duration {
        self.waited.into()
    }

    /// Why it was refused.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::TooLong => "the turn would not come in time; wait longer, or come back later",
            Refusal::LineFull => "as many wait already as may; come back later, or let more of them wait",
            Refusal::Never => "the cost is above the limit, so no wait helps; ask for less at once",
            Refusal::NoRoom => {
                "there is no room for another key or lease; raise max_keys or max_leases, or let keys be evicted"
            }
        })
    }
}

impl std::error::Error for Refusal {}
