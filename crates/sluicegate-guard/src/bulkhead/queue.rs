//! Those who wait for a permit of a bulkhead, under one lock that is only taken while somebody waits or is about to.
//!
//! Whoever is called holds a permit from that moment on, and is told when it looks; if it is gone by then, the permit goes to the next.
//! Nobody is woken and nothing of a caller's is dropped under the lock: that is done when a [`Desk`] has been closed.

use super::Shared;
use crate::timeout::Due;
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
    waiting: AppendMostlyMap<Ticket, Waiter>,
    /// What those have not seen yet who were called or refused.
    told: HashMap<u64, Told, ByNumber>,
    /// When the patience of each ends.
    due: Due<Ticket>,
    next: u64,
}

/// Names somebody who waits, until that one has seen what came of it. First those of a higher priority, then who came first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket {
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
pub(super) enum Told {
    /// A permit is held for it.
    Called(Span),
    Refused(Denial, Span),
}

/// What came of asking.
pub(super) enum Joined {
    Taken,
    Waits(Ticket),
    Refused(Denial),
}

/// The queue, open.
pub(super) struct Desk<'a> {
    queue: MutexGuard<'a, Queue>,
    shared: &'a Arc<Shared>,
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

impl<'a> Desk<'a> {
    pub(super) fn open(shared: &'a Arc<Shared>) -> Desk<'a> {
        let queue = shared.lock();
        let now = shared.clock.now();
        Desk { queue, shared, now, wake: Vec::new(), drop: None }
    }

    /// Closes the queue, then wakes whom it told something and has the clock ring when the next one's patience ends.
    pub(super) fn close(self) {
        let Desk { mut queue, shared, wake, drop: dropped, .. } = self;
        if queue.waiting.is_empty() {
            shared.permits.nobody_waits();
        }
        let ring_at = queue.due.sets_alarm();
        drop(queue);
        if let Some(time) = ring_at {
            let weak: Weak<Shared> = Arc::downgrade(shared);
            shared.clock.ring_at(time, alarm(weak, time));
        }
        wake_all(wake);
        // The last, as it may panic.
        drop(dropped);
    }

    /// A permit, if one is free and nobody waits for it; else somebody more waits, or is told why not.
    pub(super) fn join(&mut self, priority: Priority, patience: MaxWait, waker: Waker) -> Joined {
        self.go_on();
        let until = patience.deadline(self.now).unwrap_or(Time::MAX);
        let joined = self.seat(priority, until);
        let Joined::Waits(ticket) = joined else {
            self.drop = Some(waker);
            return joined;
        };
        let patience = Interval::new(self.now, until.since(self.now));
        self.queue.waiting.insert(ticket, Waiter { waker: Some(waker), patience });
        self.queue.due.insert(until, ticket.number, ticket);
        joined
    }

    /// What comes of asking; if it is to wait, a ticket that nobody has.
    fn seat(&mut self, priority: Priority, until: Time) -> Joined {
        if until < self.now {
            return Joined::Refused(Denial::TooLong);
        }
        let (queue_max, may_wait) = (self.shared.queue_max(), self.now < until);
        if self.queue.waiting.is_empty() {
            let is_taken = if queue_max > 0 && may_wait {
                self.shared.permits.take_or_wait()
            } else {
                self.shared.permits.take_for_the_first()
            };
            if is_taken {
                return Joined::Taken;
            }
        }
        if !may_wait {
            return Joined::Refused(Denial::TooLong);
        }
        if self.queue.len() >= queue_max {
            return Joined::Refused(Denial::QueueFull);
        }
        let number = self.queue.next;
        self.queue.next += 1;
        Joined::Waits(Ticket { priority, number })
    }

    /// What has come of waiting, which is then seen. `None` if nothing has yet: its caller will be woken.
    pub(super) fn look(&mut self, ticket: Ticket, waker: Waker) -> Option<Told> {
        let mut told = self.queue.told.remove(&ticket.number);
        if told.is_none() && self.queue.due.is_due(self.now) {
            // Whoever looks helps itself, should the clock not have rung.
            self.go_on();
            told = self.queue.told.remove(&ticket.number);
        }
        let waiter = if told.is_none() { self.queue.waiting.get_mut(&ticket) } else { None };
        self.drop = match waiter {
            Some(waiter) => waiter.waker.replace(waker),
            None => Some(waker),
        };
        told
    }

    /// Somebody has lost interest. A permit that was held for it goes to the next.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        if let Some(Waiter { waker, patience }) = self.queue.waiting.remove(&ticket) {
            self.queue.due.remove(patience.end(), ticket.number);
            self.drop = waker;
        } else if let Some(Told::Called(_)) = self.queue.told.remove(&ticket.number) {
            self.shared.permits.give_back();
            self.go_on();
        }
    }

    /// The alarm for a time rings.
    pub(super) fn ring(&mut self, at: Time) {
        self.queue.due.alarm_is_gone(at);
        if self.now < at {
            self.begin_again();
        }
        self.go_on();
    }

    /// The clock was set back, or has rung too early: those who would come only later have come now, so that they wait as long again
    /// and not until the clock shows that time once more.
    fn begin_again(&mut self) {
        let Desk { queue, now, .. } = self;
        let Queue { waiting, due, .. } = &mut **queue;
        for (ticket, Waiter { patience, .. }) in waiting.iter_mut() {
            if patience.starts_after(*now) {
                due.remove(patience.end(), ticket.number);
                due.insert(patience.end_as_of(*now), ticket.number, *ticket);
            }
        }
    }

    /// Refuses those whose patience has ended, and calls the first for as long as permits are free.
    pub(super) fn go_on(&mut self) {
        while let Some((_, ticket)) = self.queue.due.pop(self.now) {
            if let Some(waiter) = self.queue.waiting.remove(&ticket) {
                let told = Told::Refused(Denial::TooLong, self.now.since(waiter.patience.start()));
                self.tell(ticket, waiter, told);
            }
        }
        while !self.queue.waiting.is_empty() && self.shared.permits.take_for_the_first() {
            let Some((ticket, waiter)) = self.queue.waiting.pop_first() else { return };
            self.queue.due.remove(waiter.patience.end(), ticket.number);
            let told = Told::Called(self.now.since(waiter.patience.start()));
            self.tell(ticket, waiter, told);
        }
    }

    fn tell(&mut self, ticket: Ticket, waiter: Waiter, told: Told) {
        self.queue.told.insert(ticket.number, told);
        self.wake.extend(waiter.waker);
    }
}

impl AlarmHandler for Shared {
    fn ring(self: Arc<Self>, at: Time) {
        let mut desk = Desk::open(&self);
        desk.ring(at);
        desk.close();
    }

    /// Whoever waits looks again, and so sets another alarm.
    fn lost(self: Arc<Self>, at: Time) {
        let wakers = {
            let mut queue = self.lock();
            queue.due.alarm_is_gone(at);
            queue.waiting.iter_mut().filter_map(|(_, waiter)| waiter.waker.take()).collect()
        };
        wake_all(wakers);
    }
}
