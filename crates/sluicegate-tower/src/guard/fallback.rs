//! What is given instead of a failure.

use crate::rejection::{Rejection, Respond, RespondWith};
use http::Response;

/// Whether there is something to give instead when all tries have failed. There are [`NoFallback`] and, for a closure, [`RespondWith`].
pub trait Fallback<B>: Send + Sync {
    /// Who gives it.
    fn responder(&self) -> Option<&dyn Respond<B>>;
}

/// Nothing is given instead: a failure stays one.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoFallback;

impl<B> Fallback<B> for NoFallback {
    #[inline]
    fn responder(&self) -> Option<&dyn Respond<B>> {
        None
    }
}

impl<B, K> Fallback<B> for RespondWith<K>
where
    K: Fn(&Rejection<'_>) -> Response<B> + Send + Sync,
{
    #[inline]
    fn responder(&self) -> Option<&dyn Respond<B>> {
        Some(self)
    }
}
