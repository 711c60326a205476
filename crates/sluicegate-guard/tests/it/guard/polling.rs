//! Futures polled by hand in virtual time, and what was observed of them.

use sluicegate_guard::guard::GuardEvent;
use sluicegate_guard::{Event, ManualClock, Observer, timeout_on};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future, and how often it was woken.
pub(super) struct Polled<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    woken: Arc<Woken>,
}

impl<'a, T> Polled<'a, T> {
    pub(super) fn new(future: impl Future<Output = T> + 'a) -> Polled<'a, T> {
        Polled { future: Box::pin(future), woken: Arc::default() }
    }

    pub(super) fn poll(&mut self) -> Option<T> {
        self.woken.0.store(0, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Polls if it was woken since the last time: a task that is not woken is not polled, as in a
    /// runtime.
    pub(super) fn poll_if_woken(&mut self) -> Option<T> {
        if self.woken.0.load(Ordering::SeqCst) > 0 { self.poll() } else { None }
    }

    /// Polls once now, and then whenever it is woken while time passes in steps.
    pub(super) fn run(&mut self, clock: &ManualClock, step: Duration) -> T {
        let mut output = self.poll();
        for _ in 0..100_000 {
            if let Some(output) = output {
                return output;
            }
            clock.advance(step);
            output = self.poll_if_woken();
        }
        panic!("it does not end, or was not woken");
    }
}

/// Ready after so long.
pub(super) async fn sleep(clock: &ManualClock, time: Duration) {
    let _ = timeout_on(clock.clone(), time, std::future::pending::<()>()).await;
}

/// All that happened.
#[derive(Default)]
pub(super) struct Events(pub(super) Mutex<Vec<Event>>);

impl Observer for Events {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

impl Events {
    /// In words.
    pub(super) fn words(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(word).collect()
    }
}

fn word(event: &Event) -> String {
    match event {
        Event::Guard { event: GuardEvent::Retried { nth, .. }, .. } => format!("retry {nth}"),
        Event::Guard { event: GuardEvent::Denied(by), .. } => {
            format!("denied {by:?}").split('(').next().unwrap_or_default().to_owned()
        }
        Event::Guard { event, .. } => format!("{event:?}"),
        Event::Breaker { state, .. } => format!("breaker {state:?}"),
        Event::BulkheadDenied { denial, .. } => format!("bulkhead {denial:?}"),
        other => format!("{other:?}"),
    }
}
