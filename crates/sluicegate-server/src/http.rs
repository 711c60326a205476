//! HTTP and JSON, for whatever does not speak RESP. `docs/http.md` is the contract.
//!
//! ```text
//! bytes ─▶ connection ─▶ handler ─▶ codec ─▶ question ─▶ engine
//! bytes ◀─ connection ◀──────────── codec ◀─ verdict ◀────┘
//! ```
//!
//! `connection` is hyper's HTTP/1 on one socket, until the client leaves or the server stops; `handler` knows which path
//! leads where and who may ask; `codec` knows JSON and header fields, and no meaning.

mod codec;
mod connection;
mod handler;

pub(crate) use connection::serve;

use crate::service::Service;
use connection::Progress;

/// What a request is answered with: what all connections share, and how far this one's request has come.
struct Context {
    service: Service,
    progress: Progress,
}
