//! Calls on several keys, perhaps of several limiters, that are charged all or nothing.
//!
//! All shards of the keys are locked in the global lock order: by store, then by shard. Then the
//! states are loaded, the core decides the calls together, and the states are written back.

use super::evict::OnFull;
use super::limit_versions::LimitsByTag as _;
use super::receipt_table::ReceiptTable;
use super::slot_kind::SlotKind;
use super::{Full, Locked, Store};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::algorithm::{Algorithm as _, Verb};
use sluicegate_core::all_of::{self, Part, attributed, peek_all};
use sluicegate_core::decision::store::StoreDecision as _;
use sluicegate_core::{AnyLimit, AnyState, Decision, FullPool, Span, Time};
use std::sync::Arc;
use std::{mem, slice};

/// One of the calls.
#[derive(Clone, Copy)]
pub(crate) struct StoreCall<'a> {
    pub(crate) store: &'a dyn AnyStore,
    pub(crate) key: Fingerprint,
    pub(crate) cost: u64,
    /// The index of the call; of calls on one key, that of the first.
    pub(crate) index: usize,
}

/// A store with slots of any kind.
pub(crate) trait AnyStore: Send + Sync {
    /// The shard of a key.
    fn shard_id(&self, key: Fingerprint) -> ShardId;

    fn lock_any(&self, shard: usize) -> Box<dyn AnyLockedShard + '_>;
}

/// A store and a shard, in lock order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ShardId {
    store: u64,
    shard: usize,
}

/// A locked shard of any store.
pub(crate) trait AnyLockedShard {
    /// Loads the limits and states of a key, and its slot if it has one.
    fn load(&mut self, key: Fingerprint, now: Time) -> LoadedKey;

    /// Inserts a key that has no slot.
    fn insert_new(&mut self, key: Fingerprint, now: Time, pinned: &[usize]) -> Result<usize, Full>;

    /// Returns `true` if the store denies new keys when it is full.
    fn may_deny_new(&self) -> bool;

    /// The capacity of the store.
    fn max_keys(&self) -> usize;

    /// Frees the slot of a key that was inserted.
    fn free_slot(&mut self, slot: usize);

    /// Claims memory for log entries of a key.
    fn claim_log_entries(
        &mut self,
        key: Fingerprint,
        entries: usize,
        now: Time,
        pinned: &[usize],
    ) -> Result<(), Full>;

    /// Writes states back to a slot. Their log entries are claimed.
    fn write_back(&mut self, slot: usize, states: Vec<AnyState>);

    /// Counts the decision, and records the charge for open receipts.
    fn decided(&mut self, call: &StoreCall<'_>, now: Time, decision: &Decision);

    fn denial(&mut self, full: Full, key: Fingerprint) -> Decision;
}

/// A key that has been loaded.
pub(crate) struct LoadedKey {
    limits: Arc<[AnyLimit]>,
    states: Vec<AnyState>,
    slot: Option<usize>,
}

impl LoadedKey {
    /// Returns `true` if one of the limits cannot be decided together with others. (Those are the
    /// kinds that do not support `take`.)
    fn cannot_combine(&self) -> bool {
        !self.limits.iter().all(|limit| limit.supports(Verb::Take))
    }
}

/// Charges all calls or none. Calls on the same key are one call with the sum of their costs.
/// `queue_denial` is the decision if other callers are queued ahead of one of the calls.
///
/// # Errors
/// If the limit of a call cannot be combined with others: that call. Then no call was decided.
pub(crate) fn check_all<'a>(
    calls: &[StoreCall<'a>],
    now: Time,
    queue_denial: Option<Decision>,
) -> Result<Decision, StoreCall<'a>> {
    decide_all(&merged(calls), now, queue_denial, |_, _| ())
}

/// Charges all calls or none, and returns a decision per call: after the charge if all were
/// allowed, otherwise the decision that the call would get alone.
///
/// # Errors
/// See [`check_all`].
pub(crate) fn check_all_each<'a>(
    calls: &[StoreCall<'a>],
    now: Time,
    queue_denial: Option<Decision>,
) -> Result<(Decision, Vec<Decision>), StoreCall<'a>> {
    let merged = merged(calls);
    let mut each = Vec::with_capacity(merged.len());
    let decision = decide_all(&merged, now, queue_denial, |decision, mut parts| {
        if decision.allowed() {
            // The cost is charged: report the key's state after it.
            for part in &mut parts {
                part.cost = 0;
            }
        }
        each.push(peek_all(&parts, now));
    })?;
    let index = |call: &StoreCall<'_>| merged.iter().position(|other| other.is_same_key(call));
    let each = calls.iter().filter_map(|call| Some(each[index(call)?].of_call(call.index)));
    Ok((decision, each.collect()))
}

fn decide_all<'a>(
    calls: &[StoreCall<'a>],
    now: Time,
    queue_denial: Option<Decision>,
    mut report: impl FnMut(&Decision, Vec<Part<'_, AnyLimit>>),
) -> Result<Decision, StoreCall<'a>> {
    let mut order: Vec<(ShardId, &dyn AnyStore)> =
        calls.iter().map(|call| (call.shard_id(), call.store)).collect();
    order.sort_by_key(|(shard_id, _)| *shard_id);
    order.dedup_by_key(|(shard_id, _)| *shard_id);
    let mut shards: Vec<Box<dyn AnyLockedShard + '_>> =
        order.iter().map(|(shard_id, store)| store.lock_any(shard_id.shard)).collect();
    // The index of a call's shard among the locked ones, which include it.
    let shard_of = |call: &StoreCall<'_>| {
        let shard_id = call.shard_id();
        order.partition_point(|(other, _)| *other < shard_id)
    };

    let mut loaded: Vec<LoadedKey> =
        calls.iter().map(|call| shards[shard_of(call)].load(call.key, now)).collect();
    let cannot_combine = loaded.iter().position(LoadedKey::cannot_combine);
    let peeked = peek_all(&parts(calls, &mut loaded), now);
    let limits_of = calls.iter().zip(&loaded).map(|(call, loaded)| (call.index, loaded.limits.len()));
    let peeked = attributed(peeked, limits_of);
    let decided = match cannot_combine {
        Some(index) => Err(calls[index]),
        None if queue_denial.is_some() => Ok(queue_denial.unwrap_or(peeked)),
        None if peeked.allowed() => {
            let room = make_room(calls, &mut loaded, &mut shards, &shard_of, now);
            Ok(room.map_or_else(|denial| denial, |()| all_of::check_all(&mut parts(calls, &mut loaded), now)))
        }
        None => Ok(peeked),
    };
    for (call, mut loaded) in calls.iter().zip(loaded) {
        let shard = &mut shards[shard_of(call)];
        if let Ok(decision) = &decided {
            report(decision, parts(slice::from_ref(call), slice::from_mut(&mut loaded)));
        }
        if let Some(slot) = loaded.slot {
            shard.write_back(slot, loaded.states);
        }
        if let Ok(decision) = &decided {
            shard.decided(call, now, decision);
        }
    }
    decided
}

/// Inserts every key that has no slot and will be charged: all of them or none.
fn make_room(
    calls: &[StoreCall<'_>],
    loaded: &mut [LoadedKey],
    shards: &mut [Box<dyn AnyLockedShard + '_>],
    shard_of: &impl Fn(&StoreCall<'_>) -> usize,
    now: Time,
) -> Result<(), Decision> {
    // If the calls need more keys than the store holds, no eviction makes them fit, so nothing is
    // evicted.
    for call in calls {
        let shard = shard_of(call);
        let (store, needed) = (call.shard_id().store, calls.iter().filter(|other| other.cost > 0));
        if needed.filter(|other| other.shard_id().store == store).count() > shards[shard].max_keys() {
            let full = Full { pool: FullPool::Keys, wait: Span::MAX };
            return Err(shards[shard].denial(full, call.key).of_call(call.index));
        }
    }
    let mut made: Vec<usize> = Vec::new();
    let mut new: Vec<usize> = (0..calls.len()).collect();
    new.retain(|index| calls[*index].cost > 0 && loaded[*index].slot.is_none());
    // Stores that may deny go first, so that no key is evicted for a call that is denied in the
    // end.
    new.sort_by_key(|index| !shards[shard_of(&calls[*index])].may_deny_new());
    for index in new {
        let shard = shard_of(&calls[index]);
        let in_use = calls.iter().zip(&*loaded).filter(|(call, _)| shard_of(call) == shard);
        let pinned: Vec<usize> = in_use.filter_map(|(_, loaded)| loaded.slot).collect();
        match shards[shard].insert_new(calls[index].key, now, &pinned) {
            Ok(slot) => {
                loaded[index].slot = Some(slot);
                made.push(index);
            }
            Err(full) => {
                for index in made {
                    if let Some(slot) = loaded[index].slot.take() {
                        shards[shard_of(&calls[index])].free_slot(slot);
                    }
                }
                return Err(shards[shard].denial(full, calls[index].key).of_call(calls[index].index));
            }
        }
    }
    for (index, call) in calls.iter().enumerate().filter(|(_, call)| call.cost > 0) {
        let shard = shard_of(call);
        let in_use = calls.iter().zip(&*loaded).filter(|(call, _)| shard_of(call) == shard);
        let pinned: Vec<usize> = in_use.filter_map(|(_, loaded)| loaded.slot).collect();
        let LoadedKey { limits, states, .. } = &mut loaded[index];
        for (limit, state) in limits.iter().zip(states) {
            let growth = limit.growth(state, now, call.cost);
            // The entries that were claimed for earlier calls stay with their keys.
            if let Err(full) = shards[shard].claim_log_entries(call.key, growth, now, &pinned) {
                return Err(shards[shard].denial(full, call.key).of_call(call.index));
            }
            let before = state.log_capacity();
            limit.grow(state, growth);
            debug_assert_eq!(state.log_capacity(), before + growth, "exactly what was claimed");
        }
    }
    Ok(())
}

fn parts<'a>(calls: &[StoreCall<'_>], loaded: &'a mut [LoadedKey]) -> Vec<Part<'a, AnyLimit>> {
    let parts = |(call, loaded): (&StoreCall<'_>, &'a mut LoadedKey)| {
        let cost = call.cost;
        loaded.limits.iter().zip(&mut loaded.states).map(move |(limit, state)| Part { limit, state, cost })
    };
    calls.iter().zip(loaded).flat_map(parts).collect()
}

fn merged<'a>(calls: &[StoreCall<'a>]) -> Vec<StoreCall<'a>> {
    let mut merged: Vec<StoreCall<'a>> = Vec::with_capacity(calls.len());
    for call in calls {
        match merged.iter_mut().find(|other| other.is_same_key(call)) {
            Some(other) => other.cost = other.cost.saturating_add(call.cost),
            None => merged.push(*call),
        }
    }
    merged
}

impl StoreCall<'_> {
    fn shard_id(&self) -> ShardId {
        self.store.shard_id(self.key)
    }

    pub(crate) fn is_same_key(&self, other: &StoreCall<'_>) -> bool {
        self.key.is(other.key) && self.shard_id() == other.shard_id()
    }
}

impl<S: SlotKind> AnyStore for Store<S> {
    fn shard_id(&self, key: Fingerprint) -> ShardId {
        ShardId { store: self.id, shard: self.shard_of(key) }
    }

    fn lock_any(&self, shard: usize) -> Box<dyn AnyLockedShard + '_> {
        Box::new(LockedIn { store: self, shard: self.lock(shard) })
    }
}

impl<S: SlotKind> Store<S> {
    /// This store as one with slots of any kind.
    pub(crate) fn as_any(&self) -> &dyn AnyStore {
        self
    }
}

struct LockedIn<'a, S: SlotKind> {
    store: &'a Store<S>,
    shard: Locked<'a, S>,
}

impl<S: SlotKind> AnyLockedShard for LockedIn<'_, S> {
    fn load(&mut self, key: Fingerprint, now: Time) -> LoadedKey {
        let shard = &mut self.shard;
        let slot = shard.find(key);
        let state = if let Some(slot) = slot {
            shard.bring_up_to_date(slot, key, now, &self.store.vacant);
            S::update(shard.state_of(slot), mem::take)
        } else {
            let receipts = shard.take_receipts(key, now, &self.store.vacant);
            shard.put_receipts(key, receipts);
            S::State::default()
        };
        let limits_by_tag = &shard.guarded.limits_by_tag;
        let limits = limits_by_tag.any_limits(limits_by_tag.tag_for(key));
        LoadedKey { states: S::into_states(state, limits.len()), limits, slot }
    }

    fn insert_new(&mut self, key: Fingerprint, now: Time, pinned: &[usize]) -> Result<usize, Full> {
        let vacancy = self.shard.find_slot(key, now, self.store, pinned)?;
        self.shard.insert(&vacancy, key, now, S::State::default(), &self.store.vacant);
        Ok(vacancy.slot)
    }

    fn may_deny_new(&self) -> bool {
        self.store.on_full == OnFull::Deny
    }

    fn max_keys(&self) -> usize {
        self.store.max_keys
    }

    fn free_slot(&mut self, slot: usize) {
        self.shard.clear(slot, &self.store.vacant);
        self.store.vacant.keys.fetch_add(1, Ordering::Relaxed);
    }

    fn claim_log_entries(
        &mut self,
        key: Fingerprint,
        entries: usize,
        now: Time,
        pinned: &[usize],
    ) -> Result<(), Full> {
        let tag = self.shard.guarded.limits_by_tag.tag_for(key);
        self.store.claim_log_entries(&mut self.shard, tag, entries, now, pinned)
    }

    fn write_back(&mut self, slot: usize, states: Vec<AnyState>) {
        S::update(self.shard.state_of(slot), |state| *state = S::from_states(states));
    }

    fn decided(&mut self, call: &StoreCall<'_>, now: Time, decision: &Decision) {
        let shard = &mut self.shard.guarded;
        shard.counts.decided(decision);
        if decision.allowed()
            && call.cost > 0
            && let Some(receipt_table) = &mut shard.receipt_table
        {
            ReceiptTable::charged(receipt_table, call.key, now);
        }
    }

    fn denial(&mut self, full: Full, key: Fingerprint) -> Decision {
        self.shard.denial(full, key)
    }
}
