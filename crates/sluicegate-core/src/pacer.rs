//! Pacer: allowed calls leave one after another, evenly spaced.
//!
//! In plain words: the leaky bucket as a queue. There is one slot every `period / count`; a call takes the next
//! free one and is told how long to wait for it. When `queue` calls are already waiting, the next is denied.
//!
//! ```text
//! calls   xxxx                      pacer 10/s queue=20
//! leave   x    x    x    x          each 100 ms after the one before
//!         0   100  200  300 ms
//! ```
//!
//! ```text
//! Settings   count per period, queue (count unless said)
//! State      the next free slot, in 16 bytes: the moment at which a bucket of burst queue + 1 is full (gcra.rs)
//! Formula    decides like token-bucket count/period burst=queue+1;
//!            delay = the time until that bucket was full before this call
//! Promise    allowed calls that wait as told leave period / count apart, each unit of cost taking a slot.
//! Rounding   none in the decision; the delay and the waits are rounded up, so that nobody leaves early.
//! Clock      a step back keeps the slots where they are: delays grow by the step.
//! Cost       16 bytes a key; a multiplication and a division a decision.
//!
//! Example    10/s queue=2: of four calls at once three are allowed, with delays 0, 100 and 200 ms; the fourth is
//!            denied and told to come back in 100 ms.
//! ```
//!
//! A slot is a place in line, so it cannot be refunded; a reserved one can be cancelled while it is the last.

use crate::bounds::{OutOfBounds, Rate, checked_count};
use crate::gcra::{Bucket, FillTime, Gcra};

const FILL_TIME: FillTime =
    FillTime { name: "time to work off the queue", advice: "use a smaller queue, or a faster rate" };

/// The pacer. Pick it to shape traffic towards something that wants an even flow rather than bursts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pacer {
    gcra: Gcra,
}

impl Pacer {
    /// Slots at `rate`, with up to `queue` calls waiting for theirs.
    ///
    /// # Errors
    /// When the queue is above [`crate::bounds::COUNT_MAX`], or working it off would take more than a century.
    pub fn new(rate: Rate, queue: u64) -> Result<Pacer, OutOfBounds> {
        let queue = checked_count("queue", queue, 0)?;
        // Cannot wrap: the queue is at most 10^9. The one more is the call that leaves at once.
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
