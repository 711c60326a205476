//! A seat for everybody who waits: how to wake them, and what has come of it.
//!
//! A seat belongs to one caller until that gives it up, so its number is all there is to know it by.

use super::Denial;
use crate::key::Fingerprint;
use sluicegate_core::queue::WaiterId;
use sluicegate_core::{Decision, Time};
use std::mem;
use std::task::Waker;

/// The number of a seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SeatId(u32);

/// Who sits there.
#[derive(Default)]
pub(crate) enum Seat {
    #[default]
    Free,
    Waiting {
        key: Fingerprint,
        ticket: WaiterId,
        waker: Waker,
    },
    /// The turn has come, and is charged.
    Called {
        key: Fingerprint,
        /// Where it is among those of its line who were called.
        place: usize,
    },
    Refused(Box<(Denial, Decision, Time)>),
}

/// What a caller is told, and since when that is so.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Called(Decision, Time),
    Refused(Denial, Decision, Time),
}

/// After a rush so many empty seats are kept.
const KEPT: usize = 1_024;

#[derive(Default)]
pub(crate) struct Seats {
    seats: Vec<Seat>,
    free: Vec<SeatId>,
}

impl Seats {
    /// A seat that is free. Nobody sits there yet.
    pub(crate) fn take(&mut self) -> SeatId {
        self.free.pop().unwrap_or_else(|| {
            // Never cut: there are fewer who wait than a limiter can be told to let wait.
            let seat = SeatId(u32::try_from(self.seats.len()).unwrap_or(u32::MAX));
            self.seats.push(Seat::Free);
            seat
        })
    }

    /// Somebody sits down, or is told what has come of it. Who sat there before.
    pub(crate) fn put(&mut self, seat: SeatId, new: Seat) -> Seat {
        self.seats.get_mut(index(seat)).map_or(Seat::Free, |seat| mem::replace(seat, new))
    }

    pub(crate) fn get(&mut self, seat: SeatId) -> Option<&mut Seat> {
        self.seats.get_mut(index(seat))
    }

    /// Whether its caller has not been told anything yet.
    pub(crate) fn waits(&self, seat: SeatId) -> bool {
        matches!(self.seats.get(index(seat)), Some(Seat::Waiting { .. }))
    }

    /// Whoever waits there is to be woken by this one from now on. The waker that was there, to be dropped elsewhere.
    pub(crate) fn wake_by(&mut self, seat: SeatId, by: &Waker) -> Option<Waker> {
        match self.get(seat) {
            Some(Seat::Waiting { waker, .. }) if !waker.will_wake(by) => {
                Some(mem::replace(waker, by.clone()))
            }
            _ => None,
        }
    }

    /// Somebody leaves. Who sat there.
    pub(crate) fn give_up(&mut self, seat: SeatId) -> Seat {
        let left = self.put(seat, Seat::Free);
        self.free.push(seat);
        if self.free.len() == self.seats.len() && self.seats.capacity() > KEPT {
            *self = Seats::default();
        }
        left
    }

    /// How to wake everybody who waits.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        let waiting = |seat: &Seat| match seat {
            Seat::Waiting { waker, .. } => Some(waker.clone()),
            _ => None,
        };
        self.seats.iter().filter_map(waiting).collect()
    }
}

fn index(SeatId(number): SeatId) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
