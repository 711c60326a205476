//! A service for tests of connections.

use super::Service;
use crate::auth::{AuthFailures, Password};
use crate::connection_limits::ConnectionLimits;
use crate::engine::{Engine, RuleSpec, Settings};
use crate::metrics::Metrics;
use sluicegate::clock::SystemClock;
use std::sync::Arc;
use tokio::sync::watch;

/// A service, and the sender that stops it.
pub(crate) fn service(
    limits: ConnectionLimits,
    password: Option<Password>,
) -> (watch::Sender<bool>, Service) {
    let settings = Settings { max_keys: 10, ..Settings::default() };
    let (stop, stopping) = watch::channel(false);
    let service = Service {
        engine: Arc::new(Engine::new(settings, Arc::new(SystemClock)).unwrap()),
        limits,
        password,
        auth_failures: Arc::new(AuthFailures::new().unwrap()),
        hosts: Arc::default(),
        metrics: Arc::new(Metrics::default()),
        stopping,
    };
    (stop, service)
}

/// Loads a rule that grants each key one lease at a time.
pub(crate) fn with_exports(service: &Service) {
    let exports = RuleSpec {
        name: "exports".into(),
        limits: vec!["concurrency 1 ttl=1h".parse().unwrap()],
        shadow: false,
        on_store_failure: None,
        local_share: None,
        share: 1,
        keys: Vec::new(),
    };
    service.engine.load(vec![exports]).unwrap();
}

/// The counts of that rule's leases: acquired, released, held, waiting.
pub(crate) fn leases(service: &Service) -> (u64, u64, usize, usize) {
    let view = service.engine.rules().find("exports").unwrap().leases().unwrap();
    (view.acquired, view.released, view.in_memory.unwrap().held, view.waiting)
}
