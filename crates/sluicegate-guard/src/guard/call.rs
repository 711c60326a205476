//! A call through a guard, step by step.
//!
//! ```text
//! New ──▶ breaker: no ──▶ refused
//!     ──▶ Entering: the bulkhead ──▶ no, or too late ──▶ refused, and a failure for the breaker
//!     ──▶ Running: the call, until its time is up ──▶ the breaker and the bulkhead are told how it went
//!     ──▶ failed or too late, and retries, budget and deadline allow it ──▶ Resting ──▶ as New
//! ```
//!
//! A further try that is refused ends the call with what came of the try before it: whoever asks is to know that it was made.
//!
//! Whatever step it is dropped in, what it holds is given back by what holds it: the admitted call, the permit, the countdown.

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
    /// A call through a guard. Made by [`Guard::call`](super::Guard::call) and its likes.
    ///
    /// It is a future for any runtime: nothing happens until it is polled. Dropping it gives back whatever it holds, and drops the call.
    #[must_use = "nothing is called until this is awaited, or by `.blocking()`"]
    #[project = CallNow]
    pub struct Call<W: Work, J> {
        guard: Arc<Inner>,
        work: W,
        classify: J,
        // Attempts that were begun.
        tries: u32,
        // Whether it may be tried again, if the guard does.
        may_retry: bool,
        // How long all of it may take.
        deadline: Option<Interval>,
        // What came of the last try, while there may be another.
        last: Option<Answer<W>>,
        // Whether the last try that ended was a failure.
        has_failed: bool,
        #[pin]
        step: Step<W::Future>,
    }
}

pin_project! {
    #[project = StepNow]
    enum Step<F> {
        New,
        Entering { admitted: Option<Admitted<'static>>, enter: AcquirePermit },
        // In this order: what the call holds is gone when its permit is free, and its breaker has been told last.
        Running { #[pin] work: F, timer: Option<Timer>, permit: Option<Permit>, admitted: Option<Admitted<'static>> },
        BackingOff { delay: Timer },
        Done,
    }
}

/// The future of [`Guard::attempts`](super::Guard::attempts).
pub type AttemptsCall<T, C> = Call<FromAttempts<T>, C>;

/// What a call gives.
type Answer<W> = Result<<W as Work>::Value, Failure<<W as Work>::Error>>;

/// What a try holds while it is made.
type Held = (Option<Admitted<'static>>, Option<Permit>);

/// What is seen of a try that is under way.
type Polled<W> = thread::Result<Poll<Result<<W as Work>::Value, <W as Work>::Error>>>;

/// How a try ended.
enum End<T, E> {
    Result(Outcome, Result<T, E>),
    /// Whether it was done nevertheless: it ended with an `Ok` that nobody could stop.
    TimedOut {
        completed: bool,
    },
}

impl<W: Work, J> Call<W, J> {
    pub(super) fn new(guard: Arc<Inner>, work: W, classify: J) -> Call<W, J> {
        let (deadline, last, step) = (None, None, Step::New);
        Call { guard, work, classify, tries: 0, may_retry: true, deadline, last, has_failed: false, step }
    }

    /// Says how a call ended by its result, where an `Err` is not always a failure, or an `Ok` not always a success.
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
    ///         Err(Declined::NoFunds) => Outcome::Ignored, // the bank is well, and no retry helps
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

    /// Whether this call may be tried again, as far as the guard's retries allow: not if it does harm when it is made twice. It may
    /// unless said.
    pub fn may_retry(mut self, may_retry: bool) -> Call<W, J> {
        self.may_retry = may_retry;
        self
    }

    /// What to give instead when all tries have failed, timed out or were refused. An `Ok` that the judge takes for a failure is one too: the
    /// fallback is told [`Failure::BadResult`]. Errors that the judge ignores are not for it.
    ///
    /// At most [`max_fallbacks`](super::GuardBuilder::max_fallbacks) of a guard are under way at once: when even they hang, the rest gets the
    /// failure itself, or the answer that was one. A fallback has no timeout of its own.
    pub fn fallback<F, B>(self, fallback: F) -> WithFallback<W, J, F, B>
    where
        F: FnOnce(Failure<W::Error>) -> B,
        B: Future<Output = W::Value>,
    {
        WithFallback::new(Arc::clone(&self.guard), self, fallback)
    }

    /// Makes the call and waits for it in this thread. Not for async code: use `.await` there.
    ///
    /// # Errors
    /// When it gave nothing.
    pub fn blocking(self) -> Answer<W>
    where
        J: Classify<W::Value, W::Error>,
    {
        block_on(self)
    }

    /// Whether the last try that ended was a failure. When the call has given an `Ok`: whether the judge takes that for one, so that a
    /// fallback is for it.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

impl<T: Attempts, J> Call<FromAttempts<T>, J> {
    /// Who makes the tries, to look at what is left when the call is over.
    pub fn attempts(self: Pin<&mut Self>) -> &mut T {
        &mut self.project().work.0
    }
}

impl<W: Work, J: Classify<W::Value, W::Error>> Future for Call<W, J> {
    type Output = Answer<W>;

    /// # Panics
    /// When the call does, or when it is polled again after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer<W>> {
        let mut call = self.project();
        loop {
            let answer = match call.step.as_mut().project() {
                StepNow::New => call.first(),
                StepNow::Entering { admitted, enter } => {
                    let entry = ready!(Pin::new(enter).poll(context));
                    let admitted = admitted.take();
                    call.entered(admitted, entry)
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
                    call.again()
                }
                StepNow::Done => panic!("a call was polled again after it was ready"),
            };
            if let Some(answer) = answer {
                return Poll::Ready(answer);
            }
        }
    }
}

/// What becomes of a call in each of its steps: the next step, or what it gives.
impl<W: Work, J: Classify<W::Value, W::Error>> CallNow<'_, W, J> {
    fn first(&mut self) -> Option<Answer<W>> {
        self.guard.counts.call();
        *self.deadline = self.guard.deadline.map(|deadline| Interval::new(self.guard.now(), deadline));
        self.step.set(Step::Done);
        if W::NEEDS_BULKHEAD && self.guard.bulkhead.is_none() {
            return self.denied_or_pending(Err(GuardDenial::NoBulkhead));
        }
        let remaining = self.remaining();
        let begun = self.begin(remaining);
        self.denied_or_pending(begun)
    }

    /// It has rested.
    fn again(&mut self) -> Option<Answer<W>> {
        self.step.set(Step::Done);
        let remaining = self.remaining();
        let begun = if remaining == Some(Span::ZERO) {
            // The machine slept, or the clock was set.
            Err(GuardDenial::Deadline)
        } else {
            self.begin(remaining)
        };
        self.denied_or_pending(begun)
    }

    /// The bulkhead has answered.
    fn entered(&mut self, mut admitted: Option<Admitted<'static>>, entry: PermitGrant) -> Option<Answer<W>> {
        self.step.set(Step::Done);
        let remaining = self.remaining();
        let past_deadline = remaining == Some(Span::ZERO);
        let begun = match entry.into_result() {
            Ok(permit) if !past_deadline => {
                // Our own queue says nothing about how fast the other side is.
                if let Some(admitted) = &mut admitted {
                    admitted.restart_timer();
                }
                self.run(remaining, (admitted, Some(permit)))
            }
            denial => {
                // A call too many is a failure, as it is for Hystrix; and a probe that could not be made has failed, so
                // that the breaker opens again instead of waiting for it. But a limit that adapts sheds calls so that those it lets
                // in do well: that says nothing against what is called.
                let sheds = self.guard.bulkhead.as_ref().is_some_and(Bulkhead::is_adaptive);
                finish((admitted, None), if sheds { Outcome::Ignored } else { Outcome::Failure });
                Err(match denial {
                    Err(denial) if !past_deadline || denial != Denial::TooLong => {
                        GuardDenial::Bulkhead(denial)
                    }
                    // The permit came too late, or the wait for it was cut short.
                    _ => GuardDenial::Deadline,
                })
            }
        };
        self.denied_or_pending(begun)
    }

    /// A try has ended, or its time is up.
    fn ended(&mut self, held: Held, polled: Polled<W>, has_elapsed: bool) -> Option<Answer<W>> {
        // The call is dropped first: what it holds is gone when its permit is free.
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
            // What is done is not done again, however late it was: the card has been charged.
            let completed = matches!(end, End::TimedOut { completed: true });
            let may_retry = !completed && *self.may_retry && self.work.may_retry();
            if let Some(delay) = may_retry.then(|| self.backoff()).flatten() {
                *self.last = Some(answer(end));
                self.step.set(Step::BackingOff { delay });
                return None;
            }
        }
        Some(answer(end))
    }

    /// What it gives if the next try is refused.
    fn denied_or_pending(&mut self, begun: Result<(), GuardDenial>) -> Option<Answer<W>> {
        begun.err().map(|denial| self.guard.deny(denial, self.last))
    }

    /// How much of the deadline is left.
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
        let enter = match remaining {
            None => bulkhead.acquire(),
            Some(remaining) => bulkhead.acquire_within(bulkhead.config().wait().min(remaining).into()),
        };
        self.step.set(Step::Entering { admitted, enter });
        Ok(())
    }

    /// Begins a try. If making it panics, the admitted call has failed and the permit is free.
    fn run(&mut self, remaining: Option<Span>, (admitted, mut permit): Held) -> Result<(), GuardDenial> {
        // There may be no thread, and then it is not made; all else is made from here on, and may look at the counts.
        if !W::NEEDS_BULKHEAD {
            self.count_attempt();
        }
        let most = self.guard.timeout.into_iter().chain(remaining).min();
        let timer = most.map(|most| self.guard.timers.start(most));
        let started = catch_unwind(AssertUnwindSafe(|| self.work.start(&mut permit)));
        if W::NEEDS_BULKHEAD && !matches!(started, Ok(Err(NoThread))) {
            self.count_attempt();
        }
        match started {
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

    /// One more try is made.
    fn count_attempt(&mut self) {
        self.guard.counts.allowed();
        if let Some(retries) = self.guard.retry.as_ref().filter(|_| *self.tries == 0) {
            retries.call(self.guard.now());
        }
        *self.tries = self.tries.saturating_add(1);
        // It is not kept beside the next one: it may hold a connection that this one needs.
        *self.last = None;
    }

    /// The rest before the next try, if there is to be one.
    fn backoff(&mut self) -> Option<Timer> {
        let nth = *self.tries;
        let delay = self.guard.retry.as_ref()?.delay(nth)?;
        // It would not begin in time, or be refused: then the failure that there is says more.
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

/// Tells the breaker and the bulkhead how it went.
fn finish((admitted, permit): Held, outcome: Outcome) {
    if let Some(permit) = permit {
        permit.finish(outcome);
    }
    if let Some(admitted) = admitted {
        admitted.finish(outcome);
    }
}

fn answer<T, E>(end: End<T, E>) -> Result<T, Failure<E>> {
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
            .field("tries", &self.tries)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::guard::attempt::Sealed;
    use crate::guard::{ByResult, Guard};

    /// A system without threads.
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
        assert!(
            guard.breaker().unwrap().try_acquire().allowed(),
            "it says nothing about what was to be called"
        );
    }
}
