//! Answers that are not a plain decision: mistakes as `{"error": ...}`, and the problem details of RFC 9457 for a denial
//! that is to be enforced and for a server that cannot decide.

use super::super::codec::Fields;
use crate::engine::RequestError;
use crate::wire::error_line;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sluicegate::http_fields::{QUOTA_EXCEEDED, STORE_RETRY_S};

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";
/// What RFC 9457 calls a problem whose status says it all.
const NO_TYPE: &str = "about:blank";

/// Why a request gets no decision.
pub(super) struct Rejection {
    pub(super) status: StatusCode,
    message: String,
    /// Whether a shared store gave no answer.
    of_store: bool,
}

impl Rejection {
    pub(super) fn new(status: StatusCode, message: impl AsRef<str>) -> Rejection {
        Rejection { status, message: error_line(message.as_ref()), of_store: false }
    }
}

/// Whether this says that a bound on clients was crossed.
pub(super) fn is_of_protocol(status: StatusCode) -> bool {
    matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT)
}

impl From<RequestError> for Rejection {
    fn from(mistake: RequestError) -> Rejection {
        let unavailable = mistake.is_unavailable();
        let status = if unavailable { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_REQUEST };
        Rejection { of_store: mistake.is_of_store(), ..Rejection::new(status, mistake.to_string()) }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Plain {
            error: String,
        }
        let Rejection { status, message, of_store } = self;
        if of_store {
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
struct Nothing {}

/// A denial that a caller wants to pass on as it is. It carries all that the plain answer does.
pub(super) fn denied<T: Serialize>(fields: &Fields<'_>, answer: &T, violated: &[String]) -> Response {
    let detail = match (fields.denied_by, fields.retry_after_ms) {
        (Some(limit), Some(wait)) => format!("{limit} says no; ask again in {wait} ms"),
        (Some(limit), None) => format!("{limit} says no, and will for as long as this is asked"),
        (None, Some(wait)) => format!("there is no room for another key; ask again in {wait} ms"),
        (None, None) => String::from("there is no room for another key"),
    };
    let problem = Problem {
        r#type: QUOTA_EXCEEDED,
        title: "The limit is used up",
        status: StatusCode::TOO_MANY_REQUESTS.as_u16(),
        detail: &detail,
        more: Exceeded { violated, answer },
    };
    with_type(json(StatusCode::TOO_MANY_REQUESTS, &problem), PROBLEM)
}

/// Nobody can decide just now.
pub(super) fn unavailable(detail: &str) -> Response {
    unavailable_with(detail, &Nothing {})
}

fn unavailable_with<T: Serialize>(detail: &str, more: &T) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let title = status.canonical_reason().unwrap_or_default();
    let problem = Problem { r#type: NO_TYPE, title, status: status.as_u16(), detail, more };
    with_type(json(status, &problem), PROBLEM)
}

/// A shared store gave no answer. It is nobody's limit, and so never a 429.
fn store_failed<T: Serialize>(detail: &str, more: &T) -> Response {
    let mut response = unavailable_with(detail, more);
    response.headers_mut().insert(RETRY_AFTER, STORE_RETRY_S.into());
    response
}

/// A denial that is to be enforced, because the store is away and the rule is to deny then.
pub(super) fn denied_without_store<T: Serialize>(answer: &T) -> Response {
    store_failed("the store is away, and the rule denies then", answer)
}

/// A value as JSON.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let mut response = match serde_json::to_vec(value) {
        Ok(bytes) => Response::new(Body::from(bytes)),
        // Cannot happen: only maps whose keys are not text fail, and there are none.
        Err(error) => return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    };
    *response.status_mut() = status;
    with_type(response, JSON)
}

fn with_type(mut response: Response, content_type: &'static str) -> Response {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
