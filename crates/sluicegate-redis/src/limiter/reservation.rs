//! What was reserved.

use super::{Close, RedisLimiter};
use sluicegate::backend::Reserved;
use sluicegate::backend::{Answer, BackendError};
use sluicegate::{Decision, Receipt, Time};
use std::time::Duration;

/// The answer to a reservation. If it was allowed the cost is charged, and stays charged unless it is cancelled or
/// settled here. Dropping it keeps the charge, as after a plain check; to cancel later from elsewhere,
/// [`RedisReservation::keep`] the receipt.
#[derive(Debug)]
#[must_use = "a denied reservation charges nothing; operation `allowed()` first"]
pub struct RedisReservation {
    limiter: RedisLimiter,
    reserved: Reserved,
}

impl RedisReservation {
    pub(super) fn new(limiter: &RedisLimiter, reserved: Reserved) -> RedisReservation {
        RedisReservation { limiter: limiter.clone(), reserved }
    }

    /// The answer.
    pub fn answer(&self) -> Answer {
        self.reserved.answer
    }

    /// The decision of the answer.
    pub fn decision(&self) -> Decision {
        self.reserved.answer.decision()
    }

    /// Returns `true` if it was allowed, and so charged.
    pub fn allowed(&self) -> bool {
        self.reserved.answer.allowed()
    }

    /// How long to wait before acting. Nothing here waits for you.
    pub fn delay(&self) -> Duration {
        self.reserved.answer.delay().into()
    }

    /// Returns what still counts of the cost. `true` if that was anything.
    ///
    /// # Errors
    /// When the store gives no answer.
    pub async fn cancel(self) -> Result<bool, BackendError> {
        self.close(Close::Cancel, None).await
    }

    /// Cancels at a time.
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`].
    pub async fn cancel_at(self, now: Time) -> Result<bool, BackendError> {
        self.close(Close::Cancel, Some(now)).await
    }

    /// Changes the charge to what was used: the rest is returned, an excess becomes debt. `false` if the reservation was
    /// denied, or its receipt is unknown by now.
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`].
    pub async fn settle(self, used: u32) -> Result<bool, BackendError> {
        self.close(Close::Settle { used }, None).await
    }

    /// Settles at a time.
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`].
    pub async fn settle_at(self, used: u32, now: Time) -> Result<bool, BackendError> {
        self.close(Close::Settle { used }, Some(now)).await
    }

    /// Keeps the receipt for later: [`RedisLimiter::cancel`] and [`RedisLimiter::settle`] take it, in any process. `None` if
    /// nothing was charged, or only in this process's memory.
    pub fn keep(mut self) -> Option<Receipt> {
        self.reserved.receipt.take()
    }

    async fn close(mut self, close: Close, at: Option<Time>) -> Result<bool, BackendError> {
        match self.reserved.receipt.take() {
            Some(receipt) => self.limiter.inner.close(&receipt, close, at).await,
            None => Ok(false),
        }
    }
}

impl Drop for RedisReservation {
    /// Without its receipt nothing can be returned any more, so the store need not keep it.
    fn drop(&mut self) {
        if let Some(receipt) = &self.reserved.receipt {
            self.limiter.inner.forget_detached(receipt);
        }
    }
}
