//! What happens to a shard's wait queues under its lock.

use super::locked_shard::{LockedShard, peek};
use super::scope::ScopedLimit;
use super::shard::{Joined, LeaseAttempt, LeaseOutcome, LeaseRequest, TICK};
use super::state::{Due, KeyLeases, ShardState, WaiterState};
use crate::clock::interval::Interval;
use crate::key::Fingerprint;
use crate::sync::Ordering;
use crate::wait::{Denial, Priority};
use sluicegate_core::decision::store::StoreDecision as _;
use sluicegate_core::{Decision, Time};
use std::task::Waker;

impl LockedShard<'_> {
    /// Grants a lease, or enqueues or denies the call. `None` if the semaphore holds its maximum of
    /// leases.
    pub(super) fn join(&mut self, request: &LeaseRequest, waker: &mut Option<Waker>) -> Option<Joined> {
        let LeaseRequest { key, cost, until, priority, .. } = *request;
        let now = self.clock_now();
        if until.is_none_or(|until| now <= until) {
            match self.take(key, cost) {
                LeaseAttempt::Allowed(decision, granted) => {
                    return Some(Joined::Done(LeaseOutcome::Allowed { decision, granted, at: now }));
                }
                LeaseAttempt::Full => return None,
                LeaseAttempt::Denied if cost > self.limit_of(key).count() => {
                    return Some(self.deny_join(Denial::Never, key, cost));
                }
                LeaseAttempt::Denied => {}
            }
        }
        if until.is_some_and(|until| until <= now) {
            return Some(self.deny_join(Denial::TooLong, key, cost));
        }
        let bounds = self.common.bounds;
        let queue = self.state.keys.get(&key).and_then(|known| known.queue.as_ref());
        if queue.map_or(0, |queue| queue.waiting.len()) >= bounds.per_key {
            return Some(self.deny_join(Denial::QueueFull, key, cost));
        }
        if self.caller.is_some_and(|scoped| !scoped.claim()) {
            return None;
        }
        if self.state.reserved == 0 {
            let Some(more) = self.common.capacity.take() else {
                self.unclaim();
                return None;
            };
            self.state.reserved = more + 1;
        }
        if self.common.waiting.fetch_add(1, Ordering::Relaxed) >= bounds.total {
            self.common.waiting.fetch_sub(1, Ordering::Relaxed);
            self.unclaim();
            return Some(self.deny_join(Denial::QueueFull, key, cost));
        }
        // A waiter reserves the capacity for its lease, so that it is not denied once permits are
        // free.
        self.state.reserved -= 1;
        let ShardState { keys, waiters, due, .. } = &mut *self.state;
        let known = keys.entry(key).or_insert_with(|| KeyLeases::new(self.caller));
        known.count(ScopedLimit::waiter_added);
        let queue = known.queue.get_or_insert_default();
        let position = (priority, queue.next);
        queue.next += 1;
        queue.cost += cost;
        // No real waker yet: the lease may be granted right here.
        let waiter = waiters.insert(WaiterState::Waiting {
            request: *request,
            position,
            waker: Waker::noop().clone(),
        });
        queue.waiting.insert(position, (waiter, cost));
        if let Some(until) = until {
            due.insert((until, Due::Deadline(waiter)), ());
        }
        let is_head = queue.waiting.first().is_some_and(|(head, _)| *head == position);
        if is_head {
            self.grant_waiters(key, now);
            self.drop_if_unused(key);
        }
        if let Some(outcome) = self.take_outcome(waiter) {
            return Some(Joined::Done(outcome));
        }
        self.deferred.drop = waker.take().map(|waker| self.replace_waker(waiter, waker));
        Some(Joined::Enqueued(waiter))
    }

    pub(super) fn poll(&mut self, waiter: u32, waker: Waker) -> Option<LeaseOutcome> {
        if matches!(self.state.waiters.get(waiter), Some(WaiterState::Waiting { .. })) {
            // The polling task processes due events itself, in case the clock has not rung.
            self.process_due();
        }
        let outcome = self.take_outcome(waiter);
        self.deferred.drop = Some(if outcome.is_some() { waker } else { self.replace_waker(waiter, waker) });
        outcome
    }

    pub(super) fn leave(&mut self, waiter: u32) {
        match self.state.waiters.remove(waiter) {
            Some(WaiterState::Done(LeaseOutcome::Allowed { granted: Some(granted), .. })) => {
                self.release(granted.lease);
            }
            Some(WaiterState::Waiting { request, position, waker }) => {
                self.deferred.drop = Some(waker);
                self.dequeue(waiter, &request, position);
                self.return_waiter_capacity(request.key);
                self.advance_queue(request.key);
            }
            Some(WaiterState::Done(_)) | None => {}
        }
    }

    /// Handles the alarm for a time.
    pub(super) fn ring(&mut self, at: Time) {
        self.state.alarms.disarm(at);
        if self.clock_now() < at {
            self.restart_deadlines();
        }
        self.process_due();
    }

    /// The clock was set back, or has rung early: waiters that joined after the current time
    /// restart their waits now. They wait as long again, not until the clock shows their old
    /// deadlines.
    fn restart_deadlines(&mut self) {
        let now = self.clock_now();
        let ShardState { waiters, due, .. } = &mut *self.state;
        for (number, waiter) in waiters.iter_mut() {
            if let WaiterState::Waiting { request, .. } = waiter
                && let Some(until) = request.until
                && now < request.since
            {
                due.remove(&(until, Due::Deadline(number)));
                let until = Interval::new(request.since, until.since(request.since)).end_as_of(now);
                (request.since, request.until) = (now, Some(until));
                due.insert((until, Due::Deadline(number)), ());
            }
        }
    }

    /// Grants leases to a key's waiters after the key has changed, or drops the key if it is
    /// unused.
    pub(super) fn advance_queue(&mut self, key: Fingerprint) {
        if self.state.keys.get(&key).is_some_and(KeyLeases::has_waiters) {
            self.grant_waiters(key, self.now());
        }
        self.drop_if_unused(key);
    }

    /// Processes the events that the clock has rung for, or should have.
    fn process_due(&mut self) {
        if self.state.due.is_empty() {
            return;
        }
        let now = self.clock_now();
        while let Some(first) = self.state.due.first().map(|(first, ())| *first).filter(|(at, _)| *at <= now)
        {
            self.state.due.remove(&first);
            match first.1 {
                Due::Head(key) => {
                    if let Some(queue) = self.state.keys.get_mut(&key).and_then(|known| known.queue.as_mut())
                    {
                        queue.due_at = None;
                    }
                    self.expire(key, now);
                    self.advance_queue(key);
                }
                Due::Deadline(waiter) => {
                    if let Some(key) = self.deny_waiter(waiter, Denial::TooLong, now) {
                        self.advance_queue(key);
                    }
                }
            }
        }
    }

    /// Grants leases to the waiters at the head of a queue while enough permits are free, and plans
    /// when the next one is due.
    fn grant_waiters(&mut self, key: Fingerprint, now: Time) {
        self.clear_due(key);
        self.drain(key, now);
        loop {
            let limit = self.limit_of(key);
            let ShardState { keys, waiters, .. } = &mut *self.state;
            let Some(known) = keys.get_mut(&key) else { return };
            let Some(queue) = &known.queue else { return };
            let Some((_, &(waiter, cost))) = queue.waiting.first() else { return };
            let is_late = match waiters.get(waiter) {
                Some(WaiterState::Waiting { request, .. }) => request.until.is_some_and(|until| until < now),
                _ => false,
            };
            if is_late {
                // The machine slept, or the clock was set.
                self.deny_waiter(waiter, Denial::TooLong, now);
                continue;
            }
            if limit.fits(&known.leases, cost) {
                self.grant_to(waiter, key, cost, now);
                continue;
            }
            if cost > limit.count() {
                self.deny_waiter(waiter, Denial::Never, now);
                continue;
            }
            // If that is unknown, the queue advances when a lease is released.
            if let Some(due_at) = limit.recheck_at(&known.leases, cost)
                && let Some(queue) = &mut known.queue
            {
                queue.due_at = Some(due_at);
                self.state.due.insert((due_at, Due::Head(key)), ());
            }
            return;
        }
    }

    /// Applies a new limit to the waiters of a key: those that can never be admitted under it are
    /// denied, wherever they are in the queue, and the others continue.
    pub(super) fn apply_new_limit(&mut self, key: Fingerprint) {
        let (count, now) = (self.limit_of(key).count(), self.now());
        let queue = self.state.keys.get(&key).and_then(|known| known.queue.as_ref());
        let positions = queue.into_iter().flat_map(|queue| queue.waiting.iter());
        let never: Vec<u32> =
            positions.filter(|(_, (_, cost))| *cost > count).map(|(_, (waiter, _))| *waiter).collect();
        for waiter in never {
            self.deny_waiter(waiter, Denial::Never, now);
        }
        self.advance_queue(key);
    }

    /// Grants a lease to a waiter.
    fn grant_to(&mut self, waiter: u32, key: Fingerprint, cost: u64, now: Time) {
        let Some(WaiterState::Waiting { request, position, .. }) = self.state.waiters.get(waiter) else {
            return;
        };
        let (request, position) = (*request, *position);
        self.dequeue(waiter, &request, position);
        // The waiter has reserved the capacity.
        let (decision, granted) = self.state.grant(key, cost, now, None);
        self.resolve(waiter, LeaseOutcome::Allowed { decision, granted, at: now });
    }

    /// Denies a waiter. Returns its key.
    fn deny_waiter(&mut self, waiter: u32, denial: Denial, now: Time) -> Option<Fingerprint> {
        let Some(WaiterState::Waiting { request, position, .. }) = self.state.waiters.get(waiter) else {
            return None;
        };
        let (request, position) = (*request, *position);
        self.dequeue(waiter, &request, position);
        self.return_waiter_capacity(request.key);
        self.drain(request.key, now);
        self.state.counts.denied += 1;
        let limit = self.limit_of(request.key);
        let known = self.state.keys.get_mut(&request.key);
        let decision = peek(limit, known, now, request.cost);
        let decision = match denial {
            Denial::Never => decision.denied_forever(),
            _ => denial_of(decision),
        };
        self.resolve(waiter, LeaseOutcome::Denied { denial, decision, at: now });
        Some(request.key)
    }

    /// Returns the capacity that a waiter without a lease has reserved.
    fn return_waiter_capacity(&mut self, key: Fingerprint) {
        if let Some(known) = self.state.keys.get(&key) {
            known.count(ScopedLimit::unclaim);
        }
        self.return_capacity();
    }

    /// Removes a waiter from its queue; the queue is dropped with the last one.
    fn dequeue(&mut self, waiter: u32, request: &LeaseRequest, position: (Priority, u64)) {
        let ShardState { keys, due, .. } = &mut *self.state;
        if let Some(until) = request.until {
            due.remove(&(until, Due::Deadline(waiter)));
        }
        let Some(known) = keys.get_mut(&request.key) else { return };
        let Some(queue) = &mut known.queue else { return };
        if queue.waiting.remove(&position).is_some() {
            queue.cost -= request.cost;
            // (Not through `KeyLeases::count`: the queue is borrowed from the same key.)
            if let Some(scoped) = &known.scoped {
                scoped.waiter_removed();
            }
            self.common.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        if queue.waiting.is_empty() {
            if let Some(due_at) = queue.due_at {
                due.remove(&(due_at, Due::Head(request.key)));
            }
            known.queue = None;
        }
    }

    fn resolve(&mut self, waiter: u32, outcome: LeaseOutcome) {
        if let Some(state) = self.state.waiters.get_mut(waiter)
            && let WaiterState::Waiting { waker, .. } = std::mem::replace(state, WaiterState::Done(outcome))
        {
            self.deferred.wake.push(waker);
        }
    }

    /// The outcome of a waiter, which is then removed.
    fn take_outcome(&mut self, waiter: u32) -> Option<LeaseOutcome> {
        if !matches!(self.state.waiters.get(waiter), Some(WaiterState::Done(_))) {
            return None;
        }
        match self.state.waiters.remove(waiter)? {
            WaiterState::Done(outcome) => Some(outcome),
            WaiterState::Waiting { .. } => None,
        }
    }

    /// Sets the waker of a waiter. Returns the one to drop.
    fn replace_waker(&mut self, waiter: u32, new: Waker) -> Waker {
        match self.state.waiters.get_mut(waiter) {
            Some(WaiterState::Waiting { waker, .. }) => std::mem::replace(waker, new),
            _ => new,
        }
    }

    fn deny_join(&mut self, denial: Denial, key: Fingerprint, cost: u64) -> Joined {
        let decision = denial_of(self.deny(key, cost));
        Joined::Done(LeaseOutcome::Denied { denial, decision, at: self.clock_now() })
    }

    fn clear_due(&mut self, key: Fingerprint) {
        let ShardState { keys, due, .. } = &mut *self.state;
        let due_at =
            keys.get_mut(&key).and_then(|known| known.queue.as_mut()).and_then(|queue| queue.due_at.take());
        if let Some(due_at) = due_at {
            due.remove(&(due_at, Due::Head(key)));
        }
    }
}

/// A denial even if permits are free: with the shortest wait.
fn denial_of(decision: Decision) -> Decision {
    if decision.allowed() { decision.denied_for(TICK) } else { decision }
}
