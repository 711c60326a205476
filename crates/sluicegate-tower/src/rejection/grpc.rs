//! gRPC responses: the status is in the header fields of a response without a body, which gRPC
//! calls "trailers only".

use super::{Reason, Rejection, Respond};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
use sluicegate::RetryAfter;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// How long a client that retries automatically should wait, in milliseconds; negative if it should
/// not retry (gRFC A6).
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Responds with a gRPC status, `RESOURCE_EXHAUSTED` for a denial. For tonic, whose bodies can be
/// made empty but not from bytes.
#[derive(Clone, Copy, Default, Debug)]
pub struct GrpcStatus;

impl<B: Default> Respond<B> for GrpcStatus {
    fn respond(&self, rejection: &Rejection<'_>) -> Response<B> {
        let content_type = rejection.grpc().cloned();
        let plain = HeaderValue::from_static("application/grpc");
        trailers_only(rejection, content_type.unwrap_or(plain), B::default())
    }
}

pub(super) fn trailers_only<B>(
    rejection: &Rejection<'_>,
    content_type: HeaderValue,
    empty: B,
) -> Response<B> {
    let mut response = Response::new(empty);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(GRPC_STATUS, status(&rejection.reason));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&rejection.detail())) {
        headers.insert(GRPC_MESSAGE, message);
    }
    match rejection.retry_after() {
        Some(RetryAfter::After(wait)) => headers.insert(PUSHBACK, wait.as_millis_up().max(1).into()),
        Some(RetryAfter::Never) => headers.insert(PUSHBACK, HeaderValue::from_static("-1")),
        None => None,
    };
    response
}

/// Returns the number of the gRPC status.
fn status(reason: &Reason) -> HeaderValue {
    HeaderValue::from_static(match reason {
        Reason::Denied(_) | Reason::TooManyInFlight(_) => "8", // RESOURCE_EXHAUSTED
        Reason::MissingKey => "3",                             // INVALID_ARGUMENT
        Reason::Misconfigured(_) | Reason::Failed(_) => "13",  // INTERNAL
        Reason::BackendFailed(_) | Reason::GuardDenied(_) | Reason::AtCapacity => "14", // UNAVAILABLE
        Reason::TimedOut => "4",                               // DEADLINE_EXCEEDED
    })
}

/// Percent-encodes a message as gRPC does: `%`, and everything but printable ASCII.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            byte => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_plain_ascii() {
        assert_eq!(percent_encoded("100 % sûr\n"), "100 %25 s%C3%BBr%0A");
    }
}
