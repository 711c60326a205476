//! The store in memory: keys and what they have used, in a table that cannot grow beyond its bound.
//!
//! ```text
//! fingerprint ──▶ one of many shards, each behind a lock of its own ──▶ two of its 64 buckets ──▶ a slot
//! ```
//!
//! `table.rs` is one shard's table and says why we have our own; `evict.rs` chooses who makes room for a new key;
//! `shard.rs` is one shard, its lock held; `shape.rs` says what a slot holds; `rules.rs` lets limits change under a running store, `book.rs` and `mixed.rs` let many
//! limiters share one; `reserve.rs` and
//! `ledger.rs` keep open receipts; `check_all.rs` locks several shards at once for calls that are charged all or nothing; `queue_store.rs`
//! charges those who waited. This file finds the shard.
//!
//! # How it is synchronised
//!
//! - A shard is only looked at or changed under its lock, and a key has one shard. So whatever is done to one key, or
//!   to one key under several limits, is atomic.
//! - A change of limits visits one shard after another; `current` is held meanwhile, so that changes come one after
//!   another too. A key meets the new limits when its shard has been visited.
//! - Several shards are locked in the order of (store, shard), and `current` is never taken while a shard is locked.
//!   So there is no cycle, and no deadlock, in whatever order callers name their keys.
//!
//! # Where it lies in memory
//!
//! The locks, and what else every call needs, lie side by side, 128 bytes for 192 keys, so that those of a million keys can
//! stay in the caches. The tables, which cannot, are one piece: where to look follows from the fingerprint, with no
//! pointer to wait for.

mod any_slot;
mod check_all;
mod evict;
mod limit_table;
mod limit_versions;
mod queue_store;
mod receipt_table;
mod reserve;
mod shard;
mod slot_kind;
mod table;

pub(crate) use any_slot::AnySlot;
pub(crate) use check_all::{AnyStore, Call, check_all, check_all_each};
pub use evict::OnFull;
pub(crate) use limit_table::{LIMITS_MAX, LimitTable, Preserve, TaggedLimits};
pub(crate) use limit_versions::LimitVersion;
pub(crate) use queue_store::{HeadCharge, NotAdmitted, QueueStore};
pub(crate) use reserve::{NotReserved, RECEIPTS_PER_KEY_MAX};
pub(crate) use slot_kind::{CellSlot, ListSlot, LogSlot, SlotKind};

use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Lock, Ordering};
use limit_versions::LimitsByTag as _;
use receipt_table::ReceiptTable;
pub(crate) use shard::Counts;
use shard::{Guarded, Locked, Shard};
use slot_kind::{SlotState, StateOf};
use sluicegate_core::receipts::Receipts;
use sluicegate_core::several::{check_list, check_within_list, peek_list, take_list};
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Algorithm, AnyLimit, Decision, RetryAfter, Span, Time};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use table::{KEYS_PER_SHARD, Tables};

/// Keys of one limiter, or of several that share it.
pub(crate) struct Store<S: SlotKind> {
    /// Where this store stands in the order in which locks are taken.
    id: u64,
    /// A lock for each 192 keys.
    shards: Box<[Shard<S>]>,
    /// Their slots: a third more than `max_keys`, and 256 at the least.
    tables: Tables<S>,
    current: Lock<Arc<S::Limits>>,
    vacant: Vacant,
    max_keys: usize,
    on_full: OnFull,
    /// Where to look for forgotten receipts next.
    next_sweep: AtomicUsize,
}

/// Remaining capacity, shared by all shards.
struct Vacant {
    /// Keys that can still be inserted without eviction.
    keys: AtomicUsize,
    /// Receipts that can still be opened.
    receipts: AtomicUsize,
}

/// Takes one of what is left.
fn claim(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// There is not so much memory as the store would need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoMemory;

/// The store has no room for a new key: how long until it may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full(pub(crate) Span);

/// How a store is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) max_keys: usize,
    pub(crate) max_receipts: usize,
    pub(crate) on_full: OnFull,
}

impl<S: SlotKind> Store<S> {
    /// # Errors
    /// When there is not so much memory.
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
            },
            max_keys: size.max_keys,
            on_full: size.on_full,
            next_sweep: AtomicUsize::new(0),
        })
    }

    /// May a call of this cost happen now? Here is only what nearly every call needs: nobody else has the lock, the key is
    /// in a favourite slot and up to date, its shard has no receipts, and it is allowed. That calls nothing, so that all of it can
    /// stay in registers.
    #[inline(never)]
    pub(crate) fn check(&self, key: Fingerprint, cost: u32, now: Time) -> Decision {
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
    fn lock_and_check(&self, key: Fingerprint, cost: u32, now: Time) -> Decision {
        self.find_and_check(self.lock(self.shard_of(key)), key, cost, now)
    }

    #[inline(never)]
    fn find_and_check(&self, mut shard: Locked<'_, S>, key: Fingerprint, cost: u32, now: Time) -> Decision {
        match shard.find(key) {
            Some(slot) => self.check_slot(&mut shard, slot, key, cost, now),
            None => self.check_new(&mut shard, key, cost, now),
        }
    }

    /// The whole check of a key that is held: allowed, denied or free of cost.
    #[inline(never)]
    fn check_slot(
        &self,
        shard: &mut Locked<'_, S>,
        slot: usize,
        key: Fingerprint,
        cost: u32,
        now: Time,
    ) -> Decision {
        if cost == 0 {
            // It changes nothing, not even the numbers that a state is written in.
            let decision = Self::read_in(shard, key, now, |limits, states| peek_list(limits, states, now, 0));
            shard.guarded.counts.decided(&decision);
            return decision;
        }
        shard.bring_up_to_date(slot, key, now, &self.vacant);
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
    fn check_new(&self, shard: &mut Locked<'_, S>, key: Fingerprint, cost: u32, now: Time) -> Decision {
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

    /// Takes as much of `up_to` as remains, and says how much.
    ///
    /// # Errors
    /// When the limits do not offer this.
    pub(crate) fn take(
        &self,
        key: Fingerprint,
        now: Time,
        up_to: u32,
    ) -> Result<(Decision, u32), Unsupported> {
        let mut shard = self.lock(self.shard_of(key));
        let taken = self.with_key_in(&mut shard, key, now, |limits, states, receipts| {
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

    /// Charges a key now, to act within the longest wait.
    ///
    /// # Errors
    /// When the limits do not offer this.
    pub(crate) fn check_within(
        &self,
        key: Fingerprint,
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<Decision, Unsupported> {
        let mut shard = self.lock(self.shard_of(key));
        let decided = self.with_key_in(&mut shard, key, now, |limits, states, receipts| {
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

    /// Looks at a key without changing it, so that a new one needs no room.
    pub(crate) fn read<R>(
        &self,
        key: Fingerprint,
        now: Time,
        read: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        Self::read_in(&mut self.lock(self.shard_of(key)), key, now, read)
    }

    fn read_in<R>(
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        read: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        let limits_by_tag = Arc::clone(&shard.guarded.limits_by_tag);
        let tag = limits_by_tag.tag_for(key);
        if let Some(slot) = shard.find(key)
            && shard.table.slot(slot).tag() == tag
        {
            return shard.with_slot(slot, read);
        }
        let limits = limits_by_tag.limits(tag);
        read(limits, S::states_mut(&mut shard.copy(key, now), limits.len()))
    }

    /// Gives cost back: see [`Receipts::refund`]. A new key may need room (a bucket that is still filling is given
    /// something); without it nothing is given, and the answer is how the key stands.
    ///
    /// # Errors
    /// When the limits do not offer this.
    pub(crate) fn refund(&self, key: Fingerprint, now: Time, cost: u32) -> Result<Decision, Unsupported> {
        let refunded =
            self.with_key(key, now, |limits, states, receipts| receipts.refund(limits, states, now, cost));
        refunded.unwrap_or_else(|_full| {
            Ok(self.read(key, now, |limits, states| peek_list(limits, states, now, 0)))
        })
    }

    /// Does something with a key: the limits, its states and its receipts are handed in. A key that is not held is
    /// handed in as one that has never called, and is held afterwards if that changed.
    ///
    /// # Errors
    /// When the key is not held, has to be, and there is no room for another; then nothing was done.
    pub(crate) fn with_key<R>(&self, key: Fingerprint, now: Time, act: impl KeyOp<S, R>) -> Result<R, Full> {
        self.with_key_in(&mut self.lock(self.shard_of(key)), key, now, act)
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
        let mut receipts = ReceiptTable::take(&mut shard.guarded.receipt_table, key, &self.vacant.receipts);
        let done = shard.with_slot(slot, |limits, states| act(limits, states, &mut receipts));
        ReceiptTable::put(&mut shard.guarded.receipt_table, key, receipts);
        // What was given back may have made it recover sooner.
        shard.guarded.none_recovers_before = Time::EPOCH;
        Ok(done)
    }

    /// The same for a key that is not held.
    fn with_new_key<R>(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        act: impl KeyOp<S, R>,
    ) -> Result<R, Full> {
        shard.guarded.latest = now.max(shard.guarded.latest);
        let mut receipts = ReceiptTable::take(&mut shard.guarded.receipt_table, key, &self.vacant.receipts);
        // Nearly always there are none: then there is nothing to copy.
        let before = (!receipts.is_empty()).then(|| receipts.clone());
        let mut state = S::State::default();
        let limits_by_tag = &shard.guarded.limits_by_tag;
        let limits = limits_by_tag.limits(limits_by_tag.tag_for(key));
        let done = act(limits, S::states_mut(&mut state, limits.len()), &mut receipts);
        let vacancy = if S::is_unseen(&state) { None } else { Some(shard.find_slot(key, now, self, &[])) };
        if let Some(Err(full)) = vacancy {
            ReceiptTable::put(&mut shard.guarded.receipt_table, key, before.unwrap_or_default());
            return Err(full);
        }
        if let Some(Ok(vacancy)) = vacancy {
            shard.insert(&vacancy, key, now, state, &self.vacant);
        }
        ReceiptTable::put(&mut shard.guarded.receipt_table, key, receipts);
        Ok(done)
    }

    /// Forgets a key. Its receipts are void.
    pub(crate) fn remove(&self, key: Fingerprint) {
        let mut shard = self.lock(self.shard_of(key));
        if let Some(slot) = shard.find(key) {
            shard.clear(slot);
            self.vacant.keys.fetch_add(1, Ordering::Relaxed);
        }
        ReceiptTable::void(&mut shard.guarded.receipt_table, key, &self.vacant.receipts);
    }

    pub(crate) fn contains(&self, key: Fingerprint) -> bool {
        self.lock(self.shard_of(key)).find(key).is_some()
    }

    /// Reads what deciding on a key will read first. Of several keys all are touched before the first is decided on, so
    /// that their waits for memory overlap.
    #[inline]
    pub(crate) fn touch(&self, key: Fingerprint) {
        let shard = self.shard_of(key);
        std::hint::black_box((self.tables.of(shard).touch(key), self.shards[shard].0.touch()));
    }

    /// How many keys are held, those that have recovered and not yet made room included.
    pub(crate) fn keys(&self) -> usize {
        self.max_keys - self.vacant.keys.load(Ordering::Relaxed)
    }

    pub(crate) fn max_keys(&self) -> usize {
        self.max_keys
    }

    /// Adds up what all shards have counted. Each is locked for a moment, one after another.
    pub(crate) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
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
        // Below the number of shards: the high half of a product with a number below 2^64.
        let scaled = (u128::from(key.high) * self.shards.len() as u128) >> 64;
        usize::try_from(scaled).unwrap_or(0)
    }

    fn lock(&self, shard: usize) -> Locked<'_, S> {
        Locked { table: self.tables.of(shard), guarded: self.shards[shard].0.lock() }
    }

    /// Locks, if that needs no waiting.
    #[inline]
    fn try_lock(&self, shard: usize) -> Option<Locked<'_, S>> {
        Some(Locked { table: self.tables.of(shard), guarded: self.shards[shard].0.try_lock()? })
    }
}

/// A store of one limiter.
impl<S: SlotKind<Limits = LimitVersion<<S as SlotKind>::Limit>>> Store<S> {
    /// Changes the limits: every key keeps what it has used, and meets them with its next call.
    pub(crate) fn change(&self, limits: Box<[S::Limit]>, any_limits: Arc<[AnyLimit]>) {
        let mut current = self.current.lock();
        let limits_by_tag = Arc::new(current.changed(limits, any_limits));
        for shard in 0..self.shards.len() {
            let mut shard = self.lock(shard);
            if current.is_last() {
                shard.restart_versions(current.version());
            }
            let guarded = &mut shard.guarded;
            guarded.limits_by_tag = Arc::clone(&limits_by_tag);
            guarded.none_recovers_before = Time::EPOCH;
            // What receipts hold is written in the old numbers.
            ReceiptTable::void_all(&mut guarded.receipt_table, &self.vacant.receipts);
        }
        *current = limits_by_tag;
    }
}

/// What can be done with a key.
pub(crate) trait KeyOp<S: SlotKind, R>:
    FnOnce(&[S::Limit], &mut [StateOf<S>], &mut Receipts) -> R
{
}

impl<S: SlotKind, R, F: FnOnce(&[S::Limit], &mut [StateOf<S>], &mut Receipts) -> R> KeyOp<S, R> for F {}

impl Full {
    /// The answer to a call that found no room.
    fn denial<A: Algorithm>(self, limits: &[A]) -> Decision {
        let limit = limits.iter().map(Algorithm::limit).min().unwrap_or_default();
        let wait = match self.0 {
            // Nobody can make room: all of it is taken by the call's own other keys.
            Span::MAX => RetryAfter::Never,
            // Who is as good as new and yet not forgotten (a bucket that was still filling when it was given something
            // back) has no wait to tell, and none at all would have the caller come back at once and fail.
            Span::ZERO => RetryAfter::After(Span::from_micros(1_000_000)),
            wait => RetryAfter::After(wait),
        };
        Decision::no_room(limit, wait)
    }
}
