//! What every connection shares, whatever protocol it speaks.

#[cfg(test)]
pub(crate) mod testing;

use crate::auth::Password;
use crate::client_limits::ClientLimits;
use crate::engine::Engine;
use crate::metrics::Metrics;
use std::sync::Arc;
use tokio::sync::watch;

/// The engine, and what clients have to keep to.
#[derive(Clone)]
pub struct Service {
    /// Decides.
    pub engine: Arc<Engine>,
    /// Bounds on clients.
    pub limits: ClientLimits,
    /// What clients have to say first, if anything.
    pub password: Option<Password>,
    /// Names under which HTTP may ask for us, besides loopback and addresses.
    pub hosts: Arc<[String]>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Turns true when the server is to stop: answer what has arrived, then close.
    pub stopping: watch::Receiver<bool>,
}

impl Service {
    /// Comes back when the server is to stop.
    pub async fn stopped(&self) {
        let mut stopping = self.stopping.clone();
        // If nobody is left who could say so, that is the end too.
        let _ = stopping.wait_for(|stopping| *stopping).await;
    }

    /// Whether it is to stop. As long as it is not, this is one look at a number.
    pub fn is_stopping(&self) -> bool {
        self.stopping.has_changed().unwrap_or(true) && *self.stopping.borrow()
    }
}
