//! What was reserved: charged already, to be acted on after a delay, and until it is used a receipt
//! for it.

use super::Limiter;
use super::error::VerbError;
use super::store_by_algorithm::on_store;
use crate::ids::Receipt;
use crate::key::{Fingerprint, Key};
use crate::seal::Seal;
use crate::store::{SlotKind, Store};
use sluicegate_core::algorithm::Verb;
use sluicegate_core::bounds::saturating_count;
use sluicegate_core::receipts::{Receipt as Name, ReserveCall};
use sluicegate_core::{Decision, Span, Time};
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The answer to a reservation. If it was allowed the cost is charged, and stays charged unless it
/// is cancelled or settled here.
///
/// Dropping it keeps the charge, as after a plain check. To cancel later from elsewhere,
/// [`Reservation::keep`] the receipt.
#[must_use = "a denied reservation charges nothing; ask `allowed()` first"]
pub struct Reservation {
    limiter: Limiter,
    decision: Decision,
    receipt: Option<Receipt>,
}

/// What a receipt says.
#[derive(Clone, Copy)]
struct Open {
    key: Fingerprint,
    name: Name,
}

impl Limiter {
    /// Charges the key now, to act after the answer's delay, which is at most `max_wait`. Buckets
    /// lend what will have come in by then; other limits answer as to a check.
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
    /// When the limit does not offer this (`count=all`, `smooth`), or too many receipts are open:
    /// 16,384 of one key, or the limiter's `max_receipts`. A denial is an answer, not an error:
    /// [`Reservation::allowed`].
    pub fn reserve(&self, key: impl Key, cost: u64, max_wait: Duration) -> Result<Reservation, VerbError> {
        self.reserve_at(key, cost, max_wait, self.now())
    }

    /// Reserves at a time.
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
        let (key, cost) = (self.fingerprint(key), saturating_count(cost));
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

    /// Gives back what still counts of a reservation whose receipt was kept. Whether that was
    /// anything: not if the receipt is used, unknown or worth nothing any more.
    pub fn cancel(&self, receipt: &Receipt) -> bool {
        self.cancel_at(receipt, self.now())
    }

    /// Cancels at a time.
    pub fn cancel_at(&self, receipt: &Receipt, now: Time) -> bool {
        let seal = &self.inner.seal;
        let (cancelled, key) = on_store!(&self.inner.store, store => receipt.cancel_in(store, seal, now));
        self.queues().usage_changed(self.host(), key);
        cancelled
    }

    /// Says what a reservation whose receipt was kept has really used: the rest is given back, an
    /// excess becomes debt. `false` if the receipt is used or unknown, or if the key was forgotten
    /// and there is no room for its debt.
    pub fn settle(&self, receipt: &Receipt, used: u64) -> bool {
        self.settle_at(receipt, used, self.now())
    }

    /// Settles at a time.
    pub fn settle_at(&self, receipt: &Receipt, used: u64, now: Time) -> bool {
        let (seal, used) = (&self.inner.seal, saturating_count(used));
        let (settled, key) = on_store!(&self.inner.store, store => receipt.settle_in(store, seal, used, now));
        self.queues().usage_changed(self.host(), key);
        settled
    }

    /// Forgets a receipt; its charge stays.
    pub(crate) fn forget(&self, receipt: &Receipt) {
        let Open { key, name } = receipt.opened(&self.inner.seal);
        on_store!(&self.inner.store, store => store.forget_receipt(key, name));
    }

    /// The decision for cost 0 on a receipt's key.
    pub(crate) fn standing_at(&self, receipt: &Receipt, now: Time) -> Option<Decision> {
        let key = receipt.is_of_memory().then(|| receipt.key(&self.inner.seal))?;
        Some(self.peek_fingerprint(key, 0, now))
    }

    /// A new name that cannot be guessed: receipts may travel as text.
    fn next_receipt(&self) -> Name {
        let number = self.inner.next_receipt.fetch_add(1, Ordering::Relaxed);
        Name(self.inner.seeds.fingerprint(&("receipt", number)).high)
    }
}

impl Receipt {
    /// Returns what still counts of the charge. Also says whose it is, as opening a receipt costs
    /// more than all the rest.
    pub(crate) fn cancel_in<S: SlotKind>(
        &self,
        store: &Store<S>,
        seal: &Seal,
        now: Time,
    ) -> (bool, Fingerprint) {
        let Open { key, name } = self.opened(seal);
        let cancelled = store
            .close(key, now, name, |limits, states, receipts| receipts.cancel(limits, states, now, name));
        (cancelled, key)
    }

    /// Changes the charge to what was used, and says whose it is.
    pub(crate) fn settle_in<S: SlotKind>(
        &self,
        store: &Store<S>,
        seal: &Seal,
        used: u32,
        now: Time,
    ) -> (bool, Fingerprint) {
        let Open { key, name } = self.opened(seal);
        let settled = store.close(key, now, name, |limits, states, receipts| {
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
    /// The whole answer.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Whether it was allowed, and so charged.
    pub fn allowed(&self) -> bool {
        self.decision.allowed()
    }

    /// How long to wait before acting. Nothing here waits for you.
    pub fn delay(&self) -> Duration {
        self.decision.delay().into()
    }

    /// Gives back what still counts of the cost. Whether that was anything.
    pub fn cancel(self) -> bool {
        let now = self.limiter.now();
        self.cancel_at(now)
    }

    /// Cancels at a time.
    pub fn cancel_at(mut self, now: Time) -> bool {
        self.receipt.take().is_some_and(|receipt| self.limiter.cancel_at(&receipt, now))
    }

    /// Says what was really used: the rest is given back, an excess becomes debt. `false` if the
    /// reservation was denied, or the key forgotten or its limit changed since.
    pub fn settle(self, used: u64) -> bool {
        let now = self.limiter.now();
        self.settle_at(used, now)
    }

    /// Settles at a time.
    pub fn settle_at(mut self, used: u64, now: Time) -> bool {
        self.receipt.take().is_some_and(|receipt| self.limiter.settle_at(&receipt, used, now))
    }

    /// Keeps the receipt for later: [`Limiter::cancel`] and [`Limiter::settle`] take it. `None` if
    /// it was denied.
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
