//! A guard around calls to a dependency: breaker, bulkhead, timeout, retries and fallback in one.
//!
//! `call.rs` takes a call through all of them, `attempt.rs` has the ways to make an attempt,
//! `fallback.rs` the fallback, `error.rs` the errors. The guide is [`crate::guide::guard`].

mod attempt;
mod builder;
mod call;
mod error;
mod fallback;
mod stats;

pub use attempt::Attempts;
pub use builder::{GuardBuilder, MAX_FALLBACKS_DEFAULT, Part};
pub use call::{AttemptsCall, Call};
pub use error::{Failure, GuardDenial};
pub use fallback::WithFallback;
pub use stats::{GuardEvent, GuardStats};

use crate::breaker::{Breaker, Outcome, by_result};
use crate::bulkhead::{Bulkhead, Permit};
use crate::event::{Event, Observer};
use crate::retry::Retries;
use crate::timeout::Timers;
use attempt::{FromAttempts, InTask, InThread, OnThisThread};
use sluicegate_core::{Span, Time};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// Protects a service from a failing dependency, so that one failure does not become many. Clones
/// share the same guard.
///
/// ```
/// use sluicegate_guard::{Guard, guard::Failure};
/// use std::time::Duration;
///
/// # async fn charge_card() -> Result<u32, String> { Ok(7) }
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let payments = Guard::builder("payments")
///     .retry("retry 2 budget=10%")
///     .breaker("breaker 50%/10s")
///     .bulkhead("bulkhead 10 queue=5 wait=1s")
///     .timeout(Duration::from_secs(2))
///     .build()?;
///
/// let answer: Result<u32, Failure<String>> = payments.call(|| charge_card()).await;
/// assert_eq!(answer, Ok(7));
///
/// let or_else = payments.call(|| charge_card()).fallback(|_why| async { 0 }).await;
/// assert_eq!(or_else, Ok(7));
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// # }).unwrap();
/// ```
///
/// From the outside in: fallback, retries, breaker, bulkhead, timeout, the call. The order of the
/// builder's methods does not matter.
#[derive(Clone)]
pub struct Guard {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    name: Arc<str>,
    breaker: Option<Breaker>,
    bulkhead: Option<Bulkhead>,
    retry: Option<Retries>,
    timeout: Option<Span>,
    deadline: Option<Span>,
    fallbacks: Bulkhead,
    timers: Arc<Timers>,
    observer: Option<Arc<dyn Observer>>,
    counts: stats::Counts,
}

/// Classifies the result of a call. Implemented by closures and by [`ByResult`].
pub trait Classify<T, E> {
    /// Returns the outcome.
    fn classify(&self, result: &Result<T, E>) -> Outcome;
}

impl<T, E, F: Fn(&Result<T, E>) -> Outcome> Classify<T, E> for F {
    fn classify(&self, result: &Result<T, E>) -> Outcome {
        self(result)
    }
}

/// Classifies every `Err` as a failure and every `Ok` as a success.
#[derive(Clone, Copy, Default, Debug)]
pub struct ByResult;

impl<T, E> Classify<T, E> for ByResult {
    fn classify(&self, result: &Result<T, E>) -> Outcome {
        by_result(result)
    }
}

impl Guard {
    /// Returns the builder of a guard. Its events carry the name.
    pub fn builder(name: impl Into<Arc<str>>) -> GuardBuilder {
        GuardBuilder::new(name.into())
    }

    /// Makes a call in the task that awaits it. The closure is called once per attempt.
    pub fn call<F, Fut, T, E>(&self, call: F) -> Call<InTask<F>, ByResult>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        Call::new(Arc::clone(&self.inner), InTask(call), ByResult)
    }

    /// Makes a call like [`Guard::call`], with attempts made by a named type instead of a closure,
    /// so that the type of the future can be written down, as a service requires.
    ///
    /// ```
    /// use sluicegate_guard::Guard;
    /// use sluicegate_guard::guard::{Attempts, AttemptsCall, ByResult};
    /// use std::future::{Ready, ready};
    ///
    /// struct Twice(u32);
    ///
    /// impl Attempts for Twice {
    ///     type Value = u32;
    ///     type Error = String;
    ///     type Future = Ready<Result<u32, String>>;
    ///
    ///     fn start(&mut self) -> Self::Future {
    ///         self.0 += 1;
    ///         ready(if self.0 < 2 { Err("not yet".into()) } else { Ok(self.0) })
    ///     }
    ///
    ///     fn may_retry(&self) -> bool {
    ///         self.0 < 2
    ///     }
    /// }
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let guard = Guard::builder("twice").retry("retry 5 backoff=0s").build()?;
    /// let call: AttemptsCall<Twice, ByResult> = guard.attempts(Twice(0), ByResult);
    /// assert_eq!(call.await, Ok(2));
    /// # Ok::<(), sluicegate_guard::BuildError>(())
    /// # }).unwrap();
    /// ```
    pub fn attempts<T: Attempts, J: Classify<T::Value, T::Error>>(
        &self,
        attempts: T,
        classify: J,
    ) -> AttemptsCall<T, J> {
        Call::new(Arc::clone(&self.inner), FromAttempts(attempts), classify)
    }

    /// Makes a call on this thread, which also waits for permits and delays.
    ///
    /// Such a call cannot be interrupted: one that exceeds the timeout runs to its end, then counts
    /// and is reported as timed out. If it ended with an `Ok` it is not retried, since its work is
    /// done. For a timeout that interrupts the wait, see [`Guard::call_in_thread`]. With a
    /// classifier or a fallback: [`Guard::on_this_thread`].
    ///
    /// ```
    /// use sluicegate_guard::Guard;
    ///
    /// let disk = Guard::builder("disk").bulkhead("bulkhead 4").build()?;
    /// assert_eq!(disk.call_blocking(|| Ok::<_, std::io::Error>(7)).unwrap(), 7);
    /// # Ok::<(), sluicegate_guard::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// If the call returned no value.
    pub fn call_blocking<F, T, E>(&self, call: F) -> Result<T, Failure<E>>
    where
        F: FnMut() -> Result<T, E>,
    {
        self.on_this_thread(call).blocking()
    }

    /// Makes a call on a thread of its own, while this one waits. When the timeout elapses the
    /// caller continues, although the work itself cannot be stopped.
    ///
    /// The bulkhead's permit is held until the work has ended, so a dependency that hangs takes at
    /// most as many threads as the bulkhead has permits. Without a bulkhead the call is denied.
    /// With a classifier or a fallback: [`Guard::in_thread`].
    ///
    /// ```
    /// use sluicegate_guard::Guard;
    /// use std::time::Duration;
    ///
    /// let scanner = Guard::builder("scanner")
    ///     .bulkhead("bulkhead 4")
    ///     .timeout(Duration::from_secs(5))
    ///     .build()?;
    /// assert_eq!(scanner.call_in_thread(|| Ok::<_, String>(7)), Ok(7));
    /// # Ok::<(), sluicegate_guard::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// If the call returned no value.
    pub fn call_in_thread<F, T, E>(&self, call: F) -> Result<T, Failure<E>>
    where
        F: FnMut() -> Result<T, E> + Clone + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        self.in_thread(call).blocking()
    }

    /// Returns a call like [`Guard::call_blocking`], to which a classifier or a fallback can be
    /// added before `.blocking()`.
    pub fn on_this_thread<F, T, E>(&self, call: F) -> Call<OnThisThread<F>, ByResult>
    where
        F: FnMut() -> Result<T, E>,
    {
        Call::new(Arc::clone(&self.inner), OnThisThread(call), ByResult)
    }

    /// Returns a call like [`Guard::call_in_thread`], to which a classifier or a fallback can be
    /// added before `.blocking()` or `.await`.
    pub fn in_thread<F, T, E>(&self, call: F) -> Call<InThread<F>, ByResult>
    where
        F: FnMut() -> Result<T, E> + Clone + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        Call::new(Arc::clone(&self.inner), InThread(call), ByResult)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the breaker.
    pub fn breaker(&self) -> Option<&Breaker> {
        self.inner.breaker.as_ref()
    }

    /// Returns the bulkhead.
    pub fn bulkhead(&self) -> Option<&Bulkhead> {
        self.inner.bulkhead.as_ref()
    }

    /// Returns `true` if the guard has a `timeout` or a `deadline`.
    pub fn has_timeout(&self) -> bool {
        self.inner.timeout.is_some() || self.inner.deadline.is_some()
    }

    /// Acquires a permit for a fallback, for code that cannot use [`Call::fallback`]. It is counted
    /// and reported as a fallback. Returns `None`, also reported, if `max_fallbacks` are running;
    /// then return the failure itself.
    pub fn try_fallback(&self) -> Option<Permit> {
        self.inner.try_fallback()
    }

    /// Returns the totals.
    pub fn stats(&self) -> GuardStats {
        self.inner.counts.read()
    }
}

impl Inner {
    fn now(&self) -> Time {
        self.timers.clock().now()
    }

    fn emit(&self, event: GuardEvent) {
        self.counts.event(&event);
        if let Some(observer) = &self.observer {
            observer.event(&Event::Guard { name: Arc::clone(&self.name), event });
        }
    }

    /// Acquires a permit for a fallback, if one is free.
    fn try_fallback(&self) -> Option<Permit> {
        let permit = self.fallbacks.try_acquire();
        self.emit(if permit.is_some() { GuardEvent::FellBack } else { GuardEvent::FallbackDenied });
        permit
    }

    /// Denies an attempt. The call then returns the result of the previous attempt, if there was
    /// one, since that says what may have happened.
    fn deny<T, E>(
        &self,
        denial: GuardDenial,
        last: &mut Option<Result<T, Failure<E>>>,
    ) -> Result<T, Failure<E>> {
        self.emit(GuardEvent::Denied(denial));
        last.take().unwrap_or(Err(Failure::Denied(denial)))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.inner.name)
            .field("breaker", &self.inner.breaker)
            .field("bulkhead", &self.inner.bulkhead)
            .field("retry", &self.inner.retry)
            .field("timeout", &self.inner.timeout)
            .field("deadline", &self.inner.deadline)
            .finish_non_exhaustive()
    }
}
