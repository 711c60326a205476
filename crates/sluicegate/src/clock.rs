//! What time it is. Every limiter has a clock; only what is called `*_at` is told the time instead.
//!
//! A clock also rings: those who wait in line are woken when their turn has come. `timer.rs` is the one timer of all limiters of a
//! process; a [`ManualClock`] rings when it is put forward, a `TokioClock` by the timer of its runtime.

pub(crate) mod alarm;
pub(crate) mod alarms;
pub(crate) mod any;
mod delay;
pub(crate) mod interval;
mod manual;
mod system;
mod timer;
#[cfg(all(feature = "tokio", not(loom)))]
mod tokio;

#[cfg(all(feature = "tokio", not(loom)))]
pub use self::tokio::TokioClock;
pub use alarm::Alarm;
pub use delay::Delay;
pub use manual::ManualClock;
pub use system::SystemClock;

use sluicegate_core::Time;
use std::fmt::Debug;
use std::sync::Arc;

/// A clock. It may step back: see "When the clock steps back" in the guide.
pub trait Clock: Debug + Send + Sync {
    /// The time it is. It may be asked while a limiter's locks are held, so it neither waits nor calls a limiter. It must not panic: a lease or a
    /// place that is just being returned would stay out.
    fn now(&self) -> Time;

    /// AlarmHandler the alarm when the clock shows this time or later. It is asked for only while somebody waits in line.
    ///
    /// Unless said otherwise the process's timer does so, which takes it that this clock goes as fast as the system's. A clock that
    /// does not, as one of a test, keeps the alarm and rings it itself. Ringing too early does no harm; no lock that
    /// `now` needs may be held meanwhile.
    fn ring_at(&self, time: Time, alarm: Alarm) {
        timer::ring_in(time.since(self.now()), alarm);
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn ring_at(&self, time: Time, alarm: Alarm) {
        (**self).ring_at(time, alarm);
    }
}
