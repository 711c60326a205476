//! The result of an admission: an admitted call, to be finished with its outcome, or a denial.

use super::Inner;
use super::machine::{CallId, Outcome, State};
use sluicegate_core::{RetryAfter, Span, Time};
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Whether a call is admitted.
#[derive(Debug)]
#[must_use = "a denied call must not be made, and an admitted call must be finished"]
pub enum Admission<'a> {
    /// The call is admitted: make it, then report its outcome.
    Allowed(Admitted<'a>),
    /// The call is denied.
    Denied(Denied),
}

impl<'a> Admission<'a> {
    /// Returns `true` if the call is admitted.
    #[inline]
    pub fn allowed(&self) -> bool {
        matches!(self, Admission::Allowed(_))
    }

    /// Returns the admitted call, for `?`.
    ///
    /// # Errors
    /// If the call is denied.
    #[inline]
    pub fn admitted(self) -> Result<Admitted<'a>, Denied> {
        match self {
            Admission::Allowed(admitted) => Ok(admitted),
            Admission::Denied(denied) => Err(denied),
        }
    }

    /// Returns an owned value, which can outlive the borrow of the breaker.
    pub fn into_owned(self) -> Admission<'static> {
        match self {
            Admission::Allowed(admitted) => Admission::Allowed(admitted.into_owned()),
            Admission::Denied(denied) => Admission::Denied(denied),
        }
    }
}

/// A call was denied by a breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    pub(super) state: State,
    pub(super) retry_after: RetryAfter,
}

impl Denied {
    /// Returns the exact wait until a call would be admitted, assuming that no other call is made
    /// and no probe in flight ends. `Never` if the breaker is forced open.
    pub fn retry_after(&self) -> RetryAfter {
        self.retry_after
    }

    /// Returns the breaker's state: open, half-open with all probes in flight, or forced open.
    pub fn state(&self) -> State {
        self.state
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::HalfOpen => "half-open and its probes are in flight",
            State::ForcedOpen => "forced open",
            _ => "open",
        };
        match self.retry_after {
            RetryAfter::After(wait) => {
                // For people: whole milliseconds, rounded up.
                let wait = Span::from_micros(wait.as_millis_up().saturating_mul(1_000));
                write!(f, "the circuit breaker is {state}; retry in {wait}")
            }
            RetryAfter::Never => {
                write!(f, "the circuit breaker is {state}; it denies calls until it is unforced")
            }
        }
    }
}

impl std::error::Error for Denied {}

/// A call admitted by a breaker. Finish it with its outcome.
///
/// If it is dropped unfinished it counts nothing, except for a probe, which has failed. If it is
/// dropped by a panic it has failed. `std::mem::forget` makes it a call that never ends: a probe
/// fails after `probe-ttl`.
#[must_use = "report the outcome: a dropped call counts nothing, or as a failed probe"]
pub struct Admitted<'a> {
    /// `None` once the call is finished.
    breaker: Option<BreakerRef<'a>>,
    id: CallId,
    /// The start time, if calls are timed.
    began: Option<Time>,
}

/// The breaker that admitted the call. Most calls end before the borrow does, and then no reference
/// count changes.
enum BreakerRef<'a> {
    Borrowed(&'a Arc<Inner>),
    Owned(Arc<Inner>),
}

impl Deref for BreakerRef<'_> {
    type Target = Arc<Inner>;

    #[inline]
    fn deref(&self) -> &Arc<Inner> {
        match self {
            BreakerRef::Borrowed(inner) => inner,
            BreakerRef::Owned(inner) => inner,
        }
    }
}

impl<'a> Admitted<'a> {
    #[inline]
    pub(super) fn new(breaker: &'a Arc<Inner>, id: CallId, began: Option<Time>) -> Admitted<'a> {
        Admitted { breaker: Some(BreakerRef::Borrowed(breaker)), id, began }
    }

    /// Reports a success.
    #[inline]
    pub fn success(self) {
        self.finish(Outcome::Success);
    }

    /// Reports a failure.
    #[inline]
    pub fn failure(self) {
        self.finish(Outcome::Failure);
    }

    /// Reports an outcome that says nothing about the dependency: a bad request, or a call that was
    /// not made. A probe's slot becomes free again.
    #[inline]
    pub fn ignore(self) {
        self.finish(Outcome::Ignored);
    }

    /// Reports the outcome.
    #[inline]
    pub fn finish(mut self, outcome: Outcome) {
        if let Some(breaker) = self.breaker.take() {
            breaker.finish(self.id, outcome, self.began);
        }
    }

    /// Returns `true` if the call is a probe of a half-open breaker.
    #[inline]
    pub fn is_probe(&self) -> bool {
        self.id.is_probe()
    }

    /// Restarts the call's timer, so that time spent since the admission does not count as the
    /// dependency's.
    pub(crate) fn restart_timer(&mut self) {
        if let (Some(began), Some(breaker)) = (&mut self.began, &self.breaker) {
            *began = breaker.time();
        }
    }

    /// Returns an owned value, which can outlive the borrow of the breaker.
    pub fn into_owned(mut self) -> Admitted<'static> {
        let owned = self.breaker.take().map(|held| match held {
            BreakerRef::Borrowed(inner) => BreakerRef::Owned(Arc::clone(inner)),
            BreakerRef::Owned(inner) => BreakerRef::Owned(inner),
        });
        Admitted { breaker: owned, id: self.id, began: self.began }
    }
}

impl Drop for Admitted<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(breaker) = self.breaker.take() {
            finish_dropped(&breaker, self.id, self.began);
        }
    }
}

/// Out of line and by value, so that an admitted call can live in registers.
#[cold]
fn finish_dropped(breaker: &Inner, id: CallId, began: Option<Time>) {
    if std::thread::panicking() {
        // A second panic, of the observer or the clock, would abort the process.
        let _ = catch_unwind(AssertUnwindSafe(|| breaker.finish(id, Outcome::Failure, began)));
    } else {
        breaker.finish(id, Outcome::Dropped, began);
    }
}

impl fmt::Debug for Admitted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").field("probe", &self.is_probe()).finish_non_exhaustive()
    }
}
