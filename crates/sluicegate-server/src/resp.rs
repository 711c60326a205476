//! The Redis protocol, RESP2 and RESP3: any Redis client in any language works.
//!
//! ```text
//! bytes ─▶ codec ─▶ commands, several at once ─▶ handler ─▶ engine
//! bytes ◀─ codec ◀─ replies, in the same order ◀────┘
//! ```
//!
//! `codec` knows bytes and no meaning; `commands.rs` is the table of what there is; `handler` answers; `session.rs` is what
//! is remembered of a client, `owed.rs` the leases that it does not know of yet; `connection.rs` reads, writes, and looks at the clock.

pub mod codec;

mod commands;
mod connection;
mod handler;
mod owed;
mod session;

use crate::hang_up::HangUp;
use crate::service::Service;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};

pub use commands::usages;

/// Speaks with one client until it leaves, misbehaves, or the server stops.
pub(crate) async fn serve(
    stream: impl AsyncRead + AsyncWrite + HangUp + Unpin + Send,
    peer: SocketAddr,
    service: Service,
) {
    connection::Connection::new(stream, peer, &service).run().await;
}
