//! The tries of one request: the first with the service that was ready for it, and further ones with copies of both.

use super::{Fallback, Shared};
use crate::future::again;
use crate::head::Head;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, Method, Request, Response, Uri};
use pin_project_lite::pin_project;
use sluicegate_guard::guard::Tries;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// Makes copies of requests, for further tries. There are [`Once`] and [`RetryWith`].
pub trait CopyRequest<Q> {
    /// A copy, or none if the request must not be made twice.
    fn copy(&self, request: &Request<Q>) -> Option<Request<Q>>;
}

/// No copies: requests are made once.
#[derive(Clone, Copy, Default, Debug)]
pub struct Once;

impl<Q> CopyRequest<Q> for Once {
    #[inline]
    fn copy(&self, _: &Request<Q>) -> Option<Request<Q>> {
        None
    }
}

/// Copies that a closure makes: [`crate::GuardLayer::retry_with`].
#[derive(Debug)]
pub struct RetryWith<F>(Arc<F>);

impl<F> RetryWith<F> {
    pub(super) fn new(copy: F) -> RetryWith<F> {
        RetryWith(Arc::new(copy))
    }
}

/// The closure is shared, so that it need not be `Clone` itself.
impl<F> Clone for RetryWith<F> {
    fn clone(&self) -> RetryWith<F> {
        RetryWith(Arc::clone(&self.0))
    }
}

impl<Q, F: Fn(&Request<Q>) -> Option<Request<Q>>> CopyRequest<Q> for RetryWith<F> {
    fn copy(&self, request: &Request<Q>) -> Option<Request<Q>> {
        (self.0)(request)
    }
}

/// One request on its way through a guard.
pub(crate) struct RequestTries<S, Q, R, C, F> {
    pub(super) shared: Arc<Shared<R, C, F>>,
    /// What the next try is made of.
    next: Option<Next<S, Q>>,
    /// What is kept of a request that was sent.
    sent: Sent,
}

struct Next<S, Q> {
    service: S,
    /// Whether the service has said so; a clone has not.
    is_ready: bool,
    request: Request<Q>,
}

impl<S, Q, R, C, F> RequestTries<S, Q, R, C, F> {
    #[inline]
    pub(super) fn new(shared: Arc<Shared<R, C, F>>, ready: S, request: Request<Q>) -> Self {
        let next = Some(Next { service: ready, is_ready: true, request });
        RequestTries { shared, next, sent: Sent::default() }
    }

    /// What is still known of the request.
    pub(super) fn with_head<T>(&self, look: impl FnOnce(Head<'_>) -> T) -> T {
        if let Some(next) = &self.next {
            return look(Head::of(&next.request));
        }
        let Sent { method, uri, content_type: headers } = &self.sent;
        look(Head { method, uri, headers, extensions: &Extensions::new() })
    }
}

impl<S, Q, R, C, F, B> Tries for RequestTries<S, Q, R, C, F>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    C: CopyRequest<Q>,
    F: Fallback<B>,
{
    type Value = Response<B>;
    type Error = S::Error;
    type Future = Try<S, Q>;

    fn begin(&mut self) -> Try<S, Q> {
        let Next { mut service, is_ready, request } = again(&mut self.next);
        if self.shared.guard.is_timed() || self.shared.fallback.instead().is_some() {
            self.sent = Sent::of(&request);
        }
        let copy = self.shared.copy.copy(&request);
        self.next = copy.map(|request| Next { service: service.clone(), is_ready: false, request });
        if is_ready {
            return Try::Calling { response: service.call(request) };
        }
        Try::Readying { parked: Some(Box::new((service, request))) }
    }

    fn may_retry(&self) -> bool {
        self.next.is_some()
    }
}

pin_project! {
    /// One try.
    #[project = TryNow]
    pub(crate) enum Try<S, Q>
    where
        S: Service<Request<Q>>,
    {
        // Only a further try waits for its service. The request is in a box, as it would make the future of every other large.
        Readying { parked: Option<Box<(S, Request<Q>)>> },
        Calling { #[pin] response: S::Future },
    }
}

impl<S: Service<Request<Q>>, Q> Future for Try<S, Q> {
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let TryNow::Readying { parked } = self.as_mut().project() {
            if let Some(parked) = parked {
                ready!(parked.0.poll_ready(context))?;
            }
            let (mut service, request) = *again(parked);
            self.set(Try::Calling { response: service.call(request) });
        }
        match self.project() {
            TryNow::Calling { response } => response.poll(context),
            TryNow::Readying { .. } => Poll::Pending,
        }
    }
}

/// What is kept of a request for whoever writes an answer in its place.
#[derive(Default)]
struct Sent {
    method: Method,
    uri: Uri,
    /// Nothing else: to copy all fields would cost every request what few need.
    content_type: HeaderMap,
}

impl Sent {
    fn of<Q>(request: &Request<Q>) -> Sent {
        let mut content_type = HeaderMap::new();
        if let Some(value) = request.headers().get(CONTENT_TYPE) {
            content_type.insert(CONTENT_TYPE, value.clone());
        }
        Sent { method: request.method().clone(), uri: request.uri().clone(), content_type }
    }
}
