//! Answers that the layer gives itself, in place of the service behind it.

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

/// Why a request does not reach the service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The limit is used up.
    Denied(Decision),
    /// The request has no key, and such requests are refused.
    MissingKey,
    /// A mistake in the set-up, with what to do about it.
    Misconfigured(String),
    /// The backend gave no answer, as when its store is unavailable. The client is not told why.
    BackendFailed(sluicegate::backend::BackendError),
    /// As many of its key's requests are under way as may be at once: see
    /// [`crate::ConcurrencyLayer`].
    TooManyInFlight(Decision),
    /// As many requests are under way as the service takes, whoever they are of.
    AtCapacity,
    /// A guard did not let it through: see [`crate::GuardLayer`].
    GuardDenied(GuardDenial),
    /// It took longer than a guard lets it.
    TimedOut,
    /// The service failed, with a response of this status or without one. Only a fallback is told:
    /// [`crate::GuardLayer::fallback`].
    Failed(Option<StatusCode>),
}

/// A request that does not reach the service, for whoever writes the answer.
#[derive(Debug)]
pub struct Rejection<'a> {
    reason: Reason,
    /// Of the policies that said no, quoted.
    violated: String,
    head: RequestHead<'a>,
}

impl<'a> Rejection<'a> {
    pub(crate) fn new(reason: Reason, violated: String, head: RequestHead<'a>) -> Rejection<'a> {
        Rejection { reason, violated, head }
    }

    /// Why.
    pub fn reason(&self) -> &Reason {
        &self.reason
    }

    /// The request.
    pub fn head(&self) -> &RequestHead<'a> {
        &self.head
    }

    /// The status that fits: 429 for a rejection, 400 without a key, 503 if there is no answer, the
    /// service is full or a guard refuses it, 504 if it took too long, 500 for a mistake in the
    /// set-up; its own if the service failed, or 502 if it has none.
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

    /// After how many seconds to try again: when the same request would be admitted or, if there
    /// was no answer, when there may be one. `None` if that does not help.
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after().and_then(retry_after_s)
    }

    fn retry_after(&self) -> Option<RetryAfter> {
        match &self.reason {
            Reason::Denied(decision) => decision.retry_after(),
            // Without ttl nobody knows when a place is returned.
            Reason::TooManyInFlight(decision) => {
                decision.retry_after().filter(|after| *after != RetryAfter::After(UNKNOWN))
            }
            Reason::BackendFailed(_) => Some(RetryAfter::After(Duration::from_secs(STORE_RETRY_S).into())),
            Reason::GuardDenied(GuardDenial::Breaker(denied)) => Some(denied.retry_after()),
            // Nobody knows when a place comes: the least there is to tell.
            Reason::GuardDenied(_) | Reason::AtCapacity => Some(RetryAfter::After(Span::from_micros(1))),
            _ => None,
        }
    }

    /// In words for the client. What went wrong inside is not for it.
    fn detail(&self) -> String {
        match (&self.reason, self.retry_after_s()) {
            (Reason::Denied(_), Some(1)) => String::from("too many requests; come back in 1 second"),
            (Reason::Denied(_), Some(wait)) => format!("too many requests; come back in {wait} seconds"),
            (Reason::TooManyInFlight(_), Some(1)) => {
                String::from("too many requests at once; come back in 1 second")
            }
            (Reason::TooManyInFlight(_), Some(wait)) => {
                format!("too many requests at once; come back in {wait} seconds")
            }
            (Reason::TooManyInFlight(decision), None)
                if decision.retry_after() != Some(RetryAfter::Never) =>
            {
                String::from("too many requests at once; come back when one of them has ended")
            }
            (Reason::Denied(_) | Reason::TooManyInFlight(_), None) => {
                String::from("this request is above the limit and will never be admitted")
            }
            (Reason::MissingKey, _) => String::from("the request does not say whom to charge"),
            (Reason::Misconfigured(mistake), _) => mistake.clone(),
            (Reason::BackendFailed(_), _) => String::from("the limit cannot be looked up just now"),
            (Reason::GuardDenied(_) | Reason::AtCapacity, _) => {
                String::from("this is not available just now")
            }
            (Reason::TimedOut, _) => String::from("this took too long"),
            (Reason::Failed(_), _) => String::from("this has failed"),
        }
    }

    /// The content type of a gRPC call, if it is one.
    fn grpc(&self) -> Option<&'a HeaderValue> {
        let content_type = self.head.headers.get(CONTENT_TYPE)?;
        content_type.as_bytes().starts_with(b"application/grpc").then_some(content_type)
    }

    /// The answer, with the field that is due whoever has written it.
    pub(crate) fn answer<B>(&self, respond: &impl Respond<B>) -> Response<B> {
        let mut response = respond.respond(self);
        if let (Some(wait), false) = (self.retry_after_s(), response.headers().contains_key(RETRY_AFTER)) {
            response.headers_mut().insert(RETRY_AFTER, wait.into());
        }
        response
    }
}

/// Writes the answer to a request that does not reach the service. The layer adds `Retry-After`,
/// `RateLimit` and `RateLimit-Policy`.
pub trait Respond<B>: Send + Sync {
    /// The answer.
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B>;
}

/// Has a closure write the responses.
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

/// The closure is shared, so that it need not be `Clone` itself.
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
