//! Limits on client connections: counts, sizes and timeouts. Not rate limits.
//!
//! Each has a name, a default and a test that exceeds it. Bounds that need no setting, such as the
//! longest password, are constants beside the code that enforces them.

use crate::engine::RequestError;
use sluicegate::Span;
use std::time::Duration;

/// A client that has fallen behind must read all pending replies within this many times
/// [`unread_timeout`](ConnectionLimits::unread_timeout). With the defaults that is 64 KiB
/// ([`unread_replies_max`](ConnectionLimits::unread_replies_max)) and one reply per minute, about 1
/// KiB per second. Over HTTP it applies to each response.
pub const UNREAD_TIMEOUTS_MAX: u32 = 6;

/// Limits on client connections, of every protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// The most connections at once, per protocol.
    pub connections_max: usize,
    /// A connection that is silent for this long is closed. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// How long a client may take to complete a command or request.
    pub request_timeout: Duration,
    /// How long a client may take from connecting to its first complete request, the TLS handshake
    /// included; with a password, to its first authenticated one.
    pub handshake_timeout: Duration,
    /// The most arguments of a RESP command, including its name.
    pub arguments_max: usize,
    /// The longest argument of a RESP command, in bytes.
    pub bulk_len_max: usize,
    /// The longest RESP command, in bytes; also the longest inline command.
    pub command_len_max: usize,
    /// The most bytes of replies that may be pending for a RESP client that does not read. Beyond
    /// it, nothing more is read from the client.
    pub unread_replies_max: usize,
    /// A client that reads nothing of its replies for this long is disconnected, and so is one that
    /// has not read all of them in [`UNREAD_TIMEOUTS_MAX`] times as long: reading a byte now and
    /// then does not keep a connection. When the server stops, clients have this long to read their
    /// last replies.
    pub unread_timeout: Duration,
    /// The longest `max_wait` for a lease. `None`: calls never wait.
    pub lease_wait_max: Option<Duration>,
    /// The longest head of an HTTP request, in bytes.
    pub request_head_max: usize,
    /// The longest body of an HTTP request, in bytes.
    pub request_body_max: usize,
}

impl ConnectionLimits {
    /// How long a client may take to read all pending replies.
    pub fn answer_timeout(&self) -> Duration {
        self.unread_timeout.saturating_mul(UNREAD_TIMEOUTS_MAX)
    }

    /// Checks a `max_wait` for a lease against `lease_wait_max`.
    ///
    /// # Errors
    /// If it is longer.
    pub fn wait_for_lease(&self, max_wait: Span) -> Result<Span, RequestError> {
        let most = self.lease_wait_max.unwrap_or(Duration::ZERO);
        if Duration::from(max_wait) <= most {
            return Ok(max_wait);
        }
        Err(RequestError::new(if most.is_zero() {
            "waiting for leases is disabled (lease_wait_max = \"off\"); retry after retry_after".to_owned()
        } else {
            let (requested, most) = (max_wait.as_millis_up(), most.as_millis());
            format!("a wait of {requested} ms is too long; use at most {most} ms (lease_wait_max) and retry")
        }))
    }
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            connections_max: 10_000,
            idle_timeout: Some(Duration::from_secs(300)),
            request_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            // Enough for RL.CHECKALL with 64 calls.
            arguments_max: 256,
            bulk_len_max: 128 * 1024,
            command_len_max: 256 * 1024,
            unread_replies_max: 64 * 1024,
            unread_timeout: Duration::from_secs(10),
            lease_wait_max: Some(Duration::from_secs(60)),
            request_head_max: 16 * 1024,
            request_body_max: 256 * 1024,
        }
    }
}
