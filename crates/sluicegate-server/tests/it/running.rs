//! A server for a test, on free ports of loopback.

use sluicegate::{Clock, Limit, ManualClock, SystemClock};
use sluicegate_server::engine::{RuleSpec, Settings};
use sluicegate_server::server::{Config, Server};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Longer than anything takes on a busy machine. A test that waits for so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What most tests start with: any free ports, no rules.
pub(crate) fn config() -> Config {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Config {
        resp: Some(any_port),
        http: Some(any_port),
        settings: Settings { max_keys: 10_000, ..Settings::default() },
        ..Config::default()
    }
}

/// A rule without exceptions.
pub(crate) fn rule(name: &str, limits: &[&str]) -> RuleSpec {
    let limit = |text: &&str| text.parse::<Limit>().unwrap();
    RuleSpec {
        name: name.into(),
        limits: limits.iter().map(limit).collect(),
        shadow: false,
        on_store_failure: None,
        local_share: None,
        keys: Vec::new(),
    }
}

/// A server by the system's clock.
pub(crate) async fn start(config: Config) -> Server {
    Server::start(config, Arc::new(SystemClock)).await.unwrap()
}

/// A server by a clock that the test sets.
pub(crate) async fn start_at(config: Config, clock: &ManualClock) -> Server {
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    Server::start(config, clock).await.unwrap()
}

/// The answer of an engine whose keys live in memory: it is there at once.
pub(crate) fn at_once<T>(answer: impl Future<Output = T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("an engine in memory waits for nobody"),
    }
}
