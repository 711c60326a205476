//! A body that holds a place until it has ended.

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pin_project! {
    /// The body of a response of a [`crate::ConcurrencyLayer`]: the service's own, frame by frame, with its trailers and its size. When it has
    /// ended or is dropped the place of its request is free.
    pub struct HeldBody<B, L> {
        // Dropped before the lease: what it holds is gone when its place is free.
        #[pin]
        inner: B,
        lease: Option<L>,
    }
}

impl<B: Body, L> HeldBody<B, L> {
    #[inline]
    pub(super) fn new(inner: B, lease: Option<L>) -> HeldBody<B, L> {
        // Nobody has to ask an empty body for its end.
        let lease = lease.filter(|_| !inner.is_end_stream());
        HeldBody { inner, lease }
    }
}

impl<B, L> HeldBody<B, L> {
    /// The body itself.
    pub fn get_ref(&self) -> &B {
        &self.inner
    }

    /// Whether it still holds a place.
    pub fn holds_place(&self) -> bool {
        self.lease.is_some()
    }
}

impl<B: Body, L> Body for HeldBody<B, L> {
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

impl<B: fmt::Debug, L> fmt::Debug for HeldBody<B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBody")
            .field("inner", &self.inner)
            .field("holds_place", &self.holds_place())
            .finish_non_exhaustive()
    }
}
