//! The state that all connections share.

#[cfg(test)]
pub(crate) mod testing;

use crate::auth::{AuthError, AuthFailures, Password};
use crate::connection_limits::ConnectionLimits;
use crate::engine::Engine;
use crate::log::LogThrottle;
use crate::metrics::Metrics;
use crate::net::Peer;
use crate::protocol::Protocol;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::warn;

static WRONG_PASSWORD: LogThrottle = LogThrottle::new();

/// The state that all connections share.
#[derive(Clone)]
pub struct Service {
    /// Decides calls.
    pub engine: Arc<Engine>,
    /// Limits on connections.
    pub limits: ConnectionLimits,
    /// The password that clients must send, if any.
    pub password: Option<Password>,
    /// The wrong passwords of each peer.
    pub(crate) auth_failures: Arc<AuthFailures>,
    /// The host names that HTTP is served under, besides `localhost` and IP addresses.
    pub hosts: Arc<[String]>,
    /// Counters of the server.
    pub metrics: Arc<Metrics>,
    /// Becomes `true` when the server stops: answer what has arrived, then close.
    pub stopping: watch::Receiver<bool>,
}

impl Service {
    /// Authenticates a client, if there is a password. Counts and logs a wrong one.
    pub(crate) fn authenticate(
        &self,
        protocol: Protocol,
        peer: Peer,
        candidate: &[u8],
    ) -> Result<(), AuthError> {
        let Some(password) = &self.password else { return Ok(()) };
        let checked = self.auth_failures.check(password, candidate, peer, self.engine.now());
        if let Err(error) = checked {
            self.metrics.auth_failed(protocol);
            if let Some(suppressed) = WRONG_PASSWORD.allow() {
                let peer = peer.ip();
                match error {
                    AuthError::Wrong => warn!(%peer, suppressed, "wrong password over {protocol}"),
                    AuthError::TooMany(_) => warn!(
                        %peer, suppressed,
                        "too many wrong passwords over {protocol}: rejected without comparing; if the client is yours, correct its password"
                    ),
                }
            }
        }
        checked
    }

    /// Waits until the server stops.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        // If the sender is dropped, the server is gone too.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Returns `true` if the server is stopping. Until then this is a single atomic load.
    pub fn is_stopping(&self) -> bool {
        self.stopping.has_changed().unwrap_or(true) && *self.stopping.borrow()
    }
}
