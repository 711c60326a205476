//! One server and the connection to it, which a task of its own looks after.
//!
//! In plain words: callers never connect. A supervisor does, and publishes a phase that callers read:
//!
//! Joining   no connection, and the try under way has not failed yet: callers wait for it, until their deadline
//! Up        a connection: callers use it, all at once
//! Away      no connection, or the breaker is open: callers fail at once, and it costs nothing
//!
//! The connection broke      Joining if it had worked, so that a short break hurts nobody; else Away
//! Connecting failed         Away, and again after a wait that grows
//! Five failures in a row    Away; the supervisor probes, then Up again, or drops the connection and makes a new one
//! READONLY                  the server was demoted: drop the connection, and look for the master anew
//!
//! Each Up has an epoch, so that failures of calls that were sent before a break are not held against the
//! connection that came after it.

use super::address::Place;
use super::breaker::{Backoff, Breaker, WAIT_MAX};
use super::connection::{Connection, Dialer, Part, Trouble, in_time};
use super::no_answer::NoAnswer;
use super::pipeline::{self, Channel, Outgoing};
use super::sentinel;
use redis::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How to find the server.
pub(crate) enum Route {
    Fixed(Place),
    Sentinel { sentinels: Vec<Place>, master: String },
}

/// What a node is told.
pub(crate) struct NodeSettings {
    pub(crate) route: Route,
    pub(crate) part: Part,
    pub(crate) dialer: Dialer,
    /// Told in failures, and the time that a probe may take: slower than that is as good as away.
    pub(crate) deadline: Duration,
    /// Woken when the node goes away.
    pub(crate) when_away: Arc<Notify>,
}

/// How much of its time a call still had when it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Haste {
    /// As much as it was given.
    None,
    /// Less, as it had to wait first. That no answer came in what was left says nothing against the node.
    LateStart,
}

/// How a server is doing, as [`RedisStore::health`](crate::RedisStore::health) tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// Where it is: never with a password.
    pub address: String,
    /// Whether there is a connection.
    pub connected: bool,
    /// Whether calls fail at once, because it failed too often or there is no connection.
    pub breaker_open: bool,
    /// Calls that failed since the start, but for those that the server refused with a reason.
    pub failures: u64,
}

impl NodeHealth {
    pub(crate) fn is_up(&self) -> bool {
        self.connected && !self.breaker_open
    }
}

/// A server and the connection to it. Both end with this value.
pub(crate) struct Node {
    shared: Arc<Shared>,
    supervisor: JoinHandle<()>,
}

struct Shared {
    name: String,
    settings: NodeSettings,
    phase: watch::Sender<Phase>,
    breaker: Breaker,
    /// The supervisor is to look at what the phase has become.
    nudge: Notify,
    epochs: AtomicU64,
    connected: AtomicBool,
    told_away: AtomicBool,
}

#[derive(Clone)]
pub(crate) enum Phase {
    Joining,
    Up(Usable),
    Away(Trouble),
}

/// A connection to use.
#[derive(Clone)]
pub(crate) struct Usable {
    channel: Channel,
    /// Whether the connection has ended, which the phase says only a moment later.
    pulse: AbortHandle,
    epoch: u64,
}

impl Node {
    /// Starts to connect, in the background.
    pub(crate) fn start(settings: NodeSettings) -> Node {
        let name = match &settings.route {
            Route::Fixed(place) => place.to_string(),
            Route::Sentinel { sentinels, master } => {
                let places: Vec<String> = sentinels.iter().map(Place::to_string).collect();
                format!("{master} by {}", places.join(","))
            }
        };
        let shared = Arc::new(Shared {
            name,
            settings,
            phase: watch::Sender::new(Phase::Joining),
            breaker: Breaker::default(),
            nudge: Notify::new(),
            epochs: AtomicU64::new(0),
            connected: AtomicBool::new(false),
            told_away: AtomicBool::new(false),
        });
        let supervisor = tokio::spawn(supervise(Arc::clone(&shared)));
        Node { shared, supervisor }
    }

    /// Sends calls in one write, in this order. An answer for each.
    pub(crate) async fn send(
        &self,
        calls: &[Outgoing<'_>],
        until: Instant,
        haste: Haste,
    ) -> Vec<Result<Value, NoAnswer>> {
        let (mut channel, epoch) = match self.channel(until).await {
            Ok(channel) => channel,
            Err(away) => return vec![Err(away); calls.len()],
        };
        let mut answers = pipeline::send(&mut channel, calls, until).await;
        let silence = |answer: &Result<Value, NoAnswer>| {
            answer.as_ref().err().filter(|none| none.is_silence()).cloned()
        };
        for answer in answers.iter().filter(|answer| silence(answer).is_none()) {
            self.shared.draw_conclusions(epoch, answer.as_ref());
        }
        // A pipeline without replies is one failure, however many calls it held.
        if let Some(none) = answers.iter().find_map(silence) {
            if haste == Haste::None || none != NoAnswer::Late {
                self.shared.draw_conclusions(epoch, Err(&none));
            } else {
                self.shared.breaker.count();
            }
        }
        for answer in &mut answers {
            if let Err(NoAnswer::Lost(why)) = answer {
                *why = format!("{}: {why}", self.shared.name);
            }
        }
        answers
    }

    /// How long a call has at the most.
    pub(crate) fn deadline(&self) -> Duration {
        self.shared.settings.deadline
    }

    /// The connection and its epoch, or why there is none.
    async fn channel(&self, until: Instant) -> Result<(Channel, u64), NoAnswer> {
        // What cannot be answered in time is not sent: it would be charged for nothing.
        if Instant::now() >= until {
            return Err(self.shared.away("no time was left to ask it"));
        }
        if let Some(channel) = self.shared.channel_now() {
            return channel;
        }
        let mut phases = self.shared.phase.subscribe();
        let joined = timeout_at(until, phases.wait_for(|phase| phase.settled().is_some())).await;
        if joined.is_err() {
            self.shared.fail(None, || "no connection in time".to_owned());
            return Err(self.shared.away("no connection in time"));
        }
        self.shared.channel_now().unwrap_or_else(|| Err(self.shared.away("the connection just broke")))
    }

    /// Waits until it is up, or it is known that it will not be by itself.
    pub(crate) async fn settle(&self) -> Result<(), Trouble> {
        let mut phases = self.shared.phase.subscribe();
        let done = |phase: &Phase| !matches!(phase, Phase::Joining | Phase::Away(Trouble::Unreachable(_)));
        match phases.wait_for(done).await.as_deref() {
            Ok(Phase::Away(trouble)) => Err(trouble.clone()),
            Ok(_) => Ok(()),
            Err(_) => Err(Trouble::Unreachable("it was given up".to_owned())),
        }
    }

    /// Waits until the server says that it is a node of a cluster: mostly for ever.
    pub(crate) async fn turned_out_to_be_of_a_cluster(&self) {
        let mut phases = self.shared.phase.subscribe();
        // An error would say that the sender is gone, which is ours.
        let _ = phases.wait_for(|phase| matches!(phase, Phase::Away(Trouble::IsCluster))).await;
    }

    /// Why it is away, if it is.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        match &*self.shared.phase.borrow() {
            Phase::Away(trouble) => Some(trouble.clone()),
            Phase::Joining | Phase::Up(_) => None,
        }
    }

    pub(crate) fn health(&self) -> NodeHealth {
        NodeHealth {
            address: self.shared.name.clone(),
            connected: self.shared.connected.load(Relaxed),
            breaker_open: self.trouble().is_some(),
            failures: self.shared.breaker.failures(),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Phase {
    /// The connection or the trouble, if it is decided which.
    fn settled(&self) -> Option<Result<&Usable, &Trouble>> {
        match self {
            Phase::Up(up) if !up.pulse.is_finished() => Some(Ok(up)),
            Phase::Up(_) | Phase::Joining => None,
            Phase::Away(trouble) => Some(Err(trouble)),
        }
    }
}

impl Shared {
    fn channel_now(&self) -> Option<Result<(Channel, u64), NoAnswer>> {
        match self.phase.borrow().settled()? {
            Ok(up) => Some(Ok((up.channel.clone(), up.epoch))),
            Err(trouble) => Some(Err(NoAnswer::Away(trouble.to_string()))),
        }
    }

    fn away(&self, why: &str) -> NoAnswer {
        NoAnswer::Away(format!("{}: {why}", self.name))
    }

    /// What an answer, or its absence, says about the node.
    fn draw_conclusions(&self, epoch: u64, answer: Result<&Value, &NoAnswer>) {
        match answer {
            Err(NoAnswer::NotReady(said) | NoAnswer::ClusterDown(said)) => {
                self.fail(Some(epoch), || said.clone());
            }
            Err(NoAnswer::ReadOnly(_)) => self.renew(epoch),
            Err(NoAnswer::Late) => {
                self.fail(Some(epoch), || format!("no answer within {:?}", self.settings.deadline));
            }
            Err(NoAnswer::Lost(why)) => self.fail(Some(epoch), || why.clone()),
            Ok(_) | Err(_) => self.breaker.succeed(),
        }
    }

    /// Counts a failure of the connection of that epoch, or of the wait for one.
    fn fail(&self, epoch: Option<u64>, why: impl Fn() -> String) {
        let current = match &*self.phase.borrow() {
            Phase::Up(up) => epoch == Some(up.epoch),
            Phase::Joining => epoch.is_none(),
            Phase::Away(_) => false,
        };
        if !current {
            self.breaker.count();
        } else if self.breaker.fail() {
            let why = why();
            self.go_away(
                Trouble::Unreachable(format!("{}: it failed too often, last with: {why}", self.name)),
                epoch,
            );
            self.nudge.notify_one();
        }
    }

    /// The connection of that epoch leads to a server that is no master any more.
    fn renew(&self, epoch: u64) {
        let changed = self.phase.send_if_modified(|phase| {
            let ours = matches!(phase, Phase::Up(up) if up.epoch == epoch);
            if ours {
                *phase = Phase::Joining;
            }
            ours
        });
        if changed {
            self.breaker.count();
            self.nudge.notify_one();
        }
    }

    /// Away, unless the phase is not that of this epoch any more; `None` is any that has no connection.
    fn go_away(&self, trouble: Trouble, epoch: Option<u64>) {
        let said = trouble.to_string();
        let changed = self.phase.send_if_modified(|phase| {
            let ours = match phase {
                Phase::Up(up) => epoch == Some(up.epoch),
                Phase::Joining | Phase::Away(_) => true,
            };
            if ours {
                *phase = Phase::Away(trouble);
            }
            ours
        });
        if changed {
            self.tell_away(&said);
        }
    }

    fn tell_away(&self, why: &str) {
        if !self.told_away.swap(true, Relaxed) {
            tracing::warn!(store = %self.name, why, "the store is away");
        }
        self.settings.when_away.notify_one();
    }

    fn go_up(&self, connection: &Connection) {
        if self.told_away.swap(false, Relaxed) {
            self.breaker.put_on_trial();
            tracing::info!(store = %self.name, "the store is back");
        }
        let epoch = self.epochs.fetch_add(1, Relaxed);
        let up =
            Usable { channel: Channel::new(connection.connection.clone()), pulse: connection.pulse(), epoch };
        self.phase.send_replace(Phase::Up(up));
    }

    /// The connection is no more. Callers wait for the next one if it is likely to come at once.
    fn go_down(&self, likely_back: bool) {
        let mut said = None;
        self.phase.send_modify(|phase| match phase {
            // Never keep a connection here: it would live on.
            Phase::Up(_) | Phase::Joining if likely_back => *phase = Phase::Joining,
            Phase::Up(_) | Phase::Joining => {
                let why = format!("{}: the connection breaks again and again", self.name);
                said = Some(why.clone());
                *phase = Phase::Away(Trouble::Unreachable(why));
            }
            Phase::Away(_) => {}
        });
        if let Some(why) = said {
            self.tell_away(&why);
        }
    }

    async fn connect(&self) -> Result<(Connection, Place), Trouble> {
        let place = match &self.settings.route {
            Route::Fixed(place) => place.clone(),
            Route::Sentinel { sentinels, master } => {
                sentinel::master(&self.settings.dialer, sentinels, master).await?
            }
        };
        let part = self.settings.part;
        let connection = in_time(&place, async {
            let connection = self.settings.dialer.dial(&place).await?;
            connection.examine(&place, part).await?;
            Ok(connection)
        });
        Ok((connection.await?, place))
    }

    /// Looks after a connection until it has to be replaced.
    async fn tend(&self, connection: &mut Connection, place: &Place, backoff: &mut Backoff) {
        loop {
            tokio::select! {
                () = connection.ended() => return,
                () = self.nudge.notified() => {}
            }
            let phase = self.phase.borrow().clone();
            match phase {
                Phase::Up(_) => continue,
                Phase::Joining => return,
                Phase::Away(_) => {}
            }
            if self.breaker.has_worked_since_asked() {
                backoff.reset();
            }
            sleep(backoff.wait()).await;
            match timeout(self.settings.deadline, connection.probe(place, self.settings.part)).await {
                Ok(Ok(())) => self.go_up(connection),
                // It does not answer, or says that it is not ready: a new connection finds out, as often as it takes.
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

/// Keeps a node connected for as long as it is wanted.
async fn supervise(shared: Arc<Shared>) {
    let mut backoff = Backoff::new();
    loop {
        let (mut connection, place) = match shared.connect().await {
            Ok(connected) => connected,
            Err(trouble) => {
                let is_cluster = trouble == Trouble::IsCluster;
                shared.go_away(trouble, None);
                if is_cluster {
                    // The link goes on with the whole cluster.
                    return;
                }
                sleep(backoff.wait()).await;
                continue;
            }
        };
        let since = Instant::now();
        shared.connected.store(true, Relaxed);
        shared.go_up(&connection);
        shared.tend(&mut connection, &place, &mut backoff).await;
        shared.connected.store(false, Relaxed);
        let likely_back = shared.breaker.has_worked_since_asked() || since.elapsed() >= WAIT_MAX;
        shared.go_down(likely_back);
        drop(connection);
        if likely_back {
            backoff.reset();
        } else {
            sleep(backoff.wait()).await;
        }
    }
}
