//! The first part of every layer's response future: until the service serves the request. Written
//! by hand, so that an answer from memory needs no box.

use crate::common::{Admit, BackendCall, Shared};
use crate::rejection::Respond;
use crate::request_head::RequestHead;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// An answer that is not immediate.
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pin_project! {
    /// A request that waits for its answer, is served, or is rejected.
    #[project = AdmissionProjection]
    pub(crate) enum Admission<S, Q, B, M, R>
    where
        S: Service<Request<Q>>,
        M: Admit<R>,
    {
        // Boxed, since the request would make every future large.
        Waiting { answer: Later<M::Answer>, parked: Option<Box<Parked<S, Q, M, R>>> },
        // Dropped in this order: the service's resources are gone when the permit is free.
        Serving { #[pin] inner: S::Future, admitted: M::Admitted },
        GuardDenial { response: Option<Response<B>> },
    }
}

/// A request that waits for its answer, with the service that is ready for it.
pub(crate) struct Parked<S, Q, M, R> {
    pub(crate) inner: S,
    pub(crate) request: Request<Q>,
    pub(crate) shared: Arc<Shared<M, R>>,
    pub(crate) cost: u64,
}

/// A request with its answer.
pub(crate) enum Answered<'a, F, A, B> {
    /// It is served, and holds this. The response is not copied.
    Serving(Pin<&'a mut F>, &'a mut A),
    /// It is not served; this is its response.
    GuardDenial(Response<B>),
}

impl<S, Q, B, M, R> Admission<S, Q, B, M, R>
where
    S: Service<Request<Q>, Response = Response<B>>,
    M: Admit<R>,
    R: Respond<B>,
{
    /// Waits for the answer. While the request is served, it is ready whenever it is polled.
    #[inline]
    pub(crate) fn poll_answered<'a>(
        mut self: Pin<&'a mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Answered<'a, S::Future, M::Admitted, B>> {
        if let AdmissionProjection::Waiting { answer, parked } = self.as_mut().project() {
            let answer = ready!(answer.as_mut().poll(context));
            let Parked { mut inner, request, shared, cost } = *take_once(parked);
            let admitted =
                M::admit(&shared, answer, &BackendCall { head: &RequestHead::of(&request), key: None, cost });
            self.set(match admitted {
                Ok(admitted) => Admission::Serving { inner: inner.call(request), admitted },
                Err(response) => Admission::GuardDenial { response: Some(response) },
            });
        }
        Poll::Ready(match self.project() {
            AdmissionProjection::Serving { inner, admitted } => Answered::Serving(inner, admitted),
            AdmissionProjection::GuardDenial { response } => Answered::GuardDenial(take_once(response)),
            AdmissionProjection::Waiting { .. } => unreachable!("the answer is set above"),
        })
    }
}

/// Takes the value that a future returns once.
pub(crate) fn take_once<T>(once: &mut Option<T>) -> T {
    match once.take() {
        Some(value) => value,
        None => panic!("future polled after completion"),
    }
}
