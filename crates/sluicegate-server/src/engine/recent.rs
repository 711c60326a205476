//! What one connection has asked about lately.
//!
//! Most connections ask about the same rule again and again. What they hold here is found without a lock, a hash or a count
//! that other connections write to; and decisions are counted here first, and added to the rule's tally once a batch.

use super::rule::{Rule, Tally};
use super::verdict::Verdict;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many rules a connection remembers of each kind. They are searched one by one.
const REMEMBERED_MAX: usize = 8;

/// The rules that a connection has asked about lately. Every connection has its own.
#[derive(Default)]
pub struct Recent {
    /// Which load of rules these are of.
    pub(super) load: u64,
    named: Vec<(Box<str>, Arc<Found>)>,
    throttles: Vec<([i64; 3], Arc<Found>)>,
}

/// A rule as one connection knows it.
pub(super) struct Found {
    pub(super) rule: Arc<Rule>,
    /// What was decided and is not yet in the rule's tally. Only its own connection writes here.
    counted: [AtomicU64; 3],
}

impl Found {
    fn new(rule: Arc<Rule>) -> Arc<Found> {
        Arc::new(Found { rule, counted: Default::default() })
    }

    pub(super) fn count(&self, verdict: &Verdict) {
        let counter = &self.counted[Tally::place(verdict, self.rule.spec().shadow)];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn flush(&self) {
        for (place, counter) in self.counted.iter().enumerate() {
            let counted = counter.load(Ordering::Relaxed);
            if counted > 0 {
                counter.store(0, Ordering::Relaxed);
                self.rule.add(place, counted);
            }
        }
    }
}

impl Recent {
    pub(super) fn named<E>(
        &mut self,
        name: &str,
        find: impl FnOnce() -> Result<Arc<Rule>, E>,
    ) -> Result<Arc<Found>, E> {
        if let Some((_, found)) = self.named.iter().find(|(known, _)| **known == *name) {
            return Ok(Arc::clone(found));
        }
        let found = Found::new(find()?);
        remember(&mut self.named, name.into(), &found);
        Ok(found)
    }

    pub(super) fn throttle<E>(
        &mut self,
        numbers: [i64; 3],
        find: impl FnOnce() -> Result<Arc<Rule>, E>,
    ) -> Result<Arc<Found>, E> {
        if let Some((_, found)) = self.throttles.iter().find(|(known, _)| *known == numbers) {
            return Ok(Arc::clone(found));
        }
        let found = Found::new(find()?);
        remember(&mut self.throttles, numbers, &found);
        Ok(found)
    }

    /// Adds what was decided to the tallies of the rules: after every batch.
    pub fn flush(&self) {
        self.named.iter().for_each(|(_, found)| found.flush());
        self.throttles.iter().for_each(|(_, found)| found.flush());
    }

    /// Forgets all: the rules have changed.
    pub(super) fn clear(&mut self, load: u64) {
        self.flush();
        *self = Recent { load, ..Recent::default() };
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        self.flush();
    }
}

fn remember<K>(known: &mut Vec<(K, Arc<Found>)>, key: K, found: &Arc<Found>) {
    if known.len() >= REMEMBERED_MAX {
        known.remove(0);
    }
    known.push((key, Arc::clone(found)));
}
