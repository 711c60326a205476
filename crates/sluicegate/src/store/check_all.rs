//! Calls on several keys, perhaps of several limiters, that are charged all or nothing.
//!
//! All places that hold one of the keys are locked, in the one order that everybody keeps: by store, then by place.
//! Then the states are handed out, decided on by the core as one, and put back.

use super::evict::{OnFull, Room};
use super::ledger::Ledger;
use super::rules::Rulings as _;
use super::shape::Shape;
use super::{Full, Locked, Store};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::algorithm::{Algorithm as _, Verb};
use sluicegate_core::all_of::{self, Part, peek_all};
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
    fn whereabouts(&self, key: Fingerprint) -> Whereabouts;

    fn lock_any(&self, place: usize) -> Box<dyn LockedAny + '_>;
}

/// A store and a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Whereabouts {
    store: u64,
    place: usize,
}

/// A place that is locked.
pub(crate) trait LockedAny {
    /// Hands out the states of a key, and where they belong if the key is held.
    fn lend(&mut self, key: Fingerprint, now: Time) -> Lent;

    /// Makes room for a key that is not held.
    fn make_room(&mut self, key: Fingerprint, now: Time, pinned: &[usize]) -> Result<usize, Full>;

    /// Whether a new key may find no room here.
    fn may_refuse(&self) -> bool;

    /// How many keys the store holds at the most.
    fn max_keys(&self) -> usize;

    /// Gives up the room that was made for a key.
    fn give_up(&mut self, slot: usize);

    /// Puts states back.
    fn put_back(&mut self, slot: usize, states: Vec<AnyState>);

    /// Counts the decision; if it was charged, receipts have to know.
    fn decided(&mut self, call: &Call<'_>, now: Time, decision: &Decision);

    fn denial(&mut self, full: Full, key: Fingerprint) -> Decision;
}

/// The states of a key, handed out.
pub(crate) struct Lent {
    limits: Arc<[AnyLimit]>,
    states: Vec<AnyState>,
    slot: Option<usize>,
}

impl Lent {
    /// Whether the limit is one that does not go with others. (Those are the kinds that offer no take.)
    fn stands_alone(&self) -> bool {
        !self.limits.iter().all(|limit| limit.supports(Verb::Take))
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
    behind: Option<Decision>,
) -> Result<Decision, Call<'a>> {
    decide_all(&merged(calls), now, behind, |_, _| ())
}

/// The same, and how each call stands: after the charge if all were allowed, or else whether it would be by itself.
///
/// # Errors
/// As [`check_all`].
pub(crate) fn check_all_each<'a>(
    calls: &[Call<'a>],
    now: Time,
    behind: Option<Decision>,
) -> Result<(Decision, Vec<Decision>), Call<'a>> {
    let merged = merged(calls);
    let mut each = Vec::with_capacity(merged.len());
    let decision = decide_all(&merged, now, behind, |decision, mut parts| {
        if decision.allowed() {
            // It is charged: what is left to tell is how the key stands.
            for part in &mut parts {
                part.cost = 0;
            }
        }
        each.push(peek_all(&parts, now));
    })?;
    let place = |call: &Call<'_>| merged.iter().position(|other| other.is_same_key(call));
    Ok((decision, calls.iter().filter_map(|call| Some(each[place(call)?])).collect()))
}

fn decide_all<'a>(
    calls: &[Call<'a>],
    now: Time,
    behind: Option<Decision>,
    mut tell: impl FnMut(&Decision, Vec<Part<'_, AnyLimit>>),
) -> Result<Decision, Call<'a>> {
    let mut order: Vec<(Whereabouts, &dyn AnyStore)> =
        calls.iter().map(|call| (call.whereabouts(), call.store)).collect();
    order.sort_by_key(|(whereabouts, _)| *whereabouts);
    order.dedup_by_key(|(whereabouts, _)| *whereabouts);
    let mut places: Vec<Box<dyn LockedAny + '_>> =
        order.iter().map(|(whereabouts, store)| store.lock_any(whereabouts.place)).collect();
    // Where each call's place is among the locked ones. It is there: that is what was locked.
    let place_of = |call: &Call<'_>| {
        let whereabouts = call.whereabouts();
        order.partition_point(|(other, _)| *other < whereabouts)
    };

    let mut lent: Vec<Lent> = calls.iter().map(|call| places[place_of(call)].lend(call.key, now)).collect();
    let stands_alone = lent.iter().position(Lent::stands_alone);
    let peeked = peek_all(&parts(calls, &mut lent), now);
    let decided = match stands_alone {
        Some(index) => Err(calls[index]),
        None if behind.is_some() => Ok(behind.unwrap_or(peeked)),
        None if peeked.allowed() => {
            let room = make_room(calls, &mut lent, &mut places, &place_of, now);
            Ok(room.map_or_else(|denial| denial, |()| all_of::check_all(&mut parts(calls, &mut lent), now)))
        }
        None => Ok(peeked),
    };
    for (call, mut lent) in calls.iter().zip(lent) {
        let place = &mut places[place_of(call)];
        if let Ok(decision) = &decided {
            tell(decision, parts(slice::from_ref(call), slice::from_mut(&mut lent)));
        }
        if let Some(slot) = lent.slot {
            place.put_back(slot, lent.states);
        }
        if let Ok(decision) = &decided {
            place.decided(call, now, decision);
        }
    }
    decided
}

/// Room for every key that is not held and will be: for all, or for none.
fn make_room(
    calls: &[Call<'_>],
    lent: &mut [Lent],
    places: &mut [Box<dyn LockedAny + '_>],
    place_of: &impl Fn(&Call<'_>) -> usize,
    now: Time,
) -> Result<(), Decision> {
    // More keys than a store can hold at once will not fit, whoever leaves: so nobody has to.
    for call in calls {
        let place = place_of(call);
        let (store, needed) = (call.whereabouts().store, calls.iter().filter(|other| other.cost > 0));
        if needed.filter(|other| other.whereabouts().store == store).count() > places[place].max_keys() {
            return Err(places[place].denial(Full(Span::MAX), call.key));
        }
    }
    let mut made: Vec<usize> = Vec::new();
    let mut new: Vec<usize> = (0..calls.len()).collect();
    new.retain(|index| calls[*index].cost > 0 && lent[*index].slot.is_none());
    // Who may be refused first: nobody is evicted for a call that is denied after all.
    new.sort_by_key(|index| !places[place_of(&calls[*index])].may_refuse());
    for index in new {
        let place = place_of(&calls[index]);
        let in_use = calls.iter().zip(&*lent).filter(|(call, _)| place_of(call) == place);
        let pinned: Vec<usize> = in_use.filter_map(|(_, lent)| lent.slot).collect();
        match places[place].make_room(calls[index].key, now, &pinned) {
            Ok(slot) => {
                lent[index].slot = Some(slot);
                made.push(index);
            }
            Err(full) => {
                for index in made {
                    if let Some(slot) = lent[index].slot.take() {
                        places[place_of(&calls[index])].give_up(slot);
                    }
                }
                return Err(places[place].denial(full, calls[index].key));
            }
        }
    }
    Ok(())
}

fn parts<'a>(calls: &[Call<'_>], lent: &'a mut [Lent]) -> Vec<Part<'a, AnyLimit>> {
    let parts = |(call, lent): (&Call<'_>, &'a mut Lent)| {
        let cost = call.cost;
        lent.limits.iter().zip(&mut lent.states).map(move |(limit, state)| Part { limit, state, cost })
    };
    calls.iter().zip(lent).flat_map(parts).collect()
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
    fn whereabouts(&self) -> Whereabouts {
        self.store.whereabouts(self.key)
    }

    pub(crate) fn is_same_key(&self, other: &Call<'_>) -> bool {
        self.key.is(other.key) && self.whereabouts() == other.whereabouts()
    }
}

impl<S: Shape> AnyStore for Store<S> {
    fn whereabouts(&self, key: Fingerprint) -> Whereabouts {
        Whereabouts { store: self.id, place: self.shard_of(key) }
    }

    fn lock_any(&self, place: usize) -> Box<dyn LockedAny + '_> {
        Box::new(LockedPlace { store: self, place: self.lock(place) })
    }
}

impl<S: Shape> Store<S> {
    /// As a store of any shape.
    pub(crate) fn as_any(&self) -> &dyn AnyStore {
        self
    }
}

struct LockedPlace<'a, S: Shape> {
    store: &'a Store<S>,
    place: Locked<'a, S>,
}

impl<S: Shape> LockedAny for LockedPlace<'_, S> {
    fn lend(&mut self, key: Fingerprint, now: Time) -> Lent {
        let place = &mut self.place;
        let slot = place.find(key);
        let state = slot.map_or_else(S::State::default, |slot| {
            place.bring_up_to_date(slot, key, now, &self.store.vacant);
            S::update(place.kept(slot), mem::take)
        });
        let rules = &place.guarded.rules;
        let limits = rules.any(rules.tag_for(key));
        Lent { states: S::lend(state, limits.len()), limits, slot }
    }

    fn make_room(&mut self, key: Fingerprint, now: Time, pinned: &[usize]) -> Result<usize, Full> {
        let room: Room = self.place.find_room(key, now, self.store, pinned)?;
        self.place.settle_in(&room, key, now, S::State::default(), &self.store.vacant);
        Ok(room.slot)
    }

    fn may_refuse(&self) -> bool {
        self.store.on_full == OnFull::Deny
    }

    fn max_keys(&self) -> usize {
        self.store.max_keys
    }

    fn give_up(&mut self, slot: usize) {
        self.place.clear(slot);
        self.store.vacant.keys.fetch_add(1, Ordering::Relaxed);
    }

    fn put_back(&mut self, slot: usize, states: Vec<AnyState>) {
        S::update(self.place.kept(slot), |state| *state = S::take_back(states));
    }

    fn decided(&mut self, call: &Call<'_>, now: Time, decision: &Decision) {
        let place = &mut self.place.guarded;
        place.counts.decided(decision);
        if decision.allowed()
            && call.cost > 0
            && let Some(ledger) = &mut place.ledger
        {
            Ledger::charged(ledger, call.key, now);
        }
    }

    fn denial(&mut self, full: Full, key: Fingerprint) -> Decision {
        self.place.denial(full, key)
    }
}
