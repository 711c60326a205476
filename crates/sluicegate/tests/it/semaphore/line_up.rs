//! Callers who wait for a lease, polled by hand: what each is told, and how often it was woken.

use sluicegate::{AcquireLease, Grant, Lease, Refusal};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
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
        let mut caller = Caller { acquire: Box::pin(acquire), woken: Arc::default(), grant: None };
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
        self.woken.0.load(Ordering::Relaxed)
    }

    /// Whether it is still in line, as far as can be seen from outside.
    pub(super) fn waits(&self) -> bool {
        self.grant.is_none() && self.woken() == 0
    }

    /// Whether it was given a lease, as far as it has looked.
    pub(super) fn allowed(&self) -> bool {
        self.grant.as_ref().is_some_and(Grant::allowed)
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.grant.as_ref().and_then(Grant::refusal)
    }

    pub(super) fn grant(&self) -> &Grant {
        self.grant.as_ref().unwrap()
    }

    /// The lease, taken out.
    pub(super) fn lease(self) -> Option<Lease> {
        self.grant.and_then(Grant::lease)
    }
}
