//! Tokio's clock, which a test can pause.

use super::{Alarm, Clock, SystemClock, timer};
use sluicegate_core::{Span, Time};
use std::panic::catch_unwind;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The time of the tokio runtime, so that `tokio::time::pause` and `advance` hold for limits too:
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::clock::TokioClock;
/// use std::time::Duration;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// // In a test with `#[tokio::test(start_paused = true)]`:
/// let mails = Limiter::builder("min-interval 1h").clock(TokioClock::new()).build()?;
/// assert!(mails.acquire("Harry", 1).await.allowed());
/// assert!(mails.acquire("Harry", 1).await.waited() == Duration::from_secs(3600)); // in no time
/// # Ok::<(), sluicegate::BuildError>(())
/// # }).unwrap();
/// ```
///
/// It starts with the system's time, and from then on goes as the runtime's does: steps of the system's clock are not taken up.
/// Tokio's timer counts milliseconds, so that turns come up to one later than with the system's clock. The runtime in which somebody
/// first waited rings, so it has to run while others wait.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    began: Instant,
    /// What the system's clock showed then.
    at: Time,
}

impl TokioClock {
    /// A clock that shows the system's time now.
    pub fn new() -> TokioClock {
        TokioClock { began: Instant::now(), at: SystemClock.now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        TokioClock::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Time {
        // Rounded down: what has not passed has not passed.
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.at.saturating_add(Span::from_micros(micros))
    }

    /// By a task of the runtime that asks. When that ends before, the alarm is lost, and set anew by those who wait in another.
    /// Without a runtime, or in one without time, it is as with any other clock.
    fn ring_at(&self, time: Time, alarm: Alarm) {
        let until = self.began + Duration::from(time.since(self.at));
        let Ok(runtime) = Handle::try_current() else {
            return timer::ring_in(time.since(self.now()), alarm);
        };
        // A runtime whose time is not enabled says so by a panic, and in no other way.
        let Ok(sleep) = catch_unwind(|| tokio::time::sleep_until(until)) else {
            return timer::ring_in(time.since(self.now()), alarm);
        };
        runtime.spawn(async move {
            sleep.await;
            alarm.ring();
        });
    }
}
