//! A call that waits for a lease, polled by hand: its grant, and how often it was woken.

use sluicegate::Time;
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::semaphore::{AcquireLease, Grant, Lease};
use sluicegate::wait::Denial;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Counts wake-ups, and records the time of the last.
#[derive(Default)]
struct Woken {
    times: AtomicUsize,
    clock: Option<ManualClock>,
    at: Mutex<Option<Time>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.times.fetch_add(1, Ordering::Relaxed);
        *self.at.lock().unwrap() = self.clock.as_ref().map(Clock::now);
    }
}

/// A call. Dropping it drops its future, and its lease if it has one.
pub(super) struct Caller {
    acquire: Pin<Box<AcquireLease>>,
    woken: Arc<Woken>,
    grant: Option<Grant>,
}

impl Caller {
    /// Polls an acquire for the first time.
    pub(super) fn new(acquire: AcquireLease) -> Caller {
        Caller::with(acquire, Arc::default())
    }

    /// Polls an acquire for the first time, and records when it is woken.
    pub(super) fn timed(acquire: AcquireLease, clock: &ManualClock) -> Caller {
        Caller::with(acquire, Arc::new(Woken { clock: Some(clock.clone()), ..Woken::default() }))
    }

    fn with(acquire: AcquireLease, woken: Arc<Woken>) -> Caller {
        let mut caller = Caller { acquire: Box::pin(acquire), woken, grant: None };
        caller.poll();
        caller
    }

    /// Polls the future. Returns `true` if it is done.
    pub(super) fn poll(&mut self) -> bool {
        if self.grant.is_none() {
            let waker = Waker::from(Arc::clone(&self.woken));
            if let Poll::Ready(grant) = self.acquire.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.grant = Some(grant);
            }
        }
        self.grant.is_some()
    }

    /// How often it was woken.
    pub(super) fn woken(&self) -> usize {
        self.woken.times.load(Ordering::Relaxed)
    }

    /// When it was woken, if it is [`timed`](Caller::timed).
    pub(super) fn woken_at(&self) -> Option<Time> {
        *self.woken.at.lock().unwrap()
    }

    /// Returns `true` if it is done.
    pub(super) fn is_done(&self) -> bool {
        self.grant.is_some()
    }

    /// Returns `true` if it is still enqueued, as far as can be seen from outside.
    pub(super) fn waits(&self) -> bool {
        self.grant.is_none() && self.woken() == 0
    }

    /// Returns `true` if it has seen its lease granted.
    pub(super) fn allowed(&self) -> bool {
        self.grant.as_ref().is_some_and(Grant::allowed)
    }

    pub(super) fn denial(&self) -> Option<Denial> {
        self.grant.as_ref().and_then(Grant::denial)
    }

    pub(super) fn grant(&self) -> &Grant {
        self.grant.as_ref().unwrap()
    }

    /// The lease.
    pub(super) fn lease(self) -> Option<Lease> {
        self.grant.and_then(Grant::lease)
    }
}
