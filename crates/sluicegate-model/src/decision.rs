//! The result of a call.

/// The result of one call. Durations are in whole microseconds, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call is allowed.
    pub allowed: bool,
    /// The most that an idle key could take at once.
    pub limit: u64,
    /// The largest cost that would be allowed now, after this call.
    pub remaining: u64,
    /// If denied: the shortest wait after which the same call would be allowed.
    pub retry_after: Option<RetryAfter>,
    /// The time until the key is fully recovered.
    pub reset_after: u64,
    /// How long the caller must wait before acting on an allowed call.
    pub delay: u64,
    /// If denied: the position in the list of the rule that denied the call.
    pub denied_by: Option<usize>,
}

/// The wait after a denial. `Never` is longer than any wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetryAfter {
    /// The same call would be allowed after this many microseconds, and not one earlier.
    After(u64),
    /// The cost exceeds the limit, so no wait helps.
    Never,
}

/// Identifies one reservation, for one cancel or settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiptId(pub(crate) u64);
