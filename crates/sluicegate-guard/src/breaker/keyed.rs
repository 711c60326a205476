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

use super::machine::{State, Totals};
use super::settings::{BreakerBuilder, Settings};
use super::{Admission, Breaker, BreakerRules};
use crate::event::Observer;
use crate::text::IntoRules;
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
const TABLES: usize = 16;
/// Below so many keys a table is not worth having.
const KEYS_A_TABLE: usize = 64;

/// So many breakers are looked at to find one that can be forgotten: what a new key costs has a bound.
const LOOKED_AT: usize = 128;

/// A circuit breaker for each key, made when the key first asks. Bounded in memory. Its clones are the same set.
///
/// ```
/// use sluicegate_guard::Breakers;
/// use sluicegate_guard::breaker::State;
///
/// let hosts = Breakers::new("breaker 50%/2calls")?;
/// for _ in 0..2 {
///     hosts.ask("10.0.0.7").admitted()?.failure();
/// }
/// assert!(!hosts.ask("10.0.0.7").allowed());
/// assert!(hosts.ask("10.0.0.8").allowed());
/// assert_eq!(hosts.get("10.0.0.7").state(), State::Open);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Breakers {
    inner: Arc<Set>,
}

struct Set {
    seeds: Seeds,
    tables: Box<[Lock<Table>]>,
    /// How many keys a table holds.
    max_of_table: usize,
    /// What new breakers are made of.
    pattern: Lock<Pattern>,
}

#[derive(Clone)]
struct Pattern {
    rules: BreakerRules,
    /// How often they were changed.
    version: u64,
    settings: Arc<Settings>,
}

#[derive(Default)]
struct Table {
    places: HashMap<Fingerprint, usize, ByFingerprint>,
    entries: Vec<Entry>,
    /// Where the search for one to forget goes on.
    hand: usize,
    /// Counts what is asked, so that it is known who was asked longest ago.
    asked: u64,
    /// What those who were forgotten had seen.
    forgotten: Totals,
    evicted: u64,
    no_room: u64,
}

struct Entry {
    key: Fingerprint,
    breaker: Breaker,
    last_asked: u64,
}

/// What a set of breakers has seen since it was made, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct BreakersStats {
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

impl Breakers {
    /// Breakers with these rules, such as `breaker 50%/10s`, and the system's clock.
    ///
    /// # Errors
    /// When the text is no breaker.
    pub fn new(rules: impl IntoRules<BreakerRules>) -> Result<Breakers, BuildError> {
        Breakers::builder(rules).build()
    }

    /// The same with settings.
    pub fn builder(rules: impl IntoRules<BreakerRules>) -> BreakersBuilder {
        BreakersBuilder { each: BreakerBuilder::new(rules), max_keys: MAX_BREAKERS_DEFAULT }
    }

    /// May a call of this key pass? If so, end the admitted call with how it went.
    pub fn ask(&self, key: impl Key) -> Admission<'static> {
        self.get(key).ask().into_owned()
    }

    /// The breaker of a key. Keep it for one call or a few: a set that has to forget the key makes a new one the next time.
    pub fn get(&self, key: impl Key) -> Breaker {
        let key = self.inner.seeds.fingerprint(&key);
        let mut table = self.inner.table(key).lock();
        if let Some(breaker) = table.find(key) {
            return breaker;
        }
        drop(table);
        // Made when no table is locked, and the pattern's lock is held for as long as copying it takes.
        let (breaker, version) = self.inner.make();
        let mut table = self.inner.table(key).lock();
        let (breaker, forgotten) = table.take_in(key, breaker, self.inner.max_of_table);
        drop(table);
        // What goes with it may be an observer of the user's.
        drop(forgotten);
        // Whoever changes the rules from here on finds it in its table.
        self.inner.keep_up(&breaker, version);
        breaker
    }

    /// What a key's breaker does now; `None` if there is none. Looking makes none.
    pub fn state(&self, key: impl Key) -> Option<State> {
        let key = self.inner.seeds.fingerprint(&key);
        let table = self.inner.table(key).lock();
        let breaker = table
            .places
            .get(&key)
            .and_then(|place| table.entries.get(*place))
            .map(|entry| entry.breaker.clone());
        drop(table);
        breaker.map(|breaker| breaker.state())
    }

    /// The rules of new breakers.
    pub fn rules(&self) -> BreakerRules {
        self.inner.pattern.lock().rules
    }

    /// Other rules from now on, for the breakers there are and for new ones. See [`Breaker::change`]. Of two changes at once the later one
    /// holds for all of them.
    ///
    /// # Errors
    /// When the text is no breaker; then nothing changes.
    pub fn change(&self, rules: impl IntoRules<BreakerRules>) -> Result<(), LimitError> {
        let rules = rules.into_rules()?;
        let version = {
            let mut pattern = self.inner.pattern.lock();
            // Cannot wrap: nobody changes it so often.
            pattern.version += 1;
            pattern.rules = rules;
            pattern.version
        };
        // An observer that panics keeps no breaker from its rules.
        let mut callbacks = Callbacks::default();
        for table in &self.inner.tables {
            for breaker in breakers_of(table) {
                callbacks.run(|| breaker.apply(rules));
                callbacks.run(|| self.inner.keep_up(&breaker, version));
            }
        }
        callbacks.end();
        Ok(())
    }

    /// Forgets a key: its next call finds a breaker that has seen nothing.
    pub fn forget(&self, key: impl Key) {
        let key = self.inner.seeds.fingerprint(&key);
        let mut table = self.inner.table(key).lock();
        let forgotten = table.forget(key);
        drop(table);
        drop(forgotten);
    }

    /// What they have seen, and how many there are.
    pub fn stats(&self) -> BreakersStats {
        let (mut sum, mut open) = (Totals::default(), 0);
        let (mut keys, mut evicted, mut no_room) = (0, 0, 0);
        for table in &self.inner.tables {
            // Looking may find something out and tell an observer, so nothing is locked meanwhile.
            for breaker in breakers_of(table) {
                let is_open = matches!(breaker.state(), State::Open | State::HalfOpen | State::ForcedOpen);
                open += usize::from(is_open);
            }
            // Those who are forgotten and those who are there under one lock: whoever moves is counted once, and no count goes back.
            let table = table.lock();
            sum += table.forgotten;
            table.entries.iter().for_each(|entry| sum += entry.breaker.totals());
            keys += table.entries.len();
            evicted += table.evicted;
            no_room += table.no_room;
        }
        BreakersStats {
            totals: sum,
            keys,
            max_keys: self.inner.max_of_table * self.inner.tables.len(),
            open,
            evicted,
            no_room,
        }
    }
}

impl Set {
    fn table(&self, key: Fingerprint) -> &Lock<Table> {
        // Cannot fail: there is at least one table.
        &self.tables[key.shard(self.tables.len())]
    }

    /// A breaker, and the version of its rules.
    fn make(&self) -> (Breaker, u64) {
        let Pattern { rules, version, settings } = self.pattern.lock().clone();
        (settings.make(rules), version)
    }

    /// A breaker was taken in, or given rules, of this version. If there are others by now it gets those: whoever comes last has seen to it
    /// that it has the latest.
    fn keep_up(&self, breaker: &Breaker, mut version: u64) {
        loop {
            let (rules, latest) = {
                let pattern = self.pattern.lock();
                (pattern.rules, pattern.version)
            };
            if latest == version {
                return;
            }
            breaker.apply(rules);
            version = latest;
        }
    }
}

/// The breakers that a table remembers, which is not locked any more then.
fn breakers_of(table: &Lock<Table>) -> Vec<Breaker> {
    table.lock().entries.iter().map(|entry| entry.breaker.clone()).collect()
}

/// How well a breaker can be spared. The smallest goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Spared {
    /// It is as good as new.
    Idle,
    /// It lets everybody pass.
    Closed,
    /// It lets a probe pass.
    Over,
    /// It denies calls, waits for its probes, or is forced.
    Needed,
}

impl Table {
    fn find(&mut self, key: Fingerprint) -> Option<Breaker> {
        self.asked += 1;
        let entry = self.entries.get_mut(*self.places.get(&key)?)?;
        entry.last_asked = self.asked;
        Some(entry.breaker.clone())
    }

    /// Takes a key in, and says whom it forgot for it. Somebody else may have been faster, or there is no room.
    fn take_in(&mut self, key: Fingerprint, breaker: Breaker, most: usize) -> (Breaker, Option<Breaker>) {
        if let Some(there) = self.find(key) {
            return (there, Some(breaker));
        }
        let entry = Entry { key, breaker: breaker.clone(), last_asked: self.asked };
        if self.entries.len() < most {
            self.places.insert(key, self.entries.len());
            self.entries.push(entry);
            return (breaker, None);
        }
        let Some(place) = self.find_one_to_forget() else {
            self.no_room += 1;
            return (breaker, None);
        };
        let Some(there) = self.entries.get_mut(place) else { return (breaker, None) };
        let forgotten = std::mem::replace(there, entry);
        self.places.remove(&forgotten.key);
        self.places.insert(key, place);
        self.remember_totals(&forgotten.breaker);
        (breaker, Some(forgotten.breaker))
    }

    /// Whom to forget: a place, unless all that were looked at are needed.
    fn find_one_to_forget(&mut self) -> Option<usize> {
        let count = self.entries.len();
        let mut best = None;
        for _ in 0..count.min(LOOKED_AT) {
            self.hand = if self.hand + 1 < count { self.hand + 1 } else { 0 };
            let Some(entry) = self.entries.get(self.hand) else { continue };
            let spared = (entry.breaker.spared(), entry.last_asked);
            if best.is_none_or(|(best, _)| spared < best) {
                best = Some((spared, self.hand));
            }
        }
        let ((spared, _), place) = best?;
        self.evicted += u64::from(matches!(spared, Spared::Closed | Spared::Over));
        (spared != Spared::Needed).then_some(place)
    }

    fn forget(&mut self, key: Fingerprint) -> Option<Breaker> {
        let place = self.places.remove(&key)?;
        let forgotten = self.entries.swap_remove(place);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.key, place);
        }
        self.remember_totals(&forgotten.breaker);
        Some(forgotten.breaker)
    }

    fn remember_totals(&mut self, breaker: &Breaker) {
        self.forgotten += breaker.totals();
    }
}

impl Breaker {
    fn totals(&self) -> Totals {
        self.inner.totals(&self.inner.machine.lock())
    }

    /// How well it can be spared. It is not looked at for probes that should have ended: that may be something to tell.
    fn spared(&self) -> Spared {
        let now = self.inner.clock.now();
        let mut machine = self.inner.machine.lock();
        match machine.state() {
            State::Closed | State::MetricsOnly if machine.is_idle(now) => Spared::Idle,
            State::Closed => Spared::Closed,
            State::MetricsOnly if machine.rules().metrics_only() => Spared::Closed,
            // Its probes are as good as calls that it denies: they are all that may pass until they have ended.
            State::HalfOpen if machine.waits_for_probes(now) => Spared::Needed,
            State::Open | State::HalfOpen if machine.denies_for(now).is_none() => Spared::Over,
            _ => Spared::Needed,
        }
    }
}

/// What a set of breakers is made of. Made by [`Breakers::builder`].
///
/// ```
/// use sluicegate_guard::Breakers;
///
/// let hosts = Breakers::builder("breaker 50%/10s").name("hosts").max_keys(500).build()?;
/// assert!(hosts.stats().max_keys <= 500);
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
#[must_use]
#[derive(Debug)]
pub struct BreakersBuilder {
    each: BreakerBuilder,
    max_keys: usize,
}

impl BreakersBuilder {
    /// A clock of your own. For tests: [`crate::ManualClock`].
    pub fn clock(mut self, clock: impl Clock + 'static) -> BreakersBuilder {
        self.each = self.each.clock(clock);
        self
    }

    /// Is told, by [`Observer::event`], when one of them opens, half-opens, closes, or is forced.
    pub fn observer(mut self, observer: impl Observer + 'static) -> BreakersBuilder {
        self.each = self.each.observer(observer);
        self
    }

    /// What they are called in events.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> BreakersBuilder {
        self.each = self.each.name(name);
        self
    }

    /// The most keys it holds, [`MAX_BREAKERS_DEFAULT`] unless said. It never holds more: when a new one comes, the one that can best be
    /// spared is forgotten.
    pub fn max_keys(mut self, max_keys: usize) -> BreakersBuilder {
        self.max_keys = max_keys;
        self
    }

    /// Makes the set.
    ///
    /// # Errors
    /// When the text is no breaker, or `max_keys` is 0 or above [`MAX_BREAKERS_MAX`].
    pub fn build(self) -> Result<Breakers, BuildError> {
        let max_keys = within("max_keys", self.max_keys, 1, MAX_BREAKERS_MAX)?;
        let rules = self.each.rules.map_err(BuildError::Limit)?;
        let tables = (max_keys / KEYS_A_TABLE).clamp(1, TABLES);
        let pattern = Pattern { rules, version: 0, settings: Arc::new(self.each.settings) };
        let inner = Set {
            seeds: Seeds::random(),
            tables: (0..tables).map(|_| Lock::new(Table::default())).collect(),
            max_of_table: max_keys / tables,
            pattern: Lock::new(pattern),
        };
        Ok(Breakers { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for Breakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breakers").field("rules", &self.rules().to_string()).finish_non_exhaustive()
    }
}
