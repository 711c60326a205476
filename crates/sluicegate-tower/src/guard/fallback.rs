//! The fallback of a guarded service.

use crate::rejection::{Rejection, Respond, RespondWith};
use http::Response;

/// A fallback for requests whose attempts all failed: [`NoFallback`] or, for a closure,
/// [`RespondWith`].
pub trait Fallback<B>: Send + Sync {
    /// Returns the writer of the fallback response, if there is one.
    fn responder(&self) -> Option<&dyn Respond<B>>;
}

/// No fallback: the failure is returned.
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
