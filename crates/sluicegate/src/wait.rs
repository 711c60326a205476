//! Waiting in a queue instead of being denied: `acquire` instead of `check`.
//!
//! [`Limiter::acquire`](crate::Limiter::acquire) returns an [`Acquire`], to be awaited in any
//! runtime or to block its thread, and results in an [`Acquired`]. Waiters of a key are served by
//! [`Priority`] and then first in, first out; a wait that would be too long, or a full queue, is
//! denied immediately. The guide is [`guide::waiting`](crate::guide::waiting).
//!
//! # Map
//!
//! | file | holds |
//! |---|---|
//! | `acquire.rs` | the call that waits, as a future or blocking its thread |
//! | `queues.rs` | all queues of a store: their lock, counters, wakers and alarm |
//! | `state.rs` | what happens under the lock |
//! | `waiters.rs` | the waiters, and the outcome of each |
//! | `park.rs` | blocks a thread on a future |
//!
//! # Invariants
//!
//! - **Waiters are charged when they are dequeued, not when they are enqueued.** Until the woken
//!   task polls, the charge can be rolled back.
//! - **One lock protects all queues of a store.** A shard of the store may be locked while it is
//!   held, never the other way round, and no waker runs under it. The clock may be read under it.
//! - A call that does not wait reads one counter, that of its group of keys, to see whether any
//!   call waits.

pub(crate) mod acquire;
pub(crate) mod park;
pub(crate) mod queues;
mod state;
mod waiters;

pub use crate::limiter::{MAX_QUEUE_DEFAULT, MAX_WAITERS_DEFAULT, MAX_WAITERS_MAX};
pub use acquire::Acquire;
pub(crate) use acquire::MaxWait;
pub(crate) use queues::{Host, QueueBounds, Queues};
pub use sluicegate_core::queue::Priority;

use crate::answer::{Answer, Source};
use sluicegate_core::{Decision, RetryAfter, Span};
use std::fmt;
use std::time::Duration;

/// The result of waiting in a queue: the call was allowed and charged, or denied.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::clock::ManualClock;
/// use sluicegate::wait::Denial;
/// use std::time::Duration;
///
/// let orders = Limiter::builder("min-interval 30min").clock(ManualClock::default()).build()?;
/// assert!(orders.check("user:42").allowed());
/// let acquired = orders.acquire_within("user:42", 1, Duration::from_secs(60)).blocking();
/// assert_eq!(acquired.denial(), Some(Denial::TooLong)); // immediately: it would take half an hour
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a denied call must not happen: check `allowed()`"]
pub struct Acquired {
    answer: Answer,
    waited: Span,
    denial: Option<Denial>,
}

/// Why a waiting call was denied. Nothing was charged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Denial {
    /// The wait would exceed its bound; or the call does not wait, and waiting would have helped.
    TooLong,
    /// The queue is full: `max_queue`, `max_waiters`, or the `queue=` of a pacer.
    QueueFull,
    /// The cost exceeds the limit: no wait helps.
    Never,
    /// The store is full and denies new keys, or the semaphore holds its maximum of leases.
    NoRoom,
}

impl Acquired {
    /// The result of a call that waited for `waited`. It is allowed if there is no denial.
    #[inline]
    pub fn new(answer: Answer, waited: Span, denial: Option<Denial>) -> Acquired {
        Acquired { answer, waited, denial }
    }

    /// The result of a call that did not wait: if it is denied, waiting would take too long, or
    /// never help.
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

    /// A call that memory denied.
    pub(crate) fn denied(denial: Denial, decision: Decision, waited: Span) -> Acquired {
        Acquired::new(decision.into(), waited, Some(denial))
    }

    /// Returns `true` if the call may happen now, and was charged.
    pub fn allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// The answer. If denied, its `retry_after` is the shortest wait after which the same call
    /// would succeed.
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

    /// Why the call was denied.
    pub fn denial(&self) -> Option<Denial> {
        self.denial
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denial::TooLong => "the wait would be too long; allow a longer wait, or retry later",
            Denial::QueueFull => "the queue is full; retry later, or raise max_queue or max_waiters",
            Denial::Never => "the cost exceeds the limit, so no wait helps; use a smaller cost",
            Denial::NoRoom => {
                "no room for another key or lease; raise max_keys or max_leases, or allow eviction"
            }
        })
    }
}

impl std::error::Error for Denial {}
