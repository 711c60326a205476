//! What is done to lines under their lock.
//!
//! A [`Desk`] is the book, open at one moment; what callers have to be told is done when it has been closed.

use super::Denial;
use super::queues::{Host, Joined, Queues, WaitRequest, wake_all};
use super::waiters::{Outcome, WaiterId, WaiterState, Waiters};
use crate::clock::alarms::Alarms;
use crate::key::{ByFingerprint, Fingerprint};
use crate::store::{HeadCharge, NotAdmitted, QueueStore};
use crate::sync::MutexGuard;
use sluicegate_core::line::{Ask, Line, Now, paces};
use sluicegate_core::pile::Charges;
use sluicegate_core::{AnyLimit, AnyState, Decision, RetryAfter, Span, Time};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::task::Waker;

/// A turn that is called late is charged as of when it was due, so that the timer's lateness does not add up: 10,000 turns at
/// 10,000 a second take a second. But by so much at the most: a machine that slept for an hour does not make up for it at once.
const CATCH_UP_MAX: Span = Span::from_micros(10_000);

/// So many of a line are called before one of them has looked: whoever is gone by then gives back what it held from among all of them,
/// a few microseconds' work at this many.
const WOKEN_MAX: usize = 1_024;

/// One tick: the least wait there is to tell.
const TICK: Span = Span::from_micros(1);

/// What the lock guards.
#[derive(Default)]
pub(super) struct QueueState {
    /// By the key, without a tag.
    by_key: HashMap<Fingerprint, KeyQueue, ByFingerprint>,
    waiters: Waiters,
    /// The turn of each line's head, where it is known.
    due: BTreeSet<(Time, Fingerprint)>,
    alarms: Alarms,
}

/// Those who wait under a key.
pub(super) struct KeyQueue {
    waiting: Line<AnyLimit, WaiterId>,
    /// As the store knows it, with the tag of its limits.
    key: Fingerprint,
    scope: Option<Fingerprint>,
    /// The head's turn, which is then in `due`. Not known while too many were called and have not looked.
    due_at: Option<Time>,
    /// Those who were called and have not looked yet.
    woken: Woken,
    /// A cost that is known not to be above the limits, and to wait for no queue of theirs.
    known_cost: u32,
    /// The limits that it was planned with, as far as it was.
    limits: Option<Arc<[AnyLimit]>>,
}

/// Those of a line who were called and have not looked yet: until then their turns can be given back.
#[derive(Default)]
struct Woken {
    waiters: Vec<(WaiterId, Decision, Time)>,
    /// What each has charged.
    charges: Vec<Charges>,
}

/// The book, open.
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
    /// A waker that was replaced: dropping it runs foreign code too.
    drop: Option<Waker>,
}

/// A key's limits, and its states when they are asked for.
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

    /// Closes the book, then wakes whom it called and has the clock ring for the next.
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
        let snapshot = self.snapshot(key);
        let QueueState { by_key, waiters, due, .. } = &mut *self.state;
        let queue = by_key.entry(id(key)).or_insert_with(|| KeyQueue::new(key, scope));
        let other_limits = queue.key != key;
        if other_limits || queue.waiting.is_empty() {
            // A limiter of the same scope with other limits: the last one's hold. And while nobody waited others may have called.
            queue.key = key;
            queue.replan();
        }
        if other_limits {
            store.adopt_limits(key, now);
        }
        let ask = Ask { cost, until, priority };
        let bounds = self.queues.bounds;
        let is_full = queue.waiting.len() >= bounds.per_key || self.queues.waiting() >= bounds.total;
        // When the head has its turn there is a place, or when that of any other line has. If none is ever let wait, when it need
        // not.
        let space_at = queue.due_at.or_else(|| due.first().map(|(due_at, _)| *due_at));
        let space_at = space_at.filter(|_| bounds.per_key > 0);
        if let Some((denial, decision)) = queue.denial_on_join(&snapshot, &ask, is_full, space_at) {
            self.drop_if_unused(key);
            store.count(key, &decision);
            return Joined::Denied(denial, decision);
        }
        let waiter = waiters.insert();
        let overtakes = queue.waiting.has_lower(priority);
        let position = queue.waiting.join(ask, waiter, &snapshot, now);
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

    pub(super) fn poll(&mut self, waiter: WaiterId, waker: &Waker) -> Option<Outcome> {
        if self.state.waiters.is_waiting(waiter) && self.is_due() {
            // Whoever looks helps itself, should the clock not have rung.
            self.admit_due();
        }
        if self.state.waiters.is_waiting(waiter) {
            self.deferred.drop = self.state.waiters.replace_waker(waiter, waker);
            return None;
        }
        match self.state.waiters.remove(waiter) {
            WaiterState::Admitted { key, index } => {
                let ((_, decision, at), _) = self.remove_woken(key, index)?;
                self.after_woken_removed(key);
                Some(Outcome::Admitted(decision, at))
            }
            WaiterState::Denied(outcome) => {
                let (denial, decision, at) = *outcome;
                Some(Outcome::Denied(denial, decision, at))
            }
            WaiterState::Free | WaiterState::Waiting { .. } => None,
        }
    }

    pub(super) fn leave(&mut self, waiter: WaiterId) {
        match self.state.waiters.remove(waiter) {
            WaiterState::Free | WaiterState::Denied(_) => {}
            WaiterState::Admitted { key, index } => {
                let now = self.now();
                let Some((_, charges)) = self.remove_woken(key, index) else { return };
                if let Some(queue) = self.state.by_key.get_mut(&id(key)) {
                    // What those who were called after it have charged lies on top of it, and those behind may have their turns
                    // sooner. The key is judged by the limits of now.
                    if !charges.each().is_empty() {
                        self.host.store().roll_back(queue.key, now, &charges, &mut queue.woken.charges);
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
                let left = queue.waiting.leave(position).is_some();
                self.queues.waiters_removed(key, usize::from(left));
                if was_head {
                    self.clear_due(key);
                    self.advance(key, self.now());
                }
                self.drop_if_unused(key);
            }
        }
    }

    pub(super) fn denial(&mut self, key: Fingerprint, cost: u32, at: Time) -> Option<Decision> {
        let key = self.queue(key).filter(|queue| !queue.waiting.is_empty())?.key;
        let snapshot = self.snapshot(key);
        let queue = self.state.by_key.get_mut(&id(key))?;
        queue.planned_with(&snapshot).denial(&snapshot, cost, at)
    }

    /// What these lines had planned no longer holds.
    pub(super) fn replan(&mut self, which: impl Fn(&KeyQueue) -> bool, tag: Option<u16>) {
        let queues = self.state.by_key.values_mut().filter(|queue| which(queue));
        let keys: Vec<Fingerprint> = queues
            .map(|queue| {
                queue.replan();
                // Somebody else has changed what the key has used, so that those who were called no longer know what of it is
                // theirs: they keep it whatever happens.
                queue.woken.charges.fill(Charges::None);
                queue.key = tag.map_or(queue.key, |tag| queue.key.with_tag(tag));
                queue.key
            })
            .collect();
        for key in keys {
            self.clear_due(key);
            if tag.is_some() {
                // From now on it leaks at the new rate.
                self.host.store().adopt_limits(key, self.now());
            }
            self.deny_late(&self.snapshot(key));
            self.advance(key, self.now());
            self.drop_if_unused(key);
        }
    }

    /// The alarm for a time rings.
    pub(super) fn ring(&mut self, at: Time) {
        self.state.alarms.disarm(at);
        self.admit_due();
    }

    fn is_due(&self) -> bool {
        self.state.due.first().is_some_and(|(due_at, _)| *due_at <= self.now())
    }

    /// Calls everybody whose turn has come.
    fn admit_due(&mut self) {
        while let Some(first) = self.state.due.first().copied().filter(|(due_at, _)| *due_at <= self.now()) {
            self.state.due.remove(&first);
            let (_, key) = first;
            self.advance(key, self.now());
            self.drop_if_unused(key);
        }
    }

    /// Calls those of a line whose turn has come. If the head's turn is not known, it is not before `from`.
    fn advance(&mut self, key: Fingerprint, mut from: Time) {
        let (store, now) = (self.host.store(), self.now());
        // How often somebody who does not wait was faster. That ends, but not while the lock is held.
        let mut lost_races = 0;
        while let Some(queue) = self.state.by_key.get_mut(&id(key))
            && let Some((&waiter, &Ask { cost, until, .. })) = queue.waiting.head()
        {
            let key = queue.key;
            let Some(due_at) = queue.due_at.take().or_else(|| store.admissible_at(key, now, from, cost))
            else {
                queue.waiting.call();
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
                // It goes on when one of those has looked, later than was planned.
                queue.replan();
                return;
            }
            let at = due_at.max(now.before(CATCH_UP_MAX));
            if let Some(until) = until.filter(|until| *until < at) {
                // The machine slept, or the clock was set.
                queue.waiting.call();
                queue.replan();
                self.queues.waiters_removed(key, 1);
                self.deny(key, waiter, Denial::TooLong, store.peek(key, now, 0).denied_for(at.since(until)));
                continue;
            }
            match store.charge_head(key, at, cost, queue.waiting.second().map(|ask| ask.cost)) {
                HeadCharge::Charged { decision, charges, next } => {
                    queue.waiting.call();
                    if at > due_at {
                        queue.replan();
                    }
                    queue.due_at = next;
                    let index = queue.woken.waiters.len();
                    queue.woken.waiters.push((waiter, decision, now));
                    queue.woken.charges.push(charges);
                    self.queues.waiter_woken();
                    self.resolve(waiter, WaiterState::Admitted { key, index });
                    from = at;
                }
                HeadCharge::NoRoom(denial) => {
                    queue.waiting.call();
                    queue.replan();
                    self.queues.waiters_removed(key, 1);
                    self.deny(key, waiter, Denial::NoRoom, denial);
                }
                HeadCharge::NotYet => {
                    queue.replan();
                    lost_races += 1;
                    from = if lost_races < 3 { now } else { now.after(TICK) };
                    self.deny_late(&self.snapshot(key));
                }
            }
        }
    }

    /// Refuses those who cannot have their turn in time any more.
    fn deny_late(&mut self, snapshot: &KeySnapshot<'_>) {
        let (store, key, now) = (self.host.store(), snapshot.key, self.now());
        let Some(queue) = self.state.by_key.get_mut(&id(key)) else { return };
        let late = queue.planned_with(snapshot).too_late(now, snapshot);
        self.queues.waiters_removed(key, late.len());
        for (waiter, by) in late {
            let standing = store.peek(key, now, 0);
            match by {
                Some(by) => self.deny(key, waiter, Denial::TooLong, standing.denied_for(by)),
                None => self.deny(key, waiter, Denial::Never, standing.denied_forever()),
            }
        }
    }

    fn deny(&mut self, key: Fingerprint, waiter: WaiterId, denial: Denial, decision: Decision) {
        let now = self.now();
        self.host.store().count(key, &decision);
        self.resolve(waiter, WaiterState::Denied(Box::new((denial, decision, now))));
    }

    /// Tells somebody who waits what has come of it.
    fn resolve(&mut self, waiter: WaiterId, outcome: WaiterState) {
        if let WaiterState::Waiting { waker, .. } = self.state.waiters.replace(waiter, outcome) {
            self.deferred.wake.push(waker);
        }
    }

    /// One that was called has looked, or is gone: what it was told, and what it has charged.
    fn remove_woken(
        &mut self,
        key: Fingerprint,
        index: usize,
    ) -> Option<((WaiterId, Decision, Time), Charges)> {
        let QueueState { by_key, waiters, .. } = &mut *self.state;
        let Woken { waiters: woken, charges } = &mut by_key.get_mut(&id(key))?.woken;
        let outcome = (woken.swap_remove(index), charges.swap_remove(index));
        // The last one has taken its place.
        if let Some((moved, ..)) = woken.get(index) {
            waiters.replace(*moved, WaiterState::Admitted { key, index });
        }
        self.queues.woken_removed(key);
        Some(outcome)
    }

    /// There is room for another to be called, or there is nobody left.
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
    /// The clock will not ring at a time. How to wake everybody.
    pub(super) fn alarm_is_lost(&mut self, at: Time) -> Vec<Waker> {
        self.alarms.disarm(at);
        self.waiters.wakers()
    }
}

impl KeyQueue {
    fn new(key: Fingerprint, scope: Option<Fingerprint>) -> KeyQueue {
        KeyQueue {
            waiting: Line::default(),
            key,
            scope,
            due_at: None,
            woken: Woken::default(),
            known_cost: 0,
            limits: None,
        }
    }

    /// The line, planned with these limits: they may have changed a moment ago.
    fn planned_with(&mut self, key: &KeySnapshot<'_>) -> &mut Line<AnyLimit, WaiterId> {
        let limits = key.all_limits();
        if !self.limits.as_ref().is_some_and(|known| Arc::ptr_eq(known, limits)) {
            self.replan();
            self.limits = Some(Arc::clone(limits));
        }
        &mut self.waiting
    }

    /// What was planned no longer holds.
    fn replan(&mut self) {
        self.waiting.plan_anew();
        self.known_cost = 0;
    }

    pub(super) fn is_for(&self, key: Fingerprint) -> bool {
        self.key.is(key)
    }

    pub(super) fn is_in(&self, scope: Option<Fingerprint>) -> bool {
        self.scope == scope
    }

    /// Why somebody cannot join, if so, and when it is worth asking again. If the line is full, there is a place at `place_at`, as far
    /// as known.
    fn denial_on_join(
        &mut self,
        key: &KeySnapshot<'_>,
        ask: &Ask,
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
            self.known_cost = if paces(key.limits()) { 0 } else { cost };
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
            && let Err(wait) = self.planned_with(key).room_for(now, ask, key)
        {
            let wait = wait.or(self.due_at.map(|due_at| due_at.since(now))).unwrap_or(TICK).max(TICK);
            return Some((Denial::QueueFull, self.denial(key, cost).denied_for(wait)));
        }
        let until = ask.until?;
        match self.planned_with(key).turn_of(now, ask, key) {
            Some(due_at) if due_at <= until => None,
            Some(due_at) => Some((Denial::TooLong, self.denial(key, cost).denied_for(due_at.since(until)))),
            None => Some((Denial::Never, alone().denied_forever())),
        }
    }

    /// How a call stands that does not wait.
    fn denial(&mut self, key: &KeySnapshot<'_>, cost: u32) -> Decision {
        let denial = self.planned_with(key).denial(key, cost, key.now);
        denial.unwrap_or_else(|| key.store.peek(key.key, key.now, cost))
    }
}

impl KeySnapshot<'_> {
    fn all_limits(&self) -> &Arc<[AnyLimit]> {
        self.limits.get_or_init(|| self.store.limits_of(self.key))
    }
}

impl Now<AnyLimit> for KeySnapshot<'_> {
    fn limits(&self) -> &[AnyLimit] {
        self.all_limits()
    }

    fn states(&self) -> Vec<AnyState> {
        let mut states = self.store.states_of(self.key, self.now);
        // If the limits have changed in between, the line is going to be planned anew.
        states.resize_with(self.limits().len(), AnyState::default);
        states
    }

    fn now(&self) -> Time {
        self.now
    }
}

/// The key, whichever limits are to judge it.
fn id(key: Fingerprint) -> Fingerprint {
    key.with_tag(0)
}
