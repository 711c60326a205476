//! The result of a call.

/// The result of one call. Durations are in whole microseconds, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call is allowed.
    pub allowed: bool,
    /// The highest cost admitted at once for an idle key.
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

/// The limit, and what remains, of a key without limits.
pub const UNLIMITED: u64 = 1_000_000_000_000;

/// The decision on several calls, charged to all of them or to none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The decision. Its `denied_by` is a position in the list of the call that was denied.
    pub decision: Decision,
    /// If denied: the index of the call that was denied. If several calls have its key, the first.
    pub denied_call: Option<usize>,
}

/// What was used of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The highest cost admitted at once for an idle key.
    pub limit: u64,
    /// What is charged now, rounded up. It may exceed the limit.
    pub used: u64,
    /// The largest cost that would be allowed now.
    pub remaining: u64,
    /// The time until the key is fully recovered.
    pub reset_after: u64,
    /// The window that the call is in, for the algorithms with windows.
    ///
    /// Absent before `start=TIME`, where nothing counts as used either, and while none is open. If
    /// the clock stepped back it is the window of the latest allowed call, as for a decision.
    pub window: Option<Window>,
}

/// A window, from its start up to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first moment that is part of it.
    pub start: u64,
    /// The first moment that is not.
    pub end: u64,
}

/// Why a receipt was not touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// It is used, expired, void or unknown.
    NotOpen,
    /// There must be one number, or one for each call of the reservation.
    WrongCount,
}

/// The wait after a denial. `Never` is longer than any wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetryAfter {
    /// The same call would be allowed after this many microseconds, and not one earlier.
    After(u64),
    /// The cost exceeds the limit, so no wait helps.
    Never,
}

/// Identifies one reservation, until it is cancelled, settled or expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiptId(pub(crate) u64);
