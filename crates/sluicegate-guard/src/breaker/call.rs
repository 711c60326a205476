//! Asking, calling and telling in one: for calls that block, and for futures.

use super::machine::Outcome;
use super::{Admitted, Breaker, Denied};
use std::fmt;

/// Why a call through a breaker gave nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallError<E> {
    /// It was not made.
    Denied(Denied),
    /// It was made, and failed.
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
    /// Makes a call if the breaker lets it. Every `Err` is a failure, and so is a panic.
    ///
    /// # Errors
    /// When the breaker says no, or with what the call failed with.
    #[inline]
    pub fn call<T, E>(&self, call: impl FnOnce() -> Result<T, E>) -> Result<T, CallError<E>> {
        self.call_with(call, by_result)
    }

    /// The same, with how it ended as you see it: not every `Err` says that what was called is in trouble.
    ///
    /// # Errors
    /// When the breaker says no, or with what the call failed with.
    #[inline]
    pub fn call_with<T, E>(
        &self,
        call: impl FnOnce() -> Result<T, E>,
        judge: impl FnOnce(&Result<T, E>) -> Outcome,
    ) -> Result<T, CallError<E>> {
        // Each with an admitted call of its own: that of most calls lives in registers then.
        match self.admit_untimed() {
            Some(admitted) => make(admitted, call, judge),
            None => make(self.admit().map_err(CallError::Denied)?, call, judge),
        }
    }

    /// Runs a future if the breaker lets it: it is asked when this is first polled. Every `Err` is a failure, and so is a panic. Dropped
    /// before its end it counts nothing, but for a probe: that has failed.
    ///
    /// # Errors
    /// When the breaker says no, or with what the call failed with.
    pub async fn run<T, E>(&self, future: impl Future<Output = Result<T, E>>) -> Result<T, CallError<E>> {
        self.run_with(future, by_result).await
    }

    /// The same, with how it ended as you see it.
    ///
    /// # Errors
    /// When the breaker says no, or with what the call failed with.
    pub async fn run_with<T, E>(
        &self,
        future: impl Future<Output = Result<T, E>>,
        judge: impl FnOnce(&Result<T, E>) -> Outcome,
    ) -> Result<T, CallError<E>> {
        let admitted = self.admit().map_err(CallError::Denied)?;
        let result = future.await;
        admitted.finish(judge(&result));
        result.map_err(CallError::Failed)
    }
}

#[inline]
fn make<T, E>(
    admitted: Admitted<'_>,
    call: impl FnOnce() -> Result<T, E>,
    judge: impl FnOnce(&Result<T, E>) -> Outcome,
) -> Result<T, CallError<E>> {
    let result = call();
    admitted.finish(judge(&result));
    result.map_err(CallError::Failed)
}

/// Every `Err` is a failure, and every `Ok` a success.
#[inline]
pub(crate) fn by_result<T, E>(result: &Result<T, E>) -> Outcome {
    if result.is_ok() { Outcome::Success } else { Outcome::Failure }
}
