//! A seat for everybody who waits: how to wake them, and what has come of it.
//!
//! A seat belongs to one caller until that gives it up, so its number is all there is to know it by.

use super::Refusal;
use crate::key::Fingerprint;
use sluicegate_core::Decision;
use sluicegate_core::line::Ticket;
use sluicegate_core::receipts::Receipt;
use std::mem;
use std::task::Waker;

/// The number of a seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SeatId(u32);

/// Who sits there.
pub(crate) enum Seat {
    Free,
    Waiting {
        key: Fingerprint,
        ticket: Ticket,
        waker: Waker,
    },
    /// They have been told, and have not looked yet.
    Told(Outcome),
}

/// What has come of waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// The turn has come, and is charged. With the receipt it can be given back until the caller has seen it.
    Called {
        key: Fingerprint,
        receipt: Option<Receipt>,
        decision: Decision,
    },
    Refused {
        refusal: Refusal,
        decision: Decision,
    },
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

    pub(crate) fn sit(&mut self, seat: SeatId, key: Fingerprint, ticket: Ticket, waker: Waker) {
        self.put(seat, Seat::Waiting { key, ticket, waker });
    }

    /// Tells somebody what has come of it. How to wake them.
    pub(crate) fn tell(&mut self, seat: SeatId, outcome: Outcome) -> Option<Waker> {
        match self.put(seat, Seat::Told(outcome)) {
            Seat::Waiting { waker, .. } => Some(waker),
            Seat::Free | Seat::Told(_) => None,
        }
    }

    /// What has come of it, if that is known.
    pub(crate) fn look(&self, seat: SeatId) -> Option<Outcome> {
        match self.seats.get(index(seat)) {
            Some(Seat::Told(outcome)) => Some(*outcome),
            _ => None,
        }
    }

    /// Whoever waits there is to be woken by this one from now on. The waker that was there, to be dropped elsewhere.
    pub(crate) fn wake_by(&mut self, seat: SeatId, by: &Waker) -> Option<Waker> {
        match self.seats.get_mut(index(seat)) {
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
            Seat::Free | Seat::Told(_) => None,
        };
        self.seats.iter().filter_map(waiting).collect()
    }

    fn put(&mut self, seat: SeatId, new: Seat) -> Seat {
        self.seats.get_mut(index(seat)).map_or(Seat::Free, |seat| mem::replace(seat, new))
    }
}

fn index(SeatId(number): SeatId) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
