//! Reloads: the files are read again, and applied as a whole or not at all.

use crate::config::{Configuration, Layers, SETTINGS};
use crate::log::LevelHandle;
use crate::net::tls::{Certs, Tls};
use crate::run::{certs, rule_count};
use crate::service::Service;
use crate::signals::{Signal, Signals};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{error, info, warn};

/// How long a reload reads files. A pipe, or a network mount that does not respond, can block for
/// good.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How many reads may hang at once. Each has a thread.
const READS_MAX: usize = 8;

/// Reloads the configuration.
pub(crate) struct Reload<'a> {
    service: &'a Service,
    /// What the server started with, but for the rules: settings are compared by copies.
    started: Configuration,
    tls: Option<&'a Arc<Tls>>,
    layers: &'a Layers,
    level_handle: &'a LevelHandle,
    reads: Arc<Semaphore>,
}

/// What a reload has read.
struct Read {
    configuration: Configuration,
    certs: Option<Certs>,
}

impl<'a> Reload<'a> {
    /// A server that started with this configuration.
    pub(crate) fn new(
        service: &'a Service,
        started: &'a Configuration,
        tls: Option<&'a Arc<Tls>>,
        layers: &'a Layers,
        level_handle: &'a LevelHandle,
    ) -> Reload<'a> {
        let started = Configuration { rules: Vec::new(), ..started.clone() };
        Reload { service, started, tls, layers, level_handle, reads: Arc::new(Semaphore::new(READS_MAX)) }
    }

    /// Reloads at each signal to do so, until the one to stop. A signal during a reload starts
    /// another one; the one to stop does not wait for it.
    pub(crate) async fn until_stop(&self, signals: &mut Signals) {
        while signals.next().await == Signal::Reload {
            let mut is_due = true;
            while mem::take(&mut is_due) {
                let mut running = pin!(self.run());
                loop {
                    tokio::select! {
                        () = running.as_mut() => break,
                        signal = signals.next() => match signal {
                            Signal::Reload => is_due = true,
                            Signal::Stop => return,
                        },
                    }
                }
            }
        }
    }

    /// Applies the new configuration as a whole, or keeps the previous one.
    async fn run(&self) {
        let loaded = self.load().await;
        self.service.metrics.reloaded(loaded.is_ok());
        match loaded {
            Ok((configuration, rules)) => {
                self.level_handle.set(configuration.log.level);
                info!("configuration reloaded: {}", rule_count(rules));
                let pending = self.needs_restart(&configuration);
                if !pending.is_empty() {
                    warn!("these changed settings need a restart: {}", pending.join(", "));
                }
            }
            Err(reasons) => {
                for reason in reasons.lines() {
                    error!("configuration rejected, keeping the previous one: {reason}");
                }
            }
        }
    }

    /// Reads the files, and applies their rules and certificates. Files may be slow, and thousands
    /// of rules take a while: no decision waits for either. Returns the configuration without its
    /// rules, and how many there are.
    async fn load(&self) -> Result<(Configuration, usize), String> {
        let Read { mut configuration, certs } = self.read().await?;
        let (engine, rules) = (Arc::clone(&self.service.engine), mem::take(&mut configuration.rules));
        let count = rules.len();
        let applying = spawn_blocking(move || engine.load(rules).map_err(|error| error.to_string()));
        applying.await.unwrap_or_else(|error| Err(format!("the reload failed: {error}")))?;
        // From here on nothing can fail.
        if let (Some(tls), Some(certs)) = (self.tls, certs) {
            tls.replace(certs);
        }
        Ok((configuration, count))
    }

    async fn read(&self) -> Result<Read, String> {
        let Ok(permit) = Arc::clone(&self.reads).try_acquire_owned() else {
            return Err(format!("{READS_MAX} earlier reloads still read their files; restart the server"));
        };
        let (layers, has_tls) = (self.layers.clone(), self.tls.is_some());
        let reading = spawn_blocking(move || {
            let _permit = permit;
            let configuration = layers.read().map_err(|errors| errors.to_string())?;
            let certs = if has_tls { certs(&configuration)? } else { None };
            Ok(Read { configuration, certs })
        });
        match timeout(READ_TIMEOUT, reading).await {
            Ok(read) => read.unwrap_or_else(|error| Err(format!("the reload failed: {error}"))),
            Err(_) => Err(format!(
                "reading the files took longer than {} s; check that none is a pipe or on a mount that does \
                 not respond",
                READ_TIMEOUT.as_secs()
            )),
        }
    }

    fn needs_restart(&self, now: &Configuration) -> Vec<&'static str> {
        let tls_switched = now.tls_cert.is_some() != self.started.tls_cert.is_some();
        let waits = |name: &str, live: bool| !live || (name.starts_with("tls_") && tls_switched);
        SETTINGS
            .iter()
            .filter(|setting| waits(setting.name, setting.live))
            .filter(|setting| setting.differs(&self.started, now))
            .map(|setting| setting.name)
            .collect()
    }
}
