//! Translates JSON bodies to requests, and decisions to JSON bodies and header fields.
//! `docs/http.md` defines the shapes; nothing here knows what a request does.
//!
//! `request.rs` reads bodies, `response.rs` writes them, `headers.rs` writes the header fields of a
//! decision.

mod headers;
mod request;
mod response;

pub(super) use headers::{CallState, RateLimit};
pub(super) use request::{CallBody, RequestBody};
pub(super) use response::{AnswerBody, Done, Extra, Fields, NextBody, Usages};
