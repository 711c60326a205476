//! A wall clock.

use sluicegate::clock::{Alarm, Clock, ManualClock};
use sluicegate::{Span, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A clock like the system's: it can be set, and its alarms ring by elapsed time.
#[derive(Clone, Debug)]
pub(crate) struct WallClock {
    pub(crate) elapsed: ManualClock,
    /// How far it was set back, in microseconds.
    back: Arc<AtomicU64>,
}

impl WallClock {
    pub(crate) fn new() -> WallClock {
        WallClock { elapsed: ManualClock::default(), back: Arc::default() }
    }

    pub(crate) fn set_back(&self, by: Duration) {
        self.back.fetch_add(Span::from(by).as_micros(), Ordering::Relaxed);
    }
}

impl Clock for WallClock {
    fn now(&self) -> Time {
        self.elapsed.now().saturating_sub(Span::from_micros(self.back.load(Ordering::Relaxed)))
    }

    fn ring_at(&self, time: Time, alarm: Alarm) {
        self.elapsed.ring_at(self.elapsed.now().saturating_add(time.since(self.now())), alarm);
    }
}
