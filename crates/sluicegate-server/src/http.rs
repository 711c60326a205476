//! HTTP with JSON, for clients that do not speak RESP. `docs/http.md` is the contract.
//!
//! ```text
//! bytes ─▶ connection ─▶ handler ─▶ codec ─▶ Call ─────▶ engine
//! bytes ◀─ connection ◀──────────── codec ◀─ Decided ◀────┘
//! ```
//!
//! `connection` runs hyper's HTTP/1 on one socket; `handler` routes and authorizes requests;
//! `codec` translates JSON and header fields, and knows no meaning.

mod codec;
mod connection;
mod handler;

use crate::net::{Client, Stream};
use crate::protocol::{ConnectionHandler, Description};
use crate::service::Service;
use connection::Progress;

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
        has_probes: true,
    };

    fn serve(stream: impl Stream, client: Client, service: Service) -> impl Future<Output = ()> + Send {
        connection::serve(stream, client, service)
    }
}

/// What answering a request needs: the shared state, and the progress of this connection's request.
struct Context {
    service: Service,
    progress: Progress,
}
