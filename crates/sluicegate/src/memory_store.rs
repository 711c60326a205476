//! A store that several limiters share, with one bound for all of them.
//!
//! ```text
//! Limiter "api"   scope, tag ──┐
//! Limiter "reply" scope, tag ──┼──▶ fingerprint of (scope, key), tag of limits ──▶ one store
//! Limiter inline  scope, tag ──┘
//! ```
//!
//! A key's state belongs to (scope, key). The tag names the limits that apply to it: when a scope's
//! limits change, the state is converted to the new ones on the key's next call.

mod tags;

pub(crate) use tags::Tag;

use crate::clock::Clock;
use crate::clock::any::AnyClock;
use crate::ids::Receipt;
use crate::key::{Fingerprint, Key, Seeds};
use crate::limit::Limit;
use crate::limiter::{
    BuildError, HashedKey, HeldReceipts, MAX_KEYS_DEFAULT, MAX_KEYS_MAX, MAX_LOG_ENTRIES_DEFAULT,
    MAX_LOG_ENTRIES_MAX, MAX_QUEUE_DEFAULT, MAX_RECEIPTS_DEFAULT, MAX_RECEIPTS_MAX, MAX_WAITERS_DEFAULT,
    StoreStats, VerbError, made, queue_bounds, within,
};
use crate::seal::Seal;
use crate::store::{
    AnySlot, Attached, LimitTable, NoMemory, OnFull, PoolStats, Preserve, QueueStore, Scopes, Size, Store,
    TaggedLimits,
};
use crate::wait::{Host, Queues};
use sluicegate_core::{Decision, Time};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tags::{TagKey, Tags, Taken};

/// A store for the keys of several limiters, with one bound for all of them.
///
/// A limiter with a store of its own is a little faster. Share a store if there are many limiters,
/// if limits are created at run time, or to bound the memory of all limiters together:
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::MemoryStore;
///
/// let store = MemoryStore::builder().max_keys(100_000).build()?;
/// let reply = Limiter::builder("sliding-log 5/60s").in_store(&store, "reply").build()?;
/// let login = Limiter::builder("token-bucket 1/s burst=3").in_store(&store, "login").build()?;
/// assert!(reply.check("user:42").allowed() && login.check("user:42").allowed());
/// assert_eq!(store.stats().keys, 2);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// A key's state belongs to its limiter's scope and the key. Another limiter of the same scope
/// continues with that state under its own limits, as after
/// [`Limiter::change`](crate::Limiter::change).
///
/// Every scope has a share of `max_keys`, by default an equal one
/// ([`Limiter::set_share`](crate::Limiter::set_share)). A scope within its share loses no key to
/// the others: when the store is full, only keys of a scope that exceeds its share are evicted. A
/// clone is another handle to the same store.
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store<AnySlot>>,
    seeds: Arc<Seeds>,
    next_receipt: Arc<AtomicU64>,
    seal: Arc<Seal>,
    clock: AnyClock,
    tags: Mutex<Tags>,
    /// Held while a thread waits for `tags`, so that a thread that locks them repeatedly does not
    /// starve the others.
    tags_queue: Mutex<()>,
    scopes: Mutex<Scopes>,
    queues: Arc<Queues>,
}

/// Settings of a [`MemoryStore`]. Created by [`MemoryStore::builder`].
#[derive(Debug)]
#[must_use]
pub struct MemoryStoreBuilder {
    max_keys: usize,
    max_receipts: usize,
    max_log_entries: usize,
    max_queue: usize,
    max_waiters: usize,
    on_full: OnFull,
    clock: AnyClock,
}

/// The kind of limiter that attaches to the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct LimiterKind {
    pub(crate) preserve: Preserve,
    /// `true` if its limits come from untrusted callers.
    pub(crate) untrusted: bool,
}

/// What a limiter holds of the store it is attached to.
pub(crate) struct StoreHandle {
    pub(crate) store: Arc<Store<AnySlot>>,
    pub(crate) seeds: Arc<Seeds>,
    pub(crate) next_receipt: Arc<AtomicU64>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) clock: AnyClock,
    pub(crate) start: Time,
    pub(crate) scope: Fingerprint,
    pub(crate) attached: Arc<Attached>,
    pub(crate) tag: Arc<Tag>,
    pub(crate) queues: Arc<Queues>,
}

impl MemoryStore {
    /// A builder for a store.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            max_keys: MAX_KEYS_DEFAULT,
            max_receipts: MAX_RECEIPTS_DEFAULT,
            max_log_entries: MAX_LOG_ENTRIES_DEFAULT,
            max_queue: MAX_QUEUE_DEFAULT,
            max_waiters: MAX_WAITERS_DEFAULT,
            on_full: OnFull::default(),
            clock: AnyClock::System,
        }
    }

    /// What all its limiters have decided, and how many keys it holds.
    pub fn stats(&self) -> StoreStats {
        let Inner { store, queues, .. } = &*self.inner;
        StoreStats::of(store, queues.waiting(), self.limit_stats())
    }

    /// The state of the pool of limits.
    pub(crate) fn limit_stats(&self) -> PoolStats {
        self.tags().stats()
    }

    /// Prefetches the state of a key of any of its limiters: see
    /// [`Limiter::touch`](crate::Limiter::touch).
    #[inline]
    pub fn touch(&self, key: HashedKey) {
        self.inner.store.touch(key.0);
    }

    /// Returns the part of a reservation that still counts to its key, whichever limiter of this
    /// store made it. Returns `true` if there was such a part.
    ///
    /// If the limits of the scope have changed since the key's latest call, its state is converted
    /// only by its next call. Until then, this returns what counts under the previous limits.
    pub fn cancel(&self, receipt: &Receipt) -> bool {
        self.cancel_at(receipt, self.inner.clock.now())
    }

    /// Cancels a reservation at a given time: see [`MemoryStore::cancel`].
    pub fn cancel_at(&self, receipt: &Receipt, now: Time) -> bool {
        self.held().close(receipt, &[0], now) == Ok(Some(true))
    }

    /// Settles a reservation of any of its limiters: see
    /// [`Limiter::settle`](crate::Limiter::settle).
    pub fn settle(&self, receipt: &Receipt, used: u64) -> bool {
        self.settle_at(receipt, used, self.inner.clock.now())
    }

    /// Settles a reservation at a given time: see [`MemoryStore::settle`].
    pub fn settle_at(&self, receipt: &Receipt, used: u64, now: Time) -> bool {
        self.held().close(receipt, &[used], now).is_ok_and(|returned| returned.is_some())
    }

    /// Settles a reservation of several calls: see
    /// [`Limiter::settle_each`](crate::Limiter::settle_each).
    ///
    /// # Errors
    /// As [`Limiter::settle_each`](crate::Limiter::settle_each).
    pub fn settle_each(&self, receipt: &Receipt, used: &[u64]) -> Result<bool, VerbError> {
        self.settle_each_at(receipt, used, self.inner.clock.now())
    }

    /// Settles a reservation of several calls at a given time: see [`MemoryStore::settle_each`].
    ///
    /// # Errors
    /// As [`MemoryStore::settle_each`].
    pub fn settle_each_at(&self, receipt: &Receipt, used: &[u64], now: Time) -> Result<bool, VerbError> {
        if !receipt.is_of_memory() {
            return Err(VerbError::BadReceipt);
        }
        Ok(self.held().close(receipt, used, now)?.is_some())
    }

    /// Charges more to a reservation of any of its limiters: see
    /// [`Limiter::extend_each`](crate::Limiter::extend_each).
    ///
    /// # Errors
    /// As [`Limiter::extend_each`](crate::Limiter::extend_each).
    pub fn extend_each(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
    ) -> Result<Decision, VerbError> {
        self.extend_each_at(receipt, costs, ttl, self.inner.clock.now())
    }

    /// Charges more to a reservation at a given time: see [`MemoryStore::extend_each`].
    ///
    /// # Errors
    /// As [`MemoryStore::extend_each`].
    pub fn extend_each_at(
        &self,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Duration>,
        now: Time,
    ) -> Result<Decision, VerbError> {
        self.held().extend(receipt, costs, ttl, now)
    }

    fn held(&self) -> HeldReceipts<'_, AnySlot> {
        let Inner { store, seal, queues, .. } = &*self.inner;
        HeldReceipts { store, seal, queues, host: &*self.inner, limiter: None }
    }

    /// Attaches a limiter with this scope and these limits, which can be combined.
    pub(crate) fn attach(
        &self,
        scope: &dyn Key,
        limits: &[Limit],
        kind: LimiterKind,
        start: Option<Time>,
    ) -> Result<StoreHandle, BuildError> {
        let Inner { store, seeds, next_receipt, seal, clock, queues, .. } = &*self.inner;
        let start = start.unwrap_or_else(|| clock.now());
        let scope = seeds.fingerprint(scope);
        let attached = self.attach_share(scope, kind);
        Ok(StoreHandle {
            store: Arc::clone(store),
            seeds: Arc::clone(seeds),
            next_receipt: Arc::clone(next_receipt),
            seal: Arc::clone(seal),
            clock: clock.clone(),
            start,
            scope,
            tag: self.tag(limits, kind, start, &attached)?,
            attached,
            queues: Arc::clone(queues),
        })
    }

    fn attach_share(&self, scope: Fingerprint, kind: LimiterKind) -> Arc<Attached> {
        let mut scopes = self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if kind.untrusted { scopes.attach_untrusted() } else { scopes.attach(scope) }
    }

    /// The tag of these limits in this share: the one they have, or a free one.
    pub(crate) fn tag(
        &self,
        limits: &[Limit],
        kind: LimiterKind,
        start: Time,
        attached: &Attached,
    ) -> Result<Arc<Tag>, BuildError> {
        let Inner { store, clock, .. } = &*self.inner;
        let start = if limits.iter().any(Limit::counts_from_start) { start } else { Time::EPOCH };
        let LimiterKind { preserve, untrusted } = kind;
        let share = attached.share();
        let tag_key = TagKey { limits: limits.to_vec(), preserve, start, share: share.id, untrusted };
        loop {
            let mut tags = self.tags();
            if let Some(tag) = tags.get(&tag_key) {
                return Ok(tag);
            }
            let limits = made(limits, start, &clock.utc_ahead())?;
            if let Taken::Tag(tag) = tags.take(untrusted, store, clock.now())? {
                let entry = TaggedLimits { limits, preserve, share: Arc::clone(share) };
                // The tag is free, and so is its entry.
                store.insert_limits(tag, entry, tags.next_table());
                return Ok(tags.assign(tag_key, tag));
            }
        }
    }

    /// Locks the tags. Threads get them in turn.
    fn tags(&self) -> MutexGuard<'_, Tags> {
        let Inner { tags, tags_queue, .. } = &*self.inner;
        let _queued = tags_queue.lock().unwrap_or_else(PoisonError::into_inner);
        tags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for Inner {
    fn store(&self) -> &dyn QueueStore {
        self.store.as_queue_store()
    }

    fn clock(&self) -> &AnyClock {
        &self.clock
    }
}

impl MemoryStoreBuilder {
    /// The maximum number of keys: see
    /// [`LimiterBuilder::max_keys`](crate::LimiterBuilder::max_keys).
    pub fn max_keys(mut self, max_keys: usize) -> MemoryStoreBuilder {
        self.max_keys = max_keys;
        self
    }

    /// The maximum number of open receipts.
    pub fn max_receipts(mut self, max_receipts: usize) -> MemoryStoreBuilder {
        self.max_receipts = max_receipts;
        self
    }

    /// The maximum number of log entries of all keys: see
    /// [`LimiterBuilder::max_log_entries`](crate::LimiterBuilder::max_log_entries). Every scope has
    /// a share of them, as of the keys.
    pub fn max_log_entries(mut self, max_log_entries: usize) -> MemoryStoreBuilder {
        self.max_log_entries = max_log_entries;
        self
    }

    /// The maximum number of waiters per key: see
    /// [`LimiterBuilder::max_queue`](crate::LimiterBuilder::max_queue).
    pub fn max_queue(mut self, max_queue: usize) -> MemoryStoreBuilder {
        self.max_queue = max_queue;
        self
    }

    /// The maximum number of waiters under all keys.
    pub fn max_waiters(mut self, max_waiters: usize) -> MemoryStoreBuilder {
        self.max_waiters = max_waiters;
        self
    }

    /// What to do with a new key when the store is full of keys that have not recovered.
    pub fn on_full(mut self, on_full: OnFull) -> MemoryStoreBuilder {
        self.on_full = on_full;
        self
    }

    /// The clock of all its limiters. For tests: [`crate::clock::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> MemoryStoreBuilder {
        self.clock = AnyClock::Other(Arc::new(clock));
        self
    }

    /// Builds the store.
    ///
    /// # Errors
    /// If a setting is out of bounds, or there is too little memory for that many keys.
    pub fn build(self) -> Result<MemoryStore, BuildError> {
        let max_keys = within("max_keys", self.max_keys, 1, MAX_KEYS_MAX)?;
        let max_receipts = within("max_receipts", self.max_receipts, 0, MAX_RECEIPTS_MAX)?;
        let max_log_entries = within("max_log_entries", self.max_log_entries, 1, MAX_LOG_ENTRIES_MAX)?;
        let size = Size { max_keys, max_receipts, max_log_entries, on_full: self.on_full };
        let store =
            Store::new(LimitTable::new(), size).map_err(|NoMemory| BuildError::NoMemory { max_keys })?;
        let bounds = queue_bounds(self.max_queue, self.max_waiters)?;
        // The first reading of the system clock measures the counter's rate. It must not delay a
        // call.
        self.clock.now();
        let inner = |own: &Weak<Inner>| Inner {
            queues: Queues::new(bounds, own.clone() as Weak<dyn Host>),
            store: Arc::new(store),
            seeds: Arc::new(Seeds::random()),
            next_receipt: Arc::default(),
            seal: Arc::default(),
            clock: self.clock,
            tags: Mutex::default(),
            tags_queue: Mutex::default(),
            scopes: Mutex::new(Scopes::new(&size)),
        };
        Ok(MemoryStore { inner: Arc::new_cyclic(inner) })
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
