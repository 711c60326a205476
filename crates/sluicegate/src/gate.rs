//! A limiter without keys: one limit for all that comes.

use crate::ids::Receipt;
use crate::key::Fingerprint;
use crate::limit::Limit;
use crate::limiter::{
    BuildError, Call, IntoLimits, Limiter, Reservation, ReserveOptions, StoreStats, VerbError,
};
use crate::wait::{Acquire, MaxWait};
use sluicegate_core::{Decision, Time, Usage};
use std::time::Duration;

/// One limit for everybody: a [`Limiter`] with a single key that need not be named, and so is found
/// sooner.
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
/// It is cheap to share: its clones are the same gate. For a clock of your own or an observer, use
/// [`crate::LimiterBuilder::build_gate`].
#[derive(Clone, Debug)]
pub struct Gate {
    limiter: Limiter,
    key: Fingerprint,
}

impl Gate {
    /// A gate with the default settings.
    ///
    /// # Errors
    /// When a text is not a limit, or limits do not go together.
    pub fn new(limits: impl IntoLimits) -> Result<Gate, BuildError> {
        Limiter::builder(limits).build_gate()
    }

    pub(crate) fn of(limiter: Limiter) -> Gate {
        Gate { key: limiter.fingerprint(()), limiter }
    }

    /// May one call pass now? If so it is charged.
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_at(1, self.limiter.now())
    }

    /// May a call of this cost pass now?
    #[inline]
    pub fn check_cost(&self, cost: u64) -> Decision {
        self.check_at(cost, self.limiter.now())
    }

    /// May a call of this cost pass at a time?
    #[inline]
    pub fn check_at(&self, cost: u64, now: Time) -> Decision {
        self.limiter.check_fingerprint(self.key, cost, now)
    }

    /// Would a call of this cost pass now? Nothing is charged.
    pub fn peek(&self, cost: u64) -> Decision {
        self.limiter.peek((), cost)
    }

    /// Takes `up_to` or as much of it as remains: see [`Limiter::take`].
    ///
    /// # Errors
    /// When the limit does not offer this.
    pub fn take(&self, up_to: u64) -> Result<(Decision, u64), VerbError> {
        self.limiter.take((), up_to)
    }

    /// Charges now, to act within the longest wait: see [`Limiter::check_within`].
    ///
    /// # Errors
    /// When the limit does not offer this.
    pub fn check_within(&self, cost: u64, max_wait: Duration) -> Result<Decision, VerbError> {
        self.limiter.check_within((), cost, max_wait)
    }

    /// Gives cost back: see [`Limiter::refund`].
    ///
    /// # Errors
    /// When the limit does not offer this.
    pub fn refund(&self, cost: u64) -> Result<Decision, VerbError> {
        self.limiter.refund((), cost)
    }

    /// Charges now, to act later: see [`Limiter::reserve`].
    ///
    /// # Errors
    /// When the limit does not offer this, or too many receipts are open.
    pub fn reserve(&self, cost: u64, options: impl Into<ReserveOptions>) -> Result<Reservation, VerbError> {
        self.limiter.reserve((), cost, options)
    }

    /// Waits for as long as it takes until a call of this cost may pass: see [`Limiter::acquire`].
    #[inline]
    pub fn acquire(&self, cost: u64) -> Acquire<'_> {
        Acquire::new(&self.limiter, self.key, cost, MaxWait::Forever)
    }

    /// Waits if the turn comes within `max_wait`: see [`Limiter::acquire_within`].
    #[inline]
    pub fn acquire_within(&self, cost: u64, max_wait: Duration) -> Acquire<'_> {
        Acquire::new(&self.limiter, self.key, cost, MaxWait::For(max_wait.into()))
    }

    /// Waits if the turn comes by a time: see [`Limiter::acquire_until`].
    #[inline]
    pub fn acquire_until(&self, cost: u64, deadline: Time) -> Acquire<'_> {
        Acquire::new(&self.limiter, self.key, cost, MaxWait::Until(deadline))
    }

    /// Gives back a reservation whose receipt was kept: see [`Limiter::cancel`].
    pub fn cancel(&self, receipt: &Receipt) -> bool {
        self.limiter.cancel(receipt)
    }

    /// Says what a reservation whose receipt was kept has used: see [`Limiter::settle`].
    pub fn settle(&self, receipt: &Receipt, used: u64) -> bool {
        self.limiter.settle(receipt, used)
    }

    /// The limiter underneath, whose one key is `()`: for every verb at a time, and what else it
    /// offers.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// When the next window starts: see [`Limiter::next_window`].
    pub fn next_window(&self) -> Time {
        self.limiter.next_window(())
    }

    /// What is used of each limit: see [`Limiter::usage`].
    pub fn usage(&self) -> Vec<(Limit, Usage)> {
        self.limiter.usage(())
    }

    /// Starts afresh.
    pub fn reset(&self) {
        self.limiter.reset(());
    }

    /// Names a call, to be made together with others: see [`crate::check_all`].
    pub fn call(&self, cost: u64) -> Call<'_> {
        self.limiter.call((), cost)
    }

    /// Changes the limit, keeping what was used: see [`Limiter::change`].
    ///
    /// # Errors
    /// As [`Limiter::change`].
    pub fn change(&self, limits: impl IntoLimits) -> Result<(), BuildError> {
        self.limiter.change(limits)
    }

    /// The time on the gate's clock.
    pub fn now(&self) -> Time {
        self.limiter.now()
    }

    /// What has been decided.
    pub fn stats(&self) -> StoreStats {
        self.limiter.stats()
    }
}
