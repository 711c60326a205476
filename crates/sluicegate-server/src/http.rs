//! HTTP and JSON, for whatever does not speak RESP. `docs/http.md` is the contract.
//!
//! ```text
//! bytes ─▶ connection ─▶ handler ─▶ codec ─▶ Call ─────▶ engine
//! bytes ◀─ connection ◀──────────── codec ◀─ Decided ◀────┘
//! ```
//!
//! `connection` is hyper's HTTP/1 on one socket, until the client leaves or the server stops;
//! `handler` knows which path leads where and who may ask; `codec` knows JSON and header fields,
//! and no meaning.

mod codec;
mod connection;
mod handler;

use crate::net::Stream;
use crate::protocol::{ConnectionHandler, Description};
use crate::service::Service;
use connection::Progress;
use std::net::SocketAddr;

pub(crate) struct Http;

impl ConnectionHandler for Http {
    const DESCRIPTION: Description = Description {
        name: "HTTP",
        id: "http",
        variable: "SLUICE_HTTP",
        flag: "--http",
        default_address: Some("127.0.0.1:8380"),
        alpn: &[b"http/1.1"],
        too_many_clients: b"",
    };

    fn serve(stream: impl Stream, _: SocketAddr, service: Service) -> impl Future<Output = ()> + Send {
        connection::serve(stream, service)
    }
}

/// What a request is answered with: what all connections share, and how far this one's request has
/// come.
struct Context {
    service: Service,
    progress: Progress,
}
