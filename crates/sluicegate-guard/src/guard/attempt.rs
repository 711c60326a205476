//! The three ways to make a call: in the task that awaits it, on the thread that asks for it, or on a thread of its own.

use crate::breaker::{Outcome, by_result};
use crate::bulkhead::Permit;
use std::future::{Future, Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// How the calls of a guard are made. It is not for others to implement.
pub trait Work: Sealed {
    /// What a call gives.
    type Value;
    /// What it fails with.
    type Error;
    /// One try.
    type Future;

    #[doc(hidden)]
    /// Whether one that ends too late has timed out though it has ended: nothing could stop it.
    const TIMES_OUT_LATE: bool;
    #[doc(hidden)]
    /// Whether it has to be bounded by a bulkhead.
    const NEEDS_BULKHEAD: bool;

    #[doc(hidden)]
    /// Begins a try. It takes the permit unless the guard is to hold it.
    ///
    /// # Errors
    /// When it needs a thread and the system gives none.
    fn start(&mut self, permit: &mut Option<Permit>) -> Result<Self::Future, NoThread>;

    #[doc(hidden)]
    /// Looks whether it has ended.
    fn poll_attempt(
        future: Pin<&mut Self::Future>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::Value, Self::Error>>;

    #[doc(hidden)]
    /// Whether another try can be made.
    fn may_retry(&self) -> bool {
        true
    }
}

/// Keeps others from implementing [`Work`].
pub trait Sealed {}

impl<F> Sealed for InTask<F> {}
impl<T> Sealed for FromAttempts<T> {}
impl<F> Sealed for OnThisThread<F> {}
impl<F> Sealed for InThread<F> {}

/// The system gave no thread.
#[derive(Debug)]
pub struct NoThread;

/// In the task that awaits it.
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

/// Makes the tries of a call where a closure cannot: the future of a service has to have a type that can be written down. See
/// [`Guard::attempts`](super::Guard::attempts).
pub trait Attempts {
    /// What a call gives.
    type Value;
    /// What it fails with.
    type Error;
    /// One try.
    type Future: Future<Output = Result<Self::Value, Self::Error>>;

    /// Begins a try.
    fn start(&mut self) -> Self::Future;

    /// Whether another one could be made. It is asked after a try has failed, before the guard's retries are.
    fn may_retry(&self) -> bool;
}

/// In the task that awaits it, by something that has a name.
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

/// On the thread that asks for it.
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

/// On a thread of its own, which keeps the permit until it has really ended.
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
        let slot = Arc::new(Slot::default());
        let (run, theirs) = (self.0.clone(), Arc::clone(&slot));
        let permit = permit.take();
        let spawned = thread::Builder::new().name("sluicegate-guard".to_owned());
        spawned.spawn(move || run_here(run, permit, &theirs)).map_err(|_| NoThread)?;
        Ok(Thread { slot })
    }

    fn poll_attempt(future: Pin<&mut Thread<T, E>>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        match future.slot.take(context.waker()) {
            None => Poll::Pending,
            Some(Ok(result)) => Poll::Ready(result),
            // It was caught in its own thread, and goes on in the caller's.
            Some(Err(panic)) => resume_unwind(panic),
        }
    }
}

/// Makes the call in this thread, gives its permit back, and tells what came of it: whatever panics, somebody waits for that.
fn run_here<T, E>(mut run: impl FnMut() -> Result<T, E>, permit: Option<Permit>, slot: &Slot<Result<T, E>>) {
    let result = catch_unwind(AssertUnwindSafe(&mut run));
    let outcome = result.as_ref().map_or(Outcome::Failure, by_result);
    let given_back = catch_unwind(AssertUnwindSafe(move || {
        // What the call held is gone when its permit is free. Should dropping it panic, the permit is dropped too.
        let permit = permit;
        drop(run);
        if let Some(permit) = permit {
            permit.finish(outcome);
        }
    }));
    match given_back {
        Ok(()) => slot.put(result),
        Err(panic) => {
            slot.put(Err(panic));
            // Only now: dropping it may panic too.
            drop(result);
        }
    }
}

/// What a thread is going to tell.
#[derive(Debug)]
pub struct Thread<T, E> {
    slot: Arc<Slot<Result<T, E>>>,
}

#[derive(Debug)]
struct Slot<R> {
    state: Mutex<SlotState<R>>,
}

#[derive(Debug)]
struct SlotState<R> {
    result: Option<thread::Result<R>>,
    waker: Option<Waker>,
}

impl<R> Default for Slot<R> {
    fn default() -> Self {
        Slot { state: Mutex::new(SlotState { result: None, waker: None }) }
    }
}

impl<R> Slot<R> {
    fn lock(&self) -> MutexGuard<'_, SlotState<R>> {
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

    /// The result, or who is to be woken when it is there.
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
