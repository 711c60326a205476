//! A limiter without keys: one limit for all calls.

use crate::ids::Receipt;
use crate::key::Fingerprint;
use crate::limit::Limit;
use crate::limiter::{
    BuildError, Call, IntoLimits, Limiter, Reservation, ReserveOptions, StoreStats, VerbError,
};
use crate::wait::{Acquire, MaxWait};
use sluicegate_core::{Decision, Time, Usage};
use std::time::Duration;

/// One limit for all calls: a [`Limiter`] with a single key, which callers do not name and whose
/// hash is computed once.
///
/// ```
/// use sluicegate::Gate;
///
/// let uploads = Gate::new("token-bucket 100/s burst=20")?;
/// if uploads.check().allowed() {
///     // go on
/// }
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A gate is cheap to share: its clones are the same gate. To set the clock or an observer, use
/// [`LimiterBuilder::build_gate`](crate::LimiterBuilder::build_gate).
#[derive(Clone, Debug)]
pub struct Gate {
    limiter: Limiter,
    key: Fingerprint,
}

impl Gate {
    /// Creates a gate with the default settings.
    ///
    /// # Errors
    /// If a text is not a limit, or the limits do not go together.
    pub fn new(limits: impl IntoLimits) -> Result<Gate, BuildError> {
        Limiter::builder(limits).build_gate()
    }

    pub(crate) fn of(limiter: Limiter) -> Gate {
        Gate { key: limiter.fingerprint(()), limiter }
    }

    /// Decides a call of cost 1, and charges it if it is allowed.
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_at(1, self.limiter.now())
    }

    /// Decides a call, and charges it if it is allowed.
    #[inline]
    pub fn check_cost(&self, cost: u64) -> Decision {
        self.check_at(cost, self.limiter.now())
    }

    /// Decides a call at a given time: see [`Gate::check_cost`].
    #[inline]
    pub fn check_at(&self, cost: u64, now: Time) -> Decision {
        self.limiter.check_fingerprint(self.key, cost, now)
    }

    /// Decides a call without charging it.
    pub fn peek(&self, cost: u64) -> Decision {
        self.limiter.peek((), cost)
    }

    /// Charges `up_to`, or as much of it as remains: see [`Limiter::take`].
    ///
    /// # Errors
    /// If the limit does not support this.
    pub fn take(&self, up_to: u64) -> Result<(Decision, u64), VerbError> {
        self.limiter.take((), up_to)
    }

    /// Charges now a call that is made after a delay of at most `max_wait`: see
    /// [`Limiter::check_within`].
    ///
    /// # Errors
    /// If the limit does not support this.
    pub fn check_within(&self, cost: u64, max_wait: Duration) -> Result<Decision, VerbError> {
        self.limiter.check_within((), cost, max_wait)
    }

    /// Returns cost: see [`Limiter::refund`].
    ///
    /// # Errors
    /// If the limit does not support this.
    pub fn refund(&self, cost: u64) -> Result<Decision, VerbError> {
        self.limiter.refund((), cost)
    }

    /// Charges now a call that acts after a delay: see [`Limiter::reserve`].
    ///
    /// # Errors
    /// If the limit does not support this, or too many receipts are open.
    pub fn reserve(&self, cost: u64, options: impl Into<ReserveOptions>) -> Result<Reservation, VerbError> {
        self.limiter.reserve((), cost, options)
    }

    /// Waits until a call of this cost is allowed: see [`Limiter::acquire`].
    #[inline]
    pub fn acquire(&self, cost: u64) -> Acquire<'_> {
        Acquire::new(&self.limiter, self.key, cost, MaxWait::Forever)
    }

    /// Waits for at most `max_wait`: see [`Limiter::acquire_within`].
    #[inline]
    pub fn acquire_within(&self, cost: u64, max_wait: Duration) -> Acquire<'_> {
        Acquire::new(&self.limiter, self.key, cost, MaxWait::For(max_wait.into()))
    }

    /// Waits until a deadline: see [`Limiter::acquire_until`].
    #[inline]
    pub fn acquire_until(&self, cost: u64, deadline: Time) -> Acquire<'_> {
        Acquire::new(&self.limiter, self.key, cost, MaxWait::Until(deadline))
    }

    /// Cancels a reservation whose receipt was kept: see [`Limiter::cancel`].
    pub fn cancel(&self, receipt: &Receipt) -> bool {
        self.limiter.cancel(receipt)
    }

    /// Settles a reservation whose receipt was kept: see [`Limiter::settle`].
    pub fn settle(&self, receipt: &Receipt, used: u64) -> bool {
        self.limiter.settle(receipt, used)
    }

    /// Returns the limiter, whose only key is `()`. It has the forms of the verbs that take a time,
    /// and everything else that a gate does not have.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Returns when the next window starts: see [`Limiter::next_window`].
    pub fn next_window(&self) -> Time {
        self.limiter.next_window(())
    }

    /// Returns what has been used under each limit: see [`Limiter::usage`].
    pub fn usage(&self) -> Vec<(Limit, Usage)> {
        self.limiter.usage(())
    }

    /// Deletes the gate's state: see [`Limiter::reset`].
    pub fn reset(&self) {
        self.limiter.reset(());
    }

    /// Creates a call for [`check_all`](crate::check_all).
    pub fn call(&self, cost: u64) -> Call<'_> {
        self.limiter.call((), cost)
    }

    /// Changes the parameters of the limits: see [`Limiter::change`].
    ///
    /// # Errors
    /// As [`Limiter::change`].
    pub fn change(&self, limits: impl IntoLimits) -> Result<(), BuildError> {
        self.limiter.change(limits)
    }

    /// Returns the time on the gate's clock.
    pub fn now(&self) -> Time {
        self.limiter.now()
    }

    /// Returns counts of decisions: see [`Limiter::stats`].
    pub fn stats(&self) -> StoreStats {
        self.limiter.stats()
    }
}
