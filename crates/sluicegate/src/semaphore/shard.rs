//! A part of a semaphore's keys: their lock, and what is done when it has been given back.
//!
//! ```text
//! acquire ──▶ nobody waits and there is room: a lease at once
//!         ──▶ else a place in the key's line, and a seat for what comes of it
//! release, lapse, reset, change ──▶ the key's line goes on: each head that fits now gets its lease and is woken
//! ring    ──▶ leases that have lapsed under keys where somebody waits, and waits that have become too long
//! ```
//!
//! `desk.rs` and `line.rs` are what is done under the lock. No waker, observer or other code of the caller runs there, and whatever was given
//! has its owner before any does: should it panic, the owner is dropped and gives it back.

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
use sluicegate_core::{Decision, RetryAfter, Span, Time};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

fn refused(denial: Denial, decision: Decision, waited: Span) -> Grant {
    Grant::new(Acquired::denied(denial, decision, waited), None)
}

/// One tick: the least wait there is to tell.
pub(super) const TICK: Span = Span::from_micros(1);

/// When there is no room for a lease it is made, and another may be faster; so often is it tried.
const RECLAIM_TRIES: usize = 3;

pub(super) struct Shard {
    state: Lock<ShardState>,
    common: Arc<Common>,
    number: u32,
}

/// Which of several semaphores asks that share a room; none if there is only one.
pub(super) type Caller<'a> = Option<&'a Arc<ScopedLimit>>;

/// What all shards of a semaphore share.
pub(super) struct Common {
    pub(super) clock: AnyClock,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) capacity: Capacity,
    /// How many wait, in all lines.
    pub(super) waiting: AtomicUsize,
    pub(super) bounds: QueueBounds,
    pub(super) seal: Seal,
    /// All shards, for whoever has to make room. They are made after this.
    pub(super) shards: OnceLock<Box<[Weak<Shard>]>>,
}

/// Who asks for a lease, and waits if need be.
#[derive(Clone, Copy)]
pub(super) struct LeaseRequest {
    pub(super) key: Fingerprint,
    pub(super) cost: u32,
    pub(super) since: Time,
    pub(super) until: Option<Time>,
    pub(super) priority: Priority,
}

/// A lease that was given.
#[derive(Clone, Copy)]
pub(super) struct Granted {
    pub(super) lease: LeaseRef,
    pub(super) until: Option<Time>,
}

/// What has come of asking.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    /// Without a lease if it cost nothing.
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
    Done(Outcome),
    Enqueued(u32),
}

/// What came of asking without waiting.
pub(super) enum Attempt {
    Allowed(Decision, Option<Granted>),
    /// There is no room under the key, or others wait before it.
    Denied,
    /// The semaphore holds as many leases as it may.
    Full,
}

/// What is done when the lock has been given back.
#[derive(Default)]
#[must_use = "waiters are woken by `Shard::run_deferred`"]
pub(super) struct Deferred {
    pub(super) wake: Vec<Waker>,
    /// A waker is its maker's, and so is what dropping it does.
    pub(super) drop: Option<Waker>,
    /// The costs of leases that have lapsed, if somebody wants to know.
    pub(super) expired: Vec<u32>,
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

    /// A lease now, or why not.
    #[inline]
    pub(super) fn try_acquire(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        cost: u32,
        now: Option<Time>,
    ) -> Grant {
        let grant = match self.take(caller, key, cost, now) {
            Some(grant) => grant,
            None => self.reclaim_and_retry(caller, now, |now| self.take(caller, key, cost, now)),
        };
        self.observe(&grant);
        grant
    }

    /// A lease now if there is one; else nothing has happened.
    #[inline]
    pub(super) fn at_once(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        cost: u32,
    ) -> Option<Grant> {
        let grant = self.with_lock(caller, None, |locked| match locked.take(key, cost) {
            Attempt::Allowed(decision, granted) => Some(self.new_grant(decision, Span::ZERO, granted)),
            Attempt::Denied | Attempt::Full => None,
        })?;
        self.observe(&grant);
        Some(grant)
    }

    /// A lease, or the denial; `None` if the semaphore holds as many as it may.
    #[inline]
    fn take(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        cost: u32,
        now: Option<Time>,
    ) -> Option<Grant> {
        self.with_lock(caller, now, |locked| match locked.take(key, cost) {
            Attempt::Allowed(decision, granted) => Some(self.new_grant(decision, Span::ZERO, granted)),
            Attempt::Denied => {
                Some(Grant::new(Acquired::at_once(locked.deny(key, cost).into(), Span::ZERO), None))
            }
            Attempt::Full => None,
        })
    }

    /// Takes a lease, or a place in line: there the waker is taken too. Whoever asked notes what came of it, then does [`Shard::then`].
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
            if let Err(longer) = self.reclaim(now) {
                wait = longer;
                break;
            }
        }
        let decision = self.full_denial(caller, wait);
        (Joined::Done(Outcome::Denied { denial: Denial::NoRoom, decision, at: now }), None)
    }

    /// What has come of a seat, which is then given up. `None` if nothing has yet: its caller will be woken. Whoever looks notes what came of
    /// it, then does [`Shard::then`].
    pub(super) fn poll(self: &Arc<Shard>, waiter: u32, waker: &Waker) -> (Option<Outcome>, Option<Deferred>) {
        // Cloned here, as cloning is the business of whoever made it.
        let waker = waker.clone();
        let mut locked = self.lock(None, None);
        let outcome = locked.poll(waiter, waker);
        (outcome, locked.unlock())
    }

    /// A caller has lost interest: what it held goes to the next.
    #[cold]
    pub(super) fn leave(self: &Arc<Shard>, waiter: u32) {
        self.with_lock(None, None, |locked| locked.leave(waiter));
    }

    #[inline]
    pub(super) fn release(self: &Arc<Shard>, lease: LeaseRef) -> bool {
        self.with_lock(None, None, |locked| locked.release(lease))
    }

    /// Releases a lease by id. Like every operation on a key it first drops expired leases, and applies the caller's
    /// limit to queued waiters.
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

    /// The same to renew it. Whether it is live.
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

    /// How it is held from now on. `None` if it is not live any more.
    pub(super) fn renew(self: &Arc<Shard>, lease: LeaseRef) -> Option<LeaseHandle> {
        self.with_lock(None, None, |locked| locked.renew(lease))
    }

    pub(super) fn peek(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        key: Fingerprint,
        cost: u32,
        now: Option<Time>,
    ) -> Decision {
        self.with_lock(caller, now, |locked| locked.peek(key, cost))
    }

    pub(super) fn reset(self: &Arc<Shard>, caller: Caller<'_>, key: Fingerprint) {
        self.with_lock(caller, None, |locked| locked.reset(key));
    }

    /// Changes the numbers. The caller does [`Shard::then`] when it holds no lock of its own.
    pub(super) fn change(self: &Arc<Shard>, limit: Concurrency) -> Option<Deferred> {
        let mut locked = self.lock(None, None);
        locked.change(limit);
        locked.unlock()
    }

    pub(super) fn add_to(&self, stats: &mut SemaphoreStats) {
        self.state.lock().add_to(stats);
    }

    /// What somebody who asked is told.
    pub(super) fn grant(self: &Arc<Shard>, outcome: Outcome, since: Time) -> Grant {
        match outcome {
            Outcome::Allowed { decision, granted, at } => self.new_grant(decision, at.since(since), granted),
            Outcome::Denied { denial, decision, at } => refused(denial, decision, at.since(since)),
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

    /// Acts under the lock for one of several semaphores, then wakes, tells and sets the clock.
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

    /// What is left to do when the lock has been given back.
    #[inline]
    pub(super) fn run_deferred(self: &Arc<Shard>, deferred: Option<Deferred>) {
        if deferred.is_some() {
            let mut callbacks = Callbacks::default();
            self.run_deferred_in(deferred, &mut callbacks);
            callbacks.end();
        }
    }

    /// The same together with what other shards have to do.
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
                callbacks.run(|| observer.event(&Event::LeaseExpired { cost: u64::from(cost) }));
            }
        }
        callbacks.run(|| std::mem::drop(drop));
    }

    /// Tells the observer of an answer. What was given has its owner by then.
    #[inline]
    pub(super) fn observe(&self, grant: &Grant) {
        if let Some(observer) = &self.common.observer {
            observer.decided(&grant.decision());
        }
    }

    /// Makes room for a lease and tries again; refused if there is none.
    #[cold]
    fn reclaim_and_retry(
        self: &Arc<Shard>,
        caller: Caller<'_>,
        now: Option<Time>,
        mut again: impl FnMut(Option<Time>) -> Option<Grant>,
    ) -> Grant {
        let (at, mut wait) = (now.unwrap_or_else(|| self.now()), TICK);
        for _ in 0..RECLAIM_TRIES {
            if let Err(after) = self.reclaim(at) {
                wait = after;
                break;
            }
            if let Some(grant) = again(now) {
                return grant;
            }
        }
        refused(Denial::NoRoom, self.full_denial(caller, wait), Span::ZERO)
    }

    /// Finds room for a lease: what other shards keep and do not use, and what has lapsed and nobody has seen since.
    ///
    /// # Errors
    /// When there is none: how long until the next lease lapses, as far as is known.
    #[cold]
    fn reclaim(&self, now: Time) -> Result<(), Span> {
        let mut soonest: Option<Time> = None;
        for shard in self.common.shards.get().into_iter().flatten().filter_map(Weak::upgrade) {
            match shard.with_lock(None, Some(now), reclaim) {
                Ok(()) => return Ok(()),
                Err(next) => soonest = soonest.into_iter().chain(next).min(),
            }
        }
        Err(soonest.map_or(UNKNOWN, |next| next.since(now).max(TICK)))
    }

    /// Clears away some of what has lapsed here and nobody has seen since.
    #[cold]
    pub(super) fn clear_expired(self: &Arc<Shard>, now: Time) {
        // Whether there is room is of no interest.
        let _ = self.with_lock(None, Some(now), reclaim);
    }

    /// The answer when the semaphore holds as many leases as it may.
    #[cold]
    fn full_denial(&self, caller: Caller<'_>, wait: Span) -> Decision {
        let mut state = self.state.lock();
        state.count_denied();
        no_room(caller.map_or_else(|| state.count(), |caller| caller.limit.count()), RetryAfter::After(wait))
    }
}

fn reclaim(locked: &mut LockedShard<'_>) -> Result<(), Option<Time>> {
    locked.reclaim()
}

impl AlarmHandler for Shard {
    fn ring(self: Arc<Self>, at: Time) {
        self.with_lock(None, None, |locked| locked.ring(at));
    }

    /// Whoever waits looks again, and so sets another alarm. Not here: in a runtime that ends that would be lost as well.
    fn lost(self: Arc<Self>, at: Time) {
        let wakers = self.state.lock().alarm_is_lost(at);
        wake_all(wakers);
    }
}
