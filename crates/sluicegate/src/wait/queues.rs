//! The queues of a store: which calls wait for which key, and when the next one is due.
//!
//! ```text
//! acquire ──▶ no call waits and it is allowed: charged immediately, without the lock
//!         ──▶ otherwise enqueued under its key
//! ring    ──▶ every queue whose head is due: charge it, wake it, continue with the next
//!         ──▶ the clock is armed for the next head of any queue that becomes due
//! ```
//!
//! Order and times are computed by the pure part, `sluicegate_core::queue`. This file holds the
//! lock, the counters, the wakers and the alarm; `state.rs` is what happens under the lock.

use super::Denial;
use super::state::{LockedQueues, QueueState};
use super::waiters::{WaitOutcome, WaiterIndex};
use crate::callbacks::Callbacks;
use crate::clock::Alarm;
use crate::clock::alarm::AlarmHandler;
use crate::clock::any::AnyClock;
use crate::key::Fingerprint;
use crate::store::QueueStore;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use sluicegate_core::queue::Priority;
use sluicegate_core::{Decision, Time};
use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;

/// Keys are grouped by a few bits of their hash, so that a call need not take the lock while calls
/// wait for other keys only. 64 counters take 512 bytes; each queue makes one in 64 of the idle
/// keys look.
const GROUPS: usize = if cfg!(loom) { 2 } else { 64 };

/// All queues of a store.
pub(crate) struct Queues {
    /// The number of waiters in all queues.
    waiting: AtomicUsize,
    /// Per group of keys: its waiters, including woken ones that have not polled yet.
    groups: [AtomicUsize; GROUPS],
    state: Mutex<QueueState>,
    pub(super) bounds: QueueBounds,
    host: Weak<dyn Host>,
}

/// The maximum number of waiters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueBounds {
    pub(crate) per_key: usize,
    pub(crate) total: usize,
}

/// The owner of the queues.
pub(crate) trait Host: Send + Sync {
    fn store(&self) -> &dyn QueueStore;
    fn clock(&self) -> &AnyClock;
}

/// A call that may have to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitRequest {
    /// As the store knows it, with the tag of its limits.
    pub(crate) key: Fingerprint,
    /// The scope of the key, in a store that several limiters share.
    pub(crate) scope: Option<Fingerprint>,
    pub(crate) cost: u64,
    pub(crate) until: Option<Time>,
    pub(crate) priority: Priority,
}

/// The result of joining a queue.
pub(crate) enum Joined {
    /// The call was allowed immediately.
    Admitted(Decision),
    Enqueued(WaiterIndex),
    Denied(Denial, Decision),
}

impl Queues {
    pub(crate) fn new(bounds: QueueBounds, host: Weak<dyn Host>) -> Arc<Queues> {
        let state = Mutex::new(QueueState::default());
        let groups = std::array::from_fn(|_| AtomicUsize::new(0));
        Arc::new(Queues { waiting: AtomicUsize::new(0), groups, state, bounds, host })
    }

    /// The number of waiters.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns `false` if no call waits for the key or was just woken.
    #[inline]
    pub(crate) fn may_have_waiters(&self, key: Fingerprint) -> bool {
        self.groups[group(key)].load(Ordering::Relaxed) > 0
    }

    /// Charges the call if it is allowed and no call waits before it. Otherwise enqueues or denies
    /// it.
    pub(crate) fn join(
        self: &Arc<Queues>,
        host: &dyn Host,
        request: &WaitRequest,
        now: Time,
        waker: Waker,
    ) -> Joined {
        let mut locked = self.lock_queues(host, Some(now));
        let joined = locked.join(request, waker);
        locked.unlock();
        joined
    }

    /// The outcome of a waiter, which is then removed. `None` if there is none yet: the waiter will
    /// be woken.
    pub(crate) fn poll(
        self: &Arc<Queues>,
        host: &dyn Host,
        waiter: WaiterIndex,
        waker: &Waker,
    ) -> Option<WaitOutcome> {
        let mut locked = self.lock_queues(host, None);
        let outcome = locked.poll(waiter, waker);
        locked.unlock();
        outcome
    }

    /// Removes a waiter whose caller has gone. Its charge is rolled back, and the waiters behind it
    /// move up.
    pub(crate) fn leave(self: &Arc<Queues>, host: &dyn Host, waiter: WaiterIndex) {
        let mut locked = self.lock_queues(host, None);
        locked.leave(waiter);
        locked.unlock();
    }

    /// The denial of a call that does not wait, if others wait for its key.
    #[cold]
    pub(crate) fn denial(
        self: &Arc<Queues>,
        host: &dyn Host,
        key: Fingerprint,
        cost: u64,
        now: Time,
    ) -> Option<Decision> {
        // The queue is planned by the clock. For a call at another time only the reported wait
        // differs.
        self.lock_queues(host, None).denial(key, cost, now)
    }

    /// The usage of a key was changed outside the queue: by a refund, a receipt, or a reset.
    pub(crate) fn usage_changed(self: &Arc<Queues>, host: &dyn Host, key: Fingerprint) {
        if self.may_have_waiters(key) {
            let mut locked = self.lock_queues(host, None);
            locked.replan(|queue| queue.is_for(key), None);
            locked.unlock();
        }
    }

    /// The limits of a scope's keys have changed to those of this tag.
    pub(crate) fn limits_changed(self: &Arc<Queues>, host: &dyn Host, scope: Option<Fingerprint>, tag: u16) {
        // Also if no call waits: woken waiters were charged under the old limits.
        let mut locked = self.lock_queues(host, None);
        locked.replan(|queue| queue.is_in(scope), Some(tag));
        locked.unlock();
    }

    /// Counts a new waiter.
    pub(super) fn waiter_added(&self, key: Fingerprint) {
        count(&self.waiting, |waiting| waiting + 1);
        count(&self.groups[group(key)], |waiting| waiting + 1);
    }

    /// A waiter was woken. It still counts for its group: until it polls, other calls must take the
    /// lock.
    pub(super) fn waiter_woken(&self) {
        count(&self.waiting, |waiting| waiting - 1);
    }

    /// A woken waiter has polled, or is gone.
    pub(super) fn woken_removed(&self, key: Fingerprint) {
        count(&self.groups[group(key)], |waiting| waiting - 1);
    }

    /// This many waiters were removed from a key's queue.
    pub(super) fn waiters_removed(&self, key: Fingerprint, by: usize) {
        count(&self.waiting, |waiting| waiting - by);
        count(&self.groups[group(key)], |waiting| waiting - by);
    }

    /// An alarm that rings these queues.
    pub(super) fn alarm(self: &Arc<Queues>, at: Time) -> Alarm {
        let queues: Weak<Queues> = Arc::downgrade(self);
        Alarm::new(queues, at)
    }

    /// Locks the queues. The clock is read when it is needed, unless the time is given.
    fn lock_queues<'a>(self: &'a Arc<Queues>, host: &'a dyn Host, now: Option<Time>) -> LockedQueues<'a> {
        LockedQueues::new(self.lock(), self, host, now)
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes all wakers, even if one of them panics.
pub fn wake_all(wakers: Vec<Waker>) {
    let mut callbacks = Callbacks::default();
    for waker in wakers {
        callbacks.run(|| waker.wake());
    }
    callbacks.end();
}

/// Counters change only under the lock, so a plain store suffices.
fn count(of: &AtomicUsize, change: impl Fn(usize) -> usize) {
    of.store(change(of.load(Ordering::Relaxed)), Ordering::Relaxed);
}

#[inline]
fn group(key: Fingerprint) -> usize {
    // Below the number of groups.
    usize::from(key.high.to_le_bytes()[0]) % GROUPS
}

impl AlarmHandler for Queues {
    /// Admits every waiter that is due.
    fn ring(self: Arc<Self>, at: Time) {
        if let Some(host) = self.host.upgrade() {
            let mut locked = self.lock_queues(&*host, None);
            locked.ring(at);
            locked.unlock();
        }
    }

    /// Wakes all waiters: each polls again, and so sets another alarm.
    fn lost(self: Arc<Self>, at: Time) {
        let wakers = self.lock().alarm_is_lost(at);
        wake_all(wakers);
    }
}
