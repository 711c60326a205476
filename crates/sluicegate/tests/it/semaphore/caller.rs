//! Callers who wait for a lease, polled by hand: what each is told, and how often it was woken.

use sluicegate::Time;
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::semaphore::{AcquireLease, Grant, Lease};
use sluicegate::wait::Denial;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often it is woken, and knows when that was.
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

/// One caller. Dropping it drops its future, and its lease if it has one.
pub(super) struct Caller {
    acquire: Pin<Box<AcquireLease>>,
    woken: Arc<Woken>,
    grant: Option<Grant>,
}

impl Caller {
    /// Asks for a lease.
    pub(super) fn new(acquire: AcquireLease) -> Caller {
        Caller::with(acquire, Arc::default())
    }

    /// The same, by a clock that says when it is woken.
    pub(super) fn timed(acquire: AcquireLease, clock: &ManualClock) -> Caller {
        Caller::with(acquire, Arc::new(Woken { clock: Some(clock.clone()), ..Woken::default() }))
    }

    fn with(acquire: AcquireLease, woken: Arc<Woken>) -> Caller {
        let mut caller = Caller { acquire: Box::pin(acquire), woken, grant: None };
        caller.poll();
        caller
    }

    /// Looks whether the turn has come: whether anything is known now.
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

    /// When it was, if it was [`timed`](Caller::timed).
    pub(super) fn woken_at(&self) -> Option<Time> {
        *self.woken.at.lock().unwrap()
    }

    /// Whether anything is known.
    pub(super) fn is_told(&self) -> bool {
        self.grant.is_some()
    }

    /// Whether it is still in line, as far as can be seen from outside.
    pub(super) fn waits(&self) -> bool {
        self.grant.is_none() && self.woken() == 0
    }

    /// Whether it was given a lease, as far as it has looked.
    pub(super) fn allowed(&self) -> bool {
        self.grant.as_ref().is_some_and(Grant::allowed)
    }

    pub(super) fn denial(&self) -> Option<Denial> {
        self.grant.as_ref().and_then(Grant::denial)
    }

    pub(super) fn grant(&self) -> &Grant {
        self.grant.as_ref().unwrap()
    }

    /// The lease, taken out.
    pub(super) fn lease(self) -> Option<Lease> {
        self.grant.and_then(Grant::lease)
    }
}
