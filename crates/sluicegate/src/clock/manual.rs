//! A clock for tests: time passes when it is told to.

use super::{Alarm, Clock};
use sluicegate_core::{Span, Time};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A clock that stands still until it is told otherwise, for your tests. Its clones are the same clock.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::clock::ManualClock;
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
        let until = self.now().saturating_add(Span::from(by));
        while let Some(alarm) = self.next_alarm(until, |time| self.show_at_least(time)) {
            alarm.ring();
        }
    }

    /// Sets it, forward or back, in one step: what was to happen in between happens now.
    pub fn set(&self, time: Time) {
        while let Some(alarm) = self.next_alarm(time, |_| self.inner.micros.store(time.as_micros(), Relaxed))
        {
            alarm.ring();
        }
    }

    /// The earliest alarm that rings by a time. The clock is put to its time, or to `until` if there is none.
    fn next_alarm(&self, until: Time, show: impl Fn(Time)) -> Option<Alarm> {
        // Ringing may set the next one, so this is not held meanwhile.
        let mut alarms = self.alarms();
        let earliest = alarms.iter().enumerate().min_by_key(|(_, (time, _))| *time);
        let due = earliest.map(|(index, (time, _))| (index, *time)).filter(|(_, time)| *time <= until);
        show(due.map_or(until, |(_, time)| time));
        due.map(|(index, _)| alarms.swap_remove(index).1)
    }

    fn show_at_least(&self, time: Time) {
        self.inner.micros.fetch_max(time.as_micros(), Relaxed);
    }

    fn alarms(&self) -> MutexGuard<'_, Vec<(Time, Alarm)>> {
        self.inner.alarms.lock().unwrap_or_else(PoisonError::into_inner)
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
        Time::saturating_from_micros(self.inner.micros.load(Relaxed))
    }

    fn ring_at(&self, time: Time, alarm: Alarm) {
        // The clock is put forward under the same lock, so that an alarm is either seen by whoever does so, or due now.
        let mut alarms = self.alarms();
        if self.now() < time {
            alarms.push((time, alarm));
        } else {
            drop(alarms);
            alarm.ring();
        }
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}
