//! Responses that a layer writes itself, in place of the service.

mod grpc;
mod problem;

pub use grpc::GrpcStatus;
pub use problem::ProblemDetails;

use crate::RequestHead;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use sluicegate::http_fields::{STORE_RETRY_S, retry_after_s};
use sluicegate::{Decision, RetryAfter, Span};
use sluicegate_core::concurrency::UNKNOWN;
use sluicegate_guard::guard::GuardDenial;
use std::sync::Arc;
use std::time::Duration;

/// Why a request is not served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The limit denied it.
    Denied(Decision),
    /// The request has no key, and such requests are rejected.
    MissingKey,
    /// The layer is misconfigured; the text says what to do.
    Misconfigured(String),
    /// The backend failed, for example because its store is unavailable. The client does not learn
    /// why.
    BackendFailed(sluicegate::backend::BackendError),
    /// Its key has too many requests in flight: see [`crate::ConcurrencyLayer`].
    TooManyInFlight(Decision),
    /// The service has too many requests in flight, of all clients.
    AtCapacity,
    /// A guard denied it: see [`crate::GuardLayer`].
    GuardDenied(GuardDenial),
    /// It exceeded the timeout of a guard.
    TimedOut,
    /// The service failed, with a response of this status or without one. Only a fallback sees
    /// this: [`crate::GuardLayer::fallback`].
    Failed(Option<StatusCode>),
}

/// A request that is not served, for the writer of its response.
#[derive(Debug)]
pub struct Rejection<'a> {
    reason: Reason,
    /// The quoted names of the violated policies.
    violated: String,
    head: RequestHead<'a>,
}

impl<'a> Rejection<'a> {
    pub(crate) fn new(reason: Reason, violated: String, head: RequestHead<'a>) -> Rejection<'a> {
        Rejection { reason, violated, head }
    }

    /// Returns the reason.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// Returns the head of the request.
    pub fn head(&self) -> &RequestHead<'a> {
        &self.head
    }

    /// Returns the matching status: 429 for a denial, 400 without a key, 503 if the backend failed,
    /// the service is at capacity or a guard denied it, 504 for a timeout, 500 for a
    /// misconfiguration; for a failed service its own status, or 502 if there is none.
    pub fn status(&self) -> StatusCode {
        match &self.reason {
            Reason::Denied(_) | Reason::TooManyInFlight(_) => StatusCode::TOO_MANY_REQUESTS,
            Reason::MissingKey => StatusCode::BAD_REQUEST,
            Reason::Misconfigured(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Reason::BackendFailed(_) | Reason::GuardDenied(_) | Reason::AtCapacity => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Reason::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Reason::Failed(status) => status.unwrap_or(StatusCode::BAD_GATEWAY),
        }
    }

    /// Returns the wait in seconds after which to retry: until the same request would be admitted
    /// or, if the backend failed, a guess. `None` if a wait does not help or is unknown.
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after().and_then(retry_after_s)
    }

    fn retry_after(&self) -> Option<RetryAfter> {
        match &self.reason {
            Reason::Denied(decision) => decision.retry_after(),
            // Without a ttl it is unknown when a permit will be released.
            Reason::TooManyInFlight(decision) => {
                decision.retry_after().filter(|after| *after != RetryAfter::After(UNKNOWN))
            }
            Reason::BackendFailed(_) => Some(RetryAfter::After(Duration::from_secs(STORE_RETRY_S).into())),
            Reason::GuardDenied(GuardDenial::Breaker(denied)) => Some(denied.retry_after()),
            // It is unknown when a permit will be free: the shortest wait there is.
            Reason::GuardDenied(_) | Reason::AtCapacity => Some(RetryAfter::After(Span::from_micros(1))),
            _ => None,
        }
    }

    /// Returns a sentence for the client. Internal errors are not revealed.
    fn detail(&self) -> String {
        let (policy, retry_after_s) = (self.violated.trim_matches('"'), self.retry_after_s());
        let retry = retry_after_s.map_or(String::new(), |wait| format!("; retry in {wait} s"));
        match &self.reason {
            Reason::Denied(_) if retry_after_s.is_some() => format!("denied by `{policy}`{retry}"),
            Reason::TooManyInFlight(_) if retry_after_s.is_some() => {
                format!("too many requests in flight for `{policy}`{retry}")
            }
            Reason::TooManyInFlight(decision) if decision.retry_after() != Some(RetryAfter::Never) => {
                format!("too many requests in flight for `{policy}`; retry when one of them has ended")
            }
            Reason::Denied(_) | Reason::TooManyInFlight(_) => {
                format!("denied by `{policy}`: the cost exceeds the limit; retrying will not help")
            }
            Reason::MissingKey => String::from("the request has no key to charge"),
            Reason::Misconfigured(problem) => problem.clone(),
            Reason::BackendFailed(_) => format!("the limit cannot be checked now{retry}"),
            Reason::GuardDenied(_) | Reason::AtCapacity => format!("temporarily unavailable{retry}"),
            Reason::TimedOut => String::from("the service did not respond in time"),
            Reason::Failed(_) => String::from("the service failed"),
        }
    }

    /// Returns the content type if it is a gRPC call.
    fn grpc(&self) -> Option<&'a HeaderValue> {
        let content_type = self.head.headers.get(CONTENT_TYPE)?;
        content_type.as_bytes().starts_with(b"application/grpc").then_some(content_type)
    }

    /// Returns the response, with `Retry-After` even if the writer omitted it.
    pub(crate) fn answer<B>(&self, respond: &impl Respond<B>) -> Response<B> {
        let mut response = respond.respond(self);
        if let (Some(wait), false) = (self.retry_after_s(), response.headers().contains_key(RETRY_AFTER)) {
            response.headers_mut().insert(RETRY_AFTER, wait.into());
        }
        response
    }
}

/// Writes the response to a request that is not served. The layer adds `Retry-After`, `RateLimit`
/// and `RateLimit-Policy`.
pub trait Respond<B>: Send + Sync {
    /// Returns the response.
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B>;
}

/// Writes responses with a closure.
///
/// ```
/// # use sluicegate::Limiter;
/// # use sluicegate_tower::RateLimitLayer;
/// # use http::Response;
/// # let limiter = Limiter::new("token-bucket 10/s")?;
/// let layer = RateLimitLayer::new(limiter).respond_with(|rejection| {
///     let mut response = Response::new(String::from("slow down"));
///     *response.status_mut() = rejection.status();
///     response
/// });
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Debug)]
pub struct RespondWith<F>(Arc<F>);

impl<F> RespondWith<F> {
    pub(crate) fn new(respond: F) -> RespondWith<F> {
        RespondWith(Arc::new(respond))
    }
}

/// The closure is shared, so that it need not be `Clone`.
impl<F> Clone for RespondWith<F> {
    fn clone(&self) -> RespondWith<F> {
        RespondWith(Arc::clone(&self.0))
    }
}

impl<B, F> Respond<B> for RespondWith<F>
where
    F: Fn(&Rejection<'_>) -> Response<B> + Send + Sync,
{
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        (self.0)(rejection)
    }
}
