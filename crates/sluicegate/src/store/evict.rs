//! Which key makes room for a new one.
//!
//! ```text
//! 1. a free slot in one of the key's two buckets, while the store holds fewer than max_keys
//! 2. a recovered key in them: dropping it is unobservable
//! 3. while the store holds fewer, a slot freed by moving up to two keys to their other buckets
//! 4. a recovered key anywhere in the shard, if there can be one
//! 5. of at least three keys around the new one, the one with the least debt, as a share of its
//!    limit; of equals, the one that recovers first (or none, if the store denies new keys)
//! ```
//!
//! So a flood of new keys, each with a little debt, evicts its own kind, and an offender at the
//! limit stays. Where a single call uses the whole limit (`min-interval`, 1 per day) every key that
//! has called has the same debt, and the one that recovers first is evicted: there only
//! `OnFull::Deny` helps.

use super::limit_versions::LimitsByTag as _;
use super::receipt_table::ReceiptTable;
use super::slot_kind::{SlotKind, SlotState};
use super::table::{Bucket, buckets};
use super::{Full, Guarded, Locked, Store, Vacant, claim};
use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::algorithm::Debt;
use sluicegate_core::rollback::Times;
use sluicegate_core::{Span, Time};
use std::mem;

/// What a store that is full of keys that have not recovered does with a new key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum OnFull {
    /// Evicts the key with the least debt among those around the new one. Use this if new callers
    /// must get in, and watch `evicted` in [`crate::StoreStats`].
    #[default]
    Evict,
    /// Denies calls on the new key until there is room. Use this if no debt may be lost, or if one
    /// call uses the whole limit.
    Deny,
}

/// With three candidates an offender keeps its slot (tests/it/bounded.rs); each further one is
/// another slot to read.
const CANDIDATES_MIN: usize = 3;

/// How many keys may move to free a slot. With one, 4 in 10 000 new keys find no room in a store
/// that is nearly full.
const MOVES_MAX: u32 = 2;

/// The slot for a new key.
pub(super) struct Vacancy {
    pub(super) slot: usize,
    /// The key to remove first, often the one in that slot.
    removes: Option<Removal>,
}

/// The result of examining slots.
struct Candidates {
    recovered: Option<usize>,
    least_debt: Option<(Debt, usize)>,
    /// The time until the first examined key has recovered; `Span::MAX` if none was examined.
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
    /// Finds a slot for a key that has none. Keys in `pinned` slots are neither removed nor moved.
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
        // The whole shard is examined only if a key can have recovered since the last time, or to
        // report the exact wait.
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
        // With a free slot nearby, the new key can replace any key of the shard.
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

    /// Claims a free slot, and capacity for one more key.
    fn claim_free(&self, key: Fingerprint, vacant: &AtomicUsize) -> Option<usize> {
        // Without capacity no slot needs to be searched.
        if vacant.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.table.free(key).filter(|_| claim(vacant))
    }

    /// Claims a slot, and capacity for one more key, when both buckets are full: keys of theirs are
    /// moved to their other buckets.
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

    /// A free slot in one of two buckets. If both are full, keys are moved to their other buckets.
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

    /// Examines all keys of the shard.
    fn examine_all(&mut self, now: Time, pinned: &[usize]) -> Candidates {
        let (table, mut candidates) = (self.table, Candidates::default());
        let removable = |slot: &usize| !pinned.contains(slot);
        self.examine(table.held().filter(removable), now, &mut candidates);
        // Pinned keys were not examined, and a key that has not been converted to new limits yet
        // recovers at a time that depends on when it is.
        if candidates.recovered.is_none() && pinned.is_empty() && !table.held().any(|slot| self.is_old(slot))
        {
            self.guarded.none_recovers_before = now.saturating_add(candidates.soonest);
        }
        self.guarded.displaced = table.displaced();
        candidates
    }

    /// Examines a few keys around a bucket that has too few itself.
    fn examine_near(&mut self, bucket: Bucket, now: Time, pinned: &[usize]) -> Candidates {
        let (table, mut candidates) = (self.table, Candidates::default());
        let removable = |slot: &usize| table.is_taken(*slot) && !pinned.contains(slot);
        self.examine(bucket.all_slots().filter(removable).take(CANDIDATES_MIN), now, &mut candidates);
        candidates
    }

    /// Searches for a recovered key, or else for the one with the least debt.
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

    /// Inserts a new key into the slot that was found for it.
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
        self.guarded.none_recovers_before =
            self.guarded.none_recovers_before.min(now.saturating_add(recovers_in));
    }

    /// The debt of a slot's key; `None` if it has recovered.
    #[inline]
    pub(super) fn debt(&mut self, slot: usize, now: Time) -> Option<Debt> {
        if self.is_old(slot) {
            return self.debt_under_new_limits(slot, now);
        }
        let (Guarded { limits_by_tag, side_table, .. }, found) = (&mut *self.guarded, self.table.slot(slot));
        S::debt(SlotState { words: found.state, side_table, slot }, limits_by_tag.limits(found.tag()), now)
    }

    /// The debt of a key that has not been converted to the current limits, as if it were converted
    /// now. Only its next call converts it.
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
