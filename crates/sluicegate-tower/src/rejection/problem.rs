//! Problem details (RFC 9457).

use super::{Reason, Rejection, Respond, grpc};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use sluicegate::http_fields::QUOTA_EXCEEDED;
use std::fmt::Write as _;

/// Responds with `application/problem+json`, and to gRPC calls with a gRPC status. This is the
/// default.
///
/// ```json
/// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Rate limit exceeded",
///  "status":429,"detail":"denied by `api`; retry in 12 s","violated-policies":["api"]}
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct ProblemDetails;

impl<B: From<Bytes>> Respond<B> for ProblemDetails {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        if let Some(content_type) = rejection.grpc() {
            return grpc::trailers_only(rejection, content_type.clone(), B::from(Bytes::new()));
        }
        let mut response = Response::new(B::from(Bytes::from(problem(rejection))));
        *response.status_mut() = rejection.status();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

fn problem(rejection: &Rejection<'_>) -> String {
    let status = rejection.status();
    let (kind, title) = match &rejection.reason {
        Reason::Denied(_) => (QUOTA_EXCEEDED, "Rate limit exceeded"),
        Reason::TooManyInFlight(_) => (QUOTA_EXCEEDED, "Too many requests in flight"),
        // RFC 9457's type for problems that the status describes.
        _ => ("about:blank", status.canonical_reason().unwrap_or_default()),
    };
    let detail = escaped(&rejection.detail());
    let mut text =
        format!(r#"{{"type":"{kind}","title":"{title}","status":{},"detail":"{detail}""#, status.as_u16());
    if let Reason::Denied(_) | Reason::TooManyInFlight(_) = &rejection.reason {
        // A name that is quoted for a header field is valid in JSON too: it has nothing to escape.
        text += &format!(r#","violated-policies":[{}]"#, rejection.violated);
    }
    text + "}"
}

/// Escapes text for a JSON string.
fn escaped(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\\' => json.extend(['\\', char]),
            control if control < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            char => json.push(char),
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_escaped_for_json() {
        let text = "a \"quoted\" \\ line\nand\ttab \u{1} é";
        let read: String = serde_json::from_str(&format!("\"{}\"", escaped(text))).unwrap();
        assert_eq!(read, text);
    }
}
