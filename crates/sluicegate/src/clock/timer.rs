//! The one timer of a process: a thread that sleeps until the next alarm of any limiter.
//!
//! It is started when somebody first has to wait. A thread needs no runtime, so that callers of any runtime, or of none, are woken
//! by it, and goes on when a runtime ends. It is good to some 60 microseconds, where the timers of runtimes count milliseconds.

use super::Alarm;
use sluicegate_core::Span;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// As long as a thread sleeps at the most: an alarm may be a century away, further than instants reach everywhere.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

static TIMER: Timer = Timer {
    alarms: Mutex::new(Alarms { set: BinaryHeap::new(), next: 0, is_running: false }),
    sooner: Condvar::new(),
};

struct Timer {
    alarms: Mutex<Alarms>,
    /// The next alarm is sooner than the thread sleeps.
    sooner: Condvar,
}

struct Alarms {
    set: BinaryHeap<Reverse<Set>>,
    next: u64,
    is_running: bool,
}

/// An alarm that is set.
struct Set {
    at: Instant,
    /// Of equal times the first set rings first.
    number: u64,
    alarm: Alarm,
}

/// AlarmHandler an alarm after so long.
pub(super) fn ring_in(wait: Span, alarm: Alarm) {
    let mut alarms = TIMER.lock();
    if !alarms.is_running {
        alarms.is_running =
            std::thread::Builder::new().name("sluicegate-timer".to_owned()).spawn(|| TIMER.run()).is_ok();
    }
    let at = Instant::now() + Duration::from(wait).min(SLEEP_MAX);
    let number = alarms.next;
    alarms.next += 1;
    let is_next = alarms.set.peek().is_none_or(|Reverse(next)| at < next.at);
    if alarms.is_running {
        alarms.set.push(Reverse(Set { at, number, alarm }));
    }
    // Without a thread the alarm is lost, here and not under the lock: those who wait will set another.
    drop(alarms);
    if is_next {
        TIMER.sooner.notify_one();
    }
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, Alarms> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut alarms = self.lock();
        loop {
            let now = Instant::now();
            let sleep = alarms.set.peek().map(|Reverse(next)| next.at.saturating_duration_since(now));
            alarms = match sleep {
                None => self.sooner.wait(alarms).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    let due = alarms.set.pop();
                    // Ringing calls whoever waits, and may set the next alarm.
                    drop(alarms);
                    if let Some(Reverse(Set { alarm, .. })) = due {
                        // A waker that panics has had its say on standard error; others still have to be woken.
                        let _ = catch_unwind(AssertUnwindSafe(|| alarm.ring()));
                    }
                    self.lock()
                }
                Some(sleep) => {
                    self.sooner.wait_timeout(alarms, sleep).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Set {}

impl PartialOrd for Set {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Set {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
