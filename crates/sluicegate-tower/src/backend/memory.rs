//! A limiter in this process's memory: every answer is there at once, but for requests that wait.

use super::{Answer, Ask, Backend, Decided, Step, Undecided, Used};
use crate::key::RequestKey;
use sluicegate::{Decision, HashedKey, Limit, Limiter, Reservation, ReserveError};
use std::future::Ready;
use std::sync::Arc;
use std::time::Duration;

/// A charge in memory that can still be changed.
#[derive(Debug)]
pub struct MemoryHeld {
    reservation: Reservation,
    key: HashedKey,
}

impl Backend for Limiter {
    type Held = MemoryHeld;
    type Asking = Ready<Answer<MemoryHeld>>;
    type Closing = Ready<Option<Decision>>;

    #[inline]
    fn ask(&self, key: &RequestKey<'_>, ask: Ask) -> Step<Self::Asking> {
        Step::Now(if ask.hold {
            hold(self, key, ask.cost)
        } else {
            Ok(Decided { decision: self.check_cost(key, ask.cost), held: None })
        })
    }

    fn close(&self, held: MemoryHeld, used: Used) -> Step<Self::Closing> {
        let now = self.now();
        match used {
            // Dropping a reservation keeps its charge.
            Used::All => return Step::Now(None),
            Used::Only(0) => held.reservation.cancel_at(now),
            Used::Only(used) => held.reservation.settle_at(used, now),
        };
        Step::Now(Some(self.peek_hashed_at(held.key, 0, now)))
    }

    fn close_unwatched(&self, held: MemoryHeld, used: Used) {
        drop(self.close(held, used));
    }

    fn limits(&self) -> Arc<[Limit]> {
        Limiter::limits(self)
    }

    #[inline]
    fn changes(&self) -> u64 {
        Limiter::changes(self)
    }
}

fn hold(limiter: &Limiter, key: &RequestKey<'_>, cost: u32) -> Answer<MemoryHeld> {
    let reservation = limiter.reserve(key, cost, Duration::ZERO).map_err(|error| match error {
        ReserveError::NotOffered(refused) => Undecided::for_ever(format!(
            "what was charged under this limit cannot be given back: {refused}; use another limit, or leave out \
             `after` and `charge_if`"
        )),
        error => Undecided::for_now(error.to_string()),
    })?;
    let decision = reservation.decision();
    let held = decision.allowed().then(|| MemoryHeld { reservation, key: limiter.hash(key) });
    Ok(Decided { decision, held })
}
