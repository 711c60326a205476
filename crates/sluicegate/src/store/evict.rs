//! Which key makes room for a new one.
//!
//! ```text
//! 1. a free slot in one of the key's two buckets, while the store holds fewer than max_keys
//! 2. a recovered key in them: dropping it is unobservable
//! 3. while the store holds fewer, a slot freed by moving up to two keys to their other buckets
//! 4. a recovered key anywhere in the shard, if there can be one
//! 5. of at least three keys around the new one, the one whose eviction would admit the least
//!    again: the one with the least used cost; of equals, the one that recovers first
//!    (or none, if the store denies new keys)
//! ```
//!
//! So the keys of a flood, each with a little debt, evict each other, and an offender at the limit
//! stays. A key with a larger limit than others, that has used more than they can, stays too,
//! however small a share of its limit that is.
//!
//! In a store that several limiters share, a flood evicts keys of its own scope only: `shares.rs`
//! says what each scope may hold, and step 5 considers only keys of scopes that exceed their share.
//! Costs of different scopes may be in different units. So of the scopes that exceed their share,
//! the one that does so by most loses a key. Among untrusted limits, which share one part and
//! differ from caller to caller, the used part of the limit counts instead of the used cost.
//!
//! # What an evicted key leaves behind
//!
//! Nothing. Where a single call uses the whole limit (`min-interval`, 1 per day) every key that has
//! called has the same debt, and a flood of the same scope evicts the ones that recover first. A
//! sketch of evicted keys could make them return as used up, but every entry of a sketch is shared
//! by other keys: a flood that evicts its own keys would fill it, and newcomers would be denied for
//! calls they never made. Denying them is what `OnFull::Deny` does on purpose, within the scope.

use super::limit_versions::LimitsByTag as _;
use super::shares::{Pool, Share};
use super::slot_kind::{SlotKind, SlotState};
use super::table::{TableBucket, buckets};
use super::{Full, Guarded, Locked, Store, Vacant, claim_beyond};
use crate::key::Fingerprint;
use crate::sync::{AtomicUsize, Ordering};
use sluicegate_core::algorithm::Debt;
use sluicegate_core::{FullPool, Span, Time};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What a store that is full of keys that have not recovered does with a new key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum OnFull {
    /// Evicts the key with the least debt among those around the new one; in a `MemoryStore`, only
    /// keys of scopes that exceed their share. Use this if new callers must get in, and watch
    /// `evicted` in [`crate::StoreStats`].
    #[default]
    Evict,
    /// Denies calls on the new key until there is room; in a `MemoryStore`, until there is room in
    /// its scope's share. Use this if no debt may be lost, or if one call uses the whole limit.
    Deny,
}

/// With three candidates an offender keeps its slot (tests/it/bounded.rs); each further one is
/// another slot to read.
const CANDIDATES_MIN: usize = 3;

/// How many keys may move to free a slot. With one, 4 in 10 000 new keys find no room in a store
/// that is nearly full.
const MOVES_MAX: u32 = 2;

/// The longest time between two searches of a whole shard: after a step of UTC, keys of windows
/// that are aligned to UTC may recover sooner than they reported.
const SEARCH_INTERVAL_MAX: Span = Span::from_micros(10_000_000);

/// After a search of several shards that found no room, the next one of the scope waits this long.
const SEARCH_INTERVAL_MICROS: u64 = 1_000;

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

/// The room that a new key may take, by its share and the store's setting.
pub(super) struct Demand {
    /// `None` in the store of one limiter, where a key may take any room and evict any key.
    pub(super) share: Option<Arc<Share>>,
    /// Whether the share has room for the key.
    pub(super) within: bool,
    pub(super) deny: bool,
    pool: Pool,
}

/// The cost that evicting a key would admit again, comparable within its share. Then the time until
/// it recovers.
///
/// Untrusted limits have one share, and each caller makes its own. There it is the used part of
/// the limit: otherwise large limits, of which little is used, would evict keys at small ones.
pub(super) fn harm(debt: &Debt, share: Option<&Arc<Share>>) -> (u64, Span) {
    let is_untrusted = share.is_some_and(|share| share.is_untrusted());
    (if is_untrusted { debt.share } else { debt.used }, debt.recovers_in)
}

impl Demand {
    pub(super) fn new(share: Option<&Arc<Share>>, on_full: OnFull, pool: Pool, more: usize) -> Demand {
        let share = share.cloned();
        let within = share.as_ref().is_none_or(|share| share.has_room(pool, more));
        Demand { share, within, deny: on_full == OnFull::Deny, pool }
    }

    /// Returns how much room the new key must leave free.
    pub(super) fn spares(&self) -> usize {
        match &self.share {
            Some(_) if !self.within && self.deny => usize::MAX,
            Some(share) if !self.within => share.spare(self.pool),
            _ => 0,
        }
    }

    /// Claims room for `more` in a pool, and leaves `spares` free. Of the pool's `max`, `left` is
    /// free.
    pub(super) fn try_claim(&self, spares: usize, left: &AtomicUsize, max: usize, more: usize) -> bool {
        let needed = spares.saturating_add(more);
        // A count above the maximum has wrapped: a settlement has exceeded the pool of log entries.
        let less = |left: usize| (needed..=max).contains(&left).then(|| left - more);
        let claimed = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if let Some(share) = self.share.as_ref().filter(|_| claimed) {
            share.added(self.pool, more);
        }
        claimed
    }

    /// Returns `true` if a search for room is due, after one that found none.
    pub(super) fn is_search_due(&self, of_store: &AtomicU64, now: Time) -> bool {
        let (at, now) = (self.search_at(of_store).load(Ordering::Relaxed), now.as_micros());
        // If the clock has stepped back, do not wait for longer than the interval.
        now >= at || now + SEARCH_INTERVAL_MICROS < at
    }

    /// Records that a search has found no room.
    pub(super) fn found_none(&self, of_store: &AtomicU64, now: Time) {
        self.search_at(of_store).store(now.as_micros() + SEARCH_INTERVAL_MICROS, Ordering::Relaxed);
    }

    fn search_at<'a>(&'a self, of_store: &'a AtomicU64) -> &'a AtomicU64 {
        self.share.as_ref().map_or(of_store, |share| share.search_at(self.pool))
    }

    pub(super) fn is_own(&self, other: Option<&Arc<Share>>) -> bool {
        self.share.as_ref().zip(other).is_none_or(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Returns `true` if the new key may replace a recovered key of a share.
    pub(super) fn may_replace(&self, other: Option<&Arc<Share>>) -> bool {
        self.within || !self.deny || self.is_own(other)
    }

    /// Returns `true` if of two keys that may be evicted the first should be.
    pub(super) fn prefers(
        &self,
        (debt, share): (&Debt, Option<&Arc<Share>>),
        (other_debt, other_share): (&Debt, Option<&Arc<Share>>),
    ) -> bool {
        let order = match share.zip(other_share) {
            Some((share, other)) if !Arc::ptr_eq(share, other) => {
                let by_excess = other.excess(self.pool).cmp(&share.excess(self.pool));
                by_excess.then(debt.share.cmp(&other_debt.share))
            }
            _ => harm(debt, share).cmp(&harm(other_debt, other_share)),
        };
        order.is_lt()
    }

    /// Returns `true` if the new key may evict a key of a share.
    pub(super) fn may_evict(&self, other: Option<&Arc<Share>>) -> bool {
        match other {
            None => true,
            Some(other) if self.is_own(Some(other)) => !self.within,
            Some(other) => other.is_exceeded(self.pool),
        }
    }
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
        let (table, [primary, secondary]) = (self.table, buckets(key));
        let tag = self.guarded.limits_by_tag.tag_for(key);
        let demand = Demand::new(self.guarded.limits_by_tag.share(tag), store.on_full, Pool::Keys, 1);
        let (vacant, spares) = (&store.vacant.keys, demand.spares());
        if let Some(slot) = self.claim_free(key, vacant, spares) {
            return Ok(Vacancy { slot, removes: None });
        }
        // The whole shard is examined only if a key can have recovered since the last time, or to
        // report the exact wait.
        let examine_all = demand.deny || now >= self.guarded.none_recovers_before;
        let removable = |slot: &usize| table.is_taken(*slot) && !pinned.contains(slot);
        let mut candidates = Candidates::default();
        self.examine(primary.slots().filter(removable), now, &demand, &mut candidates);
        if candidates.recovered.is_none() && (examine_all || candidates.examined < CANDIDATES_MIN) {
            self.examine(secondary.slots().filter(removable), now, &demand, &mut candidates);
        }
        if let Some(slot) = candidates.recovered {
            return Ok(Vacancy { slot, removes: Some(Removal { slot, recovered: true }) });
        }
        if let Some(slot) = self.claim_by_moving([primary, secondary], vacant, spares, pinned) {
            return Ok(Vacancy { slot, removes: None });
        }
        // With a free slot nearby, the new key can replace any key of the shard.
        let mut free = table.free_in(primary);
        if examine_all || candidates.examined < CANDIDATES_MIN {
            free = free.or_else(|| self.make_free([primary, secondary], pinned));
            if free.is_some() {
                candidates = if examine_all {
                    self.examine_all(now, &demand, pinned)
                } else {
                    self.examine_near(primary, now, &demand, pinned)
                };
            }
        }
        let evicted = candidates.least_debt.filter(|_| !demand.deny);
        let evicted = evicted.map(|(_, slot)| Removal { slot, recovered: false });
        let removes = candidates.recovered.map(|slot| Removal { slot, recovered: true }).or(evicted);
        if let Some(removes) = removes {
            return Ok(Vacancy { slot: free.unwrap_or(removes.slot), removes: Some(removes) });
        }
        // If the shard has no key that could make room, the wait is unknown.
        let is_known = demand.share.is_none() || candidates.soonest < Span::MAX;
        let wait = if is_known { candidates.soonest } else { Span::ZERO };
        self.find_slot_elsewhere(&demand, [primary, secondary], now, store, pinned)
            .ok_or(Full { pool: FullPool::Keys, wait })
    }

    /// Makes room for a key that has a share and finds nothing to remove in its shard: first by
    /// dropping recovered keys in other shards, then from the spare room and, if its share has
    /// room, by evicting any key of the shard.
    #[cold]
    fn find_slot_elsewhere(
        &mut self,
        demand: &Demand,
        buckets: [TableBucket; 2],
        now: Time,
        store: &Store<S>,
        pinned: &[usize],
    ) -> Option<Vacancy> {
        let share = demand.share.as_ref()?;
        if share.is_sweep_due(now) {
            store.drop_recovered(share, now);
        }
        let demand = Demand::new(Some(share), store.on_full, Pool::Keys, 1);
        let spares = if demand.deny { demand.spares() } else { 0 };
        if let Some(slot) = self.claim_by_moving(buckets, &store.vacant.keys, spares, pinned) {
            return Some(Vacancy { slot, removes: None });
        }
        if demand.deny || !demand.within {
            return None;
        }
        // This demand may evict every key, whatever its share.
        let anything = Demand { share: None, within: false, deny: false, pool: Pool::Keys };
        let free = self.make_free(buckets, pinned);
        let nearby = if free.is_some() {
            self.examine_near(buckets[0], now, &anything, pinned)
        } else {
            let (table, mut nearby) = (self.table, Candidates::default());
            let slots = buckets.into_iter().flat_map(TableBucket::slots);
            let removable = slots.filter(|slot| table.is_taken(*slot) && !pinned.contains(slot));
            self.examine(removable, now, &anything, &mut nearby);
            nearby
        };
        let recovered = nearby.recovered.is_some();
        let slot = nearby.recovered.or(nearby.least_debt.map(|(_, slot)| slot))?;
        Some(Vacancy { slot: free.unwrap_or(slot), removes: Some(Removal { slot, recovered }) })
    }

    /// Claims a free slot, and capacity for one more key.
    fn claim_free(&self, key: Fingerprint, vacant: &AtomicUsize, spares: usize) -> Option<usize> {
        // Without capacity no slot needs to be searched.
        if vacant.load(Ordering::Relaxed) <= spares {
            return None;
        }
        self.table.free(key).filter(|_| claim_beyond(spares, vacant))
    }

    /// Claims a slot, and capacity for one more key, when both buckets are full: some of their keys
    /// are moved to their other buckets.
    fn claim_by_moving(
        &mut self,
        buckets: [TableBucket; 2],
        vacant: &AtomicUsize,
        spares: usize,
        pinned: &[usize],
    ) -> Option<usize> {
        if !claim_beyond(spares, vacant) {
            return None;
        }
        let slot = self.make_free(buckets, pinned);
        if slot.is_none() {
            vacant.fetch_add(1, Ordering::Relaxed);
        }
        slot
    }

    /// A free slot in one of two buckets. If both are full, keys are moved to their other buckets.
    fn make_free(&mut self, buckets: [TableBucket; 2], pinned: &[usize]) -> Option<usize> {
        buckets.into_iter().find_map(|bucket| self.make_free_in(bucket, MOVES_MAX, pinned))
    }

    fn make_free_in(&mut self, bucket: TableBucket, moves: u32, pinned: &[usize]) -> Option<usize> {
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
    fn examine_all(&mut self, now: Time, demand: &Demand, pinned: &[usize]) -> Candidates {
        let (table, mut candidates) = (self.table, Candidates::default());
        let removable = |slot: &usize| !pinned.contains(slot);
        self.examine(table.held().filter(removable), now, demand, &mut candidates);
        // Pinned keys were not examined, and when a key recovers that is not converted to new
        // limits yet depends on when it is converted.
        if candidates.recovered.is_none() && pinned.is_empty() && !table.held().any(|slot| self.is_old(slot))
        {
            self.guarded.none_recovers_before =
                now.saturating_add(candidates.soonest.min(SEARCH_INTERVAL_MAX));
        }
        self.guarded.displaced = table.displaced();
        candidates
    }

    /// Examines a few keys around a bucket that has too few itself.
    fn examine_near(
        &mut self,
        bucket: TableBucket,
        now: Time,
        demand: &Demand,
        pinned: &[usize],
    ) -> Candidates {
        let (table, mut candidates) = (self.table, Candidates::default());
        for slot in bucket.all_slots().filter(|slot| table.is_taken(*slot) && !pinned.contains(slot)) {
            if candidates.examined >= CANDIDATES_MIN || candidates.recovered.is_some() {
                break;
            }
            if demand.may_evict(self.share_of(slot)) {
                self.examine([slot].into_iter(), now, demand, &mut candidates);
            }
        }
        candidates
    }

    /// Searches for a recovered key, or else for the one with the least debt, among those that may
    /// be removed for the new key.
    fn examine(
        &mut self,
        slots: impl Iterator<Item = usize>,
        now: Time,
        demand: &Demand,
        candidates: &mut Candidates,
    ) {
        for slot in slots {
            let share = self.share_of(slot);
            let (replaceable, evictable) = (demand.may_replace(share), demand.may_evict(share));
            if !replaceable {
                continue;
            }
            let Some(debt) = self.debt(slot, now) else {
                candidates.recovered = Some(slot);
                return;
            };
            let returns_in = self.next_return(slot).map_or(Span::MAX, |at| at.since(now));
            candidates.soonest = candidates.soonest.min(debt.recovers_in).min(returns_in);
            if !evictable {
                continue;
            }
            candidates.examined += 1;
            let is_least = candidates.least_debt.is_none_or(|(least, of)| {
                demand.prefers((&debt, self.share_of(slot)), (&least, self.share_of(of)))
            });
            if is_least {
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
                self.void_receipts(self.table.key(slot), vacant);
            }
            self.clear(slot, vacant);
        }
        self.put(vacancy.slot, key, self.guarded.limits_by_tag.tag_for(key));
        if let Some(share) = self.share_of(vacancy.slot) {
            share.added(Pool::Keys, 1);
        }
        S::update(self.state_of(vacancy.slot), |empty| *empty = state);
        let recovers_in = self.debt(vacancy.slot, now).map_or(Span::ZERO, |debt| debt.recovers_in);
        self.guarded.none_recovers_before =
            self.guarded.none_recovers_before.min(now.saturating_add(recovers_in));
    }

    /// The debt of a slot's key; `None` if it has recovered.
    #[inline]
    pub(super) fn debt(&mut self, slot: usize, now: Time) -> Option<Debt> {
        if self.is_old(slot) || self.has_expired(self.table.key(slot), now) {
            return self.debt_if_changed(slot, now);
        }
        let (Guarded { limits_by_tag, side_table, .. }, found) = (&mut *self.guarded, self.table.slot(slot));
        S::debt(SlotState { words: found.state, side_table, slot }, limits_by_tag.limits(found.tag()), now)
    }

    /// The debt of a key that has expired receipts, or has not been converted to the current
    /// limits, as if it were changed now. Only its next call does that.
    #[cold]
    fn debt_if_changed(&mut self, slot: usize, now: Time) -> Option<Debt> {
        let key = self.table.key(slot);
        let state = self.copy(key, now);
        let limits_by_tag = &self.guarded.limits_by_tag;
        S::debt_of(&state, limits_by_tag.limits(limits_by_tag.tag_for(key)), now)
    }
}

/// How many shards a key that finds no room in its own sweeps for recovered keys of its share.
const SHARDS_PER_SWEEP: usize = 16;

impl<S: SlotKind> Store<S> {
    /// Drops the recovered keys of a share in a few shards; the next call continues with the
    /// following shards. A share may be so small that its recovered keys are all in other shards
    /// than a new key.
    ///
    /// Shards that are locked are skipped: the caller holds one, and must not wait for another.
    fn drop_recovered(&self, share: &Arc<Share>, now: Time) {
        let shards = self.shards.len();
        let from = self.next_share_sweep.fetch_add(SHARDS_PER_SWEEP, Ordering::Relaxed);
        for index in (0..SHARDS_PER_SWEEP.min(shards)).map(|step| from.wrapping_add(step) % shards) {
            let Some(mut locked) = self.try_lock(index) else { continue };
            for slot in locked.table.held() {
                let is_own = locked.share_of(slot).is_some_and(|other| Arc::ptr_eq(other, share));
                if is_own && locked.debt(slot, now).is_none() {
                    locked.clear(slot, &self.vacant);
                    self.vacant.keys.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}
