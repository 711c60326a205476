//! The hook that changes a bulkhead's limit after each call.

use super::{Bulkhead, CallStart, checked_limit};
use crate::Outcome;
use crate::event::Event;
use sluicegate_core::{Span, Time};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

/// An algorithm that finds the right limit from the calls that end.
///
/// It runs under a lock of its own, for one call at a time, so it must not use the bulkhead.
///
/// ```
/// use sluicegate_guard::Outcome;
/// use sluicegate_guard::bulkhead::{Adapt, Bulkhead, CompletedCall};
///
/// /// Halves the limit after a failure.
/// struct Halve;
///
/// impl Adapt for Halve {
///     fn after_call(&mut self, call: &CompletedCall) -> u32 {
///         if call.outcome == Outcome::Failure { call.limit / 2 } else { call.limit }
///     }
/// }
///
/// let bulkhead = Bulkhead::builder("bulkhead 16").adapt(Halve).build()?;
/// bulkhead.try_acquire().unwrap().finish(Outcome::Failure);
/// assert_eq!(bulkhead.stats().limit, 8);
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
pub trait Adapt: Send {
    /// Returns the limit from now on; 0 is taken as 1.
    fn after_call(&mut self, call: &CompletedCall) -> u32;
}

/// A call that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CompletedCall {
    /// Its outcome; [`Outcome::Dropped`] if its permit was dropped without one.
    pub outcome: Outcome,
    /// How long it held its permit.
    pub took: Span,
    /// When it ended.
    pub at: Time,
    /// Permits in use when it began, including its own.
    pub in_use: u32,
    /// The current limit.
    pub limit: u32,
}

impl Bulkhead {
    /// Runs the algorithm, and returns its panic, if there was one.
    #[cold]
    pub(super) fn adapt_and_catch(&self, outcome: Outcome, start: CallStart) -> Option<Box<dyn Any + Send>> {
        catch_unwind(AssertUnwindSafe(|| self.adapt(outcome, start))).err()
    }

    /// Runs the algorithm, and sets the limit that it returns.
    #[cold]
    pub(super) fn adapt(&self, outcome: Outcome, start: CallStart) {
        let Some(algorithm) = &self.inner.adapt else { return };
        let at = self.now();
        // After a backward clock step the duration is unknown, so the call is ignored.
        let outcome = if at < start.at { Outcome::Ignored } else { outcome };
        let (from, to) = {
            let mut algorithm = algorithm.lock().unwrap_or_else(PoisonError::into_inner);
            let limit = self.inner.permits.read().limit;
            let (took, in_use) = (at.since(start.at), start.in_use);
            let wanted = algorithm.after_call(&CompletedCall { outcome, took, at, in_use, limit });
            // Under the algorithm's lock, so that limits are set in the order in which they were
            // returned.
            let wanted = checked_limit(wanted);
            self.inner.permits.set_limit(wanted);
            (limit, wanted)
        };
        if to > from {
            self.inner.wake_waiters();
        }
        if let Some(observer) = self.inner.observer.as_ref().filter(|_| to != from) {
            observer.event(&Event::LimitChanged { name: self.inner.name.clone(), from, to });
        }
    }
}
