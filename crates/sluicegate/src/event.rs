//! What happens beside decisions, for those who watch: an [`Observer`](crate::Observer) is told.

/// Something that happened. An [`Observer`](crate::Observer) is told of it by the thread in which it happened, when no lock is held.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A lease of a semaphore lapsed before it was returned: its holder crashed, or took longer than ttl. It is told when it is noticed:
    /// by the next call of its key, by another that looks for room, or when somebody waits for it.
    #[non_exhaustive]
    LeaseExpired {
        /// What it cost.
        cost: u64,
    },
}
