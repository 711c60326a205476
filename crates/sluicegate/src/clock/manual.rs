//! A clock for tests: time passes when it is told to.

use super::{Alarm, Clock};
use sluicegate_core::{Span, Time};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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
///
/// Those who wait in line have their turns while it is put forward, each at its own time.
#[derive(Clone)]
pub struct ManualClock {
    inner: Arc<Inner>,
}

struct Inner {
    micros: AtomicU64,
    alarms: Mutex<Vec<(Time, Alarm)>>,
}

impl ManualClock {
    /// A clock that shows this time.
    pub fn at(time: Time) -> ManualClock {
        let micros = AtomicU64::new(time.as_micros());
        ManualClock { inner: Arc::new(Inner { micros, alarms: Mutex::default() }) }
    }

    /// Puts it forward. Whatever is to happen on the way happens at its time, one after another.
    pub fn advance(&self, by: Duration) {
        let until = self.now().after(Span::from(by));
        while let Some((time, alarm)) = self.next_alarm(until) {
            self.inner.micros.fetch_max(time.as_micros(), Ordering::Relaxed);
            alarm.ring();
        }
        self.inner.micros.fetch_max(until.as_micros(), Ordering::Relaxed);
    }

    /// Sets it, forward or back, in one step: what was to happen in between happens now.
    pub fn set(&self, time: Time) {
        self.inner.micros.store(time.as_micros(), Ordering::Relaxed);
        while let Some((_, alarm)) = self.next_alarm(time) {
            alarm.ring();
        }
    }

    /// The earliest alarm that rings by a time.
    fn next_alarm(&self, until: Time) -> Option<(Time, Alarm)> {
        // Ringing may set the next one, so this is not held meanwhile.
        let mut alarms = self.inner.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, (time, _)) = alarms.iter().enumerate().min_by_key(|(_, (time, _))| *time)?;
        (*time <= until).then_some(index).map(|index| alarms.swap_remove(index))
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
        Time::saturating_from_micros(self.inner.micros.load(Ordering::Relaxed))
    }

    fn ring_at(&self, time: Time, alarm: Alarm) {
        self.inner.alarms.lock().unwrap_or_else(PoisonError::into_inner).push((time, alarm));
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}
