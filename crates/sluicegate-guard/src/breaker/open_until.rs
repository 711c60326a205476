//! While a breaker is open: denying without its lock, since then everybody is denied, and often many ask at once.

use super::admission::Denied;
use super::machine::State;
use sluicegate::internal::AnyClock;
use sluicegate::internal::sync::{AtomicU64, Ordering};
use sluicegate_core::{RetryAfter, Time};
use std::sync::atomic::AtomicU64 as Count;

/// From when until when everybody is denied.
pub(super) struct OpenUntil {
    since: AtomicU64,
    /// 0 if the breaker is not open.
    until: AtomicU64,
    /// Calls that were denied here.
    denied: Count,
}

impl OpenUntil {
    pub(super) fn new() -> OpenUntil {
        OpenUntil { since: AtomicU64::new(0), until: AtomicU64::new(0), denied: Count::new(0) }
    }

    /// Says from when until when it is so now. Under the breaker's lock, whenever that may have changed.
    ///
    /// Two words, so others may read one of now and one of before. Either way they find that it was open at some moment since they asked, or ask
    /// the breaker itself.
    pub(super) fn set(&self, open_until: Option<(Time, Time)>) {
        let (since, until) =
            open_until.map_or((0, 0), |(since, until)| (since.as_micros(), until.as_micros()));
        self.since.store(since, Ordering::Relaxed);
        self.until.store(until, Ordering::Relaxed);
    }

    /// A no, if that needs no looking. Not before it began: then the clock has stepped back, and what that means only the breaker knows.
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

    /// How many were denied here.
    pub(super) fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }
}
