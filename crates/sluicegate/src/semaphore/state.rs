//! What a shard knows of its keys: their leases, and those who wait for them.

use super::lease::LeaseRef;
use super::scope::ScopedLimit;
use super::shard::{Granted, LeaseRequest, Outcome};
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

/// Keys by a moment before which none of their leases lapses.
pub(super) type Expirations = AppendMostlyMap<(Time, Fingerprint), ()>;

/// What the lock guards.
pub(super) struct ShardState {
    pub(super) limit: Concurrency,
    /// Whether several semaphores share the room: then keys know by whose numbers they are judged.
    pub(super) is_shared: bool,
    /// Those with a lease or somebody who waits.
    pub(super) keys: HashMap<Fingerprint, KeyLeases, ByFingerprint>,
    pub(super) leases: Slab<LeaseEntry>,
    pub(super) waiters: Slab<WaiterState>,
    pub(super) next_nonce: u64,
    pub(super) expirations: Expirations,
    /// What the clock has to ring for.
    pub(super) due: AppendMostlyMap<(Time, Due), ()>,
    pub(super) alarms: Alarms,
    /// Room for leases that was taken from all shards' and is not used.
    pub(super) reserved: usize,
    pub(super) counts: Counts,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) released: u64,
    pub(super) renewed: u64,
    pub(super) expired: u64,
}

/// What is known of a key.
#[derive(Default)]
pub(super) struct KeyLeases {
    pub(super) leases: Leases<u32>,
    /// Where it is in `lapses`.
    pub(super) listed: Option<Time>,
    pub(super) queue: Option<Box<Queue>>,
    /// Where several semaphores share a room: by which one it was last asked about.
    pub(super) scoped: Option<Arc<ScopedLimit>>,
}

/// Those who wait under a key. There is one only while somebody does.
#[derive(Default)]
pub(super) struct Queue {
    /// By priority, then by arrival: the seat and the cost.
    pub(super) waiting: AppendMostlyMap<(Priority, u64), (u32, u32)>,
    pub(super) next: u64,
    /// What all of them cost.
    pub(super) cost: u64,
    /// When the head's turn comes if nothing is returned. It is then in `due`.
    pub(super) due_at: Option<Time>,
}

/// A lease that is out.
#[derive(Clone, Copy)]
pub(super) struct LeaseEntry {
    pub(super) key: Fingerprint,
    pub(super) nonce: u64,
    pub(super) held: LeaseHandle,
}

/// Somebody who waits, and what came of it.
pub(super) enum WaiterState {
    Waiting { request: LeaseRequest, position: (Priority, u64), waker: Waker },
    Done(Outcome),
}

/// What the clock rings for. Of one moment what lapses comes first: then it is of use to those whose time is up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The head of a key's line may have its turn.
    Head(Fingerprint),
    /// Somebody has waited for too long.
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
            counts: Counts::default(),
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.limit.count()
    }

    pub(super) fn count_denied(&mut self) {
        self.counts.denied += 1;
    }

    pub(super) fn add_to(&self, stats: &mut SemaphoreStats) {
        let Counts { allowed, denied, released, renewed, expired } = self.counts;
        stats.allowed += allowed;
        stats.denied += denied;
        stats.released += released;
        stats.renewed += renewed;
        stats.expired += expired;
        stats.leases += self.leases.len();
        stats.keys += self.keys.len();
    }

    /// Whether anything depends on what time it is.
    #[inline]
    pub(super) fn needs_time(&self) -> bool {
        // Whoever waits is told for how long.
        let anybody_waits = self.waiters.len() > 0;
        anybody_waits || self.limit.ttl().is_some() || !self.expirations.is_empty() || !self.due.is_empty()
    }

    /// The alarm for a time will not ring. How to wake everybody who waits: they look again, and so set another.
    pub(super) fn alarm_is_lost(&mut self, at: Time) -> Vec<Waker> {
        self.alarms.disarm(at);
        let waiting = |(_, waiter)| match waiter {
            // When it looks it says anew how to wake it.
            &mut WaiterState::Waiting { ref mut waker, .. } => {
                Some(std::mem::replace(waker, Waker::noop().clone()))
            }
            WaiterState::Done(_) => None,
        };
        self.waiters.iter_mut().filter_map(waiting).collect()
    }

    /// A lease of a key, for which there is room.
    #[inline]
    pub(super) fn grant(
        &mut self,
        key: Fingerprint,
        cost: u32,
        now: Time,
        caller: Option<&Arc<ScopedLimit>>,
    ) -> (Decision, Option<Granted>) {
        let ShardState { limit, keys, leases, expirations, next_nonce, counts, .. } = self;
        let known = keys.entry(key).or_insert_with(|| KeyLeases::new(caller));
        let limit = known.limit(*limit);
        let nonce = *next_nonce;
        *next_nonce += 1;
        // The place is known before the lease is, and the lease before its name.
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
    /// A key that nothing is known of, and who asks about it.
    #[inline]
    pub(super) fn new(caller: Option<&Arc<ScopedLimit>>) -> KeyLeases {
        KeyLeases { scoped: caller.cloned(), ..KeyLeases::default() }
    }

    /// The numbers that hold for it, if those of the semaphore are these.
    #[inline]
    pub(super) fn limit(&self, default: Concurrency) -> Concurrency {
        self.scoped.as_ref().map_or(default, |scoped| scoped.limit)
    }

    /// Counts something of its scope, if it has one.
    #[inline]
    pub(super) fn count(&self, event: fn(&ScopedLimit)) {
        if let Some(scoped) = &self.scoped {
            event(scoped);
        }
    }

    /// Whether somebody waits.
    #[inline]
    pub(super) fn has_waiters(&self) -> bool {
        self.queue.is_some()
    }

    /// A lease lapses at that moment.
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

    /// Lists it anew: where it was is in the past.
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
