//! Responses other than a plain decision: `{"error": ...}` for an invalid request, and the problem
//! details of RFC 9457 for an enforced denial and for a server that cannot decide.

use super::super::codec::Fields;
use crate::engine::RequestError;
use crate::wire::error_line;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sluicegate::Span;
use sluicegate::http_fields::{QUOTA_EXCEEDED, STORE_RETRY_S};

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";
/// RFC 9457's type of a problem that its status describes fully.
const NO_TYPE: &str = "about:blank";

/// Why a request has no decision.
pub(super) struct Rejection {
    pub(super) status: StatusCode,
    message: String,
    /// `true` if the shared store did not answer.
    is_store_failure: bool,
    retry_after_s: Option<u64>,
}

impl Rejection {
    /// The client has sent too much of something, and may try again later.
    pub(super) fn too_many(message: &str, wait: Span) -> Rejection {
        let retry_after_s = Some(wait.as_secs_up());
        Rejection { retry_after_s, ..Rejection::new(StatusCode::TOO_MANY_REQUESTS, message) }
    }

    pub(super) fn new(status: StatusCode, message: impl AsRef<str>) -> Rejection {
        Rejection {
            status,
            message: error_line(message.as_ref()),
            is_store_failure: false,
            retry_after_s: None,
        }
    }
}

/// Returns `true` if the status means that a limit on connections was exceeded.
pub(super) fn is_protocol_error(status: StatusCode) -> bool {
    matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT)
}

impl From<RequestError> for Rejection {
    fn from(error: RequestError) -> Rejection {
        let status = if error.is_unavailable() {
            StatusCode::SERVICE_UNAVAILABLE
        } else if error.is_not_open() {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::BAD_REQUEST
        };
        Rejection { is_store_failure: error.is_store_failure(), ..Rejection::new(status, error.to_string()) }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Plain {
            error: String,
        }
        let Rejection { status, message, is_store_failure, retry_after_s } = self;
        if is_store_failure {
            return store_failed(&message, &Plain { error: message.clone() });
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return unavailable(&message);
        }
        let mut response = json(status, &Plain { error: message });
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer realm=\"sluicegate\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        if let Some(seconds) = retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

#[derive(Serialize)]
struct Problem<'a, T: Serialize> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(flatten)]
    more: T,
}

#[derive(Serialize)]
struct Exceeded<'a, T: Serialize> {
    #[serde(rename = "violated-policies")]
    violated: &'a [String],
    #[serde(flatten)]
    answer: &'a T,
}

#[derive(Serialize)]
struct NoExtra {}

/// An enforced denial. It has all fields of the plain response, so that a proxy can pass it on as
/// is.
pub(super) fn denied<T: Serialize>(fields: &Fields<'_>, answer: &T, violated: &[String]) -> Response {
    let detail = match (fields.denied_by, fields.retry_after_ms) {
        (Some(limit), Some(wait)) => format!("denied by {limit}; retry in {wait} ms"),
        (Some(limit), None) => format!("denied by {limit}; retrying will not help"),
        (None, wait) => {
            let mut detail = match fields.full_pool {
                Some(pool) => format!("the store has no room: {pool} are at their maximum"),
                None => String::from("denied"),
            };
            if let Some(wait) = wait {
                detail.push_str(&format!("; retry in {wait} ms"));
            }
            detail
        }
    };
    let problem = Problem {
        r#type: QUOTA_EXCEEDED,
        title: "Rate limit exceeded",
        status: StatusCode::TOO_MANY_REQUESTS.as_u16(),
        detail: &detail,
        more: Exceeded { violated, answer },
    };
    with_type(json(StatusCode::TOO_MANY_REQUESTS, &problem), PROBLEM)
}

/// The server cannot decide now.
pub(super) fn unavailable(detail: &str) -> Response {
    unavailable_with(detail, &NoExtra {})
}

fn unavailable_with<T: Serialize>(detail: &str, more: &T) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let title = status.canonical_reason().unwrap_or_default();
    let problem = Problem { r#type: NO_TYPE, title, status: status.as_u16(), detail, more };
    with_type(json(status, &problem), PROBLEM)
}

/// The shared store did not answer. No limit was reached, so this is never a 429.
fn store_failed<T: Serialize>(detail: &str, more: &T) -> Response {
    let mut response = unavailable_with(detail, more);
    response.headers_mut().insert(RETRY_AFTER, STORE_RETRY_S.into());
    response
}

/// An enforced denial of a rule that fails closed.
pub(super) fn failed_closed<T: Serialize>(answer: &T) -> Response {
    store_failed("the store is unavailable, and the rule fails closed", answer)
}

/// A JSON response.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let mut response = match serde_json::to_vec(value) {
        Ok(bytes) => Response::new(Body::from(bytes)),
        // Cannot happen: only maps with keys that are not strings fail, and there are none.
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    *response.status_mut() = status;
    with_type(response, JSON)
}

fn with_type(mut response: Response, content_type: &'static str) -> Response {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
