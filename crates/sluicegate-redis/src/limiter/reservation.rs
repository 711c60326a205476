//! Reservations.

use super::{Close, RedisLimiter};
use sluicegate::backend::Reserved;
use sluicegate::backend::{Answer, BackendError};
use sluicegate::{Decision, Receipt, Time};
use std::time::Duration;

/// The answer to [`RedisLimiter::reserve`]. If the call is allowed, its cost is charged, and stays
/// charged unless the reservation is cancelled or settled. Dropping the reservation keeps the
/// charge, as after a check; to cancel later or elsewhere, [`keep`](RedisReservation::keep) the
/// receipt.
#[derive(Debug)]
#[must_use = "a denied reservation charges nothing; check `allowed()` first"]
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

    /// The cost that was granted, 0 if denied.
    pub fn granted(&self) -> u64 {
        self.reserved.granted
    }

    /// Returns `true` if the cost was charged.
    pub fn allowed(&self) -> bool {
        self.reserved.answer.allowed()
    }

    /// How long the caller must wait before it acts. Nothing here waits.
    pub fn delay(&self) -> Duration {
        self.reserved.answer.delay().into()
    }

    /// Cancels the reservation: the part of its cost that still counts is returned to the key.
    /// Returns `false` if there is no such part.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn cancel(self) -> Result<bool, BackendError> {
        self.close(Close::Cancel, None).await
    }

    /// Like [`RedisReservation::cancel`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`].
    pub async fn cancel_at(self, now: Time) -> Result<bool, BackendError> {
        self.close(Close::Cancel, Some(now)).await
    }

    /// Changes the charge to what was used: the rest is returned, an excess becomes debt. Returns
    /// `false` if the reservation was denied, or its receipt is unknown by now.
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`].
    pub async fn settle(self, used: u64) -> Result<bool, BackendError> {
        self.close(Close::Settle { used }, None).await
    }

    /// Like [`RedisReservation::settle`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`].
    pub async fn settle_at(self, used: u64, now: Time) -> Result<bool, BackendError> {
        self.close(Close::Settle { used }, Some(now)).await
    }

    /// Returns the receipt, which [`RedisLimiter::cancel`] and [`RedisLimiter::settle`] take in any
    /// process. `None` if nothing was charged, or only in this process's memory.
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
    /// The caller has given up the receipt and can return nothing, so the store need not keep it.
    fn drop(&mut self) {
        if let Some(receipt) = &self.reserved.receipt {
            self.limiter.inner.discard_detached(receipt);
        }
    }
}
