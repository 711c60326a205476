//! What the server has done, for whoever watches it. No series grows with keys or clients.
//!
//! Whoever serves a client counts here with relaxed atomic additions: the counts order nothing and are read apart from
//! each other. `latency.rs` is a histogram to be added to by many, `process.rs` asks the system about this process, and
//! `exposition.rs` names all of it and `page.rs` writes it in the text format of `OpenMetrics`, which Prometheus reads.

mod exposition;
mod latency;
mod page;
mod process;

pub(crate) use latency::{Latency, LatencyView};

use crate::engine::Engine;
use crate::protocol::{ByProtocol, Protocol};
use exposition::Snapshot;
use process::Process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// What [`Metrics::render`] writes, as HTTP names it.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counts that the server keeps while it runs.
#[derive(Debug)]
pub struct Metrics {
    clients: ByProtocol<Counts>,
    config: ConfigLoads,
    started: SystemTime,
}

/// Counts of one protocol. They begin a cache line of their own, so that the threads of one protocol do not slow those of
/// another.
#[derive(Default, Debug)]
#[repr(align(128))]
struct Counts {
    latency: Latency,
    accepted: AtomicU64,
    closed: AtomicU64,
    refused: AtomicU64,
    errors: AtomicU64,
    mistakes: AtomicU64,
}

/// How reading the configuration went. What the server started with is a success.
#[derive(Debug)]
struct ConfigLoads {
    succeeded: AtomicU64,
    failed: AtomicU64,
    last_succeeded: AtomicBool,
    /// When it last went well, in microseconds since the Unix epoch.
    last_success_us: AtomicU64,
}

impl Default for Metrics {
    /// The counts of a server that starts now.
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
    /// A client has connected and was let in.
    pub fn connected(&self, protocol: Protocol) {
        add_one(&self.clients[protocol].accepted);
    }

    /// A client that had connected is gone.
    pub fn disconnected(&self, protocol: Protocol) {
        add_one(&self.clients[protocol].closed);
    }

    /// A client was turned away because there are too many.
    pub fn refused(&self, protocol: Protocol) {
        add_one(&self.clients[protocol].refused);
    }

    /// A client sent what is not the protocol, or crossed one of its bounds.
    pub fn protocol_error(&self, protocol: Protocol) {
        add_one(&self.clients[protocol].errors);
    }

    /// So many questions were answered, each in so long: from being read to having the answer's bytes. Every question
    /// counts that was read, whatever it was and whatever the answer.
    pub fn answered(&self, protocol: Protocol, questions: u64, took: Duration) {
        self.clients[protocol].latency.add(questions, took);
    }

    /// So many questions were answered by an error. They count as answered too.
    pub fn mistaken(&self, protocol: Protocol, questions: u64) {
        self.clients[protocol].mistakes.fetch_add(questions, Ordering::Relaxed);
    }

    /// The configuration was read anew: it was taken up, or refused and the rules before go on.
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

    /// All counts of now as text, to be sent as [`CONTENT_TYPE`].
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
