//! The first part of every layer's response future: until the service serves the request. Written
//! by hand, so that an answer of memory costs no box.

use crate::common::{Admit, Call, Shared};
use crate::rejection::Respond;
use crate::request_head::RequestHead;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// An answer that takes time.
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pin_project! {
    /// A request on its way to the service, or back.
    #[project = AdmissionProjection]
    pub(crate) enum Admission<S, Q, B, M, R>
    where
        S: Service<Request<Q>>,
        M: Admit<R>,
    {
        // The request is in a box, as it would make the future of every other large.
        Waiting { answer: Later<M::Answer>, parked: Option<Box<Parked<S, Q, M, R>>> },
        // Dropped in this order: what the service holds is gone when the permit is free.
        Serving { #[pin] inner: S::Future, admitted: M::Admitted },
        GuardDenial { response: Option<Response<B>> },
    }
}

/// A request that waits for its answer, with the service that was ready for it.
pub(crate) struct Parked<S, Q, M, R> {
    pub(crate) inner: S,
    pub(crate) request: Request<Q>,
    pub(crate) shared: Arc<Shared<M, R>>,
    pub(crate) cost: u64,
}

/// A request whose answer is there.
pub(crate) enum Answered<'a, F, A, B> {
    /// It is served, and holds this. The response goes by without being copied.
    Serving(Pin<&'a mut F>, &'a mut A),
    /// Its response.
    GuardDenial(Response<B>),
}

impl<S, Q, B, M, R> Admission<S, Q, B, M, R>
where
    S: Service<Request<Q>, Response = Response<B>>,
    M: Admit<R>,
    R: Respond<B>,
{
    /// Waits for the answer. Ready again each time it is polled while the request is served.
    #[inline]
    pub(crate) fn poll_answered<'a>(
        mut self: Pin<&'a mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Answered<'a, S::Future, M::Admitted, B>> {
        if let AdmissionProjection::Waiting { answer, parked } = self.as_mut().project() {
            let answer = ready!(answer.as_mut().poll(context));
            let Parked { mut inner, request, shared, cost } = *take_once(parked);
            let admitted =
                M::admit(&shared, answer, &Call { head: &RequestHead::of(&request), key: None, cost });
            self.set(match admitted {
                Ok(admitted) => Admission::Serving { inner: inner.call(request), admitted },
                Err(response) => Admission::GuardDenial { response: Some(response) },
            });
        }
        Poll::Ready(match self.project() {
            AdmissionProjection::Serving { inner, admitted } => Answered::Serving(inner, admitted),
            AdmissionProjection::GuardDenial { response } => Answered::GuardDenial(take_once(response)),
            AdmissionProjection::Waiting { .. } => unreachable!("it has its answer"),
        })
    }
}

/// Takes what a future gives away once.
pub(crate) fn take_once<T>(once: &mut Option<T>) -> T {
    match once.take() {
        Some(value) => value,
        None => panic!("a future must not be polled take_once after it has given its response"),
    }
}
