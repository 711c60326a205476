//! Who makes room for a new key.
//!
//! ```text
//! 1. a free slot, while the store holds fewer than max_keys
//! 2. a key that has recovered: nobody can tell that it is gone
//! 3. the one that owes least, by the share of its limit that it has used; of equals, the one that recovers first
//!    (or, if the store is to deny when it is full, nobody)
//! ```
//!
//! So a flood of new keys, each of which owes a little, takes the room of its own kind, and an offender at the limit
//! stays. Where a single call uses all of a limit (`min-interval`, 1 a day), every key owes the same and the oldest
//! makes room: only `OnFull::Deny` helps there.

use super::ledger::Ledger;
use super::shape::Shape;
use super::table::Table;
use super::{Full, Locked, Quota, Store, claim};
use crate::key::Fingerprint;
use sluicegate_core::decision::Standing;
use sluicegate_core::verbs::Verbs as _;
use sluicegate_core::{Algorithm as _, Span, Time};
use std::sync::Arc;

/// What a store that is full of keys that have not recovered does with a new one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnFull {
    /// Among the keys near its place, the one that owes least makes room.
    #[default]
    Evict,
    /// The new key's calls are denied until there is room.
    Deny,
}

/// Where a new key goes.
pub(super) struct Room {
    pub(super) slot: usize,
    /// Who makes room: often the key in that very slot.
    leaves: Option<Leaves>,
}

enum First {
    Recovered(usize),
    /// And how long until it has recovered.
    OwesLeast(usize, Span),
}

struct Leaves {
    slot: usize,
    recovered: bool,
}

/// How much a key owes: the share of its limit that it has used, of 2^32, and how long it will take to recover.
/// Under several limits it is the one of which most is used.
type Owes = (u64, Span);

impl<S: Shape> Locked<'_, S> {
    /// Finds room for a key that is not held. `pinned` slots stay.
    pub(super) fn find_room(
        &mut self,
        key: Fingerprint,
        now: Time,
        store: &Store<S>,
        pinned: &[usize],
    ) -> Result<Room, Full> {
        let free = self.table.free(key);
        if let Some(slot) = free
            && claim(&store.quota.keys_left)
        {
            return Ok(Room { slot, leaves: None });
        }
        // In its own groups a key takes the very slot; from elsewhere in the place only the number of keys is freed.
        let leave = |slot, recovered| Room {
            slot: if Table::<S>::is_near(slot, key) { slot } else { free.unwrap_or(slot) },
            leaves: Some(Leaves { slot, recovered }),
        };
        let table = self.table;
        let near = table.near(key).filter(|slot| !pinned.contains(slot));
        match self.first_to_leave(near, now) {
            Some(First::Recovered(slot)) => return Ok(leave(slot, true)),
            Some(First::OwesLeast(slot, _)) if store.on_full == OnFull::Evict => {
                return Ok(leave(slot, false));
            }
            Some(First::OwesLeast(_, wait)) if free.is_none() => return Err(Full(wait)),
            None if free.is_none() => return Err(Full(Span::ZERO)),
            // The store is full and yet there is room here: whoever makes it may be anywhere in the place.
            _ => {}
        }
        let here = table.held().filter(|slot| !pinned.contains(slot));
        match self.first_to_leave(here, now) {
            Some(First::Recovered(slot)) => Ok(leave(slot, true)),
            Some(First::OwesLeast(slot, _)) if store.on_full == OnFull::Evict => Ok(leave(slot, false)),
            Some(First::OwesLeast(_, wait)) => Err(Full(wait)),
            None => Err(Full(Span::ZERO)),
        }
    }

    /// One that has recovered, or else the one that owes least.
    fn first_to_leave(&mut self, slots: impl Iterator<Item = usize>, now: Time) -> Option<First> {
        let mut least: Option<(Owes, usize)> = None;
        for slot in slots {
            let Some(owes) = self.owes(slot, now) else { return Some(First::Recovered(slot)) };
            if least.is_none_or(|(less, _)| owes < less) {
                least = Some((owes, slot));
            }
        }
        least.map(|((_, wait), slot)| First::OwesLeast(slot, wait))
    }

    /// Puts a new key where room was found for it.
    pub(super) fn settle_in(&mut self, room: &Room, key: Fingerprint, state: S::State, quota: &Quota) {
        if let Some(Leaves { slot, recovered }) = room.leaves {
            if !recovered {
                self.guarded.counts.evicted += 1;
                Ledger::void(&mut self.guarded.ledger, self.table.key(slot), &quota.receipts_left);
            }
            self.clear(slot);
        }
        self.table.put(room.slot, key, self.guarded.rules.version());
        S::update(self.kept(room.slot), |empty| *empty = state);
    }

    /// How much a slot's key owes; nothing if it has recovered.
    fn owes(&mut self, slot: usize, now: Time) -> Option<Owes> {
        let rules = Arc::clone(&self.guarded.rules);
        let limits = rules.limits_of(self.table.slot(slot).version());
        S::read(self.kept(slot), |state| {
            let both = limits.iter().zip(S::seen(state));
            if both.clone().all(|(limit, state)| limit.is_idle(state, now)) {
                return None;
            }
            both.map(|(limit, state)| owes(limit.standing(state, now))).max()
        })
    }
}

fn owes(standing: Standing) -> Owes {
    let used = u64::from(standing.limit.saturating_sub(standing.remaining));
    // Cannot wrap or divide by zero: both are below 2^32, and no limit is 0.
    ((used << 32) / u64::from(standing.limit).max(1), standing.reset_after)
}
