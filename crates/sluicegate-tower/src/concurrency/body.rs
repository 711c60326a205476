//! A body that holds a lease until it has ended.

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use sluicegate::backend::HeldLease;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The body of a response of a [`crate::ConcurrencyLayer`]: the service's own, frame by frame,
    /// with its trailers and its size. When it has ended or is dropped, the lease of its request is
    /// released.
    pub struct LeasedBody<B> {
        // Dropped before the lease: what it holds is gone when the permit is free.
        #[pin]
        inner: B,
        lease: Option<HeldLease>,
    }
}

impl<B: Body> LeasedBody<B> {
    #[inline]
    pub(super) fn new(inner: B, lease: Option<HeldLease>) -> LeasedBody<B> {
        // An empty body need not be polled for its end.
        let lease = lease.filter(|_| !inner.is_end_stream());
        LeasedBody { inner, lease }
    }
}

impl<B> LeasedBody<B> {
    /// The body itself.
    pub fn get_ref(&self) -> &B {
        &self.inner
    }

    /// Whether it still holds a lease.
    pub fn holds_lease(&self) -> bool {
        self.lease.is_some()
    }
}

impl<B: Body> Body for LeasedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(context));
        // Servers do not ask for more of a body that says after a frame that this was the last one.
        if frame.is_none() || this.inner.is_end_stream() {
            *this.lease = None;
        }
        Poll::Ready(frame)
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B: fmt::Debug> fmt::Debug for LeasedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeasedBody")
            .field("inner", &self.inner)
            .field("holds_lease", &self.holds_lease())
            .finish_non_exhaustive()
    }
}
