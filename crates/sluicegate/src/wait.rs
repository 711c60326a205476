//! Waiting in line: `acquire` instead of `check`.
//!
//! `acquire.rs` is the call that waits, `lines.rs` and `desk.rs` know who waits under which key, `seats.rs` what has come of it,
//! `park.rs` waits in a thread.

pub(crate) mod acquire;
mod desk;
pub(crate) mod lines;
pub(crate) mod park;
mod seats;

pub use crate::limiter::{MAX_QUEUE_DEFAULT, MAX_WAITERS_DEFAULT, MAX_WAITERS_MAX};
pub use acquire::Acquire;
pub(crate) use acquire::Patience;
pub(crate) use lines::{Host, Lines, QueueBounds};
pub use sluicegate_core::line::Priority;

use crate::answer::{Answer, Source};
use sluicegate_core::{Decision, RetryAfter, Span};
use std::fmt;
use std::time::Duration;

/// The result of waiting in a queue: the call was allowed and charged, or refused.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::clock::ManualClock;
/// use sluicegate::wait::Denial;
/// use std::time::Duration;
///
/// let orders = Limiter::builder("min-interval 30min").clock(ManualClock::default()).build()?;
/// assert!(orders.check("shopper-1").allowed());
/// let acquired = orders.acquire_within("shopper-1", 1, Duration::from_secs(60)).blocking();
/// assert_eq!(acquired.denial(), Some(Denial::TooLong)); // at once, as it would be half an hour
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a call that was refused must not happen: ask `allowed()`"]
pub struct Acquired {
    answer: Answer,
    waited: Span,
    denial: Option<Denial>,
}

/// Why somebody had no turn. Nothing was charged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Denial {
    /// The turn would not have come in time; or whoever asked does not wait, and could have.
    TooLong,
    /// As many wait as may: `max_queue`, `max_waiters`, or a `queue=`.
    QueueFull,
    /// The cost is above the limit: no wait helps.
    Never,
    /// The limiter holds as many keys as it may, and is to deny new ones; or the semaphore as many leases.
    NoRoom,
}

impl Acquired {
    /// The result of a call that waited for `waited`. It is allowed if there is no denial.
    #[inline]
    pub fn new(answer: Answer, waited: Span, denial: Option<Denial>) -> Acquired {
        Acquired { answer, waited, denial }
    }

    /// The result of a call that did not wait: if it is denied, waiting would take too long, or never help.
    #[inline]
    pub fn at_once(answer: Answer, waited: Span) -> Acquired {
        let denial = answer.retry_after().map(|retry_after| match retry_after {
            RetryAfter::After(_) => Denial::TooLong,
            RetryAfter::Never => Denial::Never,
        });
        Acquired::new(answer, waited, denial)
    }

    /// A call that memory allowed.
    #[inline]
    pub(crate) fn after(decision: Decision, waited: Span) -> Acquired {
        Acquired::new(decision.into(), waited, None)
    }

    /// A call that memory refused.
    pub(crate) fn refused(denial: Denial, decision: Decision, waited: Span) -> Acquired {
        Acquired::new(decision.into(), waited, Some(denial))
    }

    /// Returns `true` if the call may happen now, and was charged.
    pub fn allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// The answer. If refused, its `retry_after` is the shortest wait after which the same call would do.
    pub fn answer(&self) -> Answer {
        self.answer
    }

    /// The decision of the answer.
    pub fn decision(&self) -> Decision {
        self.answer.decision()
    }

    /// Where the decision was made.
    pub fn source(&self) -> Source {
        self.answer.source()
    }

    /// How long the call waited.
    pub fn waited(&self) -> Duration {
        self.waited.into()
    }

    /// Why the call was refused.
    pub fn denial(&self) -> Option<Denial> {
        self.denial
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denial::TooLong => "the turn would not come in time; wait longer, or come back later",
            Denial::QueueFull => "as many wait already as may; come back later, or let more of them wait",
            Denial::Never => "the cost is above the limit, so no wait helps; ask for less at once",
            Denial::NoRoom => {
                "there is no room for another key or lease; raise max_keys or max_leases, or let keys be evicted"
            }
        })
    }
}

impl std::error::Error for Denial {}
