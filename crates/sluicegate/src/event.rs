//! Events beside decisions, for an [`Observer`](crate::Observer).

/// An event. An [`Observer`](crate::Observer) receives it in the thread in which it happened, while
/// no lock is held.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A lease of a semaphore expired before it was released: its holder crashed, or took longer
    /// than the `ttl`. It is reported when it is noticed: by the next call on its key, by a call
    /// that needs capacity, or when a call waits for it.
    #[non_exhaustive]
    LeaseExpired {
        /// The cost of the lease.
        cost: u64,
    },
}
