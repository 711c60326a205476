//! Tokio's clock, which a test can pause.

use super::{Alarm, Clock, SystemClock, timer};
use sluicegate_core::{Span, Time};
use std::panic::catch_unwind;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The time of the tokio runtime, so that `tokio::time::pause` and `advance` apply to limits too:
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::clock::TokioClock;
/// use std::time::Duration;
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # let runtime = builder.enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// // In a test with `#[tokio::test(start_paused = true)]`:
/// let mails = Limiter::builder("min-interval 1h").clock(TokioClock::new()).build()?;
/// assert!(mails.acquire("user:42", 1).await.allowed());
/// assert!(mails.acquire("user:42", 1).await.waited() == Duration::from_secs(3600)); // in no time
/// # Ok::<(), sluicegate::BuildError>(())
/// # }).unwrap();
/// ```
///
/// It starts with the system's time and then advances with the runtime's: steps of the system clock
/// are ignored. Tokio's timer counts milliseconds, so waiters are admitted up to one later than
/// with the system clock. The runtime in which a call first waited rings the alarms, so it has to
/// run while other calls wait.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    started: Instant,
    /// The system's time at `started`.
    at: Time,
}

impl TokioClock {
    /// A clock that shows the system's time now.
    pub fn new() -> TokioClock {
        TokioClock { started: Instant::now(), at: SystemClock.utc_ahead().to_utc(SystemClock.now()) }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        TokioClock::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Time {
        // Rounded down to whole microseconds.
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.at.saturating_add(Span::from_micros(micros))
    }

    /// Rings from a task of the calling runtime. If that shuts down first, the alarm is lost, and
    /// the waiters in another runtime set a new one. Without a runtime, or in one without a timer,
    /// the process's timer rings.
    fn ring_at(&self, time: Time, alarm: Alarm) {
        let until = self.started + Duration::from(time.since(self.at));
        let Ok(runtime) = Handle::try_current() else {
            return timer::ring_in(time.since(self.now()), alarm);
        };
        // A runtime without a timer reports that only by a panic.
        let Ok(sleep) = catch_unwind(|| tokio::time::sleep_until(until)) else {
            return timer::ring_in(time.since(self.now()), alarm);
        };
        runtime.spawn(async move {
            sleep.await;
            alarm.ring();
        });
    }
}
