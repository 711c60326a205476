//! The clock of a limiter, of any type.

use super::{Alarm, Clock, SystemClock, UtcAhead};
use sluicegate_core::Time;
use std::sync::Arc;

/// A limiter's clock. The system clock is not behind a pointer, so that reading it can be inlined.
#[derive(Clone, Debug)]
pub enum AnyClock {
    /// [`SystemClock`].
    System,
    /// Any other clock.
    Other(Arc<dyn Clock>),
}

impl AnyClock {
    /// The current time.
    #[inline]
    pub fn now(&self) -> Time {
        match self {
            AnyClock::System => SystemClock.now(),
            AnyClock::Other(clock) => clock.now(),
        }
    }

    /// Rings the alarm at this time.
    pub fn ring_at(&self, time: Time, alarm: Alarm) {
        match self {
            AnyClock::System => SystemClock.ring_at(time, alarm),
            AnyClock::Other(clock) => clock.ring_at(time, alarm),
        }
    }

    /// How far UTC is ahead.
    pub fn utc_ahead(&self) -> UtcAhead {
        match self {
            AnyClock::System => SystemClock.utc_ahead(),
            AnyClock::Other(clock) => clock.utc_ahead(),
        }
    }
}
