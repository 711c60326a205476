//! The waiters of all queues: how to wake each, and its outcome.
//!
//! An id belongs to one waiter until that removes itself, so the index alone identifies it.

use super::Denial;
use crate::key::Fingerprint;
use sluicegate_core::queue::WaiterId;
use sluicegate_core::{Decision, Time};
use std::mem;
use std::task::Waker;

/// The index of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterIndex(u32);

/// The state of a waiter.
#[derive(Default)]
pub(crate) enum WaiterState {
    #[default]
    Free,
    Waiting {
        key: Fingerprint,
        position: WaiterId,
        waker: Waker,
    },
    /// It was charged and woken.
    Admitted {
        key: Fingerprint,
        /// Its index among the woken waiters of its queue.
        index: usize,
    },
    Denied(Box<(Denial, Decision, Time)>),
}

/// The outcome of a waiter, and since when it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitOutcome {
    Admitted(Decision, Time),
    Denied(Denial, Decision, Time),
}

/// After a rush, at most this many free entries are kept.
const KEPT_FREE_MAX: usize = 1_024;

#[derive(Default)]
pub(crate) struct Waiters {
    waiters: Vec<WaiterState>,
    free: Vec<WaiterIndex>,
}

impl Waiters {
    /// A free entry, whose state the caller sets.
    pub(crate) fn insert(&mut self) -> WaiterIndex {
        self.free.pop().unwrap_or_else(|| {
            // Never truncated: the number of waiters is bounded by `MAX_WAITERS_MAX`.
            let waiter = WaiterIndex(u32::try_from(self.waiters.len()).unwrap_or(u32::MAX));
            self.waiters.push(WaiterState::Free);
            waiter
        })
    }

    /// Sets the state of a waiter. Returns the previous one.
    pub(crate) fn replace(&mut self, waiter: WaiterIndex, new: WaiterState) -> WaiterState {
        self.waiters.get_mut(index(waiter)).map_or(WaiterState::Free, |waiter| mem::replace(waiter, new))
    }

    pub(crate) fn get(&mut self, waiter: WaiterIndex) -> Option<&mut WaiterState> {
        self.waiters.get_mut(index(waiter))
    }

    /// Returns `true` if the waiter has no outcome yet.
    pub(crate) fn is_waiting(&self, waiter: WaiterIndex) -> bool {
        matches!(self.waiters.get(index(waiter)), Some(WaiterState::Waiting { .. }))
    }

    /// Sets the waker of a waiter. Returns the previous one, to be dropped after the lock is
    /// released.
    pub(crate) fn replace_waker(&mut self, waiter: WaiterIndex, by: &Waker) -> Option<Waker> {
        match self.get(waiter) {
            Some(WaiterState::Waiting { waker, .. }) if !waker.will_wake(by) => {
                Some(mem::replace(waker, by.clone()))
            }
            _ => None,
        }
    }

    /// Removes a waiter. Returns its last state.
    pub(crate) fn remove(&mut self, waiter: WaiterIndex) -> WaiterState {
        let left = self.replace(waiter, WaiterState::Free);
        self.free.push(waiter);
        if self.free.len() == self.waiters.len() && self.waiters.capacity() > KEPT_FREE_MAX {
            *self = Waiters::default();
        }
        left
    }

    /// The wakers of all that wait.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        let waiting = |waiter: &WaiterState| match waiter {
            WaiterState::Waiting { waker, .. } => Some(waker.clone()),
            _ => None,
        };
        self.waiters.iter().filter_map(waiting).collect()
    }
}

fn index(WaiterIndex(number): WaiterIndex) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
