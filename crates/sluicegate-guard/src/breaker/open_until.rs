//! Denies calls of an open breaker without its lock: while it is open every call is denied, and
//! often many come at once.

use super::admission::Denied;
use super::machine::State;
use sluicegate::internal::AnyClock;
use sluicegate::internal::sync::{AtomicU64, Ordering};
use sluicegate_core::{RetryAfter, Time};
use std::sync::atomic::AtomicU64 as Count;

/// The period in which every call is denied.
pub(super) struct OpenUntil {
    since: AtomicU64,
    /// 0 if the breaker is not open.
    until: AtomicU64,
    /// Calls denied without the lock.
    denied: Count,
}

impl OpenUntil {
    pub(super) fn new() -> OpenUntil {
        OpenUntil { since: AtomicU64::new(0), until: AtomicU64::new(0), denied: Count::new(0) }
    }

    /// Publishes the period. Called under the breaker's lock whenever the period may have changed.
    ///
    /// A reader may see one old and one new word. In both cases it either denies a call at a time
    /// at which the breaker was open since the call began, or takes the lock.
    pub(super) fn set(&self, open_until: Option<(Time, Time)>) {
        let (since, until) =
            open_until.map_or((0, 0), |(since, until)| (since.as_micros(), until.as_micros()));
        self.since.store(since, Ordering::Relaxed);
        self.until.store(until, Ordering::Relaxed);
    }

    /// Returns a denial if no lock is needed. Returns `None` for a time before the period began:
    /// the clock has stepped back, which only the state machine can handle.
    #[inline]
    pub(super) fn deny(&self, clock: &AnyClock) -> Option<Denied> {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return None;
        }
        let now = clock.now();
        if until <= now.as_micros() || now.as_micros() < self.since.load(Ordering::Relaxed) {
            return None;
        }
        self.denied.fetch_add(1, Ordering::Relaxed);
        let wait = Time::saturating_from_micros(until).since(now);
        Some(Denied { state: State::Open, retry_after: RetryAfter::After(wait) })
    }

    /// Returns the number of calls denied without the lock.
    pub(super) fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }
}
