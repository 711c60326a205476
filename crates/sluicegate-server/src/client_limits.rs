//! What a client may ask of the server before it is turned away. Each bound has a name, a default and a test that crosses it.
//! What nobody has to set (how long a password is, what may be said before it, a client's name) is a constant beside the code
//! that keeps it.

use crate::engine::RequestError;
use sluicegate::Span;
use std::time::Duration;

/// How many times [`unread_timeout`](ClientLimits::unread_timeout) a client may take to read all replies that waited when
/// it fell behind, at most [`unread_replies_max`](ClientLimits::unread_replies_max) and one reply: with the defaults a
/// minute for 64 KiB, about 1 KiB a second. In HTTP it is so for each answer.
pub const UNREAD_TIMEOUTS_MAX: u32 = 6;

/// Bounds on clients, whatever protocol they speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientLimits {
    /// How many clients may be connected at once, of each protocol.
    pub connections_max: usize,
    /// A connection that has sent nothing for so long is closed. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// How long a client may take to send the rest of a command or request that it has begun.
    pub request_timeout: Duration,
    /// A RESP client has so long to say its password, and to finish the TLS handshake.
    pub handshake_timeout: Duration,
    /// The most arguments of a RESP command, its name included.
    pub arguments_max: usize,
    /// The longest argument of a RESP command, in bytes.
    pub bulk_len_max: usize,
    /// The longest RESP command in bytes, all of it; also the longest line of an inline command.
    pub command_len_max: usize,
    /// How many bytes of replies may wait for a RESP client that does not read. Beyond it nothing more is read from the client.
    pub unread_replies_max: usize,
    /// A client that has read nothing of its replies for so long is closed; and so is one that has not read all that
    /// waited for it in [`UNREAD_TIMEOUTS_MAX`] times as long, so that reading a byte now and then holds no place. When
    /// the server stops, a client has so long to read its last replies.
    pub unread_timeout: Duration,
    /// The longest that a client may wait in line for a lease. `None`: nobody may.
    pub lease_wait_max: Option<Duration>,
    /// The longest head of an HTTP request, in bytes.
    pub request_head_max: usize,
    /// The longest body of an HTTP request, in bytes.
    pub request_body_max: usize,
}

impl ClientLimits {
    /// How long a client may take over what waits for it, however often it reads some of it.
    pub fn answer_timeout(&self) -> Duration {
        self.unread_timeout.saturating_mul(UNREAD_TIMEOUTS_MAX)
    }

    /// How long somebody may wait in line for a lease who would wait for so long.
    ///
    /// # Errors
    /// When that is longer than anybody may.
    pub fn wait_for_lease(&self, max_wait: Span) -> Result<Span, RequestError> {
        let most = self.lease_wait_max.unwrap_or(Duration::ZERO);
        if Duration::from(max_wait) <= most {
            return Ok(max_wait);
        }
        Err(RequestError::new(if most.is_zero() {
            "nobody waits in line for a lease here (lease_wait_max = \"off\"); ask again after retry_after"
                .to_owned()
        } else {
            let (said, most) = (max_wait.as_millis_up(), most.as_millis());
            format!(
                "a wait of {said} ms for a lease is too long; use at most {most} (lease_wait_max), and ask again"
            )
        }))
    }
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            connections_max: 10_000,
            idle_timeout: Some(Duration::from_secs(300)),
            request_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            // Enough for RL.CHECKALL with 64 calls.
            arguments_max: 256,
            bulk_len_max: 64 * 1024,
            command_len_max: 256 * 1024,
            unread_replies_max: 64 * 1024,
            unread_timeout: Duration::from_secs(10),
            lease_wait_max: Some(Duration::from_secs(60)),
            request_head_max: 16 * 1024,
            request_body_max: 256 * 1024,
        }
    }
}
