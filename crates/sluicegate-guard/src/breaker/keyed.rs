//! One breaker per key, in bounded memory.
//!
//! Keys are spread over shards by their hash, each with its own lock. A full shard evicts the least
//! valuable breaker before it inserts a new key.
//!
//! ```text
//! evicted first   closed, with no call in its window     fully recovered, so nothing is lost
//! then            closed, or open and `open` elapsed  closed before open; least recently used
//! never           open, with probes in flight, or forced: evicting it would admit what it denies
//! none evictable  a new key gets a breaker that is not stored: its call is admitted and counted as
//!                 `no_room`
//! ```
//!
//! A search for a victim scans up to [`EVICTION_SCAN_MAX`] breakers, starting where the last one
//! stopped, so the cost of a new key is bounded however large the shard is.

use super::builder::{BreakerBuilder, Settings};
use super::machine::{State, Totals};
use super::{Admission, Breaker, BreakerConfig};
use crate::event::Observer;
use crate::text::IntoConfig;
use sluicegate::BuildError;
use sluicegate::Key;
use sluicegate::LimitError;
use sluicegate::clock::Clock;
use sluicegate::internal::Callbacks;
use sluicegate::internal::sync::Lock;
use sluicegate::internal::within;
use sluicegate::internal::{ByFingerprint, Fingerprint, Seeds};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Default of `max_keys`. Beside its counts a breaker takes 20 slices of 24 bytes for a window of
/// time, or a quarter of a byte per call for a window of calls.
pub const MAX_BREAKERS_DEFAULT: usize = 10_000;

/// Upper bound of `max_keys`.
pub const MAX_BREAKERS_MAX: usize = 10_000_000;

/// The maximum number of shards; enough that threads rarely contend.
const SHARDS_MAX: usize = 16;
/// A shard of fewer keys is not worth having.
const KEYS_PER_SHARD_MIN: usize = 64;

/// Breakers scanned per eviction: bounds the cost of a new key.
const EVICTION_SCAN_MAX: usize = 128;

/// One circuit breaker per key, created on the key's first call, in bounded memory. Clones share
/// the same set.
///
/// ```
/// use sluicegate_guard::KeyedBreakers;
/// use sluicegate_guard::breaker::State;
///
/// let hosts = KeyedBreakers::new("breaker 50%/2calls")?;
/// for _ in 0..2 {
///     hosts.try_acquire("10.0.0.7").admitted()?.failure();
/// }
/// assert!(!hosts.try_acquire("10.0.0.7").allowed());
/// assert!(hosts.try_acquire("10.0.0.8").allowed());
/// assert_eq!(hosts.get("10.0.0.7").state(), State::Open);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct KeyedBreakers {
    inner: Arc<Set>,
}

struct Set {
    seeds: Seeds,
    shards: Box<[Lock<Shard>]>,
    /// The maximum number of keys per shard.
    max_keys_per_shard: usize,
    /// The template of new breakers.
    template: Lock<Template>,
}

#[derive(Clone)]
struct Template {
    config: BreakerConfig,
    /// The number of changes so far.
    version: u64,
    settings: Arc<Settings>,
}

#[derive(Default)]
struct Shard {
    index: HashMap<Fingerprint, usize, ByFingerprint>,
    entries: Vec<Entry>,
    /// Where the next search for a victim starts.
    hand: usize,
    /// Counts lookups, to find the least recently used breaker.
    lookups: u64,
    /// The totals of evicted breakers.
    evicted_breaker: Totals,
    evicted: u64,
    no_room: u64,
}

struct Entry {
    key: Fingerprint,
    breaker: Breaker,
    last_used: u64,
}

/// Totals and size of a set of breakers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct KeyedBreakersStats {
    /// The sum over all keys, including evicted ones. Calls of a breaker that was not stored, and
    /// calls that ended after their breaker was evicted, are not counted.
    pub totals: Totals,
    /// Keys stored now.
    pub keys: usize,
    /// The maximum number of keys.
    pub max_keys: usize,
    /// Keys whose breaker is open, half-open or forced open now.
    pub open: usize,
    /// Keys evicted although their breaker was not fully recovered. If this grows, raise
    /// `max_keys`.
    pub evicted: u64,
    /// Calls of new keys whose breaker was not stored, because none could be evicted.
    pub no_room: u64,
}

impl KeyedBreakers {
    /// Creates a set of breakers such as `breaker 50%/10s` on the system clock.
    ///
    /// # Errors
    /// If the text is not a valid breaker.
    pub fn new(config: impl IntoConfig<BreakerConfig>) -> Result<KeyedBreakers, BuildError> {
        KeyedBreakers::builder(config).build()
    }

    /// Returns a builder, for a name, a clock, an observer or `max_keys`.
    pub fn builder(config: impl IntoConfig<BreakerConfig>) -> KeyedBreakersBuilder {
        KeyedBreakersBuilder { breaker_builder: BreakerBuilder::new(config), max_keys: MAX_BREAKERS_DEFAULT }
    }

    /// Admits or denies a call of a key. Finish an admitted call with its outcome.
    pub fn try_acquire(&self, key: impl Key) -> Admission<'static> {
        self.get(key).try_acquire().into_owned()
    }

    /// Returns the breaker of a key. Keep it for a few calls only: after an eviction the set
    /// creates a new one.
    pub fn get(&self, key: impl Key) -> Breaker {
        let key = self.inner.seeds.fingerprint(&key);
        let mut shard = self.inner.shard(key).lock();
        if let Some(breaker) = shard.find(key) {
            return breaker;
        }
        drop(shard);
        // Created without a shard locked; the template is locked only while it is copied.
        let (breaker, version) = self.inner.make();
        let mut shard = self.inner.shard(key).lock();
        let (breaker, evicted_breaker) = shard.insert(key, breaker, self.inner.max_keys_per_shard);
        drop(shard);
        // Dropping a breaker may drop the user's observer.
        drop(evicted_breaker);
        // A later change of the configuration finds the breaker in its shard.
        self.inner.apply_latest_config(&breaker, version);
        breaker
    }

    /// Returns the state of a key's breaker, or `None` if there is none. Creates none.
    pub fn state(&self, key: impl Key) -> Option<State> {
        let key = self.inner.seeds.fingerprint(&key);
        let shard = self.inner.shard(key).lock();
        let breaker = shard
            .index
            .get(&key)
            .and_then(|slot| shard.entries.get(*slot))
            .map(|entry| entry.breaker.clone());
        drop(shard);
        breaker.map(|breaker| breaker.state())
    }

    /// Returns the configuration of new breakers.
    pub fn config(&self) -> BreakerConfig {
        self.inner.template.lock().config
    }

    /// Replaces the configuration of existing and new breakers; see [`Breaker::change`]. Of two
    /// concurrent changes the later one applies to all breakers.
    ///
    /// # Errors
    /// If the text is not a valid breaker. Nothing changes then.
    pub fn change(&self, config: impl IntoConfig<BreakerConfig>) -> Result<(), LimitError> {
        let config = config.into_config()?;
        let version = {
            let mut template = self.inner.template.lock();
            // Cannot overflow: that would take centuries.
            template.version += 1;
            template.config = config;
            template.version
        };
        // An observer that panics does not keep other breakers from being changed.
        let mut callbacks = Callbacks::default();
        for shard in &self.inner.shards {
            for breaker in breakers_in(shard) {
                callbacks.run(|| breaker.apply(config));
                callbacks.run(|| self.inner.apply_latest_config(&breaker, version));
            }
        }
        callbacks.end();
        Ok(())
    }

    /// Removes a key. Its next call finds a new breaker.
    pub fn remove(&self, key: impl Key) {
        let key = self.inner.seeds.fingerprint(&key);
        let mut shard = self.inner.shard(key).lock();
        let evicted_breaker = shard.remove(key);
        drop(shard);
        drop(evicted_breaker);
    }

    /// Returns totals and size.
    pub fn stats(&self) -> KeyedBreakersStats {
        let (mut sum, mut open) = (Totals::default(), 0);
        let (mut keys, mut evicted, mut no_room) = (0, 0, 0);
        for shard in &self.inner.shards {
            // Reading a state may emit an event, so no lock is held meanwhile.
            for breaker in breakers_in(shard) {
                let is_open = matches!(breaker.state(), State::Open | State::HalfOpen | State::ForcedOpen);
                open += usize::from(is_open);
            }
            // Evicted and stored breakers are summed under one lock: each is counted once, and no
            // total decreases.
            let shard = shard.lock();
            sum += shard.evicted_breaker;
            shard.entries.iter().for_each(|entry| sum += entry.breaker.totals());
            keys += shard.entries.len();
            evicted += shard.evicted;
            no_room += shard.no_room;
        }
        KeyedBreakersStats {
            totals: sum,
            keys,
            max_keys: self.inner.max_keys_per_shard * self.inner.shards.len(),
            open,
            evicted,
            no_room,
        }
    }
}

impl Set {
    fn shard(&self, key: Fingerprint) -> &Lock<Shard> {
        // Cannot fail: there is at least one shard.
        &self.shards[key.shard(self.shards.len())]
    }

    /// Returns a new breaker, and the version of its configuration.
    fn make(&self) -> (Breaker, u64) {
        let Template { config, version, settings } = self.template.lock().clone();
        (settings.make(config), version)
    }

    /// Brings a breaker of this version up to date: the last thread to check has seen the latest
    /// configuration.
    fn apply_latest_config(&self, breaker: &Breaker, mut version: u64) {
        loop {
            let (config, latest) = {
                let template = self.template.lock();
                (template.config, template.version)
            };
            if latest == version {
                return;
            }
            breaker.apply(config);
            version = latest;
        }
    }
}

/// Returns the breakers of a shard, which is unlocked afterwards.
fn breakers_in(shard: &Lock<Shard>) -> Vec<Breaker> {
    shard.lock().entries.iter().map(|entry| entry.breaker.clone()).collect()
}

/// How readily a breaker is evicted; the lowest rank goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// Fully recovered.
    Idle,
    /// Admits every call.
    Closed,
    /// Its next call is a probe.
    Elapsed,
    /// Denies calls, has probes in flight, or is forced.
    Pinned,
}

impl Shard {
    fn find(&mut self, key: Fingerprint) -> Option<Breaker> {
        self.lookups += 1;
        let entry = self.entries.get_mut(*self.index.get(&key)?)?;
        entry.last_used = self.lookups;
        Some(entry.breaker.clone())
    }

    /// Inserts a key, and returns the breaker to drop: the evicted one, or the new one if another
    /// thread was faster.
    fn insert(&mut self, key: Fingerprint, breaker: Breaker, most: usize) -> (Breaker, Option<Breaker>) {
        if let Some(there) = self.find(key) {
            return (there, Some(breaker));
        }
        let entry = Entry { key, breaker: breaker.clone(), last_used: self.lookups };
        if self.entries.len() < most {
            self.index.insert(key, self.entries.len());
            self.entries.push(entry);
            return (breaker, None);
        }
        let Some(slot) = self.find_victim() else {
            self.no_room += 1;
            return (breaker, None);
        };
        let Some(there) = self.entries.get_mut(slot) else { return (breaker, None) };
        let evicted_breaker = std::mem::replace(there, entry);
        self.index.remove(&evicted_breaker.key);
        self.index.insert(key, slot);
        self.keep_totals(&evicted_breaker.breaker);
        (breaker, Some(evicted_breaker.breaker))
    }

    /// Returns the slot of a victim, or `None` if every scanned breaker is pinned.
    fn find_victim(&mut self) -> Option<usize> {
        let count = self.entries.len();
        let mut best = None;
        for _ in 0..count.min(EVICTION_SCAN_MAX) {
            self.hand = if self.hand + 1 < count { self.hand + 1 } else { 0 };
            let Some(entry) = self.entries.get(self.hand) else { continue };
            let rank = (entry.breaker.rank(), entry.last_used);
            if best.is_none_or(|(best, _)| rank < best) {
                best = Some((rank, self.hand));
            }
        }
        let ((rank, _), slot) = best?;
        self.evicted += u64::from(matches!(rank, EvictionRank::Closed | EvictionRank::Elapsed));
        (rank != EvictionRank::Pinned).then_some(slot)
    }

    fn remove(&mut self, key: Fingerprint) -> Option<Breaker> {
        let slot = self.index.remove(&key)?;
        let evicted_breaker = self.entries.swap_remove(slot);
        if let Some(moved) = self.entries.get(slot) {
            self.index.insert(moved.key, slot);
        }
        self.keep_totals(&evicted_breaker.breaker);
        Some(evicted_breaker.breaker)
    }

    fn keep_totals(&mut self, breaker: &Breaker) {
        self.evicted_breaker += breaker.totals();
    }
}

impl Breaker {
    fn totals(&self) -> Totals {
        self.inner.totals(&self.inner.machine.lock())
    }

    /// Returns the eviction rank. Overdue probes are not expired, since that could emit an event.
    fn rank(&self) -> EvictionRank {
        let now = self.inner.clock.now();
        let mut machine = self.inner.machine.lock();
        match machine.state() {
            State::Closed | State::MetricsOnly if machine.is_idle(now) => EvictionRank::Idle,
            State::Closed => EvictionRank::Closed,
            State::MetricsOnly if machine.config().metrics_only() => EvictionRank::Closed,
            // Only its probes are admitted until they have ended.
            State::HalfOpen if machine.has_live_probes(now) => EvictionRank::Pinned,
            State::Open | State::HalfOpen if machine.denies_for(now).is_none() => EvictionRank::Elapsed,
            _ => EvictionRank::Pinned,
        }
    }
}

/// Builds a set of breakers. Created by [`KeyedBreakers::builder`].
///
/// ```
/// use sluicegate_guard::KeyedBreakers;
///
/// let hosts = KeyedBreakers::builder("breaker 50%/10s").name("hosts").max_keys(500).build()?;
/// assert!(hosts.stats().max_keys <= 500);
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
#[must_use]
#[derive(Debug)]
pub struct KeyedBreakersBuilder {
    breaker_builder: BreakerBuilder,
    max_keys: usize,
}

impl KeyedBreakersBuilder {
    /// Uses this clock instead of the system clock. For tests: [`crate::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> KeyedBreakersBuilder {
        self.breaker_builder = self.breaker_builder.clock(clock);
        self
    }

    /// Notifies this observer when a breaker opens, half-opens, closes or is forced.
    pub fn observer(mut self, observer: impl Observer + 'static) -> KeyedBreakersBuilder {
        self.breaker_builder = self.breaker_builder.observer(observer);
        self
    }

    /// Sets the name in events.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> KeyedBreakersBuilder {
        self.breaker_builder = self.breaker_builder.name(name);
        self
    }

    /// Sets the maximum number of keys; the default is [`MAX_BREAKERS_DEFAULT`]. A new key beyond
    /// it evicts another.
    pub fn max_keys(mut self, max_keys: usize) -> KeyedBreakersBuilder {
        self.max_keys = max_keys;
        self
    }

    /// Builds the set.
    ///
    /// # Errors
    /// If the text is not a valid breaker, or `max_keys` is 0 or above [`MAX_BREAKERS_MAX`].
    pub fn build(self) -> Result<KeyedBreakers, BuildError> {
        let max_keys = within("max_keys", self.max_keys, 1, MAX_BREAKERS_MAX)?;
        let config = self.breaker_builder.config.map_err(BuildError::Limit)?;
        let shards = (max_keys / KEYS_PER_SHARD_MIN).clamp(1, SHARDS_MAX);
        let template = Template { config, version: 0, settings: Arc::new(self.breaker_builder.settings) };
        let inner = Set {
            seeds: Seeds::random(),
            shards: (0..shards).map(|_| Lock::new(Shard::default())).collect(),
            max_keys_per_shard: max_keys / shards,
            template: Lock::new(template),
        };
        Ok(KeyedBreakers { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for KeyedBreakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedBreakers").field("config", &self.config().to_string()).finish_non_exhaustive()
    }
}
