//! Reads the body of a request, within bounds.

use super::super::connection::is_timeout;
use super::problem::Rejection;
use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use std::future::poll_fn;
use std::pin::Pin;

/// The largest buffer reserved ahead: a client that announces much and sends nothing costs no more.
const INITIAL_CAPACITY_MAX: usize = 4 * 1024;

/// Reads a body of at most `most` bytes. One that is announced as longer is not read at all.
pub(super) async fn read(mut body: Body, most: usize) -> Result<Vec<u8>, Rejection> {
    let too_large = || {
        let message = format!("the body has more than {most} bytes; split it into several requests");
        Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > most {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(announced.min(INITIAL_CAPACITY_MAX));
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        // Trailers are ignored.
        let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
        if data.len() > most - bytes.len() {
            return Err(too_large());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn broken(error: &axum::Error) -> Rejection {
    if is_timeout(error) {
        return Rejection::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time; send it without pauses",
        );
    }
    Rejection::new(StatusCode::BAD_REQUEST, format!("cannot read the body: {error}"))
}
