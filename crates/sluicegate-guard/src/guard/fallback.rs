//! Calls with a fallback.

use super::attempt::Work;
use super::call::Call;
use super::error::Failure;
use super::{Classify, Inner};
use crate::bulkhead::Permit;
use pin_project_lite::pin_project;
use sluicegate::internal::block_on;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

pin_project! {
    /// A call through a guard with a fallback. Created by [`Call::fallback`].
    #[must_use = "nothing is called until this is awaited, or by `.blocking()`"]
    pub struct WithFallback<W: Work, J, F, B> {
        guard: Arc<Inner>,
        fallback: Option<F>,
        #[pin]
        step: Step<W, J, B>,
    }
}

pin_project! {
    #[project = StepNow]
    enum Step<W: Work, J, B> {
        Calling { #[pin] call: Call<W, J> },
        // Dropped in this order: the fallback's resources are gone when its permit is free.
        FallingBack { #[pin] future: B, permit: Permit },
        Done,
    }
}

impl<W, J, F, B> WithFallback<W, J, F, B>
where
    W: Work,
    F: FnOnce(Failure<W::Error>) -> B,
    B: Future<Output = W::Value>,
{
    pub(super) fn new(guard: Arc<Inner>, call: Call<W, J>, fallback: F) -> Self {
        WithFallback { guard, fallback: Some(fallback), step: Step::Calling { call } }
    }

    /// Makes the call and blocks the thread until it ends. In async code use `.await`.
    ///
    /// # Errors
    /// If the call returned no value, and the fallback was not used.
    pub fn blocking(self) -> Result<W::Value, Failure<W::Error>>
    where
        J: Classify<W::Value, W::Error>,
    {
        block_on(self)
    }
}

impl<W, J, F, B> Future for WithFallback<W, J, F, B>
where
    W: Work,
    J: Classify<W::Value, W::Error>,
    F: FnOnce(Failure<W::Error>) -> B,
    B: Future<Output = W::Value>,
{
    type Output = Result<W::Value, Failure<W::Error>>;

    /// # Panics
    /// If the call or the fallback panics, or it is polled after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.step.as_mut().project() {
                StepNow::Calling { mut call } => {
                    let answer = ready!(call.as_mut().poll(context));
                    let is_needed = match &answer {
                        Ok(_) => call.has_failed(),
                        Err(why) => !matches!(why, Failure::Ignored(_)),
                    };
                    this.step.set(Step::Done);
                    let Some(fallback) = this.fallback.take().filter(|_| is_needed) else {
                        return Poll::Ready(answer);
                    };
                    let Some(permit) = this.guard.try_fallback() else { return Poll::Ready(answer) };
                    // A bad result is dropped first: it may hold a connection that the fallback
                    // needs.
                    let future = fallback(answer.err().unwrap_or(Failure::BadResult));
                    this.step.set(Step::FallingBack { future, permit });
                }
                StepNow::FallingBack { future, .. } => {
                    let value = ready!(future.poll(context));
                    this.step.set(Step::Done);
                    return Poll::Ready(Ok(value));
                }
                StepNow::Done => panic!("`WithFallback` polled after completion"),
            }
        }
    }
}

impl<W: Work, J, F, B> fmt::Debug for WithFallback<W, J, F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithFallback").field("guard", &self.guard.name).finish_non_exhaustive()
    }
}
