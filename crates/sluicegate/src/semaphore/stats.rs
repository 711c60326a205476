//! Counts of a semaphore, for metrics.

/// What a semaphore has decided since it was created, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct SemaphoreStats {
    /// Calls that were granted a lease or cost nothing.
    pub allowed: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Of the denied calls, those for which there was no room for another lease or waiter.
    pub no_room: u64,
    /// Leases that were released while they were live.
    pub released: u64,
    /// Renewals.
    pub renewed: u64,
    /// Leases that expired before they were released, counted when that is noticed. If this grows,
    /// holders crash, or `ttl` is too short.
    pub expired: u64,
    /// Leases held, including expired ones that have not been noticed yet.
    pub leases: usize,
    /// The maximum number of leases, including those that waiters are waiting for.
    pub max_leases: usize,
    /// Keys with leases or waiters.
    pub keys: usize,
    /// Waiters.
    pub waiting: usize,
}
