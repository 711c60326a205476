//! What a guard has done, and what it tells of it.

use super::error::GuardDenial;
use sluicegate_core::Span;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happened to a call through a guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GuardEvent {
    /// A try was not made.
    Denied(GuardDenial),
    /// A try failed: the judge said so, or it panicked.
    Failed,
    /// A try took too long.
    TimedOut,
    /// It is going to be tried again.
    #[non_exhaustive]
    Retried {
        /// The first retry is 1.
        nth: u32,
        /// It rests for so long before.
        delay: Span,
    },
    /// It would have been tried again, but the budget for retries is spent.
    RetryDenied,
    /// The fallback is used.
    FellBack,
    /// The fallback would have been used, but as many are already as may be: `max_fallbacks`.
    FallbackDenied,
}

/// What a guard has done since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct GuardStats {
    /// Calls that were asked for.
    pub calls: u64,
    /// Attempts that were made.
    pub allowed: u64,
    /// Attempts that were not made: refused by the breaker or the bulkhead, too late for the deadline, or without a thread.
    pub denied: u64,
    /// Attempts that failed, panics included, but not those that took too long.
    pub failed: u64,
    /// Attempts that took too long.
    pub timed_out: u64,
    /// Further tries that were decided on.
    pub retried: u64,
    /// Further tries that the budget did not allow.
    pub retries_denied: u64,
    /// Fallbacks that were used.
    pub fell_back: u64,
    /// Fallbacks that were not, as too many were.
    pub fallbacks_denied: u64,
}

/// The same while it counts.
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
