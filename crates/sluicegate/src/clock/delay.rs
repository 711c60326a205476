//! A delay on a limiter's clock, with the same alarms that wake waiters.

use super::Alarm;
use super::alarm::AlarmHandler;
use super::any::AnyClock;
use sluicegate_core::Time;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// A future that completes when the clock shows a time. Created by
/// [`Limiter::delay`](crate::Limiter::delay).
#[must_use = "a delay does nothing unless it is awaited"]
pub struct Delay {
    clock: AnyClock,
    until: Time,
    /// Created when the delay is first pending.
    signal: Option<Arc<Signal>>,
}

/// The target of the alarm.
#[derive(Default)]
struct Signal {
    state: Mutex<SignalState>,
}

#[derive(Default)]
struct SignalState {
    waker: Option<Waker>,
    /// Whether an alarm is set that has neither rung nor been lost.
    is_armed: bool,
}

impl Delay {
    pub(crate) fn new(clock: AnyClock, until: Time) -> Delay {
        Delay { clock, until, signal: None }
    }
}

impl Future for Delay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.until {
            return Poll::Ready(());
        }
        let signal = Arc::clone(self.signal.get_or_insert_default());
        if signal.register(context.waker()) {
            return Poll::Pending;
        }
        let weak: Weak<dyn AlarmHandler> = Arc::downgrade(&signal) as Weak<dyn AlarmHandler>;
        // No lock is held: the clock may ring immediately, and then this is polled again.
        self.clock.ring_at(self.until, Alarm::new(weak, self.until));
        Poll::Pending
    }
}

impl Signal {
    /// Registers the waker. Returns `true` if an alarm is set already; if not, the caller sets one.
    fn register(&self, waker: &Waker) -> bool {
        // Cloned and dropped without the lock, because wakers are foreign code.
        let waker = waker.clone();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, is_armed) = (state.waker.replace(waker), std::mem::replace(&mut state.is_armed, true));
        drop(state);
        drop(before);
        is_armed
    }

    /// Wakes the task, which reads the clock and sets another alarm if it was woken early.
    fn wake(&self) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_armed = false;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl AlarmHandler for Signal {
    fn ring(self: Arc<Self>, _at: Time) {
        self.wake();
    }

    fn lost(self: Arc<Self>, _at: Time) {
        self.wake();
    }
}

impl fmt::Debug for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delay").field("until", &self.until).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::{Limiter, Span};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    #[derive(Default)]
    struct CountingWaker(AtomicU32);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_delay_is_ready_at_its_time_and_wakes_once() {
        let clock = ManualClock::default();
        let limiter = Limiter::builder("sliding-log 1/s").clock(clock.clone()).build().unwrap();
        let woken = Arc::new(CountingWaker::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut delay = Box::pin(limiter.delay(Span::from_micros(100)));
        assert!(delay.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_micros(99));
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        assert!(delay.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_micros(1));
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(delay.as_mut().poll(&mut context).is_ready());
        assert!(Box::pin(limiter.delay(Span::ZERO)).as_mut().poll(&mut context).is_ready());
    }
}
