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

use super::Refusal;
use super::desk::{Book, Desk};
use super::seats::{Outcome, SeatId};
use crate::clock::{Alarm, AnyClock, Rings};
use crate::key::Fingerprint;
use crate::store::Turns;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use sluicegate_core::line::Priority;
use sluicegate_core::receipts::Receipt;
use sluicegate_core::{Decision, Time};
use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;

/// Keys are told apart by a few bits, so that who asks under one of them need not look further while others wait under
/// another. 64 counts take 512 bytes, and of the keys under which nobody waits one in 64 for each line has to look.
const GROUPS: usize = if cfg!(loom) { 2 } else { 64 };

/// All lines of a store.
pub(crate) struct Lines {
    /// How many wait, in all lines.
    waiting: AtomicUsize,
    /// How many of them under the keys of each group.
    groups: [AtomicUsize; GROUPS],
    book: Mutex<Book>,
    pub(super) bounds: LineBounds,
    host: Weak<dyn Host>,
}

/// How many may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineBounds {
    pub(crate) under_a_key: usize,
    pub(crate) in_all: usize,
}

/// Whose lines they are.
pub(crate) trait Host: Send + Sync {
    fn store(&self) -> &dyn Turns;
    fn clock(&self) -> &AnyClock;
    /// A name that was not given before.
    fn next_receipt(&self) -> Receipt;
}

/// Who asks for a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
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
    Taken(Decision),
    Seated(SeatId),
    Refused(Refusal, Decision),
}

impl Lines {
    pub(crate) fn new(bounds: LineBounds, host: Weak<dyn Host>) -> Arc<Lines> {
        let book = Mutex::new(Book::default());
        let groups = std::array::from_fn(|_| AtomicUsize::new(0));
        Arc::new(Lines { waiting: AtomicUsize::new(0), groups, book, bounds, host })
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether somebody may wait under a key. If not, nobody does.
    #[inline]
    pub(crate) fn may_wait(&self, key: Fingerprint) -> bool {
        self.groups[group(key)].load(Ordering::Relaxed) > 0
    }

    /// Takes the call if it is allowed and nobody waits before it; else a place in line, or why not.
    pub(crate) fn join(
        self: &Arc<Lines>,
        host: &dyn Host,
        waiter: &Waiter,
        now: Time,
        waker: &Waker,
    ) -> Joined {
        let mut desk = self.open(host, now);
        let joined = desk.join(waiter, waker);
        desk.close();
        joined
    }

    /// What has come of a seat, which is then given up. `None` if nothing has yet: its caller will be woken.
    pub(crate) fn look(self: &Arc<Lines>, host: &dyn Host, seat: SeatId, waker: &Waker) -> Option<Outcome> {
        let mut desk = self.open(host, host.clock().now());
        let outcome = desk.look(seat, waker);
        desk.close();
        outcome
    }

    /// A caller has lost interest: what it held is given back, and those behind move up.
    pub(crate) fn leave(self: &Arc<Lines>, host: &dyn Host, seat: SeatId) {
        let mut desk = self.open(host, host.clock().now());
        desk.leave(seat);
        desk.close();
    }

    /// The answer to a call that does not wait, if others wait under its key.
    #[cold]
    pub(crate) fn denial(
        self: &Arc<Lines>,
        host: &dyn Host,
        key: Fingerprint,
        cost: u32,
        now: Time,
    ) -> Option<Decision> {
        self.open(host, now).denial(key, cost)
    }

    /// What a key has used was changed by somebody who does not wait: a refund, a receipt, a key that was forgotten.
    pub(crate) fn disturbed(self: &Arc<Lines>, host: &dyn Host, key: Fingerprint) {
        if self.may_wait(key) {
            let mut desk = self.open(host, host.clock().now());
            desk.plan_anew(|line| line.is_of(key), None);
            desk.close();
        }
    }

    /// The limits of a scope's keys have changed: they are judged by those of this tag now.
    pub(crate) fn limits_changed(self: &Arc<Lines>, host: &dyn Host, scope: Option<Fingerprint>, tag: u16) {
        if self.waiting() > 0 {
            let mut desk = self.open(host, host.clock().now());
            desk.plan_anew(|line| line.is_in(scope), Some(tag));
            desk.close();
        }
    }

    /// One more waits.
    pub(super) fn one_more(&self, key: Fingerprint) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.groups[group(key)].fetch_add(1, Ordering::Relaxed);
    }

    /// So many wait no longer.
    pub(super) fn fewer(&self, key: Fingerprint, by: usize) {
        self.waiting.fetch_sub(by, Ordering::Relaxed);
        self.groups[group(key)].fetch_sub(by, Ordering::Relaxed);
    }

    /// An alarm that rings here.
    pub(super) fn alarm(self: &Arc<Lines>) -> Alarm {
        let lines: Weak<Lines> = Arc::downgrade(self);
        Alarm::new(lines)
    }

    fn open<'a>(self: &'a Arc<Lines>, host: &'a dyn Host, now: Time) -> Desk<'a> {
        Desk::new(self.lock(), self, host, now)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[inline]
fn group(key: Fingerprint) -> usize {
    // Below the number of groups.
    usize::from(key.high.to_le_bytes()[0]) % GROUPS
}

impl Rings for Lines {
    /// Calls everybody whose turn has come.
    fn ring(self: Arc<Self>) {
        if let Some(host) = self.host.upgrade() {
            let mut desk = self.open(&*host, host.clock().now());
            desk.ring();
            desk.close();
        }
    }

    /// Whoever waits looks again, and so sets another alarm.
    fn lost(self: Arc<Self>) {
        let wakers = self.lock().alarm_is_lost();
        wakers.into_iter().for_each(Waker::wake);
    }
}
