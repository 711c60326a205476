//! Limiters: what a service adds to limit its callers.
//!
//! A [`Limiter`] is a limit, a clock and a store of keys. Here are its verbs; `builder.rs` makes it, `reservation.rs`
//! holds what was reserved, `check_all.rs` charges several limiters all or nothing.

mod builder;
mod check_all;
mod error;
mod observe;
mod reservation;
mod store_by_algorithm;

pub(crate) use builder::queue_bounds;
pub use builder::within;
pub use builder::{
    IntoLimits, LimiterBuilder, MAX_KEYS_DEFAULT, MAX_KEYS_MAX, MAX_QUEUE_DEFAULT, MAX_RECEIPTS_DEFAULT,
    MAX_RECEIPTS_MAX, MAX_WAITERS_DEFAULT, MAX_WAITERS_MAX,
};
pub use check_all::{CALLS_MAX, Call, check_all, check_all_at, check_all_each_at};
pub use error::{BuildError, ChangeError, CheckAllError, ReserveError};
pub use observe::{Observer, StoreStats};
pub use reservation::Reservation;
pub(crate) use store_by_algorithm::made;

use crate::clock::Delay;
use crate::clock::any::AnyClock;
use crate::key::{Fingerprint, Key, Seeds};
use crate::limit::Limit;
use crate::memory_store::{LimiterKind, MemoryStore, StoreHandle, Tag};
use crate::seal::Seal;
use crate::store::{NotAdmitted, QueueStore};
use crate::wait::{Host, Queues};
use sluicegate_core::algorithm::Verb;
use sluicegate_core::all_of::{next_window_list, peek_list};
use sluicegate_core::bounds::saturating_count;
use sluicegate_core::verbs::{Unsupported, Verbs as _};
use sluicegate_core::{Decision, Span, Time};
use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store_by_algorithm::{StoreByAlgorithm, on_store};

/// One limit, or several that must all agree, for as many keys as call.
///
/// ```
/// use sluicegate::Limiter;
///
/// let replies = Limiter::new("sliding-log 5/60s")?;
/// let decision = replies.check("Harry");
/// if !decision.allowed() {
///     println!("again in {:?}", decision.retry_after());
/// }
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A limiter is cheap to share: clone it, and the clones are the same limiter. Its memory is bounded
/// ([`LimiterBuilder::max_keys`]); no call pauses to clean up after others, and no thread is
/// started unless somebody has to wait in line. Each verb has a form that is told the
/// time (`check_at`) and one that asks the limiter's clock (`check`).
///
/// What is decided for one key is decided for one caller at a time, however many threads call. Only [`Limiter::acquire`] and
/// its likes wait; to all else a denial says when to come back.
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

struct Inner {
    store: StoreByAlgorithm,
    seeds: Arc<Seeds>,
    clock: AnyClock,
    observer: Option<Arc<dyn Observer>>,
    /// When the limiter was made.
    start: Time,
    /// As text and data, for whoever asks.
    limits: Mutex<Arc<[Limit]>>,
    /// How often they were changed.
    changes: AtomicU64,
    next_receipt: Arc<AtomicU64>,
    seal: Arc<Seal>,
    scope: Option<Scope>,
    /// Those who wait, also of other limiters in a shared store.
    queues: Arc<Queues>,
}

/// A key as a limiter keeps it: made by [`Limiter::hash`], and good for that limiter only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashedKey(pub(crate) Fingerprint);

/// Where a limiter is in a store that others use too.
struct Scope {
    name: Fingerprint,
    /// The tag of its limits.
    tag: AtomicU16,
    store: MemoryStore,
    kind: LimiterKind,
    /// All tags it ever had: a call may have read one just before it changed.
    tags: Mutex<Vec<Arc<Tag>>>,
}

impl Limiter {
    /// A limiter with the default settings, in memory: `"token-bucket 10/s burst=50"`, or several limits that must
    /// all agree: `["token-bucket 10/s burst=50", "fixed-window 1000/day"]`.
    ///
    /// # Errors
    /// When a text is not a limit: one line that points at the word. Or when limits do not go together.
    pub fn new(limits: impl IntoLimits) -> Result<Limiter, BuildError> {
        Limiter::builder(limits).build()
    }

    /// A limiter with settings of your own.
    pub fn builder(limits: impl IntoLimits) -> LimiterBuilder {
        LimiterBuilder::new(limits)
    }

    /// May the key act once now? If so it is charged 1.
    #[inline]
    pub fn check(&self, key: impl Key) -> Decision {
        self.check_at(key, 1, self.now())
    }

    /// May the key act now, at this cost? If so it is charged. Cost 0 is always allowed and changes nothing.
    #[inline]
    pub fn check_cost(&self, key: impl Key, cost: u64) -> Decision {
        self.check_at(key, cost, self.now())
    }

    /// The same at a time: the explicit form under every convenience.
    #[inline]
    pub fn check_at(&self, key: impl Key, cost: u64, now: Time) -> Decision {
        self.check_fingerprint(self.fingerprint(key), saturating_count(cost), now)
    }

    /// Hashes a key. For a batch of calls: hash all of them, then [touch](Limiter::touch) each, then check each with
    /// [`Limiter::check_hashed_at`]. What they wait for in memory then comes at once and not one after another.
    #[inline]
    pub fn hash(&self, key: impl Key) -> HashedKey {
        HashedKey(self.fingerprint(key))
    }

    /// Has what is known of a key brought from memory. Nothing is decided or changed.
    #[inline]
    pub fn touch(&self, key: HashedKey) {
        on_store!(&self.inner.store, store => store.touch(key.0));
    }

    /// [`Limiter::check_at`] for a key that this limiter has hashed.
    #[inline]
    pub fn check_hashed_at(&self, key: HashedKey, cost: u64, now: Time) -> Decision {
        self.check_fingerprint(key.0, saturating_count(cost), now)
    }

    /// Would a call of this cost be allowed now? Nothing is charged. (It does not look whether there is room for a new
    /// key: see [`crate::OnFull::Deny`].)
    pub fn peek(&self, key: impl Key, cost: u64) -> Decision {
        self.peek_at(key, cost, self.now())
    }

    /// Would it be allowed at a time?
    pub fn peek_at(&self, key: impl Key, cost: u64, now: Time) -> Decision {
        self.peek_fingerprint(self.fingerprint(key), saturating_count(cost), now)
    }

    /// [`Limiter::peek_at`] for a key that this limiter has hashed.
    pub fn peek_hashed_at(&self, key: HashedKey, cost: u64, now: Time) -> Decision {
        self.peek_fingerprint(key.0, saturating_count(cost), now)
    }

    fn peek_fingerprint(&self, key: Fingerprint, cost: u32, now: Time) -> Decision {
        if let Some(denial) = self.queue_denial(key, cost, now) {
            return denial;
        }
        on_store!(&self.inner.store, store => {
            store.read(key, now, |limits, states| peek_list(limits, states, now, cost))
        })
    }

    /// Takes `up_to` or as much of it as remains, and says how much that was. When nothing remains the answer is the
    /// denial of cost 1.
    ///
    /// # Errors
    /// When the limit does not offer this: with `count=all`, and `smooth`.
    pub fn take(&self, key: impl Key, up_to: u64) -> Result<(Decision, u64), Unsupported> {
        self.take_at(key, up_to, self.now())
    }

    /// Takes as much as remains at a time.
    ///
    /// # Errors
    /// When the limit does not offer this: with `count=all`, and `smooth`.
    pub fn take_at(&self, key: impl Key, up_to: u64, now: Time) -> Result<(Decision, u64), Unsupported> {
        let (key, up_to) = (self.fingerprint(key), saturating_count(up_to));
        if let Some(denial) = self.denied_by_queue(key, up_to.min(1), now) {
            return self.offered(Verb::Take).map(|()| (denial, 0));
        }
        let taken = on_store!(&self.inner.store, store => store.take(key, now, up_to));
        if let Ok((decision, _)) = &taken {
            self.observe(decision);
        }
        taken.map(|(decision, taken)| (decision, u64::from(taken)))
    }

    /// Charges the key now, to act after the answer's delay, which is at most `max_wait`: a [reservation](Limiter::reserve)
    /// without a receipt. Under `smooth` this is how callers wait, as with Guava's `tryAcquire(permits, timeout)`, only that
    /// nothing here sleeps.
    ///
    /// ```
    /// use sluicegate::Limiter;
    /// use std::time::Duration;
    ///
    /// let mails = Limiter::new("smooth 10/s")?;
    /// mails.check("Harry");
    /// let decision = mails.check_within("Harry", 1, Duration::from_secs(1))?;
    /// assert!(decision.allowed() && decision.delay().as_micros() <= 100_000);
    /// std::thread::sleep(decision.delay().into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the limit does not offer this: with `count=all`.
    pub fn check_within(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Decision, Unsupported> {
        self.check_within_at(key, cost, max_wait, self.now())
    }

    /// Charges at a time, to act within the longest wait.
    ///
    /// # Errors
    /// When the limit does not offer this: with `count=all`.
    pub fn check_within_at(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: impl Into<Span>,
        now: Time,
    ) -> Result<Decision, Unsupported> {
        let (key, cost) = (self.fingerprint(key), saturating_count(cost));
        if let Some(denial) = self.denied_by_queue(key, cost, now) {
            return self.offered(Verb::CheckWithin).map(|()| denial);
        }
        let max_wait = max_wait.into();
        let decision = on_store!(&self.inner.store, store => store.check_within(key, now, cost, max_wait))?;
        self.observe(&decision);
        Ok(decision)
    }

    /// Gives cost back: what was charged for something that did not happen after all. The answer is the decision for
    /// cost 0.
    ///
    /// # Errors
    /// When the limit does not offer this: a pacer, and `smooth` with a warm-up.
    pub fn refund(&self, key: impl Key, cost: u64) -> Result<Decision, Unsupported> {
        self.refund_at(key, cost, self.now())
    }

    /// Gives cost back at a time.
    ///
    /// # Errors
    /// When the limit does not offer this: a pacer, and `smooth` with a warm-up.
    pub fn refund_at(&self, key: impl Key, cost: u64, now: Time) -> Result<Decision, Unsupported> {
        let (key, cost) = (self.fingerprint(key), saturating_count(cost));
        let refunded = on_store!(&self.inner.store, store => store.refund(key, now, cost));
        self.queues().usage_changed(self.host(), key);
        refunded
    }

    /// When the key's next window starts, or its next unit is there: in UTC, rounded up to a microsecond. `now` for
    /// an idle bucket or log.
    pub fn next_window(&self, key: impl Key) -> Time {
        self.next_window_at(key, self.now())
    }

    /// When the key's next window starts, seen from a time.
    pub fn next_window_at(&self, key: impl Key, now: Time) -> Time {
        let key = self.fingerprint(key);
        on_store!(&self.inner.store, store => {
            store.read(key, now, |limits, states| next_window_list(limits, states, now))
        })
    }

    /// Forgets the key. Its receipts are void.
    pub fn reset(&self, key: impl Key) {
        let key = self.fingerprint(key);
        on_store!(&self.inner.store, store => store.remove(key));
        self.queues().usage_changed(self.host(), key);
    }

    /// Whether anything is remembered of the key. A key that has recovered may be forgotten at any time, and nobody can
    /// tell from its decisions; one that was evicted is forgotten too early.
    pub fn contains(&self, key: impl Key) -> bool {
        let key = self.fingerprint(key);
        on_store!(&self.inner.store, store => store.contains(key))
    }

    /// Names a call, to be made together with others: see [`check_all`].
    pub fn call(&self, key: impl Key, cost: u64) -> Call<'_> {
        Call::new(self, self.fingerprint(key), saturating_count(cost))
    }

    /// Changes the numbers of the running limiter. Every key keeps what it has used: a bucket the tokens used, a window
    /// or log its count, `smooth` its wait and what share of its permits is stored. If the period, start or zone of a window
    /// changes, keys start afresh. Open receipts are void.
    ///
    /// One part of some 200 keys after another is locked for a moment.
    ///
    /// # Errors
    /// When a text is not a limit or limits do not go together; when the algorithm is another one, or one limit would
    /// become several: keys would start afresh in any case, so make a new limiter. (In a list each limit may become
    /// any other, the first the first and so on; where the algorithm is another one, keys start afresh under it.)
    pub fn change(&self, limits: impl IntoLimits) -> Result<(), ChangeError> {
        let limits = builder::list(limits.into_limits())?;
        let mut current = self.inner.limits.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.inner.scope {
            None => self.inner.store.change(&limits, self.inner.start)?,
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

    /// The limits, as they are now.
    pub fn limits(&self) -> Arc<[Limit]> {
        Arc::clone(&self.inner.limits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How often the limits were [changed](Limiter::change). It costs next to nothing to ask, so that whoever has worked
    /// something out from [`Limiter::limits`] can see with every call whether it still holds.
    pub fn changes(&self) -> u64 {
        self.inner.changes.load(Ordering::Acquire)
    }

    /// What has been decided and what is held. One part of some 200 keys after another is locked for a moment, so ask for
    /// this as often as metrics are read, not with every call.
    pub fn stats(&self) -> StoreStats {
        let waiting = self.queues().waiting();
        on_store!(&self.inner.store, store => {
            StoreStats::of(store.counts(), store.keys(), store.max_keys(), waiting)
        })
    }

    /// The time on the limiter's clock.
    #[inline]
    pub fn now(&self) -> Time {
        self.inner.clock.now()
    }

    /// Waits until so long from now on the limiter's clock, in any runtime: for the [`Decision::delay`] of a call that was
    /// allowed for later. Nobody's turn depends on it; to wait in line use [`Limiter::acquire`].
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

    /// A limiter in a store that others use too.
    pub(crate) fn in_place(
        place: StoreHandle,
        store: MemoryStore,
        limits: Vec<Limit>,
        kind: LimiterKind,
        observer: Option<Arc<dyn Observer>>,
    ) -> Limiter {
        let scope = Scope {
            name: place.scope,
            tag: AtomicU16::new(place.tag.0),
            store,
            kind,
            tags: Mutex::new(vec![place.tag]),
        };
        let inner = Inner {
            queues: place.queues,
            store: StoreByAlgorithm::Shared(place.store),
            seeds: place.seeds,
            clock: place.clock,
            observer,
            start: place.start,
            limits: Mutex::new(limits.into()),
            changes: AtomicU64::new(0),
            next_receipt: place.next_receipt,
            seal: place.seal,
            scope: Some(scope),
        };
        Limiter { inner: Arc::new(inner) }
    }

    pub(crate) fn check_fingerprint(&self, key: Fingerprint, cost: u32, now: Time) -> Decision {
        if self.inner.observer.is_some() || self.inner.queues.may_have_waiters(key) {
            return self.check_observed(key, cost, now);
        }
        // Nothing is done with the decision here, so that it is written once, where the caller wants it.
        on_store!(&self.inner.store, store => store.check(key, cost, now))
    }

    #[cold]
    fn check_observed(&self, key: Fingerprint, cost: u32, now: Time) -> Decision {
        if let Some(denial) = self.denied_by_queue(key, cost, now) {
            return denial;
        }
        let decision = on_store!(&self.inner.store, store => store.check(key, cost, now));
        self.observe(&decision);
        decision
    }

    /// Takes a call that is allowed without delay.
    #[inline]
    pub(crate) fn try_admit(&self, key: Fingerprint, cost: u32, now: Time) -> Result<Decision, NotAdmitted> {
        on_store!(&self.inner.store, store => store.try_admit(key, cost, now))
    }

    #[inline]
    pub(crate) fn queues(&self) -> &Arc<Queues> {
        &self.inner.queues
    }

    /// Whose lines they are, as long as this limiter is there.
    pub(crate) fn host(&self) -> &dyn Host {
        &*self.inner
    }

    pub(crate) fn scope_name(&self) -> Option<Fingerprint> {
        self.inner.scope.as_ref().map(|scope| scope.name)
    }

    /// The answer to a call that does not wait while others do, under the same key.
    #[inline]
    pub(crate) fn queue_denial(&self, key: Fingerprint, cost: u32, now: Time) -> Option<Decision> {
        if cost == 0 || !self.inner.queues.may_have_waiters(key) {
            return None;
        }
        self.queues().denial(self.host(), key, cost, now)
    }

    /// Whether its limits offer a verb: what they do not is an error, also while others wait.
    fn offered(&self, verb: Verb) -> Result<(), Unsupported> {
        self.limits()
            .iter()
            .filter_map(|limit| limit.made_at(self.inner.start))
            .try_for_each(|limit| limit.require(verb))
    }

    /// The same, counted and observed.
    fn denied_by_queue(&self, key: Fingerprint, cost: u32, now: Time) -> Option<Decision> {
        let denial = self.queue_denial(key, cost, now)?;
        on_store!(&self.inner.store, store => store.as_queue_store().count(key, &denial));
        self.observe(&denial);
        Some(denial)
    }

    /// Tells the observer, when no lock is held any more.
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

impl Scope {
    /// Keys meet the new limits with their next call.
    fn change(&self, limits: &[Limit], start: Time) -> Result<(), BuildError> {
        let tag = self.store.tag(limits, self.kind, start)?;
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
