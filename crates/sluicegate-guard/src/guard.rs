//! A guard around calls to something that may fail: breaker, bulkhead, timeout, retry and fallback in one.
//!
//! `call.rs` is the way of a call through all of them, `work.rs` the three ways to make it, `fallback.rs`
//! what is given instead, `failure.rs` why there is nothing to give. The guide is [`crate::guide::guard`].

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

/// What stands between a service and something it calls, so that one failure does not become many. Its clones are the same guard.
///
/// ```
/// use sluicegate_guard::{Guard, guard::Failure};
/// use std::time::Duration;
///
/// # async fn ask_the_bank() -> Result<u32, String> { Ok(7) }
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let payments = Guard::builder("payments")
///     .retry("retry 2 budget=10%")
///     .breaker("breaker 50%/10s")
///     .bulkhead("bulkhead 10 queue=5 wait=1s")
///     .timeout(Duration::from_secs(2))
///     .build()?;
///
/// let answer: Result<u32, Failure<String>> = payments.call(|| ask_the_bank()).await;
/// assert_eq!(answer, Ok(7));
///
/// let or_else = payments.call(|| ask_the_bank()).fallback(|_why| async { 0 }).await;
/// assert_eq!(or_else, Ok(7));
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// # }).unwrap();
/// ```
///
/// From outside: fallback, retry, breaker, bulkhead, timeout, the call. The order of the builder's lines does not matter.
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

/// Says how a call ended: any closure that does, and [`ByResult`].
pub trait Classify<T, E> {
    /// How it ended.
    fn classify(&self, result: &Result<T, E>) -> Outcome;
}

impl<T, E, F: Fn(&Result<T, E>) -> Outcome> Classify<T, E> for F {
    fn classify(&self, result: &Result<T, E>) -> Outcome {
        self(result)
    }
}

/// Every `Err` is a failure, and every `Ok` a success.
#[derive(Clone, Copy, Default, Debug)]
pub struct ByResult;

impl<T, E> Classify<T, E> for ByResult {
    fn classify(&self, result: &Result<T, E>) -> Outcome {
        by_result(result)
    }
}

impl Guard {
    /// A guard of this name, which its events carry.
    pub fn builder(name: impl Into<Arc<str>>) -> GuardBuilder {
        GuardBuilder::new(name.into())
    }

    /// Makes a call in the task that awaits it. The closure is called once for each try.
    pub fn call<F, Fut, T, E>(&self, call: F) -> Call<InTask<F>, ByResult>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        Call::new(Arc::clone(&self.inner), InTask(call), ByResult)
    }

    /// As [`Guard::call`], where the future has to have a type that can be written down, as in a service: the tries are made by something that
    /// has a name and not by a closure.
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
        tries: T,
        classify: J,
    ) -> AttemptsCall<T, J> {
        Call::new(Arc::clone(&self.inner), FromAttempts(tries), classify)
    }

    /// Makes a call on this thread, which waits for permits and rests too.
    ///
    /// Nothing can stop such a call: one that takes longer than the timeout goes on to its end, and then counts and is reported as too
    /// late. If it ended with an `Ok` it is not tried again: what it was to do is done. For a timeout that is one, see
    /// [`Guard::call_in_thread`]. With a judge or a fallback: [`Guard::on_this_thread`].
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
    /// When it gave nothing.
    pub fn call_blocking<F, T, E>(&self, call: F) -> Result<T, Failure<E>>
    where
        F: FnMut() -> Result<T, E>,
    {
        self.on_this_thread(call).blocking()
    }

    /// Makes a call on a thread of its own, while this one waits. Its timeout is a real one: the caller goes on, though nothing can stop the
    /// work.
    ///
    /// The permit of the bulkhead is held until the work has really ended. So something that hangs takes as many threads as the
    /// bulkhead has permits, and not one more; without a bulkhead it is refused. With a judge or a fallback: [`Guard::in_thread`].
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
    /// When it gave nothing.
    pub fn call_in_thread<F, T, E>(&self, call: F) -> Result<T, Failure<E>>
    where
        F: FnMut() -> Result<T, E> + Clone + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        self.in_thread(call).blocking()
    }

    /// As [`Guard::call_blocking`], to be given a judge or a fallback before `.blocking()`.
    pub fn on_this_thread<F, T, E>(&self, call: F) -> Call<OnThisThread<F>, ByResult>
    where
        F: FnMut() -> Result<T, E>,
    {
        Call::new(Arc::clone(&self.inner), OnThisThread(call), ByResult)
    }

    /// As [`Guard::call_in_thread`], to be given a judge or a fallback before `.blocking()`, or to be awaited.
    pub fn in_thread<F, T, E>(&self, call: F) -> Call<InThread<F>, ByResult>
    where
        F: FnMut() -> Result<T, E> + Clone + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        Call::new(Arc::clone(&self.inner), InThread(call), ByResult)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its breaker.
    pub fn breaker(&self) -> Option<&Breaker> {
        self.inner.breaker.as_ref()
    }

    /// Its bulkhead.
    pub fn bulkhead(&self) -> Option<&Bulkhead> {
        self.inner.bulkhead.as_ref()
    }

    /// Whether it ends calls that take too long: by its `timeout` or its `deadline`.
    pub fn has_timeout(&self) -> bool {
        self.inner.timeout.is_some() || self.inner.deadline.is_some()
    }

    /// A permit for a fallback, where [`Call::fallback`] cannot be used: it is counted and told as one that is used, until the permit is dropped.
    /// `None`, and told too, when as many are under way as may be: then the failure itself is to be given.
    pub fn try_fallback(&self) -> Option<Permit> {
        self.inner.try_fallback()
    }

    /// What it has done.
    pub fn stats(&self) -> GuardStats {
        self.inner.counts.read()
    }
}

impl Inner {
    fn now(&self) -> Time {
        self.timers.clock().now()
    }

    fn emit(&self, what: GuardEvent) {
        self.counts.event(&what);
        if let Some(observer) = &self.observer {
            observer.event(&Event::Guard { name: Arc::clone(&self.name), what });
        }
    }

    /// A permit for a fallback, if one is free.
    fn try_fallback(&self) -> Option<Permit> {
        let permit = self.fallbacks.try_acquire();
        self.emit(if permit.is_some() { GuardEvent::FellBack } else { GuardEvent::FallbackDenied });
        permit
    }

    /// A try is not made. What the call gives: what came of the try before, if there was one, as that says what may have happened.
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
