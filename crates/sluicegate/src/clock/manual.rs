//! A clock for tests, which stands still until it is advanced.

use super::{Alarm, Clock, UtcAhead};
use sluicegate_core::{Span, Time};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A clock for tests, which stands still until it is advanced. A clone is another handle to the
/// same clock.
///
/// ```
/// use sluicegate::Limiter;
/// use sluicegate::clock::ManualClock;
/// use std::time::Duration;
///
/// let clock = ManualClock::default();
/// let replies = Limiter::builder("sliding-log 1/60s").clock(clock.clone()).build()?;
/// assert!(replies.check("user:42").allowed());
/// assert!(!replies.check("user:42").allowed());
/// clock.advance(Duration::from_secs(60));
/// assert!(replies.check("user:42").allowed());
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
///
/// While it advances, waiters are admitted each at its own time.
#[derive(Clone)]
pub struct ManualClock {
    inner: Arc<Inner>,
}

struct Inner {
    micros: AtomicU64,
    utc_ahead: UtcAhead,
    alarms: Mutex<Vec<(Time, Alarm)>>,
}

impl ManualClock {
    /// A clock that shows this time.
    pub fn at(time: Time) -> ManualClock {
        let micros = AtomicU64::new(time.as_micros());
        let inner = Inner { micros, utc_ahead: UtcAhead::adjustable(), alarms: Mutex::default() };
        ManualClock { inner: Arc::new(inner) }
    }

    /// Advances the clock. Alarms on the way ring each at its time, in order.
    pub fn advance(&self, by: Duration) {
        let until = self.now().saturating_add(Span::from(by));
        while let Some(alarm) = self.next_alarm(until, |time| self.show_at_least(time)) {
            alarm.ring();
        }
    }

    /// Sets the clock, forward or back, in one step. Alarms in between ring at the new time.
    pub fn set(&self, time: Time) {
        while let Some(alarm) = self.next_alarm(time, |_| self.inner.micros.store(time.as_micros(), Relaxed))
        {
            alarm.ring();
        }
    }

    /// Sets UTC to a time, as when an operator sets a machine's clock: this clock itself stays as
    /// it is, and windows that are aligned to UTC follow. All alarms ring, and those that are not
    /// due are set again.
    pub fn set_utc(&self, utc: Time) {
        let [utc, now] = [utc, self.now()].map(|time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
        self.inner.utc_ahead.set(utc - now);
        let alarms = std::mem::take(&mut *self.alarms());
        for (_, alarm) in alarms {
            alarm.ring();
        }
    }

    /// The earliest alarm that is due by `until`. `show` sets the clock to its time, or to `until`
    /// if there is none.
    fn next_alarm(&self, until: Time, show: impl Fn(Time)) -> Option<Alarm> {
        // Released before the alarm rings, because that may set the next one.
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
        // The clock advances under the same lock, so an alarm is either seen by `advance` or due
        // now.
        let mut alarms = self.alarms();
        if self.now() < time {
            alarms.push((time, alarm));
        } else {
            drop(alarms);
            alarm.ring();
        }
    }

    fn utc_ahead(&self) -> UtcAhead {
        self.inner.utc_ahead.clone()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}
