//! Reservations.

use super::RedisLimiter;
use super::receipts::UsedReceipt;
use crate::receipt::StoredReceipt;
use sluicegate::backend::Reserved;
use sluicegate::backend::{Answer, BackendError};
use sluicegate::{Decision, Receipt, ReserveOptions, Then, Time, VerbError};
use std::time::Duration;
use tokio::runtime::Handle;

/// The answer to [`RedisLimiter::reserve`] or [`reserve_all`](crate::reserve_all). If the call is
/// allowed, its cost is charged, and stays charged unless the reservation is cancelled or settled.
///
/// Dropping the reservation keeps the charge, as after a check; with
/// [`Ttl::cancel`](sluicegate::Ttl::cancel) until the receipt expires. To cancel later or
/// elsewhere, [`keep`](RedisReservation::keep) the receipt.
#[derive(Debug)]
#[must_use = "a denied reservation charges nothing; check `allowed()` first"]
pub struct RedisReservation {
    /// One for each key of the receipt.
    limiters: Vec<RedisLimiter>,
    reserved: Reserved,
    /// Whether the charge is returned when the receipt expires.
    cancels: bool,
}

impl RedisReservation {
    pub(super) fn new(
        limiters: Vec<RedisLimiter>,
        reserved: Reserved,
        options: &ReserveOptions,
    ) -> RedisReservation {
        let cancels = options.ttl.is_some_and(|ttl| ttl.then == Then::Cancel);
        RedisReservation { limiters, reserved, cancels }
    }

    /// The answer.
    pub fn answer(&self) -> Answer {
        self.reserved.answer
    }

    /// The decision of the answer.
    pub fn decision(&self) -> Decision {
        self.reserved.answer.decision()
    }

    /// The cost that was granted, 0 if denied. (Of several calls it is the sum of their costs.)
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
        self.close_cancel(None).await
    }

    /// Like [`RedisReservation::cancel`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`].
    pub async fn cancel_at(self, now: Time) -> Result<bool, BackendError> {
        self.close_cancel(Some(now)).await
    }

    /// Changes the charge to what was used: the rest is returned, an excess becomes debt. Returns
    /// `false` if the reservation was denied, or its receipt is unknown by now.
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`].
    pub async fn settle(mut self, used: u64) -> Result<bool, BackendError> {
        self.close_settle(&[used], None).await
    }

    /// Like [`RedisReservation::settle`], at time `now`.
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`].
    pub async fn settle_at(mut self, used: u64, now: Time) -> Result<bool, BackendError> {
        self.close_settle(&[used], Some(now)).await
    }

    /// Reports what each of several calls used: see [`RedisReservation::settle`].
    ///
    /// # Errors
    /// As [`RedisReservation::cancel`], and if there is neither one number for all calls nor one
    /// for each. The reservation stays open.
    pub async fn settle_each(&mut self, used: &[u64]) -> Result<bool, BackendError> {
        self.close_settle(used, None).await
    }

    /// Charges more to the reservation: see [`RedisLimiter::extend`].
    ///
    /// # Errors
    /// As [`RedisLimiter::extend`].
    pub async fn extend(&self, cost: u64, ttl: Option<Duration>) -> Result<Answer, BackendError> {
        self.extend_each(&[cost], ttl).await
    }

    /// Charges more to a reservation of several calls: see [`RedisLimiter::extend_each`].
    ///
    /// # Errors
    /// As [`RedisLimiter::extend_each`].
    pub async fn extend_each(&self, costs: &[u64], ttl: Option<Duration>) -> Result<Answer, BackendError> {
        let receipt = self.reserved.receipt.as_ref().ok_or(VerbError::NotOpen)?;
        self.used(receipt)?.extend(costs, ttl.map(Into::into), None).await
    }

    /// Returns the receipt, which [`RedisLimiter::cancel`] and [`RedisLimiter::settle`] take in any
    /// process. `None` if nothing was charged, or only in this process's memory.
    pub fn keep(mut self) -> Option<Receipt> {
        self.reserved.receipt.take()
    }

    async fn close_cancel(mut self, at: Option<Time>) -> Result<bool, BackendError> {
        match self.reserved.receipt.take() {
            Some(receipt) => Ok(self.used(&receipt)?.cancel(at).await?),
            None => Ok(false),
        }
    }

    async fn close_settle(&mut self, used: &[u64], at: Option<Time>) -> Result<bool, BackendError> {
        let Some(receipt) = &self.reserved.receipt else { return Ok(false) };
        let settled = self.used(receipt)?.settle(used, at).await?;
        self.reserved.receipt = None;
        Ok(settled)
    }

    fn used(&self, receipt: &Receipt) -> Result<UsedReceipt<'_>, VerbError> {
        let limiters = self.limiters.iter().map(|limiter| &limiter.inner).collect();
        Ok(UsedReceipt::new(StoredReceipt::read(receipt)?, limiters))
    }
}

impl Drop for RedisReservation {
    /// The caller has given up the receipt and can return nothing, so the store need not keep it,
    /// unless the receipt returns its charge when it expires.
    fn drop(&mut self) {
        if self.cancels {
            return;
        }
        let Some(receipt) = self.reserved.receipt.take() else { return };
        if let (Ok(receipt), Ok(runtime)) = (StoredReceipt::read(&receipt), Handle::try_current()) {
            let limiters = std::mem::take(&mut self.limiters);
            runtime.spawn(async move {
                let limiters = limiters.iter().map(|limiter| &limiter.inner).collect();
                UsedReceipt::new(receipt, limiters).discard().await
            });
        }
    }
}
