//! The future of a response, written by hand so that a decision made in memory costs no box.

use crate::backend::Backend;
use crate::fields::Fields;
use crate::layer::Shared;
use crate::passage::{Passage, Settled};
use crate::refusal::Respond;
use crate::service::Parked;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_service::Service;

pin_project! {
    /// The response to come, of the service or of the layer.
    pub struct ResponseFuture<S, Q, B, L, R>
    where
        S: Service<Request<Q>>,
        L: Backend,
    {
        #[pin]
        state: State<S, Q, B, L, R>,
    }
}

pin_project! {
    #[project = Now]
    enum State<S, Q, B, L, R>
    where
        S: Service<Request<Q>>,
        L: Backend,
    {
        // The decision is not there yet. The request is in a box, as it would make the future of every other large.
        Asking { #[pin] asking: L::Asking, parked: Option<Box<Parked<S, Q, L, R>>> },
        Serving { #[pin] inner: S::Future, passage: Passage<L, R> },
        // The response is there, and what it was charged is being written.
        Settling { #[pin] closing: L::Closing, over: Option<Box<Over<B, S::Error, L, R>>> },
        Answered { response: Option<Response<B>> },
    }
}

/// A request that is over but for its charge.
struct Over<B, E, L, R> {
    result: Result<Response<B>, E>,
    fields: Option<Fields>,
    shared: Arc<Shared<L, R>>,
}

impl<S: Service<Request<Q>>, Q, B, L: Backend, R> ResponseFuture<S, Q, B, L, R> {
    #[inline]
    pub(crate) fn serving(inner: S::Future, passage: Passage<L, R>) -> Self {
        ResponseFuture { state: State::Serving { inner, passage } }
    }

    pub(crate) fn answered(response: Response<B>) -> Self {
        ResponseFuture { state: State::Answered { response: Some(response) } }
    }

    pub(crate) fn asking(asking: L::Asking, parked: Parked<S, Q, L, R>) -> Self {
        ResponseFuture { state: State::Asking { asking, parked: Some(Box::new(parked)) } }
    }
}

impl<S, Q, B, L, R> Future for ResponseFuture<S, Q, B, L, R>
where
    S: Service<Request<Q>, Response = Response<B>>,
    L: Backend,
    R: Respond<B>,
{
    type Output = Result<Response<B>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                // The response goes by without being copied.
                Now::Serving { inner, passage } if passage.is_free() => return inner.poll(context),
                Now::Serving { inner, passage } => {
                    let mut result = ready!(inner.poll(context));
                    let head = result.as_ref().ok().map(|response| (response.status(), response.headers()));
                    match passage.end(head) {
                        Settled::Now(fields) => {
                            add(fields, &mut result);
                            return Poll::Ready(result);
                        }
                        Settled::Later { closing, fields, shared } => {
                            let over = Some(Box::new(Over { result, fields, shared }));
                            State::Settling { closing, over }
                        }
                    }
                }
                Now::Answered { response } => return Poll::Ready(Ok(again(response))),
                Now::Asking { asking, parked } => {
                    let answer = ready!(asking.poll(context));
                    let mut parked = again(parked);
                    match parked.admit(answer) {
                        Ok(passage) => State::Serving { inner: parked.inner.call(parked.request), passage },
                        Err(response) => State::Answered { response: Some(response) },
                    }
                }
                Now::Settling { closing, over } => {
                    let standing = ready!(closing.poll(context));
                    let Over { mut result, fields, shared } = *again(over);
                    let renewed = standing.and_then(|standing| shared.fields(&standing));
                    add(renewed.or(fields), &mut result);
                    return Poll::Ready(result);
                }
            };
            state.set(next);
        }
    }
}

fn add<B, E>(fields: Option<Fields>, result: &mut Result<Response<B>, E>) {
    if let (Some(fields), Ok(response)) = (fields, result) {
        fields.write(response.headers_mut());
    }
}

/// What is handed out once.
pub(crate) fn again<T>(once: &mut Option<T>) -> T {
    match once.take() {
        Some(value) => value,
        None => panic!("a future must not be polled again after it has given its response"),
    }
}
