//! A store that many processes share.

use crate::failure::{ConnectError, StoreFailure};
use crate::link::{Link, NodeHealth, without_password};
use crate::remembered::Denials;
use crate::script::Trip;
use crate::semaphore::Scopes;
use redis::Value;
use sluicegate::{SharedLeases, SharedStore};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

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
    failures: [AtomicU64; 4],
    /// Whether it refused the last call.
    refuses: AtomicBool,
    /// The keys of limiters that decide in memory while the store is away. One room for all of them, made when the first needs it.
    local: OnceLock<SharedStore>,
    /// The leases of semaphores that decide there. The same: one room, made when the first needs it.
    local_leases: OnceLock<SharedLeases>,
    /// What its semaphores in this process have in common.
    pub(crate) scopes: Scopes,
    /// Those of a moment ago, if they are to be remembered.
    pub(crate) denials: Option<Denials>,
}

/// How often a store has failed, by what went wrong: see [`StoreFailure`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Failures {
    /// It was not asked.
    pub away: u64,
    /// No answer came in time.
    pub late: u64,
    /// The connection broke, or the answer could not be used.
    pub lost: u64,
    /// It refused.
    pub refused: u64,
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
    pub(crate) share_trips: bool,
}

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
            share_trips: false,
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

    /// How often it has failed so far, also where a limiter answered without it.
    pub fn failures(&self) -> Failures {
        let [away, late, lost, refused] =
            self.inner.failures.each_ref().map(|count| count.load(Ordering::Relaxed));
        Failures { away, late, lost, refused }
    }

    /// How each server is doing: one, or all nodes of a cluster that have slots.
    pub fn health(&self) -> Vec<NodeHealth> {
        self.inner.link.health()
    }
}

impl Inner {
    /// Makes a trip, and is back by then.
    pub(crate) async fn go(&self, trip: &Trip, until: Instant) -> Result<Value, StoreFailure> {
        let answer = self.link.go(trip, until).await;
        self.count(&answer);
        answer
    }

    /// Makes several trips at once; an answer for each.
    pub(crate) async fn go_each(&self, trips: &[Trip], until: Instant) -> Vec<Result<Value, StoreFailure>> {
        let answers = self.link.go_each(trips, until).await;
        for answer in &answers {
            self.count(answer);
        }
        answers
    }

    /// Counts a failure.
    pub(crate) fn count<T>(&self, answer: &Result<T, StoreFailure>) {
        let Err(failure) = answer else {
            if self.refuses.load(Ordering::Relaxed) && self.refuses.swap(false, Ordering::Relaxed) {
                info!("the store refuses no more");
            }
            return;
        };
        // Said once, and not for each call. (That it is away is said by the link.)
        if let StoreFailure::Refused(why) = failure
            && !self.refuses.swap(true, Ordering::Relaxed)
        {
            warn!("the store refuses calls: {why}");
        }
        let place = match failure {
            StoreFailure::Away(_) => 0,
            StoreFailure::Late { .. } => 1,
            StoreFailure::Refused(_) => 3,
            // The connection broke, or the reply could not be used.
            _ => 2,
        };
        self.failures[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Room for the keys of limiters that decide in memory while the store is away.
    pub(crate) fn local(&self) -> Result<&SharedStore, sluicegate::BuildError> {
        if let Some(local) = self.local.get() {
            return Ok(local);
        }
        let made = SharedStore::builder().max_keys(self.settings.local_keys).build()?;
        Ok(self.local.get_or_init(|| made))
    }

    /// Room for the leases of semaphores that decide there.
    pub(crate) fn local_leases(&self) -> Result<&SharedLeases, sluicegate::BuildError> {
        if let Some(leases) = self.local_leases.get() {
            return Ok(leases);
        }
        let made = SharedLeases::builder().max_leases(self.settings.local_leases).build()?;
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

    /// Whether denials are remembered here for a moment, so that those who do not stop calling cost no trips. Not unless said.
    ///
    /// A check that costs at least as much as one that was just denied for the same key is denied again, without asking the
    /// store, until that denial's `retry_after` is over or [`REMEMBERED_MAX`](crate::REMEMBERED_MAX) has passed. Its answer
    /// comes from [`Source::Remembered`](crate::Source::Remembered) and has the fields of the denial, with less to wait: what
    /// remains is what remained then, and the wait is that of the smaller cost. Whoever waits as told is asked at the store.
    ///
    /// What it changes: cost that another process gives back, or a key that it resets, is seen up to that second late; what this
    /// process gives back is seen at once. Nothing is ever admitted because of it. Under `count=all`, where denied calls
    /// count, and at times of the caller's nothing is remembered. At most
    /// [`REMEMBERED_KEYS_MAX`](crate::REMEMBERED_KEYS_MAX) keys are, and the oldest make room.
    pub fn remember_denials(mut self, remember: bool) -> RedisStoreBuilder {
        self.settings.remember_denials = remember;
        self
    }

    /// Whether checks of one key that wait at the same time share a trip. Not unless said.
    ///
    /// Of each key of a limiter one trip of this process is under way at a time. Checks that come meanwhile line up, and go
    /// together when it is back, in the order in which they came. Each is decided by itself, as one after another, and keeps
    /// its own deadline, which includes the time in line. Where many wait and all cost 1, they are one script call, except under
    /// sliding logs.
    ///
    /// It is for keys of which ten and more calls are under way at most times: they cost the store much less. For others it costs
    /// more, as what would have been one trip is two, and a call that lines up takes up to two trips' time. Checks at times of
    /// the caller's, and those of [`check_each`](crate::check_each), go by themselves.
    pub fn share_trips(mut self, share: bool) -> RedisStoreBuilder {
        self.settings.share_trips = share;
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
        let denials = self.settings.remember_denials.then(Denials::new);
        let inner = Inner {
            link,
            settings: self.settings,
            failures: Default::default(),
            refuses: AtomicBool::new(false),
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
