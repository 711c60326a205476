//! The attempts of one request: the first with the service that is ready, retries with copies of
//! both.

use super::{Fallback, Shared};
use crate::future::take_once;
use crate::request_head::RequestHead;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, Method, Request, Response, Uri};
use pin_project_lite::pin_project;
use sluicegate_guard::guard::Attempts;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// Copies requests for retries: [`NoRetry`] or [`RetryWith`].
pub trait CloneRequest<Q> {
    /// Returns a copy, or `None` if the request must not be made twice.
    fn clone_request(&self, request: &Request<Q>) -> Option<Request<Q>>;
}

/// No copies: every request is sent once.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoRetry;

impl<Q> CloneRequest<Q> for NoRetry {
    #[inline]
    fn clone_request(&self, _: &Request<Q>) -> Option<Request<Q>> {
        None
    }
}

/// Copies requests with a closure: [`crate::GuardLayer::retry_with`].
#[derive(Debug)]
pub struct RetryWith<F>(Arc<F>);

impl<F> RetryWith<F> {
    pub(super) fn new(copy: F) -> RetryWith<F> {
        RetryWith(Arc::new(copy))
    }
}

/// The closure is shared, so that it need not be `Clone`.
impl<F> Clone for RetryWith<F> {
    fn clone(&self) -> RetryWith<F> {
        RetryWith(Arc::clone(&self.0))
    }
}

impl<Q, F: Fn(&Request<Q>) -> Option<Request<Q>>> CloneRequest<Q> for RetryWith<F> {
    fn clone_request(&self, request: &Request<Q>) -> Option<Request<Q>> {
        (self.0)(request)
    }
}

/// One request that goes through a guard.
pub(crate) struct RequestAttempts<S, Q, R, C, F> {
    pub(super) shared: Arc<Shared<R, C, F>>,
    /// The service and the request of the next attempt.
    next: Option<Next<S, Q>>,
    /// What is kept of a request that was sent.
    sent: Sent,
}

struct Next<S, Q> {
    service: S,
    /// Whether the service is known to be ready; a clone is not.
    is_ready: bool,
    request: Request<Q>,
}

impl<S, Q, R, C, F> RequestAttempts<S, Q, R, C, F> {
    #[inline]
    pub(super) fn new(shared: Arc<Shared<R, C, F>>, ready: S, request: Request<Q>) -> Self {
        let next = Some(Next { service: ready, is_ready: true, request });
        RequestAttempts { shared, next, sent: Sent::default() }
    }

    /// Passes the head, or what is kept of it, to a closure.
    pub(super) fn with_head<T>(&self, look: impl FnOnce(RequestHead<'_>) -> T) -> T {
        if let Some(next) = &self.next {
            return look(RequestHead::of(&next.request));
        }
        let Sent { method, uri, content_type: headers } = &self.sent;
        look(RequestHead { method, uri, headers, extensions: &Extensions::new() })
    }
}

impl<S, Q, R, C, F, B> Attempts for RequestAttempts<S, Q, R, C, F>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    C: CloneRequest<Q>,
    F: Fallback<B>,
{
    type Value = Response<B>;
    type Error = S::Error;
    type Future = Attempt<S, Q>;

    fn start(&mut self) -> Attempt<S, Q> {
        let Next { mut service, is_ready, request } = take_once(&mut self.next);
        if self.shared.guard.has_timeout() || self.shared.fallback.responder().is_some() {
            self.sent = Sent::of(&request);
        }
        let copy = self.shared.copy.clone_request(&request);
        self.next = copy.map(|request| Next { service: service.clone(), is_ready: false, request });
        if is_ready {
            return Attempt::Calling { response: service.call(request) };
        }
        Attempt::Readying { parked: Some(Box::new((service, request))) }
    }

    fn may_retry(&self) -> bool {
        self.next.is_some()
    }
}

pin_project! {
    /// One attempt.
    #[project = AttemptNow]
    pub(crate) enum Attempt<S, Q>
    where
        S: Service<Request<Q>>,
    {
        // Only a retry waits for its service. Boxed, since the request would make every future
        // large.
        Readying { parked: Option<Box<(S, Request<Q>)>> },
        Calling { #[pin] response: S::Future },
    }
}

impl<S: Service<Request<Q>>, Q> Future for Attempt<S, Q> {
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let AttemptNow::Readying { parked } = self.as_mut().project() {
            if let Some(parked) = parked {
                ready!(parked.0.poll_ready(context))?;
            }
            let (mut service, request) = *take_once(parked);
            self.set(Attempt::Calling { response: service.call(request) });
        }
        match self.project() {
            AttemptNow::Calling { response } => response.poll(context),
            AttemptNow::Readying { .. } => Poll::Pending,
        }
    }
}

/// What is kept of a request for the writer of a response in its place.
#[derive(Default)]
struct Sent {
    method: Method,
    uri: Uri,
    /// Nothing else: copying all fields would cost every request what few need.
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
