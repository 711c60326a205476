//! What happens beside decisions, for those who watch: an [`Observer`](crate::Observer) is told.

use crate::breaker::{Change, State};
use crate::guard::GuardEvent;
use crate::wait::Refusal;
use std::sync::Arc;

/// Something that happened. An [`Observer`](crate::Observer) is told of it by the thread in which it happened, when no lock is held.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A circuit breaker changed.
    #[non_exhaustive]
    Breaker {
        /// The breaker's name, or that of the set it is of. Keys are not told: there may be millions.
        name: Option<Arc<str>>,
        /// What became of it.
        change: Change,
        /// What it does since.
        state: State,
    },
    /// A lease of a semaphore lapsed before it was returned: its holder crashed, or took longer than ttl. It is told when it is noticed:
    /// by the next call of its key, by another that looks for room, or when somebody waits for it.
    #[non_exhaustive]
    LeaseLapsed {
        /// What it cost.
        cost: u32,
    },

    /// Somebody asked for a place in a bulkhead and had none.
    #[non_exhaustive]
    BulkheadRefused {
        /// The bulkhead's name.
        name: Option<Arc<str>>,
        /// Why.
        refusal: Refusal,
    },

    /// Something happened to a call through a guard.
    #[non_exhaustive]
    Guard {
        /// The guard's name.
        name: Arc<str>,
        /// What happened.
        what: GuardEvent,
    },
    /// A bulkhead's rule moved its limit.
    #[non_exhaustive]
    LimitMoved {
        /// The bulkhead's name.
        name: Option<Arc<str>>,
        /// What it was.
        from: u32,
        /// What it is now.
        to: u32,
    },
}
