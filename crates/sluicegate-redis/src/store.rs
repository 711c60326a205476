//! A store that many processes share.

use crate::denial_cache::DenialCache;
use crate::failure::ConnectError;
use crate::in_flight::InFlight;
use crate::link::{Link, NodeHealth, without_password};
use crate::semaphore::ScopeStates;
use crate::stats::{RedisStats, StoreCounters};
use sluicegate::MemoryStore;
use sluicegate::backend::Source;
use sluicegate::semaphore::LeasePool;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The default deadline of a decision.
pub const DEADLINE_DEFAULT: Duration = Duration::from_millis(50);
/// The default prefix of key names.
pub const KEY_PREFIX_DEFAULT: &str = "sluice:";
/// The default bound on keys in memory while the store is unavailable.
pub const LOCAL_KEYS_DEFAULT: usize = 100_000;
/// The default bound on leases in memory while the store is unavailable.
pub const LOCAL_LEASES_DEFAULT: usize = 100_000;

/// A Redis or Valkey store, for limiters and semaphores in any number of processes. Clones share
/// one store.
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) link: Link,
    pub(crate) settings: StoreSettings,
    pub(crate) in_flight: InFlight,
    pub(crate) counters: StoreCounters,
    /// The keys of limiters that decide in memory while the store is unavailable. All share one
    /// store, built when it is first needed.
    local: OnceLock<MemoryStore>,
    /// The leases of semaphores that decide in memory meanwhile, likewise.
    local_leases: OnceLock<LeasePool>,
    /// What its semaphores share in this process.
    pub(crate) scopes: ScopeStates,
    /// The denial cache, if it is on.
    pub(crate) denials: Option<DenialCache>,
}

/// The settings of a store.
#[derive(Clone)]
pub(crate) struct StoreSettings {
    pub(crate) url: String,
    pub(crate) deadline: Duration,
    pub(crate) key_prefix: String,
    /// CA certificates in PEM, instead of the system's.
    pub(crate) tls_ca: Option<Vec<u8>>,
    /// Whether `connect` returns without waiting for the store.
    pub(crate) connect_later: bool,
    pub(crate) local_keys: usize,
    pub(crate) local_leases: usize,
    pub(crate) remember_denials: bool,
    pub(crate) on_round_trip: Option<OnRoundTrip>,
}

/// Called after a round trip with the number of calls that it answered, and its duration.
type OnRoundTrip = Arc<dyn Fn(u64, Duration) + Send + Sync>;

impl StoreSettings {
    pub(crate) fn new(url: &str) -> StoreSettings {
        StoreSettings {
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

/// Builds a [`RedisStore`]: see [`RedisStore::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RedisStoreBuilder {
    settings: StoreSettings,
}

impl RedisStore {
    /// Connects to the store at a URL such as `redis://127.0.0.1`, with default settings.
    ///
    /// # Errors
    /// If the URL is invalid, or the server is unusable or does not answer.
    pub async fn connect(url: &str) -> Result<RedisStore, ConnectError> {
        RedisStore::builder(url).connect().await
    }

    /// Builds a store with other settings.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder { settings: StoreSettings::new(url) }
    }

    /// Returns the store's statistics.
    pub fn stats(&self) -> RedisStats {
        self.inner.counters.view(self.inner.link.evicted_keys())
    }

    /// Counts an answer that the caller gave itself, because [`check_all`](crate::check_all) had
    /// none.
    #[doc(hidden)]
    pub fn count_answer(&self, source: Source) {
        self.inner.counters.count(Some(source));
    }

    /// Returns the health of each server: a single one, or all cluster nodes that own slots.
    pub fn health(&self) -> Vec<NodeHealth> {
        self.inner.link.health()
    }

    /// Returns `true` if the whole store is available: in a cluster, all nodes.
    pub fn is_up(&self) -> bool {
        let health = self.health();
        // A cluster that was never reached has no known nodes.
        !health.is_empty() && health.iter().all(NodeHealth::is_up)
    }

    /// Returns `true` if at least one node is available.
    pub fn is_partly_up(&self) -> bool {
        self.inner.is_partly_up()
    }

    /// Returns `true` if the whole store accepts writes: in a cluster, all nodes.
    pub fn is_writable(&self) -> bool {
        let health = self.health();
        !health.is_empty() && health.iter().all(NodeHealth::is_writable)
    }

    /// Returns why no call can be decided in the store, or `None` if at least one node is available
    /// and accepts writes.
    pub fn outage(&self) -> Option<String> {
        let health = self.health();
        if health.iter().any(NodeHealth::is_writable) {
            return None;
        }
        let rejected = health.into_iter().filter(NodeHealth::is_up).find_map(|node| node.rejects_writes);
        Some(match rejected {
            Some(why) => format!("the store rejects writes: {why}"),
            None => "the store is unavailable".to_owned(),
        })
    }
}

impl Inner {
    pub(crate) fn is_partly_up(&self) -> bool {
        self.link.health().iter().any(NodeHealth::is_up)
    }

    /// The store of limiters that decide in memory while this one is unavailable.
    pub(crate) fn local(&self) -> Result<&MemoryStore, sluicegate::BuildError> {
        if let Some(local) = self.local.get() {
            return Ok(local);
        }
        let made = MemoryStore::builder().max_keys(self.settings.local_keys).build()?;
        Ok(self.local.get_or_init(|| made))
    }

    /// The leases of semaphores that decide in memory meanwhile.
    pub(crate) fn local_leases(&self) -> Result<&LeasePool, sluicegate::BuildError> {
        if let Some(leases) = self.local_leases.get() {
            return Ok(leases);
        }
        let made = LeasePool::builder().max_leases(self.settings.local_leases).build()?;
        Ok(self.local_leases.get_or_init(|| made))
    }
}

impl RedisStoreBuilder {
    /// Sets the most keys in memory for limiters that decide there while the store is unavailable
    /// ([`OnStoreFailure::Local`](crate::OnStoreFailure::Local)); [`LOCAL_KEYS_DEFAULT`] by
    /// default.
    pub fn local_keys(mut self, most: usize) -> RedisStoreBuilder {
        self.settings.local_keys = most;
        self
    }

    /// Sets the most leases and waiters in memory for semaphores that decide there while the store
    /// is unavailable; [`LOCAL_LEASES_DEFAULT`] by default. Beyond it, calls are denied.
    pub fn local_leases(mut self, most: usize) -> RedisStoreBuilder {
        self.settings.local_leases = most;
        self
    }

    /// Sets the deadline of a decision; [`DEADLINE_DEFAULT`] by default.
    pub fn deadline(mut self, deadline: Duration) -> RedisStoreBuilder {
        self.settings.deadline = deadline;
        self
    }

    /// Sets the prefix of all key names; [`KEY_PREFIX_DEFAULT`] by default.
    pub fn key_prefix(mut self, prefix: &str) -> RedisStoreBuilder {
        prefix.clone_into(&mut self.settings.key_prefix);
        self
    }

    /// Sets the CA certificates to trust, in PEM, instead of the system's. For `rediss://` and the
    /// other TLS schemes.
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> RedisStoreBuilder {
        self.settings.tls_ca = Some(pem.into());
        self
    }

    /// Returns from [`connect`](RedisStoreBuilder::connect) without waiting: the store may be
    /// unavailable at the start, and is used as soon as it is up. Until then calls fail as in any
    /// outage. An invalid URL is still an error.
    pub fn connect_later(mut self) -> RedisStoreBuilder {
        self.settings.connect_later = true;
        self
    }

    /// Sets whether recent denials are repeated without a round trip, so that callers that keep
    /// retrying cost the store nothing; off by default.
    ///
    /// A check that costs at least as much as one that was just denied for the same key is denied
    /// without a round trip, until that denial's `retry_after` or
    /// [`DENIAL_CACHE_AGE_MAX`](crate::DENIAL_CACHE_AGE_MAX) is over. The answer's source is
    /// [`Source::Remembered`](sluicegate::backend::Source::Remembered), and its fields are those of
    /// the cached denial, whose cost may be smaller; only the wait is shorter, by the time since
    /// then. A caller that waits for `retry_after` reaches the store.
    ///
    /// The effect: cost that another process returns, or a key that it resets, is seen up to a
    /// second late; what this process returns is seen at once. Nothing is admitted because of it.
    /// Under `count=all`, where denied calls count, and at a given time nothing is cached. At most
    /// [`DENIAL_CACHE_KEYS_MAX`](crate::DENIAL_CACHE_KEYS_MAX) keys are cached, and the oldest are
    /// evicted.
    pub fn remember_denials(mut self, remember: bool) -> RedisStoreBuilder {
        self.settings.remember_denials = remember;
        self
    }

    /// Sets a callback for metrics, called after each round trip with the number of calls that it
    /// answered and its duration. Polls of waiters for leases are not reported.
    pub fn on_round_trip(
        mut self,
        on_round_trip: impl Fn(u64, Duration) + Send + Sync + 'static,
    ) -> RedisStoreBuilder {
        self.settings.on_round_trip = Some(Arc::new(on_round_trip));
        self
    }

    /// Connects. Must be called in a Tokio runtime, which must outlive the store.
    ///
    /// # Errors
    /// If the URL is invalid, or the server is unusable or does not answer within 3 seconds.
    pub async fn connect(self) -> Result<RedisStore, ConnectError> {
        if self.settings.key_prefix.contains(['{', '}']) {
            return Err(ConnectError::BadPrefix(self.settings.key_prefix));
        }
        let link = Link::connect(&self.settings).await?;
        let denials = self.settings.remember_denials.then(DenialCache::new);
        let inner = Inner {
            link,
            in_flight: InFlight::new(self.settings.deadline),
            counters: StoreCounters::default(),
            settings: self.settings,
            local: OnceLock::new(),
            local_leases: OnceLock::new(),
            scopes: ScopeStates::default(),
            denials,
        };
        Ok(RedisStore { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the password.
        f.debug_struct("StoreSettings")
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
