//! Clocks: the system's by default, and others for tests.
//!
//! Every limiter has a [`Clock`]; only methods named `*_at` take the time as an argument. With a
//! [`ManualClock`] a test moves the time itself.
//!
//! A clock also rings alarms, which wake waiters when they are due. `timer.rs` is the one timer of
//! a process; a [`ManualClock`] rings when it is advanced, a `TokioClock` by the timer of its
//! runtime.

pub(crate) mod alarm;
pub(crate) mod alarms;
pub(crate) mod any;
mod delay;
pub(crate) mod interval;
mod manual;
mod system;
mod timeline;
mod timer;
#[cfg(all(feature = "tokio", not(loom)))]
mod tokio;
mod uptime;

#[cfg(all(feature = "tokio", not(loom)))]
pub use self::tokio::TokioClock;
pub use alarm::Alarm;
pub use delay::Delay;
pub use manual::ManualClock;
pub use sluicegate_core::utc_ahead::UtcAhead;
pub use system::{ClockSteps, SystemClock};
pub(crate) use timeline::is_step;

use sluicegate_core::Time;
use std::fmt::Debug;
use std::sync::Arc;

/// A clock. It may step backwards, which [`SystemClock`] never does: docs/limits.md says what each
/// algorithm does then.
pub trait Clock: Debug + Send + Sync {
    /// The current time. It may be read while a limiter's locks are held, so it must neither block
    /// nor call a limiter. It must not panic: a lease or permit that is just being released would
    /// stay held.
    fn now(&self) -> Time;

    /// Rings the alarm when the clock shows this time or later. Called only while a call waits.
    ///
    /// By default the process's timer rings it, which assumes that this clock runs as fast as the
    /// system's. A clock that does not, such as one for tests, stores the alarm and rings it
    /// itself. Ringing early is harmless. No lock that `now` needs may be held while it rings.
    fn ring_at(&self, time: Time, alarm: Alarm) {
        timer::ring_in(time.since(self.now()), alarm);
    }

    /// Returns how far UTC is ahead of this clock: a handle to a value that may change. Windows
    /// that are aligned to UTC, and the times that [`next_window`](crate::Limiter::next_window)
    /// returns, follow it; everything else runs on [`Clock::now`] alone.
    ///
    /// By default it is zero for good: this clock shows UTC.
    fn utc_ahead(&self) -> UtcAhead {
        UtcAhead::default()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn ring_at(&self, time: Time, alarm: Alarm) {
        (**self).ring_at(time, alarm);
    }

    fn utc_ahead(&self) -> UtcAhead {
        (**self).utc_ahead()
    }
}
