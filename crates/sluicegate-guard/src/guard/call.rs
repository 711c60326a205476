//! A call through a guard, step by step.
//!
//! ```text
//! New ──▶ denied by the breaker
//!     ──▶ Acquiring a permit ──▶ denied by the bulkhead or the deadline: a failure for the breaker
//!     ──▶ Running, until the timeout ──▶ the outcome is reported to the breaker and the bulkhead
//!     ──▶ failed or timed out, and retries, budget and deadline allow it ──▶ BackingOff ──▶ as New
//! ```
//!
//! A denied retry ends the call with the result of the previous attempt: the caller must know that
//! one was made.
//!
//! A call that is dropped in any step releases what it holds: the admitted call, the permit and the
//! timer do so themselves.

use super::attempt::{Attempts, FromAttempts, NoThread, Work};
use super::error::{Failure, GuardDenial};
use super::fallback::WithFallback;
use super::stats::GuardEvent;
use super::{Classify, Inner};
use crate::breaker::{Admission, Admitted, Outcome};
use crate::bulkhead::{AcquirePermit, Bulkhead, Permit, PermitGrant};
use crate::timeout::Timer;
use pin_project_lite::pin_project;
use sluicegate::internal::Interval;
use sluicegate::internal::block_on;
use sluicegate::wait::Denial;
use sluicegate_core::Span;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;

pin_project! {
    /// A call through a guard. Created by [`Guard::call`](super::Guard::call) and its variants.
    ///
    /// It is a future for any runtime and does nothing until it is polled. Dropping it drops the
    /// call and releases what it holds.
    #[must_use = "nothing is called until this is awaited, or by `.blocking()`"]
    #[project = CallNow]
    pub struct Call<W: Work, J> {
        guard: Arc<Inner>,
        work: W,
        classify: J,
        // Attempts started.
        attempts: u32,
        // Whether the call may be retried, if the guard has retries.
        may_retry: bool,
        // The deadline of the whole call.
        deadline: Option<Interval>,
        // The result of the last attempt, while there may be another.
        last: Option<CallResult<W>>,
        // Whether the last attempt failed.
        has_failed: bool,
        #[pin]
        step: Step<W::Future>,
    }
}

pin_project! {
    #[project = StepNow]
    enum Step<F> {
        New,
        Acquiring { admitted: Option<Admitted<'static>>, acquire: AcquirePermit },
        // Dropped in this order: the call's resources are gone when its permit is free, and the
        // breaker is notified last.
        Running { #[pin] work: F, timer: Option<Timer>, permit: Option<Permit>, admitted: Option<Admitted<'static>> },
        BackingOff { delay: Timer },
        Done,
    }
}

/// The future of [`Guard::attempts`](super::Guard::attempts).
pub type AttemptsCall<T, C> = Call<FromAttempts<T>, C>;

/// The result of a call.
type CallResult<W> = Result<<W as Work>::Value, Failure<<W as Work>::Error>>;

/// What an attempt holds while it runs.
type Held = (Option<Admitted<'static>>, Option<Permit>);

/// The result of polling an attempt.
type Polled<W> = thread::Result<Poll<Result<<W as Work>::Value, <W as Work>::Error>>>;

/// How an attempt ended.
enum End<T, E> {
    Result(Outcome, Result<T, E>),
    /// `completed`: it ended with an `Ok` nevertheless, since it could not be interrupted.
    TimedOut {
        completed: bool,
    },
}

impl<W: Work, J> Call<W, J> {
    pub(super) fn new(guard: Arc<Inner>, work: W, classify: J) -> Call<W, J> {
        let (deadline, last, step) = (None, None, Step::New);
        Call { guard, work, classify, attempts: 0, may_retry: true, deadline, last, has_failed: false, step }
    }

    /// Sets the classifier, for an `Err` that is not a failure or an `Ok` that is one.
    ///
    /// ```
    /// use sluicegate_guard::{Guard, Outcome, guard::Failure};
    ///
    /// # #[derive(Debug, PartialEq)]
    /// # enum Declined { NoFunds, Unreachable }
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let payments = Guard::builder("payments").breaker("breaker 50%/10s").retry("retry 2").build()?;
    /// let paid = payments
    ///     .call(|| async { Err::<(), _>(Declined::NoFunds) })
    ///     .classify(|result| match result {
    ///         Ok(()) => Outcome::Success,
    ///         Err(Declined::NoFunds) => Outcome::Ignored, // no retry helps
    ///         Err(Declined::Unreachable) => Outcome::Failure,
    ///     })
    ///     .await;
    /// assert_eq!(paid, Err(Failure::Ignored(Declined::NoFunds)));
    /// # Ok::<(), sluicegate_guard::BuildError>(())
    /// # }).unwrap();
    /// ```
    pub fn classify<K>(self, classify: K) -> Call<W, K>
    where
        K: Fn(&Result<W::Value, W::Error>) -> Outcome,
    {
        let Call { guard, work, may_retry, .. } = self;
        Call { may_retry, ..Call::new(guard, work, classify) }
    }

    /// Sets whether this call may be retried, as far as the guard's retries allow. Use `false` for
    /// a call that must not be made twice. The default is `true`.
    pub fn may_retry(mut self, may_retry: bool) -> Call<W, J> {
        self.may_retry = may_retry;
        self
    }

    /// Sets the value to return when all attempts failed, timed out or were denied. An `Ok` that
    /// the classifier counts as a failure is replaced too: the fallback receives
    /// [`Failure::BadResult`]. Ignored errors are not replaced.
    ///
    /// At most [`max_fallbacks`](super::GuardBuilder::max_fallbacks) fallbacks of a guard run at
    /// once; a call beyond that returns its failure, or the `Ok` that counted as one. A fallback
    /// has no timeout of its own.
    pub fn fallback<F, B>(self, fallback: F) -> WithFallback<W, J, F, B>
    where
        F: FnOnce(Failure<W::Error>) -> B,
        B: Future<Output = W::Value>,
    {
        WithFallback::new(Arc::clone(&self.guard), self, fallback)
    }

    /// Makes the call and blocks the thread until it ends. In async code use `.await`.
    ///
    /// # Errors
    /// If the call returned no value.
    pub fn blocking(self) -> CallResult<W>
    where
        J: Classify<W::Value, W::Error>,
    {
        block_on(self)
    }

    /// Returns `true` if the last attempt failed. After an `Ok`: if the classifier counts it as a
    /// failure, so that a fallback applies.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

impl<T: Attempts, J> Call<FromAttempts<T>, J> {
    /// Returns the value that makes the attempts, to inspect it after the call.
    pub fn attempts(self: Pin<&mut Self>) -> &mut T {
        &mut self.project().work.0
    }
}

impl<W: Work, J: Classify<W::Value, W::Error>> Future for Call<W, J> {
    type Output = CallResult<W>;

    /// # Panics
    /// If the call panics, or it is polled after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallResult<W>> {
        let mut call = self.project();
        loop {
            let answer = match call.step.as_mut().project() {
                StepNow::New => call.begin_call(),
                StepNow::Acquiring { admitted, acquire } => {
                    let grant = ready!(Pin::new(acquire).poll(context));
                    let admitted = admitted.take();
                    call.permit_ready(admitted, grant)
                }
                StepNow::Running { work, timer, permit, admitted } => {
                    let polled = catch_unwind(AssertUnwindSafe(|| W::poll_attempt(work, context)));
                    let has_elapsed = match timer {
                        Some(timer) if matches!(polled, Ok(Poll::Pending)) => {
                            Pin::new(timer).poll(context).is_ready()
                        }
                        Some(timer) => W::TIMES_OUT_LATE && timer.has_elapsed(),
                        None => false,
                    };
                    if matches!(polled, Ok(Poll::Pending)) && !has_elapsed {
                        return Poll::Pending;
                    }
                    let held = (admitted.take(), permit.take());
                    call.ended(held, polled, has_elapsed)
                }
                StepNow::BackingOff { delay } => {
                    ready!(Pin::new(delay).poll(context));
                    call.retry()
                }
                StepNow::Done => panic!("`Call` polled after completion"),
            };
            if let Some(answer) = answer {
                return Poll::Ready(answer);
            }
        }
    }
}

/// The transitions of a call: each returns the result, or `None` after setting the next step.
impl<W: Work, J: Classify<W::Value, W::Error>> CallNow<'_, W, J> {
    fn begin_call(&mut self) -> Option<CallResult<W>> {
        self.guard.counts.call();
        *self.deadline = self.guard.deadline.map(|deadline| Interval::new(self.guard.now(), deadline));
        self.step.set(Step::Done);
        if W::NEEDS_BULKHEAD && self.guard.bulkhead.is_none() {
            return self.denied_or_pending(Err(GuardDenial::NoBulkhead));
        }
        let remaining = self.remaining();
        let started = self.begin(remaining);
        self.denied_or_pending(started)
    }

    /// The delay before a retry has elapsed.
    fn retry(&mut self) -> Option<CallResult<W>> {
        self.step.set(Step::Done);
        let remaining = self.remaining();
        let started = if remaining == Some(Span::ZERO) {
            // The machine was suspended, or the clock was set.
            Err(GuardDenial::Deadline)
        } else {
            self.begin(remaining)
        };
        self.denied_or_pending(started)
    }

    /// The bulkhead granted or denied a permit.
    fn permit_ready(
        &mut self,
        mut admitted: Option<Admitted<'static>>,
        grant: PermitGrant,
    ) -> Option<CallResult<W>> {
        self.step.set(Step::Done);
        let remaining = self.remaining();
        let past_deadline = remaining == Some(Span::ZERO);
        let started = match grant.into_result() {
            Ok(permit) if !past_deadline => {
                // Time in our own queue says nothing about the dependency's speed.
                if let Some(admitted) = &mut admitted {
                    admitted.restart_timer();
                }
                self.run(remaining, (admitted, Some(permit)))
            }
            denial => {
                // A call denied by the bulkhead is a failure, as in Hystrix; and a probe that could
                // not be made has failed, so that the breaker opens again instead of waiting for
                // it. But an adaptive limit sheds calls so that the others succeed: that says
                // nothing against the dependency.
                let sheds = self.guard.bulkhead.as_ref().is_some_and(Bulkhead::is_adaptive);
                finish((admitted, None), if sheds { Outcome::Ignored } else { Outcome::Failure });
                Err(match denial {
                    Err(denial) if !past_deadline || denial != Denial::TooLong => {
                        GuardDenial::Bulkhead(denial)
                    }
                    // The permit came too late, or the deadline cut the wait short.
                    _ => GuardDenial::Deadline,
                })
            }
        };
        self.denied_or_pending(started)
    }

    /// An attempt has ended or timed out.
    fn ended(&mut self, held: Held, polled: Polled<W>, has_elapsed: bool) -> Option<CallResult<W>> {
        // The attempt is dropped first: its resources are gone when its permit is free.
        self.step.set(Step::Done);
        let end = match polled {
            Ok(Poll::Ready(result)) if !has_elapsed => End::Result(self.classify.classify(&result), result),
            Ok(polled) => End::TimedOut { completed: matches!(polled, Poll::Ready(Ok(_))) },
            Err(panic) => {
                finish(held, Outcome::Failure);
                self.guard.emit(GuardEvent::Failed);
                resume_unwind(panic);
            }
        };
        let outcome = match &end {
            End::Result(outcome, _) => *outcome,
            End::TimedOut { .. } => Outcome::Failure,
        };
        *self.has_failed = outcome == Outcome::Failure;
        finish(held, outcome);
        if *self.has_failed {
            let past_deadline = matches!(end, End::TimedOut { .. });
            self.guard.emit(if past_deadline { GuardEvent::TimedOut } else { GuardEvent::Failed });
            // A completed call is not made again, however late it was: the card has been charged.
            let completed = matches!(end, End::TimedOut { completed: true });
            let may_retry = !completed && *self.may_retry && self.work.may_retry();
            if let Some(delay) = may_retry.then(|| self.backoff()).flatten() {
                *self.last = Some(result_of(end));
                self.step.set(Step::BackingOff { delay });
                return None;
            }
        }
        Some(result_of(end))
    }

    /// Returns the result if the attempt was denied.
    fn denied_or_pending(&mut self, started: Result<(), GuardDenial>) -> Option<CallResult<W>> {
        started.err().map(|denial| self.guard.deny(denial, self.last))
    }

    /// Returns the time left until the deadline.
    fn remaining(&mut self) -> Option<Span> {
        let deadline = self.deadline.as_mut()?;
        let now = self.guard.now();
        Some(deadline.end_as_of(now).since(now))
    }

    /// Asks the breaker, then the bulkhead.
    fn begin(&mut self, remaining: Option<Span>) -> Result<(), GuardDenial> {
        let admitted = match self.guard.breaker.as_ref().map(|breaker| breaker.try_acquire().into_owned()) {
            None => None,
            Some(Admission::Allowed(admitted)) => Some(admitted),
            Some(Admission::Denied(denied)) => return Err(GuardDenial::Breaker(denied)),
        };
        let Some(bulkhead) = &self.guard.bulkhead else { return self.run(remaining, (admitted, None)) };
        let acquire = match remaining {
            None => bulkhead.acquire(),
            Some(remaining) => bulkhead.acquire_within(bulkhead.config().wait().min(remaining).into()),
        };
        self.step.set(Step::Acquiring { admitted, acquire });
        Ok(())
    }

    /// Starts an attempt. If that panics, the admitted call fails and the permit is released.
    fn run(&mut self, remaining: Option<Span>, (admitted, mut permit): Held) -> Result<(), GuardDenial> {
        // Without a thread no attempt is made. Any other attempt is made from here on, and may read
        // the counters.
        if !W::NEEDS_BULKHEAD {
            self.count_attempt();
        }
        let most = self.guard.timeout.into_iter().chain(remaining).min();
        let timer = most.map(|most| self.guard.timers.start(most));
        let attempt = catch_unwind(AssertUnwindSafe(|| self.work.start(&mut permit)));
        if W::NEEDS_BULKHEAD && !matches!(attempt, Ok(Err(NoThread))) {
            self.count_attempt();
        }
        match attempt {
            Ok(Ok(work)) => {
                self.step.set(Step::Running { work, timer, permit, admitted });
                Ok(())
            }
            Ok(Err(NoThread)) => {
                finish((admitted, permit), Outcome::Ignored);
                Err(GuardDenial::NoThread)
            }
            Err(panic) => {
                finish((admitted, permit), Outcome::Failure);
                self.guard.emit(GuardEvent::Failed);
                resume_unwind(panic);
            }
        }
    }

    /// Counts an attempt.
    fn count_attempt(&mut self) {
        self.guard.counts.allowed();
        if let Some(retries) = self.guard.retry.as_ref().filter(|_| *self.attempts == 0) {
            retries.call(self.guard.now());
        }
        *self.attempts = self.attempts.saturating_add(1);
        // Not kept during the next attempt: it may hold a connection that this one needs.
        *self.last = None;
    }

    /// Starts the delay before the next attempt, if there is to be one.
    fn backoff(&mut self) -> Option<Timer> {
        let nth = *self.attempts;
        let delay = self.guard.retry.as_ref()?.delay(nth)?;
        // A retry that would begin too late or be denied is not worth waiting for: the present
        // failure says more.
        if self.remaining().is_some_and(|remaining| delay >= remaining)
            || self.guard.breaker.as_ref().is_some_and(|breaker| breaker.peek().is_some())
        {
            return None;
        }
        if !self.guard.retry.as_ref()?.spend(self.guard.now()) {
            self.guard.emit(GuardEvent::RetryDenied);
            return None;
        }
        self.guard.emit(GuardEvent::Retried { nth, delay });
        Some(self.guard.timers.start(delay))
    }
}

/// Reports the outcome to the breaker and the bulkhead.
fn finish((admitted, permit): Held, outcome: Outcome) {
    if let Some(permit) = permit {
        permit.finish(outcome);
    }
    if let Some(admitted) = admitted {
        admitted.finish(outcome);
    }
}

fn result_of<T, E>(end: End<T, E>) -> Result<T, Failure<E>> {
    match end {
        End::TimedOut { .. } => Err(Failure::TimedOut),
        End::Result(_, Ok(value)) => Ok(value),
        End::Result(Outcome::Failure, Err(error)) => Err(Failure::Failed(error)),
        End::Result(_, Err(error)) => Err(Failure::Ignored(error)),
    }
}

impl<W: Work, J> fmt::Debug for Call<W, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("guard", &self.guard.name)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::guard::attempt::Sealed;
    use crate::guard::{ByResult, Guard};

    /// A system that cannot start threads.
    struct NoThreads;

    impl Sealed for NoThreads {}

    impl Work for NoThreads {
        type Value = u8;
        type Error = ();
        type Future = ();

        const TIMES_OUT_LATE: bool = false;
        const NEEDS_BULKHEAD: bool = true;

        fn start(&mut self, _permit: &mut Option<Permit>) -> Result<(), NoThread> {
            Err(NoThread)
        }

        fn poll_attempt(_future: Pin<&mut ()>, _context: &mut Context<'_>) -> Poll<Result<u8, ()>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_call_without_a_thread_is_not_made() {
        let builder = Guard::builder("g").bulkhead("bulkhead 1").retry("retry 2");
        let guard = builder.breaker("breaker 100%/1calls min=1").build().unwrap();
        let answer = Call::new(Arc::clone(&guard.inner), NoThreads, ByResult).blocking();
        assert_eq!(answer, Err(Failure::Denied(GuardDenial::NoThread)));
        let stats = guard.stats();
        assert_eq!((stats.calls, stats.allowed, stats.denied, stats.retried), (1, 0, 1, 0));
        assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
        assert!(guard.breaker().unwrap().try_acquire().allowed(), "it says nothing about the dependency");
    }
}
