//! The ways to make an attempt: in the task that awaits it, on the calling thread, or on a thread
//! of its own.

use crate::breaker::{Outcome, by_result};
use crate::bulkhead::Permit;
use std::future::{Future, Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// How a guard makes attempts. Sealed, and not nameable outside the crate.
pub trait Work: Sealed {
    /// The value of a call.
    type Value;
    /// The error of a call.
    type Error;
    /// The future of one attempt.
    type Future;

    #[doc(hidden)]
    /// Whether an attempt that ended after the timeout has timed out: it could not be interrupted.
    const TIMES_OUT_LATE: bool;
    #[doc(hidden)]
    /// Whether it must be bounded by a bulkhead.
    const NEEDS_BULKHEAD: bool;

    #[doc(hidden)]
    /// Starts an attempt. It takes the permit unless the guard is to hold it.
    ///
    /// # Errors
    /// If it needs a thread and the system cannot start one.
    fn start(&mut self, permit: &mut Option<Permit>) -> Result<Self::Future, NoThread>;

    #[doc(hidden)]
    /// Polls an attempt.
    fn poll_attempt(
        future: Pin<&mut Self::Future>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::Value, Self::Error>>;

    #[doc(hidden)]
    /// Returns `true` if another attempt can be made.
    fn may_retry(&self) -> bool {
        true
    }
}

/// Prevents other implementations of [`Work`].
pub trait Sealed {}

impl<F> Sealed for InTask<F> {}
impl<T> Sealed for FromAttempts<T> {}
impl<F> Sealed for OnThisThread<F> {}
impl<F> Sealed for InThread<F> {}

/// The system could not start a thread.
#[derive(Debug)]
pub struct NoThread;

/// Makes attempts in the task that awaits them.
#[derive(Clone, Debug)]
pub struct InTask<F>(pub(super) F);

impl<F, Fut, T, E> Work for InTask<F>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    type Value = T;
    type Error = E;
    type Future = Fut;

    const TIMES_OUT_LATE: bool = false;
    const NEEDS_BULKHEAD: bool = false;

    fn start(&mut self, _permit: &mut Option<Permit>) -> Result<Fut, NoThread> {
        Ok((self.0)())
    }

    fn poll_attempt(future: Pin<&mut Fut>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        future.poll(context)
    }
}

/// Makes the attempts of a call where a closure cannot: the future of a service must have a type
/// that can be written down. See [`Guard::attempts`](super::Guard::attempts).
pub trait Attempts {
    /// The value of a call.
    type Value;
    /// The error of a call.
    type Error;
    /// The future of one attempt.
    type Future: Future<Output = Result<Self::Value, Self::Error>>;

    /// Starts an attempt.
    fn start(&mut self) -> Self::Future;

    /// Returns `true` if another attempt could be made. Called after a failed attempt, before the
    /// guard decides about a retry.
    fn may_retry(&self) -> bool;
}

/// Makes the attempts of an [`Attempts`] in the task that awaits them.
#[derive(Clone, Debug)]
pub struct FromAttempts<T>(pub(super) T);

impl<T: Attempts> Work for FromAttempts<T> {
    type Value = T::Value;
    type Error = T::Error;
    type Future = T::Future;

    const TIMES_OUT_LATE: bool = false;
    const NEEDS_BULKHEAD: bool = false;

    fn start(&mut self, _permit: &mut Option<Permit>) -> Result<T::Future, NoThread> {
        Ok(self.0.start())
    }

    fn poll_attempt(
        future: Pin<&mut T::Future>,
        context: &mut Context<'_>,
    ) -> Poll<Result<T::Value, T::Error>> {
        future.poll(context)
    }

    fn may_retry(&self) -> bool {
        self.0.may_retry()
    }
}

/// Makes attempts on the calling thread.
#[derive(Clone, Debug)]
pub struct OnThisThread<F>(pub(super) F);

impl<F, T, E> Work for OnThisThread<F>
where
    F: FnMut() -> Result<T, E>,
{
    type Value = T;
    type Error = E;
    type Future = Ready<Result<T, E>>;

    const TIMES_OUT_LATE: bool = true;
    const NEEDS_BULKHEAD: bool = false;

    fn start(&mut self, _permit: &mut Option<Permit>) -> Result<Self::Future, NoThread> {
        Ok(ready((self.0)()))
    }

    fn poll_attempt(future: Pin<&mut Self::Future>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        future.poll(context)
    }
}

/// Makes attempts on a thread of its own, which holds the permit until the work has ended.
#[derive(Clone, Debug)]
pub struct InThread<F>(pub(super) F);

impl<F, T, E> Work for InThread<F>
where
    F: FnMut() -> Result<T, E> + Clone + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    type Value = T;
    type Error = E;
    type Future = Thread<T, E>;

    const TIMES_OUT_LATE: bool = false;
    const NEEDS_BULKHEAD: bool = true;

    fn start(&mut self, permit: &mut Option<Permit>) -> Result<Thread<T, E>, NoThread> {
        let slot = Arc::new(ResultSlot::default());
        let (run, shared) = (self.0.clone(), Arc::clone(&slot));
        let permit = permit.take();
        let spawned = thread::Builder::new().name("sluicegate-guard".to_owned());
        spawned.spawn(move || run_here(run, permit, &shared)).map_err(|_| NoThread)?;
        Ok(Thread { slot })
    }

    fn poll_attempt(future: Pin<&mut Thread<T, E>>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        match future.slot.take(context.waker()) {
            None => Poll::Pending,
            Some(Ok(result)) => Poll::Ready(result),
            // Caught in its own thread, resumed in the caller's.
            Some(Err(panic)) => resume_unwind(panic),
        }
    }
}

/// Makes the call on this thread, releases its permit, then delivers the result: even after a
/// panic, since a caller waits for it.
fn run_here<T, E>(
    mut run: impl FnMut() -> Result<T, E>,
    permit: Option<Permit>,
    slot: &ResultSlot<Result<T, E>>,
) {
    let result = catch_unwind(AssertUnwindSafe(&mut run));
    let outcome = result.as_ref().map_or(Outcome::Failure, by_result);
    let released = catch_unwind(AssertUnwindSafe(move || {
        // The call's resources are gone when its permit is free. If dropping them panics, the
        // permit is dropped too.
        let permit = permit;
        drop(run);
        if let Some(permit) = permit {
            permit.finish(outcome);
        }
    }));
    match released {
        Ok(()) => slot.put(result),
        Err(panic) => {
            slot.put(Err(panic));
            // Last, since dropping it may panic too.
            drop(result);
        }
    }
}

/// The result of a thread, when it is ready.
#[derive(Debug)]
pub struct Thread<T, E> {
    slot: Arc<ResultSlot<Result<T, E>>>,
}

#[derive(Debug)]
struct ResultSlot<R> {
    state: Mutex<ResultState<R>>,
}

#[derive(Debug)]
struct ResultState<R> {
    result: Option<thread::Result<R>>,
    waker: Option<Waker>,
}

impl<R> Default for ResultSlot<R> {
    fn default() -> Self {
        ResultSlot { state: Mutex::new(ResultState { result: None, waker: None }) }
    }
}

impl<R> ResultSlot<R> {
    fn lock(&self) -> MutexGuard<'_, ResultState<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, result: thread::Result<R>) {
        let waker = {
            let mut state = self.lock();
            state.result = Some(result);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the result, or registers the waker.
    fn take(&self, waker: &Waker) -> Option<thread::Result<R>> {
        let waker = waker.clone();
        let mut state = self.lock();
        let result = state.result.take();
        let before = if result.is_none() { state.waker.replace(waker) } else { None };
        drop(state);
        drop(before);
        result
    }
}
