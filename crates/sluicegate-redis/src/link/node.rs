//! One server and its connection, which a supervisor task maintains.
//!
//! Callers never connect. The supervisor does, and publishes a phase that callers read:
//!
//! ```text
//! Connecting   no connection, but the current attempt has not failed: callers wait for it
//! Up           connected: all callers share the connection
//! Down         no connection, or the breaker is open: callers fail at once, at no cost
//!
//! connection broke         Connecting if it had worked, so that a short break fails no call;
//!                          else Down
//! connecting failed        Down, with another attempt after a growing wait
//! five failures in a row   Down; the supervisor probes, then Up again, or replaces the connection
//! READONLY                 the server was demoted: drop the connection and look up the master
//! ```
//!
//! Each Up has an epoch, so that late failures of an earlier connection do not count against the
//! current one.

use super::address::Endpoint;
use super::breaker::{Backoff, Breaker, WAIT_MAX};
use super::call_error::CallError;
use super::connection::{Dialer, NodeConnection, NodeError, Role, in_time};
use super::pipeline::{self, Channel, Outgoing};
use super::sentinel;
use super::watch::Watch;
use redis::Value;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How to find the server.
pub(crate) enum Route {
    Fixed(Endpoint),
    Sentinel { sentinels: Vec<Endpoint>, master: String },
}

/// The settings of a node.
pub(crate) struct NodeSettings {
    pub(crate) route: Route,
    pub(crate) role: Role,
    pub(crate) dialer: Dialer,
    /// Named in failures; also how long a probe may take, since a slower server is as good as down.
    pub(crate) deadline: Duration,
    /// Notified when the node goes down.
    pub(crate) on_down: Arc<Notify>,
    /// Counts the keys that the server evicts.
    pub(crate) evicted_keys: Arc<AtomicU64>,
}

/// How much of its deadline a call had left when it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeBudget {
    /// All of it.
    Full,
    /// Less, because the call was sent late. A timeout then says nothing about the node.
    Reduced,
}

/// The health of one server: see [`RedisStore::health`](crate::RedisStore::health).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// The server's address, without a password.
    pub address: String,
    /// Whether the server is connected.
    pub connected: bool,
    /// Whether calls fail at once, because of repeated failures or a missing connection.
    pub breaker_open: bool,
    /// Failed calls since the start, except those that the server rejected with a reason.
    pub failures: u64,
    /// The server's message while it rejects writes: out of memory, a failed save to disk, too few
    /// replicas. It is tried every second, and serves calls again as soon as it accepts a write.
    pub rejects_writes: Option<String>,
}

impl NodeHealth {
    pub(crate) fn is_up(&self) -> bool {
        self.connected && !self.breaker_open
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.is_up() && self.rejects_writes.is_none()
    }
}

/// A server and its connection. Dropping this closes it.
pub(crate) struct Node {
    shared: Arc<NodeShared>,
    supervisor: JoinHandle<()>,
}

struct NodeShared {
    name: String,
    settings: NodeSettings,
    phase: watch::Sender<Phase>,
    breaker: Breaker,
    watch: Watch,
    /// Tells the supervisor that the phase has changed.
    wake_supervisor: Notify,
    epochs: AtomicU64,
    connected: AtomicBool,
    reported_down: AtomicBool,
}

#[derive(Clone)]
pub(crate) enum Phase {
    Connecting,
    Up(Usable),
    Down(NodeError),
}

/// A usable connection.
#[derive(Clone)]
pub(crate) struct Usable {
    channel: Channel,
    /// The connection's task. It ends with the connection, a moment before the phase says so.
    driver: AbortHandle,
    epoch: u64,
}

impl Node {
    /// Starts connecting in the background.
    pub(crate) fn start(settings: NodeSettings) -> Node {
        let name = match &settings.route {
            Route::Fixed(endpoint) => endpoint.to_string(),
            Route::Sentinel { sentinels, master } => {
                let endpoints: Vec<String> = sentinels.iter().map(Endpoint::to_string).collect();
                format!("{master} via {}", endpoints.join(","))
            }
        };
        let watch = Watch::new(Arc::clone(&settings.evicted_keys));
        let shared = Arc::new(NodeShared {
            name,
            settings,
            watch,
            phase: watch::Sender::new(Phase::Connecting),
            breaker: Breaker::default(),
            wake_supervisor: Notify::new(),
            epochs: AtomicU64::new(0),
            connected: AtomicBool::new(false),
            reported_down: AtomicBool::new(false),
        });
        let supervisor = tokio::spawn(supervise(Arc::clone(&shared)));
        Node { shared, supervisor }
    }

    /// Sends calls in one write, in order, and returns an answer for each.
    pub(crate) async fn send(
        &self,
        calls: &[Outgoing<'_>],
        until: Instant,
        budget: TimeBudget,
    ) -> Vec<Result<Value, CallError>> {
        let (mut channel, epoch) = match self.channel(until).await {
            Ok(channel) => channel,
            Err(away) => return vec![Err(away); calls.len()],
        };
        let mut answers = pipeline::send(&mut channel, calls, until).await;
        let silence = |answer: &Result<Value, CallError>| {
            answer.as_ref().err().filter(|none| none.is_silent()).cloned()
        };
        for answer in answers.iter().filter(|answer| silence(answer).is_none()) {
            self.shared.record(epoch, answer.as_ref());
        }
        // A pipeline without replies is one failure, whatever the number of its calls.
        if let Some(none) = answers.iter().find_map(silence) {
            if budget == TimeBudget::Full || none != CallError::TimedOut {
                self.shared.record(epoch, Err(&none));
            } else {
                self.shared.breaker.count();
            }
        }
        for answer in &mut answers {
            if let Err(CallError::Disconnected(why)) = answer {
                *why = format!("{}: {why}", self.shared.name);
            }
        }
        answers
    }

    /// The deadline of a call.
    pub(crate) fn deadline(&self) -> Duration {
        self.shared.settings.deadline
    }

    /// Returns the connection and its epoch, or why there is none.
    async fn channel(&self, until: Instant) -> Result<(Channel, u64), CallError> {
        // A call that cannot be answered in time is not sent: it would be charged for nothing.
        if Instant::now() >= until {
            return Err(self.shared.away("no time was left to send the call"));
        }
        if let Some(channel) = self.shared.channel_now() {
            return channel;
        }
        let mut phases = self.shared.phase.subscribe();
        let joined = timeout_at(until, phases.wait_for(|phase| phase.settled().is_some())).await;
        if joined.is_err() {
            self.shared.fail(None, || "not connected in time".to_owned());
            return Err(self.shared.away("not connected in time"));
        }
        self.shared.channel_now().unwrap_or_else(|| Err(self.shared.away("the connection was lost")))
    }

    /// Waits until the node is up, or cannot come up by itself.
    pub(crate) async fn ready(&self) -> Result<(), NodeError> {
        let mut phases = self.shared.phase.subscribe();
        let done =
            |phase: &Phase| !matches!(phase, Phase::Connecting | Phase::Down(NodeError::Unreachable(_)));
        match phases.wait_for(done).await.as_deref() {
            Ok(Phase::Down(error)) => Err(error.clone()),
            Ok(_) => Ok(()),
            Err(_) => Err(NodeError::Unreachable("the connection attempt was abandoned".to_owned())),
        }
    }

    /// Waits until the server turns out to be a cluster node, usually forever.
    pub(crate) async fn cluster_detected(&self) {
        let mut phases = self.shared.phase.subscribe();
        // An error would mean that the sender is gone, but `self` owns it.
        let _ = phases.wait_for(|phase| matches!(phase, Phase::Down(NodeError::IsCluster))).await;
    }

    /// Why the node is down, if it is.
    pub(crate) fn error(&self) -> Option<NodeError> {
        match &*self.shared.phase.borrow() {
            Phase::Down(error) => Some(error.clone()),
            Phase::Connecting | Phase::Up(_) => None,
        }
    }

    pub(crate) fn health(&self) -> NodeHealth {
        NodeHealth {
            address: self.shared.name.clone(),
            connected: self.shared.connected.load(Relaxed),
            breaker_open: self.error().is_some(),
            failures: self.shared.breaker.failures(),
            rejects_writes: self.shared.watch.rejection(),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Phase {
    /// Returns the connection or the error, or `None` while connecting.
    fn settled(&self) -> Option<Result<&Usable, &NodeError>> {
        match self {
            Phase::Up(up) if !up.driver.is_finished() => Some(Ok(up)),
            Phase::Up(_) | Phase::Connecting => None,
            Phase::Down(error) => Some(Err(error)),
        }
    }
}

impl NodeShared {
    fn channel_now(&self) -> Option<Result<(Channel, u64), CallError>> {
        match self.phase.borrow().settled()? {
            Ok(up) => Some(Ok((up.channel.clone(), up.epoch))),
            Err(error) => Some(Err(CallError::Unavailable(error.to_string()))),
        }
    }

    fn away(&self, why: &str) -> CallError {
        CallError::Unavailable(format!("{}: {why}", self.name))
    }

    /// Updates the breaker by an answer, or by its absence.
    fn record(&self, epoch: u64, answer: Result<&Value, &CallError>) {
        match answer {
            Err(CallError::NotReady(message) | CallError::ClusterDown(message)) => {
                self.fail(Some(epoch), || message.clone());
            }
            Err(CallError::ReadOnly(_)) => self.renew(epoch),
            Err(CallError::TimedOut) => {
                self.fail(Some(epoch), || format!("no answer within {:?}", self.settings.deadline));
            }
            Err(CallError::Disconnected(why)) => self.fail(Some(epoch), || why.clone()),
            Err(CallError::Rejected(message)) => {
                self.watch.record(&self.name, message);
                self.breaker.succeed();
            }
            Ok(_) | Err(_) => self.breaker.succeed(),
        }
    }

    /// Counts a failure of the connection with this epoch, or of the wait for a connection
    /// (`None`).
    fn fail(&self, epoch: Option<u64>, why: impl Fn() -> String) {
        let current = match &*self.phase.borrow() {
            Phase::Up(up) => epoch == Some(up.epoch),
            Phase::Connecting => epoch.is_none(),
            Phase::Down(_) => false,
        };
        if !current {
            self.breaker.count();
        } else if self.breaker.fail() {
            let why = why();
            self.set_down(
                NodeError::Unreachable(format!(
                    "{}: too many consecutive failures, the last: {why}",
                    self.name
                )),
                epoch,
            );
            self.wake_supervisor.notify_one();
        }
    }

    /// Drops the connection with this epoch: its server is not the master any more.
    fn renew(&self, epoch: u64) {
        let changed = self.phase.send_if_modified(|phase| {
            let ours = matches!(phase, Phase::Up(up) if up.epoch == epoch);
            if ours {
                *phase = Phase::Connecting;
            }
            ours
        });
        if changed {
            self.breaker.count();
            self.wake_supervisor.notify_one();
        }
    }

    /// Sets the phase to Down, unless a later epoch is up. `None` stands for any phase without a
    /// connection.
    fn set_down(&self, error: NodeError, epoch: Option<u64>) {
        let message = error.to_string();
        let changed = self.phase.send_if_modified(|phase| {
            let ours = match phase {
                Phase::Up(up) => epoch == Some(up.epoch),
                Phase::Connecting | Phase::Down(_) => true,
            };
            if ours {
                *phase = Phase::Down(error);
            }
            ours
        });
        if changed {
            self.report_down(&message);
        }
    }

    fn report_down(&self, why: &str) {
        if !self.reported_down.swap(true, Relaxed) {
            tracing::warn!(store = %self.name, why, "store unavailable");
        }
        self.settings.on_down.notify_one();
    }

    fn set_up(&self, connection: &NodeConnection) {
        if self.reported_down.swap(false, Relaxed) {
            self.breaker.half_open();
            tracing::info!(store = %self.name, "store available again");
        }
        let epoch = self.epochs.fetch_add(1, Relaxed);
        let up = Usable {
            channel: Channel::new(connection.connection.clone()),
            driver: connection.driver(),
            epoch,
        };
        self.phase.send_replace(Phase::Up(up));
    }

    /// Leaves the phase Up. Callers wait for the next connection if it is likely to follow at once.
    fn disconnected(&self, retry_now: bool) {
        let mut message = None;
        self.phase.send_modify(|phase| match phase {
            // The old connection must not be kept here: it would stay open.
            Phase::Up(_) | Phase::Connecting if retry_now => *phase = Phase::Connecting,
            Phase::Up(_) | Phase::Connecting => {
                let why = format!("{}: the connection breaks repeatedly", self.name);
                message = Some(why.clone());
                *phase = Phase::Down(NodeError::Unreachable(why));
            }
            Phase::Down(_) => {}
        });
        if let Some(why) = message {
            self.report_down(&why);
        }
    }

    async fn connect(&self) -> Result<(NodeConnection, Endpoint), NodeError> {
        let endpoint = match &self.settings.route {
            Route::Fixed(endpoint) => endpoint.clone(),
            Route::Sentinel { sentinels, master } => {
                sentinel::master(&self.settings.dialer, sentinels, master).await?
            }
        };
        let role = self.settings.role;
        let connection = in_time(&endpoint, async {
            let connection = self.settings.dialer.dial(&endpoint).await?;
            connection.verify(&endpoint, role).await?;
            Ok(connection)
        });
        Ok((connection.await?, endpoint))
    }

    /// Maintains a connection until it has to be replaced.
    async fn maintain(&self, connection: &mut NodeConnection, endpoint: &Endpoint, backoff: &mut Backoff) {
        let channel = Channel::new(connection.connection.clone());
        let mut watch = pin!(self.watch.run(&self.name, channel));
        loop {
            tokio::select! {
                () = connection.ended() => return,
                () = self.wake_supervisor.notified() => {}
                () = watch.as_mut() => return,
            }
            let phase = self.phase.borrow().clone();
            match phase {
                Phase::Up(_) => continue,
                Phase::Connecting => return,
                Phase::Down(_) => {}
            }
            if self.breaker.take_succeeded() {
                backoff.reset();
            }
            sleep(backoff.wait()).await;
            match timeout(self.settings.deadline, connection.probe(endpoint, self.settings.role)).await {
                Ok(Ok(())) => self.set_up(connection),
                // The server does not answer or is not ready. A new connection finds out, as often
                // as it takes.
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

/// Keeps a node connected until the task is aborted.
async fn supervise(shared: Arc<NodeShared>) {
    let mut backoff = Backoff::new();
    loop {
        let (mut connection, endpoint) = match shared.connect().await {
            Ok(connected) => connected,
            Err(error) => {
                let is_cluster = error == NodeError::IsCluster;
                shared.set_down(error, None);
                if is_cluster {
                    // The link uses the whole cluster from now on.
                    return;
                }
                sleep(backoff.wait()).await;
                continue;
            }
        };
        let since = Instant::now();
        shared.connected.store(true, Relaxed);
        shared.set_up(&connection);
        shared.maintain(&mut connection, &endpoint, &mut backoff).await;
        shared.connected.store(false, Relaxed);
        let retry_now = shared.breaker.take_succeeded() || since.elapsed() >= WAIT_MAX;
        shared.disconnected(retry_now);
        drop(connection);
        if retry_now {
            backoff.reset();
        } else {
            sleep(backoff.wait()).await;
        }
    }
}
