//! Reservations: calls that are charged now and act after a delay. Until it is used, a receipt can
//! cancel or settle one.

use super::Limiter;
use super::error::VerbError;
use super::store_by_algorithm::on_store;
use crate::ids::Receipt;
use crate::key::{Fingerprint, Key};
use crate::seal::Seal;
use crate::store::{SlotKind, Store};
use sluicegate_core::algorithm::Verb;
use sluicegate_core::receipts::{Receipt as Name, ReserveCall};
use sluicegate_core::{Decision, Span, Time};
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The answer to [`Limiter::reserve`]. If it is allowed, the cost is charged, and stays charged
/// unless the reservation is cancelled or settled.
///
/// Dropping it keeps the charge, as after a check. To cancel later or elsewhere,
/// [`keep`](Reservation::keep) the receipt.
#[must_use = "a denied reservation charges nothing; check `allowed()` first"]
pub struct Reservation {
    limiter: Limiter,
    decision: Decision,
    receipt: Option<Receipt>,
}

/// The contents of a receipt.
#[derive(Clone, Copy)]
struct Open {
    key: Fingerprint,
    name: Name,
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
    pub fn reserve(&self, key: impl Key, cost: u64, max_wait: Duration) -> Result<Reservation, VerbError> {
        self.reserve_at(key, cost, max_wait, self.now())
    }

    /// Like [`Limiter::reserve`], at time `now`.
    ///
    /// # Errors
    /// As [`Limiter::reserve`].
    pub fn reserve_at(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: impl Into<Span>,
        now: Time,
    ) -> Result<Reservation, VerbError> {
        let (key, cost) = (self.fingerprint(key), cost);
        let open = Open { key, name: self.next_receipt() };
        if let Some(decision) = self.denied_by_queue(key, cost, now) {
            self.supports(Verb::Reserve)?;
            return Ok(Reservation { limiter: self.clone(), decision, receipt: None });
        }
        let receipt = open.sealed(&self.inner.seal);
        let ask = ReserveCall { cost, max_wait: max_wait.into(), receipt: open.name };
        let decision = on_store!(&self.inner.store, store => store.reserve(key, now, ask))?;
        let receipt = decision.allowed().then_some(receipt);
        // Before the observer runs, so that the receipt is not lost if the observer panics.
        let reservation = Reservation { limiter: self.clone(), decision, receipt };
        self.observe(&decision);
        Ok(reservation)
    }

    /// Cancels a reservation whose receipt was kept: the part of its cost that still counts is
    /// returned to the key. Returns `false` if there is no such part, or the receipt is used or
    /// unknown.
    pub fn cancel(&self, receipt: &Receipt) -> bool {
        self.cancel_at(receipt, self.now())
    }

    /// Like [`Limiter::cancel`], at time `now`.
    pub fn cancel_at(&self, receipt: &Receipt, now: Time) -> bool {
        let seal = &self.inner.seal;
        let tag = self.tag();
        let (cancelled, key) =
            on_store!(&self.inner.store, store => receipt.cancel_in(store, seal, tag, now));
        self.queues().usage_changed(self.host(), key);
        cancelled
    }

    /// Settles a reservation whose receipt was kept for what it actually used: the rest is
    /// returned, an excess becomes debt. Returns `false` if the receipt is used or unknown, or if
    /// the key was dropped and there is no room for its debt.
    pub fn settle(&self, receipt: &Receipt, used: u64) -> bool {
        self.settle_at(receipt, used, self.now())
    }

    /// Like [`Limiter::settle`], at time `now`.
    pub fn settle_at(&self, receipt: &Receipt, used: u64, now: Time) -> bool {
        let (seal, used) = (&self.inner.seal, used);
        let tag = self.tag();
        let (settled, key) =
            on_store!(&self.inner.store, store => receipt.settle_in(store, seal, tag, used, now));
        self.queues().usage_changed(self.host(), key);
        settled
    }

    /// Drops a receipt; its charge stays.
    pub(crate) fn forget(&self, receipt: &Receipt) {
        let Open { key, name } = receipt.opened(&self.inner.seal);
        on_store!(&self.inner.store, store => store.forget_receipt(key, name));
    }

    /// The decision for cost 0 on a receipt's key.
    pub(crate) fn standing_at(&self, receipt: &Receipt, now: Time) -> Option<Decision> {
        let key = receipt.is_of_memory().then(|| receipt.key(&self.inner.seal))?;
        Some(self.peek_fingerprint(self.tag().map_or(key, |tag| key.with_tag(tag)), 0, now))
    }

    /// The tag of its limits, in a shared store.
    fn tag(&self) -> Option<u16> {
        self.inner.scope.as_ref().map(|scope| scope.tag.load(Ordering::Acquire))
    }

    /// A new name that cannot be guessed: receipts may travel as text.
    fn next_receipt(&self) -> Name {
        let number = self.inner.next_receipt.fetch_add(1, Ordering::Relaxed);
        Name(self.inner.seeds.fingerprint(&("receipt", number)).high)
    }
}

impl Receipt {
    /// Returns the part of the charge that still counts to the key. Returns the key as well,
    /// because unsealing a receipt costs more than all the rest.
    pub(crate) fn cancel_in<S: SlotKind>(
        &self,
        store: &Store<S>,
        seal: &Seal,
        limiter: Option<u16>,
        now: Time,
    ) -> (bool, Fingerprint) {
        let Open { key, name } = self.opened(seal);
        let cancelled = store.close(key, limiter, now, name, |limits, states, receipts| {
            receipts.cancel(limits, states, now, name)
        });
        (cancelled, key)
    }

    /// Changes the charge to what was used, and returns the key as well.
    pub(crate) fn settle_in<S: SlotKind>(
        &self,
        store: &Store<S>,
        seal: &Seal,
        limiter: Option<u16>,
        used: u64,
        now: Time,
    ) -> (bool, Fingerprint) {
        let Open { key, name } = self.opened(seal);
        let settled = store.close(key, limiter, now, name, |limits, states, receipts| {
            receipts.settle(limits, states, now, name, used)
        });
        (settled, key)
    }
}

impl Open {
    fn sealed(self, seal: &Seal) -> Receipt {
        Receipt::of_memory(seal.seal([self.key.high, self.key.low, self.name.0]))
    }
}

impl Receipt {
    /// Returns the key it belongs to. A forged receipt yields a key that no store holds.
    pub(crate) fn key(&self, seal: &Seal) -> Fingerprint {
        self.opened(seal).key
    }

    /// Unseals it. A forged receipt yields values that no store knows.
    fn opened(&self, seal: &Seal) -> Open {
        let [high, low, name] = seal.unseal(self.sealed());
        Open { key: Fingerprint { high, low }, name: Name(name) }
    }
}

impl Reservation {
    /// The decision.
    pub fn decision(&self) -> Decision {
        self.decision
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
        let now = self.limiter.now();
        self.cancel_at(now)
    }

    /// Like [`Reservation::cancel`], at time `now`.
    pub fn cancel_at(mut self, now: Time) -> bool {
        self.receipt.take().is_some_and(|receipt| self.limiter.cancel_at(&receipt, now))
    }

    /// Reports what was actually used: the rest is returned, an excess becomes debt. Returns
    /// `false` if the reservation was denied, or the key was reset or evicted since.
    pub fn settle(self, used: u64) -> bool {
        let now = self.limiter.now();
        self.settle_at(used, now)
    }

    /// Like [`Reservation::settle`], at time `now`.
    pub fn settle_at(mut self, used: u64, now: Time) -> bool {
        self.receipt.take().is_some_and(|receipt| self.limiter.settle_at(&receipt, used, now))
    }

    /// Returns the receipt, for [`Limiter::cancel`] and [`Limiter::settle`]. Returns `None` if the
    /// reservation was denied.
    pub fn keep(mut self) -> Option<Receipt> {
        self.receipt.take()
    }
}

impl Drop for Reservation {
    /// The receipt can no longer be used.
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            self.limiter.forget(&receipt);
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("decision", &self.decision).finish_non_exhaustive()
    }
}
