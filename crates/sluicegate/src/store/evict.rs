//! Who makes room for a new key.
//!
//! ```text
//! 1. a free slot in one of the key's two buckets, while the store holds fewer than max_keys
//! 2. a key there that has recovered: nobody can tell that it is gone
//! 3. while it holds fewer, a slot made free by moving up to two keys to their other buckets
//! 4. a key of the place that has recovered, if there can be one
//! 5. of three keys and more around the new one, the one that owes least, by the share of its limit that it has used;
//!    of equals, the one that recovers first (or, if the store is to deny when it is full, nobody)
//! ```
//!
//! So a flood of new keys, each of which owes a little, takes the room of its own kind, and an offender at the limit
//! stays. Where a single call uses all of a limit (`min-interval`, 1 a day), every key owes all of it once it has called,
//! and the one that recovers first makes room: only `OnFull::Deny` helps there.

use super::ledger::Ledger;
use super::rules::Rulings as _;
use super::shape::{Kept, Shape};
use super::table::{Bucket, buckets};
use super::{Full, GuardService, Locked, Store, Vacant, claim};
use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::algorithm::Debt;
use sluicegate_core::rollback::Times;
use sluicegate_core::{Span, Time};
use std::mem;

/// What a store that is full of keys that have not recovered does with a new one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnFull {
    /// Among the keys around it, the one that owes least makes room. For when new callers must get in; watch
    /// `evicted` in the [`crate::StoreStats`].
    #[default]
    Evict,
    /// The new key's calls are denied until there is room. For when no debt may be forgotten, and where one call uses
    /// all of a limit.
    Deny,
}

/// Three to choose from keep an offender in his place (tests/it/bounded.rs); each more is another slot to read.
const ENOUGH_TO_CHOOSE: usize = 3;

/// How many keys may move to make a slot free: with one, 4 keys in 10 000 find no room in a store that is nearly full.
const MOVES: u32 = 2;

/// Where a new key goes.
pub(super) struct Room {
    pub(super) slot: usize,
    /// Who makes room: often the key in that very slot.
    leaves: Option<Leaves>,
}

/// What was seen.
struct Look {
    recovered: Option<usize>,
    owes_least: Option<(Debt, usize)>,
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

impl<S: Shape> Locked<'_, S> {
    /// Finds room for a key that is not held. `pinned` slots stay, and stay where they are.
    pub(super) fn find_room(
        &mut self,
        key: Fingerprint,
        now: Time,
        store: &Store<S>,
        pinned: &[usize],
    ) -> Result<Room, Full> {
        let (table, [home, other], deny) = (self.table, buckets(key), store.on_full == OnFull::Deny);
        if let Some(slot) = self.claim_free(key, &store.vacant.keys) {
            return Ok(Room { slot, leaves: None });
        }
        // Looking at the whole place is worth it if someone can have recovered since the last look, or to say truly how
        // long it will take.
        let look_at_all = deny || now >= self.guarded.none_recovers_before;
        let may_leave = |slot: &usize| table.is_taken(*slot) && !pinned.contains(slot);
        let mut look = Look::default();
        self.look_at(home.slots().filter(may_leave), now, &mut look);
        if look.recovered.is_none() && (look_at_all || look.looked_at < ENOUGH_TO_CHOOSE) {
            self.look_at(other.slots().filter(may_leave), now, &mut look);
        }
        if let Some(slot) = look.recovered {
            return Ok(Room { slot, leaves: Some(Leaves { slot, recovered: true }) });
        }
        if let Some(slot) = self.claim_by_moving([home, other], &store.vacant.keys, pinned) {
            return Ok(Room { slot, leaves: None });
        }
        // With a free slot near it, the key can take the room of anyone in the place.
        let mut free = table.free_in(home);
        if look_at_all || look.looked_at < ENOUGH_TO_CHOOSE {
            free = free.or_else(|| self.make_free([home, other], pinned));
            if free.is_some() {
                look = if look_at_all {
                    self.look_at_all(now, pinned)
                } else {
                    self.look_around(home, now, pinned)
                };
            }
        }
        let evicted = look.owes_least.filter(|_| !deny).map(|(_, slot)| Leaves { slot, recovered: false });
        let leaves = look.recovered.map(|slot| Leaves { slot, recovered: true }).or(evicted);
        let room = leaves.map(|leaves| Room { slot: free.unwrap_or(leaves.slot), leaves: Some(leaves) });
        room.ok_or(Full(look.soonest))
    }

    /// A free slot, and the right to one more key.
    fn claim_free(&self, key: Fingerprint, vacant: &AtomicUsize) -> Option<usize> {
        // Only whoever may claim needs to look for a slot.
        if vacant.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.table.free(key).filter(|_| claim(vacant))
    }

    /// The same where both buckets are full: keys of theirs move to their other buckets.
    fn claim_by_moving(
        &mut self,
        buckets: [Bucket; 2],
        vacant: &AtomicUsize,
        pinned: &[usize],
    ) -> Option<usize> {
        if !claim(vacant) {
            return None;
        }
        let slot = self.make_free(buckets, pinned);
        if slot.is_none() {
            vacant.fetch_add(1, Ordering::Relaxed);
        }
        slot
    }

    /// A free slot in one of two buckets. If both are full, keys of theirs move to their other buckets.
    fn make_free(&mut self, buckets: [Bucket; 2], pinned: &[usize]) -> Option<usize> {
        buckets.into_iter().find_map(|bucket| self.make_free_in(bucket, MOVES, pinned))
    }

    fn make_free_in(&mut self, bucket: Bucket, moves: u32, pinned: &[usize]) -> Option<usize> {
        let free = self.table.free_in(bucket);
        if free.is_some() || moves == 0 {
            return free;
        }
        for slot in bucket.slots().filter(|slot| !pinned.contains(slot)) {
            if let Some(free) = self.make_free_in(self.table.other_bucket(slot), moves - 1, pinned) {
                self.move_key(slot, free);
                return Some(slot);
            }
        }
        None
    }

    fn move_key(&mut self, from: usize, to: usize) {
        self.put(to, self.table.key(from), self.table.slot(from).tag());
        let state = S::update(self.kept(from), mem::take);
        S::update(self.kept(to), |free| *free = state);
        self.table.clear(from);
    }

    /// Looks at everybody in the place.
    fn look_at_all(&mut self, now: Time, pinned: &[usize]) -> Look {
        let (table, mut look) = (self.table, Look::default());
        let may_leave = |slot: &usize| !pinned.contains(slot);
        self.look_at(table.held().filter(may_leave), now, &mut look);
        // Who is pinned was not looked at; and when one recovers that has yet to meet new limits depends on when it does.
        if look.recovered.is_none() && pinned.is_empty() && !table.held().any(|slot| self.is_old(slot)) {
            self.guarded.none_recovers_before = now.saturating_add(look.soonest);
        }
        self.guarded.strays = table.strays();
        look
    }

    /// Looks at a few around a bucket, when there are too few in it to choose from.
    fn look_around(&mut self, bucket: Bucket, now: Time, pinned: &[usize]) -> Look {
        let (table, mut look) = (self.table, Look::default());
        let may_leave = |slot: &usize| table.is_taken(*slot) && !pinned.contains(slot);
        self.look_at(bucket.all_slots().filter(may_leave).take(ENOUGH_TO_CHOOSE), now, &mut look);
        look
    }

    /// Looks for one that has recovered, or else for the one that owes least, and adds that to what was seen before.
    fn look_at(&mut self, slots: impl Iterator<Item = usize>, now: Time, look: &mut Look) {
        for slot in slots {
            look.looked_at += 1;
            let Some(debt) = self.debt(slot, now) else {
                look.recovered = Some(slot);
                return;
            };
            look.soonest = look.soonest.min(debt.recovers_in);
            if look.owes_least.is_none_or(|(least, _)| debt < least) {
                look.owes_least = Some((debt, slot));
            }
        }
    }

    /// Puts a new key where room was found for it.
    pub(super) fn settle_in(
        &mut self,
        room: &Room,
        key: Fingerprint,
        now: Time,
        state: S::State,
        vacant: &Vacant,
    ) {
        if let Some(Leaves { slot, recovered }) = room.leaves {
            if !recovered {
                self.guarded.counts.evicted += 1;
                Ledger::void(&mut self.guarded.ledger, self.table.key(slot), &vacant.receipts);
            }
            self.clear(slot);
        }
        self.put(room.slot, key, self.guarded.rules.tag_for(key));
        S::update(self.kept(room.slot), |empty| *empty = state);
        let recovers_in = self.debt(room.slot, now).map_or(Span::ZERO, |debt| debt.recovers_in);
        self.guarded.none_recovers_before =
            self.guarded.none_recovers_before.min(now.saturating_add(recovers_in));
    }

    /// How much a slot's key owes; nothing if it has recovered.
    #[inline]
    pub(super) fn debt(&mut self, slot: usize, now: Time) -> Option<Debt> {
        if self.is_old(slot) {
            return self.debt_by_new_limits(slot, now);
        }
        let (GuardService { rules, aside, .. }, found) = (&mut *self.guarded, self.table.slot(slot));
        S::debt(Kept { words: found.state, aside, slot }, rules.limits(found.tag()), now)
    }

    /// The same for a key that has not met the current limits: as if it met them now. It does so only with its next call.
    #[cold]
    fn debt_by_new_limits(&mut self, slot: usize, now: Time) -> Option<Debt> {
        let (times, from) = (Times { now, latest: self.guarded.latest }, self.table.slot(slot).tag());
        let mut state = S::read(self.kept(slot), Clone::clone);
        let (rules, tag) = (&self.guarded.rules, self.guarded.rules.tag_for(self.table.key(slot)));
        rules.adopt(&mut state, from, tag, times);
        S::debt_of(&state, rules.limits(tag), now)
    }
}
