//! Waiting for a turn.
//!
//! In plain words: where limits lend, the store is asked once. It charges the call, says how long to wait, and the caller waits
//! that long: whoever comes later is charged later, so the order is the store's, for all processes. Where they do not, callers of a
//! process stand in line; the first operations, and if it is denied operations again when it was told to.
//!
//! ```text
//! lend:   operation ──▶ charged, delay ──▶ sleep ──▶ act, and the receipt is forgotten
//!                                      └ dropped ──▶ cancel
//! others: in line ──▶ first: operation ──▶ charged ──▶ act
//!                             ▲ └ denied ──▶ sleep ┐
//!                             └── for retry_after ─┘
//! ```

use super::queue::{QueueDenial, Waiter};
use super::script_calls::Verb;
use super::wait_guard::WaitGuard;
use super::{Inner, RedisLimiter};
use crate::encode::EncodedLimit;
use crate::fallback::RETRY_AFTER;
use sluicegate::backend::{Answer, Source, StoreFailure};
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::wait::{Acquired, Denial};
use sluicegate::{Decision, Key, RetryAfter, Span, Time};
use sluicegate_core::algorithm::Waiting;
use sluicegate_core::{Algorithm as _, AnyLimit};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

impl RedisLimiter {
    /// Waits until the key may act at this cost, and charges it. Only a cost above the limit, or too long a line, is refused.
    ///
    /// **Order.** Under buckets, `pacer` and `smooth` the store charges each caller on arrival and says when to act, so that
    /// callers of all processes go first come, first served, and a large cost is not overtaken by small ones. (Who finds the queue
    /// of a `pacer` full is refused.) Under windows and logs, and in lists that have one, callers of this limiter and its clones go
    /// in order, one at a time. Those of other processes, and plain checks, are not in that line: who operations first when there is
    /// room again gets it. So between processes there is no order then, and one that operations for much can be overtaken by others that
    /// operation for little. A process operations again only after the wait that it was told.
    ///
    /// **Dropped while it waits**, it gives back what it was charged, by a task on the runtime that it was polled on, once and
    /// without anybody waiting for it: what cannot be given back then (the store is away, the runtime ends) stays charged. Under a
    /// bucket or a `pacer` nothing is given back if a later caller was charged meanwhile, who has been told a time already: then
    /// the waiter stays empty, and nobody is admitted in its stead. Whoever is dropped while the store is being asked, and could
    /// have acted at once, stays charged, as with a check. Under `smooth`, where the next caller pays, nothing is given back.
    ///
    /// **When the store fails**, the limiter answers as for the other verbs. Whoever was charged and waits does not need the
    /// store any more. Under [`OnStoreFailure::Deny`](crate::OnStoreFailure::Deny) callers wait and operation again.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn acquire(&self, key: impl Key, cost: u32) -> Result<Acquired, StoreFailure> {
        self.inner.acquire(&key.to_bytes(), cost, None).await
    }

    /// The same for at most so long. Who cannot make it is told as soon as that is known: under buckets and `pacer` at once, and
    /// under others when the time until the next try is too long.
    ///
    /// # Errors
    /// As [`RedisLimiter::check`].
    pub async fn acquire_within(
        &self,
        key: impl Key,
        cost: u32,
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
        cost: u32,
        deadline: Time,
    ) -> Result<Acquired, StoreFailure> {
        self.acquire_within(key, cost, deadline.since(SystemClock.now()).into()).await
    }
}

/// What came of asking for a turn.
enum Attempt {
    Answer(Answer, Option<WaitGuard>),
    /// So many wait in the store already.
    Full,
}

impl Inner {
    pub(crate) async fn acquire(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
        max_wait: Option<Duration>,
    ) -> Result<Acquired, StoreFailure> {
        let began = Instant::now();
        let until = max_wait.and_then(|max_wait| began.checked_add(max_wait));
        let is_ordered_by_store = self.compiled.iter().all(|limit| limit.waiting() != Waiting::Retry);
        // While the store is away, those who wait for it stand in line in any case, and nobody overtakes them.
        let enqueues = cost > 0 && !(is_ordered_by_store && self.queues.is_idle(key));
        let mut waiter = None;
        if enqueues {
            match Waiter::first(self, key, until).await {
                Ok(first) => waiter = Some(first),
                Err(not) => return Ok(self.queue_denied(not, began)),
            }
        }
        loop {
            let left =
                until.map_or(Span::MAX, |until| until.saturating_duration_since(Instant::now()).into());
            let (answer, guard) = match self.attempt(key, cost, left).await? {
                Attempt::Answer(answer, guard) => (answer, guard),
                Attempt::Full => return Ok(self.queue_denied(QueueDenial::Full, began)),
            };
            let told = Instant::now();
            if answer.allowed() {
                // The next one may operation while this one waits for what it was promised.
                drop(waiter);
                let delay = answer.delay();
                if delay > Span::ZERO {
                    sleep_until(told + Duration::from(delay)).await;
                }
                if let Some(guard) = guard {
                    guard.act();
                }
                return Ok(acquired(aged_by(answer, delay), began, None));
            }
            let retry_after = match self.denial(&answer, cost, left) {
                Ok(retry_after) => retry_after,
                Err((denial, answer)) => return Ok(acquired(answer, began, Some(denial))),
            };
            let first = match waiter.take() {
                Some(first) => first,
                None => match Waiter::first(self, key, until).await {
                    Ok(first) => first,
                    Err(not) => return Ok(self.queue_denied(not, began)),
                },
            };
            let retries_at = told + Duration::from(retry_after);
            first.retry_at(told, retries_at, answer.decision());
            sleep_until(retries_at).await;
            waiter = Some(first);
        }
    }

    /// Asks the store, or whoever answers in its stead.
    async fn attempt(
        self: &Arc<Inner>,
        key: &[u8],
        cost: u32,
        max_wait: Span,
    ) -> Result<Attempt, StoreFailure> {
        // Where denied calls count there are no reservations, and what costs nothing needs none.
        if cost == 0 || self.encoded.iter().any(EncodedLimit::counts_denied) {
            let reply = self.execute(self.call(key, cost, None), Verb::Check).await;
            let decision = reply.and_then(|reply| self.decided(reply, cost));
            let answer = self.answered(decision, |limiter| Some(limiter.check_cost(key, cost)))?;
            return Ok(Attempt::Answer(answer, None));
        }
        let _invalidate = self.invalidate_denials(key);
        // Under `smooth` the next one pays, so there is nothing to be given back.
        if self.compiled.iter().any(|limit| limit.waiting() == Waiting::Ticket) {
            let asked = self.decide_within(self.call(key, cost, None), max_wait).await;
            let answer =
                self.answered(asked, |limiter| limiter.check_within(key, cost, max_wait.into()).ok())?;
            return Ok(Attempt::Answer(answer, None));
        }
        // The guard is made once the call may be sent: a charge that was never sent needs no cancel.
        let mut round_trip = self.store.inner.admit_return(1).await;
        let guard = WaitGuard::new(self, key);
        let verb = Verb::Wait { receipt: guard.receipt(), max_wait };
        match self.decide_reserve(&mut round_trip, self.call(key, cost, None), verb, max_wait).await {
            Ok(None) => {
                guard.release();
                Ok(Attempt::Full)
            }
            Ok(Some(decision)) => {
                let answer = self.answered(Ok(decision), |_| None)?;
                if decision.delay() > Span::ZERO {
                    return Ok(Attempt::Answer(answer, Some(guard)));
                }
                guard.release();
                Ok(Attempt::Answer(answer, None))
            }
            Err(failure) => {
                if !failure.may_have_charged() {
                    guard.release();
                }
                let answer = self.answered(Err(failure), |limiter| {
                    limiter.check_within(key, cost, max_wait.into()).ok()
                })?;
                Ok(Attempt::Answer(answer, None))
            }
        }
    }

    /// After which wait to operation again, or why not to.
    fn denial(&self, denied: &Answer, cost: u32, left: Span) -> Result<Span, (Denial, Answer)> {
        let Some(RetryAfter::After(retry_after)) = denied.retry_after() else {
            return Err((Denial::Never, *denied));
        };
        let decision = denied.decision();
        let by = decision.denied_by().and_then(|waiter| self.compiled.get(usize::try_from(waiter).ok()?));
        match by.map(AnyLimit::waiting) {
            Some(Waiting::Queue) if decision.remaining() < cost => Err((Denial::QueueFull, *denied)),
            // It has lent whatever comes in until then, and says itself what is missing.
            Some(Waiting::Borrow | Waiting::Ticket | Waiting::Queue) if denied.source() != Source::Denied => {
                Err((Denial::TooLong, *denied))
            }
            _ if retry_after > left => {
                // Who comes back then and is as patient again will do.
                let missing = decision.denied_for(retry_after.less(left));
                Err((Denial::TooLong, Answer::new(missing, denied.source())))
            }
            _ => Ok(retry_after),
        }
    }

    fn queue_denied(&self, not: QueueDenial, began: Instant) -> Acquired {
        let (denial, denied) = match not {
            QueueDenial::Full => (Denial::QueueFull, None),
            QueueDenial::TooLong(denied) => (Denial::TooLong, denied),
        };
        let denied = denied.unwrap_or_else(|| {
            let limit = self.compiled.iter().map(AnyLimit::limit).min().unwrap_or(0);
            let nobody_knows = RetryAfter::After(RETRY_AFTER);
            Decision::no_room(limit, nobody_knows)
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
