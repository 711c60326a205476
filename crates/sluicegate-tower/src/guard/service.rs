//! The service: takes a request through the guard to the inner service, or responds in its place.

use super::attempts::{CloneRequest, RequestAttempts};
use super::classify::ResponseClassifier;
use super::{Fallback, Shared};
use crate::rejection::{Reason, Rejection, Respond};
use crate::request_head::RequestHead;
use http::{Request, Response};
use pin_project_lite::pin_project;
use sluicegate_guard::guard::{AttemptsCall, Failure};
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// A service behind a [`crate::GuardLayer`].
pub struct GuardService<S, R, C, F> {
    inner: S,
    shared: Arc<Shared<R, C, F>>,
}

impl<S, R, C, F> GuardService<S, R, C, F> {
    pub(super) fn new(inner: S, shared: Arc<Shared<R, C, F>>) -> GuardService<S, R, C, F> {
        GuardService { inner, shared }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, R, C, F, Q, B> Service<Request<Q>> for GuardService<S, R, C, F>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    R: Respond<B>,
    C: CloneRequest<Q>,
    F: Fallback<B>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = GuardFuture<S, Q, B, R, C, F>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The service that is ready is the one to call; its clone may not be.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let Shared { guard, classify, .. } = &*self.shared;
        let attempts = RequestAttempts::new(Arc::clone(&self.shared), ready, request);
        GuardFuture { call: guard.attempts(attempts, classify.clone()) }
    }
}

type GuardedCall<S, Q, R, C, F> = AttemptsCall<RequestAttempts<S, Q, R, C, F>, ResponseClassifier>;

pin_project! {
    /// The future response of the service or of the guard. Dropping it releases what it holds.
    #[must_use = "nothing is called until this is awaited"]
    pub struct GuardFuture<S, Q, B, R, C, F>
    where
        S: Service<Request<Q>, Response = Response<B>>,
        S: Clone,
        C: CloneRequest<Q>,
        F: Fallback<B>,
    {
        #[pin]
        call: GuardedCall<S, Q, R, C, F>,
    }
}

impl<S, Q, B, R, C, F> Future for GuardFuture<S, Q, B, R, C, F>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    R: Respond<B>,
    C: CloneRequest<Q>,
    F: Fallback<B>,
{
    type Output = Result<Response<B>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut call = self.project().call;
        let answer = match ready!(call.as_mut().poll(context)) {
            Ok(response) if !call.has_failed() => return Poll::Ready(Ok(response)),
            failure => failure,
        };
        let reason = match &answer {
            Ok(response) => Reason::Failed(Some(response.status())),
            Err(Failure::Denied(denied)) => Reason::GuardDenied(*denied),
            Err(Failure::TimedOut) => Reason::TimedOut,
            Err(_) => Reason::Failed(None),
        };
        let attempts = call.attempts();
        let Shared { guard, respond, fallback, .. } = &*attempts.shared;
        if let Some(instead) = fallback.responder()
            && let Some(_permit) = guard.try_fallback()
        {
            drop(answer);
            let respond_with =
                |head: RequestHead<'_>| instead.respond(&Rejection::new(reason, String::new(), head));
            return Poll::Ready(Ok(attempts.with_head(respond_with)));
        }
        // The failure itself: the service's own error, or that it was denied or timed out.
        Poll::Ready(answer.or_else(|failure| match failure.into_error() {
            Some(error) => Err(error),
            None => {
                Ok(attempts.with_head(|head| Rejection::new(reason, String::new(), head).answer(respond)))
            }
        }))
    }
}

impl<S: Clone, R, C, F> Clone for GuardService<S, R, C, F> {
    fn clone(&self) -> Self {
        GuardService { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, R, C, F> fmt::Debug for GuardService<S, R, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardService").field("inner", &self.inner).finish_non_exhaustive()
    }
}
