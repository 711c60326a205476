//! What a caller is told.

/// The decision on one call. Durations are whole microseconds, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Whether the call may go ahead.
    pub allowed: bool,
    /// The most that an idle key could take at once.
    pub limit: u64,
    /// The largest cost that would be allowed now, after this call.
    pub remaining: u64,
    /// When denied: the shortest wait after which the same call would be allowed. `None` when allowed.
    pub retry_after: Option<RetryAfter>,
    /// The shortest wait until the key is as good as new.
    pub reset_after: u64,
    /// How long the caller of an allowed call has to wait before acting on it.
    pub delay: u64,
    /// When denied: the place in the list of the rule that said no.
    pub denied_by: Option<usize>,
}

/// How long a denied caller should wait. `Never` counts as longer than any wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetryAfter {
    /// The same call would be allowed after this many microseconds, and not a microsecond sooner.
    After(u64),
    /// No wait helps: the cost is above the limit.
    Never,
}

/// Names one reservation, for a single cancel or settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiptId(pub(crate) u64);
