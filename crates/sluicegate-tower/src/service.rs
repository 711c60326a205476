//! The service: a request comes in, is decided on, and goes on to the service behind or not.

use crate::backend::{Backend, Step};
use crate::future::ResponseFuture;
use crate::head::Head;
use crate::key::RequestKey;
use crate::layer::{Shared, WithoutKeyThen};
use crate::passage::Passage;
use crate::refusal::{Refusal, Respond};
use http::{Request, Response};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service behind a [`crate::RateLimitLayer`].
pub struct RateLimit<S, L, R> {
    inner: S,
    shared: Arc<Shared<L, R>>,
}

/// A request that waits for its decision, with the service that was ready for it.
pub(crate) struct Parked<S, Q, L, R> {
    pub(crate) inner: S,
    pub(crate) request: Request<Q>,
    pub(crate) shared: Arc<Shared<L, R>>,
    pub(crate) cost: u32,
}

impl<S, L, R> RateLimit<S, L, R> {
    pub(crate) fn new(inner: S, shared: Arc<Shared<L, R>>) -> RateLimit<S, L, R> {
        RateLimit { inner, shared }
    }

    /// The service behind it.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, L, R, Q, B> Service<Request<Q>> for RateLimit<S, L, R>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    L: Backend,
    R: Respond<B>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = ResponseFuture<S, Q, B, L, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The service is called in one place only: a request and a future are large, and are copied less often so.
        let passage = match self.shared.decide(&Head::of(&request)) {
            Then::Serve(passage) => passage,
            Then::Answer(response) => return ResponseFuture::answered(response),
            Then::Ask { asking, cost } => {
                // The service that was ready is the one to call; its clone may not be.
                let clone = self.inner.clone();
                let inner = mem::replace(&mut self.inner, clone);
                let shared = Arc::clone(&self.shared);
                return ResponseFuture::asking(asking, Parked { inner, request, shared, cost });
            }
        };
        ResponseFuture::serving(self.inner.call(request), passage)
    }
}

/// What to do with a request.
enum Then<B, L: Backend, R> {
    Serve(Passage<L, R>),
    Answer(Response<B>),
    /// The decision takes time.
    Ask {
        asking: L::Asking,
        cost: u32,
    },
}

impl<L: Backend, R> Shared<L, R> {
    #[inline]
    fn decide<B>(self: &Arc<Self>, head: &Head<'_>) -> Then<B, L, R>
    where
        R: Respond<B>,
    {
        let settings = &self.settings;
        if settings.skip.as_ref().is_some_and(|is_skipped| is_skipped(head)) {
            return Then::Serve(Passage::free());
        }
        // The key stays where it was written: to copy what was just written in small pieces takes longer than to write it.
        let extracted = settings.key.extract(head);
        let key = match &extracted {
            Ok(key) => key,
            Err(missing) => match self.without_key(*missing, head) {
                WithoutKeyThen::Share => &RequestKey::SHARED,
                WithoutKeyThen::Refuse(reason) => {
                    return Then::Answer(Refusal::new(reason, String::new(), *head).answer(&self.respond));
                }
                WithoutKeyThen::Pass => return Then::Serve(Passage::free()),
            },
        };
        let ask = settings.ask(head);
        match settings.limiter.ask(key, ask) {
            Step::Now(answer) => match self.admit(answer, ask.cost, head, key) {
                Ok(passage) => Then::Serve(passage),
                Err(response) => Then::Answer(response),
            },
            Step::Later(asking) => Then::Ask { asking, cost: ask.cost },
        }
    }
}

impl<S, Q, L: Backend, R> Parked<S, Q, L, R> {
    /// What the answer comes to, as if it had been there at once.
    pub(crate) fn admit<B>(
        &self,
        answer: crate::backend::Answer<L::Held>,
    ) -> Result<Passage<L, R>, Response<B>>
    where
        R: Respond<B>,
    {
        let head = Head::of(&self.request);
        // Only an observer wants to know the key again.
        let key = match &self.shared.settings.observe {
            Some(_) => self.shared.settings.key.extract(&head).unwrap_or(RequestKey::SHARED),
            None => RequestKey::SHARED,
        };
        self.shared.admit(answer, self.cost, &head, &key)
    }
}

impl<S: Clone, L, R> Clone for RateLimit<S, L, R> {
    fn clone(&self) -> Self {
        RateLimit { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, L, R> fmt::Debug for RateLimit<S, L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
