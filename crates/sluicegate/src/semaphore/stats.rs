//! What a semaphore has done, for metrics.

/// What a semaphore has decided since it was made, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct SemaphoreStats {
    /// Calls that were given a lease, or cost nothing.
    pub allowed: u64,
    /// Calls that were denied or refused.
    pub denied: u64,
    /// Leases that were returned while they were live.
    pub released: u64,
    /// How often a lease was renewed.
    pub renewed: u64,
    /// Leases that lapsed before they were returned, each counted when it is noticed. If this grows, holders crash, or ttl is too short
    /// for them.
    pub expired: u64,
    /// Leases held now, those included that have lapsed and were not noticed yet.
    pub leases: usize,
    /// The most leases it can hold, together with those who wait for one.
    pub max_leases: usize,
    /// Keys with a lease or somebody who waits.
    pub keys: usize,
    /// Callers that wait in line now.
    pub waiting: usize,
}
