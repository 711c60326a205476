//! The lines of a store: who waits under which key, and when the clock is to ring.
//!
//! ```text
//! acquire ──▶ nobody waits, and it is allowed: charged at once, and no line is looked at
//!         ──▶ else a place in the key's line, and a seat for what comes of it
//! ring    ──▶ every line whose head's turn has come: charge it, wake it, go on with the next
//!         ──▶ the clock is asked to ring again when the next turn of any line comes
//! ```
//!
//! Who is next, and when, is the pure part: `sluicegate_core::line`. Here are the lock, the wakers and the alarm; `desk.rs` is what is
//! done under the lock. One lock guards all lines. A place of the store may be locked while it is held, never the other way
//! round, and nobody is woken under it.

use super::Denial;
use super::state::{LockedQueues, QueueState};
use super::waiters::{Outcome, WaiterId};
use crate::callbacks::Callbacks;
use crate::clock::Alarm;
use crate::clock::alarm::AlarmHandler;
use crate::clock::any::AnyClock;
use crate::key::Fingerprint;
use crate::store::QueueStore;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use sluicegate_core::line::Priority;
use sluicegate_core::{Decision, Time};
use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;

/// Keys are told apart by a few bits, so that who asks under one of them need not look further while others wait under
/// another. 64 counts take 512 bytes, and of the keys under which nobody waits one in 64 for each line has to look.
const GROUPS: usize = if cfg!(loom) { 2 } else { 64 };

/// All lines of a store.
pub(crate) struct Queues {
    /// How many wait, in all lines.
    waiting: AtomicUsize,
    /// How many of them, and of those who were called and have not looked, under the keys of each group.
    groups: [AtomicUsize; GROUPS],
    state: Mutex<QueueState>,
    pub(super) bounds: QueueBounds,
    host: Weak<dyn Host>,
}

/// How many may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueBounds {
    pub(crate) per_key: usize,
    pub(crate) total: usize,
}

/// Whose lines they are.
pub(crate) trait Host: Send + Sync {
    fn store(&self) -> &dyn QueueStore;
    fn clock(&self) -> &AnyClock;
}

/// Who asks for a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitRequest {
    /// As the store knows it, with the tag of its limits.
    pub(crate) key: Fingerprint,
    /// Whose key it is, in a store that several limiters use.
    pub(crate) scope: Option<Fingerprint>,
    pub(crate) cost: u32,
    pub(crate) until: Option<Time>,
    pub(crate) priority: Priority,
}

/// What came of asking for a turn.
pub(crate) enum Joined {
    /// It was allowed at once.
    Admitted(Decision),
    Enqueued(WaiterId),
    Denied(Denial, Decision),
}

impl Queues {
    pub(crate) fn new(bounds: QueueBounds, host: Weak<dyn Host>) -> Arc<Queues> {
        let state = Mutex::new(QueueState::default());
        let groups = std::array::from_fn(|_| AtomicUsize::new(0));
        Arc::new(Queues { waiting: AtomicUsize::new(0), groups, state, bounds, host })
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether somebody may wait under a key, or has just been called. If not, nobody does.
    #[inline]
    pub(crate) fn may_have_waiters(&self, key: Fingerprint) -> bool {
        self.groups[group(key)].load(Ordering::Relaxed) > 0
    }

    /// Takes the call if it is allowed and nobody waits before it; else a place in line, or why not.
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

    /// What has come of a seat, which is then given up. `None` if nothing has yet: its caller will be woken.
    pub(crate) fn poll(
        self: &Arc<Queues>,
        host: &dyn Host,
        waiter: WaiterId,
        waker: &Waker,
    ) -> Option<Outcome> {
        let mut locked = self.lock_queues(host, None);
        let outcome = locked.poll(waiter, waker);
        locked.unlock();
        outcome
    }

    /// A caller has lost interest: what it held is given back, and those behind move up.
    pub(crate) fn leave(self: &Arc<Queues>, host: &dyn Host, waiter: WaiterId) {
        let mut locked = self.lock_queues(host, None);
        locked.leave(waiter);
        locked.unlock();
    }

    /// The answer to a call that does not wait, if others wait under its key.
    #[cold]
    pub(crate) fn denial(
        self: &Arc<Queues>,
        host: &dyn Host,
        key: Fingerprint,
        cost: u32,
        now: Time,
    ) -> Option<Decision> {
        // The line is planned by the clock; for a call at another time only the distance differs.
        self.lock_queues(host, None).denial(key, cost, now)
    }

    /// What a key has used was changed by somebody who does not wait: a refund, a receipt, a key that was forgotten.
    pub(crate) fn usage_changed(self: &Arc<Queues>, host: &dyn Host, key: Fingerprint) {
        if self.may_have_waiters(key) {
            let mut locked = self.lock_queues(host, None);
            locked.replan(|queue| queue.is_for(key), None);
            locked.unlock();
        }
    }

    /// The limits of a scope's keys have changed: they are judged by those of this tag now.
    pub(crate) fn limits_changed(self: &Arc<Queues>, host: &dyn Host, scope: Option<Fingerprint>, tag: u16) {
        // Also where nobody waits: those who were called have charged by the old ones.
        let mut locked = self.lock_queues(host, None);
        locked.replan(|queue| queue.is_in(scope), Some(tag));
        locked.unlock();
    }

    /// One more waits.
    pub(super) fn waiter_added(&self, key: Fingerprint) {
        count(&self.waiting, |waiting| waiting + 1);
        count(&self.groups[group(key)], |waiting| waiting + 1);
    }

    /// One that waited was called. It still counts as one of its group: until it has looked, others have to know.
    pub(super) fn waiter_woken(&self) {
        count(&self.waiting, |waiting| waiting - 1);
    }

    /// One that was called has looked, or is gone.
    pub(super) fn woken_removed(&self, key: Fingerprint) {
        count(&self.groups[group(key)], |waiting| waiting - 1);
    }

    /// So many wait no longer.
    pub(super) fn waiters_removed(&self, key: Fingerprint, by: usize) {
        count(&self.waiting, |waiting| waiting - by);
        count(&self.groups[group(key)], |waiting| waiting - by);
    }

    /// An alarm that rings here.
    pub(super) fn alarm(self: &Arc<Queues>, at: Time) -> Alarm {
        let queues: Weak<Queues> = Arc::downgrade(self);
        Alarm::new(queues, at)
    }

    /// Opens the book. The time is asked for when it is needed, unless it is known.
    fn lock_queues<'a>(self: &'a Arc<Queues>, host: &'a dyn Host, now: Option<Time>) -> LockedQueues<'a> {
        LockedQueues::new(self.lock(), self, host, now)
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes them, whatever one of them does.
pub fn wake_all(wakers: Vec<Waker>) {
    let mut callbacks = Callbacks::default();
    for waker in wakers {
        callbacks.run(|| waker.wake());
    }
    callbacks.end();
}

/// Counts are only changed under the lock, so that a plain store does.
fn count(of: &AtomicUsize, change: impl Fn(usize) -> usize) {
    of.store(change(of.load(Ordering::Relaxed)), Ordering::Relaxed);
}

#[inline]
fn group(key: Fingerprint) -> usize {
    // Below the number of groups.
    usize::from(key.high.to_le_bytes()[0]) % GROUPS
}

impl AlarmHandler for Queues {
    /// Calls everybody whose turn has come.
    fn ring(self: Arc<Self>, at: Time) {
        if let Some(host) = self.host.upgrade() {
            let mut locked = self.lock_queues(&*host, None);
            locked.ring(at);
            locked.unlock();
        }
    }

    /// Whoever waits looks again, and so sets another alarm.
    fn lost(self: Arc<Self>, at: Time) {
        let wakers = self.lock().alarm_is_lost(at);
        wake_all(wakers);
    }
}
