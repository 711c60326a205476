//! What time it is. Every limiter has a clock; only what is called `*_at` is told the time instead.

mod system;

pub use system::SystemClock;

use sluicegate_core::{Span, Time};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock. It may step back: see "When the clock steps back" in the guide.
pub trait Clock: Debug + Send + Sync {
    /// The time it is.
    fn now(&self) -> Time;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }
}

/// A clock that stands still until it is told otherwise, for your tests. Its clones are the same clock.
///
/// ```
/// use sluicegate::{Limiter, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::default();
/// let replies = Limiter::builder("sliding-log 1/60s").clock(clock.clone()).build()?;
/// assert!(replies.check("Harry").allowed());
/// assert!(!replies.check("Harry").allowed());
/// clock.advance(Duration::from_secs(60));
/// assert!(replies.check("Harry").allowed());
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows this time.
    pub fn at(time: Time) -> ManualClock {
        ManualClock { micros: Arc::new(AtomicU64::new(time.as_micros())) }
    }

    /// Puts it forward.
    pub fn advance(&self, by: Duration) {
        let forward = |micros| Some(Time::saturating_from_micros(micros).after(Span::from(by)).as_micros());
        // Cannot fail: the closure always has a next value.
        let _ = self.micros.fetch_update(Ordering::Relaxed, Ordering::Relaxed, forward);
    }

    /// Sets it, forward or back.
    pub fn set(&self, time: Time) {
        self.micros.store(time.as_micros(), Ordering::Relaxed);
    }
}

impl Default for ManualClock {
    /// A clock that shows 2023-11-14T22:13:20Z, which is no boundary of a minute, hour or day.
    fn default() -> Self {
        ManualClock::at(Time::saturating_from_micros(1_700_000_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::saturating_from_micros(self.micros.load(Ordering::Relaxed))
    }
}

/// A limiter's clock. The usual one is not behind a pointer, so that reading it can be compiled in place.
#[derive(Clone, Debug)]
pub(crate) enum AnyClock {
    System,
    Other(Arc<dyn Clock>),
}

impl AnyClock {
    #[inline]
    pub(crate) fn now(&self) -> Time {
        match self {
            AnyClock::System => SystemClock.now(),
            AnyClock::Other(clock) => clock.now(),
        }
    }
}
