//! The service: a request goes through the guard to the service behind, or is answered in its place.

use super::judge::ByHead;
use super::tries::{CopyRequest, RequestTries};
use super::{Settings, Shared};
use crate::refusal::{Reason, Refusal, Respond};
use http::{Request, Response};
use pin_project_lite::pin_project;
use sluicegate::Outcome;
use sluicegate::guard::{ByTries, Call, Failure};
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// A service behind a [`crate::GuardLayer`].
pub struct Guarded<S, R, C> {
    inner: S,
    shared: Arc<Shared<R, C>>,
}

impl<S, R, C> Guarded<S, R, C> {
    pub(super) fn new(inner: S, shared: Arc<Shared<R, C>>) -> Guarded<S, R, C> {
        Guarded { inner, shared }
    }

    /// The service behind it.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, R, C, Q, B> Service<Request<Q>> for Guarded<S, R, C>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    R: Respond<B>,
    C: CopyRequest<Q>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = GuardedFuture<S, Q, B, R, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The service that was ready is the one to call; its clone may not be.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let Settings { guard, judge, .. } = &self.shared.settings;
        let tries = RequestTries::new(Arc::clone(&self.shared), ready, request);
        GuardedFuture { call: guard.tries(tries, judge.clone()) }
    }
}

type GuardedCall<S, Q, R, C> = Call<ByTries<RequestTries<S, Q, R, C>>, ByHead>;

pin_project! {
    /// The response to come, of the service or of the guard. Dropping it gives back whatever it holds.
    #[must_use = "nothing is called until this is awaited"]
    pub struct GuardedFuture<S, Q, B, R, C>
    where
        S: Service<Request<Q>, Response = Response<B>>,
        S: Clone,
        C: CopyRequest<Q>,
    {
        #[pin]
        call: GuardedCall<S, Q, R, C>,
    }
}

impl<S, Q, B, R, C> Future for GuardedFuture<S, Q, B, R, C>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    R: Respond<B>,
    C: CopyRequest<Q>,
{
    type Output = Result<Response<B>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut call = self.project().call;
        let answer = ready!(call.as_mut().poll(context));
        let tries = call.tries();
        let Settings { judge, falls_back, .. } = &tries.shared.settings;
        let reason = match answer {
            Ok(response) if !falls_back || judge.outcome(&response) != Outcome::Failure => {
                return Poll::Ready(Ok(response));
            }
            Ok(response) => Reason::Failed(Some(response.status())),
            Err(Failure::Refused(refused)) => Reason::Guarded(refused),
            Err(other) => match other.into_error() {
                Some(_) if *falls_back => Reason::Failed(None),
                Some(error) => return Poll::Ready(Err(error)),
                None => Reason::TimedOut,
            },
        };
        let respond = &tries.shared.respond;
        Poll::Ready(Ok(tries.with_head(|head| {
            let refusal = Refusal::new(reason, String::new(), head);
            if *falls_back { respond.respond(&refusal) } else { refusal.answer(respond) }
        })))
    }
}

impl<S: Clone, R, C> Clone for Guarded<S, R, C> {
    fn clone(&self) -> Self {
        Guarded { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, R, C> fmt::Debug for Guarded<S, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("inner", &self.inner).finish_non_exhaustive()
    }
}
