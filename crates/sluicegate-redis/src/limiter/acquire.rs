//! Waiting until a call is allowed.
//!
//! Limits that can reserve a time (buckets, `pacer`, `smooth`) need one script call: the store
//! charges the key and returns the delay, and the caller sleeps. Later calls are charged later, so
//! the store orders the waiters of all processes. Under other limits the waiters of a process form
//! a queue; its head calls the store, and retries after a denial's `retry_after`.
//!
//! ```text
//! reserve:  call ──▶ charged, with a delay ──▶ sleep ──▶ admitted, and the receipt is dropped
//!                                                └ dropped ──▶ cancel
//! retry:    queue ──▶ head: call ──▶ charged ──▶ admitted
//!                            ▲  └ denied ──▶ sleep ┐
//!                            └── for retry_after ──┘
//! ```

use super::queue::{LocalWaiter, QueueDenial};
use super::script_calls::ScriptVerb;
use super::wait_guard::WaitGuard;
use super::{Inner, RedisLimiter};
use crate::encode::EncodedLimit;
use crate::fallback::RETRY_AFTER;
use sluicegate::backend::{Answer, Source, StoreFailure};
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::wait::{Acquired, Denial};
use sluicegate::{Key, RetryAfter, Span, Time};
use sluicegate_core::algorithm::Waiting;
use sluicegate_core::decision::store::{StoreDecision as _, by_no_limit};
use sluicegate_core::{Algorithm as _, AnyLimit};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

impl RedisLimiter {
    /// Waits until the key allows this cost, and charges it. Denied only if the cost exceeds the
    /// limit or the queue is full.
    ///
    /// **Order.** Under buckets, `pacer` and `smooth` the store charges each caller on arrival and
    /// tells it when to act: first in, first out over all processes, and small costs do not
    /// overtake a large one. (A caller that finds the queue of a `pacer` full is denied.) Under
    /// windows and logs, and in lists that contain one, the waiters of this limiter and its clones
    /// are served in order, one at a time. Other processes and plain checks are not in that queue:
    /// when capacity returns, the first call to reach the store gets it. So there is no order
    /// between processes, and a large cost can be overtaken by small ones. A process retries only
    /// after the `retry_after` that it received.
    ///
    /// **When a waiting call is dropped**, a task on the runtime that polled it cancels its charge.
    /// The task tries once: if the store is unavailable or the runtime ends, the charge stays.
    /// Under a bucket or a `pacer` nothing is returned once a later caller was charged, because
    /// that caller already knows when to act; the time of the dropped call stays unused. A call
    /// that is dropped in flight, and would have been admitted at once, stays charged, like a
    /// check. Under `smooth`, where the next caller pays, nothing is returned.
    ///
    /// **When the store fails**, the limiter answers as for the other verbs. A waiter that was
    /// already charged no longer needs the store. Under
    /// [`OnStoreFailure::Deny`](crate::OnStoreFailure::Deny) waiters retry.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn acquire(&self, key: impl Key, cost: u64) -> Result<Acquired, StoreFailure> {
        self.inner.acquire(&key.to_bytes(), cost, None).await
    }

    /// Waits for at most `max_wait`. The call is denied as soon as it cannot succeed in time: under
    /// buckets and `pacer` at once, under others when the next retry would be too late.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn acquire_within(
        &self,
        key: impl Key,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Acquired, StoreFailure> {
        self.inner.acquire(&key.to_bytes(), cost, Some(max_wait)).await
    }

    /// Waits until `deadline` at the latest, on this process's clock.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn acquire_until(
        &self,
        key: impl Key,
        cost: u64,
        deadline: Time,
    ) -> Result<Acquired, StoreFailure> {
        self.acquire_within(key, cost, deadline.since(SystemClock.now()).into()).await
    }
}

/// The result of one attempt.
enum Attempt {
    Answer(Answer, Option<WaitGuard>),
    /// The key has too many waiters in the store.
    Full,
}

impl Inner {
    pub(crate) async fn acquire(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        max_wait: Option<Duration>,
    ) -> Result<Acquired, StoreFailure> {
        let began = Instant::now();
        let until = max_wait.and_then(|max_wait| began.checked_add(max_wait));
        let is_ordered_by_store = self.compiled.iter().all(|limit| limit.waiting() != Waiting::Retry);
        // While the store is unavailable, calls wait in the queue under every limit. Later calls
        // must not overtake them.
        let enqueues = cost > 0 && !(is_ordered_by_store && self.queues.is_idle(key));
        let mut waiter = None;
        if enqueues {
            match LocalWaiter::become_head(self, key, until).await {
                Ok(head) => waiter = Some(head),
                Err(denial) => return Ok(self.queue_denied(denial, began)),
            }
        }
        loop {
            let left =
                until.map_or(Span::MAX, |until| until.saturating_duration_since(Instant::now()).into());
            let (answer, guard) = match self.attempt(key, cost, left).await? {
                Attempt::Answer(answer, guard) => (answer, guard),
                Attempt::Full => return Ok(self.queue_denied(QueueDenial::Full, began)),
            };
            let received = Instant::now();
            if answer.allowed() {
                // The next waiter may call the store while this one sleeps.
                drop(waiter);
                let delay = answer.delay();
                if delay > Span::ZERO {
                    sleep_until(received + Duration::from(delay)).await;
                }
                if let Some(guard) = guard {
                    guard.admitted();
                }
                return Ok(acquired(aged_by(answer, delay), began, None));
            }
            let retry_after = match self.denial(&answer, cost, left) {
                Ok(retry_after) => retry_after,
                Err((denial, answer)) => return Ok(acquired(answer, began, Some(denial))),
            };
            let head = match waiter.take() {
                Some(head) => head,
                None => match LocalWaiter::become_head(self, key, until).await {
                    Ok(head) => head,
                    Err(denial) => return Ok(self.queue_denied(denial, began)),
                },
            };
            let retries_at = received + Duration::from(retry_after);
            head.denied_until(received, retries_at, answer.decision());
            sleep_until(retries_at).await;
            waiter = Some(head);
        }
    }

    /// Calls the store, or its fallback.
    async fn attempt(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u64,
        max_wait: Span,
    ) -> Result<Attempt, StoreFailure> {
        // With `count=all` there are no reservations, and a cost of 0 needs none.
        if cost == 0 || self.encoded.iter().any(EncodedLimit::counts_denied) {
            let reply = self.execute(self.call(key, cost, None), ScriptVerb::Check).await;
            let decision = reply.and_then(|reply| self.decided(reply, cost));
            let answer = self.answered(decision, |limiter| Some(limiter.check_cost(key, cost)))?;
            return Ok(Attempt::Answer(answer, None));
        }
        let _invalidate = self.invalidate_denials(key);
        // Under `smooth` the next caller pays, so there is nothing to cancel.
        if self.compiled.iter().any(|limit| limit.waiting() == Waiting::NextCallerPays) {
            let decision = self.decide_within(self.call(key, cost, None), max_wait).await;
            let answer =
                self.answered(decision, |limiter| limiter.check_within(key, cost, max_wait.into()).ok())?;
            return Ok(Attempt::Answer(answer, None));
        }
        // The guard is created once the call may be sent: a charge that was never requested need
        // not be cancelled.
        let mut round_trip = self.store.inner.admit_return(1).await;
        let guard = WaitGuard::new(self, key);
        let verb = ScriptVerb::Wait { receipt: guard.receipt(), max_wait };
        let options = max_wait.into();
        match self.decide_reserve(&mut round_trip, self.call(key, cost, None), verb, options).await {
            Ok(None) => {
                guard.disarm();
                Ok(Attempt::Full)
            }
            Ok(Some((decision, _))) => {
                let answer = self.answered(Ok(decision), |_| None)?;
                if decision.delay() > Span::ZERO {
                    return Ok(Attempt::Answer(answer, Some(guard)));
                }
                guard.disarm();
                Ok(Attempt::Answer(answer, None))
            }
            Err(failure) => {
                if !failure.may_have_charged() {
                    guard.disarm();
                }
                let answer = self.answered(Err(failure), |limiter| {
                    limiter.check_within(key, cost, max_wait.into()).ok()
                })?;
                Ok(Attempt::Answer(answer, None))
            }
        }
    }

    /// Returns the time until the next attempt, or why there is none.
    fn denial(&self, denied: &Answer, cost: u64, left: Span) -> Result<Span, (Denial, Answer)> {
        let Some(RetryAfter::After(retry_after)) = denied.retry_after() else {
            return Err((Denial::Never, *denied));
        };
        let decision = denied.decision();
        let by = decision.denied_by().and_then(|index| self.compiled.get(usize::try_from(index).ok()?));
        match by.map(AnyLimit::waiting) {
            Some(Waiting::Queue) if decision.remaining() < cost => Err((Denial::QueueFull, *denied)),
            // The attempt could borrow all that refills in the time left, so its denial says what
            // is missing.
            Some(Waiting::Borrow | Waiting::NextCallerPays | Waiting::Queue)
                if denied.source() != Source::Denied =>
            {
                Err((Denial::TooLong, *denied))
            }
            _ if retry_after > left => {
                // A caller that calls again after that time, and waits as long again, succeeds.
                let missing = decision.denied_for(retry_after.saturating_sub(left));
                Err((Denial::TooLong, Answer::new(missing, denied.source())))
            }
            _ => Ok(retry_after),
        }
    }

    fn queue_denied(&self, denial: QueueDenial, began: Instant) -> Acquired {
        let (denial, denied) = match denial {
            QueueDenial::Full => (Denial::QueueFull, None),
            QueueDenial::TooLong(denied) => (Denial::TooLong, denied),
        };
        let denied = denied.unwrap_or_else(|| {
            let limit = self.compiled.iter().map(AnyLimit::limit).min().unwrap_or(0);
            let unknown = RetryAfter::After(RETRY_AFTER);
            by_no_limit(limit, unknown)
        });
        acquired(Answer::new(denied, Source::Remembered), began, Some(denial))
    }
}

fn acquired(answer: Answer, began: Instant, denial: Option<Denial>) -> Acquired {
    Acquired::new(answer, began.elapsed().into(), denial)
}

fn aged_by(answer: Answer, passed: Span) -> Answer {
    Answer::new(answer.decision().aged_by(passed), answer.source())
}
