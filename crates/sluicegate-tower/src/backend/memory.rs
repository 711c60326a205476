//! A limiter in this process's memory: every answer is there at once, but for requests that have to wait.

use super::{Answer, Ask, Backend, Decided, Step, Undecided, Used};
use crate::key::RequestKey;
use sluicegate::{Decision, HashedKey, Limit, Limiter, Reservation, ReserveError, Span};
use std::future::Ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A charge in memory that can still be changed.
#[derive(Debug)]
pub struct MemoryHeld {
    reservation: Reservation,
    key: HashedKey,
}

/// A request that waits. Only such a one is in a box.
type Waits = Pin<Box<dyn Future<Output = Answer<MemoryHeld>> + Send>>;

impl Backend for Limiter {
    type Held = MemoryHeld;
    type Asking = Waits;
    type Closing = Ready<Option<Decision>>;

    #[inline]
    fn ask(&self, key: &RequestKey<'_>, ask: Ask) -> Step<Waits> {
        match ask {
            Ask { cost, max_wait: None, hold: false, keep_back } => {
                let decision = self.check_cost(key, cost);
                if keep_back && decision.delay() > Span::ZERO {
                    return paced(self, Decided { decision, held: None });
                }
                Step::Now(Ok(Decided { decision, held: None }))
            }
            Ask { cost, max_wait: Some(max_wait), hold: false, .. } => in_line(self, key, cost, max_wait),
            Ask { hold: true, .. } => held(self, key, ask),
        }
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
        let _standing = self.close(held, used);
    }

    fn limits(&self) -> Arc<[Limit]> {
        Limiter::limits(self)
    }

    #[inline]
    fn changes(&self) -> u64 {
        Limiter::changes(self)
    }
}

/// A turn in line, first come, first served.
fn in_line(limiter: &Limiter, key: &RequestKey<'_>, cost: u32, max_wait: Duration) -> Step<Waits> {
    let mut acquire = limiter.acquire_within(key, cost, max_wait);
    if let Some(turn) = acquire.at_once(limiter.now()) {
        return Step::Now(Ok(Decided { decision: turn.decision(), held: None }));
    }
    let (limiter, key) = (limiter.clone(), key.clone().into_owned());
    Step::Later(Box::pin(async move {
        let turn = limiter.acquire_within(key, cost, max_wait).await;
        Ok(Decided { decision: turn.decision(), held: None })
    }))
}

/// A charge that can be changed, to act on after its delay.
fn held(limiter: &Limiter, key: &RequestKey<'_>, ask: Ask) -> Step<Waits> {
    let reservation = match limiter.reserve(key, ask.cost, ask.max_wait.unwrap_or_default()) {
        Ok(reservation) => reservation,
        Err(ReserveError::NotOffered(refused)) => {
            return Step::Now(Err(Undecided::for_ever(format!(
                "what was charged under this limit cannot be given back: {refused}; use another limit, or leave \
                 out `after` and `charge_if`"
            ))));
        }
        Err(error) => return Step::Now(Err(Undecided::for_now(error.to_string()))),
    };
    let decision = reservation.decision();
    let held = decision.allowed().then(|| MemoryHeld { reservation, key: limiter.hash(key) });
    let decided = Decided { decision, held };
    if ask.keep_back && decision.delay() > Span::ZERO {
        paced(limiter, decided)
    } else {
        Step::Now(Ok(decided))
    }
}

/// What was allowed for later goes on then: a pacer's callers leave evenly spaced.
#[cold]
fn paced(limiter: &Limiter, decided: Decided<MemoryHeld>) -> Step<Waits> {
    let delay = limiter.delay(decided.decision.delay());
    let mut waiting = Waiting { held: decided.held };
    Step::Later(Box::pin(async move {
        delay.await;
        Ok(Decided { held: waiting.held.take(), decision: decided.decision })
    }))
}

/// A request that has reserved its turn. If it gives up before that it leaves as if it had never come.
struct Waiting {
    held: Option<MemoryHeld>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.reservation.cancel();
        }
    }
}
