//! A result that is ready, or a future of it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A result that is ready, or a future of it. Await it, or match it to avoid the future.
#[must_use = "nothing is sent to a store unless it is awaited"]
pub enum Pending<T> {
    /// The result.
    Ready(T),
    /// A future of the result.
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Pending<T> {
    /// A result that takes time.
    pub fn later(future: impl Future<Output = T> + Send + 'static) -> Pending<T> {
        Pending::Later(Box::pin(future))
    }

    /// The result, if it is ready.
    #[inline]
    pub fn ready(self) -> Option<T> {
        match self {
            Pending::Ready(result) => Some(result),
            Pending::Later(_) => None,
        }
    }
}

impl<T> IntoFuture for Pending<T> {
    type Output = T;
    type IntoFuture = PendingFuture<T>;

    fn into_future(self) -> PendingFuture<T> {
        PendingFuture(match self {
            Pending::Ready(result) => State::Ready(Some(result)),
            Pending::Later(future) => State::Later(future),
        })
    }
}

/// The future of a [`Pending`].
pub struct PendingFuture<T>(State<T>);

enum State<T> {
    Ready(Option<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// The result is never pinned: it is only moved out.
impl<T> Unpin for PendingFuture<T> {}

impl<T> Future for PendingFuture<T> {
    type Output = T;

    /// # Panics
    /// If it is polled after it has completed.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            State::Ready(result) => {
                Poll::Ready(result.take().expect("`PendingFuture` polled after completion"))
            }
            State::Later(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for PendingFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingFuture")
    }
}

impl<T: fmt::Debug> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pending::Ready(result) => f.debug_tuple("Ready").field(result).finish(),
            Pending::Later(_) => f.write_str("Later"),
        }
    }
}
