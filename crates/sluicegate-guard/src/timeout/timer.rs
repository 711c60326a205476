//! Many timers on one clock, with one alarm for all of them.
//!
//! Most calls end long before their timeout, and then nothing of them remains: dropping a timer
//! removes its entry. (A [`Delay`](sluicegate::clock::Delay) would keep its alarm until it rings.)
//!
//! A clock may be set while a timer runs: see `clock/interval.rs` of sluicegate. The alarm counts
//! elapsed time, not what the clock shows, so an alarm that rings before its time by the clock
//! reveals a step back.

use super::Deadlines;
use sluicegate::internal::{AlarmHandler, AnyClock, Interval, alarm, wake_all};
use sluicegate_core::{Span, Time};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// The timers of all callers that use the system clock and have no timers of their own.
static SYSTEM: LazyLock<Arc<Timers>> = LazyLock::new(|| Timers::new(AnyClock::System));

/// The running timers of a clock.
pub(crate) struct Timers {
    clock: AnyClock,
    state: Mutex<TimerState>,
}

#[derive(Default)]
struct TimerState {
    deadlines: Deadlines<Waiter>,
    next: u64,
}

struct Waiter {
    interval: Interval,
    waker: Waker,
}

/// A timer: ready when its time has elapsed.
pub(crate) struct Timer {
    of: Arc<Timers>,
    interval: Interval,
    /// Its key in the queue of deadlines, once it had to wait.
    entry: Option<(Time, u64)>,
}

impl Timers {
    pub(crate) fn new(clock: AnyClock) -> Arc<Timers> {
        Arc::new(Timers { clock, state: Mutex::default() })
    }

    /// Returns the timers of the system clock: one value, and so one alarm, for all.
    pub(crate) fn system() -> Arc<Timers> {
        Arc::clone(&SYSTEM)
    }

    pub(crate) fn clock(&self) -> &AnyClock {
        &self.clock
    }

    /// Starts a timer of this length.
    pub(crate) fn start(self: &Arc<Self>, length: Span) -> Timer {
        let interval = Interval::new(self.clock.now(), length);
        Timer { of: Arc::clone(self), interval, entry: None }
    }

    fn lock(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets an alarm for the earliest deadline, unless one is set.
    fn set_alarm(self: &Arc<Self>, mut state: MutexGuard<'_, TimerState>) {
        let at = state.deadlines.next_alarm();
        drop(state);
        if let Some(at) = at {
            let weak: Weak<Timers> = Arc::downgrade(self);
            self.clock.ring_at(at, alarm(weak, at));
        }
    }

    /// Returns the number of running timers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().deadlines.len()
    }
}

impl Timer {
    /// Returns `true` if its time has elapsed.
    pub(crate) fn has_elapsed(&self) -> bool {
        self.of.clock.now() >= self.interval.end()
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now = self.of.clock.now();
        let until = self.interval.end_as_of(now);
        if until <= now {
            return Poll::Ready(());
        }
        // Before the lock is taken: this is the caller's code.
        let waker = context.waker().clone();
        let of = Arc::clone(&self.of);
        let mut state = of.lock();
        let before = self.entry.and_then(|(until, number)| state.deadlines.remove(until, number));
        let number = if let Some((_, number)) = self.entry {
            number
        } else {
            state.next += 1;
            state.next
        };
        self.entry = Some((until, number));
        state.deadlines.insert(until, number, Waiter { interval: self.interval, waker });
        of.set_alarm(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some((until, number)) = self.entry {
            let waiter = self.of.lock().deadlines.remove(until, number);
            drop(waiter);
        }
    }
}

impl AlarmHandler for Timers {
    fn ring(self: Arc<Self>, at: Time) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.deadlines.alarm_done(at);
        let mut wakers = Vec::new();
        while let Some((_, waiter)) = state.deadlines.pop(now) {
            wakers.push(waiter.waker);
        }
        if now < at {
            // The clock was set back, or rang too early. Timers that began in the future are polled
            // again, and start over.
            let ahead = state.deadlines.extract_if(|waiter| waiter.interval.starts_after(now));
            wakers.extend(ahead.into_iter().map(|waiter| waiter.waker));
        }
        self.set_alarm(state);
        wake_all(wakers);
    }

    /// Wakes all timers, so that their polls set another alarm.
    fn lost(self: Arc<Self>, at: Time) {
        let waiters = {
            let mut state = self.lock();
            state.deadlines.alarm_done(at);
            state.deadlines.extract_if(|_| true)
        };
        wake_all(waiters.into_iter().map(|waiter| waiter.waker).collect());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ManualClock;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn each_timer_wakes_once_and_a_dropped_one_leaves_nothing() {
        let clock = ManualClock::default();
        let timers = Timers::new(AnyClock::Other(Arc::new(clock.clone())));
        let woken: Vec<Arc<Woken>> = (0..3).map(|_| Arc::default()).collect();
        // The later one first, so that an earlier alarm has to be set.
        let mut waits: Vec<Timer> = [30, 10, 20].map(|after| timers.start(Span::from_micros(after))).into();
        for (timer, woken) in waits.iter_mut().zip(&woken) {
            let waker = Waker::from(Arc::clone(woken));
            for _ in 0..2 {
                assert!(Pin::new(&mut *timer).poll(&mut Context::from_waker(&waker)).is_pending());
            }
        }
        let counts = || -> Vec<u32> { woken.iter().map(|woken| woken.0.load(Ordering::SeqCst)).collect() };
        clock.advance(Duration::from_micros(9));
        assert_eq!(counts(), [0, 0, 0]);
        clock.advance(Duration::from_micros(1));
        assert_eq!(counts(), [0, 1, 0]);
        assert!(waits[1].has_elapsed() && !waits[0].has_elapsed());
        waits.truncate(2);
        assert_eq!(timers.len(), 1);
        clock.advance(Duration::from_secs(1));
        assert_eq!(counts(), [1, 1, 0]);
        drop(waits);
        assert_eq!(timers.len(), 0);
    }
}
