//! When to stop calling a node, and when to try it again.
//!
//! Five consecutive failures open the breaker; while it is open, calls fail at once and cost
//! nothing. The supervisor's own probe, never a caller's call, finds out when the node is back. The
//! breaker is then half-open: one more failure opens it again, one success closes it. The wait
//! between attempts doubles and has jitter, so that many processes do not return in step.
//!
//! It is not `sluicegate_guard::Breaker`, which probes with callers' calls and records each result
//! under a lock. Here a probe must not be a caller's call, since a call that is sent may be
//! charged; losing the connection opens the breaker too; and a success writes nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Consecutive failures that open the breaker.
pub(crate) const FAILURES_TO_OPEN: u32 = 5;
/// The first wait between attempts.
pub(crate) const WAIT_MIN: Duration = Duration::from_millis(10);
/// The longest wait between attempts: a recovered node is noticed at most this much later.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(1);

/// The failures of one node. Relaxed ordering is enough: these are counts, and guard nothing else.
#[derive(Default)]
pub(crate) struct Breaker {
    consecutive: AtomicU32,
    total: AtomicU64,
    /// A call has succeeded since [`Breaker::take_succeeded`] was last called.
    succeeded: AtomicBool,
}

impl Breaker {
    pub(crate) fn succeed(&self) {
        // Written only when it changes: every call comes through here.
        if self.consecutive.load(Relaxed) != 0 {
            self.consecutive.store(0, Relaxed);
        }
        if !self.succeeded.load(Relaxed) {
            self.succeeded.store(true, Relaxed);
        }
    }

    /// Counts a failure. Returns `true` if the breaker opens.
    pub(crate) fn fail(&self) -> bool {
        self.total.fetch_add(1, Relaxed);
        self.consecutive.fetch_add(1, Relaxed) + 1 >= FAILURES_TO_OPEN
    }

    /// Counts a failure that says nothing about the current connection.
    pub(crate) fn count(&self) {
        self.total.fetch_add(1, Relaxed);
    }

    /// Half-opens the breaker: the next failure opens it again.
    pub(crate) fn half_open(&self) {
        self.consecutive.store(FAILURES_TO_OPEN - 1, Relaxed);
    }

    pub(crate) fn take_succeeded(&self) -> bool {
        self.succeeded.swap(false, Relaxed)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.total.load(Relaxed)
    }
}

/// The wait between attempts: exponential, with jitter.
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

    /// Returns the next wait: half of it is fixed, half is random.
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
    fn consecutive_failures_open_it_and_a_success_resets_the_count() {
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
    fn one_failure_opens_a_half_open_breaker() {
        let breaker = Breaker::default();
        breaker.half_open();
        assert!(breaker.fail());
        breaker.half_open();
        breaker.succeed();
        assert!(!breaker.fail());
    }

    #[test]
    fn waits_grow_up_to_a_second() {
        let mut backoff = Backoff::new();
        let first = backoff.wait();
        assert!(first >= WAIT_MIN / 2 && first <= WAIT_MIN, "{first:?}");
        let last = (0..20).map(|_| backoff.wait()).last().unwrap();
        assert!(last >= WAIT_MAX / 2 && last <= WAIT_MAX, "{last:?}");
        backoff.reset();
        assert!(backoff.wait() <= WAIT_MIN);
    }
}
