//! Metrics of the server. No series grows with the number of keys or clients.
//!
//! Counters are relaxed atomics: they order nothing, and are read independently of each other.
//! `latency.rs` is a lock-free histogram, `process.rs` reads what the system knows of this process,
//! `exposition.rs` names all metrics, and `page.rs` writes them in the `OpenMetrics` text format,
//! which Prometheus reads.

mod exposition;
mod latency;
mod page;
mod panics;
mod process;

pub(crate) use latency::{Latency, LatencyView};
pub(crate) use panics::count_panics;

use crate::engine::Engine;
use crate::net::ClosedFor;
use crate::protocol::{ByProtocol, Protocol};
use exposition::Snapshot;
use process::Process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The counters of a server.
#[derive(Debug)]
pub struct Metrics {
    clients: ByProtocol<ClientCounts>,
    config: ConfigLoads,
    started: SystemTime,
}

/// The counters of one protocol, on cache lines of their own: threads of one protocol do not slow
/// those of another.
#[derive(Default, Debug)]
#[repr(align(128))]
struct ClientCounts {
    latency: Latency,
    accepted: AtomicU64,
    closed: AtomicU64,
    rejected: AtomicU64,
    closed_unestablished: [AtomicU64; ClosedFor::ALL.len()],
    errors: AtomicU64,
    client_errors: AtomicU64,
    auth_failures: AtomicU64,
}

/// The loads of the configuration. The initial one counts as a success.
#[derive(Debug)]
struct ConfigLoads {
    succeeded: AtomicU64,
    failed: AtomicU64,
    last_succeeded: AtomicBool,
    /// The time of the last success, in microseconds since the Unix epoch.
    last_success_us: AtomicU64,
}

impl Default for Metrics {
    /// The counters of a server that starts now.
    fn default() -> Metrics {
        let started = SystemTime::now();
        let config = ConfigLoads {
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last_succeeded: AtomicBool::new(true),
            last_success_us: AtomicU64::new(since_epoch_us(started)),
        };
        Metrics { clients: ByProtocol::default(), config, started }
    }
}

impl Metrics {
    /// Counts an accepted connection.
    pub fn connected(&self, protocol: Protocol) {
        add_one(&self.clients[protocol].accepted);
    }

    /// Counts a closed connection.
    pub fn disconnected(&self, protocol: Protocol) {
        add_one(&self.clients[protocol].closed);
    }

    /// Counts a connection rejected because of `connections_max`.
    pub fn rejected(&self, protocol: Protocol) {
        add_one(&self.clients[protocol].rejected);
    }

    /// Counts an unestablished connection that was closed.
    pub fn closed_unestablished(&self, protocol: Protocol, reason: ClosedFor) {
        add_one(&self.clients[protocol].closed_unestablished[reason as usize]);
    }

    /// Counts a connection that broke the protocol or exceeded a limit on clients.
    pub fn protocol_error(&self, protocol: Protocol) {
        add_one(&self.clients[protocol].errors);
    }

    /// Counts requests of a batch, each of which took this long from being read to having its reply
    /// ready.
    pub fn answered(&self, protocol: Protocol, requests: u64, took: Duration) {
        self.clients[protocol].latency.add(requests, took);
    }

    /// Counts requests answered with an error. [`Metrics::answered`] counts them too.
    pub fn client_errors(&self, protocol: Protocol, requests: u64) {
        self.clients[protocol].client_errors.fetch_add(requests, Ordering::Relaxed);
    }

    /// Counts a wrong password, or one that was not compared after too many wrong ones.
    pub fn auth_failed(&self, protocol: Protocol) {
        add_one(&self.clients[protocol].auth_failures);
    }

    /// Counts a reload of the configuration, which succeeded or failed.
    pub fn reloaded(&self, ok: bool) {
        let ConfigLoads { succeeded, failed, last_succeeded, last_success_us } = &self.config;
        last_succeeded.store(ok, Ordering::Relaxed);
        if ok {
            add_one(succeeded);
            last_success_us.store(since_epoch_us(SystemTime::now()), Ordering::Relaxed);
        } else {
            add_one(failed);
        }
    }

    /// The current metrics as text of type [`CONTENT_TYPE`].
    pub fn render(&self, engine: &Engine) -> String {
        Snapshot::take(self, engine, Process::now()).text()
    }
}

fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn since_epoch_us(time: SystemTime) -> u64 {
    sluicegate::Time::from(time).as_micros()
}
