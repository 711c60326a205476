//! How many receipts may be open in a store, and which make room for more.
//!
//! Open receipts are a pool, divided between scopes as keys are (`shares.rs`). The states of keys
//! are not affected: dropping a receipt leaves its charge as it is, so it never creates credit. The
//! caller only loses the right to return the rest, or to report an excess.
//!
//! ```text
//! Expired  A receipt expires when it is at least an hour old and its cost no longer counts. Every
//!          reservation visits a few keys of its shard, and drops the expired receipts.
//! Full     1. expired receipts of any scope are dropped
//!          2. under `OnFull::Evict`, also younger ones whose cost no longer counts: those of
//!             scopes that exceed their share, and of the same scope if it has used up its own. (An
//!             excess can still be reported for them, so a scope within its share keeps them.)
//!          3. under `OnFull::Evict`, a scope within its share takes back what it has lent: the
//!             oldest receipts of a scope that exceeds its own
//!          4. a scope within its share takes the spare part
//!          5. the reservation is an error
//! Search   A search visits up to 256 keys, and the next search the following ones. A scope that
//!          exceeds its share searches at most once per millisecond. A scope within its share uses
//!          a receipt of the spare part for each search that finds nothing; there are enough of
//!          them for searches of all shards.
//! ```

use super::evict::Demand;
use super::limit_versions::LimitsByTag as _;
use super::receipt_table::KeyReceipts;
use super::shares::{Pool, Share};
use super::slot_kind::{SlotKind, SlotState};
use super::{Guarded, Locked, Store, Vacant};
use crate::key::Fingerprint;
use crate::sync::Ordering;
use sluicegate_core::receipts::Receipts;
use sluicegate_core::{Span, Time};
use std::sync::Arc;

/// Receipts are kept for at least an hour.
const KEPT_AT_LEAST: Span = Span::from_micros(3_600_000_000);

/// How many keys a search visits in all, and in one shard: about 50 µs.
const KEYS_PER_SEARCH: usize = 256;
const KEYS_PER_SHARD: usize = 32;

/// How many shards a search visits: about 20 µs, as nearly all shards of a large store have no
/// receipts.
const SHARDS_PER_SEARCH: usize = 512;

/// If its shard has this many keys with receipts, a reservation visits some of them: more than the
/// one key that it may add.
const TIDY_FROM: usize = 32;
const KEYS_PER_RESERVATION: usize = 2;

/// How many receipts of one key are taken back at once.
const TAKEN_BACK_MAX: usize = 16;

/// The oldest receipt of a borrower that a search has found.
struct Lent {
    made: Time,
    shard: Option<usize>,
    key: Fingerprint,
}

impl<S: SlotKind> Store<S> {
    /// Claims room for one receipt of a key with this tag.
    pub(super) fn claim_receipt(&self, shard: &mut Locked<'_, S>, tag: u16, now: Time) -> bool {
        let owner = shard.guarded.limits_by_tag.share(tag);
        let demand = Demand::new(owner, self.on_full, Pool::Receipts, 1);
        self.try_claim_lendable(&demand) || self.search_receipts(shard, &demand, now)
    }

    /// Claims room for a receipt, but not from the spare part.
    fn try_claim_lendable(&self, demand: &Demand) -> bool {
        let spare = demand.share.as_ref().map_or(0, |share| share.spare(Pool::Receipts));
        demand.try_claim(demand.spares().max(spare), &self.vacant.receipts, self.receipt_pool.max, 1)
    }

    /// Drops receipts until there is room.
    #[cold]
    fn search_receipts(&self, own: &mut Locked<'_, S>, demand: &Demand, now: Time) -> bool {
        let pool = &self.receipt_pool;
        // Shares may have room now that receipts are dropped.
        let again = || Demand::new(demand.share.as_ref(), self.on_full, Pool::Receipts, 1);
        let takes_back = demand.share.is_some() && demand.within;
        let is_due = takes_back || demand.is_search_due(&pool.search_at, now);
        let mut lent = None;
        let mut keys = own.drop_worthless(KEYS_PER_SHARD, now, demand, self, None, &mut lent);
        let shards = self.shards.len();
        // A search visits enough shards that the spare receipts last until all shards have been
        // searched.
        let spare = demand.share.as_ref().map_or(usize::MAX, |share| share.spare(Pool::Receipts));
        let visited = shards.min(SHARDS_PER_SEARCH.max(shards / spare.max(1)));
        for _ in 0..if is_due { visited } else { 0 } {
            if self.try_claim_lendable(&again()) {
                return true;
            }
            if keys >= KEYS_PER_SEARCH {
                break;
            }
            let index = pool.next_shard(shards);
            // Locked shards are skipped: the caller holds one, and must not wait for another.
            if let Some(mut shard) = self.try_lock(index) {
                keys += shard.drop_worthless(KEYS_PER_SHARD, now, demand, self, Some(index), &mut lent);
            }
        }
        if let Some(lent) = lent.filter(|_| takes_back) {
            match lent.shard {
                None => own.take_back(&lent, demand, self),
                Some(index) => {
                    if let Some(mut shard) = self.try_lock(index) {
                        shard.take_back(&lent, demand, self);
                    }
                }
            }
        }
        let demand = again();
        let claimed = demand.try_claim(demand.spares(), &self.vacant.receipts, pool.max, 1);
        if !claimed {
            demand.found_none(&pool.search_at, now);
            pool.no_room.fetch_add(1, Ordering::Relaxed);
        }
        claimed
    }
}

impl<S: SlotKind> Locked<'_, S> {
    /// Visits some keys, and drops those of their receipts that the demand may drop. Returns how
    /// many keys were visited.
    fn drop_worthless(
        &mut self,
        keys: usize,
        now: Time,
        demand: &Demand,
        store: &Store<S>,
        shard: Option<usize>,
        lent: &mut Option<Lent>,
    ) -> usize {
        let mut evicted = 0;
        let visited = self.visit_receipts(keys, now, &store.vacant, |owner, key, receipts, drop| {
            drop(receipts, Some(made_before(now)));
            if demand.deny || !demand.may_evict(owner) {
                return;
            }
            let before = receipts.len();
            drop(receipts, None);
            evicted += before - receipts.len();
            if let Some(made) = receipts.oldest().filter(|_| !demand.is_own(owner))
                && lent.as_ref().is_none_or(|lent| made < lent.made)
            {
                *lent = Some(Lent { made, shard, key });
            }
        });
        store.receipt_pool.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        visited
    }

    /// Takes back receipts of a key whose scope exceeds its share. Their charges stay.
    fn take_back(&mut self, lent: &Lent, demand: &Demand, store: &Store<S>) {
        let Some(mut taken) = self.take_all(lent.key) else { return };
        let borrower = self.guarded.limits_by_tag.share(taken.tag);
        if !demand.may_evict(borrower) {
            self.put_all(lent.key, taken);
            return;
        }
        let most = borrower.map_or(TAKEN_BACK_MAX, |share| share.excess(Pool::Receipts).min(TAKEN_BACK_MAX));
        let before = taken.receipts.len();
        let limits = self.guarded.limits_by_tag.limits_of(taken.tag);
        taken.receipts.discard_oldest(limits, most);
        let evicted = before - taken.receipts.len();
        self.receipts_closed(taken.tag, evicted, &store.vacant);
        store.receipt_pool.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        self.put_all(lent.key, taken);
    }

    /// Drops expired receipts of a few keys, if the shard has many.
    pub(super) fn tidy_receipts(&mut self, now: Time, vacant: &Vacant) {
        if self.guarded.receipt_table.as_ref().is_some_and(|open| open.keys() >= TIDY_FROM) {
            self.drop_expired_receipts(KEYS_PER_RESERVATION, now, vacant);
        }
    }

    /// Drops the expired receipts of up to this many keys.
    pub(super) fn drop_expired_receipts(&mut self, keys: usize, now: Time, vacant: &Vacant) {
        self.visit_receipts(keys, now, vacant, |_, _, receipts, drop| drop(receipts, Some(made_before(now))));
    }

    /// Drops expired receipts of a key that has too many.
    #[cold]
    pub(super) fn drop_worthless_of(&mut self, key: Fingerprint, now: Time, vacant: &Vacant) {
        let slot = self.find(key);
        let Guarded { limits_by_tag, receipt_table, side_table, .. } = &mut *self.guarded;
        let Some(KeyReceipts { tag, receipts }) = receipt_table.as_mut().and_then(|open| open.get_mut(key))
        else {
            return;
        };
        let (tag, before) = (*tag, receipts.len());
        let limits = limits_by_tag.limits_of(tag);
        let mut expire = |state: &mut S::State| {
            receipts.expire_worthless(
                limits,
                S::states_mut(state, limits.len()),
                now,
                Some(made_before(now)),
            );
        };
        match slot {
            None => expire(&mut S::State::default()),
            Some(slot) => {
                S::update(SlotState { words: self.table.slot(slot).state, side_table, slot }, expire);
            }
        }
        let closed = before - receipts.len();
        self.receipts_closed(tag, closed, vacant);
    }

    /// Visits the receipts of up to this many keys. `act` is called with their share, the key, its
    /// receipts, and a function that drops those which are worthless and were made before a time,
    /// if one is given.
    fn visit_receipts(
        &mut self,
        keys: usize,
        now: Time,
        vacant: &Vacant,
        mut act: impl FnMut(
            Option<&Arc<Share>>,
            Fingerprint,
            &mut Receipts,
            &mut dyn FnMut(&mut Receipts, Option<Time>),
        ),
    ) -> usize {
        let (table, displaced) = (self.table, self.guarded.displaced);
        let Guarded { limits_by_tag, receipt_table, side_table, .. } = &mut *self.guarded;
        let Some(open) = receipt_table else { return 0 };
        let mut expired = Vec::new();
        let visited = open.visit(keys, |key, KeyReceipts { tag, receipts }| {
            if receipts.has_expired(now) {
                expired.push(key.with_tag(*tag));
            }
            let (key, limits) = (key.with_tag(*tag), limits_by_tag.limits_of(*tag));
            let owner = limits_by_tag.share(*tag);
            let before = receipts.len();
            let slot = table.find(key, displaced);
            let mut drop = |receipts: &mut Receipts, made_before: Option<Time>| {
                let mut expire = |state: &mut S::State| {
                    let states = S::states_mut(state, limits.len());
                    receipts.expire_worthless(limits, states, now, made_before);
                };
                match slot {
                    None => expire(&mut S::State::default()),
                    // A key's state and receipts are converted together.
                    Some(slot) => {
                        S::update(SlotState { words: table.slot(slot).state, side_table, slot }, expire);
                    }
                }
            };
            act(owner, key, receipts, &mut drop);
            let closed = before - receipts.len();
            vacant.receipts.fetch_add(closed, Ordering::Relaxed);
            if let Some(owner) = owner {
                owner.removed(Pool::Receipts, closed);
            }
        });
        self.drop_empty_table();
        for key in expired {
            self.expire_receipts(self.find(key), key, now, vacant);
        }
        visited
    }
}

/// Receipts made before this are expired if their cost no longer counts.
pub(super) fn made_before(now: Time) -> Time {
    Time::saturating_from_micros(now.as_micros().saturating_sub(KEPT_AT_LEAST.as_micros()))
}
