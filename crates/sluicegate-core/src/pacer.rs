//! Pacer: allowed calls leave one after another, evenly spaced.
//!
//! This is the leaky bucket as a queue. There is one time slot every `period / count`. A call takes
//! the next free one, and its delay is the wait for it. If `queue` calls are already waiting, the
//! next is denied.
//!
//! ```text
//! calls   xxxx                      pacer 10/s queue=20
//! leave   x    x    x    x          100 ms apart
//!         0   100  200  300 ms
//! ```
//!
//! ```text
//! Settings   count per period, queue (default count)
//! State      the next free time slot: when a bucket of burst queue + 1 is full (gcra.rs)
//! Formula    decides like token-bucket count/period burst=queue+1;
//!            delay = the time until that bucket, before this call, would have been full
//! Promise    calls that observe their delay leave period / count apart per unit of cost.
//! Rounding   none in the decision; delays and waits are rounded up, so that no call leaves early.
//! Clock      a step back keeps the time slots where they are: delays grow by the step.
//! Cost       16 bytes per key; a multiplication and a division per decision.
//!
//! Example    10/s queue=2: of four calls at once three are allowed, with delays of 0 ms, 100 ms
//!            and 200 ms; the fourth may retry in 100 ms.
//! ```
//!
//! Time slots are in order, so cost cannot be refunded; a reservation can be cancelled while it has
//! the last slot.

use crate::bounds::{OutOfBounds, Rate, checked_count};
use crate::gcra::{Bucket, FillTime, Gcra};

const FILL_TIME: FillTime =
    FillTime { name: "time to drain the queue", advice: "use a smaller queue, or a faster rate" };

/// The pacer. Pick it to shape traffic for a dependency that cannot take bursts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pacer {
    gcra: Gcra,
}

impl Pacer {
    /// Creates time slots at `rate`, with up to `queue` calls waiting for theirs.
    ///
    /// # Errors
    /// If the queue is above [`crate::bounds::COUNT_MAX`], or takes more than a century to drain.
    pub fn new(rate: Rate, queue: u64) -> Result<Pacer, OutOfBounds> {
        let queue = checked_count("queue", queue, 0)?;
        // Cannot wrap: the queue is at most 10^12. One more is the call that leaves immediately.
        Ok(Pacer { gcra: Gcra::new(rate, queue + 1, &FILL_TIME)? })
    }
}

impl Bucket for Pacer {
    const PACED: bool = true;

    #[inline]
    fn gcra(&self) -> &Gcra {
        &self.gcra
    }
}
