//! A body that holds a lease until it ends.

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use sluicegate::backend::HeldLease;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The body of a response of a [`crate::ConcurrencyLayer`]: the service's own, with its frames,
    /// trailers and size. The request's lease is released when the body has ended or is dropped.
    pub struct LeasedBody<B> {
        // Dropped before the lease: its resources are gone when the permit is free.
        #[pin]
        inner: B,
        lease: Option<HeldLease>,
    }
}

impl<B: Body> LeasedBody<B> {
    #[inline]
    pub(super) fn new(inner: B, lease: Option<HeldLease>) -> LeasedBody<B> {
        // An empty body may never be polled.
        let lease = lease.filter(|_| !inner.is_end_stream());
        LeasedBody { inner, lease }
    }
}

impl<B> LeasedBody<B> {
    /// Returns the inner body.
    pub fn get_ref(&self) -> &B {
        &self.inner
    }

    /// Returns `true` if it still holds a lease.
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
        // Servers stop polling a body that reports its end after a frame.
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
