//! Callers that acquire a permit, polled by hand: their results, and how often each was woken.

use sluicegate_guard::bulkhead::{AcquirePermit, PermitGrant};
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One who asks.
pub(super) struct Asker {
    enter: Pin<Box<AcquirePermit>>,
    woken: Arc<Woken>,
}

impl Asker {
    /// Asks; the answer too, if there is one at once.
    pub(super) fn new(enter: AcquirePermit) -> (Asker, Option<PermitGrant>) {
        let mut asker = Asker { enter: Box::pin(enter), woken: Arc::default() };
        let entry = asker.poll();
        (asker, entry)
    }

    /// One that has to wait.
    pub(super) fn waiting(enter: AcquirePermit) -> Asker {
        let (asker, entry) = Asker::new(enter);
        assert!(entry.is_none(), "{entry:?} at once");
        asker
    }

    pub(super) fn poll(&mut self) -> Option<PermitGrant> {
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.enter.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(entry) => Some(entry),
            Poll::Pending => None,
        }
    }

    pub(super) fn woken(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}
