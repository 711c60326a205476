//! A shard of a semaphore's keys: its lock, and the effects that run after the lock is released.
//!
//! ```text
//! acquire ──▶ no call waits and enough permits are free: a lease immediately
//!         ──▶ otherwise enqueued under its key
//! release, expiry, reset, change ──▶ each head of the key's queue that fits is granted and woken
//! ring    ──▶ expired leases of keys with waiters, and waits that have reached their deadlines
//! ```
//!
//! The lock protects a [`ShardState`]: the leases and waiters of the shard's keys.
//! `locked_shard.rs` and `queue.rs` are what happens under it. No waker, observer or other user
//! code runs there: those are collected in a [`Deferred`]. A granted lease has its owner before any
//! of them runs; if one panics, the owner is dropped and releases the lease.

use super::capacity::Capacity;
use super::grant::Grant;
use super::lease::{Lease, LeaseRef};
use super::locked_shard::LockedShard;
use super::scope::ScopedLimit;
use super::state::ShardState;
use super::stats::SemaphoreStats;
use crate::callbacks::Callbacks;
use crate::clock::Alarm;
use crate::clock::alarm::AlarmHandler;
use crate::clock::any::AnyClock;
use crate::event::Event;
use crate::key::Fingerprint;
use crate::limiter::Observer;
use crate::seal::Seal;
use crate::sync::{AtomicUsize, Lock};
use crate::wait::queues::wake_all;
use crate::wait::{Acquired, Denial, Priority, QueueBounds};
use sluicegate_core::concurrency::{Concurrency, LeaseHandle, UNKNOWN};
use sluicegate_core::decision::store::no_room;
use sluicegate_core::{Decision, FullPool, RetryAfter, Span, Time, Usage};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

fn denied_grant(denial: Denial, decision: Decision, waited: Span) -> Grant {
    Grant::new(Acquired::denied(denial, decision, waited), None)
}

/// One tick: the shortest wait that can be reported.
pub(super) const TICK: Span = Span::from_micros(1);

/// How often a call reclaims capacity before it is denied: other calls may take what it has
/// reclaimed.
const RECLAIM_TRIES: usize = 3;

pub(super) struct Shard {
    state: Lock<ShardState>,
    common: Arc<Common>,
    number: u32,
}

/// The semaphore that makes a call, if several share a pool.
pub(super) type Caller<'a> = Option<&'a Arc<ScopedLimit>>;

/// What all shards of a semaphore share.
pub(super) struct Common {
    pub(super) clock: AnyClock,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) capacity: Capacity,
    /// The number of waiters in all queues.
    pub(super) waiting: AtomicUsize,
    pub(super) bounds: QueueBounds,
    pub(super) seal: Seal,
    /// All shards, for reclaiming capacity. Set after they are created.
    pub(super) shards: OnceLock<Box<[Weak<Shard>]>>,
}

/// A call that may have to wait for its lease.
#[derive(Clone, Copy)]
pub(super) struct LeaseRequest {
    pub(super) key: Fingerprint,
    pub(super) cost: u64,
    pub(super) since: Time,
    pub(super) until: Option<Time>,
    pub(super) priority: Priority,
}

/// A lease that was granted.
#[derive(Clone, Copy)]
pub(super) struct Granted {
    pub(super) lease: LeaseRef,
    pub(super) until: Option<Time>,
}

/// The outcome of a call.
#[derive(Clone, Copy)]
pub(super) enum LeaseOutcome {
    /// Without a lease if the call cost nothing.
    Allowed {
        decision: Decision,
        granted: Option<Granted>,
        at: Time,
    },
    Denied {
        denial: Denial,
        decision: Decision,
        at: Time,
    },
}

pub(super) enum Joined {
    Done(LeaseOutcome),
    Enqueued(u32),
}

/// The result of a call that does not wait.
pub(super) enum LeaseAttempt {
    Allowed(Decision, Option<Granted>),
    /// Too few permits are free, or other calls wait for them.
    Denied,
    /// The semaphore holds its maximum of leases.
    Full,
}

/// The effects that run after the lock is released.
#[derive(Default)]
#[must_use = "waiters are woken by `Shard::run_deferred`"]
pub(super) struct Deferred {
    pub(super) wake: Vec<Waker>,
    /// A waker to drop: dropping it runs foreign code.
    pub(super) drop: Option<Waker>,
    /// The costs of expired leases, if there is an observer.
    pub(super) expired: Vec<u64>,
    pub(super) ring_at: Option<Time>,
}

impl Shard {
    pub(super) fn new(limit: Concurrency, common: Arc<Common>, number: u32) -> Arc<Shard> {
        Arc::new(Shard { state: Lock::new(ShardState::new(limit)), common, number })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn seal(&self) -> &Seal {
        &self.common.seal
    }

    pub(super) fn now(&self) -> Time {
        self.common.clock.now()
    }

    /// Acquires a lease now, or denies it.
    #[inline]
    pub(super) fn try_acquire(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        cost: u64,
        now: Option<Time>,
    ) -> Grant {
        let grant = match self.take(caller, key, cost, now) {
            Some(grant) => grant,
            None => self.reclaim_and_retry(caller, now, |now| self.take(caller, key, cost, now)),
        };
        self.observe(&grant);
        grant
    }

    /// Acquires a lease if that is possible now; otherwise nothing has happened.
    #[inline]
    pub(super) fn at_once(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        cost: u64,
    ) -> Option<Grant> {
        let grant = self.with_lock(caller, None, |locked| match locked.take(key, cost) {
            LeaseAttempt::Allowed(decision, granted) => Some(self.new_grant(decision, Span::ZERO, granted)),
            LeaseAttempt::Denied | LeaseAttempt::Full => None,
        })?;
        self.observe(&grant);
        Some(grant)
    }

    /// A lease or a denial; `None` if the semaphore holds its maximum of leases.
    #[inline]
    fn take(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        cost: u64,
        now: Option<Time>,
    ) -> Option<Grant> {
        self.with_lock(caller, now, |locked| match locked.take(key, cost) {
            LeaseAttempt::Allowed(decision, granted) => Some(self.new_grant(decision, Span::ZERO, granted)),
            LeaseAttempt::Denied => {
                Some(Grant::new(Acquired::at_once(locked.deny(key, cost).into(), Span::ZERO), None))
            }
            LeaseAttempt::Full => None,
        })
    }

    /// Grants a lease, or enqueues the call with its waker, or denies it. The caller stores the
    /// result, then calls [`Shard::run_deferred`].
    pub(super) fn join(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        request: &LeaseRequest,
        now: Time,
        waker: &mut Option<Waker>,
    ) -> (Joined, Option<Deferred>) {
        let mut wait = TICK;
        for _ in 0..RECLAIM_TRIES {
            let mut locked = self.lock(caller, Some(now));
            let joined = locked.join(request, waker);
            let deferred = locked.unlock();
            if let Some(joined) = joined {
                return (joined, deferred);
            }
            self.run_deferred(deferred);
            if let Err(longer) = self.reclaim(caller, now) {
                wait = longer;
                break;
            }
        }
        let decision = self.full_denial(caller, wait);
        (Joined::Done(LeaseOutcome::Denied { denial: Denial::NoRoom, decision, at: now }), None)
    }

    /// The outcome of a waiter, which is then removed. `None` if there is none yet: the waiter will
    /// be woken. The caller stores the outcome, then calls [`Shard::run_deferred`].
    pub(super) fn poll(
        self: &Arc<Shard>,
        waiter: u32,
        waker: &Waker,
    ) -> (Option<LeaseOutcome>, Option<Deferred>) {
        // Cloned before the lock is taken, because cloning runs foreign code.
        let waker = waker.clone();
        let mut locked = self.lock(None, None);
        let outcome = locked.poll(waiter, waker);
        (outcome, locked.unlock())
    }

    /// Removes a waiter whose caller has gone. Whatever it was granted goes to the next one.
    #[cold]
    pub(super) fn leave(self: &Arc<Shard>, waiter: u32) {
        self.with_lock(None, None, |locked| locked.leave(waiter));
    }

    #[inline]
    pub(super) fn release(self: &Arc<Shard>, lease: LeaseRef) -> bool {
        self.with_lock(None, None, |locked| locked.release(lease))
    }

    /// Releases a lease by id. Like every operation on a key, it first removes expired leases and
    /// applies the caller's limit to waiters.
    pub(super) fn release_by_id(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        lease: LeaseRef,
        now: Option<Time>,
    ) -> bool {
        self.with_lock(caller, now, |locked| {
            locked.refresh(key);
            locked.release(lease)
        })
    }

    /// Renews a lease by id. Returns `true` if it is live.
    pub(super) fn renew_by_id(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        lease: LeaseRef,
        now: Option<Time>,
    ) -> bool {
        self.with_lock(caller, now, |locked| {
            locked.refresh(key);
            locked.renew(lease).is_some()
        })
    }

    /// Extends a lease by a full TTL. `None` if it is not live any more.
    pub(super) fn renew(self: &Arc<Shard>, lease: LeaseRef) -> Option<LeaseHandle> {
        self.with_lock(None, None, |locked| locked.renew(lease))
    }

    pub(super) fn peek(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        cost: u64,
        now: Option<Time>,
    ) -> Decision {
        self.with_lock(caller, now, |locked| locked.peek(key, cost))
    }

    pub(super) fn usage(self: &Arc<Shard>, caller: Caller<'_>, key: Fingerprint, now: Option<Time>) -> Usage {
        self.with_lock(caller, now, |locked| locked.usage(key))
    }

    pub(super) fn reset(self: &Arc<Shard>, caller: Caller<'_>, key: Fingerprint) {
        self.with_lock(caller, None, |locked| locked.reset(key));
    }

    /// Changes the limit. The caller runs [`Shard::run_deferred`] when it holds no lock of its own.
    pub(super) fn change(self: &Arc<Shard>, limit: Concurrency) -> Option<Deferred> {
        let mut locked = self.lock(None, None);
        locked.change(limit);
        locked.unlock()
    }

    pub(super) fn add_to(&self, stats: &mut SemaphoreStats) {
        self.state.lock().add_to(stats);
    }

    /// The grant for an outcome.
    pub(super) fn grant(self: &Arc<Shard>, outcome: LeaseOutcome, since: Time) -> Grant {
        match outcome {
            LeaseOutcome::Allowed { decision, granted, at } => {
                self.new_grant(decision, at.since(since), granted)
            }
            LeaseOutcome::Denied { denial, decision, at } => denied_grant(denial, decision, at.since(since)),
        }
    }

    #[inline]
    fn new_grant(self: &Arc<Shard>, decision: Decision, waited: Span, granted: Option<Granted>) -> Grant {
        let lease = granted.map(|Granted { lease, until }| Lease::new(Arc::clone(self), lease, until));
        Grant::new(Acquired::after(decision, waited), lease)
    }

    #[inline]
    fn lock<'a>(&'a self, caller: Caller<'a>, now: Option<Time>) -> LockedShard<'a> {
        LockedShard::new(self.state.lock(), &self.common, now, caller)
    }

    /// Runs an operation under the lock, then its deferred effects.
    #[inline]
    fn with_lock<R>(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        now: Option<Time>,
        act: impl FnOnce(&mut LockedShard<'_>) -> R,
    ) -> R {
        let mut locked = self.lock(caller, now);
        let result = act(&mut locked);
        self.run_deferred(locked.unlock());
        result
    }

    /// Runs the effects that were deferred until the lock is released.
    #[inline]
    pub(super) fn run_deferred(self: &Arc<Shard>, deferred: Option<Deferred>) {
        if deferred.is_some() {
            let mut callbacks = Callbacks::default();
            self.run_deferred_in(deferred, &mut callbacks);
            callbacks.end();
        }
    }

    /// Runs deferred effects together with those of other shards.
    #[cold]
    pub(super) fn run_deferred_in(self: &Arc<Shard>, deferred: Option<Deferred>, callbacks: &mut Callbacks) {
        let Some(Deferred { wake, drop, expired, ring_at }) = deferred else { return };
        if let Some(time) = ring_at {
            let shard: Weak<Shard> = Arc::downgrade(self);
            callbacks.run(|| self.common.clock.ring_at(time, Alarm::new(shard, time)));
        }
        for waker in wake {
            callbacks.run(|| waker.wake());
        }
        if let Some(observer) = &self.common.observer {
            for cost in expired {
                callbacks.run(|| observer.event(&Event::LeaseExpired { cost }));
            }
        }
        callbacks.run(|| std::mem::drop(drop));
    }

    /// Reports an answer to the observer. A granted lease has its owner by then.
    #[inline]
    pub(super) fn observe(&self, grant: &Grant) {
        if let Some(observer) = &self.common.observer {
            observer.decided(&grant.decision());
        }
    }

    /// Reclaims capacity and tries again; denies the call if there is none.
    #[cold]
    fn reclaim_and_retry(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        now: Option<Time>,
        mut again: impl FnMut(Option<Time>) -> Option<Grant>,
    ) -> Grant {
        let (at, mut wait) = (now.unwrap_or_else(|| self.now()), TICK);
        for _ in 0..RECLAIM_TRIES {
            if let Err(after) = self.reclaim(caller, at) {
                wait = after;
                break;
            }
            if let Some(grant) = again(now) {
                return grant;
            }
        }
        denied_grant(Denial::NoRoom, self.full_denial(caller, wait), Span::ZERO)
    }

    /// Reclaims capacity for a lease: the unused reserves of other shards, and expired leases.
    ///
    /// # Errors
    /// If there is none: how long until the next lease expires, as far as is known.
    #[cold]
    fn reclaim(&self, caller: Caller<'_>, now: Time) -> Result<(), Span> {
        let mut soonest: Option<Time> = None;
        for shard in self.common.shards.get().into_iter().flatten().filter_map(Weak::upgrade) {
            match shard.with_lock(None, Some(now), reclaim) {
                // Capacity of the pool is of no use to a scope that has its maximum.
                Ok(()) if caller.is_some_and(|scoped| scoped.is_full()) => {}
                Ok(()) => return Ok(()),
                Err(next) => soonest = soonest.into_iter().chain(next).min(),
            }
        }
        Err(soonest.map_or(UNKNOWN, |next| next.since(now).max(TICK)))
    }

    /// Removes some expired leases under keys that no call uses any more.
    #[cold]
    pub(super) fn clear_expired(self: &Arc<Shard>, now: Time) {
        // Whether capacity was reclaimed does not matter here.
        let _ = self.with_lock(None, Some(now), reclaim);
    }

    /// Counts and returns the denial when the semaphore holds its maximum of leases.
    #[cold]
    fn full_denial(&self, caller: Caller<'_>, wait: Span) -> Decision {
        let mut state = self.state.lock();
        state.count_no_room();
        let limit = caller.map_or_else(|| state.count(), |caller| caller.limit.count());
        no_room(FullPool::Leases, limit, RetryAfter::After(wait))
    }
}

fn reclaim(locked: &mut LockedShard<'_>) -> Result<(), Option<Time>> {
    locked.reclaim()
}

impl AlarmHandler for Shard {
    fn ring(self: Arc<Self>, at: Time) {
        self.with_lock(None, None, |locked| locked.ring(at));
    }

    /// Wakes all waiters: each polls again, and so sets another alarm. It is not set here, because
    /// in a runtime that shuts down it would be lost again.
    fn lost(self: Arc<Self>, at: Time) {
        let wakers = self.state.lock().alarm_is_lost(at);
        wake_all(wakers);
    }
}
