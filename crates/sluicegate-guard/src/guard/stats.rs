//! Statistics and events of a guard.

use super::error::GuardDenial;
use sluicegate_core::Span;
use std::sync::atomic::{AtomicU64, Ordering};

/// An event of a call through a guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GuardEvent {
    /// An attempt was denied.
    Denied(GuardDenial),
    /// An attempt failed, by its classifier or a panic.
    Failed,
    /// An attempt timed out.
    TimedOut,
    /// The call will be retried.
    #[non_exhaustive]
    Retried {
        /// The first retry is 1.
        nth: u32,
        /// The delay before the retry.
        delay: Span,
    },
    /// The call would have been retried, but the retry budget is spent.
    RetryDenied,
    /// The fallback is used.
    FellBack,
    /// The fallback was needed, but `max_fallbacks` were running.
    FallbackDenied,
}

/// Totals of a guard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct GuardStats {
    /// Calls.
    pub calls: u64,
    /// Attempts made.
    pub allowed: u64,
    /// Attempts denied by the breaker, the bulkhead or the deadline, or for want of a thread.
    pub denied: u64,
    /// Attempts that failed, including panics but not timeouts.
    pub failed: u64,
    /// Attempts that timed out.
    pub timed_out: u64,
    /// Retries.
    pub retried: u64,
    /// Retries denied by the budget.
    pub retries_denied: u64,
    /// Fallbacks used.
    pub fell_back: u64,
    /// Fallbacks denied because `max_fallbacks` were running.
    pub fallbacks_denied: u64,
}

/// The live counters of [`GuardStats`].
#[derive(Default)]
pub(super) struct Counts {
    calls: AtomicU64,
    allowed: AtomicU64,
    denied: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
    retried: AtomicU64,
    retries_denied: AtomicU64,
    fell_back: AtomicU64,
    fallbacks_denied: AtomicU64,
}

impl Counts {
    pub(super) fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn allowed(&self) {
        self.allowed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn event(&self, event: &GuardEvent) {
        let count = match event {
            GuardEvent::Denied(_) => &self.denied,
            GuardEvent::Failed => &self.failed,
            GuardEvent::TimedOut => &self.timed_out,
            GuardEvent::Retried { .. } => &self.retried,
            GuardEvent::RetryDenied => &self.retries_denied,
            GuardEvent::FellBack => &self.fell_back,
            GuardEvent::FallbackDenied => &self.fallbacks_denied,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> GuardStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GuardStats {
            calls: read(&self.calls),
            allowed: read(&self.allowed),
            denied: read(&self.denied),
            failed: read(&self.failed),
            timed_out: read(&self.timed_out),
            retried: read(&self.retried),
            retries_denied: read(&self.retries_denied),
            fell_back: read(&self.fell_back),
            fallbacks_denied: read(&self.fallbacks_denied),
        }
    }
}
