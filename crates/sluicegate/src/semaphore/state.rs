//! What a shard's lock protects: the leases and waiters of its keys.

use super::lease::LeaseRef;
use super::scope::ScopedLimit;
use super::shard::{Granted, LeaseOutcome, LeaseRequest};
use super::slab::Slab;
use super::stats::SemaphoreStats;
use crate::clock::alarms::Alarms;
use crate::key::{ByFingerprint, Fingerprint};
use crate::wait::Priority;
use sluicegate_core::append_mostly_map::AppendMostlyMap;
use sluicegate_core::concurrency::{Concurrency, LeaseHandle, Leases};
use sluicegate_core::{Decision, Time};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;

/// Keys by a time before which none of their leases expires.
pub(super) type Expirations = AppendMostlyMap<(Time, Fingerprint), ()>;

/// What the lock protects.
pub(super) struct ShardState {
    pub(super) limit: Concurrency,
    /// Whether several semaphores share the pool: then each key knows its limit.
    pub(super) is_shared: bool,
    /// The keys with leases or waiters.
    pub(super) keys: HashMap<Fingerprint, KeyLeases, ByFingerprint>,
    pub(super) leases: Slab<LeaseEntry>,
    pub(super) waiters: Slab<WaiterState>,
    pub(super) next_nonce: u64,
    pub(super) expirations: Expirations,
    /// What the clock has to ring for.
    pub(super) due: AppendMostlyMap<(Time, Due), ()>,
    pub(super) alarms: Alarms,
    /// Capacity that this shard has reserved from the semaphore's and not used yet.
    pub(super) reserved: usize,
    pub(super) counts: LeaseCounts,
}

#[derive(Default)]
pub(super) struct LeaseCounts {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) no_room: u64,
    pub(super) released: u64,
    pub(super) renewed: u64,
    pub(super) expired: u64,
}

/// The leases and waiters of a key.
#[derive(Default)]
pub(super) struct KeyLeases {
    pub(super) leases: Leases<u32>,
    /// Its time in `expirations`.
    pub(super) listed: Option<Time>,
    pub(super) queue: Option<Box<WaitQueue>>,
    /// If several semaphores share a pool: the limit of the one that last used the key.
    pub(super) scoped: Option<Arc<ScopedLimit>>,
}

/// The wait queue of a key. It exists only while calls wait.
#[derive(Default)]
pub(super) struct WaitQueue {
    /// By priority, then by arrival: the waiter and its cost.
    pub(super) waiting: AppendMostlyMap<(Priority, u64), (u32, u64)>,
    pub(super) next: u64,
    /// The total cost of the waiters.
    pub(super) cost: u64,
    /// When the head is due if no lease is released; then it is also in `due`.
    pub(super) due_at: Option<Time>,
}

/// A held lease.
#[derive(Clone, Copy)]
pub(super) struct LeaseEntry {
    pub(super) key: Fingerprint,
    pub(super) nonce: u64,
    pub(super) held: LeaseHandle,
}

/// A waiter, and its outcome.
pub(super) enum WaiterState {
    Waiting { request: LeaseRequest, position: (Priority, u64), waker: Waker },
    Done(LeaseOutcome),
}

/// What the clock rings for. At equal times expiry precedes deadlines, so that waiters at their
/// deadline can still get the permits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The head of a key's queue may be granted its lease.
    Head(Fingerprint),
    /// A waiter has reached its deadline.
    Deadline(u32),
}
impl ShardState {
    pub(super) fn new(limit: Concurrency) -> ShardState {
        ShardState {
            limit,
            is_shared: false,
            keys: HashMap::default(),
            leases: Slab::default(),
            waiters: Slab::default(),
            next_nonce: 0,
            expirations: Expirations::default(),
            due: AppendMostlyMap::default(),
            alarms: Alarms::default(),
            reserved: 0,
            counts: LeaseCounts::default(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.limit.count()
    }

    /// Counts a denial for lack of room.
    pub(super) fn count_no_room(&mut self) {
        self.counts.denied += 1;
        self.counts.no_room += 1;
    }

    pub(super) fn add_to(&self, stats: &mut SemaphoreStats) {
        let LeaseCounts { allowed, denied, no_room, released, renewed, expired } = self.counts;
        stats.allowed += allowed;
        stats.denied += denied;
        stats.no_room += no_room;
        stats.released += released;
        stats.renewed += renewed;
        stats.expired += expired;
        stats.leases += self.leases.len();
        stats.keys += self.keys.len();
    }

    /// Returns `true` if anything depends on the time.
    #[inline]
    pub(super) fn needs_time(&self) -> bool {
        // A waiter's wait is reported.
        let has_waiters = self.waiters.len() > 0;
        has_waiters || self.limit.ttl().is_some() || !self.expirations.is_empty() || !self.due.is_empty()
    }

    /// The alarm for a time will not ring. Returns the wakers of all waiters, which poll again and
    /// so set another.
    pub(super) fn alarm_is_lost(&mut self, at: Time) -> Vec<Waker> {
        self.alarms.disarm(at);
        let waiting = |(_, waiter)| match waiter {
            // It registers its waker again when it polls.
            &mut WaiterState::Waiting { ref mut waker, .. } => {
                Some(std::mem::replace(waker, Waker::noop().clone()))
            }
            WaiterState::Done(_) => None,
        };
        self.waiters.iter_mut().filter_map(waiting).collect()
    }

    /// Grants a lease of a key. The caller has checked that it fits.
    #[inline]
    pub(super) fn grant(
        &mut self,
        key: Fingerprint,
        cost: u64,
        now: Time,
        caller: Option<&Arc<ScopedLimit>>,
    ) -> (Decision, Option<Granted>) {
        let ShardState { limit, keys, leases, expirations, next_nonce, counts, .. } = self;
        let known = keys.entry(key).or_insert_with(|| KeyLeases::new(caller));
        let limit = known.limit(*limit);
        let nonce = *next_nonce;
        *next_nonce += 1;
        // The index is needed before the lease exists, and the lease before its reference.
        let index = leases.next();
        let (decision, held) = limit.acquire(&mut known.leases, now, cost, index);
        let Some(held) = held else { return (decision, None) };
        leases.insert(LeaseEntry { key, nonce, held });
        known.list(expirations, key, held);
        known.count(ScopedLimit::lease_added);
        counts.allowed += 1;
        let lease = LeaseRef { key: key.high, index, nonce };
        (decision, Some(Granted { lease, until: held.until() }))
    }
}

impl KeyLeases {
    /// A key that was unknown until this call.
    #[inline]
    pub(super) fn new(caller: Option<&Arc<ScopedLimit>>) -> KeyLeases {
        KeyLeases { scoped: caller.cloned(), ..KeyLeases::default() }
    }

    /// The limit that applies to the key; `default` unless several semaphores share a pool.
    #[inline]
    pub(super) fn limit(&self, default: Concurrency) -> Concurrency {
        self.scoped.as_ref().map_or(default, |scoped| scoped.limit)
    }

    /// Counts an event for the key's scope, if it has one.
    #[inline]
    pub(super) fn count(&self, event: fn(&ScopedLimit)) {
        if let Some(scoped) = &self.scoped {
            event(scoped);
        }
    }

    /// Returns `true` if calls wait for the key.
    #[inline]
    pub(super) fn has_waiters(&self) -> bool {
        self.queue.is_some()
    }

    /// Lists the key under the time at which a lease expires, if that is the earliest.
    #[inline]
    pub(super) fn list(&mut self, expirations: &mut Expirations, key: Fingerprint, held: LeaseHandle) {
        if let Some(until) = held.until()
            && self.listed.is_none_or(|listed| until < listed)
        {
            if let Some(listed) = self.listed.replace(until) {
                expirations.remove(&(listed, key));
            }
            expirations.insert((until, key), ());
        }
    }

    /// Lists the key under the earliest expiry of its leases, instead of one that has passed.
    pub(super) fn relist(&mut self, expirations: &mut Expirations, key: Fingerprint) {
        if let Some(listed) = self.listed.take() {
            expirations.remove(&(listed, key));
        }
        self.listed = self.leases.next_expiry();
        if let Some(at) = self.listed {
            expirations.insert((at, key), ());
        }
    }
}
