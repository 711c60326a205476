//! The state that all connections share.

#[cfg(test)]
pub(crate) mod testing;

use crate::auth::Password;
use crate::connection_limits::ConnectionLimits;
use crate::engine::Engine;
use crate::metrics::Metrics;
use std::sync::Arc;
use tokio::sync::watch;

/// The state that all connections share.
#[derive(Clone)]
pub struct Service {
    /// Decides calls.
    pub engine: Arc<Engine>,
    /// Limits on connections.
    pub limits: ConnectionLimits,
    /// The password that clients must send, if any.
    pub password: Option<Password>,
    /// The host names that HTTP is served under, besides `localhost` and IP addresses.
    pub hosts: Arc<[String]>,
    /// Counters of the server.
    pub metrics: Arc<Metrics>,
    /// Becomes `true` when the server stops: answer what has arrived, then close.
    pub stopping: watch::Receiver<bool>,
}

impl Service {
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
