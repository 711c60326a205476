//! Admission, call and outcome in one, for blocking calls and for futures.

use super::machine::Outcome;
use super::{Admitted, Breaker, Denied};
use std::fmt;

/// The error of a call through a breaker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallError<E> {
    /// The breaker denied the call; it was not made.
    Denied(Denied),
    /// The call was made, and failed.
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Denied(denied) => denied.fmt(f),
            CallError::Failed(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for CallError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CallError::Denied(_) => None,
            CallError::Failed(error) => error.source(),
        }
    }
}

impl Breaker {
    /// Makes a call if the breaker admits it. An `Err` is a failure, and so is a panic.
    ///
    /// # Errors
    /// If the breaker denies the call, or the call fails.
    #[inline]
    pub fn call<T, E>(&self, call: impl FnOnce() -> Result<T, E>) -> Result<T, CallError<E>> {
        self.call_with(call, by_result)
    }

    /// Makes a call whose outcome is determined by `classify`, for errors that say nothing about
    /// the health of the dependency.
    ///
    /// # Errors
    /// If the breaker denies the call, or the call fails.
    #[inline]
    pub fn call_with<T, E>(
        &self,
        call: impl FnOnce() -> Result<T, E>,
        classify: impl FnOnce(&Result<T, E>) -> Outcome,
    ) -> Result<T, CallError<E>> {
        // Two calls of `make`, so that the admitted call of the fast path can live in registers.
        match self.admit_untimed() {
            Some(admitted) => make(admitted, call, classify),
            None => make(self.admit().map_err(CallError::Denied)?, call, classify),
        }
    }

    /// Awaits a future if the breaker admits it. The breaker decides when the returned future is
    /// first polled. An `Err` is a failure, and so is a panic. A future dropped before its end
    /// counts nothing, except for a probe, which has failed.
    ///
    /// # Errors
    /// If the breaker denies the call, or the call fails.
    pub async fn run<T, E>(&self, future: impl Future<Output = Result<T, E>>) -> Result<T, CallError<E>> {
        self.run_with(future, by_result).await
    }

    /// Awaits a future whose outcome is determined by `classify`.
    ///
    /// # Errors
    /// If the breaker denies the call, or the call fails.
    pub async fn run_with<T, E>(
        &self,
        future: impl Future<Output = Result<T, E>>,
        classify: impl FnOnce(&Result<T, E>) -> Outcome,
    ) -> Result<T, CallError<E>> {
        let admitted = self.admit().map_err(CallError::Denied)?;
        let result = future.await;
        admitted.finish(classify(&result));
        result.map_err(CallError::Failed)
    }
}

#[inline]
fn make<T, E>(
    admitted: Admitted<'_>,
    call: impl FnOnce() -> Result<T, E>,
    classify: impl FnOnce(&Result<T, E>) -> Outcome,
) -> Result<T, CallError<E>> {
    let result = call();
    admitted.finish(classify(&result));
    result.map_err(CallError::Failed)
}

/// Classifies every `Err` as a failure and every `Ok` as a success.
#[inline]
pub(crate) fn by_result<T, E>(result: &Result<T, E>) -> Outcome {
    if result.is_ok() { Outcome::Success } else { Outcome::Failure }
}
