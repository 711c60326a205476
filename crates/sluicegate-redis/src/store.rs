//! A store that many processes share.

use crate::denial_cache::DenialCache;
use crate::failure::ConnectError;
use crate::in_flight::InFlight;
use crate::link::{Link, NodeHealth, without_password};
use crate::semaphore::Scopes;
use crate::stats::{Counters, RedisStats};
use sluicegate::MemoryStore;
use sluicegate::backend::Source;
use sluicegate::semaphore::LeasePool;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a decision may take, unless said.
pub const DEADLINE_DEFAULT: Duration = Duration::from_millis(50);
/// What the names of keys begin with, unless said.
pub const KEY_PREFIX_DEFAULT: &str = "sluice:";
/// How many keys are held in memory while the store is away, unless said.
pub const LOCAL_KEYS_DEFAULT: usize = 100_000;
/// How many leases are given out in memory while the store is away, unless said.
pub const LOCAL_LEASES_DEFAULT: usize = 100_000;

/// Keys in Redis or Valkey, for limiters in as many processes as connect. Clones are the same store.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) link: Link,
    pub(crate) settings: Settings,
    pub(crate) in_flight: InFlight,
    pub(crate) counters: Counters,
    /// The keys of limiters that decide in memory while the store is away. One room for all of them, made when the first needs it.
    local: OnceLock<MemoryStore>,
    /// The leases of semaphores that decide there. The same: one room, made when the first needs it.
    local_leases: OnceLock<LeasePool>,
    /// What its semaphores in this process have in common.
    pub(crate) scopes: Scopes,
    /// Recent denials, if they are to be remembered.
    pub(crate) denials: Option<DenialCache>,
}

/// What a store is told.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) url: String,
    pub(crate) deadline: Duration,
    pub(crate) key_prefix: String,
    /// Certificates to trust, in PEM, in place of the machine's.
    pub(crate) tls_ca: Option<Vec<u8>>,
    /// Whether not to wait for the store at the start.
    pub(crate) connect_later: bool,
    pub(crate) local_keys: usize,
    pub(crate) local_leases: usize,
    pub(crate) remember_denials: bool,
    pub(crate) on_round_trip: Option<OnRoundTrip>,
}

/// Told of a round trip: how many calls it answered, and how long it took.
type OnRoundTrip = Arc<dyn Fn(u64, Duration) + Send + Sync>;

impl Settings {
    pub(crate) fn new(url: &str) -> Settings {
        Settings {
            url: url.to_owned(),
            deadline: DEADLINE_DEFAULT,
            key_prefix: KEY_PREFIX_DEFAULT.to_owned(),
            tls_ca: None,
            connect_later: false,
            local_keys: LOCAL_KEYS_DEFAULT,
            local_leases: LOCAL_LEASES_DEFAULT,
            remember_denials: false,
            on_round_trip: None,
        }
    }
}

/// Settings of a store. Made by [`RedisStore::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RedisStoreBuilder {
    settings: Settings,
}

impl RedisStore {
    /// The store at an address, with the default settings: `redis://127.0.0.1`.
    ///
    /// # Errors
    /// When the address is wrong, or what is there cannot be used.
    pub async fn connect(url: &str) -> Result<RedisStore, ConnectError> {
        RedisStore::builder(url).connect().await
    }

    /// A store with settings of your own.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder { settings: Settings::new(url) }
    }

    /// What it has answered so far, and how often it has failed.
    pub fn stats(&self) -> RedisStats {
        self.inner.counters.view()
    }

    /// Counts an answer that the caller gave itself, because [`check_all`](crate::check_all) had none.
    #[doc(hidden)]
    pub fn count_answer(&self, source: Source) {
        self.inner.counters.count(Some(source));
    }

    /// How each server is doing: one, or all nodes of a cluster that have slots.
    pub fn health(&self) -> Vec<NodeHealth> {
        self.inner.link.health()
    }

    /// Returns `true` if the whole store is available: of a cluster, all nodes.
    pub fn is_up(&self) -> bool {
        let health = self.health();
        // A cluster that was never reached has no nodes that are known.
        !health.is_empty() && health.iter().all(NodeHealth::is_up)
    }

    /// Returns `true` if any node is available.
    pub fn is_partly_up(&self) -> bool {
        self.inner.is_partly_up()
    }
}

impl Inner {
    pub(crate) fn is_partly_up(&self) -> bool {
        self.link.health().iter().any(NodeHealth::is_up)
    }

    /// Room for the keys of limiters that decide in memory while the store is away.
    pub(crate) fn local(&self) -> Result<&MemoryStore, sluicegate::BuildError> {
        if let Some(local) = self.local.get() {
            return Ok(local);
        }
        let made = MemoryStore::builder().max_keys(self.settings.local_keys).build()?;
        Ok(self.local.get_or_init(|| made))
    }

    /// Room for the leases of semaphores that decide there.
    pub(crate) fn local_leases(&self) -> Result<&LeasePool, sluicegate::BuildError> {
        if let Some(leases) = self.local_leases.get() {
            return Ok(leases);
        }
        let made = LeasePool::builder().max_leases(self.settings.local_leases).build()?;
        Ok(self.local_leases.get_or_init(|| made))
    }
}

impl RedisStoreBuilder {
    /// How many keys are held in memory at the most for limiters that decide there while the store is away
    /// ([`OnStoreFailure::Local`](crate::OnStoreFailure::Local)): [`LOCAL_KEYS_DEFAULT`] unless said.
    pub fn local_keys(mut self, most: usize) -> RedisStoreBuilder {
        self.settings.local_keys = most;
        self
    }

    /// The same for leases of semaphores, and those for which somebody waits there: [`LOCAL_LEASES_DEFAULT`] unless said. Beyond it nobody is given one.
    pub fn local_leases(mut self, most: usize) -> RedisStoreBuilder {
        self.settings.local_leases = most;
        self
    }

    /// How long a decision may take before it counts as failed.
    pub fn deadline(mut self, deadline: Duration) -> RedisStoreBuilder {
        self.settings.deadline = deadline;
        self
    }

    /// What the names of all keys begin with.
    pub fn key_prefix(mut self, prefix: &str) -> RedisStoreBuilder {
        prefix.clone_into(&mut self.settings.key_prefix);
        self
    }

    /// Trusts servers whom these certificates vouch for, in PEM, and nobody else. For `rediss://` and its like;
    /// without it the machine's certificates decide.
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> RedisStoreBuilder {
        self.settings.tls_ca = Some(pem.into());
        self
    }

    /// Does not wait for the store: it may be away at the start, and is used as soon as it comes. Until then calls
    /// fail as in any outage. What is wrong with the address itself is still an error of
    /// [`connect`](RedisStoreBuilder::connect).
    pub fn connect_later(mut self) -> RedisStoreBuilder {
        self.settings.connect_later = true;
        self
    }

    /// Whether recent denials are repeated without a round trip, so that callers that do not stop cost the store nothing.
    /// Off by default.
    ///
    /// A check that costs at least as much as one that was just denied for the same key is denied again, without asking the
    /// store, until that denial's `retry_after` is over or [`DENIAL_CACHE_AGE_MAX`](crate::DENIAL_CACHE_AGE_MAX) has passed. Its answer
    /// comes from [`Source::Remembered`](sluicegate::backend::Source::Remembered) and has the fields of the denial, with less to wait: what
    /// remains is what remained then, and the wait is that of the smaller cost. Whoever waits as told is asked at the store.
    ///
    /// What it changes: cost that another process gives back, or a key that it resets, is seen up to that second late; what this
    /// process gives back is seen at once. Nothing is ever admitted because of it. Under `count=all`, where denied calls
    /// count, and at times of the caller's nothing is remembered. At most
    /// [`DENIAL_CACHE_KEYS_MAX`](crate::DENIAL_CACHE_KEYS_MAX) keys are, and the oldest make room.
    pub fn remember_denials(mut self, remember: bool) -> RedisStoreBuilder {
        self.settings.remember_denials = remember;
        self
    }

    /// Is told of each round trip how many calls it answered and how long it took, for metrics. Round trips that
    /// waiters for leases make again and again are not among them.
    pub fn on_round_trip(
        mut self,
        on_round_trip: impl Fn(u64, Duration) + Send + Sync + 'static,
    ) -> RedisStoreBuilder {
        self.settings.on_round_trip = Some(Arc::new(on_round_trip));
        self
    }

    /// Connects. Must be called in a Tokio runtime, which has to live as long as the store.
    ///
    /// # Errors
    /// When the address is wrong, what is there cannot be used, or nobody answers for 3 seconds.
    pub async fn connect(self) -> Result<RedisStore, ConnectError> {
        if self.settings.key_prefix.contains(['{', '}']) {
            return Err(ConnectError::BadPrefix(self.settings.key_prefix));
        }
        let link = Link::connect(&self.settings).await?;
        let denials = self.settings.remember_denials.then(DenialCache::new);
        let inner = Inner {
            link,
            in_flight: InFlight::new(self.settings.deadline),
            counters: Counters::default(),
            settings: self.settings,
            local: OnceLock::new(),
            local_leases: OnceLock::new(),
            scopes: Scopes::default(),
            denials,
        };
        Ok(RedisStore { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nobody wants to find a password in a log.
        f.debug_struct("Settings")
            .field("url", &without_password(&self.url))
            .field("deadline", &self.deadline)
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("key_prefix", &self.inner.settings.key_prefix)
            .finish_non_exhaustive()
    }
}
