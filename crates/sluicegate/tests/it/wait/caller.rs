//! A call that waits, polled by hand: its result, and how often it was woken.

use sluicegate::wait::{Acquire, Acquired};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Counts wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A call.
pub(crate) struct Caller<'a> {
    acquire: Pin<Box<Acquire<'a>>>,
    woken: Arc<Woken>,
    acquired: Option<Acquired>,
}

impl<'a> Caller<'a> {
    /// Polls an acquire for the first time.
    pub(crate) fn new(acquire: Acquire<'a>) -> Caller<'a> {
        let mut caller = Caller { acquire: Box::pin(acquire), woken: Arc::default(), acquired: None };
        caller.poll();
        caller
    }

    /// Polls the future.
    pub(crate) fn poll(&mut self) -> Option<Acquired> {
        if self.acquired.is_none() {
            let waker = Waker::from(Arc::clone(&self.woken));
            if let Poll::Ready(acquired) = self.acquire.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.acquired = Some(acquired);
            }
        }
        self.acquired
    }

    /// How often it was woken.
    pub(crate) fn woken(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }

    /// The result, if it has been seen.
    pub(crate) fn acquired(&self) -> Option<Acquired> {
        self.acquired
    }

    /// Returns `true` if it has no result yet.
    pub(crate) fn waits(&self) -> bool {
        self.acquired.is_none()
    }
}
