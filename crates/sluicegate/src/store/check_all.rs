//! Calls on several keys, perhaps of several limiters, that are charged all or nothing: checked,
//! reserved, or added to a reservation.
//!
//! All shards of the keys are locked in the global lock order: by store, then by shard. Then the
//! states are loaded, the core decides the calls together, and the states are written back.

use super::evict::OnFull;
use super::limit_versions::LimitsByTag as _;
use super::receipt_table::ReceiptTable;
use super::reserve::NotReserved;
use super::slot_kind::SlotKind;
use super::{Full, Locked, Store};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::algorithm::{Algorithm as _, Verb};
use sluicegate_core::all_of::{self, Part, attributed_to_part, peek_all, peek_within_all};
use sluicegate_core::decision::store::StoreDecision as _;
use sluicegate_core::receipts::{Receipt, Ttl};
use sluicegate_core::rollback::Charge;
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

/// What is done with the calls.
#[derive(Clone, Copy)]
pub(crate) enum AllVerb {
    /// They are charged and act now.
    Check,
    /// They are charged now, and act after a delay of at most `max_wait`. Their receipt is open.
    Reserve { receipt: Receipt, max_wait: Span, ttl: Option<Ttl> },
    /// They are charged to an open receipt, where it still has its parts, and act now. `limiter` is
    /// the tag of the limiter that extends it, if one does.
    Extend { receipt: Receipt, ttl: Option<Span>, limiter: Option<u16> },
}

/// Why calls were not decided. Nothing has changed then.
#[derive(Clone, Copy)]
pub(crate) enum NotDecided {
    /// The limit of the call with this index cannot be decided together with others.
    CannotCombine(usize),
    /// The calls are reserved, or added to a reservation.
    NotReserved(NotReserved),
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
    /// Loads the limits and states of a key, and its slot if it has one. If `changes` is `false`,
    /// it loads a copy without a slot.
    fn load(&mut self, key: Fingerprint, now: Time, changes: bool) -> LoadedKey;

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

    /// Returns `true` if the limits of a key cannot be decided together with others.
    fn cannot_combine(&self, key: Fingerprint) -> bool;

    /// The key of a receipt, with the tag of the limits under which it is extended; `None` if the
    /// receipt is unknown.
    fn key_to_close(&self, key: Fingerprint, limiter: Option<u16>, receipt: Receipt) -> Option<Fingerprint>;

    /// Brings a key's state and receipts up to date.
    fn advance(&mut self, key: Fingerprint, now: Time);

    /// Closes the receipts of a key that have expired.
    fn expire_receipts(&mut self, key: Fingerprint, now: Time);

    /// Whether each limit of a key has its part of a receipt.
    fn charged_under(&self, key: Fingerprint, receipt: Receipt) -> Option<Vec<bool>>;

    /// Claims room for one receipt of a key.
    fn claim_receipt(&mut self, key: Fingerprint, now: Time) -> Result<(), NotReserved>;

    /// Returns room that was claimed.
    fn release_receipt(&mut self, key: Fingerprint);

    /// Opens or extends a receipt, for which the charges were just made.
    fn charged(&mut self, key: Fingerprint, now: Time, verb: AllVerb, charges: &[Charge]);

    /// Writes states back to a slot. Their log entries are claimed.
    fn write_back(&mut self, slot: usize, states: Vec<AnyState>);

    /// Counts the decision, and records the charge of a check for open receipts.
    fn decided(&mut self, call: &StoreCall<'_>, now: Time, verb: AllVerb, decision: &Decision);

    fn denial(&mut self, full: Full, key: Fingerprint) -> Decision;
}

/// A key that has been loaded.
pub(crate) struct LoadedKey {
    limits: Arc<[AnyLimit]>,
    states: Vec<AnyState>,
    slot: Option<usize>,
    /// Whether each limit decides; `None` if all do.
    decides: Option<Vec<bool>>,
}

impl LoadedKey {
    /// The positions of the limits that decide.
    fn deciding(&self) -> impl Iterator<Item = usize> {
        (0..self.limits.len()).filter(|position| self.decides(*position))
    }

    fn decides(&self, position: usize) -> bool {
        self.decides.as_ref().is_none_or(|decides| decides.get(position) == Some(&true))
    }
}

/// Charges all calls or none. Calls on the same key are one call with the sum of their costs.
/// `queue_denial` is the decision if other callers are queued ahead of one of the calls.
///
/// # Errors
/// If the limit of a call cannot be combined with others, or no receipt can be opened or extended.
pub(crate) fn decide_all(
    calls: &[StoreCall<'_>],
    now: Time,
    queue_denial: Option<Decision>,
    verb: AllVerb,
) -> Result<Decision, NotDecided> {
    decide_merged(merged(calls), now, queue_denial, verb, |_, _, _| ())
}

/// Charges all calls or none, and returns a decision per call: after the charge if all were
/// allowed, otherwise the decision that the call would get alone.
///
/// # Errors
/// As [`decide_all`].
pub(crate) fn decide_all_each(
    calls: &[StoreCall<'_>],
    now: Time,
    queue_denial: Option<Decision>,
    verb: AllVerb,
) -> Result<(Decision, Vec<Decision>), NotDecided> {
    let merged = merged(calls);
    let mut each = vec![None; merged.len()];
    let decision = decide_merged(merged.clone(), now, queue_denial, verb, |index, decision, mut parts| {
        if decision.allowed() {
            // The cost is charged: report the key's state after it.
            for part in &mut parts {
                part.cost = 0;
            }
        }
        each[index] = Some(verb.peek(&parts, now));
    })?;
    let index = |call: &StoreCall<'_>| merged.iter().position(|other| other.is_same_key(call));
    let each = calls.iter().filter_map(|call| Some(each[index(call)?]?.of_call(call.index)));
    Ok((decision, each.collect()))
}

impl AllVerb {
    fn receipt(self) -> Option<Receipt> {
        match self {
            AllVerb::Check => None,
            AllVerb::Reserve { receipt, .. } | AllVerb::Extend { receipt, .. } => Some(receipt),
        }
    }

    /// Returns `true` if a call may change its key, even if it is denied.
    fn changes(self, call: &StoreCall<'_>) -> bool {
        call.cost > 0 || self.receipt().is_some()
    }

    /// Returns `true` if a call takes room in the pool of receipts.
    fn takes_room(self, call: &StoreCall<'_>) -> bool {
        match self {
            AllVerb::Check => false,
            AllVerb::Reserve { .. } => true,
            AllVerb::Extend { .. } => call.cost > 0,
        }
    }

    /// Decides without charging.
    fn peek(self, parts: &[Part<'_, AnyLimit>], now: Time) -> Decision {
        match self {
            AllVerb::Check => peek_all(parts, now),
            AllVerb::Reserve { max_wait, .. } => peek_within_all(parts, now, max_wait),
            AllVerb::Extend { .. } => peek_within_all(parts, now, Span::ZERO),
        }
    }

    /// Charges calls that are allowed, and returns what their receipt has to record.
    fn charge(self, parts: &mut [Part<'_, AnyLimit>], now: Time) -> (Decision, Option<Vec<Charge>>) {
        match self {
            AllVerb::Check => (all_of::check_all(parts, now), None),
            AllVerb::Reserve { max_wait, .. } => all_of::reserve_all(parts, now, max_wait),
            AllVerb::Extend { .. } => all_of::reserve_all(parts, now, Span::ZERO),
        }
    }
}

/// The shards of several calls, locked.
struct LockedShards<'a> {
    ids: Vec<ShardId>,
    shards: Vec<Box<dyn AnyLockedShard + 'a>>,
}

impl<'a> LockedShards<'a> {
    /// Locks them in the global order.
    fn lock(calls: &[StoreCall<'a>]) -> LockedShards<'a> {
        let mut order: Vec<(ShardId, &'a dyn AnyStore)> =
            calls.iter().map(|call| (call.shard_id(), call.store)).collect();
        order.sort_by_key(|(shard_id, _)| *shard_id);
        order.dedup_by_key(|(shard_id, _)| *shard_id);
        let shards = order.iter().map(|(shard_id, store)| store.lock_any(shard_id.shard)).collect();
        LockedShards { ids: order.into_iter().map(|(shard_id, _)| shard_id).collect(), shards }
    }

    /// The index of a call's shard.
    fn index(&self, call: &StoreCall<'_>) -> usize {
        let shard_id = call.shard_id();
        self.ids.partition_point(|other| *other < shard_id)
    }

    fn of(&mut self, call: &StoreCall<'_>) -> &mut (dyn AnyLockedShard + 'a) {
        let index = self.index(call);
        &mut *self.shards[index]
    }

    /// Keeps the calls whose keys have a part of an open receipt, each with the tag of its limits.
    fn keep_open(
        &mut self,
        calls: &mut Vec<StoreCall<'a>>,
        now: Time,
        receipt: Receipt,
        limiter: Option<u16>,
    ) -> Result<(), NotReserved> {
        // A call that names no open receipt changes nothing.
        if !calls.iter().any(|call| self.of(call).key_to_close(call.key, limiter, receipt).is_some()) {
            return Err(NotReserved::NotOpen);
        }
        calls.retain_mut(|call| {
            let shard = self.of(call);
            let Some(key) = shard.key_to_close(call.key, limiter, receipt) else {
                shard.expire_receipts(call.key, now);
                return false;
            };
            call.key = key;
            shard.advance(key, now);
            shard.key_to_close(key, limiter, receipt).is_some()
        });
        if calls.is_empty() { Err(NotReserved::NotOpen) } else { Ok(()) }
    }

    /// Claims room for the receipts of all calls, or of none.
    fn claim_receipts(
        &mut self,
        calls: &[StoreCall<'a>],
        now: Time,
        verb: AllVerb,
    ) -> Result<(), NotReserved> {
        for (index, call) in calls.iter().enumerate().filter(|(_, call)| verb.takes_room(call)) {
            if let Err(error) = self.of(call).claim_receipt(call.key, now) {
                self.release_receipts(&calls[..index], verb);
                return Err(error);
            }
        }
        Ok(())
    }

    fn release_receipts(&mut self, calls: &[StoreCall<'a>], verb: AllVerb) {
        for call in calls.iter().filter(|call| verb.takes_room(call)) {
            self.of(call).release_receipt(call.key);
        }
    }

    /// Loads a key. To a reservation only the limits that have their part of it decide.
    fn load(&mut self, call: &StoreCall<'a>, now: Time, verb: AllVerb) -> LoadedKey {
        let shard = self.of(call);
        let mut loaded = shard.load(call.key, now, verb.changes(call));
        if let AllVerb::Extend { receipt, .. } = verb {
            loaded.decides = shard.charged_under(call.key, receipt);
        }
        loaded
    }
}

fn decide_merged(
    mut calls: Vec<StoreCall<'_>>,
    now: Time,
    queue_denial: Option<Decision>,
    verb: AllVerb,
    mut report: impl FnMut(usize, &Decision, Vec<Part<'_, AnyLimit>>),
) -> Result<Decision, NotDecided> {
    let mut shards = LockedShards::lock(&calls);
    if let AllVerb::Extend { receipt, limiter, .. } = verb {
        shards.keep_open(&mut calls, now, receipt, limiter).map_err(NotDecided::NotReserved)?;
    }
    let calls = calls;
    let is_new = !matches!(verb, AllVerb::Extend { .. });
    if let Some(call) = calls.iter().find(|call| is_new && shards.of(call).cannot_combine(call.key)) {
        return Err(NotDecided::CannotCombine(call.index));
    }
    // Before the states are loaded, as receipts that make room are judged by these.
    shards.claim_receipts(&calls, now, verb).map_err(NotDecided::NotReserved)?;

    let mut loaded: Vec<LoadedKey> = calls.iter().map(|call| shards.load(call, now, verb)).collect();
    let peeked = verb.peek(&parts(&calls, &mut loaded), now);
    let limits_of = |(call, loaded): (&StoreCall<'_>, &LoadedKey)| {
        let index = call.index;
        loaded.deciding().map(move |position| (index, position)).collect::<Vec<_>>()
    };
    let peeked = attributed_to_part(peeked, calls.iter().zip(&loaded).flat_map(limits_of));
    let (decision, charges) = match queue_denial {
        Some(denial) => (denial, None),
        None if peeked.allowed() => match make_room(&calls, &mut loaded, &mut shards, now) {
            Ok(()) => verb.charge(&mut parts(&calls, &mut loaded), now),
            Err(denial) => (denial, None),
        },
        None => (peeked, None),
    };
    if !decision.allowed() {
        shards.release_receipts(&calls, verb);
    }
    let mut charges = charges.as_deref();
    for (index, (call, mut loaded)) in calls.iter().zip(loaded).enumerate() {
        let shard = shards.of(call);
        report(index, &decision, parts(slice::from_ref(call), slice::from_mut(&mut loaded)));
        let deciding = loaded.deciding().count();
        if let Some(slot) = loaded.slot {
            shard.write_back(slot, loaded.states);
        }
        if let Some((of_key, others)) = charges.and_then(|charges| charges.split_at_checked(deciding)) {
            shard.charged(call.key, now, verb, of_key);
            charges = Some(others);
        }
        shard.decided(call, now, verb, &decision);
    }
    Ok(decision)
}

/// Inserts every key that has no slot and will be charged: all of them or none.
fn make_room(
    calls: &[StoreCall<'_>],
    loaded: &mut [LoadedKey],
    locked: &mut LockedShards<'_>,
    now: Time,
) -> Result<(), Decision> {
    let LockedShards { ids, shards } = locked;
    let shard_of = |call: &StoreCall<'_>| {
        let shard_id = call.shard_id();
        ids.partition_point(|other| *other < shard_id)
    };
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
        let deciding: Vec<usize> = loaded[index].deciding().collect();
        let LoadedKey { limits, states, .. } = &mut loaded[index];
        for position in deciding {
            let (limit, state) = (&limits[position], &mut states[position]);
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
        let LoadedKey { limits, states, decides, .. } = loaded;
        let has_part = |position| decides.as_ref().is_none_or(|decides| decides.get(position) == Some(&true));
        let both = limits.iter().zip(states).enumerate().filter(move |(position, _)| has_part(*position));
        both.map(move |(_, (limit, state))| Part { limit, state, cost })
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

    pub(crate) fn is_same_store(&self, other: &StoreCall<'_>) -> bool {
        self.shard_id().store == other.shard_id().store
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
    fn load(&mut self, key: Fingerprint, now: Time, changes: bool) -> LoadedKey {
        let shard = &mut self.shard;
        let slot = shard.find(key).filter(|_| changes);
        let state = if let Some(slot) = slot {
            shard.bring_up_to_date(slot, key, now, &self.store.vacant);
            S::update(shard.state_of(slot), mem::take)
        } else if !changes {
            shard.copy(key, now)
        } else {
            shard.advance(key, now, &self.store.vacant);
            S::State::default()
        };
        let limits_by_tag = &shard.guarded.limits_by_tag;
        let limits = limits_by_tag.any_limits(limits_by_tag.tag_for(key));
        LoadedKey { states: S::into_states(state, limits.len()), limits, slot, decides: None }
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

    fn cannot_combine(&self, key: Fingerprint) -> bool {
        // Those are the kinds that do not support `take`.
        self.shard.require(key, Verb::Take).is_err()
    }

    fn key_to_close(&self, key: Fingerprint, limiter: Option<u16>, receipt: Receipt) -> Option<Fingerprint> {
        self.shard.key_to_close(key, limiter, receipt)
    }

    fn advance(&mut self, key: Fingerprint, now: Time) {
        self.shard.advance(key, now, &self.store.vacant);
    }

    fn expire_receipts(&mut self, key: Fingerprint, now: Time) {
        self.shard.expire_receipts(self.shard.find(key), key, now, &self.store.vacant);
    }

    fn charged_under(&self, key: Fingerprint, receipt: Receipt) -> Option<Vec<bool>> {
        self.shard.guarded.receipt_table.as_ref()?.charged_under(key, receipt)
    }

    fn claim_receipt(&mut self, key: Fingerprint, now: Time) -> Result<(), NotReserved> {
        self.store.claim_receipt_of(&mut self.shard, key, now)
    }

    fn release_receipt(&mut self, key: Fingerprint) {
        let tag = self.shard.guarded.limits_by_tag.tag_for(key);
        self.shard.receipts_closed(tag, 1, &self.store.vacant);
    }

    fn charged(&mut self, key: Fingerprint, now: Time, verb: AllVerb, charges: &[Charge]) {
        let latest = self.shard.guarded.latest;
        let mut receipts = self.shard.take_receipts(key, now, &self.store.vacant);
        let limits_by_tag = &self.shard.guarded.limits_by_tag;
        let limits = limits_by_tag.limits(limits_by_tag.tag_for(key));
        match verb {
            AllVerb::Check => {}
            AllVerb::Reserve { receipt, ttl, .. } => {
                // Charges that were made before the first receipt are no later than this.
                receipts.fit(limits);
                receipts.charged(latest);
                receipts.open(limits, now, receipt, charges, ttl);
            }
            AllVerb::Extend { receipt, ttl, .. } => receipts.extended(limits, now, receipt, charges, ttl),
        }
        self.shard.put_receipts(key, receipts);
    }

    fn write_back(&mut self, slot: usize, states: Vec<AnyState>) {
        S::update(self.shard.state_of(slot), |state| *state = S::from_states(states));
    }

    fn decided(&mut self, call: &StoreCall<'_>, now: Time, verb: AllVerb, decision: &Decision) {
        let shard = &mut self.shard.guarded;
        shard.counts.decided(decision);
        if matches!(verb, AllVerb::Check)
            && decision.allowed()
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
