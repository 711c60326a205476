//! The clock of a limiter, whichever it is.

use super::{Alarm, Clock, SystemClock};
use sluicegate_core::Time;
use std::sync::Arc;

/// A limiter's clock. The usual one is not behind a pointer, so that reading it can be compiled in place.
#[derive(Clone, Debug)]
pub enum AnyClock {
    /// [`SystemClock`].
    System,
    /// Any other.
    Other(Arc<dyn Clock>),
}

impl AnyClock {
    #[inline]
    /// The time it is.
    pub fn now(&self) -> Time {
        match self {
            AnyClock::System => SystemClock.now(),
            AnyClock::Other(clock) => clock.now(),
        }
    }

    /// Has the clock ring the alarm at this time.
    pub fn ring_at(&self, time: Time, alarm: Alarm) {
        match self {
            AnyClock::System => SystemClock.ring_at(time, alarm),
            AnyClock::Other(clock) => clock.ring_at(time, alarm),
        }
    }
}
