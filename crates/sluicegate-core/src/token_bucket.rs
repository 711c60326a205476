//! Token bucket: calls spend tokens, and tokens refill at a steady rate.
//!
//! A bucket holds at most `burst` tokens and refills steadily, `count` tokens every `period`. A
//! call spends as many tokens as it costs; if there are too few, it is denied and spends none.
//! Unspent tokens allow a burst; in the long run, calls are held to the rate.
//!
//! ```text
//! tokens 5 |*                             token-bucket 1/s burst=5
//!        4 ||       five calls at once empty it,
//!        3 ||       then it refills evenly
//!        2 ||                       . -'
//!        1 ||           . - ' -  '
//!        0 |*. - ' ' '
//!          0 s          1 s          2 s
//! ```
//!
//! ```text
//! Settings   count per period, burst (default count), initial (default burst) and start
//! State      the moment at which the bucket is full again, in 16 bytes: gcra.rs has the arithmetic
//! Formula    level(t) = min(burst, level + (t - last) * count / period); allow if level >= cost
//! Promise    any stretch of length w admits at most burst + w * count / period.
//! Rounding   none in the decision; waits are rounded up, remaining is rounded down.
//! Clock      a step back lowers the level of a bucket in use by what refills in that much time,
//!            until the clock has caught up.
//! Cost       16 bytes per key; a multiplication and a division per decision.
//! Unseen     with `initial`, an unseen key holds
//!            min(burst, initial + (t - start) * count / period), and `initial` before `start`:
//!            as if every key had been refilling since `start`, though nothing is stored. Once
//!            charged, a key refills from the level that the charge left.
//!
//! Example    30/60s burst=15: 15 calls are allowed at once; the next may retry in 2 s.
//! ```

use crate::bounds::{OutOfBounds, Rate, checked_count};
use crate::cell::Cell;
use crate::gcra::{Bucket, FillTime, Gcra};
use crate::time::Time;

const FILL_TIME: FillTime =
    FillTime { name: "time to fill", advice: "use a smaller burst, or a faster rate" };

/// The token bucket. Pick it when short bursts are fine and the long-run rate is what matters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TokenBucket {
    gcra: Gcra,
    initial: Option<InitialLevel>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct InitialLevel {
    tokens: u64,
    start: Time,
}

impl TokenBucket {
    /// Creates a bucket that refills at `rate` and holds at most `burst` tokens.
    ///
    /// # Errors
    /// If the burst is 0 or above [`crate::bounds::COUNT_MAX`], or takes more than a century to
    /// refill.
    pub fn new(rate: Rate, burst: u64) -> Result<TokenBucket, OutOfBounds> {
        let burst = checked_count("burst", burst, 1)?;
        Ok(TokenBucket { gcra: Gcra::new(rate, burst, &FILL_TIME)?, initial: None })
    }

    /// Sets what an unseen key holds: `tokens` at `start`, refilling from then on.
    ///
    /// # Errors
    /// If `tokens` is more than the burst.
    pub fn starting_with(self, tokens: u64, start: Time) -> Result<TokenBucket, OutOfBounds> {
        let burst = self.gcra.burst();
        if tokens > burst {
            let advice = "a bucket cannot start with more than its burst, so use the burst or less";
            return Err(OutOfBounds::above("initial", tokens, burst, advice));
        }
        Ok(TokenBucket { initial: (tokens < burst).then_some(InitialLevel { tokens, start }), ..self })
    }
}

impl Bucket for TokenBucket {
    #[inline]
    fn gcra(&self) -> &Gcra {
        &self.gcra
    }

    #[inline]
    fn unseen(&self, now: Time) -> Cell {
        // Before the start an unseen key holds what it will hold at the start.
        self.filling_since(|start| start.min(now))
    }

    #[inline]
    fn unseen_for_waits(&self, _now: Time) -> Cell {
        self.filling_since(|start| start)
    }
}

impl TokenBucket {
    #[inline]
    fn filling_since(&self, since: impl Fn(Time) -> Time) -> Cell {
        self.initial.map_or(Cell::UNSEEN, |InitialLevel { tokens, start }| self.filling(tokens, since(start)))
    }

    /// Out of line to keep the fast path small: most keys have called before.
    #[cold]
    fn filling(&self, tokens: u64, since: Time) -> Cell {
        self.gcra.with_used(self.gcra.burst() - tokens, since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm as _;
    use crate::time::{SECOND, Span};
    use crate::verbs::Verbs as _;

    fn bucket(count: u64, seconds: u64, burst: u64) -> TokenBucket {
        let rate = Rate::new(count, Span::from_micros(seconds * SECOND)).unwrap();
        TokenBucket::new(rate, burst).unwrap()
    }

    #[test]
    fn the_example_in_the_header() {
        let bucket = bucket(30, 60, 15);
        let mut state = Cell::UNSEEN;
        let allowed = (0..20).filter(|_| bucket.check(&mut state, Time::EPOCH, 1).allowed()).count();
        assert_eq!(allowed, 15);
        let denied = bucket.check(&mut state, Time::EPOCH, 1);
        assert_eq!(
            denied.retry_after(),
            Some(crate::decision::RetryAfter::After(Span::from_micros(2 * SECOND)))
        );
        assert_eq!(denied.reset_after(), Span::from_micros(30 * SECOND));
    }

    #[test]
    fn an_empty_bucket_refills_from_its_start() {
        let start = Time::from_micros(100 * SECOND).unwrap();
        let bucket = bucket(50, 10, 50).starting_with(0, start).unwrap();
        let at = |micros| Time::from_micros(micros).unwrap();
        assert_eq!(bucket.peek(&Cell::UNSEEN, at(1), 1).remaining(), 0);
        assert_eq!(bucket.peek(&Cell::UNSEEN, start, 1).remaining(), 0);
        assert_eq!(bucket.peek(&Cell::UNSEEN, at(100 * SECOND + 200_000), 1).remaining(), 1);
        assert_eq!(bucket.peek(&Cell::UNSEEN, at(200 * SECOND), 1).remaining(), 50);
    }

    #[test]
    fn initial_is_at_most_the_burst() {
        let start = Time::from_micros(5).unwrap();
        assert_eq!(bucket(1, 1, 5).starting_with(5, start), Ok(bucket(1, 1, 5)));
        assert!(bucket(1, 1, 5).starting_with(6, start).is_err());
    }
}
