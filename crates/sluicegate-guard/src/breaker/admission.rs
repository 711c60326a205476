//! What asking a breaker comes to: an admitted call, to be ended with how the call went, or a no.

use super::Inner;
use super::machine::{CallId, Outcome, State};
use sluicegate_core::{RetryAfter, Span, Time};
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Whether a call may pass.
#[derive(Debug)]
#[must_use = "a call that is denied must not happen, and one that is allowed tells how it went"]
pub enum Admission<'a> {
    /// It may: make it, and say how it went.
    Allowed(Admitted<'a>),
    /// It may not.
    Denied(Denied),
}

impl<'a> Admission<'a> {
    /// Whether it may pass.
    #[inline]
    pub fn allowed(&self) -> bool {
        matches!(self, Admission::Allowed(_))
    }

    /// The admitted call if it may pass, for `?`.
    ///
    /// # Errors
    /// When it is denied.
    #[inline]
    pub fn admitted(self) -> Result<Admitted<'a>, Denied> {
        match self {
            Admission::Allowed(admitted) => Ok(admitted),
            Admission::Denied(denied) => Err(denied),
        }
    }

    /// The same, which can outlive the breaker it was asked of.
    pub fn into_owned(self) -> Admission<'static> {
        match self {
            Admission::Allowed(admitted) => Admission::Allowed(admitted.into_owned()),
            Admission::Denied(denied) => Admission::Denied(denied),
        }
    }
}

/// A call was not let through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denied {
    pub(super) state: State,
    pub(super) retry_after: RetryAfter,
}

impl Denied {
    /// How long until a call would be let through, if nobody else asks and nothing is heard of the probes that are out: then, and not a
    /// tick sooner. `Never` when the breaker is forced open.
    pub fn retry_after(&self) -> RetryAfter {
        self.retry_after
    }

    /// What the breaker does: it is open, half-open with all probes out, or forced open.
    pub fn state(&self) -> State {
        self.state
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::HalfOpen => "half-open and its probes are out",
            State::ForcedOpen => "forced open",
            _ => "open",
        };
        match self.retry_after {
            RetryAfter::After(wait) => {
                // To be read: whole milliseconds, rounded up.
                let wait = Span::from_micros(wait.as_millis_up().saturating_mul(1_000));
                write!(f, "the circuit breaker is {state}; try again in {wait}")
            }
            RetryAfter::Never => {
                write!(f, "the circuit breaker is {state}; no wait helps until it is let go")
            }
        }
    }
}

impl std::error::Error for Denied {}

/// One call that a breaker let through. End it with how the call went.
///
/// Dropped without that it counts nothing, but for a probe: that has failed. Dropped by a panic it has failed in any case.
/// `std::mem::forget` is like a call that never ends: a probe has failed after `probe-ttl`.
#[must_use = "say how the call went: dropped, it counts nothing, or as a failed probe"]
pub struct Admitted<'a> {
    /// None once it has ended.
    breaker: Option<BreakerRef<'a>>,
    id: CallId,
    /// When it began, if the rules ask how long a call takes.
    began: Option<Time>,
}

/// The breaker that was asked. Most calls end before it goes, and then nothing has to be counted.
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

    /// The call went well.
    #[inline]
    pub fn success(self) {
        self.finish(Outcome::Success);
    }

    /// The call failed.
    #[inline]
    pub fn failure(self) {
        self.finish(Outcome::Failure);
    }

    /// The call says nothing about what was called: a bad request, or it was never made. A probe's place is free for another.
    #[inline]
    pub fn ignore(self) {
        self.finish(Outcome::Ignored);
    }

    /// The call ended.
    #[inline]
    pub fn finish(mut self, outcome: Outcome) {
        if let Some(breaker) = self.breaker.take() {
            breaker.finish(self.id, outcome, self.began);
        }
    }

    /// Whether it is a probe of a half-open breaker.
    #[inline]
    pub fn is_probe(&self) -> bool {
        self.id.is_probe()
    }

    /// The call begins only now: what came since the breaker was asked was not its doing.
    pub(crate) fn restart_timer(&mut self) {
        if let (Some(began), Some(breaker)) = (&mut self.began, &self.breaker) {
            *began = breaker.time();
        }
    }

    /// The same, which can outlive the breaker it was asked of.
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

/// Apart, and told values instead of the admitted call, so that an admitted call can live in registers until then.
#[cold]
fn finish_dropped(breaker: &Inner, id: CallId, began: Option<Time>) {
    if std::thread::panicking() {
        // A second panic, of the observer or the clock, while the first goes on would end the process.
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
