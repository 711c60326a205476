//! The network side of the server, whatever protocol is spoken: `listen.rs` accepts connections,
//! `connection_table.rs` decides which of them stay, `tls.rs` encrypts them, `peer_closed.rs`
//! detects that a client has closed one.

mod connection_table;
mod listen;
mod peer_closed;
pub mod tls;

pub use connection_table::ClosedFor;
pub(crate) use connection_table::{Client, Peer};
pub(crate) use listen::{Listener, closed_unestablished};
pub(crate) use peer_closed::{PeerCloseWatch, PeerClosed};

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to a client, plain or encrypted.
pub(crate) trait Stream: AsyncRead + AsyncWrite + PeerClosed + Unpin + Send + Sync + 'static {}

impl<S: AsyncRead + AsyncWrite + PeerClosed + Unpin + Send + Sync + 'static> Stream for S {}
