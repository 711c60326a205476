//! The service: a request takes its place and goes on to the service behind, or is refused.

use super::body::HeldBody;
use super::places::{Granted, Places};
use super::{Hold, Shared};
use crate::backend::{Step, Undecided};
use crate::future::again;
use crate::head::Head;
use crate::key::RequestKey;
use crate::layer::WithoutKeyThen;
use crate::refusal::{Reason, Refusal, Respond};
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use sluicegate::Refusal as NoPlace;
use sluicegate::http_fields::quoted;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// A service behind a [`crate::ConcurrencyLayer`].
pub struct Concurrency<S, P, R> {
    inner: S,
    shared: Arc<Shared<P, R>>,
}

impl<S, P, R> Concurrency<S, P, R> {
    pub(super) fn new(inner: S, shared: Arc<Shared<P, R>>) -> Concurrency<S, P, R> {
        Concurrency { inner, shared }
    }

    /// The service behind it.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, P, R, Q, B> Service<Request<Q>> for Concurrency<S, P, R>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    P: Places,
    R: Respond<B>,
    B: Body,
{
    type Response = Response<HeldBody<B, P::Lease>>;
    type Error = S::Error;
    type Future = ConcurrencyFuture<S, Q, B, P, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let hold = self.shared.settings.hold;
        let lease = match self.shared.decide(&Head::of(&request)) {
            Then::Serve(lease) => lease,
            Then::Answer(response) => {
                return ConcurrencyFuture { state: State::Answered { response: Some(response) }, hold };
            }
            Then::Ask(asking) => {
                // The service that was ready is the one to call; its clone may not be.
                let clone = self.inner.clone();
                let inner = mem::replace(&mut self.inner, clone);
                let parked = Some(Box::new(Parked { inner, request, shared: Arc::clone(&self.shared) }));
                return ConcurrencyFuture { state: State::Asking { asking, parked }, hold };
            }
        };
        ConcurrencyFuture { state: State::Serving { inner: self.inner.call(request), lease }, hold }
    }
}

/// What to do with a request.
enum Then<B, P: Places> {
    Serve(Option<P::Lease>),
    Answer(Response<B>),
    /// The answer takes time.
    Ask(P::Asking),
}

impl<P: Places, R> Shared<P, R> {
    #[inline]
    fn decide<B>(&self, head: &Head<'_>) -> Then<B, P>
    where
        R: Respond<B>,
    {
        let settings = &self.settings;
        if settings.skip.as_ref().is_some_and(|is_skipped| is_skipped(head)) {
            return Then::Serve(None);
        }
        let extracted = settings.key.extract(head);
        let key = match &extracted {
            Ok(key) => key,
            Err(missing) => match settings.without_key.then(*missing) {
                WithoutKeyThen::Share => &RequestKey::SHARED,
                WithoutKeyThen::Pass => return Then::Serve(None),
                WithoutKeyThen::Refuse(reason) => return Then::Answer(self.refused(reason, head)),
            },
        };
        let cost = settings.cost.as_ref().map_or(1, |cost| cost(head));
        match settings.places.ask(key, cost, settings.max_wait) {
            Step::Now(Ok(Granted { refusal: None, lease, .. })) => Then::Serve(lease),
            Step::Now(answer) => match self.admit(answer, head) {
                Ok(lease) => Then::Serve(lease),
                Err(response) => Then::Answer(response),
            },
            Step::Later(asking) => Then::Ask(asking),
        }
    }

    /// What an answer comes to: a place, or the response that the client gets instead.
    fn admit<B>(
        &self,
        answer: Result<Granted<P::Lease>, Undecided>,
        head: &Head<'_>,
    ) -> Result<Option<P::Lease>, Response<B>>
    where
        R: Respond<B>,
    {
        let reason = match answer {
            Ok(Granted { refusal: None, lease, .. }) => return Ok(lease),
            // The semaphore has no room for anybody: that is not this client's doing.
            Ok(Granted { refusal: Some(NoPlace::NoRoom), .. }) => Reason::Full,
            Ok(Granted { refusal: Some(NoPlace::Never), decision, .. }) => Reason::TooManyAtOnce(decision),
            Ok(_) if self.settings.is_ours => Reason::Full,
            Ok(Granted { decision, .. }) => Reason::TooManyAtOnce(decision),
            Err(undecided) => Reason::Undecided(undecided),
        };
        Err(self.refused(reason, head))
    }

    #[cold]
    fn refused<B>(&self, reason: Reason, head: &Head<'_>) -> Response<B>
    where
        R: Respond<B>,
    {
        Refusal::new(reason, quoted(&self.settings.name), *head).answer(&self.respond)
    }
}

/// A request that waits for its place, with the service that was ready for it.
struct Parked<S, Q, P, R> {
    inner: S,
    request: Request<Q>,
    shared: Arc<Shared<P, R>>,
}

pin_project! {
    /// The response to come, of the service or of the layer. Dropping it returns its place, or leaves the line for one.
    pub struct ConcurrencyFuture<S, Q, B, P, R>
    where
        S: Service<Request<Q>>,
        P: Places,
    {
        #[pin]
        state: State<S, Q, B, P, R>,
        hold: Hold,
    }
}

pin_project! {
    #[project = Now]
    enum State<S, Q, B, P, R>
    where
        S: Service<Request<Q>>,
        P: Places,
    {
        // The request is in a box, as it would make the future of every other large.
        Asking { #[pin] asking: P::Asking, parked: Option<Box<Parked<S, Q, P, R>>> },
        // Dropped in this order: what the call holds is gone when its place is free.
        Serving { #[pin] inner: S::Future, lease: Option<P::Lease> },
        Answered { response: Option<Response<B>> },
    }
}

impl<S, Q, B, P, R> Future for ConcurrencyFuture<S, Q, B, P, R>
where
    S: Service<Request<Q>, Response = Response<B>>,
    P: Places,
    R: Respond<B>,
    B: Body,
{
    type Output = Result<Response<HeldBody<B, P::Lease>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                Now::Serving { inner, lease } => {
                    let result = ready!(inner.poll(context));
                    // It ends here if there is no response, or nobody cares for the body.
                    let lease = lease.take().filter(|_| *this.hold == Hold::UntilEnd);
                    return Poll::Ready(result.map(|response| holding(response, lease)));
                }
                Now::Answered { response } => return Poll::Ready(Ok(holding(again(response), None))),
                Now::Asking { asking, parked } => {
                    let answer = ready!(asking.poll(context));
                    let Parked { mut inner, request, shared } = *again(parked);
                    match shared.admit(answer, &Head::of(&request)) {
                        Ok(lease) => State::Serving { inner: inner.call(request), lease },
                        Err(response) => State::Answered { response: Some(response) },
                    }
                }
            };
            this.state.set(next);
        }
    }
}

fn holding<B: Body, L>(response: Response<B>, lease: Option<L>) -> Response<HeldBody<B, L>> {
    response.map(|body| HeldBody::new(body, lease))
}

impl<S: Clone, P, R> Clone for Concurrency<S, P, R> {
    fn clone(&self) -> Self {
        Concurrency { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S: fmt::Debug, P, R> fmt::Debug for Concurrency<S, P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrency").field("inner", &self.inner).finish_non_exhaustive()
    }
}
