//! A seat for everybody who waits: how to wake them, and what has come of it.
//!
//! A seat belongs to one caller until that gives it up, so its number is all there is to know it by.

use super::Denial;
use crate::key::Fingerprint;
use sluicegate_core::line::Ticket;
use sluicegate_core::{Decision, Time};
use std::mem;
use std::task::Waker;

/// The number of a seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterId(u32);

/// Who sits there.
#[derive(Default)]
pub(crate) enum WaiterState {
    #[default]
    Free,
    Waiting {
        key: Fingerprint,
        position: Ticket,
        waker: Waker,
    },
    /// The turn has come, and is charged.
    Admitted {
        key: Fingerprint,
        /// Where it is among those of its line who were called.
        index: usize,
    },
    Denied(Box<(Denial, Decision, Time)>),
}

/// What a caller is told, and since when that is so.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Admitted(Decision, Time),
    Denied(Denial, Decision, Time),
}

/// After a rush so many empty seats are kept.
const KEPT_FREE_MAX: usize = 1_024;

#[derive(Default)]
pub(crate) struct Waiters {
    waiters: Vec<WaiterState>,
    free: Vec<WaiterId>,
}

impl Waiters {
    /// A seat that is free. Nobody sits there yet.
    pub(crate) fn insert(&mut self) -> WaiterId {
        self.free.pop().unwrap_or_else(|| {
            // Never cut: there are fewer who wait than a limiter can be told to let wait.
            let waiter = WaiterId(u32::try_from(self.waiters.len()).unwrap_or(u32::MAX));
            self.waiters.push(WaiterState::Free);
            waiter
        })
    }

    /// Somebody sits down, or is told what has come of it. Who sat there before.
    pub(crate) fn replace(&mut self, waiter: WaiterId, new: WaiterState) -> WaiterState {
        self.waiters.get_mut(index(waiter)).map_or(WaiterState::Free, |waiter| mem::replace(waiter, new))
    }

    pub(crate) fn get(&mut self, waiter: WaiterId) -> Option<&mut WaiterState> {
        self.waiters.get_mut(index(waiter))
    }

    /// Whether its caller has not been told anything yet.
    pub(crate) fn is_waiting(&self, waiter: WaiterId) -> bool {
        matches!(self.waiters.get(index(waiter)), Some(WaiterState::Waiting { .. }))
    }

    /// Whoever waits there is to be woken by this one from now on. The waker that was there, to be dropped elsewhere.
    pub(crate) fn replace_waker(&mut self, waiter: WaiterId, by: &Waker) -> Option<Waker> {
        match self.get(waiter) {
            Some(WaiterState::Waiting { waker, .. }) if !waker.will_wake(by) => {
                Some(mem::replace(waker, by.clone()))
            }
            _ => None,
        }
    }

    /// Somebody leaves. Who sat there.
    pub(crate) fn remove(&mut self, waiter: WaiterId) -> WaiterState {
        let left = self.replace(waiter, WaiterState::Free);
        self.free.push(waiter);
        if self.free.len() == self.waiters.len() && self.waiters.capacity() > KEPT_FREE_MAX {
            *self = Waiters::default();
        }
        left
    }

    /// How to wake everybody who waits.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        let waiting = |waiter: &WaiterState| match waiter {
            WaiterState::Waiting { waker, .. } => Some(waker.clone()),
            _ => None,
        };
        self.waiters.iter().filter_map(waiting).collect()
    }
}

fn index(WaiterId(number): WaiterId) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
