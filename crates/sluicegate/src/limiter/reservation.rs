//! Reservations: calls that are charged now and act after a delay. A receipt cancels or settles
//! one, once.

use super::Limiter;
use super::check_all::{self, Call};
use super::error::VerbError;
use super::held_receipt::{HeldReceipts, Open};
use super::options::ReserveOptions;
use super::store_by_algorithm::on_store;
use crate::ids::Receipt;
use crate::key::Key;
use crate::store::{AllVerb, SlotKind, Store};
use sluicegate_core::receipts::{Receipt as Name, ReserveCall, Then};
use sluicegate_core::{Decision, Time};
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The answer to [`Limiter::reserve`]. If it is allowed, the cost is charged, and stays charged
/// unless the reservation is cancelled or settled.
///
/// Dropping it keeps the charge, as after a check; with [`Ttl::cancel`](crate::Ttl::cancel) until
/// the receipt expires. To cancel later or elsewhere, [`keep`](Reservation::keep) the receipt.
#[must_use = "a denied reservation charges nothing; check `allowed()` first"]
pub struct Reservation {
    /// A limiter in the store of its keys; `None` if no call has a limit.
    limiter: Option<Limiter>,
    decision: Decision,
    granted: u64,
    receipt: Option<Receipt>,
    /// Whether the charge is returned when the receipt expires.
    cancels: bool,
}

impl Limiter {
    /// Charges the key now for a call that acts after the decision's delay, which is at most
    /// `max_wait`. Buckets lend what will have refilled by then; other limits decide as for a
    /// check.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use std::time::Duration;
    ///
    /// let mails = Limiter::new("token-bucket 10/s burst=1")?;
    /// mails.check("user:42");
    /// let reserved = mails.reserve("user:42", 1, Duration::from_secs(1))?;
    /// assert!(reserved.allowed() && reserved.delay() <= Duration::from_millis(100));
    /// assert!(reserved.cancel(), "the mail was not sent after all");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the limit does not support this (`count=all`, `smooth`), or too many receipts are open:
    /// 16,384 of one key, or the limiter's `max_receipts`. A denial is not an error: see
    /// [`Reservation::allowed`].
    pub fn reserve(
        &self,
        key: impl Key,
        cost: u64,
        options: impl Into<ReserveOptions>,
    ) -> Result<Reservation, VerbError> {
        self.reserve_at(key, cost, options, self.now())
    }

    /// Like [`Limiter::reserve`], at time `now`.
    ///
    /// # Errors
    /// As [`Limiter::reserve`].
    pub fn reserve_at(
        &self,
        key: impl Key,
        cost: u64,
        options: impl Into<ReserveOptions>,
        now: Time,
    ) -> Result<Reservation, VerbError> {
        let options = options.into();
        options.checked(cost)?;
        let key = self.fingerprint(key);
        let open = Open { key, name: self.next_receipt() };
        if let Some(decision) = self.denied_by_queue(key, options.at_least.unwrap_or(cost), now) {
            self.supports(options.verb())?;
            return Ok(self.reservation(decision, 0, None, &options));
        }
        let receipt = open.sealed(&self.inner.seal);
        let ask = ReserveCall { cost, receipt: open.name, terms: options.terms() };
        let (decision, granted) = on_store!(&self.inner.store, store => store.reserve(key, now, ask))?;
        let receipt = decision.allowed().then_some(receipt);
        // Before the observer runs, so that the receipt is not lost if the observer panics.
        let reservation = self.reservation(decision, granted, receipt, &options);
        self.observe(&decision);
        Ok(reservation)
    }

    fn reservation(
        &self,
        decision: Decision,
        granted: u64,
        receipt: Option<Receipt>,
        options: &ReserveOptions,
    ) -> Reservation {
        let cancels = options.ttl.is_some_and(|ttl| ttl.then == Then::Cancel);
        Reservation { limiter: Some(self.clone()), decision, granted, receipt, cancels }
    }

    /// Cancels a reservation whose receipt was kept: the part of its cost that still counts is
    /// returned to the key. Returns `false` if there is no such part, or the receipt is used or
    /// unknown.
    pub fn cancel(&self, receipt: &Receipt) -> bool {
        self.cancel_at(receipt, self.now())
    }

    /// Like [`Limiter::cancel`], at time `now`.
    pub fn cancel_at(&self, receipt: &Receipt, now: Time) -> bool {
        self.close(receipt, &[0], now) == Ok(Some(true))
    }

    /// Settles a reservation whose receipt was kept for what it actually used: the rest is
    /// returned, an excess becomes debt. Returns `false` if the receipt is used or unknown, or if
    /// the key was dropped and there is no room for its debt.
    pub fn settle(&self, receipt: &Receipt, used: u64) -> bool {
        self.settle_at(receipt, used, self.now())
    }

    /// Like [`Limiter::settle`], at time `now`.
    pub fn settle_at(&self, receipt: &Receipt, used: u64, now: Time) -> bool {
        self.close(receipt, &[used], now).is_ok_and(|returned| returned.is_some())
    }

    /// Settles a reservation of several calls for what they actually used: see [`Limiter::settle`].
    /// `used` is one number for all calls, or one per call in their order.
    ///
    /// # Errors
    /// If it has any other length (then the receipt stays open), or the receipt belongs to a shared
    /// store.
    pub fn settle_each(&self, receipt: &Receipt, used: &[u64]) -> Result<bool, VerbError> {
        self.settle_each_at(receipt, used, self.now())
    }

    /// Like [`Limiter::settle_each`], at time `now`.
    ///
    /// # Errors
    /// As [`Limiter::settle_each`].
    pub fn settle_each_at(&self, receipt: &Receipt, used: &[u64], now: Time) -> Result<bool, VerbError> {
        if !receipt.is_of_memory() {
            return Err(VerbError::BadReceipt);
        }
        Ok(self.close(receipt, used, now)?.is_some())
    }

    /// Charges more to a reservation whose receipt was kept, as a reservation without a maximum
    /// wait would, and adds it to the receipt. The receipt's time to live starts again, with the
    /// length `ttl` if one is given; so does the hour for which other receipts are kept. At cost 0
    /// nothing else happens.
    ///
    /// # Errors
    /// If the receipt is not open ([`VerbError::NotOpen`]) or belongs to a shared store, the TTL is
    /// out of bounds, or too many receipts are open: an extension counts like a further one. Then
    /// nothing changes. A denial is not an error, and restarts nothing.
    pub fn extend(&self, receipt: &Receipt, cost: u64, ttl: Option<Duration>) -> Result<Decision, VerbError> {
        self.extend_at(receipt, cost, ttl, self.now())
    }

    /// Like [`Limiter::extend`], at time `now`.
    ///
    /// # Errors
    /// As [`Limiter::extend`].
    pub fn extend_at(
        &self,
        receipt: &Receipt,
        cost: u64,
        ttl: Option<Duration>,
        now: Time,
    ) -> Result<Decision, VerbError> {
        self.extend_each_at(receipt, &[cost], ttl, now)
    }

    /// Charges more to a reservation of several calls, all or nothing: see [`Limiter::extend`].
    /// There is one number for all calls, or one for each, in their order.
    ///
    /// # Errors
    /// As [`Limiter::extend`], and if there is another count of numbers.
    pub fn extend_each(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
    ) -> Result<Decision, VerbError> {
        self.extend_each_at(receipt, costs, ttl, self.now())
    }

    /// Like [`Limiter::extend_each`], at time `now`.
    ///
    /// # Errors
    /// As [`Limiter::extend_each`].
    pub fn extend_each_at(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
        now: Time,
    ) -> Result<Decision, VerbError> {
        let extended =
            on_store!(&self.inner.store, store => self.held_in(store).extend(receipt, costs, ttl, now))?;
        self.observe(&extended);
        Ok(extended)
    }

    /// Discards a receipt; its charge stays.
    pub(crate) fn discard_receipt(&self, receipt: &Receipt) {
        on_store!(&self.inner.store, store => self.held_in(store).discard(receipt));
    }

    fn close(&self, receipt: &Receipt, used: &[u64], now: Time) -> Result<Option<bool>, VerbError> {
        on_store!(&self.inner.store, store => self.held_in(store).close(receipt, used, now))
    }

    fn held_in<'a, S: SlotKind>(&'a self, store: &'a Store<S>) -> HeldReceipts<'a, S> {
        let (seal, queues) = (&*self.inner.seal, self.queues());
        HeldReceipts { store, seal, queues, host: self.host(), limiter: self.tag() }
    }

    /// Returns `true` if a receipt of one call is for this key, whether or not it is open.
    #[doc(hidden)]
    pub fn is_receipt_of(&self, receipt: &Receipt, key: impl Key) -> bool {
        let is_of_one = receipt.is_of_memory() && receipt.several().is_none();
        is_of_one && Open::unsealed(receipt, &self.inner.seal).key.is(self.fingerprint(key))
    }

    /// The decision for cost 0 on the key of a receipt of one call.
    pub(crate) fn standing_at(&self, receipt: &Receipt, now: Time) -> Option<Decision> {
        if !receipt.is_of_memory() || receipt.several().is_some() {
            return None;
        }
        let Open { key, .. } = Open::unsealed(receipt, &self.inner.seal);
        Some(self.peek_fingerprint(self.tag().map_or(key, |tag| key.with_tag(tag)), 0, now))
    }

    /// The tag of its limits in a [`MemoryStore`](crate::MemoryStore).
    fn tag(&self) -> Option<u16> {
        self.inner.scope.as_ref().map(|scope| scope.tag.load(Ordering::Acquire))
    }

    /// A new name that cannot be guessed: receipts may travel as text.
    fn next_receipt(&self) -> Name {
        let number = self.inner.next_receipt.fetch_add(1, Ordering::Relaxed);
        Name(self.inner.seeds.fingerprint(&("receipt", number)).high)
    }
}

/// Reserves several calls as one, under a single receipt: if all are allowed, all are charged; if
/// one is denied, none is.
///
/// # Errors
/// As [`check_all`](crate::check_all); if the options do not fit (several calls have no
/// `at_least`), the limiters do not share one store, or too many receipts are open.
pub fn reserve_all(calls: &[Call<'_>], options: impl Into<ReserveOptions>) -> Result<Reservation, VerbError> {
    reserve_all_at(calls, options, check_all::now(calls))
}

/// Reserves several calls as one at a given time: see [`reserve_all`].
///
/// # Errors
/// As [`reserve_all`].
pub fn reserve_all_at(
    calls: &[Call<'_>],
    options: impl Into<ReserveOptions>,
    now: Time,
) -> Result<Reservation, VerbError> {
    reserve_all_each_at(calls, options, now).map(|(reservation, _)| reservation)
}

/// Reserves several calls as one, with a decision for each call beside the one for all: see
/// [`check_all_each`](crate::check_all_each).
///
/// # Errors
/// As [`reserve_all`].
pub fn reserve_all_each(
    calls: &[Call<'_>],
    options: impl Into<ReserveOptions>,
) -> Result<(Reservation, Vec<Decision>), VerbError> {
    reserve_all_each_at(calls, options, check_all::now(calls))
}

/// Reserves several calls as one at a given time, with a decision for each: see
/// [`reserve_all_each`].
///
/// # Errors
/// As [`reserve_all`].
pub fn reserve_all_each_at(
    calls: &[Call<'_>],
    options: impl Into<ReserveOptions>,
    now: Time,
) -> Result<(Reservation, Vec<Decision>), VerbError> {
    let options = options.into();
    if options.at_least.is_some() {
        return Err(VerbError::AtLeastOfSeveral);
    }
    options.checked(0)?;
    let Some(limiter) = check_all::only_store(calls)? else {
        let (decision, granted) = (check_all::unlimited(), cost_of(calls));
        let each = vec![decision; calls.len()];
        return Ok((Reservation { limiter: None, decision, granted, receipt: None, cancels: false }, each));
    };
    let open = check_all::parts(calls, limiter.next_receipt());
    let verb = AllVerb::Reserve { receipt: open.name, max_wait: options.max_wait, ttl: options.ttl };
    let receipt = open.sealed(&limiter.inner.seal);
    let (decision, each) = check_all::decide_each(calls, now, verb)?;
    let (granted, receipt) = if decision.allowed() { (cost_of(calls), Some(receipt)) } else { (0, None) };
    // Before the observers run, so that the receipt is not lost if one panics.
    let reservation = limiter.reservation(decision, granted, receipt, &options);
    check_all::observe(calls, &decision);
    Ok((reservation, each))
}

fn cost_of(calls: &[Call<'_>]) -> u64 {
    calls.iter().map(Call::cost).fold(0, u64::saturating_add)
}

impl Reservation {
    /// The decision.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// The cost that was granted, 0 if denied. Without [`ReserveOptions::at_least`] it is the whole
    /// cost or nothing. (Of several calls it is the sum of their costs.)
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Returns `true` if it was allowed, and so charged.
    pub fn allowed(&self) -> bool {
        self.decision.allowed()
    }

    /// How long the caller must wait before it acts. Nothing here waits.
    pub fn delay(&self) -> Duration {
        self.decision.delay().into()
    }

    /// Returns the part of the cost that still counts to the key. Returns `false` if there is no
    /// such part.
    pub fn cancel(self) -> bool {
        let now = self.now();
        self.cancel_at(now)
    }

    /// Like [`Reservation::cancel`], at time `now`.
    pub fn cancel_at(mut self, now: Time) -> bool {
        self.take().is_some_and(|(limiter, receipt)| limiter.cancel_at(&receipt, now))
    }

    /// Reports what was actually used: the rest is returned, an excess becomes debt. Returns
    /// `false` if the reservation was denied, or the key was reset or evicted since.
    pub fn settle(self, used: u64) -> bool {
        let now = self.now();
        self.settle_at(used, now)
    }

    /// Like [`Reservation::settle`], at time `now`.
    pub fn settle_at(mut self, used: u64, now: Time) -> bool {
        self.take().is_some_and(|(limiter, receipt)| limiter.settle_at(&receipt, used, now))
    }

    /// Reports what each of several calls actually used: see [`Reservation::settle`].
    ///
    /// # Errors
    /// If there is neither one number for all calls nor one for each. The reservation stays open.
    pub fn settle_each(&mut self, used: &[u64]) -> Result<bool, VerbError> {
        let (Some(limiter), Some(receipt)) = (&self.limiter, &self.receipt) else { return Ok(false) };
        let settled = limiter.settle_each(receipt, used)?;
        self.receipt = None;
        Ok(settled)
    }

    /// Charges more to the reservation: see [`Limiter::extend`].
    ///
    /// # Errors
    /// As [`Limiter::extend`].
    pub fn extend(&self, cost: u64, ttl: Option<Duration>) -> Result<Decision, VerbError> {
        self.extend_each(&[cost], ttl)
    }

    /// Charges more to a reservation of several calls: see [`Limiter::extend_each`].
    ///
    /// # Errors
    /// As [`Limiter::extend_each`].
    pub fn extend_each(&self, costs: &[u64], ttl: Option<Duration>) -> Result<Decision, VerbError> {
        match (&self.limiter, &self.receipt) {
            (Some(limiter), Some(receipt)) => limiter.extend_each(receipt, costs, ttl),
            _ => Err(VerbError::NotOpen),
        }
    }

    fn now(&self) -> Time {
        self.limiter.as_ref().map_or(Time::EPOCH, Limiter::now)
    }

    fn take(&mut self) -> Option<(Limiter, Receipt)> {
        self.limiter.take().zip(self.receipt.take())
    }

    /// Returns the receipt, for [`Limiter::cancel`] and [`Limiter::settle`]. Returns `None` if the
    /// reservation was denied.
    pub fn keep(mut self) -> Option<Receipt> {
        self.receipt.take()
    }
}

impl Drop for Reservation {
    /// The receipt can no longer be used. One that cancels its charge when it expires still does.
    fn drop(&mut self) {
        if let Some((limiter, receipt)) = self.take().filter(|_| !self.cancels) {
            limiter.discard_receipt(&receipt);
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("decision", &self.decision).finish_non_exhaustive()
    }
}
