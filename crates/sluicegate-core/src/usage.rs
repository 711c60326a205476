//! What a key has used under a limit, for billing pages and dashboards: "312 of 1000 this month".

use crate::time::{Span, Time};

/// What a key has used under one limit. Reading it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// The highest cost admitted at once for an idle key.
    pub limit: u64,
    /// What is used, rounded up. With debt, and after a limit was lowered, it may exceed the limit.
    ///
    /// Under a bucket or pacer this is what is missing from the full capacity; under a fixed window
    /// or log the cost counted (with `count=all` at most the limit); under a sliding window the
    /// estimate; under `smooth` the permits not stored; under `concurrency` the permits held.
    pub used: u64,
    /// The cost that would be allowed now. Rounded down.
    pub remaining: u64,
    /// The time until the key is fully recovered, assuming no other calls. Rounded up.
    pub reset_after: Span,
    /// The current window of a fixed or sliding window. `None` under other limits, if the first
    /// call has yet to open it, and before its `start`.
    pub window: Option<Window>,
}

impl Usage {
    /// Creates the usage under a limit without windows.
    pub const fn new(limit: u64, used: u64, remaining: u64, reset_after: Span) -> Usage {
        Usage { limit, used, remaining, reset_after, window: None }
    }
}

/// A window of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// When it began.
    pub start: Time,
    /// When it ends; it does not include this moment.
    pub end: Time,
}

impl Window {
    /// Creates a window from microseconds. Moments after [`Time::MAX`] become [`Time::MAX`].
    pub(crate) const fn new(start: u64, end: u64) -> Window {
        Window { start: Time::saturating_from_micros(start), end: Time::saturating_from_micros(end) }
    }

    /// Moves the window by `micros`, to another clock.
    #[must_use]
    pub const fn shifted(self, micros: i64) -> Window {
        Window { start: self.start.shifted(micros), end: self.end.shifted(micros) }
    }
}
