//! The in-memory store: the state of every key, in a table of fixed size.
//!
//! ```text
//! fingerprint ──▶ one of many shards, each with its own lock ──▶ two of its 64 buckets ──▶ a slot
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `store.rs` | the store: finds a key's shard and runs an operation on the key |
//! | `shard.rs` | one locked shard and the operations on its slots |
//! | `table.rs` | a shard's table of slots, and why we wrote our own |
//! | `slot_kind.rs`, `any_slot.rs` | what a slot holds: a cell, a log, a list, or any of these |
//! | `evict.rs` | which key makes room for a new one |
//! | `shares.rs` | how many keys each scope may hold in a store that several limiters share |
//! | `pool.rs` | a bounded pool that is searched for room shard by shard |
//! | `log_pool.rs` | how many log entries all keys may hold, and which key makes room for more |
//! | `limit_versions.rs` | limits that change while the store of one limiter is in use |
//! | `limit_table.rs` | the limits of a store that several limiters share, by tag |
//! | `reserve.rs`, `receipt_table.rs` | reservations and open receipts |
//! | `receipt_pool.rs` | how many receipts may be open, and which make room for more |
//! | `check_all.rs` | calls on several keys that are charged all or nothing |
//! | `queue_store.rs` | the operations that wait queues need |
//!
//! # Synchronization
//!
//! - **A key has one shard, and a shard has one lock.** A shard's state is read and written only
//!   under its lock, so every operation on one key is atomic, even under several limits.
//! - **Several shards are locked in the order of (store, shard).** While a thread holds a shard, it
//!   waits for nothing except shards later in that order; in particular, it never locks `current`.
//!   So callers cannot deadlock, in whatever order they name their keys.
//! - A change of limits holds `current` and visits the shards one by one, so changes are
//!   serialized. A key is decided under the new limits as soon as its shard has been visited.
//! - No callback runs under a lock: wakers and observers are called after the release.
//!
//! # Invariants
//!
//! - **A slot's tag names the limits that wrote its state.** In the store of one limiter the tag is
//!   a version of its limits (`limit_versions.rs`); in a store that several limiters share, it is
//!   an index into their table (`limit_table.rs`). A state is always read under the limits that its
//!   tag names, so no limit misreads the state of another.
//! - **The table never grows and is never swept.** It holds at most `max_keys` keys. It is
//!   allocated as one block of zeros when the limiter is built, and the operating system supplies
//!   its pages when they are first touched. Inserting a key moves at most two others, within their
//!   shard.
//! - **The store decides nothing.** The core makes the decisions and computes the debts that an
//!   eviction compares.
//! - **The fast path and the full path agree.** [`Store::check`] and `Algorithm::try_charge` handle
//!   the common case and change nothing if it does not apply; `check_in_full` handles every case.
//! - The store does not read the clock: `now` is an argument.
//!
//! # Memory layout
//!
//! Each lock lies next to the data that every call needs. Together they take 128 bytes per 192
//! keys, so for a million keys they fit in the CPU caches. The tables do not fit, so they are one
//! allocation: a slot's address is computed from the fingerprint, without loading a pointer first.

mod any_slot;
mod check_all;
mod evict;
mod limit_table;
mod limit_versions;
mod log_pool;
mod pool;
mod queue_store;
mod receipt_pool;
mod receipt_table;
mod reserve;
mod shard;
mod shares;
mod slot_kind;
mod table;

pub(crate) use any_slot::AnySlot;
pub(crate) use check_all::{AllVerb, AnyStore, NotDecided, StoreCall, decide_all, decide_all_each};
pub use evict::OnFull;
pub(crate) use limit_table::{Fate, LIMITS_MAX, LimitTable, Preserve, TagDebt, TaggedLimits};
pub(crate) use limit_versions::LimitVersion;
pub(crate) use queue_store::{HeadCharge, NotAdmitted, QueueStore};
pub(crate) use reserve::NotReserved;
pub(crate) use shares::{Attached, Scopes};
pub(crate) use slot_kind::{CellSlot, ListSlot, LogSlot, SlotKind};

use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Lock, Ordering};
use evict::Vacancy;
use limit_versions::LimitsByTag as _;
pub(crate) use pool::PoolStats;
use pool::SearchedPool;
pub(crate) use shard::StoreCounts;
use shard::{Guarded, Locked, Shard};
use slot_kind::{SlotState, StateOf};
use sluicegate_core::algorithm::Verb;
use sluicegate_core::all_of::{check_list, check_within_list, peek_list, take_list};
use sluicegate_core::decision::store::no_room;
use sluicegate_core::receipts::Receipts;
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Algorithm, AnyLimit, Decision, FullPool, RetryAfter, Span, Time};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use table::{KEYS_PER_SHARD, Tables};

/// The keys of one limiter, or of several limiters that share the store.
pub(crate) struct Store<S: SlotKind> {
    /// The position of this store in the lock order.
    id: u64,
    /// One shard per 192 keys.
    shards: Box<[Shard<S>]>,
    /// The slots of all shards: a third more than `max_keys`, and at least 256.
    tables: Tables<S>,
    current: Lock<Arc<S::Limits>>,
    vacant: Vacant,
    max_keys: usize,
    log_pool: SearchedPool,
    on_full: OnFull,
    receipt_pool: SearchedPool,
    /// The shard at which the next sweep for recovered keys of a share starts.
    next_share_sweep: AtomicUsize,
}

/// Remaining capacity, shared by all shards.
struct Vacant {
    /// Keys that can still be inserted without eviction.
    keys: AtomicUsize,
    /// Receipts that can still be opened.
    receipts: AtomicUsize,
    /// Log entries for which memory can still be allocated.
    log_entries: AtomicUsize,
}

/// Decrements a remaining capacity, unless no more than `spared` remains.
fn claim_beyond(spared: usize, left: &AtomicUsize) -> bool {
    let less = |left: usize| (left > spared).then(|| left - 1);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

/// The allocator has too little memory for the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoMemory;

/// The store has no room in a pool. There may be room after this time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pool: FullPool,
    wait: Span,
}

/// The capacity of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) max_keys: usize,
    pub(crate) max_receipts: usize,
    pub(crate) max_log_entries: usize,
    pub(crate) on_full: OnFull,
}

impl<S: SlotKind> Store<S> {
    /// Allocates a store.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(crate) fn new(limits_by_tag: S::Limits, size: Size) -> Result<Store<S>, NoMemory> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let limits_by_tag = Arc::new(limits_by_tag);
        let shards = size.max_keys.div_ceil(KEYS_PER_SHARD);
        Ok(Store {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            tables: Tables::new(shards)?,
            shards: Shard::many(shards, &limits_by_tag)?,
            current: Lock::new(limits_by_tag),
            vacant: Vacant {
                keys: AtomicUsize::new(size.max_keys),
                receipts: AtomicUsize::new(size.max_receipts),
                log_entries: AtomicUsize::new(size.max_log_entries),
            },
            max_keys: size.max_keys,
            log_pool: SearchedPool::new(size.max_log_entries),
            on_full: size.on_full,
            receipt_pool: SearchedPool::new(size.max_receipts),
            next_share_sweep: AtomicUsize::new(0),
        })
    }

    /// Decides a call, and charges it if it is allowed.
    ///
    /// This function contains only the fast path, which nearly every call takes: the lock is free,
    /// the key is in a preferred slot and up to date, its shard has no receipts, and the call is
    /// allowed. On that path every function is inlined, so that everything stays in registers.
    #[inline(never)]
    pub(crate) fn check(&self, key: Fingerprint, cost: u64, now: Time) -> Decision {
        let Some(mut shard) = self.try_lock(self.shard_of(key)) else {
            return self.lock_and_check(key, cost, now);
        };
        let Some(slot) = shard.table.find_fast(key) else {
            return self.find_and_check(shard, key, cost, now);
        };
        match shard.try_charge(slot, key, cost, now) {
            Some(charged) => charged.into(),
            None => self.check_slot(&mut shard, slot, key, cost, now),
        }
    }

    #[cold]
    fn lock_and_check(&self, key: Fingerprint, cost: u64, now: Time) -> Decision {
        self.find_and_check(self.lock(self.shard_of(key)), key, cost, now)
    }

    #[inline(never)]
    fn find_and_check(&self, mut shard: Locked<'_, S>, key: Fingerprint, cost: u64, now: Time) -> Decision {
        match shard.find(key) {
            Some(slot) => self.check_slot(&mut shard, slot, key, cost, now),
            None => self.check_new(&mut shard, key, cost, now),
        }
    }

    /// Decides a call on a key that has a slot, whether the call is allowed, denied or free of
    /// cost.
    #[inline(never)]
    fn check_slot(
        &self,
        shard: &mut Locked<'_, S>,
        slot: usize,
        key: Fingerprint,
        cost: u64,
        now: Time,
    ) -> Decision {
        if cost == 0 {
            return self.decide_free(shard, key, now);
        }
        shard.bring_up_to_date(slot, key, now, &self.vacant);
        if let Err(full) = self.make_log_room(shard, slot, now, cost) {
            let denial = shard.denial(full, key);
            shard.guarded.counts.decided(&denial);
            return denial;
        }
        let Guarded { limits_by_tag, receipt_table, counts, side_table, .. } = &mut *shard.guarded;
        let found = shard.table.slot(slot);
        let slot_state = SlotState { words: found.state, side_table, slot };
        let decision = S::check_in_full(slot_state, limits_by_tag.limits(found.tag()), now, cost);
        counts.decided(&decision);
        if let Some(receipt_table) = receipt_table
            && decision.allowed()
        {
            receipt_table.charged(key, now);
        }
        decision
    }

    #[cold]
    fn check_new(&self, shard: &mut Locked<'_, S>, key: Fingerprint, cost: u64, now: Time) -> Decision {
        let checked = self.with_new_key(shard, key, now, |limits, states, receipts| {
            let decision = check_list(limits, states, now, cost);
            if decision.allowed() && cost > 0 {
                receipts.charged(now);
            }
            decision
        });
        let decision = checked.unwrap_or_else(|full| shard.denial(full, key));
        shard.guarded.counts.decided(&decision);
        decision
    }

    /// Charges `up_to`, or as much of it as remains. Returns how much was charged.
    ///
    /// # Errors
    /// If the limits do not support it.
    pub(crate) fn take(
        &self,
        key: Fingerprint,
        now: Time,
        up_to: u64,
    ) -> Result<(Decision, u64), Unsupported> {
        let mut shard = self.lock(self.shard_of(key));
        shard.require(key, Verb::Take)?;
        if up_to == 0 {
            return Ok((self.decide_free(&mut shard, key, now), 0));
        }
        let taken = self.charge_key_in(&mut shard, key, now, |limits, states, receipts| {
            let taken = take_list(limits, states, now, up_to)?;
            if taken.1 > 0 {
                receipts.charged(now);
            }
            Ok(taken)
        });
        let taken = taken.unwrap_or_else(|full| Ok((shard.denial(full, key), 0)))?;
        shard.guarded.counts.decided(&taken.0);
        Ok(taken)
    }

    /// Charges a call that is to happen after a delay of at most `max_wait`.
    ///
    /// # Errors
    /// If the limits do not support it.
    pub(crate) fn check_within(
        &self,
        key: Fingerprint,
        now: Time,
        cost: u64,
        max_wait: Span,
    ) -> Result<Decision, Unsupported> {
        let mut shard = self.lock(self.shard_of(key));
        shard.require(key, Verb::CheckWithin)?;
        if cost == 0 {
            return Ok(self.decide_free(&mut shard, key, now));
        }
        let decided = self.charge_key_in(&mut shard, key, now, |limits, states, receipts| {
            let decision = check_within_list(limits, states, now, cost, max_wait)?;
            if decision.allowed() && cost > 0 {
                receipts.charged(now);
            }
            Ok(decision)
        });
        let decision = decided.unwrap_or_else(|full| Ok(shard.denial(full, key)))?;
        shard.guarded.counts.decided(&decision);
        Ok(decision)
    }

    /// Decides a call of cost 0. It changes nothing: it does not even convert the state to the
    /// current limits.
    fn decide_free(&self, shard: &mut Locked<'_, S>, key: Fingerprint, now: Time) -> Decision {
        let decision = self.read_in(shard, key, now, |limits, states| peek_list(limits, states, now, 0));
        shard.guarded.counts.decided(&decision);
        decision
    }

    /// Reads a key for a caller whose clock is `clock`. What has expired by its time is closed, so
    /// that not every read computes it again. Apart from that the key is not changed.
    pub(crate) fn read_on_clock<R>(
        &self,
        key: Fingerprint,
        now: Time,
        clock: impl FnOnce() -> Time,
        read: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        let mut shard = self.lock(self.shard_of(key));
        if shard.has_expired(key, now) {
            // A clock may be foreign code.
            drop(shard);
            let now = now.min(clock());
            shard = self.lock(self.shard_of(key));
            shard.expire_receipts(shard.find(key), key, now, &self.vacant);
        }
        self.read_in(&mut shard, key, now, read)
    }

    /// Reads a key without changing it. Reading an unseen key takes no slot.
    pub(crate) fn read<R>(
        &self,
        key: Fingerprint,
        now: Time,
        read: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        self.read_in(&mut self.lock(self.shard_of(key)), key, now, read)
    }

    fn read_in<R>(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        read: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        let slot = shard.find(key);
        // What has expired by a time that the shard has seen need not be computed again by every
        // read.
        shard.expire_receipts(slot, key, now.min(shard.guarded.latest), &self.vacant);
        let limits_by_tag = Arc::clone(&shard.guarded.limits_by_tag);
        let tag = limits_by_tag.tag_for(key);
        if let Some(slot) = slot
            && shard.table.slot(slot).tag() == tag
            && !shard.has_expired(key, now)
        {
            return shard.with_slot(slot, read);
        }
        let limits = limits_by_tag.limits(tag);
        read(limits, S::states_mut(&mut shard.copy(key, now), limits.len()))
    }

    /// Returns cost to a key: see [`Receipts::refund`]. A key without a slot may need one, since a
    /// refund to a bucket that is still filling has to be stored. If there is no room, nothing is
    /// returned, and the result is the key's decision for cost 0.
    ///
    /// # Errors
    /// If the limits do not support it.
    pub(crate) fn refund(&self, key: Fingerprint, now: Time, cost: u64) -> Result<Decision, Unsupported> {
        let mut shard = self.lock(self.shard_of(key));
        shard.require(key, Verb::Refund)?;
        let peek = |limits: &[S::Limit], states: &mut [StateOf<S>]| peek_list(limits, states, now, 0);
        if cost == 0 {
            return Ok(self.read_in(&mut shard, key, now, peek));
        }
        let refunded = self.with_key_in(&mut shard, key, now, |limits, states, receipts| {
            receipts.refund(limits, states, now, cost)
        });
        refunded.unwrap_or_else(|_full| Ok(self.read_in(&mut shard, key, now, peek)))
    }

    /// Runs an operation on a key's limits, states and receipts. A key without a slot is passed as
    /// unseen, and is inserted if the operation changes it.
    ///
    /// # Errors
    /// If the key has to be inserted and there is no room. In that case nothing changes.
    pub(crate) fn with_key<R>(&self, key: Fingerprint, now: Time, act: impl KeyOp<S, R>) -> Result<R, Full> {
        self.with_key_in(&mut self.lock(self.shard_of(key)), key, now, act)
    }

    /// Like [`Store::with_key`], for an operation that may charge the key: there must be room for a
    /// log entry.
    fn charge_key_in<R>(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        act: impl KeyOp<S, R>,
    ) -> Result<R, Full> {
        if let Some(slot) = shard.find(key) {
            shard.bring_up_to_date(slot, key, now, &self.vacant);
            self.make_log_room(shard, slot, now, 1)?;
        }
        self.with_key_in(shard, key, now, act)
    }

    fn with_key_in<R>(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        act: impl KeyOp<S, R>,
    ) -> Result<R, Full> {
        let Some(slot) = shard.find(key) else { return self.with_new_key(shard, key, now, act) };
        shard.bring_up_to_date(slot, key, now, &self.vacant);
        let mut receipts = shard.take_receipts(key, now, &self.vacant);
        let (done, before) = shard.with_slot(slot, |limits, states| {
            let before: Vec<usize> =
                limits.iter().zip(&*states).map(|(limit, state)| limit.log_capacity(state)).collect();
            (act(limits, states, &mut receipts), before)
        });
        self.claim_settled(shard, slot, now, &before);
        shard.put_receipts(key, receipts);
        // A refund may have made the key recover sooner.
        shard.guarded.none_recovers_before = Time::EPOCH;
        Ok(done)
    }

    /// Runs an operation on a key without a slot.
    fn with_new_key<R>(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        act: impl KeyOp<S, R>,
    ) -> Result<R, Full> {
        shard.guarded.latest = now.max(shard.guarded.latest);
        shard.expire_receipts(None, key, now, &self.vacant);
        let mut receipts = shard.take_receipts(key, now, &self.vacant);
        // Nearly always there are no receipts, so there is nothing to clone.
        let before = (!receipts.is_empty()).then(|| receipts.clone());
        let mut state = S::State::default();
        let limits_by_tag = &shard.guarded.limits_by_tag;
        let limits = limits_by_tag.limits(limits_by_tag.tag_for(key));
        let done = act(limits, S::states_mut(&mut state, limits.len()), &mut receipts);
        let tag = limits_by_tag.tag_for(key);
        let vacancy = (!S::is_unseen(&state)).then(|| self.slot_with_entries(shard, key, tag, now, &state));
        if let Some(Err(full)) = vacancy {
            shard.put_receipts(key, before.unwrap_or_default());
            return Err(full);
        }
        if let Some(Ok(vacancy)) = vacancy {
            shard.insert(&vacancy, key, now, state, &self.vacant);
        }
        shard.put_receipts(key, receipts);
        Ok(done)
    }

    /// Deletes a key's state. Its receipts become void.
    pub(crate) fn remove(&self, key: Fingerprint) {
        let mut shard = self.lock(self.shard_of(key));
        if let Some(slot) = shard.find(key) {
            shard.clear(slot, &self.vacant);
            self.vacant.keys.fetch_add(1, Ordering::Relaxed);
        }
        shard.void_receipts(key, &self.vacant);
    }

    pub(crate) fn contains(&self, key: Fingerprint) -> bool {
        self.lock(self.shard_of(key)).find(key).is_some()
    }

    /// Prefetches what a decision on the key reads first. A batch touches all its keys before it
    /// decides the first, so that the cache misses overlap.
    #[inline]
    pub(crate) fn touch(&self, key: Fingerprint) {
        let shard = self.shard_of(key);
        std::hint::black_box((self.tables.of(shard).touch(key), self.shards[shard].0.touch()));
    }

    /// The number of keys in the store, including fully recovered ones that have not been dropped
    /// yet.
    pub(crate) fn keys(&self) -> usize {
        self.max_keys - self.vacant.keys.load(Ordering::Relaxed)
    }

    pub(crate) fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// The state of the pool of log entries.
    pub(crate) fn log_stats(&self) -> PoolStats {
        self.log_pool.stats(&self.vacant.log_entries)
    }

    /// The state of the pool of receipts.
    pub(crate) fn receipt_stats(&self) -> PoolStats {
        self.receipt_pool.stats(&self.vacant.receipts)
    }

    /// Sums the counts of all shards, locking one after another.
    pub(crate) fn counts(&self) -> StoreCounts {
        let mut sum = StoreCounts::default();
        for shard in &self.shards {
            let counts = shard.0.lock().counts;
            sum.allowed += counts.allowed;
            sum.denied += counts.denied;
            sum.evicted += counts.evicted;
            sum.no_room += counts.no_room;
        }
        sum
    }

    #[inline]
    fn shard_of(&self, key: Fingerprint) -> usize {
        // The number of shards times `key.high` / 2^64. That fraction is below 1, so the result is
        // below the number of shards.
        let scaled = (u128::from(key.high) * self.shards.len() as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

    fn lock(&self, shard: usize) -> Locked<'_, S> {
        Locked { table: self.tables.of(shard), guarded: self.shards[shard].0.lock() }
    }

    /// Locks a shard, unless another thread holds it.
    #[inline]
    fn try_lock(&self, shard: usize) -> Option<Locked<'_, S>> {
        Some(Locked { table: self.tables.of(shard), guarded: self.shards[shard].0.try_lock()? })
    }
}

/// The store of one limiter.
impl<S: SlotKind<Limits = LimitVersion<<S as SlotKind>::Limit>>> Store<S> {
    /// Changes the limits. A key keeps what it has used and its open receipts, and the new limits
    /// apply from its next call on.
    pub(crate) fn change(&self, limits: Box<[S::Limit]>, any_limits: Arc<[AnyLimit]>) {
        let mut current = self.current.lock();
        let limits_by_tag = Arc::new(current.changed(limits, any_limits));
        for shard in 0..self.shards.len() {
            let mut shard = self.lock(shard);
            if current.is_last() {
                shard.restart_versions(current.version(), &self.vacant);
            }
            let guarded = &mut shard.guarded;
            guarded.limits_by_tag = Arc::clone(&limits_by_tag);
            guarded.none_recovers_before = Time::EPOCH;
        }
        *current = limits_by_tag;
    }
}

/// An operation on a key.
pub(crate) trait KeyOp<S: SlotKind, R>:
    FnOnce(&[S::Limit], &mut [StateOf<S>], &mut Receipts) -> R
{
}

impl<S: SlotKind, R, F: FnOnce(&[S::Limit], &mut [StateOf<S>], &mut Receipts) -> R> KeyOp<S, R> for F {}

impl Full {
    /// Returns the denial of a call that found no room.
    fn denial<A: Algorithm>(self, limits: &[A]) -> Decision {
        let limit = limits.iter().map(Algorithm::limit).min().unwrap_or_default();
        let wait = match self.wait {
            // No key can make room: the other keys of the same request occupy all the slots in
            // question.
            Span::MAX => RetryAfter::Never,
            // A recovered key that cannot be dropped (a bucket that was refunded while it was still
            // filling) reports a wait of zero. The caller would retry immediately and be denied
            // again, so a second is reported instead.
            Span::ZERO => RetryAfter::After(Span::from_micros(1_000_000)),
            wait => RetryAfter::After(wait),
        };
        no_room(self.pool, limit, wait)
    }
}
