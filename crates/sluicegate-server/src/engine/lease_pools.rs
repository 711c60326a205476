//! The leases in memory: one pool, divided between rules and inline limits.
//!
//! A lease belongs to a scope and a key, not to the limit it was granted under: a rule that changes
//! keeps the leases that are held. Inline limits together have a quarter of the pool, or all of it
//! if there are no rules. The rules that grant leases divide the rest by weight. A lease that is
//! held cannot be taken back, so nothing is lent: no rule can use up the leases of another.

use super::RequestError;
use super::Settings;
use super::rule::RuleScope;
use super::storage::{Leases, StoreTime};
use sluicegate::Limit;
use sluicegate::backend::LeaseBackend;
use sluicegate::clock::Clock;
use sluicegate::semaphore::{LeasePool, LeaseScope, SemaphoreStats};
use std::sync::Arc;

/// If there are rules, inline limits have one part in this many of the pool.
const INLINE_PART: usize = 4;

/// The leases of an engine.
pub(super) struct LeasePools {
    all: LeasePool,
    max_leases: usize,
    /// The scope that counts the leases of all inline limits.
    inline: LeaseScope,
}

impl LeasePools {
    pub(super) fn new(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<LeasePools, RequestError> {
        let max_leases = settings.max_leases;
        let all = LeasePool::builder().max_leases(max_leases).clock(Arc::clone(clock)).build()?;
        let inline = all.scope("inline");
        Ok(LeasePools { all, max_leases, inline })
    }

    /// Builds what grants leases under a limit, for the keys of a scope.
    pub(super) fn of(&self, scope: &RuleScope, limit: &Limit) -> Result<Leases, RequestError> {
        let scope = match scope {
            RuleScope::Rule(_) => self.all.scope(scope),
            RuleScope::Inline(_) | RuleScope::Throttle => self.inline.counting(scope),
        };
        let backend: Box<dyn LeaseBackend> = Box::new(scope.semaphore(limit)?);
        Ok(Leases { backend, time: StoreTime::Engine, scope: Some(scope) })
    }

    /// Divides the pool between inline limits and the rules that grant leases, by weight. Every
    /// part has room for at least one lease.
    pub(super) fn divide(&self, has_rules: bool, rules: &[(&LeaseScope, u32)]) {
        let for_inline = if has_rules { (self.max_leases / INLINE_PART).max(1) } else { self.max_leases };
        self.inline.set_max_leases(for_inline);
        let total: u128 = rules.iter().map(|(_, weight)| u128::from(*weight)).sum();
        for (scope, weight) in rules {
            let part = (self.max_leases - for_inline) as u128 * u128::from(*weight) / total;
            scope.set_max_leases(usize::try_from(part).unwrap_or(usize::MAX).max(1));
        }
    }

    /// The number of calls for which there was no room for another lease.
    pub(super) fn no_room(&self) -> u64 {
        self.all.stats().no_room
    }

    /// The statistics of inline limits.
    pub(super) fn inline_stats(&self) -> SemaphoreStats {
        self.inline.stats()
    }
}
