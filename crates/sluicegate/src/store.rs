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

mod book;
mod check_all;
mod evict;
mod ledger;
mod mixed;
mod queue_store;
mod reserve;
mod rules;
mod shape;
mod shard;
mod table;

pub(crate) use book::{Book, Entry, LIMITS_MAX, Rereads};
pub(crate) use check_all::{AnyStore, Call, check_all, check_all_each};
pub use evict::OnFull;
pub(crate) use mixed::Mixed;
pub(crate) use queue_store::{Called, NotTaken, QueueStore};
pub(crate) use reserve::{NotReserved, RECEIPTS_A_KEY_MAX};
pub(crate) use rules::Rules;
pub(crate) use shape::{Lists, Logs, One, Shape};

use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Lock, Ordering};
use ledger::Ledger;
use rules::Rulings as _;
use shape::{Kept, StateOf};
pub(crate) use shard::Counts;
use shard::{GuardService, Locked, Shard};
use sluicegate_core::all_of::{check_list, check_within_list, peek_list, take_list};
use sluicegate_core::decision::store::no_room;
use sluicegate_core::receipts::Receipts;
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Algorithm, AnyLimit, Decision, RetryAfter, Span, Time};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use table::{KEYS_A_SHARD, Tables};

/// Keys of one limiter, or of several that share it.
pub(crate) struct Store<S: Shape> {
    /// Where this store stands in the order in which locks are taken.
    id: u64,
    /// A lock for each 192 keys.
    shards: Box<[Shard<S>]>,
    /// Their slots: a third more than `max_keys`, and 256 at the least.
    tables: Tables<S>,
    current: Lock<Arc<S::Rules>>,
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

impl<S: Shape> Store<S> {
    /// # Errors
    /// When there is not so much memory.
    pub(crate) fn new(rules: S::Rules, size: Size) -> Result<Store<S>, NoMemory> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let rules = Arc::new(rules);
        let shards = size.max_keys.div_ceil(KEYS_A_SHARD);
        Ok(Store {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            tables: Tables::new(shards)?,
            shards: Shard::several(shards, &rules)?,
            current: Lock::new(rules),
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
        let Some(slot) = shard.table.find_at_once(key) else {
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
            let decision = Self::look_in(shard, key, now, |limits, states| peek_list(limits, states, now, 0));
            shard.guarded.counts.decided(&decision);
            return decision;
        }
        shard.bring_up_to_date(slot, key, now, &self.vacant);
        let GuardService { rules, ledger, counts, aside, .. } = &mut *shard.guarded;
        let found = shard.table.slot(slot);
        let kept = Kept { words: found.state, aside, slot };
        let decision = S::check_in_full(kept, rules.limits(found.tag()), now, cost);
        counts.decided(&decision);
        if let Some(ledger) = ledger
            && decision.allowed()
        {
            ledger.charged(key, now);
        }
        decision
    }

    #[cold]
    fn check_new(&self, shard: &mut Locked<'_, S>, key: Fingerprint, cost: u32, now: Time) -> Decision {
        let checked = self.on_new(shard, key, now, |limits, states, receipts| {
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
        let taken = self.on_key_in(&mut shard, key, now, |limits, states, receipts| {
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
        let decided = self.on_key_in(&mut shard, key, now, |limits, states, receipts| {
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
    pub(crate) fn look<R>(
        &self,
        key: Fingerprint,
        now: Time,
        look: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        Self::look_in(&mut self.lock(self.shard_of(key)), key, now, look)
    }

    fn look_in<R>(
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        look: impl FnOnce(&[S::Limit], &mut [StateOf<S>]) -> R,
    ) -> R {
        let rules = Arc::clone(&shard.guarded.rules);
        let tag = rules.tag_for(key);
        if let Some(slot) = shard.find(key)
            && shard.table.slot(slot).tag() == tag
        {
            return shard.on_slot(slot, look);
        }
        let limits = rules.limits(tag);
        look(limits, S::states(&mut shard.copy(key, now), limits.len()))
    }

    /// Gives cost back: see [`Receipts::refund`]. A new key may need room (a bucket that is still filling is given
    /// something); without it nothing is given, and the answer is how the key stands.
    ///
    /// # Errors
    /// When the limits do not offer this.
    pub(crate) fn refund(&self, key: Fingerprint, now: Time, cost: u32) -> Result<Decision, Unsupported> {
        let refunded =
            self.on_key(key, now, |limits, states, receipts| receipts.refund(limits, states, now, cost));
        refunded.unwrap_or_else(|_full| {
            Ok(self.look(key, now, |limits, states| peek_list(limits, states, now, 0)))
        })
    }

    /// Does something with a key: the limits, its states and its receipts are handed in. A key that is not held is
    /// handed in as one that has never called, and is held afterwards if that changed.
    ///
    /// # Errors
    /// When the key is not held, has to be, and there is no room for another; then nothing was done.
    pub(crate) fn on_key<R>(&self, key: Fingerprint, now: Time, act: impl Act<S, R>) -> Result<R, Full> {
        self.on_key_in(&mut self.lock(self.shard_of(key)), key, now, act)
    }

    fn on_key_in<R>(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        act: impl Act<S, R>,
    ) -> Result<R, Full> {
        let Some(slot) = shard.find(key) else { return self.on_new(shard, key, now, act) };
        shard.bring_up_to_date(slot, key, now, &self.vacant);
        let mut receipts = Ledger::take(&mut shard.guarded.ledger, key, &self.vacant.receipts);
        let done = shard.on_slot(slot, |limits, states| act(limits, states, &mut receipts));
        Ledger::put(&mut shard.guarded.ledger, key, receipts);
        // What was given back may have made it recover sooner.
        shard.guarded.none_recovers_before = Time::EPOCH;
        Ok(done)
    }

    /// The same for a key that is not held.
    fn on_new<R>(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        now: Time,
        act: impl Act<S, R>,
    ) -> Result<R, Full> {
        shard.guarded.latest = now.max(shard.guarded.latest);
        let mut receipts = Ledger::take(&mut shard.guarded.ledger, key, &self.vacant.receipts);
        // Nearly always there are none: then there is nothing to copy.
        let before = (!receipts.is_empty()).then(|| receipts.clone());
        let mut state = S::State::default();
        let rules = &shard.guarded.rules;
        let limits = rules.limits(rules.tag_for(key));
        let done = act(limits, S::states(&mut state, limits.len()), &mut receipts);
        let room = if S::is_unseen(&state) { None } else { Some(shard.find_room(key, now, self, &[])) };
        if let Some(Err(full)) = room {
            Ledger::put(&mut shard.guarded.ledger, key, before.unwrap_or_default());
            return Err(full);
        }
        if let Some(Ok(room)) = room {
            shard.settle_in(&room, key, now, state, &self.vacant);
        }
        Ledger::put(&mut shard.guarded.ledger, key, receipts);
        Ok(done)
    }

    /// Forgets a key. Its receipts are void.
    pub(crate) fn forget(&self, key: Fingerprint) {
        let mut shard = self.lock(self.shard_of(key));
        if let Some(slot) = shard.find(key) {
            shard.clear(slot);
            self.vacant.keys.fetch_add(1, Ordering::Relaxed);
        }
        Ledger::void(&mut shard.guarded.ledger, key, &self.vacant.receipts);
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
impl<S: Shape<Rules = Rules<<S as Shape>::Limit>>> Store<S> {
    /// Changes the limits: every key keeps what it has used, and meets them with its next call.
    pub(crate) fn change(&self, limits: Box<[S::Limit]>, any: Arc<[AnyLimit]>) {
        let mut current = self.current.lock();
        let rules = Arc::new(current.changed(limits, any));
        for shard in 0..self.shards.len() {
            let mut shard = self.lock(shard);
            if current.is_last() {
                shard.start_versions_again(current.version());
            }
            let guarded = &mut shard.guarded;
            guarded.rules = Arc::clone(&rules);
            guarded.none_recovers_before = Time::EPOCH;
            // What receipts hold is written in the old numbers.
            Ledger::void_all(&mut guarded.ledger, &self.vacant.receipts);
        }
        *current = rules;
    }
}

/// What can be done with a key.
pub(crate) trait Act<S: Shape, R>: FnOnce(&[S::Limit], &mut [StateOf<S>], &mut Receipts) -> R {}

impl<S: Shape, R, F: FnOnce(&[S::Limit], &mut [StateOf<S>], &mut Receipts) -> R> Act<S, R> for F {}

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
        no_room(limit, wait)
    }
}
