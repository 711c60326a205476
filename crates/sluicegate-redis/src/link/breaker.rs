//! When to stop asking a node, and when to try it again.
//!
//! In plain words: five failures in a row open the breaker, and while it is open calls fail at once and cost
//! nothing. A probe of our own, never a caller's call, finds out when the node is back. After that it is on
//! trial: one more failure opens the breaker again, one success forgets all. Between tries passes a time
//! that doubles, with chance in it, so that many processes do not come back in step.
//!
//! It is not `sluicegate_guard::Breaker`, which uses callers' calls as probes and ends each call under a lock. Here only
//! the supervisor's probe finds out whether the store is back, as a call that is sent may be charged; losing the
//! connection opens the breaker too, and a success writes nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Failures in a row after which a node is left alone.
pub(crate) const FAILURES_TO_OPEN: u32 = 5;
/// The first wait between two tries.
pub(crate) const WAIT_MIN: Duration = Duration::from_millis(10);
/// The longest: a node that is back is noticed this much later at most.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(1);

/// Failures of one node. Relaxed is enough: these are counts, and guard nothing else.
#[derive(Default)]
pub(crate) struct Breaker {
    in_row: AtomicU32,
    total: AtomicU64,
    /// Whether a call has succeeded since this was last asked.
    worked: AtomicBool,
}

impl Breaker {
    pub(crate) fn succeed(&self) {
        // Written only when it changes: this is on the way of every call.
        if self.in_row.load(Relaxed) != 0 {
            self.in_row.store(0, Relaxed);
        }
        if !self.worked.load(Relaxed) {
            self.worked.store(true, Relaxed);
        }
    }

    /// Counts a failure, and says whether that is enough.
    pub(crate) fn fail(&self) -> bool {
        self.total.fetch_add(1, Relaxed);
        self.in_row.fetch_add(1, Relaxed) + 1 >= FAILURES_TO_OPEN
    }

    /// Counts a failure that says nothing about how things are now.
    pub(crate) fn count(&self) {
        self.total.fetch_add(1, Relaxed);
    }

    /// The next failure is enough.
    pub(crate) fn put_on_trial(&self) {
        self.in_row.store(FAILURES_TO_OPEN - 1, Relaxed);
    }

    pub(crate) fn has_worked_since_asked(&self) -> bool {
        self.worked.swap(false, Relaxed)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.total.load(Relaxed)
    }
}

/// How long to wait between tries.
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) const fn new() -> Backoff {
        Backoff { next: WAIT_MIN }
    }

    pub(crate) const fn reset(&mut self) {
        self.next = WAIT_MIN;
    }

    /// The wait before the next try: half of it is certain, half is chance.
    pub(crate) fn wait(&mut self) -> Duration {
        let wait = self.next.mul_f64(0.5 + 0.5 * fastrand::f64());
        self.next = (self.next * 2).min(WAIT_MAX);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Breaker, FAILURES_TO_OPEN, WAIT_MAX, WAIT_MIN};

    #[test]
    fn failures_in_a_row_open_it_and_a_success_starts_the_row_anew() {
        let breaker = Breaker::default();
        for _ in 1..FAILURES_TO_OPEN {
            assert!(!breaker.fail());
        }
        breaker.succeed();
        for _ in 1..FAILURES_TO_OPEN {
            assert!(!breaker.fail());
        }
        assert!(breaker.fail());
        assert_eq!(breaker.failures(), 9);
    }

    #[test]
    fn on_trial_one_failure_is_enough() {
        let breaker = Breaker::default();
        breaker.put_on_trial();
        assert!(breaker.fail());
        breaker.put_on_trial();
        breaker.succeed();
        assert!(!breaker.fail());
    }

    #[test]
    fn waits_grow_to_a_second_and_no_further() {
        let mut backoff = Backoff::new();
        let first = backoff.wait();
        assert!(first >= WAIT_MIN / 2 && first <= WAIT_MIN, "{first:?}");
        let last = (0..20).map(|_| backoff.wait()).last().unwrap();
        assert!(last >= WAIT_MAX / 2 && last <= WAIT_MAX, "{last:?}");
        backoff.reset();
        assert!(backoff.wait() <= WAIT_MIN);
    }
}
