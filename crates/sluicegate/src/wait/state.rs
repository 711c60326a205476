//! The state of a store's queues, and what happens to it under the lock.
//!
//! [`LockedQueues`] is the state locked at one point in time. Wakers and the clock's alarm are
//! foreign code, so they run after the lock is released.

use super::Denial;
use super::queues::{Host, Joined, Queues, WaitRequest, wake_all};
use super::waiters::{WaitOutcome, WaiterIndex, WaiterState, Waiters};
use crate::clock::alarms::Alarms;
use crate::clock::is_step;
use crate::key::{ByFingerprint, Fingerprint};
use crate::store::{HeadCharge, NotAdmitted, QueueStore};
use crate::sync::MutexGuard;
use sluicegate_core::decision::store::StoreDecision as _;
use sluicegate_core::queue::{self, KeyView, QueuedCall, has_pacer};
use sluicegate_core::rollback::Charges;
use sluicegate_core::{AnyLimit, AnyState, Decision, RetryAfter, Span, Time};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::task::Waker;

/// A waiter that is admitted late is charged as of when it was due, so that timer lateness does not
/// accumulate: 10,000 calls at 10,000 per second take one second. This bounds the catch-up: after a
/// machine has slept for an hour, it does not admit an hour's worth of calls at once. Windows and
/// logs, which bound what any period admits, do not catch up.
const CATCH_UP_MAX: Span = Span::from_micros(10_000);

/// The maximum number of woken waiters of a queue that have not polled. Dropping one of them
/// adjusts the charges of all others, a few microseconds of work at this many.
const WOKEN_MAX: usize = 1_024;

/// One tick: the shortest wait that can be reported.
const TICK: Span = Span::from_micros(1);

/// What the lock protects.
#[derive(Default)]
pub(super) struct QueueState {
    /// By key, without a tag.
    by_key: HashMap<Fingerprint, KeyQueue, ByFingerprint>,
    waiters: Waiters,
    /// When each queue's head is due, if known.
    due: BTreeSet<(Time, Fingerprint)>,
    alarms: Alarms,
    /// How far UTC was ahead of the clock when the queues were planned, in microseconds.
    utc_ahead: i64,
}

/// The queue of a key.
pub(super) struct KeyQueue {
    waiting: queue::Queue<AnyLimit, WaiterIndex>,
    /// As the store knows it, with the tag of its limits.
    key: Fingerprint,
    scope: Option<Fingerprint>,
    /// When the head is due; then it is also in `due`. Unknown while too many woken waiters have
    /// not polled.
    due_at: Option<Time>,
    /// The waiters that were woken and have not polled.
    woken: Woken,
    /// A cost known not to exceed the limits, and not to be bounded by a pacer's queue.
    known_cost: u64,
    /// The limits that the queue was planned with, if it was.
    limits: Option<Arc<[AnyLimit]>>,
    /// How often a charge of the key's shard had been returned because its receipt expired, when
    /// the latest waiter was charged.
    returns: u64,
}

/// The woken waiters of a queue that have not polled. Until then their charges can be rolled back.
#[derive(Default)]
struct Woken {
    waiters: Vec<WokenWaiter>,
    /// The charges of each.
    charges: Vec<Charges>,
}

/// A waiter that was woken and has not polled.
struct WokenWaiter {
    waiter: WaiterIndex,
    decision: Decision,
    /// When it was woken.
    at: Time,
    /// How often a charge of its shard had been returned because its receipt expired.
    returns: u64,
}

/// The locked state of all queues.
pub(super) struct LockedQueues<'a> {
    state: MutexGuard<'a, QueueState>,
    queues: &'a Arc<Queues>,
    host: &'a dyn Host,
    now: OnceCell<Time>,
    deferred: Deferred,
}

/// What runs after the lock is released: wakers are foreign code.
#[derive(Default)]
struct Deferred {
    wake: Vec<Waker>,
    /// A waker that was replaced or removed: dropping it runs foreign code too.
    drop: Option<Waker>,
}

/// A key's limits, and its states when they are needed.
struct KeySnapshot<'a> {
    store: &'a dyn QueueStore,
    key: Fingerprint,
    now: Time,
    limits: OnceCell<Arc<[AnyLimit]>>,
}

impl<'a> LockedQueues<'a> {
    pub(super) fn new(
        state: MutexGuard<'a, QueueState>,
        queues: &'a Arc<Queues>,
        host: &'a dyn Host,
        now: Option<Time>,
    ) -> LockedQueues<'a> {
        let now = now.map_or_else(OnceCell::new, OnceCell::from);
        LockedQueues { state, queues, host, now, deferred: Deferred::default() }
    }

    fn now(&self) -> Time {
        *self.now.get_or_init(|| self.host.clock().now())
    }

    /// Releases the lock, then sets the clock's alarm for the next head and wakes the admitted
    /// waiters.
    pub(super) fn unlock(self) {
        let LockedQueues { mut state, queues, host, deferred: Deferred { wake, drop: replaced }, .. } = self;
        let next = state.due.first().map(|(time, _)| *time);
        let ring_at = state.alarms.arm(next);
        drop(state);
        if let Some(time) = ring_at {
            host.clock().ring_at(time, queues.alarm(time));
        }
        wake_all(wake);
        drop(replaced);
    }

    pub(super) fn join(&mut self, request: &WaitRequest, waker: Waker) -> Joined {
        let WaitRequest { key, scope, cost, until, priority } = *request;
        let (store, now) = (self.host.store(), self.now());
        if let Some(until) = until.filter(|until| *until < now) {
            let denial = store.peek(key, now, cost).denied_for(now.since(until));
            store.count(key, &denial);
            return Joined::Denied(Denial::TooLong, denial);
        }
        if self.queue(key).is_none_or(|queue| queue.waiting.is_empty()) {
            match store.try_admit(key, cost, self.now()) {
                Ok(decision) => return Joined::Admitted(decision),
                Err(NotAdmitted::NoRoom(denial)) => return Joined::Denied(Denial::NoRoom, denial),
                Err(NotAdmitted::Wait) => {}
            }
        }
        if self.state.by_key.is_empty() {
            self.state.utc_ahead = self.host.clock().utc_ahead().micros();
        }
        let snapshot = self.snapshot(key);
        let QueueState { by_key, waiters, due, .. } = &mut *self.state;
        let queue = by_key.entry(id(key)).or_insert_with(|| KeyQueue::new(key, scope));
        let other_limits = queue.key != key;
        if other_limits || queue.waiting.is_empty() {
            // A limiter of the same scope has other limits: the latest ones apply. And while the
            // queue was empty, other calls may have changed the key.
            queue.key = key;
            queue.replan();
        }
        if other_limits {
            store.adopt_limits(key, now);
        }
        let ask = QueuedCall { cost, until, priority };
        let bounds = self.queues.bounds;
        let is_full = queue.waiting.len() >= bounds.per_key || self.queues.waiting() >= bounds.total;
        // Space frees up when the head of this queue, or else of any queue, is admitted. If no call
        // may wait at all, it is when the call would be allowed.
        let space_at = queue.due_at.or_else(|| due.first().map(|(due_at, _)| *due_at));
        let space_at = space_at.filter(|_| bounds.per_key > 0);
        if let Some((denial, decision)) = queue.denial_on_join(&snapshot, &ask, is_full, space_at) {
            self.drop_if_unused(key);
            store.count(key, &decision);
            return Joined::Denied(denial, decision);
        }
        let waiter = waiters.insert();
        let overtakes = queue.waiting.has_lower(priority);
        let position = queue.waiting.enqueue(ask, waiter, &snapshot, now);
        let is_head = queue.waiting.head().is_some_and(|(head, _)| *head == waiter);
        waiters.replace(waiter, WaiterState::Waiting { key, position, waker });
        self.queues.waiter_added(key);
        if overtakes {
            self.deny_late(&snapshot);
        }
        if is_head || other_limits {
            self.clear_due(key);
            self.advance(key, now);
            self.drop_if_unused(key);
        }
        Joined::Enqueued(waiter)
    }

    pub(super) fn poll(&mut self, waiter: WaiterIndex, waker: &Waker) -> Option<WaitOutcome> {
        if self.state.waiters.is_waiting(waiter) && self.is_due() {
            // The polling task admits due waiters itself, in case the clock has not rung.
            self.admit_due();
        }
        if self.state.waiters.is_waiting(waiter) {
            self.deferred.drop = self.state.waiters.replace_waker(waiter, waker);
            return None;
        }
        match self.state.waiters.remove(waiter) {
            WaiterState::Admitted { key, index } => {
                let (woken, _) = self.remove_woken(key, index)?;
                self.after_woken_removed(key);
                Some(WaitOutcome::Admitted(woken.decision, woken.at))
            }
            WaiterState::Denied(outcome) => {
                let (denial, decision, at) = *outcome;
                Some(WaitOutcome::Denied(denial, decision, at))
            }
            WaiterState::Free | WaiterState::Waiting { .. } => None,
        }
    }

    pub(super) fn leave(&mut self, waiter: WaiterIndex) {
        match self.state.waiters.remove(waiter) {
            WaiterState::Free | WaiterState::Denied(_) => {}
            WaiterState::Admitted { key, index } => {
                let now = self.now();
                let Some((woken, charges)) = self.remove_woken(key, index) else { return };
                if let Some(queue) = self.state.by_key.get_mut(&id(key)) {
                    // The charges of waiters that were woken later lie on top of this one, and the
                    // waiters behind it may become due sooner. The key is decided under its current
                    // limits.
                    if !charges.each().is_empty() {
                        let held = (&charges, woken.returns);
                        self.host.store().roll_back(queue.key, now, held, &mut queue.woken.charges);
                    }
                    queue.replan();
                }
                self.clear_due(key);
                self.after_woken_removed(key);
            }
            WaiterState::Waiting { key, position, waker } => {
                self.deferred.drop = Some(waker);
                let Some(queue) = self.state.by_key.get_mut(&id(key)) else { return };
                let was_head = queue.waiting.head().is_some_and(|(head, _)| *head == waiter);
                let left = queue.waiting.remove(position).is_some();
                self.queues.waiters_removed(key, usize::from(left));
                if was_head {
                    self.clear_due(key);
                    self.advance(key, self.now());
                }
                self.drop_if_unused(key);
            }
        }
    }

    pub(super) fn denial(&mut self, key: Fingerprint, cost: u64, at: Time) -> Option<Decision> {
        let key = self.queue(key).filter(|queue| !queue.waiting.is_empty())?.key;
        let snapshot = self.snapshot(key);
        let queue = self.state.by_key.get_mut(&id(key))?;
        queue.planned_with(&snapshot).denial(&snapshot, cost, at)
    }

    /// Recomputes the plan of these queues. A tag names their new limits.
    pub(super) fn replan(&mut self, which: impl Fn(&KeyQueue) -> bool, tag: Option<u16>) {
        let queues = self.state.by_key.values_mut().filter(|queue| which(queue));
        let keys: Vec<Fingerprint> = queues
            .map(|queue| {
                queue.replan();
                // The usage was changed outside the queue, so it is not known what part of it
                // belongs to the woken waiters: they keep their charges whatever happens.
                queue.woken.charges.fill(Charges::None);
                queue.key = tag.map_or(queue.key, |tag| queue.key.with_tag(tag));
                queue.key
            })
            .collect();
        for key in keys {
            self.clear_due(key);
            if tag.is_some() {
                // From now on the key recovers at the new rate.
                self.host.store().adopt_limits(key, self.now());
            }
            self.deny_late(&self.snapshot(key));
            self.advance(key, self.now());
            self.drop_if_unused(key);
        }
    }

    /// Handles the alarm for a time.
    pub(super) fn ring(&mut self, at: Time) {
        self.state.alarms.disarm(at);
        let utc_ahead = self.host.clock().utc_ahead().micros();
        if is_step(utc_ahead, self.state.utc_ahead) {
            // Windows that are aligned to UTC end sooner or later than planned.
            self.state.utc_ahead = utc_ahead;
            self.replan(|_| true, None);
        }
        self.admit_due();
    }

    fn is_due(&self) -> bool {
        self.state.due.first().is_some_and(|(due_at, _)| *due_at <= self.now())
    }

    /// Admits every waiter that is due.
    fn admit_due(&mut self) {
        while let Some(first) = self.state.due.first().copied().filter(|(due_at, _)| *due_at <= self.now()) {
            self.state.due.remove(&first);
            let (_, key) = first;
            self.advance(key, self.now());
            self.drop_if_unused(key);
        }
    }

    /// Admits the waiters of a queue that are due. If it is not known when the head is, it is not
    /// before `from`.
    fn advance(&mut self, key: Fingerprint, mut from: Time) {
        let (store, now) = (self.host.store(), self.now());
        // How often a call that does not wait won the race. That ends, but not while the lock is
        // held.
        let mut lost_races = 0;
        while let Some(queue) = self.state.by_key.get_mut(&id(key))
            && let Some((&waiter, &QueuedCall { cost, until, .. })) = queue.waiting.head()
        {
            let key = queue.key;
            let Some(due_at) = queue.due_at.take().or_else(|| store.due_at(key, now, from, cost)) else {
                queue.waiting.dequeue();
                queue.replan();
                self.queues.waiters_removed(key, 1);
                self.deny(key, waiter, Denial::Never, store.peek(key, now, cost).denied_forever());
                continue;
            };
            if due_at > now {
                queue.due_at = Some(due_at);
                self.state.due.insert((due_at, id(key)));
                return;
            }
            if queue.woken.waiters.len() >= WOKEN_MAX {
                // The queue advances when one of them has polled, later than planned.
                queue.replan();
                return;
            }
            let at = due_at.max(now.saturating_sub(CATCH_UP_MAX));
            if let Some(until) = until.filter(|until| *until < at) {
                // The machine slept, or the clock was set.
                queue.waiting.dequeue();
                queue.replan();
                self.queues.waiters_removed(key, 1);
                self.deny(key, waiter, Denial::TooLong, store.peek(key, now, 0).denied_for(at.since(until)));
                continue;
            }
            match store.charge_head(key, (at, now), cost, queue.waiting.second().map(|ask| ask.cost)) {
                HeadCharge::Charged { decision, at, charges, next, returns } => {
                    queue.waiting.dequeue();
                    if at > due_at || returns != queue.returns {
                        queue.replan();
                        queue.returns = returns;
                    }
                    queue.due_at = next;
                    let index = queue.woken.waiters.len();
                    queue.woken.waiters.push(WokenWaiter { waiter, decision, at: now, returns });
                    queue.woken.charges.push(charges);
                    self.queues.waiter_woken();
                    self.resolve(waiter, WaiterState::Admitted { key, index });
                    from = at;
                }
                HeadCharge::NoRoom(denial) => {
                    queue.waiting.dequeue();
                    queue.replan();
                    self.queues.waiters_removed(key, 1);
                    self.deny(key, waiter, Denial::NoRoom, denial);
                }
                HeadCharge::NotYet => {
                    queue.replan();
                    lost_races += 1;
                    from = if lost_races < 3 { now } else { now.saturating_add(TICK) };
                    self.deny_late(&self.snapshot(key));
                }
            }
        }
    }

    /// Denies the waiters that can no longer be admitted by their deadlines.
    fn deny_late(&mut self, snapshot: &KeySnapshot<'_>) {
        let (store, key, now) = (self.host.store(), snapshot.key, self.now());
        let Some(queue) = self.state.by_key.get_mut(&id(key)) else { return };
        let late = queue.planned_with(snapshot).remove_late(now, snapshot);
        self.queues.waiters_removed(key, late.len());
        for (waiter, by) in late {
            let standing = store.peek(key, now, 0);
            match by {
                Some(by) => self.deny(key, waiter, Denial::TooLong, standing.denied_for(by)),
                None => self.deny(key, waiter, Denial::Never, standing.denied_forever()),
            }
        }
    }

    fn deny(&mut self, key: Fingerprint, waiter: WaiterIndex, denial: Denial, decision: Decision) {
        let now = self.now();
        self.host.store().count(key, &decision);
        self.resolve(waiter, WaiterState::Denied(Box::new((denial, decision, now))));
    }

    /// Sets the outcome of a waiter, and wakes it.
    fn resolve(&mut self, waiter: WaiterIndex, outcome: WaiterState) {
        if let WaiterState::Waiting { waker, .. } = self.state.waiters.replace(waiter, outcome) {
            self.deferred.wake.push(waker);
        }
    }

    /// Removes a woken waiter that has polled or is gone: its outcome, and its charges.
    fn remove_woken(&mut self, key: Fingerprint, index: usize) -> Option<(WokenWaiter, Charges)> {
        let QueueState { by_key, waiters, .. } = &mut *self.state;
        let Woken { waiters: woken, charges } = &mut by_key.get_mut(&id(key))?.woken;
        let outcome = (woken.swap_remove(index), charges.swap_remove(index));
        // The last one has taken its index.
        if let Some(moved) = woken.get(index) {
            waiters.replace(moved.waiter, WaiterState::Admitted { key, index });
        }
        self.queues.woken_removed(key);
        Some(outcome)
    }

    /// Advances the queue, because another waiter may be woken now; drops it if it is empty.
    fn after_woken_removed(&mut self, key: Fingerprint) {
        let Some(queue) = self.queue(key).filter(|queue| queue.due_at.is_none()) else { return };
        if !queue.waiting.is_empty() {
            self.advance(key, self.now());
        }
        self.drop_if_unused(key);
    }

    fn clear_due(&mut self, key: Fingerprint) {
        let due_at = self.state.by_key.get_mut(&id(key)).and_then(|queue| queue.due_at.take());
        if let Some(due_at) = due_at {
            self.state.due.remove(&(due_at, id(key)));
        }
    }

    fn drop_if_unused(&mut self, key: Fingerprint) {
        if self.queue(key).is_some_and(|queue| queue.waiting.is_empty() && queue.woken.waiters.is_empty()) {
            self.clear_due(key);
            self.state.by_key.remove(&id(key));
        }
    }

    fn queue(&self, key: Fingerprint) -> Option<&KeyQueue> {
        self.state.by_key.get(&id(key))
    }

    fn snapshot(&self, key: Fingerprint) -> KeySnapshot<'a> {
        KeySnapshot { store: self.host.store(), key, now: self.now(), limits: OnceCell::new() }
    }
}

impl QueueState {
    /// The alarm for a time will not ring. Returns the wakers of all waiters.
    pub(super) fn alarm_is_lost(&mut self, at: Time) -> Vec<Waker> {
        self.alarms.disarm(at);
        self.waiters.wakers()
    }
}

impl KeyQueue {
    fn new(key: Fingerprint, scope: Option<Fingerprint>) -> KeyQueue {
        KeyQueue {
            waiting: queue::Queue::default(),
            key,
            scope,
            due_at: None,
            woken: Woken::default(),
            known_cost: 0,
            limits: None,
            returns: 0,
        }
    }

    /// The queue, planned with these limits, which may have just changed.
    fn planned_with(&mut self, key: &KeySnapshot<'_>) -> &mut queue::Queue<AnyLimit, WaiterIndex> {
        let limits = key.all_limits();
        if !self.limits.as_ref().is_some_and(|known| Arc::ptr_eq(known, limits)) {
            self.replan();
            self.limits = Some(Arc::clone(limits));
        }
        &mut self.waiting
    }

    /// Discards the plan.
    fn replan(&mut self) {
        self.waiting.invalidate();
        self.known_cost = 0;
    }

    pub(super) fn is_for(&self, key: Fingerprint) -> bool {
        self.key.is(key)
    }

    pub(super) fn is_in(&self, scope: Option<Fingerprint>) -> bool {
        self.scope == scope
    }

    /// The denial of a call that cannot join, with the wait after which it is worth retrying. If
    /// the queue is full, `space_at` is when space frees up, if known.
    fn denial_on_join(
        &mut self,
        key: &KeySnapshot<'_>,
        ask: &QueuedCall,
        is_full: bool,
        space_at: Option<Time>,
    ) -> Option<(Denial, Decision)> {
        let (now, cost) = (key.now, ask.cost);
        let alone = || key.store.peek(key.key, now, cost);
        if cost > self.known_cost {
            let alone = alone();
            if alone.retry_after() == Some(RetryAfter::Never) {
                return Some((Denial::Never, alone));
            }
            self.known_cost = if has_pacer(key.limits()) { 0 } else { cost };
        }
        if is_full {
            let until_allowed = || match alone().retry_after() {
                Some(RetryAfter::After(wait)) => wait,
                _ => TICK,
            };
            let wait = space_at.map_or_else(until_allowed, |at| at.since(now)).max(TICK);
            return Some((Denial::QueueFull, self.denial(key, cost).denied_for(wait)));
        }
        if cost > self.known_cost
            && let Err(wait) = self.planned_with(key).check_room(now, ask, key)
        {
            let wait = wait.or(self.due_at.map(|due_at| due_at.since(now))).unwrap_or(TICK).max(TICK);
            return Some((Denial::QueueFull, self.denial(key, cost).denied_for(wait)));
        }
        let until = ask.until?;
        match self.planned_with(key).admission(now, ask, key) {
            Some(due_at) if due_at <= until => None,
            Some(due_at) => Some((Denial::TooLong, self.denial(key, cost).denied_for(due_at.since(until)))),
            None => Some((Denial::Never, alone().denied_forever())),
        }
    }

    /// The denial of a call that does not wait.
    fn denial(&mut self, key: &KeySnapshot<'_>, cost: u64) -> Decision {
        let denial = self.planned_with(key).denial(key, cost, key.now);
        denial.unwrap_or_else(|| key.store.peek(key.key, key.now, cost))
    }
}

impl KeySnapshot<'_> {
    fn all_limits(&self) -> &Arc<[AnyLimit]> {
        self.limits.get_or_init(|| self.store.limits_of(self.key))
    }
}

impl KeyView<AnyLimit> for KeySnapshot<'_> {
    fn limits(&self) -> &[AnyLimit] {
        self.all_limits()
    }

    fn states(&self) -> Vec<AnyState> {
        let mut states = self.store.states_of(self.key, self.now);
        // If the limits have just changed, the queue is about to be replanned.
        states.resize_with(self.limits().len(), AnyState::default);
        states
    }

    fn now(&self) -> Time {
        self.now
    }
}

/// The key without a tag.
fn id(key: Fingerprint) -> Fingerprint {
    key.with_tag(0)
}
