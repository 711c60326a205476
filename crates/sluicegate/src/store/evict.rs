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

use super::limit_versions::LimitsByTag as _;
use super::receipt_table::ReceiptTable;
use super::slot_kind::{SlotKind, SlotState};
use super::table::{Bucket, buckets};
use super::{Full, Guarded, Locked, Store, Vacant, claim};
use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::algorithm::Debt;
use sluicegate_core::pile::Times;
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
const CANDIDATES_MIN: usize = 3;

/// How many keys may move to make a slot free: with one, 4 keys in 10 000 find no room in a store that is nearly full.
const MOVES_MAX: u32 = 2;

/// Where a new key goes.
pub(super) struct Vacancy {
    pub(super) slot: usize,
    /// Who makes room: often the key in that very slot.
    removes: Option<Removal>,
}

/// What was seen.
struct Candidates {
    recovered: Option<usize>,
    least_debt: Option<(Debt, usize)>,
    /// How long until the first of them has recovered; `Span::MAX` if there is none.
    soonest: Span,
    examined: usize,
}

impl Default for Candidates {
    fn default() -> Self {
        Candidates { recovered: None, least_debt: None, soonest: Span::MAX, examined: 0 }
    }
}

struct Removal {
    slot: usize,
    recovered: bool,
}

impl<S: SlotKind> Locked<'_, S> {
    /// Finds room for a key that is not held. `pinned` slots stay, and stay where they are.
    pub(super) fn find_slot(
        &mut self,
        key: Fingerprint,
        now: Time,
        store: &Store<S>,
        pinned: &[usize],
    ) -> Result<Vacancy, Full> {
        let (table, [primary, secondary], deny) = (self.table, buckets(key), store.on_full == OnFull::Deny);
        if let Some(slot) = self.claim_free(key, &store.vacant.keys) {
            return Ok(Vacancy { slot, removes: None });
        }
        // Looking at the whole place is worth it if someone can have recovered since the last look, or to say truly how
        // long it will take.
        let examine_all = deny || now >= self.guarded.none_recovers_before;
        let removable = |slot: &usize| table.is_taken(*slot) && !pinned.contains(slot);
        let mut candidates = Candidates::default();
        self.examine(primary.slots().filter(removable), now, &mut candidates);
        if candidates.recovered.is_none() && (examine_all || candidates.examined < CANDIDATES_MIN) {
            self.examine(secondary.slots().filter(removable), now, &mut candidates);
        }
        if let Some(slot) = candidates.recovered {
            return Ok(Vacancy { slot, removes: Some(Removal { slot, recovered: true }) });
        }
        if let Some(slot) = self.claim_by_moving([primary, secondary], &store.vacant.keys, pinned) {
            return Ok(Vacancy { slot, removes: None });
        }
        // With a free slot near it, the key can take the room of anyone in the place.
        let mut free = table.free_in(primary);
        if examine_all || candidates.examined < CANDIDATES_MIN {
            free = free.or_else(|| self.make_free([primary, secondary], pinned));
            if free.is_some() {
                candidates = if examine_all {
                    self.examine_all(now, pinned)
                } else {
                    self.examine_near(primary, now, pinned)
                };
            }
        }
        let evicted =
            candidates.least_debt.filter(|_| !deny).map(|(_, slot)| Removal { slot, recovered: false });
        let removes = candidates.recovered.map(|slot| Removal { slot, recovered: true }).or(evicted);
        let vacancy =
            removes.map(|removes| Vacancy { slot: free.unwrap_or(removes.slot), removes: Some(removes) });
        vacancy.ok_or(Full(candidates.soonest))
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
        buckets.into_iter().find_map(|bucket| self.make_free_in(bucket, MOVES_MAX, pinned))
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
        let state = S::update(self.state_of(from), mem::take);
        S::update(self.state_of(to), |free| *free = state);
        self.table.clear(from);
    }

    /// Looks at everybody in the place.
    fn examine_all(&mut self, now: Time, pinned: &[usize]) -> Candidates {
        let (table, mut candidates) = (self.table, Candidates::default());
        let removable = |slot: &usize| !pinned.contains(slot);
        self.examine(table.held().filter(removable), now, &mut candidates);
        // Who is pinned was not looked at; and when one recovers that has yet to meet new limits depends on when it does.
        if candidates.recovered.is_none() && pinned.is_empty() && !table.held().any(|slot| self.is_old(slot))
        {
            self.guarded.none_recovers_before = now.after(candidates.soonest);
        }
        self.guarded.displaced = table.displaced();
        candidates
    }

    /// Looks at a few around a bucket, when there are too few in it to choose from.
    fn examine_near(&mut self, bucket: Bucket, now: Time, pinned: &[usize]) -> Candidates {
        let (table, mut candidates) = (self.table, Candidates::default());
        let removable = |slot: &usize| table.is_taken(*slot) && !pinned.contains(slot);
        self.examine(bucket.all_slots().filter(removable).take(CANDIDATES_MIN), now, &mut candidates);
        candidates
    }

    /// Looks for one that has recovered, or else for the one that owes least, and adds that to what was seen before.
    fn examine(&mut self, slots: impl Iterator<Item = usize>, now: Time, candidates: &mut Candidates) {
        for slot in slots {
            candidates.examined += 1;
            let Some(debt) = self.debt(slot, now) else {
                candidates.recovered = Some(slot);
                return;
            };
            candidates.soonest = candidates.soonest.min(debt.recovers_in);
            if candidates.least_debt.is_none_or(|(least, _)| debt < least) {
                candidates.least_debt = Some((debt, slot));
            }
        }
    }

    /// Puts a new key where room was found for it.
    pub(super) fn insert(
        &mut self,
        vacancy: &Vacancy,
        key: Fingerprint,
        now: Time,
        state: S::State,
        vacant: &Vacant,
    ) {
        if let Some(Removal { slot, recovered }) = vacancy.removes {
            if !recovered {
                self.guarded.counts.evicted += 1;
                ReceiptTable::void(&mut self.guarded.receipt_table, self.table.key(slot), &vacant.receipts);
            }
            self.clear(slot);
        }
        self.put(vacancy.slot, key, self.guarded.limits_by_tag.tag_for(key));
        S::update(self.state_of(vacancy.slot), |empty| *empty = state);
        let recovers_in = self.debt(vacancy.slot, now).map_or(Span::ZERO, |debt| debt.recovers_in);
        self.guarded.none_recovers_before = self.guarded.none_recovers_before.min(now.after(recovers_in));
    }

    /// How much a slot's key owes; nothing if it has recovered.
    #[inline]
    pub(super) fn debt(&mut self, slot: usize, now: Time) -> Option<Debt> {
        if self.is_old(slot) {
            return self.debt_under_new_limits(slot, now);
        }
        let (Guarded { limits_by_tag, side_table, .. }, found) = (&mut *self.guarded, self.table.slot(slot));
        S::debt(SlotState { words: found.state, side_table, slot }, limits_by_tag.limits(found.tag()), now)
    }

    /// The same for a key that has not met the current limits: as if it met them now. It does so only with its next call.
    #[cold]
    fn debt_under_new_limits(&mut self, slot: usize, now: Time) -> Option<Debt> {
        let (times, from) = (Times { now, latest: self.guarded.latest }, self.table.slot(slot).tag());
        let mut state = S::read(self.state_of(slot), Clone::clone);
        let (limits_by_tag, tag) =
            (&self.guarded.limits_by_tag, self.guarded.limits_by_tag.tag_for(self.table.key(slot)));
        limits_by_tag.adopt(&mut state, from, tag, times);
        S::debt_of(&state, limits_by_tag.limits(tag), now)
    }
}
