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

use super::book::Book;
use super::capacity::Capacity;
use super::desk::Desk;
use super::grant::Grant;
use super::lease::{Lease, Name};
use super::scope::View;
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
use sluicegate_core::concurrency::{Concurrency, Held, UNKNOWN};
use sluicegate_core::{Decision, RetryAfter, Span, Time};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

fn refused(denial: Denial, decision: Decision, waited: Span) -> Grant {
    Grant::new(Acquired::denied(denial, decision, waited), None)
}

/// One tick: the least wait there is to tell.
pub(super) const TICK: Span = Span::from_micros(1);

/// When there is no room for a lease it is made, and another may be faster; so often is it tried.
const TRIES: usize = 3;

pub(super) struct Shard {
    book: Lock<Book>,
    common: Arc<Common>,
    number: u32,
}

/// Which of several semaphores asks that share a room; none if there is only one.
pub(super) type By<'a> = Option<&'a Arc<View>>;

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
pub(super) struct Waiter {
    pub(super) key: Fingerprint,
    pub(super) cost: u32,
    pub(super) since: Time,
    pub(super) until: Option<Time>,
    pub(super) priority: Priority,
}

/// A lease that was given.
#[derive(Clone, Copy)]
pub(super) struct Given {
    pub(super) name: Name,
    pub(super) until: Option<Time>,
}

/// What has come of asking.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    /// Without a lease if it cost nothing.
    Allowed {
        decision: Decision,
        given: Option<Given>,
        at: Time,
    },
    Refused {
        denial: Denial,
        decision: Decision,
        at: Time,
    },
}

pub(super) enum Joined {
    Done(Outcome),
    Seated(u32),
}

/// What came of asking without waiting.
pub(super) enum Taken {
    Allowed(Decision, Option<Given>),
    /// There is no room under the key, or others wait before it.
    Denied,
    /// The semaphore holds as many leases as it may.
    Full,
}

/// What is done when the lock has been given back.
#[derive(Default)]
#[must_use = "those who wait are to be woken"]
pub(super) struct After {
    pub(super) wake: Vec<Waker>,
    /// A waker is its maker's, and so is what dropping it does.
    pub(super) drop: Option<Waker>,
    /// The costs of leases that have lapsed, if somebody wants to know.
    pub(super) expired: Vec<u32>,
    pub(super) ring_at: Option<Time>,
}

impl Shard {
    pub(super) fn new(rule: Concurrency, common: Arc<Common>, number: u32) -> Arc<Shard> {
        Arc::new(Shard { book: Lock::new(Book::new(rule)), common, number })
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
        by: By<'_>,
        key: Fingerprint,
        cost: u32,
        now: Option<Time>,
    ) -> Grant {
        let grant = match self.take(by, key, cost, now) {
            Some(grant) => grant,
            None => self.make_room_and(by, now, |now| self.take(by, key, cost, now)),
        };
        self.observe(&grant);
        grant
    }

    /// A lease now if there is one; else nothing has happened.
    #[inline]
    pub(super) fn at_once(self: &Arc<Shard>, by: By<'_>, key: Fingerprint, cost: u32) -> Option<Grant> {
        let grant = self.locked(by, None, |desk| match desk.take(key, cost) {
            Taken::Allowed(decision, given) => Some(self.granted(decision, Span::ZERO, given)),
            Taken::Denied | Taken::Full => None,
        })?;
        self.observe(&grant);
        Some(grant)
    }

    /// A lease, or the denial; `None` if the semaphore holds as many as it may.
    #[inline]
    fn take(self: &Arc<Shard>, by: By<'_>, key: Fingerprint, cost: u32, now: Option<Time>) -> Option<Grant> {
        self.locked(by, now, |desk| match desk.take(key, cost) {
            Taken::Allowed(decision, given) => Some(self.granted(decision, Span::ZERO, given)),
            Taken::Denied => {
                Some(Grant::new(Acquired::at_once(desk.deny(key, cost).into(), Span::ZERO), None))
            }
            Taken::Full => None,
        })
    }

    /// Takes a lease, or a place in line: there the waker is taken too. Whoever asked notes what came of it, then does [`Shard::then`].
    pub(super) fn join(
        self: &Arc<Shard>,
        by: By<'_>,
        waiter: &Waiter,
        now: Time,
        waker: &mut Option<Waker>,
    ) -> (Joined, Option<After>) {
        let mut wait = TICK;
        for _ in 0..TRIES {
            let mut desk = self.open(by, Some(now));
            let joined = desk.join(waiter, waker);
            let after = desk.close();
            if let Some(joined) = joined {
                return (joined, after);
            }
            self.then(after);
            if let Err(longer) = self.make_room(now) {
                wait = longer;
                break;
            }
        }
        let decision = self.no_room(by, wait);
        (Joined::Done(Outcome::Refused { denial: Denial::NoRoom, decision, at: now }), None)
    }

    /// What has come of a seat, which is then given up. `None` if nothing has yet: its caller will be woken. Whoever looks notes what came of
    /// it, then does [`Shard::then`].
    pub(super) fn look(self: &Arc<Shard>, seat: u32, waker: &Waker) -> (Option<Outcome>, Option<After>) {
        // Cloned here, as cloning is the business of whoever made it.
        let waker = waker.clone();
        let mut desk = self.open(None, None);
        let outcome = desk.look(seat, waker);
        (outcome, desk.close())
    }

    /// A caller has lost interest: what it held goes to the next.
    #[cold]
    pub(super) fn leave(self: &Arc<Shard>, seat: u32) {
        self.locked(None, None, |desk| desk.leave(seat));
    }

    #[inline]
    pub(super) fn release(self: &Arc<Shard>, name: Name) -> bool {
        self.locked(None, None, |desk| desk.release(name))
    }

    /// Releases a lease by id. Like every operation on a key it first drops expired leases, and applies the caller's
    /// limit to queued waiters.
    pub(super) fn release_of(
        self: &Arc<Shard>,
        by: By<'_>,
        key: Fingerprint,
        name: Name,
        now: Option<Time>,
    ) -> bool {
        self.locked(by, now, |desk| {
            desk.see(key);
            desk.release(name)
        })
    }

    /// The same to renew it. Whether it is live.
    pub(super) fn renew_of(
        self: &Arc<Shard>,
        by: By<'_>,
        key: Fingerprint,
        name: Name,
        now: Option<Time>,
    ) -> bool {
        self.locked(by, now, |desk| {
            desk.see(key);
            desk.renew(name).is_some()
        })
    }

    /// How it is held from now on. `None` if it is not live any more.
    pub(super) fn renew(self: &Arc<Shard>, name: Name) -> Option<Held> {
        self.locked(None, None, |desk| desk.renew(name))
    }

    pub(super) fn peek(
        self: &Arc<Shard>,
        by: By<'_>,
        key: Fingerprint,
        cost: u32,
        now: Option<Time>,
    ) -> Decision {
        self.locked(by, now, |desk| desk.peek(key, cost))
    }

    pub(super) fn reset(self: &Arc<Shard>, by: By<'_>, key: Fingerprint) {
        self.locked(by, None, |desk| desk.reset(key));
    }

    /// Changes the numbers. The caller does [`Shard::then`] when it holds no lock of its own.
    pub(super) fn change(self: &Arc<Shard>, rule: Concurrency) -> Option<After> {
        let mut desk = self.open(None, None);
        desk.change(rule);
        desk.close()
    }

    pub(super) fn add_to(&self, stats: &mut SemaphoreStats) {
        self.book.lock().add_to(stats);
    }

    /// What somebody who asked is told.
    pub(super) fn grant(self: &Arc<Shard>, outcome: Outcome, since: Time) -> Grant {
        match outcome {
            Outcome::Allowed { decision, given, at } => self.granted(decision, at.since(since), given),
            Outcome::Refused { denial, decision, at } => refused(denial, decision, at.since(since)),
        }
    }

    #[inline]
    fn granted(self: &Arc<Shard>, decision: Decision, waited: Span, given: Option<Given>) -> Grant {
        let lease = given.map(|Given { name, until }| Lease::new(Arc::clone(self), name, until));
        Grant::new(Acquired::after(decision, waited), lease)
    }

    #[inline]
    fn open<'a>(&'a self, by: By<'a>, now: Option<Time>) -> Desk<'a> {
        Desk::new(self.book.lock(), &self.common, now, by)
    }

    /// Acts under the lock for one of several semaphores, then wakes, tells and sets the clock.
    #[inline]
    fn locked<R>(
        self: &Arc<Shard>,
        by: By<'_>,
        now: Option<Time>,
        act: impl FnOnce(&mut Desk<'_>) -> R,
    ) -> R {
        let mut desk = self.open(by, now);
        let result = act(&mut desk);
        self.then(desk.close());
        result
    }

    /// What is left to do when the lock has been given back.
    #[inline]
    pub(super) fn then(self: &Arc<Shard>, after: Option<After>) {
        if after.is_some() {
            let mut callbacks = Callbacks::default();
            self.then_by(after, &mut callbacks);
            callbacks.end();
        }
    }

    /// The same together with what other shards have to do.
    #[cold]
    pub(super) fn then_by(self: &Arc<Shard>, after: Option<After>, callbacks: &mut Callbacks) {
        let Some(After { wake, drop, expired, ring_at }) = after else { return };
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

    /// Tells the observer of an answer. What was given has its owner by then.
    #[inline]
    pub(super) fn observe(&self, grant: &Grant) {
        if let Some(observer) = &self.common.observer {
            observer.decided(&grant.decision());
        }
    }

    /// Makes room for a lease and tries again; refused if there is none.
    #[cold]
    fn make_room_and(
        self: &Arc<Shard>,
        by: By<'_>,
        now: Option<Time>,
        mut again: impl FnMut(Option<Time>) -> Option<Grant>,
    ) -> Grant {
        let (at, mut wait) = (now.unwrap_or_else(|| self.now()), TICK);
        for _ in 0..TRIES {
            if let Err(after) = self.make_room(at) {
                wait = after;
                break;
            }
            if let Some(grant) = again(now) {
                return grant;
            }
        }
        refused(Denial::NoRoom, self.no_room(by, wait), Span::ZERO)
    }

    /// Finds room for a lease: what other shards keep and do not use, and what has lapsed and nobody has seen since.
    ///
    /// # Errors
    /// When there is none: how long until the next lease lapses, as far as is known.
    #[cold]
    fn make_room(&self, now: Time) -> Result<(), Span> {
        let mut soonest: Option<Time> = None;
        for shard in self.common.shards.get().into_iter().flatten().filter_map(Weak::upgrade) {
            match shard.locked(None, Some(now), make_room) {
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
        let _ = self.locked(None, Some(now), make_room);
    }

    /// The answer when the semaphore holds as many leases as it may.
    #[cold]
    fn no_room(&self, by: By<'_>, wait: Span) -> Decision {
        let mut book = self.book.lock();
        book.count_denied();
        Decision::no_room(by.map_or_else(|| book.count(), |by| by.rule.count()), RetryAfter::After(wait))
    }
}

fn make_room(desk: &mut Desk<'_>) -> Result<(), Option<Time>> {
    desk.make_room()
}

impl AlarmHandler for Shard {
    fn ring(self: Arc<Self>, at: Time) {
        self.locked(None, None, |desk| desk.ring(at));
    }

    /// Whoever waits looks again, and so sets another alarm. Not here: in a runtime that ends that would be lost as well.
    fn lost(self: Arc<Self>, at: Time) {
        let wakers = self.book.lock().alarm_is_lost(at);
        wake_all(wakers);
    }
}
