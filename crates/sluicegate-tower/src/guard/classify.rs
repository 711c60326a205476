//! Classifies an attempt by the head of its response.

use http::{HeaderMap, HeaderName, Response, StatusCode};
use sluicegate_guard::Outcome;
use sluicegate_guard::guard::Classify;
use std::sync::Arc;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

type Classifier = Arc<dyn Fn(StatusCode, &HeaderMap) -> Outcome + Send + Sync>;

/// The user's closure, or the default.
#[derive(Clone, Default)]
pub(crate) struct ResponseClassifier(Option<Classifier>);

impl ResponseClassifier {
    pub(super) fn of(
        classify: impl Fn(StatusCode, &HeaderMap) -> Outcome + Send + Sync + 'static,
    ) -> ResponseClassifier {
        ResponseClassifier(Some(Arc::new(classify)))
    }

    fn outcome<B>(&self, response: &Response<B>) -> Outcome {
        let (status, headers) = (response.status(), response.headers());
        match &self.0 {
            Some(classify) => classify(status, headers),
            None if status.is_server_error() || is_grpc_failure(headers) => Outcome::Failure,
            None => Outcome::Success,
        }
    }
}

impl<B, E> Classify<Response<B>, E> for ResponseClassifier {
    fn classify(&self, result: &Result<Response<B>, E>) -> Outcome {
        result.as_ref().map_or(Outcome::Failure, |response| self.outcome(response))
    }
}

/// Returns `true` if a gRPC call ended at once with a status that corresponds to 500 or more.
fn is_grpc_failure(headers: &HeaderMap) -> bool {
    let status = headers.get(GRPC_STATUS).map(http::HeaderValue::as_bytes);
    // UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS.
    matches!(status, Some(b"2" | b"4" | b"13" | b"14" | b"15"))
}
