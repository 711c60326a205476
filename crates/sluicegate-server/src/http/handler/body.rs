//! A request's body, within bounds.

use super::super::connection::is_too_slow;
use super::problem::Rejection;
use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use std::future::poll_fn;
use std::pin::Pin;

/// Room made before anything has come: a client that announces much and sends nothing costs no more.
const ROOM_AT_FIRST: usize = 4 * 1024;

/// All of the body, of at most `most` bytes. What is announced as longer is not read at all.
pub(super) async fn read(mut body: Body, most: usize) -> Result<Vec<u8>, Rejection> {
    let too_large = || {
        let message = format!("the body has more than {most} bytes; send less at once");
        Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > most {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(announced.min(ROOM_AT_FIRST));
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        // Trailers say nothing to us.
        let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
        if data.len() > most - bytes.len() {
            return Err(too_large());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn broken(error: &axum::Error) -> Rejection {
    if is_too_slow(error) {
        return Rejection::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body took too long to come; send it at once",
        );
    }
    Rejection::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"))
}
