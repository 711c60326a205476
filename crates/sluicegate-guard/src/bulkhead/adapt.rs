//! What moves a bulkhead's limit by how calls end.

use super::{Bulkhead, CallStart, checked_limit};
use crate::Outcome;
use crate::event::Event;
use sluicegate_core::{Span, Time};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

/// A rule that finds the right limit while calls go on. It is told of each call that has ended, and says what the limit is to be.
///
/// It is asked under a lock of its own, by one caller at a time, so it must not use the bulkhead.
///
/// ```
/// use sluicegate_guard::Outcome;
/// use sluicegate_guard::bulkhead::{Adapt, Bulkhead, CompletedCall};
///
/// /// Half of the permits after a failure.
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
    /// A call has ended. What the limit is from now on; 0 is taken as 1.
    fn after_call(&mut self, call: &CompletedCall) -> u32;
}

/// A call that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CompletedCall {
    /// How. [`Outcome::Dropped`] when its permit was dropped without a word.
    pub outcome: Outcome,
    /// How long it had its permit.
    pub took: Span,
    /// When.
    pub at: Time,
    /// How many permits were taken when it began, its own included.
    pub in_use: u32,
    /// How many there are now.
    pub limit: u32,
}

impl Bulkhead {
    /// Tells the rule, and gives back the panic that came of it, if one did.
    #[cold]
    pub(super) fn adapt_and_catch(&self, outcome: Outcome, start: CallStart) -> Option<Box<dyn Any + Send>> {
        catch_unwind(AssertUnwindSafe(|| self.adapt(outcome, start))).err()
    }

    /// Tells the rule, and sets the limit that it wants.
    #[cold]
    pub(super) fn adapt(&self, outcome: Outcome, start: CallStart) {
        let Some(algorithm) = &self.inner.adapt else { return };
        let at = self.now();
        // After a step back of the clock nobody knows how long it took: then it says nothing.
        let outcome = if at < start.at { Outcome::Ignored } else { outcome };
        let (from, to) = {
            let mut algorithm = algorithm.lock().unwrap_or_else(PoisonError::into_inner);
            let limit = self.inner.permits.read().limit;
            let (took, in_use) = (at.since(start.at), start.in_use);
            let wanted = algorithm.after_call(&CompletedCall { outcome, took, at, in_use, limit });
            // Under the rule's lock, so that limits are set in the order in which it said so.
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
