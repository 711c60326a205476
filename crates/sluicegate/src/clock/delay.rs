//! Waiting for a moment on a limiter's clock, by the same alarms that wake those in line.

use super::Alarm;
use super::alarm::AlarmHandler;
use super::any::AnyClock;
use sluicegate_core::Time;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// A future that is ready when the clock shows a time. Made by [`Limiter::delay`](crate::Limiter::delay).
#[must_use = "it waits only when it is awaited"]
pub struct Delay {
    clock: AnyClock,
    until: Time,
    /// Made when it first has to wait.
    bell: Option<Arc<Bell>>,
}

/// What the alarm rings.
#[derive(Default)]
struct Bell {
    state: Mutex<BellState>,
}

#[derive(Default)]
struct BellState {
    waker: Option<Waker>,
    /// Whether an alarm is set that has neither rung nor been lost.
    is_set: bool,
}

impl Delay {
    pub(crate) fn new(clock: AnyClock, until: Time) -> Delay {
        Delay { clock, until, bell: None }
    }
}

impl Future for Delay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.until {
            return Poll::Ready(());
        }
        let bell = Arc::clone(self.bell.get_or_insert_default());
        if bell.wakes(context.waker()) {
            return Poll::Pending;
        }
        let weak: Weak<dyn AlarmHandler> = Arc::downgrade(&bell) as Weak<dyn AlarmHandler>;
        // No lock is held: a clock may ring at once, and then this is polled again.
        self.clock.ring_at(self.until, Alarm::new(weak, self.until));
        Poll::Pending
    }
}

impl Bell {
    /// Has the alarm wake this one. Whether an alarm is set already; if not, the caller is about to.
    fn wakes(&self, waker: &Waker) -> bool {
        // Cloned and dropped while no lock is held: it is the caller's code.
        let waker = waker.clone();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, is_set) = (state.waker.replace(waker), std::mem::replace(&mut state.is_set, true));
        drop(state);
        drop(before);
        is_set
    }

    /// Whoever waits looks at the clock, and sets another alarm if it was too early.
    fn wake(&self) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_set = false;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl AlarmHandler for Bell {
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
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn it_is_ready_at_its_time_and_not_before_and_wakes_once() {
        let clock = ManualClock::default();
        let limiter = Limiter::builder("sliding-log 1/s").clock(clock.clone()).build().unwrap();
        let woken = Arc::new(Woken::default());
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
