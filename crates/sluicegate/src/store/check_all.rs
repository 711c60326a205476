//! Calls on several keys, perhaps of several limiters, that are charged all or nothing.
//!
//! All places that hold one of the keys are locked, in the one order that everybody keeps: by store, then by place.
//! Then the states are handed out, decided on by the core as one, and put back.

use super::evict::OnFull;
use super::limit_versions::LimitsByTag as _;
use super::receipt_table::ReceiptTable;
use super::slot_kind::SlotKind;
use super::{Full, Locked, Store};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::algorithm::{Algorithm as _, Verb};
use sluicegate_core::several::{self, Part, peek_all};
use sluicegate_core::{AnyLimit, AnyState, Decision, Span, Time};
use std::sync::Arc;
use std::{mem, slice};

/// One of the calls.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) store: &'a dyn AnyStore,
    pub(crate) key: Fingerprint,
    pub(crate) cost: u32,
}

/// A store of any shape.
pub(crate) trait AnyStore: Send + Sync {
    /// Where a key is, in the order in which places are locked.
    fn shard_id(&self, key: Fingerprint) -> ShardId;

    fn lock_any(&self, shard: usize) -> Box<dyn AnyLockedShard + '_>;
}

/// A store and a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ShardId {
    store: u64,
    shard: usize,
}

/// A place that is locked.
pub(crate) trait AnyLockedShard {
    /// Hands out the states of a key, and where they belong if the key is held.
    fn load(&mut self, key: Fingerprint, now: Time) -> LoadedKey;

    /// Makes room for a key that is not held.
    fn insert_new(&mut self, key: Fingerprint, now: Time, pinned: &[usize]) -> Result<usize, Full>;

    /// Whether a new key may find no room here.
    fn may_deny_new(&self) -> bool;

    /// How many keys the store holds at the most.
    fn max_keys(&self) -> usize;

    /// Gives up the room that was made for a key.
    fn free_slot(&mut self, slot: usize);

    /// Puts states back.
    fn write_back(&mut self, slot: usize, states: Vec<AnyState>);

    /// Counts the decision; if it was charged, receipts have to know.
    fn decided(&mut self, call: &Call<'_>, now: Time, decision: &Decision);

    fn denial(&mut self, full: Full, key: Fingerprint) -> Decision;
}

/// The states of a key, handed out.
pub(crate) struct LoadedKey {
    limits: Arc<[AnyLimit]>,
    states: Vec<AnyState>,
    slot: Option<usize>,
}

impl LoadedKey {
    /// Whether the limit is one that does not go with others. (Those are the kinds that offer no take.)
    fn cannot_combine(&self) -> bool {
        !self.limits.iter().all(|limit| limit.offers(Verb::Take))
    }
}

/// Charges all calls or none. The same key twice is one key with both costs. If others wait in line before one of the calls, the
/// denial of that line is the answer.
///
/// # Errors
/// When a call's limit does not go with others: which call. Then none was decided on.
pub(crate) fn check_all<'a>(
    calls: &[Call<'a>],
    now: Time,
    queue_denial: Option<Decision>,
) -> Result<Decision, Call<'a>> {
    decide_all(&merged(calls), now, queue_denial, |_, _| ())
}

/// The same, and how each call stands: after the charge if all were allowed, or else whether it would be by itself.
///
/// # Errors
/// As [`check_all`].
pub(crate) fn check_all_each<'a>(
    calls: &[Call<'a>],
    now: Time,
    queue_denial: Option<Decision>,
) -> Result<(Decision, Vec<Decision>), Call<'a>> {
    let merged = merged(calls);
    let mut each = Vec::with_capacity(merged.len());
    let decision = decide_all(&merged, now, queue_denial, |decision, mut parts| {
        if decision.allowed() {
            // It is charged: what is left to tell is how the key stands.
            for part in &mut parts {
                part.cost = 0;
            }
        }
        each.push(peek_all(&parts, now));
    })?;
    let index = |call: &Call<'_>| merged.iter().position(|other| other.is_same_key(call));
    Ok((decision, calls.iter().filter_map(|call| Some(each[index(call)?])).collect()))
}

fn decide_all<'a>(
    calls: &[Call<'a>],
    now: Time,
    queue_denial: Option<Decision>,
    mut report: impl FnMut(&Decision, Vec<Part<'_, AnyLimit>>),
) -> Result<Decision, Call<'a>> {
    let mut order: Vec<(ShardId, &dyn AnyStore)> =
        calls.iter().map(|call| (call.shard_id(), call.store)).collect();
    order.sort_by_key(|(shard_id, _)| *shard_id);
    order.dedup_by_key(|(shard_id, _)| *shard_id);
    let mut shards: Vec<Box<dyn AnyLockedShard + '_>> =
        order.iter().map(|(shard_id, store)| store.lock_any(shard_id.shard)).collect();
    // Where each call's place is among the locked ones. It is there: that is what was locked.
    let shard_of = |call: &Call<'_>| {
        let shard_id = call.shard_id();
        order.partition_point(|(other, _)| *other < shard_id)
    };

    let mut loaded: Vec<LoadedKey> =
        calls.iter().map(|call| shards[shard_of(call)].load(call.key, now)).collect();
    let cannot_combine = loaded.iter().position(LoadedKey::cannot_combine);
    let peeked = peek_all(&parts(calls, &mut loaded), now);
    let decided = match cannot_combine {
        Some(index) => Err(calls[index]),
        None if queue_denial.is_some() => Ok(queue_denial.unwrap_or(peeked)),
        None if peeked.allowed() => {
            let room = make_room(calls, &mut loaded, &mut shards, &shard_of, now);
            Ok(room
                .map_or_else(|denial| denial, |()| several::check_all(&mut parts(calls, &mut loaded), now)))
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

/// Room for every key that is not held and will be: for all, or for none.
fn make_room(
    calls: &[Call<'_>],
    loaded: &mut [LoadedKey],
    shards: &mut [Box<dyn AnyLockedShard + '_>],
    shard_of: &impl Fn(&Call<'_>) -> usize,
    now: Time,
) -> Result<(), Decision> {
    // More keys than a store can hold at once will not fit, whoever leaves: so nobody has to.
    for call in calls {
        let shard = shard_of(call);
        let (store, needed) = (call.shard_id().store, calls.iter().filter(|other| other.cost > 0));
        if needed.filter(|other| other.shard_id().store == store).count() > shards[shard].max_keys() {
            return Err(shards[shard].denial(Full(Span::MAX), call.key));
        }
    }
    let mut made: Vec<usize> = Vec::new();
    let mut new: Vec<usize> = (0..calls.len()).collect();
    new.retain(|index| calls[*index].cost > 0 && loaded[*index].slot.is_none());
    // Who may be refused first: nobody is evicted for a call that is denied after all.
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
                return Err(shards[shard].denial(full, calls[index].key));
            }
        }
    }
    Ok(())
}

fn parts<'a>(calls: &[Call<'_>], loaded: &'a mut [LoadedKey]) -> Vec<Part<'a, AnyLimit>> {
    let parts = |(call, loaded): (&Call<'_>, &'a mut LoadedKey)| {
        let cost = call.cost;
        loaded.limits.iter().zip(&mut loaded.states).map(move |(limit, state)| Part { limit, state, cost })
    };
    calls.iter().zip(loaded).flat_map(parts).collect()
}

fn merged<'a>(calls: &[Call<'a>]) -> Vec<Call<'a>> {
    let mut merged: Vec<Call<'a>> = Vec::with_capacity(calls.len());
    for call in calls {
        match merged.iter_mut().find(|other| other.is_same_key(call)) {
            Some(other) => other.cost = other.cost.saturating_add(call.cost),
            None => merged.push(*call),
        }
    }
    merged
}

impl Call<'_> {
    fn shard_id(&self) -> ShardId {
        self.store.shard_id(self.key)
    }

    pub(crate) fn is_same_key(&self, other: &Call<'_>) -> bool {
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
    /// As a store of any shape.
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
        let state = slot.map_or_else(S::State::default, |slot| {
            shard.bring_up_to_date(slot, key, now, &self.store.vacant);
            S::update(shard.state_of(slot), mem::take)
        });
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
        self.shard.clear(slot);
        self.store.vacant.keys.fetch_add(1, Ordering::Relaxed);
    }

    fn write_back(&mut self, slot: usize, states: Vec<AnyState>) {
        S::update(self.shard.state_of(slot), |state| *state = S::from_states(states));
    }

    fn decided(&mut self, call: &Call<'_>, now: Time, decision: &Decision) {
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
