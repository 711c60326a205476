//! JSON into a question, an answer into JSON and header fields. `docs/http.md` has the shapes; nothing here knows what is
//! done with a question.
//!
//! `question.rs` reads bodies, `answer.rs` writes them, `headers.rs` writes the fields of a decision.

mod answer;
mod headers;
mod question;

pub(super) use answer::{Answer, Besides, Done, Fields, Next};
pub(super) use headers::RateLimit;
pub(super) use question::{Asked, Call};
