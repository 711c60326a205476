//! The response future: the service's response, whose body holds the lease.

use super::body::LeasedBody;
use super::layer::{HoldUntil, Settings};
use crate::future::{Admission, Answered};
use crate::rejection::Respond;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use sluicegate::backend::LeaseBackend;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

pin_project! {
    /// The future response of the service or of the layer. Dropping it releases its lease, or
    /// leaves the queue.
    pub struct ConcurrencyLimitFuture<S, Q, B, L, R>
    where
        S: Service<Request<Q>>,
        L: LeaseBackend,
    {
        #[pin]
        admission: Admission<S, Q, B, Settings<L>, R>,
        hold: HoldUntil,
    }
}

impl<S: Service<Request<Q>>, Q, B, L: LeaseBackend, R> ConcurrencyLimitFuture<S, Q, B, L, R> {
    #[inline]
    pub(super) fn new(admission: Admission<S, Q, B, Settings<L>, R>, hold: HoldUntil) -> Self {
        ConcurrencyLimitFuture { admission, hold }
    }
}

impl<S, Q, B, L, R> Future for ConcurrencyLimitFuture<S, Q, B, L, R>
where
    S: Service<Request<Q>, Response = Response<B>>,
    L: LeaseBackend,
    R: Respond<B>,
    B: Body,
{
    type Output = Result<Response<LeasedBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (response, lease) = match ready!(this.admission.poll_answered(context)) {
            Answered::Serving(inner, lease) => {
                let result = ready!(inner.poll(context));
                // Released here if there is no response, or the body is not to hold it.
                let lease = lease.take().filter(|_| *this.hold == HoldUntil::BodyEnd);
                (result?, lease)
            }
            Answered::GuardDenial(response) => (response, None),
        };
        Poll::Ready(Ok(response.map(|body| LeasedBody::new(body, lease))))
    }
}
