//! How many calls may be under way to a shared store at once.
//!
//! A store decides one call after another. What is sent to it beyond what it decides in a moment only waits there, with its
//! deadline running, and is charged even if the answer comes too late. So calls wait here instead, where waiting charges
//! nothing. How many may go follows from how long answers take: fewer when they take a good part of the deadline, more when
//! they come quickly.

use sluicegate_redis::StoreFailure;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// As many as can go together: the largest batch of a connection.
pub(super) const LEAST: usize = 128;
/// Enough to keep a store of today busy, and far from a deadline of 50 ms.
pub(super) const AT_FIRST: usize = 256;
/// Enough for a large cluster.
const MOST: usize = 8_192;

/// Turns to be waited for.
pub(super) struct Turns {
    free: Semaphore,
    /// How many there are, free or taken. It is locked while turns are made or taken away, so that there are never fewer
    /// than [`LEAST`]: a batch would wait for good, and everybody behind it.
    all: Mutex<usize>,
    deadline: Duration,
}

impl Turns {
    pub(super) fn new(deadline: Duration) -> Turns {
        Turns { free: Semaphore::new(AT_FIRST), all: Mutex::new(AT_FIRST), deadline }
    }

    /// The turn of so many calls, if nobody has to wait for it.
    pub(super) fn free(&self, calls: usize) -> Option<SemaphorePermit<'_>> {
        self.free.try_acquire_many(at_most_a_batch(calls)).ok()
    }

    /// Waits for the turn of so many calls, and not for longer than the store has for an answer.
    pub(super) async fn wait(&self, calls: usize) -> Result<SemaphorePermit<'_>, StoreFailure> {
        match timeout(self.deadline, self.free.acquire_many(at_most_a_batch(calls))).await {
            Ok(Ok(turn)) => Ok(turn),
            // (That nobody can ever have a turn does not happen.)
            Ok(Err(_)) | Err(_) => Err(StoreFailure::Away(format!(
                "more calls wait for it than it answers within {:?}; this one was not sent",
                self.deadline
            ))),
        }
    }

    /// Learns from how long an answer took.
    pub(super) fn took(&self, took: Duration) {
        if self.is_slow(took) {
            self.take_some_away();
        } else if took < self.deadline / 16 && self.free.available_permits() == 0 {
            let mut all = self.all();
            let more = (*all / 16).min(MOST.saturating_sub(*all));
            *all += more;
            self.free.add_permits(more);
        }
    }

    /// Learns from how long it took until it was clear that no answer comes. That it was clear soon says nothing.
    pub(super) fn failed_after(&self, took: Duration) {
        if self.is_slow(took) {
            self.take_some_away();
        }
    }

    fn is_slow(&self, took: Duration) -> bool {
        took > self.deadline / 4
    }

    fn take_some_away(&self) {
        let mut all = self.all();
        // Only those that are free can be taken away; the others come back first.
        *all -= self.free.forget_permits((*all / 8).min(all.saturating_sub(LEAST)));
    }

    fn all(&self) -> MutexGuard<'_, usize> {
        // Nothing can panic between locking and unlocking, and the number is right at any time.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn how_many(&self) -> usize {
        *self.all()
    }
}

/// No batch needs more turns than there are at the least.
fn at_most_a_batch(calls: usize) -> u32 {
    u32::try_from(calls.min(LEAST)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    const DEADLINE: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn slow_answers_leave_fewer_turns_and_never_too_few_for_a_batch() {
        let turns = Turns::new(DEADLINE);
        for _ in 0..100 {
            turns.took(DEADLINE / 2);
        }
        assert_eq!((turns.how_many(), turns.free.available_permits()), (LEAST, LEAST));
        assert!(turns.wait(1_000).await.is_ok(), "a larger batch than any goes as the largest");
    }

    #[tokio::test]
    async fn quick_answers_bring_more_turns_only_if_somebody_waits_for_them() {
        let turns = Turns::new(DEADLINE);
        turns.took(Duration::ZERO);
        assert_eq!(turns.how_many(), AT_FIRST, "nobody needs more");
        for _ in 0..1_000 {
            let taken = turns.free.available_permits();
            let _held = turns.free.acquire_many(u32::try_from(taken).unwrap()).await;
            turns.took(Duration::ZERO);
        }
        assert_eq!(turns.how_many(), MOST);
        assert_eq!(turns.how_many(), turns.free.available_permits(), "none is lost");
    }

    #[test]
    fn slow_answers_at_the_same_moment_leave_enough_turns_for_a_batch() {
        const AT_ONCE: usize = 4;
        for round in 0..500 {
            let (turns, begin) = (Turns::new(DEADLINE), Barrier::new(AT_ONCE));
            thread::scope(|scope| {
                for _ in 0..AT_ONCE {
                    scope.spawn(|| {
                        begin.wait();
                        for _ in 0..50 {
                            turns.took(DEADLINE);
                        }
                    });
                }
            });
            assert_eq!((turns.how_many(), turns.free.available_permits()), (LEAST, LEAST), "round {round}");
        }
    }
}
