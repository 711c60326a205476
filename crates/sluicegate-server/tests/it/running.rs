//! A server for a test, on free ports of loopback.

use sluicegate::clock::{Clock, ManualClock, SystemClock};
use sluicegate::limit::{LIMIT_LEN_MAX, LIMITS_MAX, LIST_LEN_MAX};
use sluicegate::{Limit, RetryAfter, Time};
use sluicegate_server::engine::{Decided, Reason, RequestError, RuleCall, RuleSpec, Settings, decide};
use sluicegate_server::protocol::Protocol;
use sluicegate_server::server::{Config, Server};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Longer than anything takes on a busy machine. A test that waits this long has failed.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What most tests start with: any free ports, no rules.
pub(crate) fn config() -> Config {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Config {
        listen: Protocol::ALL.map(|protocol| (protocol, any_port)).into(),
        settings: Settings { max_keys: 10_000, ..Settings::default() },
        ..Config::default()
    }
}

/// The longest inline list of limits.
pub(crate) fn longest_list() -> String {
    let gap = " ".repeat(LIMIT_LEN_MAX - "fixed-window9/h".len());
    let list = vec![format!("fixed-window{gap}9/h"); LIMITS_MAX].join(" + ");
    assert_eq!(list.len(), LIST_LEN_MAX);
    list
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
        share: 1,
        keys: Vec::new(),
    }
}

/// A server on the system's clock.
pub(crate) async fn start(config: Config) -> Server {
    Server::start(config, Arc::new(SystemClock)).await.unwrap()
}

/// A server on a clock that the test sets.
pub(crate) async fn start_at(config: Config, clock: &ManualClock) -> Server {
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    Server::start(config, clock).await.unwrap()
}

/// The result of an engine with keys in memory, which is ready at once.
pub(crate) fn at_once<T>(answer: impl Future<Output = T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("an engine in memory never waits"),
    }
}

/// A decision that outlives its call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) allowed: bool,
    denied: bool,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) retry_after: Option<RetryAfter>,
    pub(crate) denied_by: Option<String>,
    pub(crate) reason: Option<Reason>,
}

impl From<Decided<'_>> for Seen {
    fn from(decided: Decided<'_>) -> Seen {
        Seen {
            allowed: decided.allowed(),
            denied: decided.denied(),
            limit: decided.limit(),
            remaining: decided.remaining(),
            retry_after: decided.retry_after(),
            denied_by: decided.denied_by().map(str::to_owned),
            reason: decided.reason(),
        }
    }
}

impl Seen {
    /// Decides a call of an engine with keys in memory.
    pub(crate) fn of(call: &RuleCall<'_>, now: Time) -> Result<Seen, RequestError> {
        Seen::with(call, now, |decided| Seen::from(decided))
    }

    /// Copies a decision.
    pub(crate) fn with<T: Send>(
        call: &RuleCall<'_>,
        now: Time,
        see: impl FnOnce(Decided<'_>) -> T + Send,
    ) -> Result<T, RequestError> {
        let mut decided = None;
        at_once(decide(std::iter::once(call), now, |answer| decided = Some(answer)));
        decided.unwrap().map(see)
    }

    pub(crate) fn denied(&self) -> bool {
        self.denied
    }
}
