//! Those who wait for a permit of a bulkhead, under one lock that is only taken while somebody waits or is about to.
//!
//! Whoever is called holds a permit from that moment on, and is told when it looks; if it is gone by then, the permit goes to the next.
//! Nobody is woken and nothing of a caller's is dropped under the lock: that is done when a [`Desk`] has been closed.

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

/// The numbers are ours and not a caller's, so nobody can pick them to collide.
type ByNumber = foldhash::fast::FixedState;

/// What the lock guards.
#[derive(Default)]
pub(super) struct Queue {
    /// In the order in which they are called.
    waiting: AppendMostlyMap<WaiterId, Waiter>,
    /// What those have not seen yet who were called or refused.
    results: HashMap<u64, WaitResult, ByNumber>,
    /// When the patience of each ends.
    deadlines: Deadlines<WaiterId>,
    next: u64,
}

/// Names somebody who waits, until that one has seen what came of it. First those of a higher priority, then who came first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WaiterId {
    priority: Priority,
    number: u64,
}

struct Waiter {
    /// `None` from when it was woken to look again until it does.
    waker: Option<Waker>,
    patience: Interval,
}

/// What came of waiting, and for how long that took.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitResult {
    /// A permit is held for it.
    Granted(Span),
    Denied(Denial, Span),
}

/// What came of asking.
pub(super) enum Enqueue {
    Acquired,
    Queued(WaiterId),
    Denied(Denial),
}

/// The queue, open.
pub(super) struct LockedQueue<'a> {
    queue: MutexGuard<'a, Queue>,
    inner: &'a Arc<Inner>,
    now: Time,
    wake: Vec<Waker>,
    /// Wakers are theirs who made them, and so is what cloning or dropping one does.
    drop: Option<Waker>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl<'a> LockedQueue<'a> {
    pub(super) fn open(inner: &'a Arc<Inner>) -> LockedQueue<'a> {
        let queue = inner.lock();
        let now = inner.clock.now();
        LockedQueue { queue, inner, now, wake: Vec::new(), drop: None }
    }

    /// Closes the queue, then wakes whom it told something and has the clock ring when the next one's patience ends.
    pub(super) fn close(self) {
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
        // The last, as it may panic.
        drop(dropped);
    }

    /// A permit, if one is free and nobody waits for it; else somebody more waits, or is told why not.
    pub(super) fn join(&mut self, priority: Priority, patience: MaxWait, waker: Waker) -> Enqueue {
        self.dispatch();
        let until = patience.deadline(self.now).unwrap_or(Time::MAX);
        let joined = self.admit_or_enqueue(priority, until);
        let Enqueue::Queued(waiter_id) = joined else {
            self.drop = Some(waker);
            return joined;
        };
        let patience = Interval::new(self.now, until.since(self.now));
        self.queue.waiting.insert(waiter_id, Waiter { waker: Some(waker), patience });
        self.queue.deadlines.insert(until, waiter_id.number, waiter_id);
        joined
    }

    /// What comes of asking; if it is to wait, a ticket that nobody has.
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

    /// What has come of waiting, which is then seen. `None` if nothing has yet: its caller will be woken.
    pub(super) fn poll_result(&mut self, waiter_id: WaiterId, waker: Waker) -> Option<WaitResult> {
        let mut results = self.queue.results.remove(&waiter_id.number);
        if results.is_none() && self.queue.deadlines.is_due(self.now) {
            // Whoever looks helps itself, should the clock not have rung.
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

    /// Somebody has lost interest. A permit that was held for it goes to the next.
    pub(super) fn cancel(&mut self, waiter_id: WaiterId) {
        if let Some(Waiter { waker, patience }) = self.queue.waiting.remove(&waiter_id) {
            self.queue.deadlines.remove(patience.end(), waiter_id.number);
            self.drop = waker;
        } else if let Some(WaitResult::Granted(_)) = self.queue.results.remove(&waiter_id.number) {
            self.inner.permits.release();
            self.dispatch();
        }
    }

    /// The alarm for a time rings.
    pub(super) fn ring(&mut self, at: Time) {
        self.queue.deadlines.alarm_done(at);
        if self.now < at {
            self.restart_ahead();
        }
        self.dispatch();
    }

    /// The clock was set back, or has rung too early: those who would come only later have come now, so that they wait as long again
    /// and not until the clock shows that time once more.
    fn restart_ahead(&mut self) {
        let LockedQueue { queue, now, .. } = self;
        let Queue { waiting, deadlines, .. } = &mut **queue;
        for (waiter_id, Waiter { patience, .. }) in waiting.iter_mut() {
            if patience.starts_after(*now) {
                deadlines.remove(patience.end(), waiter_id.number);
                deadlines.insert(patience.end_as_of(*now), waiter_id.number, *waiter_id);
            }
        }
    }

    /// Refuses those whose patience has ended, and calls the first for as long as permits are free.
    pub(super) fn dispatch(&mut self) {
        while let Some((_, waiter_id)) = self.queue.deadlines.pop(self.now) {
            if let Some(waiter) = self.queue.waiting.remove(&waiter_id) {
                let results = WaitResult::Denied(Denial::TooLong, self.now.since(waiter.patience.start()));
                self.resolve(waiter_id, waiter, results);
            }
        }
        while !self.queue.waiting.is_empty() && self.inner.permits.try_take_for_waiter() {
            let Some((waiter_id, waiter)) = self.queue.waiting.pop_first() else { return };
            self.queue.deadlines.remove(waiter.patience.end(), waiter_id.number);
            let results = WaitResult::Granted(self.now.since(waiter.patience.start()));
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
        let mut queue = LockedQueue::open(&self);
        queue.ring(at);
        queue.close();
    }

    /// Whoever waits looks again, and so sets another alarm.
    fn lost(self: Arc<Self>, at: Time) {
        let wakers = {
            let mut queue = self.lock();
            queue.deadlines.alarm_done(at);
            queue.waiting.iter_mut().filter_map(|(_, waiter)| waiter.waker.take()).collect()
        };
        wake_all(wakers);
    }
}
