//! One batch of script calls to a store: its permits, its deadline, and its latency.

use crate::script::ScriptCall;
use crate::store::Inner;
use redis::Value;
use sluicegate::backend::StoreFailure;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

/// A batch of script calls with a deadline. An undecided call is sent again within it.
pub(crate) struct RoundTrip<'a> {
    store: &'a Inner,
    /// Held while the calls are in flight.
    _permit: Option<SemaphorePermit<'a>>,
    began: Instant,
    until: Instant,
    is_measured: bool,
    /// The number of answered calls, and whether any failed.
    answered: usize,
    failed: bool,
}

impl Inner {
    /// Waits for permits to send a batch. Fails if none were free in time; nothing was sent then.
    pub(crate) async fn admit(&self, calls: usize) -> Result<RoundTrip<'_>, StoreFailure> {
        let permit = match self.in_flight.try_acquire(calls) {
            Some(permit) => Some(permit),
            // An unavailable store fails at once, so there is nothing to wait for.
            None if !self.is_partly_up() => None,
            None => {
                let permit = self.in_flight.acquire(calls).await;
                if permit.is_err() {
                    (0..calls).for_each(|_| self.counters.sent(&permit));
                }
                Some(permit?)
            }
        };
        Ok(self.round_trip(permit, true))
    }

    /// Waits for permits to send calls that return a charge or a lease, or renew one. They are sent
    /// even without a permit: otherwise the charge would stay, or the lease expire.
    pub(crate) async fn admit_return(&self, calls: usize) -> RoundTrip<'_> {
        let permit = match self.in_flight.try_acquire(calls) {
            None if self.is_partly_up() => self.in_flight.acquire(calls).await.ok(),
            permit => permit,
        };
        self.round_trip(permit, true)
    }

    /// A waiter's poll. It takes no permit, since `semaphore/polling.rs` bounds how often waiters
    /// poll, and its latency is not measured.
    pub(crate) fn poll(&self) -> RoundTrip<'_> {
        self.round_trip(None, false)
    }

    fn round_trip<'a>(&'a self, permit: Option<SemaphorePermit<'a>>, is_measured: bool) -> RoundTrip<'a> {
        let began = Instant::now();
        let until = began + self.settings.deadline;
        RoundTrip { store: self, _permit: permit, began, until, is_measured, answered: 0, failed: false }
    }
}

impl RoundTrip<'_> {
    /// Sends script calls in one write per server, and returns an answer for each.
    pub(crate) async fn send(&mut self, calls: &[ScriptCall]) -> Vec<Result<Value, StoreFailure>> {
        let answers = self.store.link.send(calls, self.until).await;
        for answer in &answers {
            self.store.counters.sent(answer);
        }
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        self.failed |= answered < answers.len();
        self.answered += answered;
        answers
    }

    /// The number of answered calls so far.
    pub(crate) fn answered(&self) -> usize {
        self.answered
    }

    /// Counts a call that was sent several times once: since `before`, this many were decided.
    pub(crate) fn decided(&mut self, before: usize, calls: usize) {
        self.answered = before + calls;
    }

    /// Sends one script call.
    pub(crate) async fn send_one(&mut self, call: &ScriptCall) -> Result<Value, StoreFailure> {
        let mut answers = self.send(std::slice::from_ref(call)).await;
        answers.pop().unwrap_or_else(|| Err(StoreFailure::Unavailable("no call was sent".to_owned())))
    }
}

impl Drop for RoundTrip<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        if !self.is_measured {
            return;
        }
        if self.answered > 0 {
            self.store.in_flight.answered_after(took);
            if let Some(on_round_trip) = &self.store.settings.on_round_trip {
                on_round_trip(u64::try_from(self.answered).unwrap_or(u64::MAX), took);
            }
        } else if self.failed {
            self.store.in_flight.failed_after(took);
        }
    }
}
