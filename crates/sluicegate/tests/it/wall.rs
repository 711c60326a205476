//! A clock on the wall.

use sluicegate::clock::{Alarm, Clock, ManualClock};
use sluicegate::{Span, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// As the system's: it can be set, and its alarms ring by the time that passes.
#[derive(Clone, Debug)]
pub(crate) struct Wall {
    pub(crate) passes: ManualClock,
    /// How far it was set back, in microseconds.
    back: Arc<AtomicU64>,
}

impl Wall {
    pub(crate) fn new() -> Wall {
        Wall { passes: ManualClock::default(), back: Arc::default() }
    }

    pub(crate) fn set_back(&self, by: Duration) {
        self.back.fetch_add(Span::from(by).as_micros(), Ordering::Relaxed);
    }
}

impl Clock for Wall {
    fn now(&self) -> Time {
        self.passes.now().saturating_sub(Span::from_micros(self.back.load(Ordering::Relaxed)))
    }

    fn ring_at(&self, time: Time, alarm: Alarm) {
        self.passes.ring_at(self.passes.now().saturating_add(time.since(self.now())), alarm);
    }
}
