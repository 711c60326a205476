//! The response future: the service's response, then the settling of its charge.

use super::admitted::{Ended, Settling};
use super::fields::Fields;
use super::layer::Settings;
use crate::future::{Admission, Answered, take_once};
use crate::rejection::Respond;
use http::{Request, Response};
use pin_project_lite::pin_project;
use sluicegate::backend::Backend;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

pin_project! {
    /// The future response of the service or of the layer.
    pub struct RateLimitFuture<S, Q, B, L, R>
    where
        S: Service<Request<Q>>,
        L: Backend,
        L: Clone,
        L: 'static,
    {
        #[pin]
        admission: Admission<S, Q, B, Settings<L>, R>,
        // The response is ready, and its charge is being settled.
        settling: Option<Box<Served<B, S::Error, L, R>>>,
    }
}

/// A response that waits until its charge is settled.
struct Served<B, E, L: Backend, R> {
    result: Result<Response<B>, E>,
    settling: Settling<L, R>,
}

impl<S, Q, B, L, R> RateLimitFuture<S, Q, B, L, R>
where
    S: Service<Request<Q>>,
    L: Backend + Clone + 'static,
{
    #[inline]
    pub(super) fn new(admission: Admission<S, Q, B, Settings<L>, R>) -> Self {
        RateLimitFuture { admission, settling: None }
    }
}

impl<S, Q, B, L, R> Future for RateLimitFuture<S, Q, B, L, R>
where
    S: Service<Request<Q>, Response = Response<B>>,
    L: Backend + Clone + 'static,
    R: Respond<B>,
{
    type Output = Result<Response<B>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.settling.is_none() {
            match ready!(this.admission.poll_answered(context)) {
                Answered::GuardDenial(response) => return Poll::Ready(Ok(response)),
                // The response is not copied.
                Answered::Serving(inner, admitted) if admitted.is_noop() => return inner.poll(context),
                Answered::Serving(inner, admitted) => {
                    let result = ready!(inner.poll(context));
                    let head = result.as_ref().ok().map(|response| (response.status(), response.headers()));
                    match admitted.end(head) {
                        Ended::Now(fields) => return Poll::Ready(with(fields, result)),
                        Ended::Later(settling) => {
                            *this.settling = Some(Box::new(Served { result, settling }));
                        }
                    }
                }
            }
        }
        if let Some(served) = this.settling {
            ready!(served.settling.poll_settled(context));
        }
        let Served { result, settling } = *take_once(this.settling);
        Poll::Ready(with(settling.fields(), result))
    }
}

fn with<B, E>(fields: Option<Fields>, mut result: Result<Response<B>, E>) -> Result<Response<B>, E> {
    if let (Some(fields), Ok(response)) = (fields, &mut result) {
        fields.write(response.headers_mut());
    }
    result
}
