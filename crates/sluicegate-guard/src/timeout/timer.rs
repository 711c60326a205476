//! Many waits for a moment on one clock, with one alarm for all of them.
//!
//! Most calls end long before their time is up, and then nothing of them stays: a countdown that is dropped is taken out of the book. (A
//! [`Delay`](sluicegate::clock::Delay) of its own would keep its alarm with the timer until it rings.)
//!
//! A clock may be set while somebody waits: see `clock/stretch.rs` of sluicegate. The timer counts time that passes, not what the clock shows, so an alarm
//! that rings before its time by the clock is where a step back is noticed.

use super::Deadlines;
use sluicegate::internal::{AlarmHandler, AnyClock, Interval, alarm, wake_all};
use sluicegate_core::{Span, Time};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// Those of everybody who waits by the system's clock and has no countdowns of its own.
static SYSTEM: LazyLock<Arc<Timers>> = LazyLock::new(|| Timers::new(AnyClock::System));

/// Who waits for which moment.
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
    stretch: Interval,
    waker: Waker,
}

/// Ready when its time is up.
pub(crate) struct Timer {
    of: Arc<Timers>,
    stretch: Interval,
    /// Where it is in the book, once it had to wait.
    entry: Option<(Time, u64)>,
}

impl Timers {
    pub(crate) fn new(clock: AnyClock) -> Arc<Timers> {
        Arc::new(Timers { clock, state: Mutex::default() })
    }

    /// On the system's clock: the same for all, so that there is one alarm for all.
    pub(crate) fn system() -> Arc<Timers> {
        Arc::clone(&SYSTEM)
    }

    pub(crate) fn clock(&self) -> &AnyClock {
        &self.clock
    }

    /// One that begins now and takes so long.
    pub(crate) fn start(self: &Arc<Self>, length: Span) -> Timer {
        let stretch = Interval::new(self.clock.now(), length);
        Timer { of: Arc::clone(self), stretch, entry: None }
    }

    fn lock(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the clock ring for the soonest, if it is not going to.
    fn set_alarm(self: &Arc<Self>, mut state: MutexGuard<'_, TimerState>) {
        let at = state.deadlines.next_alarm();
        drop(state);
        if let Some(at) = at {
            let weak: Weak<Timers> = Arc::downgrade(self);
            self.clock.ring_at(at, alarm(weak, at));
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().deadlines.len()
    }
}

impl Timer {
    /// Whether its time is up.
    pub(crate) fn has_elapsed(&self) -> bool {
        self.of.clock.now() >= self.stretch.end()
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now = self.of.clock.now();
        let until = self.stretch.end_as_of(now);
        if until <= now {
            return Poll::Ready(());
        }
        // Before the lock: it is the caller's code.
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
        state.deadlines.insert(until, number, Waiter { stretch: self.stretch, waker });
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
            // The clock was set back, or has rung too early. Those of later than now look again, and begin now.
            let ahead = state.deadlines.extract_if(|waiter| waiter.stretch.starts_after(now));
            wakers.extend(ahead.into_iter().map(|waiter| waiter.waker));
        }
        self.set_alarm(state);
        wake_all(wakers);
    }

    /// Whoever waits looks again, and so sets another alarm.
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
    fn each_is_woken_once_at_its_time_and_who_is_dropped_leaves_nothing() {
        let clock = ManualClock::default();
        let timers = Timers::new(AnyClock::Other(Arc::new(clock.clone())));
        let woken: Vec<Arc<Woken>> = (0..3).map(|_| Arc::default()).collect();
        // The later one first, so that a sooner alarm has to be set.
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
