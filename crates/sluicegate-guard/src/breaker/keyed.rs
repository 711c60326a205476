//! A breaker for each key, in bounded memory.
//!
//! In plain words: keys are spread over a few tables by their hash, each with a lock of its own. A table that is full forgets a
//! breaker that can best be spared before it takes in a new key.
//!
//! ```text
//! forgotten first    closed, with no call in its window          it is as good as new, so nothing is lost
//! then               closed, or open with its time over          whichever was asked longest ago; all closed ones before open ones
//! never              open with its time not over, with probes out, or forced: to forget it would let through what it denies
//! full of those      a new key gets a breaker that is not remembered: it passes, and is counted as `no_room`
//! ```
//!
//! To find one it looks at up to [`LOOKED_AT`] breakers, from where it last stopped: so a flood of new keys costs each of them the
//! same, however large the table.

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

/// How many keys a set of breakers holds unless told otherwise. Beside its counts a breaker takes 20 slices of 24 bytes for a window of
/// time, or a quarter of a byte for each call of a window of calls.
pub const MAX_BREAKERS_DEFAULT: usize = 10_000;

/// The most keys that a set of breakers can be told to hold.
pub const MAX_BREAKERS_MAX: usize = 10_000_000;

/// Tables, if there are keys enough for them: threads rarely meet.
const SHARDS_MAX: usize = 16;
/// Below so many keys a table is not worth having.
const KEYS_PER_SHARD_MIN: usize = 64;

/// So many breakers are looked at to find one that can be forgotten: what a new key costs has a bound.
const EVICTION_SCAN_MAX: usize = 128;

/// A circuit breaker for each key, made when the key first asks. Bounded in memory. Its clones are the same set.
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
    /// How many keys a table holds.
    max_keys_per_shard: usize,
    /// What new breakers are made of.
    template: Lock<Template>,
}

#[derive(Clone)]
struct Template {
    config: BreakerConfig,
    /// How often they were changed.
    version: u64,
    settings: Arc<Settings>,
}

#[derive(Default)]
struct Shard {
    index: HashMap<Fingerprint, usize, ByFingerprint>,
    entries: Vec<Entry>,
    /// Where the search for one to forget goes on.
    hand: usize,
    /// Counts what is asked, so that it is known who was asked longest ago.
    lookups: u64,
    /// What those who were forgotten had seen.
    evicted_breaker: Totals,
    evicted: u64,
    no_room: u64,
}

struct Entry {
    key: Fingerprint,
    breaker: Breaker,
    last_used: u64,
}

/// What a set of breakers has seen since it was made, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct KeyedBreakersStats {
    /// The sum over all keys, evicted ones included. Calls of a breaker that was not stored, and calls that ended
    /// after their breaker was evicted, are not counted.
    pub totals: Totals,
    /// Keys held now.
    pub keys: usize,
    /// The most keys it can hold.
    pub max_keys: usize,
    /// Keys whose breaker is open, half-open or forced open now.
    pub open: usize,
    /// Keys that had to make room though their breaker was not as good as new. If this grows, raise `max_keys`.
    pub evicted: u64,
    /// Calls of new keys whose breaker is not remembered, since all that could make room are open.
    pub no_room: u64,
}

impl KeyedBreakers {
    /// Breakers with these rules, such as `breaker 50%/10s`, and the system's clock.
    ///
    /// # Errors
    /// When the text is no breaker.
    pub fn new(config: impl IntoConfig<BreakerConfig>) -> Result<KeyedBreakers, BuildError> {
        KeyedBreakers::builder(config).build()
    }

    /// The same with settings.
    pub fn builder(config: impl IntoConfig<BreakerConfig>) -> KeyedBreakersBuilder {
        KeyedBreakersBuilder { breaker_builder: BreakerBuilder::new(config), max_keys: MAX_BREAKERS_DEFAULT }
    }

    /// May a call of this key pass? If so, end the admitted call with how it went.
    pub fn try_acquire(&self, key: impl Key) -> Admission<'static> {
        self.get(key).try_acquire().into_owned()
    }

    /// The breaker of a key. Keep it for one call or a few: a set that has to forget the key makes a new one the next time.
    pub fn get(&self, key: impl Key) -> Breaker {
        let key = self.inner.seeds.fingerprint(&key);
        let mut shard = self.inner.shard(key).lock();
        if let Some(breaker) = shard.find(key) {
            return breaker;
        }
        drop(shard);
        // Made when no table is locked, and the pattern's lock is held for as long as copying it takes.
        let (breaker, version) = self.inner.make();
        let mut shard = self.inner.shard(key).lock();
        let (breaker, evicted_breaker) = shard.insert(key, breaker, self.inner.max_keys_per_shard);
        drop(shard);
        // What goes with it may be an observer of the user's.
        drop(evicted_breaker);
        // Whoever changes the rules from here on finds it in its table.
        self.inner.apply_latest_config(&breaker, version);
        breaker
    }

    /// What a key's breaker does now; `None` if there is none. Looking makes none.
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

    /// The rules of new breakers.
    pub fn config(&self) -> BreakerConfig {
        self.inner.template.lock().config
    }

    /// Other rules from now on, for the breakers there are and for new ones. See [`Breaker::change`]. Of two changes at once the later one
    /// holds for all of them.
    ///
    /// # Errors
    /// When the text is no breaker; then nothing changes.
    pub fn change(&self, config: impl IntoConfig<BreakerConfig>) -> Result<(), LimitError> {
        let config = config.into_config()?;
        let version = {
            let mut template = self.inner.template.lock();
            // Cannot wrap: nobody changes it so often.
            template.version += 1;
            template.config = config;
            template.version
        };
        // An observer that panics keeps no breaker from its rules.
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

    /// Forgets a key: its next call finds a breaker that has seen nothing.
    pub fn remove(&self, key: impl Key) {
        let key = self.inner.seeds.fingerprint(&key);
        let mut shard = self.inner.shard(key).lock();
        let evicted_breaker = shard.remove(key);
        drop(shard);
        drop(evicted_breaker);
    }

    /// What they have seen, and how many there are.
    pub fn stats(&self) -> KeyedBreakersStats {
        let (mut sum, mut open) = (Totals::default(), 0);
        let (mut keys, mut evicted, mut no_room) = (0, 0, 0);
        for shard in &self.inner.shards {
            // Looking may find something out and tell an observer, so nothing is locked meanwhile.
            for breaker in breakers_in(shard) {
                let is_open = matches!(breaker.state(), State::Open | State::HalfOpen | State::ForcedOpen);
                open += usize::from(is_open);
            }
            // Those who are forgotten and those who are there under one lock: whoever moves is counted once, and no count goes back.
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
        // Cannot fail: there is at least one table.
        &self.shards[key.shard(self.shards.len())]
    }

    /// A breaker, and the version of its rules.
    fn make(&self) -> (Breaker, u64) {
        let Template { config, version, settings } = self.template.lock().clone();
        (settings.make(config), version)
    }

    /// A breaker was taken in, or given rules, of this version. If there are others by now it gets those: whoever comes last has seen to it
    /// that it has the latest.
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

/// The breakers that a table remembers, which is not locked any more then.
fn breakers_in(shard: &Lock<Shard>) -> Vec<Breaker> {
    shard.lock().entries.iter().map(|entry| entry.breaker.clone()).collect()
}

/// How well a breaker can be spared. The smallest goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// It is as good as new.
    Idle,
    /// It lets everybody pass.
    Closed,
    /// It lets a probe pass.
    Elapsed,
    /// It denies calls, waits for its probes, or is forced.
    Pinned,
}

impl Shard {
    fn find(&mut self, key: Fingerprint) -> Option<Breaker> {
        self.lookups += 1;
        let entry = self.entries.get_mut(*self.index.get(&key)?)?;
        entry.last_used = self.lookups;
        Some(entry.breaker.clone())
    }

    /// Takes a key in, and says whom it forgot for it. Somebody else may have been faster, or there is no room.
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

    /// Whom to forget: a place, unless all that were looked at are needed.
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

    /// How well it can be spared. It is not looked at for probes that should have ended: that may be something to tell.
    fn rank(&self) -> EvictionRank {
        let now = self.inner.clock.now();
        let mut machine = self.inner.machine.lock();
        match machine.state() {
            State::Closed | State::MetricsOnly if machine.is_idle(now) => EvictionRank::Idle,
            State::Closed => EvictionRank::Closed,
            State::MetricsOnly if machine.config().metrics_only() => EvictionRank::Closed,
            // Its probes are as good as calls that it denies: they are all that may pass until they have ended.
            State::HalfOpen if machine.has_live_probes(now) => EvictionRank::Pinned,
            State::Open | State::HalfOpen if machine.denies_for(now).is_none() => EvictionRank::Elapsed,
            _ => EvictionRank::Pinned,
        }
    }
}

/// What a set of breakers is made of. Made by [`KeyedBreakers::builder`].
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
    /// A clock of your own. For tests: [`crate::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> KeyedBreakersBuilder {
        self.breaker_builder = self.breaker_builder.clock(clock);
        self
    }

    /// Is told, by [`Observer::event`], when one of them opens, half-opens, closes, or is forced.
    pub fn observer(mut self, observer: impl Observer + 'static) -> KeyedBreakersBuilder {
        self.breaker_builder = self.breaker_builder.observer(observer);
        self
    }

    /// What they are called in events.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> KeyedBreakersBuilder {
        self.breaker_builder = self.breaker_builder.name(name);
        self
    }

    /// The most keys it holds, [`MAX_BREAKERS_DEFAULT`] unless said. It never holds more: when a new one comes, the one that can best be
    /// spared is forgotten.
    pub fn max_keys(mut self, max_keys: usize) -> KeyedBreakersBuilder {
        self.max_keys = max_keys;
        self
    }

    /// Makes the set.
    ///
    /// # Errors
    /// When the text is no breaker, or `max_keys` is 0 or above [`MAX_BREAKERS_MAX`].
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
