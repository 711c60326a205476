//! Timeouts for futures on any runtime.
//!
//! `timer.rs` is many timers with one alarm, `deadlines.rs` the queue of deadlines behind it.

mod deadlines;
mod timer;

pub(crate) use deadlines::Deadlines;
pub(crate) use timer::{Timer, Timers};

use sluicegate::clock::Clock;
use sluicegate::internal::AnyClock;
use sluicegate_core::Span;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The timeout elapsed before the future was ready; the future was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call timed out; retry later, or raise the timeout")
    }
}

impl std::error::Error for TimedOut {}

/// Awaits a future, and drops it if the timeout elapses first. It needs no runtime.
///
/// ```
/// use sluicegate_guard::{TimedOut, timeout};
/// use std::time::Duration;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// assert_eq!(timeout(Duration::from_secs(1), async { 7 }).await, Ok(7));
/// assert_eq!(timeout(Duration::from_millis(1), std::future::pending::<u8>()).await, Err(TimedOut));
/// # });
/// ```
///
/// A future that is ready when it is polled counts, however late. If the system clock is set back
/// meanwhile the timeout may start over; if it is set forward, the timeout elapses earlier by as
/// much.
///
/// # Errors
/// If the timeout elapsed first.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, TimedOut> {
    run_until(Timers::system().start(Span::from(limit)), future).await
}

/// Awaits a future with a timeout on another clock, such as a test's.
///
/// Each call sets an alarm of its own, which the clock keeps until the timeout elapses even if the
/// future is ready sooner: at 10,000 calls per second and a minute each, that is 600,000 alarms.
/// Calls through a [`Guard`](crate::Guard) with that clock share one alarm, as those of [`timeout`]
/// do.
///
/// # Errors
/// If the timeout elapsed first.
pub async fn timeout_on<F: Future>(
    clock: impl Clock + 'static,
    limit: Duration,
    future: F,
) -> Result<F::Output, TimedOut> {
    let timers = Timers::new(AnyClock::Other(Arc::new(clock)));
    run_until(timers.start(Span::from(limit)), future).await
}

async fn run_until<F: Future>(mut timer: Timer, future: F) -> Result<F::Output, TimedOut> {
    let mut future = pin!(future);
    poll_fn(move |context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(&mut timer).poll(context).map(|()| Err(TimedOut))
    })
    .await
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use sluicegate::Time;
    use sluicegate::clock::Alarm;
    use std::sync::Mutex;
    use std::task::{Context, Waker};

    /// Keeps its alarms forever.
    #[derive(Clone, Default, Debug)]
    struct Stopped(Arc<Mutex<Vec<Alarm>>>);

    impl Clock for Stopped {
        fn now(&self) -> Time {
            Time::EPOCH
        }

        fn ring_at(&self, _time: Time, alarm: Alarm) {
            self.0.lock().unwrap().push(alarm);
        }
    }

    #[test]
    fn calls_that_end_in_time_leave_one_alarm() {
        let clock = Stopped::default();
        let timers = Timers::new(AnyClock::Other(Arc::new(clock.clone())));
        for _ in 0..1_000 {
            let timer = timers.start(Span::from(Duration::from_secs(600)));
            let mut call = pin!(run_until(timer, std::future::pending::<()>()));
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!((clock.0.lock().unwrap().len(), timers.len()), (1, 0));
        assert!(Arc::ptr_eq(&Timers::system(), &Timers::system()), "`timeout` shares them too");
    }
}
