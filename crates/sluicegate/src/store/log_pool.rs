//! How many log entries the keys of a store may hold, and which keys make room for more.
//!
//! A log takes 16 bytes per recorded call, so `max_keys` alone does not bound memory in bytes. The
//! entries for which logs have allocated memory are a pool, divided between scopes as keys are
//! (`shares.rs`).
//!
//! ```text
//! Invariant  The pool's count is the capacity of all logs in slots. A log that needs more claims a
//!            block first; a call that fits into the log's memory does not touch the pool.
//! Full       1. logs that are fully recovered are dropped, in the key's shard and some others
//!            2. under `OnFull::Evict`, logs are evicted, those with the least used cost first: of
//!               scopes that exceed their share, or of the same scope if it has used up its own
//!            3. a scope within its share takes the spare part
//!            4. the call is denied for lack of room
//! Search     A search visits 64 shards, and the next search the following 64. After a search that
//!            found too little, the next one waits a millisecond. So a store of a million keys is
//!            searched within 82 ms, and until then a call may be denied although logs elsewhere
//!            could make room.
//! Settle     A settlement charges in any case. If there is no room for its entry, it is merged with
//!            the latest one, which then counts for longer. Only a log without entries exceeds the
//!            pool, by one entry.
//! ```

use super::evict::{Demand, harm};
use super::limit_versions::LimitsByTag as _;
use super::shares::{Pool, Share};
use super::slot_kind::SlotKind;
use super::{Full, Locked, Store, Vacancy, Vacant};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::algorithm::Algorithm as _;
use sluicegate_core::{FullPool, Span, Time};
use std::cmp::Reverse;
use std::sync::Arc;

/// How many shards a search for log entries visits: about 50 µs.
const SHARDS_PER_SEARCH: usize = 64;

/// A search ends once it has found this many logs to choose from, if they free enough.
const CANDIDATES_MIN: usize = 16;

/// A log that may be evicted.
struct Candidate {
    /// The least is evicted first: of the scope that exceeds its share by most, the least harm.
    order: (Reverse<usize>, (u64, Span)),
    shard: Option<usize>,
    slot: usize,
    key: Fingerprint,
    entries: usize,
}

/// What a search has found.
struct Search<'a> {
    demand: &'a Demand,
    now: Time,
    candidates: Vec<Candidate>,
    /// The scopes of the candidates, and by how much each exceeded its share when first seen.
    scopes: Vec<(u64, usize)>,
    /// The time until the first examined log has recovered.
    soonest: Span,
}

impl<S: SlotKind> Store<S> {
    /// Makes room in the logs of a key for a call of this cost.
    #[inline]
    pub(super) fn make_log_room(
        &self,
        shard: &mut Locked<'_, S>,
        slot: usize,
        now: Time,
        cost: u64,
    ) -> Result<(), Full> {
        let growth = shard.with_slot(slot, |limits, states| {
            limits.iter().zip(states).map(|(limit, state)| limit.growth(state, now, cost)).sum()
        });
        if growth == 0 {
            return Ok(());
        }
        let tag = shard.table.slot(slot).tag();
        self.claim_log_entries(shard, tag, growth, now, &[slot])?;
        shard.with_slot(slot, |limits, states| {
            for (limit, state) in limits.iter().zip(states) {
                let growth = limit.growth(state, now, cost);
                limit.grow(state, growth);
            }
        });
        Ok(())
    }

    /// Finds a slot for a new key with this state, and claims its log entries.
    pub(super) fn slot_with_entries(
        &self,
        shard: &mut Locked<'_, S>,
        key: Fingerprint,
        tag: u16,
        now: Time,
        state: &S::State,
    ) -> Result<Vacancy, Full> {
        let entries = S::log_capacity(state);
        self.claim_log_entries(shard, tag, entries, now, &[])?;
        let vacancy = shard.find_slot(key, now, self, &[]);
        if vacancy.is_err() {
            shard.log_entries_of_tag_changed(tag, entries, 0, &self.vacant);
        }
        vacancy
    }

    /// Claims log entries for a key with this tag. Keys in `pinned` slots of the shard stay.
    #[inline]
    pub(super) fn claim_log_entries(
        &self,
        shard: &mut Locked<'_, S>,
        tag: u16,
        entries: usize,
        now: Time,
        pinned: &[usize],
    ) -> Result<(), Full> {
        if entries == 0 {
            return Ok(());
        }
        let owner = shard.guarded.limits_by_tag.share(tag);
        let demand = Demand::new(owner, self.on_full, Pool::LogEntries, entries);
        if self.try_claim(&demand, entries) {
            return Ok(());
        }
        self.search_log_entries(shard, &demand, entries, now, pinned)
    }

    /// Claims the entries that the logs of a key have grown by. A settlement charges even what
    /// exceeds the limit. If there is no room for an entry of its own, it shares that of the latest
    /// call.
    pub(super) fn claim_settled(&self, shard: &mut Locked<'_, S>, slot: usize, now: Time, before: &[usize]) {
        let (held, now_held) = (before.iter().sum(), shard.log_capacity(slot));
        let tag = shard.table.slot(slot).tag();
        if now_held > held {
            if self.claim_log_entries(shard, tag, now_held - held, now, &[slot]).is_ok() {
                return;
            }
            shard.with_slot(slot, |limits, states| {
                for ((limit, state), before) in limits.iter().zip(states).zip(before) {
                    if limit.log_capacity(state) > *before {
                        limit.merge_newest(state);
                    }
                }
            });
        }
        let now_held = shard.log_capacity(slot);
        shard.log_entries_changed(slot, held, now_held, &self.vacant);
    }

    fn try_claim(&self, demand: &Demand, entries: usize) -> bool {
        demand.try_claim(demand.spares(), &self.vacant.log_entries, self.log_pool.max, entries)
    }

    /// Drops and evicts logs until there is room.
    #[cold]
    fn search_log_entries(
        &self,
        own: &mut Locked<'_, S>,
        demand: &Demand,
        entries: usize,
        now: Time,
        pinned: &[usize],
    ) -> Result<(), Full> {
        // Shares may have room now that recovered logs are dropped.
        let again = || Demand::new(demand.share.as_ref(), self.on_full, Pool::LogEntries, entries);
        let mut search =
            Search { demand, now, candidates: Vec::new(), scopes: Vec::new(), soonest: Span::MAX };
        search.visit(own, None, pinned, &self.vacant);
        let shards = self.shards.len();
        let is_due = demand.is_search_due(&self.log_pool.search_at, now);
        let visited = if is_due { SHARDS_PER_SEARCH.min(shards) } else { 0 };
        for _ in 0..visited {
            if self.try_claim(&again(), entries) {
                return Ok(());
            }
            let found: usize = search.candidates.iter().map(|candidate| candidate.entries).sum();
            if search.candidates.len() >= CANDIDATES_MIN && found >= entries {
                break;
            }
            let index = self.log_pool.next_shard(shards);
            // Locked shards are skipped: the caller holds one, and must not wait for another.
            if let Some(mut shard) = self.try_lock(index) {
                search.visit(&mut shard, Some(index), &[], &self.vacant);
            }
        }
        search.candidates.sort_by_key(|candidate| candidate.order);
        for candidate in &search.candidates {
            if self.try_claim(&again(), entries) {
                return Ok(());
            }
            match candidate.shard {
                None => self.evict_log(own, candidate, &again()),
                Some(index) => {
                    if let Some(mut shard) = self.try_lock(index) {
                        self.evict_log(&mut shard, candidate, &again());
                    }
                }
            }
        }
        if self.try_claim(&again(), entries) {
            return Ok(());
        }
        demand.found_none(&self.log_pool.search_at, now);
        self.log_pool.no_room.fetch_add(1, Ordering::Relaxed);
        let wait = if search.soonest < Span::MAX { search.soonest } else { Span::ZERO };
        Err(Full { pool: FullPool::LogEntries, wait })
    }

    /// Evicts a log, unless its slot has a new key or its scope is within its share by now.
    fn evict_log(&self, shard: &mut Locked<'_, S>, candidate: &Candidate, demand: &Demand) {
        let slot = candidate.slot;
        if !shard.table.is_taken(slot)
            || !shard.table.key(slot).is(candidate.key)
            || !demand.may_evict(shard.share_of(slot))
        {
            return;
        }
        let entries = shard.log_capacity(slot);
        shard.void_receipts(shard.table.key(slot), &self.vacant);
        shard.clear(slot, &self.vacant);
        shard.guarded.counts.evicted += 1;
        self.vacant.keys.fetch_add(1, Ordering::Relaxed);
        self.log_pool.evicted.fetch_add(entries as u64, Ordering::Relaxed);
    }
}

impl Search<'_> {
    /// By how much a scope exceeds its share: one number per search, so that all logs of a scope
    /// are compared by their debts.
    fn excess(&mut self, share: Option<&Arc<Share>>) -> usize {
        let Some(share) = share else { return 0 };
        if let Some((_, excess)) = self.scopes.iter().find(|(id, _)| *id == share.id) {
            return *excess;
        }
        let excess = share.excess(Pool::LogEntries);
        self.scopes.push((share.id, excess));
        excess
    }

    /// Drops the recovered logs of a shard, and notes those that may be evicted.
    fn visit<S: SlotKind>(
        &mut self,
        shard: &mut Locked<'_, S>,
        index: Option<usize>,
        pinned: &[usize],
        vacant: &Vacant,
    ) {
        for slot in shard.table.held() {
            let entries = if pinned.contains(&slot) { 0 } else { shard.log_capacity(slot) };
            let owner = shard.share_of(slot).cloned();
            let owner = owner.as_ref();
            let (replaceable, evictable) = (self.demand.may_replace(owner), self.demand.may_evict(owner));
            if entries == 0 || !replaceable {
                continue;
            }
            let Some(debt) = shard.debt(slot, self.now) else {
                shard.clear(slot, vacant);
                vacant.keys.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            self.soonest = self.soonest.min(debt.recovers_in);
            if evictable && !self.demand.deny {
                let order = (Reverse(self.excess(owner)), harm(&debt, owner));
                let key = shard.table.key(slot);
                self.candidates.push(Candidate { order, shard: index, slot, key, entries });
            }
        }
    }
}

impl<S: SlotKind> Locked<'_, S> {
    /// The log entries for which the key in a slot has memory.
    #[inline]
    pub(super) fn log_capacity(&mut self, slot: usize) -> usize {
        S::read(self.state_of(slot), S::log_capacity)
    }

    /// Counts a change of a slot's log entries that was not claimed.
    #[inline]
    pub(super) fn log_entries_changed(&self, slot: usize, before: usize, after: usize, vacant: &Vacant) {
        if before != after {
            self.log_entries_of_tag_changed(self.table.slot(slot).tag(), before, after, vacant);
        }
    }

    fn log_entries_of_tag_changed(&self, tag: u16, before: usize, after: usize, vacant: &Vacant) {
        // The count wraps around while a settlement exceeds the pool, and is exact again
        // afterwards.
        vacant.log_entries.fetch_add(before.wrapping_sub(after), Ordering::Relaxed);
        if let Some(share) = self.guarded.limits_by_tag.share(tag) {
            share.added(Pool::LogEntries, after.wrapping_sub(before));
        }
    }
}
