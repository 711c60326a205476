//! The one timer of a process: a thread that sleeps until the next alarm of any limiter.
//!
//! It starts when a call first has to wait. A thread needs no runtime, so it wakes callers of any
//! runtime or of none, and survives the end of a runtime. It is accurate to about 60 microseconds,
//! where the timers of runtimes count milliseconds.
//!
//! Sleeping stops while the machine is suspended, and a step of UTC makes windows that are aligned
//! to it end sooner or later. So the thread looks at both clocks every second: after a suspend
//! alarms ring at most that late, and after a step all of them ring, which makes waiters plan
//! again.

use super::uptime::uptime_micros;
use super::{Alarm, Clock as _, SystemClock, UtcAhead, is_step};
use sluicegate_core::Span;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest sleep while an alarm is set.
const SLEEP_MAX: Duration = Duration::from_secs(1);

static TIMER: Timer = Timer {
    state: Mutex::new(TimerState { alarms: BinaryHeap::new(), next_number: 0, is_running: false }),
    sooner: Condvar::new(),
};

struct Timer {
    state: Mutex<TimerState>,
    /// Notified when the next alarm is sooner than the thread's sleep.
    sooner: Condvar,
}

struct TimerState {
    alarms: BinaryHeap<Reverse<SetAlarm>>,
    next_number: u64,
    is_running: bool,
}

/// An alarm that is set.
struct SetAlarm {
    /// The uptime in microseconds.
    at: u64,
    /// Of alarms at equal times, the first one set rings first.
    number: u64,
    alarm: Alarm,
}

/// Rings an alarm after `wait`.
pub(super) fn ring_in(wait: Span, alarm: Alarm) {
    let mut state = TIMER.lock();
    if !state.is_running {
        state.is_running =
            std::thread::Builder::new().name("sluicegate-timer".to_owned()).spawn(|| TIMER.run()).is_ok();
    }
    let at = uptime_micros().saturating_add(wait.as_micros());
    let number = state.next_number;
    state.next_number += 1;
    let is_next = state.alarms.peek().is_none_or(|Reverse(next)| at < next.at);
    if state.is_running {
        state.alarms.push(Reverse(SetAlarm { at, number, alarm }));
    }
    // Without a thread the alarm is lost, here and not under the lock: its waiters will set
    // another.
    drop(state);
    if is_next {
        TIMER.sooner.notify_one();
    }
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut utc = UtcWatch::new();
        let mut state = self.lock();
        loop {
            if utc.has_stepped() {
                let alarms = std::mem::take(&mut state.alarms);
                drop(state);
                for Reverse(SetAlarm { alarm, .. }) in alarms {
                    ring(alarm);
                }
                state = self.lock();
            }
            let now = uptime_micros();
            let sleep =
                state.alarms.peek().map(|Reverse(next)| Duration::from_micros(next.at.saturating_sub(now)));
            state = match sleep {
                None => self.sooner.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    let due = state.alarms.pop();
                    // Ringing wakes waiters, and may set the next alarm.
                    drop(state);
                    if let Some(Reverse(SetAlarm { alarm, .. })) = due {
                        ring(alarm);
                    }
                    self.lock()
                }
                Some(sleep) => {
                    let sleep = sleep.min(SLEEP_MAX);
                    self.sooner.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Rings an alarm. A waker that panics has printed its message; the others still have to be woken.
fn ring(alarm: Alarm) {
    let _ = catch_unwind(AssertUnwindSafe(|| alarm.ring()));
}

/// Notices steps of UTC.
struct UtcWatch {
    ahead: UtcAhead,
    seen: i64,
}

impl UtcWatch {
    fn new() -> UtcWatch {
        let ahead = SystemClock.utc_ahead();
        UtcWatch { seen: ahead.micros(), ahead }
    }

    fn has_stepped(&mut self) -> bool {
        // The clock notices a step when it is read.
        SystemClock.now();
        let ahead = self.ahead.micros();
        let has_stepped = is_step(ahead, self.seen);
        if has_stepped {
            self.seen = ahead;
        }
        has_stepped
    }
}

impl PartialEq for SetAlarm {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for SetAlarm {}

impl PartialOrd for SetAlarm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SetAlarm {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
