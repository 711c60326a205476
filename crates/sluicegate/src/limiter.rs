//! Limiters: what a service adds to limit its callers.
//!
//! A [`Limiter`] is a limit, a clock and a store of keys. Its verbs are here; `builder.rs` builds
//! it, `reservation.rs` holds reservations, `held_receipt.rs` settles and extends receipts that
//! were kept, and `check_all.rs` charges several limiters all or nothing.

mod builder;
mod check_all;
mod error;
mod held_receipt;
mod observe;
mod options;
mod reservation;
mod store_by_algorithm;

pub(crate) use builder::queue_bounds;
pub use builder::within;
pub use builder::{
    IntoLimits, LimiterBuilder, MAX_KEYS_DEFAULT, MAX_KEYS_MAX, MAX_LOG_ENTRIES_DEFAULT, MAX_LOG_ENTRIES_MAX,
    MAX_QUEUE_DEFAULT, MAX_RECEIPTS_DEFAULT, MAX_RECEIPTS_MAX, MAX_WAITERS_DEFAULT, MAX_WAITERS_MAX,
};
pub use check_all::{CALLS_MAX, Call, check_all, check_all_at, check_all_each, check_all_each_at};
pub use error::{BuildError, VerbError};
pub(crate) use held_receipt::HeldReceipts;
pub use observe::{Observer, StoreStats};
pub use options::{ReserveOptions, TTL_MAX, TTL_MIN, checked_ttl};
pub use reservation::{Reservation, reserve_all, reserve_all_at, reserve_all_each, reserve_all_each_at};
pub(crate) use store_by_algorithm::made;

use crate::clock::Delay;
use crate::clock::any::AnyClock;
use crate::key::{Fingerprint, Key, Seeds};
use crate::limit::Limit;
use crate::memory_store::{LimiterKind, MemoryStore, StoreHandle, Tag};
use crate::seal::Seal;
use crate::store::{Attached, NotAdmitted, PoolStats, QueueStore};
use crate::wait::{Host, Queues};
use sluicegate_core::algorithm::Verb;
use sluicegate_core::all_of::{next_window_list, peek_list, usage_list};
use sluicegate_core::verbs::{Unsupported, Verbs as _};
use sluicegate_core::{Decision, Span, Time, Usage};
use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store_by_algorithm::{StoreByAlgorithm, on_store};

/// A limit, or several that must all allow a call, for any number of keys.
///
/// ```
/// use sluicegate::Limiter;
///
/// let replies = Limiter::new("sliding-log 5/60s")?;
/// let decision = replies.check("user:42");
/// if !decision.allowed() {
///     println!("{decision}"); // denied, retry in 12 s
/// }
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A limiter is cheap to share: its clones are the same limiter. Its memory is bounded
/// ([`LimiterBuilder::max_keys`]), no call pauses to clean up, and no thread is started until a
/// call has to wait in a queue.
///
/// # The verbs
///
/// Every verb takes the key first and the cost second; [`check(key)`](Limiter::check) is short for
/// [`check_cost(key, 1)`](Limiter::check_cost). A cost of 0 is always allowed and changes nothing;
/// a cost above the limit is denied, and no wait helps. Every verb uses the limiter's clock and has
/// a form whose name ends in `_at` and whose last argument is the time.
///
/// Calls on one key are decided one after another, from however many threads they come. Only
/// [`acquire`](Limiter::acquire) and its variants wait; every other denial says when to retry.
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

struct Inner {
    store: StoreByAlgorithm,
    seeds: Arc<Seeds>,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    /// When the limiter was created.
    start: Time,
    /// As text and data, for [`Limiter::limits`]; the store has its own.
    limits: Mutex<Arc<[Limit]>>,
    /// How often they were changed.
    changes: AtomicU64,
    next_receipt: Arc<AtomicU64>,
    seal: Arc<Seal>,
    scope: Option<MemoryScope>,
    /// The queues of waiters. In a [`MemoryStore`] its limiters share them.
    queues: Arc<Queues>,
}

/// A key as a limiter stores it: made by [`Limiter::hash`], and valid for that limiter only.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashedKey(pub(crate) Fingerprint);

/// The position of a limiter in a [`MemoryStore`].
struct MemoryScope {
    name: Fingerprint,
    /// The tag of its limits.
    tag: AtomicU16,
    store: MemoryStore,
    kind: LimiterKind,
    attached: Arc<Attached>,
    /// All tags it ever had: a call may have read one just before it changed.
    tags: Mutex<Vec<Arc<Tag>>>,
}

impl Limiter {
    /// Creates a limiter in memory with the default settings. A limit is text or
    /// [typed](crate::limit::typed); several limits, all of which must allow a call, are a list:
    /// `["token-bucket 10/s burst=50", "fixed-window 1000/day"]`.
    ///
    /// # Errors
    /// If a text is not a limit (one line that points at the word), or the limits do not go
    /// together.
    pub fn new(limits: impl IntoLimits) -> Result<Limiter, BuildError> {
        Limiter::builder(limits).build()
    }

    /// Starts building a limiter with other settings.
    pub fn builder(limits: impl IntoLimits) -> LimiterBuilder {
        LimiterBuilder::new(limits)
    }

    /// Decides a call of cost 1, and charges the key if it is allowed.
    #[inline]
    pub fn check(&self, key: impl Key) -> Decision {
        self.check_at(key, 1, self.now())
    }

    /// Decides a call, and charges the key if it is allowed.
    #[inline]
    pub fn check_cost(&self, key: impl Key, cost: u64) -> Decision {
        self.check_at(key, cost, self.now())
    }

    /// Decides a call at a given time: see [`Limiter::check_cost`].
    #[inline]
    pub fn check_at(&self, key: impl Key, cost: u64, now: Time) -> Decision {
        self.check_fingerprint(self.fingerprint(key), cost, now)
    }

    /// Hashes a key. For a batch of calls: hash all of them, then [touch](Limiter::touch) each,
    /// then check each with [`Limiter::check_hashed_at`], so that their cache misses overlap.
    #[doc(hidden)]
    #[inline]
    pub fn hash(&self, key: impl Key) -> HashedKey {
        HashedKey(self.fingerprint(key))
    }

    /// Prefetches the key's state. Nothing is decided or changed.
    #[doc(hidden)]
    #[inline]
    pub fn touch(&self, key: HashedKey) {
        on_store!(&self.inner.store, store => store.touch(key.0));
    }

    /// [`Limiter::check_at`] for a key that this limiter has hashed.
    #[doc(hidden)]
    #[inline]
    pub fn check_hashed_at(&self, key: HashedKey, cost: u64, now: Time) -> Decision {
        self.check_fingerprint(key.0, cost, now)
    }

    /// Decides a call without charging it. (Whether the store has room for a new key is not
    /// checked: see [`OnFull::Deny`](crate::OnFull::Deny).)
    pub fn peek(&self, key: impl Key, cost: u64) -> Decision {
        self.peek_at(key, cost, self.now())
    }

    /// Decides a call at a given time without charging it: see [`Limiter::peek`].
    pub fn peek_at(&self, key: impl Key, cost: u64, now: Time) -> Decision {
        self.peek_fingerprint(self.fingerprint(key), cost, now)
    }

    /// [`Limiter::peek_at`] for a key that this limiter has hashed.
    #[doc(hidden)]
    pub fn peek_hashed_at(&self, key: HashedKey, cost: u64, now: Time) -> Decision {
        self.peek_fingerprint(key.0, cost, now)
    }

    fn peek_fingerprint(&self, key: Fingerprint, cost: u64, now: Time) -> Decision {
        if let Some(denial) = self.queue_denial(key, cost, now) {
            return denial;
        }
        on_store!(&self.inner.store, store => {
            store.read_on_clock(key, now, || self.now(), |limits, states| peek_list(limits, states, now, cost))
        })
    }

    /// Charges `up_to`, or as much of it as remains, and returns how much that was. If nothing
    /// remains, the decision is the denial of cost 1.
    ///
    /// # Errors
    /// If the limit does not support this: `smooth`, and `count=all`.
    pub fn take(&self, key: impl Key, up_to: u64) -> Result<(Decision, u64), VerbError> {
        self.take_at(key, up_to, self.now())
    }

    /// Charges as much as remains at a given time: see [`Limiter::take`].
    ///
    /// # Errors
    /// As [`Limiter::take`].
    pub fn take_at(&self, key: impl Key, up_to: u64, now: Time) -> Result<(Decision, u64), VerbError> {
        let (key, up_to) = (self.fingerprint(key), up_to);
        if let Some(denial) = self.denied_by_queue(key, up_to.min(1), now) {
            self.supports(Verb::Take)?;
            return Ok((denial, 0));
        }
        let (decision, taken) = on_store!(&self.inner.store, store => store.take(key, now, up_to))?;
        self.observe(&decision);
        Ok((decision, taken))
    }

    /// Charges the key now for a call that is made after the decision's delay, which is at most
    /// `max_wait`: a [reservation](Limiter::reserve) without a receipt. Under `smooth` this is how
    /// callers wait, as with Guava's `tryAcquire(permits, timeout)`, except that nothing here
    /// sleeps.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use std::time::Duration;
    ///
    /// let mails = Limiter::new("smooth 10/s")?;
    /// mails.check("user:42");
    /// let decision = mails.check_within("user:42", 1, Duration::from_secs(1))?;
    /// assert!(decision.allowed() && decision.delay().as_micros() <= 100_000);
    /// std::thread::sleep(decision.delay().into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the limit does not support this: `count=all`.
    pub fn check_within(&self, key: impl Key, cost: u64, max_wait: Duration) -> Result<Decision, VerbError> {
        self.check_within_at(key, cost, max_wait, self.now())
    }

    /// Charges a call at a given time, to be made after a delay: see [`Limiter::check_within`].
    ///
    /// # Errors
    /// As [`Limiter::check_within`].
    pub fn check_within_at(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: impl Into<Span>,
        now: Time,
    ) -> Result<Decision, VerbError> {
        let (key, cost) = (self.fingerprint(key), cost);
        if let Some(denial) = self.denied_by_queue(key, cost, now) {
            self.supports(Verb::CheckWithin)?;
            return Ok(denial);
        }
        let max_wait = max_wait.into();
        let decision = on_store!(&self.inner.store, store => store.check_within(key, now, cost, max_wait))?;
        self.observe(&decision);
        Ok(decision)
    }

    /// Returns cost to the key, for work that was not done after all. The decision is the one for
    /// cost 0.
    ///
    /// # Errors
    /// If the limit does not support this: `pacer`, and `smooth` with a warm-up.
    pub fn refund(&self, key: impl Key, cost: u64) -> Result<Decision, VerbError> {
        self.refund_at(key, cost, self.now())
    }

    /// Returns cost to the key at a given time: see [`Limiter::refund`].
    ///
    /// # Errors
    /// As [`Limiter::refund`].
    pub fn refund_at(&self, key: impl Key, cost: u64, now: Time) -> Result<Decision, VerbError> {
        let (key, cost) = (self.fingerprint(key), cost);
        let refunded = on_store!(&self.inner.store, store => store.refund(key, now, cost));
        self.queues().usage_changed(self.host(), key);
        Ok(refunded?)
    }

    /// Returns when the key's next window starts or its next unit is available, in UTC, rounded up
    /// to a microsecond. For an idle bucket or log that is now.
    pub fn next_window(&self, key: impl Key) -> Time {
        self.next_window_at(key, self.now())
    }

    /// Returns when the key's next window starts, as of a given time: see [`Limiter::next_window`].
    pub fn next_window_at(&self, key: impl Key, now: Time) -> Time {
        let key = self.fingerprint(key);
        let next = on_store!(&self.inner.store, store => {
            store.read_on_clock(key, now, || self.now(), |limits, states| next_window_list(limits, states, now))
        });
        self.inner.clock.utc_ahead().to_utc(next)
    }

    /// Returns what the key has used under each limit, in their order. Changes nothing.
    ///
    /// ```
    /// use sluicegate::Limiter;
    ///
    /// let tokens = Limiter::new(["token-bucket 10/s burst=500", "fixed-window 1000/month"])?;
    /// tokens.check_cost("user:42", 312);
    /// let [_, (limit, month)] = &tokens.usage("user:42")[..] else { unreachable!() };
    /// assert_eq!(limit.to_string(), "fixed-window 1000/month");
    /// assert_eq!((month.used, month.limit, month.remaining), (312, 1000, 688));
    /// assert!(month.window.is_some(), "from the first of this month to the first of the next");
    /// # Ok::<(), sluicegate::BuildError>(())
    /// ```
    pub fn usage(&self, key: impl Key) -> Vec<(Limit, Usage)> {
        self.usage_at(key, self.now())
    }

    /// Returns what the key has used at a given time: see [`Limiter::usage`].
    pub fn usage_at(&self, key: impl Key, now: Time) -> Vec<(Limit, Usage)> {
        // Held, so that the limits are those that the key is read under.
        let limits = self.inner.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.fingerprint(key);
        let usages: Vec<Usage> = on_store!(&self.inner.store, store => {
            store.read_on_clock(key, now, || self.now(), |limits, states| usage_list(limits, states, now).collect())
        });
        let ahead = self.inner.clock.utc_ahead().micros();
        let in_utc = |mut usage: Usage| {
            usage.window = usage.window.map(|window| window.shifted(ahead));
            usage
        };
        limits.iter().cloned().zip(usages.into_iter().map(in_utc)).collect()
    }

    /// Deletes the key's state. Its receipts are void.
    pub fn reset(&self, key: impl Key) {
        let key = self.fingerprint(key);
        on_store!(&self.inner.store, store => store.remove(key));
        self.queues().usage_changed(self.host(), key);
    }

    /// Returns `true` if the store holds state for the key. A fully recovered key may be dropped at
    /// any time, which no decision shows; an evicted one was dropped before it had recovered.
    pub fn contains(&self, key: impl Key) -> bool {
        let key = self.fingerprint(key);
        on_store!(&self.inner.store, store => store.contains(key))
    }

    /// Creates a call for [`check_all`], which charges several calls all or nothing.
    pub fn call(&self, key: impl Key, cost: u64) -> Call<'_> {
        Call::new(self, self.fingerprint(key), cost)
    }

    /// Changes the parameters of the limits while the limiter is in use. Every key keeps what it
    /// has used: a bucket its tokens, a window or log its count, `smooth` its wait and the share of
    /// its permits that is stored. If the period, start or time zone of a window changes, its keys
    /// start with fresh state. Open receipts are converted with the key; where a state starts
    /// fresh, they return nothing.
    ///
    /// The shards, of about 200 keys each, are locked one after another, each for a moment.
    ///
    /// # Errors
    /// If a text is not a limit or the limits do not go together; or if the algorithm changes, one
    /// limit becomes several, or the count of a sliding window crosses 2^32, which takes larger
    /// slots: all keys would start with fresh state, so build a new limiter. (In a list each limit
    /// may become any other, position by position; where the algorithm changes, keys start with
    /// fresh state. In a list and in a [`MemoryStore`] a sliding window may have any count.)
    pub fn change(&self, limits: impl IntoLimits) -> Result<(), BuildError> {
        let limits = builder::list(limits.into_limits())?;
        let mut current = self.inner.limits.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.inner.scope {
            None => self.inner.store.change(&limits, self.inner.start, &self.inner.clock.utc_ahead())?,
            Some(scope) => scope.change(&limits, self.inner.start)?,
        }
        *current = limits.into();
        self.inner.changes.fetch_add(1, Ordering::Release);
        drop(current);
        let scope = self.inner.scope.as_ref();
        let tag = scope.map_or(0, |scope| scope.tag.load(Ordering::Acquire));
        self.queues().limits_changed(self.host(), self.scope_name(), tag);
        Ok(())
    }

    /// Sets the weight of this limiter's scope in a [`MemoryStore`]: of the store's keys, each
    /// scope has a share proportional to its weight, which is 1 by default. Has no effect on
    /// untrusted limiters, which have one share together, or outside a `MemoryStore`.
    pub fn set_share(&self, weight: u32) {
        if let Some(scope) = &self.inner.scope {
            scope.attached.set_weight(weight);
        }
    }

    /// Returns the current limits.
    pub fn limits(&self) -> Arc<[Limit]> {
        Arc::clone(&self.inner.limits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns how often the limits were [changed](Limiter::change). This costs next to nothing, so
    /// what was computed from [`Limiter::limits`] can be checked for staleness on every call.
    pub fn changes(&self) -> u64 {
        self.inner.changes.load(Ordering::Acquire)
    }

    /// Returns counts of decisions and keys. The shards, of about 200 keys each, are locked one
    /// after another, so call this when metrics are read and not with every call.
    pub fn stats(&self) -> StoreStats {
        let waiting = self.queues().waiting();
        let scope = self.inner.scope.as_ref();
        let limits = scope.map_or_else(PoolStats::default, |scope| scope.store.limit_stats());
        on_store!(&self.inner.store, store => StoreStats::of(store, waiting, limits))
    }

    /// Returns the time on the limiter's clock.
    #[inline]
    pub fn now(&self) -> Time {
        self.inner.clock.now()
    }

    /// Waits for a [`Decision::delay`] on the limiter's clock, in any runtime. This is not a place
    /// in a queue: for that, use [`Limiter::acquire`].
    pub fn delay(&self, delay: impl Into<Span>) -> Delay {
        Delay::new(self.inner.clock.clone(), self.now().saturating_add(delay.into()))
    }

    #[inline]
    pub(crate) fn fingerprint(&self, key: impl Key) -> Fingerprint {
        let seeds = &self.inner.seeds;
        match &self.inner.scope {
            None => seeds.fingerprint(&key),
            Some(scope) => seeds.fingerprint_in(scope.name, &key).with_tag(scope.tag.load(Ordering::Acquire)),
        }
    }

    /// Creates a limiter in a [`MemoryStore`].
    pub(crate) fn in_store(
        handle: StoreHandle,
        store: MemoryStore,
        limits: Vec<Limit>,
        kind: LimiterKind,
        observer: Option<Arc<dyn Observer>>,
    ) -> Limiter {
        let scope = MemoryScope {
            name: handle.scope,
            tag: AtomicU16::new(handle.tag.0),
            store,
            kind,
            attached: handle.attached,
            tags: Mutex::new(vec![handle.tag]),
        };
        let inner = Inner {
            queues: handle.queues,
            store: StoreByAlgorithm::Shared(handle.store),
            seeds: handle.seeds,
            clock: handle.clock,
            observer,
            start: handle.start,
            limits: Mutex::new(limits.into()),
            changes: AtomicU64::new(0),
            next_receipt: handle.next_receipt,
            seal: handle.seal,
            scope: Some(scope),
        };
        Limiter { inner: Arc::new(inner) }
    }

    pub(crate) fn check_fingerprint(&self, key: Fingerprint, cost: u64, now: Time) -> Decision {
        if self.inner.observer.is_some() || self.inner.queues.may_have_waiters(key) {
            return self.check_observed(key, cost, now);
        }
        // The decision is returned untouched, so that it is written once, where the caller wants
        // it.
        on_store!(&self.inner.store, store => store.check(key, cost, now))
    }

    #[cold]
    fn check_observed(&self, key: Fingerprint, cost: u64, now: Time) -> Decision {
        if let Some(denial) = self.denied_by_queue(key, cost, now) {
            return denial;
        }
        let decision = on_store!(&self.inner.store, store => store.check(key, cost, now));
        self.observe(&decision);
        decision
    }

    /// Charges a call if it is allowed without delay.
    #[inline]
    pub(crate) fn try_admit(&self, key: Fingerprint, cost: u64, now: Time) -> Result<Decision, NotAdmitted> {
        on_store!(&self.inner.store, store => store.try_admit(key, cost, now))
    }

    #[inline]
    pub(crate) fn queues(&self) -> &Arc<Queues> {
        &self.inner.queues
    }

    /// The owner of the queues, for as long as this limiter exists.
    pub(crate) fn host(&self) -> &dyn Host {
        &*self.inner
    }

    pub(crate) fn scope_name(&self) -> Option<Fingerprint> {
        self.inner.scope.as_ref().map(|scope| scope.name)
    }

    /// The denial of a call that does not wait while others wait for the key.
    #[inline]
    pub(crate) fn queue_denial(&self, key: Fingerprint, cost: u64, now: Time) -> Option<Decision> {
        if cost == 0 || !self.inner.queues.may_have_waiters(key) {
            return None;
        }
        self.queues().denial(self.host(), key, cost, now)
    }

    /// Checks that the limits support a verb: an unsupported one is an error, also while calls
    /// wait.
    fn supports(&self, verb: Verb) -> Result<(), Unsupported> {
        self.limits()
            .iter()
            .filter_map(|limit| limit.made_at(self.inner.start))
            .try_for_each(|limit| limit.require(verb))
    }

    /// [`Limiter::queue_denial`], counted and observed.
    fn denied_by_queue(&self, key: Fingerprint, cost: u64, now: Time) -> Option<Decision> {
        Some(self.denied_by(key, self.queue_denial(key, cost, now)?))
    }

    /// Counts and observes the denial of a key's queue.
    fn denied_by(&self, key: Fingerprint, denial: Decision) -> Decision {
        on_store!(&self.inner.store, store => store.as_queue_store().count(key, &denial));
        self.observe(&denial);
        denial
    }

    /// Calls the observer. No lock is held.
    pub(crate) fn observe(&self, decision: &Decision) {
        if let Some(observer) = &self.inner.observer {
            observer.decided(decision);
        }
    }
}

impl Host for Inner {
    fn store(&self) -> &dyn QueueStore {
        on_store!(&self.store, store => store.as_queue_store())
    }

    fn clock(&self) -> &AnyClock {
        &self.clock
    }
}

impl MemoryScope {
    /// Changes the limits; each key is converted by its next call.
    fn change(&self, limits: &[Limit], start: Time) -> Result<(), BuildError> {
        let tag = self.store.tag(limits, self.kind, start, &self.attached)?;
        self.tag.store(tag.0, Ordering::Release);
        let mut tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        if !tags.iter().any(|known| Arc::ptr_eq(known, &tag)) {
            tags.push(tag);
        }
        Ok(())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<String> = self.limits().iter().map(Limit::to_string).collect();
        f.debug_struct("Limiter").field("limits", &limits).finish_non_exhaustive()
    }
}
