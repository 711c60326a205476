//! What happens to a shard's leases under its lock: they are granted, renewed, released and expire.
//! `queue.rs` handles the waiters.
//!
//! [`LockedShard`] is the shard locked at one point in time. The clock is read only if the outcome
//! depends on it.

use super::lease::LeaseRef;
use super::scope::ScopedLimit;
use super::shard::{Common, Deferred, LeaseAttempt};
use super::state::{Expirations, KeyLeases, LeaseEntry, ShardState, WaiterState};
use crate::key::Fingerprint;
use crate::sync::Guard;
use sluicegate_core::concurrency::{Concurrency, LeaseHandle, Leases};
use sluicegate_core::{Decision, Time, Usage};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, OccupiedEntry};
use std::sync::Arc;

/// With every granted lease this many expired ones are removed under keys that no call uses any
/// more. That is faster than leases are granted, so unreleased leases do not accumulate; and it
/// never pauses, however many expire together.
const SWEPT_PER_LEASE: usize = 2;

/// When the semaphore is full, this many expired leases are removed at once.
const SWEPT_WHEN_FULL: usize = 64;
/// A locked shard.
pub(super) struct LockedShard<'a> {
    pub(super) state: Guard<'a, ShardState>,
    pub(super) common: &'a Common,
    /// `None` until it is needed.
    pub(super) now: Cell<Option<Time>>,
    pub(super) deferred: Deferred,
    /// If several semaphores share a pool: the one that makes this call, which is about one key.
    pub(super) caller: Option<&'a Arc<ScopedLimit>>,
}
impl<'a> LockedShard<'a> {
    #[inline]
    pub(super) fn new(
        state: Guard<'a, ShardState>,
        common: &'a Common,
        now: Option<Time>,
        caller: Option<&'a Arc<ScopedLimit>>,
    ) -> LockedShard<'a> {
        let mut state = state;
        state.is_shared |= caller.is_some();
        LockedShard { state, common, now: Cell::new(now), deferred: Deferred::default(), caller }
    }

    /// The limit that applies to a key. For an unknown key it is the caller's.
    #[inline]
    pub(super) fn limit_of(&self, key: Fingerprint) -> Concurrency {
        if !self.state.is_shared {
            return self.state.limit;
        }
        let scoped = self.state.keys.get(&key).and_then(|known| known.scoped.as_ref());
        scoped.or(self.caller).map_or(self.state.limit, |scoped| scoped.limit)
    }

    /// Applies the caller's limit to a key, and to its waiters.
    #[inline]
    pub(super) fn apply_limit(&mut self, key: Fingerprint) {
        if let Some(caller) = self.caller {
            self.apply_limit_of(key, caller);
        }
    }

    fn apply_limit_of(&mut self, key: Fingerprint, caller: &Arc<ScopedLimit>) {
        let Some(known) = self.state.keys.get_mut(&key) else { return };
        if known.scoped.as_ref().is_some_and(|scoped| Arc::ptr_eq(scoped, caller)) {
            return;
        }
        let waiting = known.queue.as_ref().map_or(0, |queue| queue.waiting.len());
        caller.takes_over(known.scoped.as_deref(), known.leases.len(), waiting);
        known.scoped = Some(Arc::clone(caller));
        if known.has_waiters() {
            self.apply_new_limit(key);
        }
    }

    /// Releases the lock. Returns the effects to run after it, if there are any.
    #[inline]
    pub(super) fn unlock(self) -> Option<Deferred> {
        let LockedShard { mut state, mut deferred, .. } = self;
        let next = state.due.first().map(|((time, _), ())| *time);
        deferred.ring_at = state.alarms.arm(next);
        drop(state);
        let Deferred { wake, drop, expired, ring_at } = &deferred;
        let is_nothing = wake.is_empty() && drop.is_none() && expired.is_empty() && ring_at.is_none();
        (!is_nothing).then_some(deferred)
    }

    /// The time, if anything depends on it; else an arbitrary one.
    #[inline]
    pub(super) fn now(&self) -> Time {
        if self.now.get().is_none() && !self.state.needs_time() { Time::EPOCH } else { self.clock_now() }
    }

    /// The time, read from the clock if it was not given.
    pub(super) fn clock_now(&self) -> Time {
        let now = self.now.get().unwrap_or_else(|| self.common.clock.now());
        self.now.set(Some(now));
        now
    }

    /// Counts and returns the denial of a call.
    pub(super) fn deny(&mut self, key: Fingerprint, cost: u64) -> Decision {
        self.state.counts.denied += 1;
        self.peek(key, cost)
    }

    /// Tries to grant a lease. If it fails, nothing is counted, and no denial is computed that the
    /// caller may not need.
    #[inline]
    pub(super) fn take(&mut self, key: Fingerprint, cost: u64) -> LeaseAttempt {
        let now = self.now();
        self.expire(key, now);
        self.apply_limit(key);
        if cost == 0 {
            self.state.counts.allowed += 1;
            return LeaseAttempt::Allowed(self.peek(key, cost), None);
        }
        let limit = self.limit_of(key);
        let ShardState { keys, reserved, .. } = &mut *self.state;
        let has_room = match keys.get(&key) {
            Some(known) => !known.has_waiters() && limit.fits(&known.leases, cost),
            None => cost <= limit.count(),
        };
        if !has_room {
            return LeaseAttempt::Denied;
        }
        if self.caller.is_some_and(|scoped| !scoped.claim()) {
            return LeaseAttempt::Full;
        }
        if *reserved == 0 {
            let Some(more) = self.common.capacity.take() else {
                self.unclaim();
                return LeaseAttempt::Full;
            };
            self.state.reserved = more;
        } else {
            *reserved -= 1;
        }
        let (decision, granted) = self.state.grant(key, cost, now, self.caller);
        self.sweep(now, SWEPT_PER_LEASE);
        LeaseAttempt::Allowed(decision, granted)
    }

    #[inline]
    pub(super) fn release(&mut self, lease: LeaseRef) -> bool {
        let Some(LeaseEntry { key, .. }) = self.find(lease) else { return false };
        let now = self.now();
        // Expired leases of the key go first, perhaps including this one.
        self.expire(key, now);
        let Some(LeaseEntry { held, .. }) = self.find(lease) else { return false };
        let ShardState { keys, leases, expirations, counts, .. } = &mut *self.state;
        leases.remove(lease.index);
        let Entry::Occupied(mut entry) = keys.entry(key) else { return false };
        let known = entry.get_mut();
        let was_live = known.leases.release(now, held);
        known.count(ScopedLimit::lease_removed);
        counts.released += 1;
        let has_waiters = known.has_waiters();
        drop_if_unused(entry, expirations);
        self.return_capacity();
        if has_waiters {
            self.advance_queue(key);
        }
        was_live
    }

    pub(super) fn renew(&mut self, lease: LeaseRef) -> Option<LeaseHandle> {
        let now = self.now();
        let key = self.find(lease)?.key;
        // Expired leases of the key go first, perhaps including this one.
        self.expire(key, now);
        self.apply_limit(key);
        let entry = self.find(lease)?;
        let limit = self.limit_of(key);
        let ShardState { keys, leases, expirations, counts, .. } = &mut *self.state;
        let known = keys.get_mut(&key)?;
        let held = limit.renew(&mut known.leases, now, entry.held)?;
        if let Some(entry) = leases.get_mut(lease.index) {
            entry.held = held;
        }
        known.list(expirations, key, held);
        counts.renewed += 1;
        if known.has_waiters() {
            self.advance_queue(key);
        }
        Some(held)
    }

    pub(super) fn peek(&mut self, key: Fingerprint, cost: u64) -> Decision {
        let now = self.now();
        self.expire(key, now);
        self.apply_limit(key);
        let limit = self.limit_of(key);
        let ShardState { keys, .. } = &mut *self.state;
        let known = keys.get_mut(&key);
        match known {
            Some(known) if cost > 0 && known.has_waiters() => {
                let waiting = known.queue.as_ref().map_or(0, |queue| queue.cost);
                limit.denial_behind(&mut known.leases, now, cost, waiting)
            }
            known => peek(limit, known, now, cost),
        }
    }

    pub(super) fn usage(&mut self, key: Fingerprint) -> Usage {
        let now = self.now();
        self.expire(key, now);
        self.apply_limit(key);
        let limit = self.limit_of(key);
        match self.state.keys.get_mut(&key) {
            Some(known) => limit.usage(&mut known.leases, now),
            None => limit.usage(&mut Leases::<u32>::default(), now),
        }
    }

    pub(super) fn reset(&mut self, key: Fingerprint) {
        let ShardState { keys, leases, expirations, .. } = &mut *self.state;
        let Some(known) = keys.get_mut(&key) else { return };
        let mut back = 0;
        for index in known.leases.reset() {
            leases.remove(index);
            known.count(ScopedLimit::lease_removed);
            back += 1;
        }
        known.relist(expirations, key);
        (0..back).for_each(|_| self.return_capacity());
        self.apply_limit(key);
        self.advance_queue(key);
    }

    pub(super) fn change(&mut self, limit: Concurrency) {
        self.state.limit = limit;
        let waiting = |(_, waiter): (u32, &mut WaiterState)| match waiter {
            WaiterState::Waiting { request, .. } => Some(request.key),
            WaiterState::Done(_) => None,
        };
        let keys: BTreeSet<Fingerprint> = self.state.waiters.iter_mut().filter_map(waiting).collect();
        for key in keys {
            self.apply_new_limit(key);
        }
    }

    /// Returns unused capacity of this shard to the semaphore, after removing expired leases.
    ///
    /// # Errors
    /// If there is none: when the next lease expires, if any does.
    pub(super) fn reclaim(&mut self) -> Result<(), Option<Time>> {
        let now = self.now();
        self.sweep(now, SWEPT_WHEN_FULL);
        if self.common.capacity.collect(&mut self.state.reserved) {
            return Ok(());
        }
        Err(self.state.expirations.first().map(|((at, _), ())| *at))
    }

    /// Finds a lease by index and nonce.
    #[inline]
    fn find(&self, lease: LeaseRef) -> Option<LeaseEntry> {
        self.state.leases.get(lease.index).copied().filter(|entry| entry.nonce == lease.nonce)
    }

    /// Removes a key's expired leases and applies the caller's limit, as every operation on a key
    /// does.
    pub(super) fn refresh(&mut self, key: Fingerprint) {
        let now = self.now();
        self.expire(key, now);
        self.apply_limit(key);
    }

    /// Removes the expired leases of a key.
    #[inline]
    pub(super) fn expire(&mut self, key: Fingerprint, now: Time) {
        if self.state.expirations.first().is_some_and(|((soonest, _), ())| *soonest <= now) {
            self.expire_all(key, now);
        }
    }

    fn expire_all(&mut self, key: Fingerprint, now: Time) {
        if self.drain(key, now) > 0 {
            self.advance_queue(key);
        }
    }

    /// Removes all expired leases of a key, and returns how many. The core would ignore them too,
    /// but only the shard knows where each is stored, so this precedes every call of the core.
    pub(super) fn drain(&mut self, key: Fingerprint, now: Time) -> usize {
        self.drain_at_most(key, now, usize::MAX)
    }

    /// Removes at most `most` expired leases of a key. While some are left the key stays listed.
    fn drain_at_most(&mut self, key: Fingerprint, now: Time, most: usize) -> usize {
        let listed = self.state.keys.get(&key).and_then(|known| known.listed);
        if listed.is_none_or(|listed| listed > now) {
            return 0;
        }
        let mut drained = 0;
        while drained < most
            && let Some((index, cost)) =
                self.state.keys.get_mut(&key).and_then(|known| known.leases.expire_next(now))
        {
            drained += 1;
            self.state.leases.remove(index);
            if let Some(known) = self.state.keys.get(&key) {
                known.count(ScopedLimit::lease_removed);
                known.count(ScopedLimit::lease_expired);
            }
            self.count_expired(cost);
            self.return_capacity();
        }
        let ShardState { keys, expirations, .. } = &mut *self.state;
        if let Some(known) = keys.get_mut(&key) {
            known.relist(expirations, key);
        }
        drained
    }

    /// Removes a few expired leases of any keys.
    #[inline]
    fn sweep(&mut self, now: Time, most: usize) {
        let mut left = most;
        while left > 0
            && let Some((_, key)) =
                self.state.expirations.first().map(|(first, ())| *first).filter(|(at, _)| *at <= now)
        {
            left -= self.drain_at_most(key, now, left).clamp(1, left);
            let is_drained =
                self.state.keys.get(&key).is_none_or(|known| known.listed.is_none_or(|at| at > now));
            if is_drained {
                // (If some are left, the key's waiters are granted leases when the clock rings for
                // them.)
                self.advance_queue(key);
            }
        }
    }

    fn count_expired(&mut self, cost: u64) {
        self.state.counts.expired += 1;
        if self.common.observer.is_some() {
            self.deferred.expired.push(cost);
        }
    }

    /// Gives up what the caller's scope has claimed for this call.
    pub(super) fn unclaim(&self) {
        if let Some(scoped) = self.caller {
            scoped.unclaim();
        }
    }

    /// Returns the capacity of one lease.
    #[inline]
    pub(super) fn return_capacity(&mut self) {
        self.state.reserved += 1;
        self.common.capacity.trim(&mut self.state.reserved);
    }

    pub(super) fn drop_if_unused(&mut self, key: Fingerprint) {
        let ShardState { keys, expirations, .. } = &mut *self.state;
        if let Entry::Occupied(entry) = keys.entry(key) {
            drop_if_unused(entry, expirations);
        }
    }
}

/// Drops a key without leases and waiters.
#[inline]
fn drop_if_unused(entry: OccupiedEntry<'_, Fingerprint, KeyLeases>, expirations: &mut Expirations) {
    let known = entry.get();
    if known.leases.is_empty() && !known.has_waiters() {
        if let Some(listed) = known.listed {
            expirations.remove(&(listed, *entry.key()));
        }
        entry.remove();
    }
}

/// Decides for a key that may be unknown.
pub(super) fn peek(limit: Concurrency, known: Option<&mut KeyLeases>, now: Time, cost: u64) -> Decision {
    match known {
        Some(known) => limit.peek(&mut known.leases, now, cost),
        None => limit.peek(&mut Leases::<u32>::default(), now, cost),
    }
}
