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

use super::failure::{Failure, Refused};
use super::fallback::WithFallback;
use super::stats::GuardEvent;
use super::work::{ByTries, NoThread, Tries, Work};
use super::{Inner, Judge};
use crate::breaker::{Admission, Admitted, Outcome};
use crate::bulkhead::{Bulkhead, Enter, Entry, Permit};
use crate::timeout::Countdown;
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
        judge: J,
        // Tries that were begun.
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
        Entering { admitted: Option<Admitted<'static>>, enter: Enter },
        // In this order: what the call holds is gone when its permit is free, and its breaker has been told last.
        Running { #[pin] work: F, countdown: Option<Countdown>, permit: Option<Permit>, admitted: Option<Admitted<'static>> },
        Resting { rest: Countdown },
        Done,
    }
}

/// What a call gives.
type Answer<W> = Result<<W as Work>::Value, Failure<<W as Work>::Error>>;

/// What a try holds while it is made.
type Held = (Option<Admitted<'static>>, Option<Permit>);

/// What is seen of a try that is under way.
type Looked<W> = thread::Result<Poll<Result<<W as Work>::Value, <W as Work>::Error>>>;

/// How a try ended.
enum End<T, E> {
    Result(Outcome, Result<T, E>),
    /// Whether it was done nevertheless: it ended with an `Ok` that nobody could stop.
    TimedOut {
        is_done: bool,
    },
}

impl<W: Work, J> Call<W, J> {
    pub(super) fn new(guard: Arc<Inner>, work: W, judge: J) -> Call<W, J> {
        let (deadline, last, step) = (None, None, Step::New);
        Call { guard, work, judge, tries: 0, may_retry: true, deadline, last, has_failed: false, step }
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
    ///     .judge(|result| match result {
    ///         Ok(()) => Outcome::Success,
    ///         Err(Declined::NoFunds) => Outcome::Ignored, // the bank is well, and no retry helps
    ///         Err(Declined::Unreachable) => Outcome::Failure,
    ///     })
    ///     .await;
    /// assert_eq!(paid, Err(Failure::Ignored(Declined::NoFunds)));
    /// # Ok::<(), sluicegate_guard::BuildError>(())
    /// # }).unwrap();
    /// ```
    pub fn judge<K>(self, judge: K) -> Call<W, K>
    where
        K: Fn(&Result<W::Value, W::Error>) -> Outcome,
    {
        let Call { guard, work, may_retry, .. } = self;
        Call { may_retry, ..Call::new(guard, work, judge) }
    }

    /// Whether this call may be tried again, as far as the guard's retries allow: not if it does harm when it is made twice. It may
    /// unless said.
    pub fn may_retry(mut self, may_retry: bool) -> Call<W, J> {
        self.may_retry = may_retry;
        self
    }

    /// What to give instead when all tries have failed, timed out or were refused. An `Ok` that the judge takes for a failure is one too: the
    /// fallback is told [`Failure::BadAnswer`]. Errors that the judge ignores are not for it.
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
        J: Judge<W::Value, W::Error>,
    {
        block_on(self)
    }

    /// Whether the last try that ended was a failure. When the call has given an `Ok`: whether the judge takes that for one, so that a
    /// fallback is for it.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

impl<T: Tries, J> Call<ByTries<T>, J> {
    /// Who makes the tries, to look at what is left when the call is over.
    pub fn tries(self: Pin<&mut Self>) -> &mut T {
        &mut self.project().work.0
    }
}

impl<W: Work, J: Judge<W::Value, W::Error>> Future for Call<W, J> {
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
                StepNow::Running { work, countdown, permit, admitted } => {
                    let looked = catch_unwind(AssertUnwindSafe(|| W::look(work, context)));
                    let is_up = match countdown {
                        Some(countdown) if matches!(looked, Ok(Poll::Pending)) => {
                            Pin::new(countdown).poll(context).is_ready()
                        }
                        Some(countdown) => W::LATE_COUNTS && countdown.is_up(),
                        None => false,
                    };
                    if matches!(looked, Ok(Poll::Pending)) && !is_up {
                        return Poll::Pending;
                    }
                    let held = (admitted.take(), permit.take());
                    call.ended(held, looked, is_up)
                }
                StepNow::Resting { rest } => {
                    ready!(Pin::new(rest).poll(context));
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
impl<W: Work, J: Judge<W::Value, W::Error>> CallNow<'_, W, J> {
    fn first(&mut self) -> Option<Answer<W>> {
        self.guard.counts.call();
        *self.deadline = self.guard.deadline.map(|deadline| Interval::new(self.guard.now(), deadline));
        self.step.set(Step::Done);
        if W::NEEDS_PERMIT && self.guard.bulkhead.is_none() {
            return self.goes_on(Err(Refused::NoBulkhead));
        }
        let left = self.left();
        let begun = self.begin(left);
        self.goes_on(begun)
    }

    /// It has rested.
    fn again(&mut self) -> Option<Answer<W>> {
        self.step.set(Step::Done);
        let left = self.left();
        let begun = if left == Some(Span::ZERO) {
            // The machine slept, or the clock was set.
            Err(Refused::ByDeadline)
        } else {
            self.begin(left)
        };
        self.goes_on(begun)
    }

    /// The bulkhead has answered.
    fn entered(&mut self, mut admitted: Option<Admitted<'static>>, entry: Entry) -> Option<Answer<W>> {
        self.step.set(Step::Done);
        let left = self.left();
        let is_late = left == Some(Span::ZERO);
        let begun = match entry.into_result() {
            Ok(permit) if !is_late => {
                // Our own queue says nothing about how fast the other side is.
                if let Some(admitted) = &mut admitted {
                    admitted.begins();
                }
                self.run(left, (admitted, Some(permit)))
            }
            refused => {
                // A call too many is a failure, as it is for Hystrix; and a probe that could not be made has failed, so
                // that the breaker opens again instead of waiting for it. But a limit that adapts sheds calls so that those it lets
                // in do well: that says nothing against what is called.
                let sheds = self.guard.bulkhead.as_ref().is_some_and(Bulkhead::is_adaptive);
                finish((admitted, None), if sheds { Outcome::Ignored } else { Outcome::Failure });
                Err(match refused {
                    Err(denial) if !is_late || denial != Denial::TooLong => Refused::ByBulkhead(denial),
                    // The permit came too late, or the wait for it was cut short.
                    _ => Refused::ByDeadline,
                })
            }
        };
        self.goes_on(begun)
    }

    /// A try has ended, or its time is up.
    fn ended(&mut self, held: Held, looked: Looked<W>, is_up: bool) -> Option<Answer<W>> {
        // The call is dropped first: what it holds is gone when its permit is free.
        self.step.set(Step::Done);
        let end = match looked {
            Ok(Poll::Ready(result)) if !is_up => End::Result(self.judge.judge(&result), result),
            Ok(looked) => End::TimedOut { is_done: matches!(looked, Poll::Ready(Ok(_))) },
            Err(panic) => {
                finish(held, Outcome::Failure);
                self.guard.tell(GuardEvent::Failed);
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
            let is_late = matches!(end, End::TimedOut { .. });
            self.guard.tell(if is_late { GuardEvent::TimedOut } else { GuardEvent::Failed });
            // What is done is not done again, however late it was: the card has been charged.
            let is_done = matches!(end, End::TimedOut { is_done: true });
            let may_retry = !is_done && *self.may_retry && self.work.may_retry();
            if let Some(rest) = may_retry.then(|| self.rest()).flatten() {
                *self.last = Some(answer(end));
                self.step.set(Step::Resting { rest });
                return None;
            }
        }
        Some(answer(end))
    }

    /// What it gives if the next try is refused.
    fn goes_on(&mut self, begun: Result<(), Refused>) -> Option<Answer<W>> {
        begun.err().map(|refused| self.guard.refuses(refused, self.last))
    }

    /// How much of the deadline is left.
    fn left(&mut self) -> Option<Span> {
        let deadline = self.deadline.as_mut()?;
        let now = self.guard.now();
        Some(deadline.end_as_of(now).since(now))
    }

    /// Asks the breaker, then the bulkhead.
    fn begin(&mut self, left: Option<Span>) -> Result<(), Refused> {
        let admitted = match self.guard.breaker.as_ref().map(|breaker| breaker.ask().into_owned()) {
            None => None,
            Some(Admission::Allowed(admitted)) => Some(admitted),
            Some(Admission::Denied(denied)) => return Err(Refused::ByBreaker(denied)),
        };
        let Some(bulkhead) = &self.guard.bulkhead else { return self.run(left, (admitted, None)) };
        let enter = match left {
            None => bulkhead.enter(),
            Some(left) => bulkhead.enter_within(bulkhead.spec().wait().min(left).into()),
        };
        self.step.set(Step::Entering { admitted, enter });
        Ok(())
    }

    /// Begins a try. If making it panics, the admitted call has failed and the permit is free.
    fn run(&mut self, left: Option<Span>, (admitted, mut permit): Held) -> Result<(), Refused> {
        // There may be no thread, and then it is not made; all else is made from here on, and may look at the counts.
        if !W::NEEDS_PERMIT {
            self.is_made();
        }
        let most = self.guard.timeout.into_iter().chain(left).min();
        let countdown = most.map(|most| self.guard.countdowns.lasting(most));
        let started = catch_unwind(AssertUnwindSafe(|| self.work.start(&mut permit)));
        if W::NEEDS_PERMIT && !matches!(started, Ok(Err(NoThread))) {
            self.is_made();
        }
        match started {
            Ok(Ok(work)) => {
                self.step.set(Step::Running { work, countdown, permit, admitted });
                Ok(())
            }
            Ok(Err(NoThread)) => {
                finish((admitted, permit), Outcome::Ignored);
                Err(Refused::NoThread)
            }
            Err(panic) => {
                finish((admitted, permit), Outcome::Failure);
                self.guard.tell(GuardEvent::Failed);
                resume_unwind(panic);
            }
        }
    }

    /// One more try is made.
    fn is_made(&mut self) {
        self.guard.counts.allowed();
        if let Some(retries) = self.guard.retry.as_ref().filter(|_| *self.tries == 0) {
            retries.call(self.guard.now());
        }
        *self.tries = self.tries.saturating_add(1);
        // It is not kept beside the next one: it may hold a connection that this one needs.
        *self.last = None;
    }

    /// The rest before the next try, if there is to be one.
    fn rest(&mut self) -> Option<Countdown> {
        let nth = *self.tries;
        let rest = self.guard.retry.as_ref()?.rest(nth)?;
        // It would not begin in time, or be refused: then the failure that there is says more.
        if self.left().is_some_and(|left| rest >= left)
            || self.guard.breaker.as_ref().is_some_and(|breaker| breaker.peek().is_some())
        {
            return None;
        }
        if !self.guard.retry.as_ref()?.spend(self.guard.now()) {
            self.guard.tell(GuardEvent::RetryDenied);
            return None;
        }
        self.guard.tell(GuardEvent::Retried { nth, rest });
        Some(self.guard.countdowns.lasting(rest))
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
    use crate::guard::work::Sealed;
    use crate::guard::{ByResult, Guard};

    /// A system without threads.
    struct NoThreads;

    impl Sealed for NoThreads {}

    impl Work for NoThreads {
        type Value = u8;
        type Error = ();
        type Future = ();

        const LATE_COUNTS: bool = false;
        const NEEDS_PERMIT: bool = true;

        fn start(&mut self, _permit: &mut Option<Permit>) -> Result<(), NoThread> {
            Err(NoThread)
        }

        fn look(_future: Pin<&mut ()>, _context: &mut Context<'_>) -> Poll<Result<u8, ()>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_call_without_a_thread_is_not_made() {
        let builder = Guard::builder("g").bulkhead("bulkhead 1").retry("retry 2");
        let guard = builder.breaker("breaker 100%/1calls min=1").build().unwrap();
        let answer = Call::new(Arc::clone(&guard.inner), NoThreads, ByResult).blocking();
        assert_eq!(answer, Err(Failure::Refused(Refused::NoThread)));
        let stats = guard.stats();
        assert_eq!((stats.calls, stats.allowed, stats.denied, stats.retried), (1, 0, 1, 0));
        assert_eq!(guard.bulkhead().unwrap().stats().in_use, 0);
        assert!(guard.breaker().unwrap().ask().allowed(), "it says nothing about what was to be called");
    }
}
