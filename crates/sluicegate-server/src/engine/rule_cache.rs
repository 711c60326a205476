//! The rules that one connection has used recently.
//!
//! Most connections name the same rule in every call. The cache finds it without a lock, a hash or
//! a cache line that other connections write to. Decisions are counted here first, and added to the
//! rule's tally once per batch.

use super::rule::{Rule, Tally};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most cached rules per connection and kind. The search is linear.
const CACHED_MAX: usize = 8;

/// The rules that a connection has used recently. Each connection has its own cache.
#[derive(Default)]
pub struct RuleCache {
    /// The number of the load that the cached rules come from.
    pub(super) load: u64,
    named: Vec<(Box<str>, Arc<CachedRule>)>,
    throttles: Vec<([i64; 3], Arc<CachedRule>)>,
}

/// A rule in the cache of one connection.
pub(super) struct CachedRule {
    rule: Arc<Rule>,
    /// Decisions not yet added to the rule's tally. Only the cache's connection writes here.
    counted: [AtomicU64; 3],
}

impl CachedRule {
    /// Wraps a rule, for one call or to be cached.
    pub(super) fn new(rule: Arc<Rule>) -> Arc<CachedRule> {
        Arc::new(CachedRule { rule, counted: Default::default() })
    }

    /// Counts a decision; [`RuleCache::flush`] adds it to the tally with the rest of its batch.
    #[inline]
    pub(super) fn count_in_batch(&self, denied: bool) {
        let counter = &self.counted[Tally::index(denied, self.rule.spec().shadow)];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn flush(&self) {
        for (index, counter) in self.counted.iter().enumerate() {
            let counted = counter.load(Ordering::Relaxed);
            if counted > 0 {
                counter.store(0, Ordering::Relaxed);
                self.rule.add(index, counted);
            }
        }
    }
}

impl Deref for CachedRule {
    type Target = Rule;

    #[inline]
    fn deref(&self) -> &Rule {
        &self.rule
    }
}

impl Drop for CachedRule {
    fn drop(&mut self) {
        self.flush();
    }
}

impl RuleCache {
    pub(super) fn named<E>(
        &mut self,
        name: &str,
        find: impl FnOnce() -> Result<Arc<Rule>, E>,
    ) -> Result<Arc<CachedRule>, E> {
        if let Some((_, rule)) = self.named.iter().find(|(cached, _)| **cached == *name) {
            return Ok(Arc::clone(rule));
        }
        let rule = CachedRule::new(find()?);
        insert(&mut self.named, name.into(), &rule);
        Ok(rule)
    }

    pub(super) fn throttle<E>(
        &mut self,
        parameters: [i64; 3],
        find: impl FnOnce() -> Result<Arc<Rule>, E>,
    ) -> Result<Arc<CachedRule>, E> {
        if let Some((_, rule)) = self.throttles.iter().find(|(cached, _)| *cached == parameters) {
            return Ok(Arc::clone(rule));
        }
        let rule = CachedRule::new(find()?);
        insert(&mut self.throttles, parameters, &rule);
        Ok(rule)
    }

    /// Adds the counted decisions to the tallies of their rules. Called after every batch.
    pub fn flush(&self) {
        self.named.iter().for_each(|(_, rule)| rule.flush());
        self.throttles.iter().for_each(|(_, rule)| rule.flush());
    }

    /// Clears the cache after a reload.
    pub(super) fn clear(&mut self, load: u64) {
        self.flush();
        *self = RuleCache { load, ..RuleCache::default() };
    }
}

fn insert<K>(cached: &mut Vec<(K, Arc<CachedRule>)>, key: K, rule: &Arc<CachedRule>) {
    if cached.len() >= CACHED_MAX {
        cached.remove(0);
    }
    cached.push((key, Arc::clone(rule)));
}
