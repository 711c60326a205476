//! The Redis protocol, RESP2 and RESP3: any Redis client in any language works.
//!
//! ```text
//! bytes ─▶ codec ─▶ commands, several at once ─▶ handler ─▶ engine
//! bytes ◀─ codec ◀─ replies, in the same order ◀────┘
//! ```
//!
//! `codec` translates bytes and knows no meaning; `commands.rs` is the table of commands; `handler`
//! answers them; `session.rs` is the state of a client, `transaction.rs` the commands that it has
//! queued, `undelivered.rs` its undelivered leases; `connection` reads, writes and enforces
//! timeouts.

pub mod codec;

mod commands;
mod connection;
mod handler;
mod session;
mod transaction;
mod undelivered;

use crate::net::{Client, Stream};
use crate::protocol::{ConnectionHandler, Description};
use crate::service::Service;

pub use commands::usages;

pub(crate) struct Resp;

impl ConnectionHandler for Resp {
    const DESCRIPTION: Description = Description {
        name: "RESP",
        id: "resp",
        variable: "SLUICE_RESP",
        flag: "--resp",
        // Beside a Redis on its usual port.
        default_address: Some("127.0.0.1:6380"),
        alpn: &[],
        too_many_clients: b"-ERR max number of clients reached\r\n",
        has_probes: false,
    };

    async fn serve(stream: impl Stream, client: Client, service: Service) {
        connection::Connection::new(stream, client, &service).run().await;
    }
}
