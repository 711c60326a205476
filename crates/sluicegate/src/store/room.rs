//! Who makes room for a new key.
//!
//! ```text
//! 1. a free slot, while the store holds fewer than max_keys
//! 2. a key that has recovered: nobody can tell that it is gone
//! 3. of those near the new key, the one that owes least, by the share of its limit that it has used; of equals, the one that recovers first
//!    (or, if the store is to deny when it is full, nobody)
//! ```
//!
//! So a flood of new keys, each of which owes a little, takes the room of its own kind, and an offender at the limit
//! stays. Where a single call uses all of a limit (`min-interval`, 1 a day), every key owes the same and the one that
//! recovers first makes room: only `OnFull::Deny` helps there.

use super::ledger::Ledger;
use super::shape::Shape;
use super::{Full, Locked, Quota, Rules, Store, claim};
use crate::key::Fingerprint;
use sluicegate_core::decision::Standing;
use sluicegate_core::verbs::Verbs as _;
use sluicegate_core::{Algorithm as _, Span, Time};
use std::sync::Arc;

/// What a store that is full of keys that have not recovered does with a new one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnFull {
    /// Among the keys near its place, the one that owes least makes room. For when new callers must get in; watch
    /// `evicted` in the [`crate::Stats`].
    #[default]
    Evict,
    /// The new key's calls are denied until there is room. For when no debt may be forgotten, and where one call uses
    /// all of a limit.
    Deny,
}

/// With as many near, the one that owes least among them will do. In a store that holds its `max_keys` there are six
/// around a key's home.
const ENOUGH_TO_CHOOSE: usize = 4;

/// Where a new key goes.
pub(super) struct Room {
    pub(super) slot: usize,
    /// Who makes room: often the key in that very slot.
    leaves: Option<Leaves>,
}

/// What was seen.
struct Look {
    recovered: Option<usize>,
    owes_least: Option<(Owes, usize)>,
    /// How long until the first of them has recovered; `Span::MAX` if there is none.
    soonest: Span,
    looked_at: usize,
}

impl Default for Look {
    fn default() -> Self {
        Look { recovered: None, owes_least: None, soonest: Span::MAX, looked_at: 0 }
    }
}

struct Leaves {
    slot: usize,
    recovered: bool,
}

/// How much a key owes: the share of its limit that it has used, of 2^32, and how long it will take to recover.
/// Under several limits it is the largest share and the longest time.
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
        let table = self.table;
        let mut near = self.look_at(table.nearest(key).filter(|slot| !pinned.contains(slot)), now);
        if near.recovered.is_none() && (free.is_none() || near.looked_at < ENOUGH_TO_CHOOSE) {
            near = self.look_at(table.near(key).filter(|slot| !pinned.contains(slot)), now);
        }
        if let Some(slot) = near.recovered {
            return Ok(Room { slot, leaves: Some(Leaves { slot, recovered: true }) });
        }
        // With a free slot near it, the key can take the room of anyone in the place. Looking at all of them is worth it if
        // someone can have recovered since the last look, if there are too few near to choose from (in a small store), or
        // to say truly how long it will take.
        let mut here = Look::default();
        if let Some(free) = free
            && (now >= self.guarded.none_recovers_before
                || near.looked_at < ENOUGH_TO_CHOOSE
                || store.on_full == OnFull::Deny)
        {
            here = self.look_at(table.held().filter(|slot| !pinned.contains(slot)), now);
            if let Some(slot) = here.recovered {
                return Ok(Room { slot: free, leaves: Some(Leaves { slot, recovered: true }) });
            }
            // Who is pinned was not looked at.
            if pinned.is_empty() {
                self.guarded.none_recovers_before = now.after(here.soonest);
            }
        }
        let leaves = |slot| Some(Leaves { slot, recovered: false });
        match (store.on_full, near.owes_least, here.owes_least, free) {
            (OnFull::Evict, _, Some((_, slot)), Some(free)) => Ok(Room { slot: free, leaves: leaves(slot) }),
            (OnFull::Evict, Some((_, slot)), _, _) => Ok(Room { slot, leaves: leaves(slot) }),
            _ => Err(Full(near.soonest.min(here.soonest))),
        }
    }

    /// Looks for one that has recovered, or else for the one that owes least.
    fn look_at(&mut self, slots: impl Iterator<Item = usize>, now: Time) -> Look {
        let mut look = Look::default();
        let rules = Arc::clone(&self.guarded.rules);
        for slot in slots {
            look.looked_at += 1;
            let Some(owes) = self.owes(&rules, slot, now) else {
                look.recovered = Some(slot);
                break;
            };
            look.soonest = look.soonest.min(owes.1);
            if look.owes_least.is_none_or(|(least, _)| owes < least) {
                look.owes_least = Some((owes, slot));
            }
        }
        look
    }

    /// Puts a new key where room was found for it.
    pub(super) fn settle_in(
        &mut self,
        room: &Room,
        key: Fingerprint,
        now: Time,
        state: S::State,
        quota: &Quota,
    ) {
        if let Some(Leaves { slot, recovered }) = room.leaves {
            if !recovered {
                self.guarded.counts.evicted += 1;
                Ledger::void(&mut self.guarded.ledger, self.table.key(slot), &quota.receipts_left);
            }
            self.clear(slot);
        }
        self.table.put(room.slot, key, self.guarded.rules.version());
        S::update(self.kept(room.slot), |empty| *empty = state);
        let rules = Arc::clone(&self.guarded.rules);
        let recovers_in = self.owes(&rules, room.slot, now).map_or(Span::ZERO, |(_, wait)| wait);
        self.guarded.none_recovers_before = self.guarded.none_recovers_before.min(now.after(recovers_in));
    }

    /// How much a slot's key owes; nothing if it has recovered.
    fn owes(&mut self, rules: &Rules<S::Limit>, slot: usize, now: Time) -> Option<Owes> {
        let limits = rules.limits_of(self.table.slot(slot).version());
        S::read(self.kept(slot), |state| {
            let both = limits.iter().zip(S::seen(state));
            if both.clone().all(|(limit, state)| limit.is_idle(state, now)) {
                return None;
            }
            let all = both.map(|(limit, state)| owes(limit.standing(state, now)));
            all.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))
        })
    }
}

fn owes(standing: Standing) -> Owes {
    let used = u64::from(standing.limit.saturating_sub(standing.remaining));
    // Cannot wrap or divide by zero: both are below 2^32, and no limit is 0.
    ((used << 32) / u64::from(standing.limit).max(1), standing.reset_after)
}
