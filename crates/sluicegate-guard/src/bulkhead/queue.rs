//! The waiters of a bulkhead, under one lock that is taken only while there are waiters, or about
//! to be one.
//!
//! A permit granted to a waiter is held from that moment on, and delivered when its task polls. If
//! the task is gone by then the permit goes to the next waiter. No waker runs, and no value of a
//! caller is dropped, under the lock: [`LockedQueue::unlock`] does both afterwards.

use super::Inner;
use crate::timeout::Deadlines;
use sluicegate::internal::sync::MutexGuard;
use sluicegate::internal::{AlarmHandler, Interval, alarm};
use sluicegate::internal::{MaxWait, wake_all};
use sluicegate::wait::{Denial, Priority};
use sluicegate_core::append_mostly_map::AppendMostlyMap;
use sluicegate_core::{Span, Time};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::Waker;

/// Waiter numbers are ours, not a caller's, so no one can choose them to collide.
type ByNumber = foldhash::fast::FixedState;

/// The state behind the lock.
#[derive(Default)]
pub(super) struct Queue {
    /// In the order in which they are served.
    waiting: AppendMostlyMap<WaiterId, Waiter>,
    /// Results that their tasks have not polled yet.
    results: HashMap<u64, WaitResult, ByNumber>,
    /// The deadline of each waiter.
    deadlines: Deadlines<WaiterId>,
    next: u64,
}

/// Identifies a waiter until its result is delivered. Ordered by priority, then first in, first
/// out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WaiterId {
    priority: Priority,
    number: u64,
}

struct Waiter {
    /// `None` after it was woken, until it polls again.
    waker: Option<Waker>,
    wait: Interval,
}

/// The result of waiting, and its duration.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitResult {
    /// A permit is held for the waiter.
    Granted(Span),
    Denied(Denial, Span),
}

/// The result of enqueuing.
pub(super) enum Enqueue {
    Acquired,
    Queued(WaiterId),
    Denied(Denial),
}

/// The locked queue, with the effects to run after unlocking.
pub(super) struct LockedQueue<'a> {
    queue: MutexGuard<'a, Queue>,
    inner: &'a Arc<Inner>,
    now: Time,
    wake: Vec<Waker>,
    /// Cloning or dropping a waker runs foreign code, so a waker is dropped after the lock is
    /// released.
    drop: Option<Waker>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl<'a> LockedQueue<'a> {
    pub(super) fn lock(inner: &'a Arc<Inner>) -> LockedQueue<'a> {
        let queue = inner.lock();
        let now = inner.clock.now();
        LockedQueue { queue, inner, now, wake: Vec::new(), drop: None }
    }

    /// Releases the lock, sets the alarm for the next deadline, then wakes waiters.
    pub(super) fn unlock(self) {
        let LockedQueue { mut queue, inner, wake, drop: dropped, .. } = self;
        if queue.waiting.is_empty() {
            inner.permits.clear_waiting();
        }
        let ring_at = queue.deadlines.next_alarm();
        drop(queue);
        if let Some(time) = ring_at {
            let weak: Weak<Inner> = Arc::downgrade(inner);
            inner.clock.ring_at(time, alarm(weak, time));
        }
        wake_all(wake);
        // Last, since it may panic.
        drop(dropped);
    }

    /// Takes a permit if one is free and there is no waiter; otherwise enqueues a waiter or denies
    /// the call.
    pub(super) fn join(&mut self, priority: Priority, max_wait: MaxWait, waker: Waker) -> Enqueue {
        self.dispatch();
        let until = max_wait.deadline(self.now).unwrap_or(Time::MAX);
        let joined = self.admit_or_enqueue(priority, until);
        let Enqueue::Queued(waiter_id) = joined else {
            self.drop = Some(waker);
            return joined;
        };
        let wait = Interval::new(self.now, until.since(self.now));
        self.queue.waiting.insert(waiter_id, Waiter { waker: Some(waker), wait });
        self.queue.deadlines.insert(until, waiter_id.number, waiter_id);
        joined
    }

    /// Decides; if the call is to wait, with a new waiter id.
    fn admit_or_enqueue(&mut self, priority: Priority, until: Time) -> Enqueue {
        if until < self.now {
            return Enqueue::Denied(Denial::TooLong);
        }
        let (queue_max, may_wait) = (self.inner.queue_max(), self.now < until);
        if self.queue.waiting.is_empty() {
            let is_taken = if queue_max > 0 && may_wait {
                self.inner.permits.take_or_mark_waiting()
            } else {
                self.inner.permits.try_take_for_waiter()
            };
            if is_taken {
                return Enqueue::Acquired;
            }
        }
        if !may_wait {
            return Enqueue::Denied(Denial::TooLong);
        }
        if self.queue.len() >= queue_max {
            return Enqueue::Denied(Denial::QueueFull);
        }
        let number = self.queue.next;
        self.queue.next += 1;
        Enqueue::Queued(WaiterId { priority, number })
    }

    /// Returns and removes the result of a waiter. `None` if there is none yet: its task will be
    /// woken.
    pub(super) fn poll_result(&mut self, waiter_id: WaiterId, waker: Waker) -> Option<WaitResult> {
        let mut results = self.queue.results.remove(&waiter_id.number);
        if results.is_none() && self.queue.deadlines.is_due(self.now) {
            // A poll makes progress even if the alarm was lost.
            self.dispatch();
            results = self.queue.results.remove(&waiter_id.number);
        }
        let waiter = if results.is_none() { self.queue.waiting.get_mut(&waiter_id) } else { None };
        self.drop = match waiter {
            Some(waiter) => waiter.waker.replace(waker),
            None => Some(waker),
        };
        results
    }

    /// Removes a waiter. A permit already granted to it goes to the next one.
    pub(super) fn cancel(&mut self, waiter_id: WaiterId) {
        if let Some(Waiter { waker, wait }) = self.queue.waiting.remove(&waiter_id) {
            self.queue.deadlines.remove(wait.end(), waiter_id.number);
            self.drop = waker;
        } else if let Some(WaitResult::Granted(_)) = self.queue.results.remove(&waiter_id.number) {
            self.inner.permits.release();
            self.dispatch();
        }
    }

    /// Handles an alarm.
    pub(super) fn ring(&mut self, at: Time) {
        self.queue.deadlines.alarm_done(at);
        if self.now < at {
            self.restart_ahead();
        }
        self.dispatch();
    }

    /// The clock was set back, or rang too early. Waits that would begin in the future begin now,
    /// so that they last as long again and not until the clock shows their deadline.
    fn restart_ahead(&mut self) {
        let LockedQueue { queue, now, .. } = self;
        let Queue { waiting, deadlines, .. } = &mut **queue;
        for (waiter_id, Waiter { wait, .. }) in waiting.iter_mut() {
            if wait.starts_after(*now) {
                deadlines.remove(wait.end(), waiter_id.number);
                deadlines.insert(wait.end_as_of(*now), waiter_id.number, *waiter_id);
            }
        }
    }

    /// Denies waiters whose deadline has passed, then grants free permits in order.
    pub(super) fn dispatch(&mut self) {
        while let Some((_, waiter_id)) = self.queue.deadlines.pop(self.now) {
            if let Some(waiter) = self.queue.waiting.remove(&waiter_id) {
                let results = WaitResult::Denied(Denial::TooLong, self.now.since(waiter.wait.start()));
                self.resolve(waiter_id, waiter, results);
            }
        }
        while !self.queue.waiting.is_empty() && self.inner.permits.try_take_for_waiter() {
            let Some((waiter_id, waiter)) = self.queue.waiting.pop_first() else { return };
            self.queue.deadlines.remove(waiter.wait.end(), waiter_id.number);
            let results = WaitResult::Granted(self.now.since(waiter.wait.start()));
            self.resolve(waiter_id, waiter, results);
        }
    }

    fn resolve(&mut self, waiter_id: WaiterId, waiter: Waiter, results: WaitResult) {
        self.queue.results.insert(waiter_id.number, results);
        self.wake.extend(waiter.waker);
    }
}

impl AlarmHandler for Inner {
    fn ring(self: Arc<Self>, at: Time) {
        let mut queue = LockedQueue::lock(&self);
        queue.ring(at);
        queue.unlock();
    }

    /// Wakes all waiters, so that their polls set another alarm.
    fn lost(self: Arc<Self>, at: Time) {
        let wakers = {
            let mut queue = self.lock();
            queue.deadlines.alarm_done(at);
            queue.waiting.iter_mut().filter_map(|(_, waiter)| waiter.waker.take()).collect()
        };
        wake_all(wakers);
    }
}
