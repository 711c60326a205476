//! The pool of leases in memory, shared by rules and inline limits so that `max_leases` bounds
//! both.
//!
//! A lease belongs to a scope and a key, not to the limit it was granted under: a rule that changes
//! keeps the leases that are held. Inline limits may use three quarters of the pool. The last
//! quarter is for rules alone, so that clients that make up limits cannot keep rules from granting
//! leases.

use super::RequestError;
use super::Settings;
use super::rule::Scope;
use super::storage::{Leases, StoreTime};
use sluicegate::backend::HeldLease;
use sluicegate::backend::{Answer, BackendError, LeaseBackend, Pending};
use sluicegate::clock::Clock;
use sluicegate::semaphore::{Grant, LeaseId, LeasePool, LeaseScope, Semaphore, SemaphoreStats};
use sluicegate::wait::{Acquired, Denial};
use sluicegate::{Key, Limit, RetryAfter, Span, Time};
use sluicegate_core::bounds::saturating_count;
use sluicegate_core::decision::store::no_room;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// One part in this many of the pool is for rules alone, as in the table of limits.
const RULES_ONLY_PART: usize = 4;
/// The retry hint when the inline pool is full, as the time of the next release is unknown.
const RETRY_AFTER: Span = Span::from_micros(1_000_000);

/// The leases of an engine.
pub(super) struct LeasePools {
    all: LeasePool,
    /// The part of `all` that inline limits may use.
    inline: Arc<InlinePool>,
}

/// The leases of all inline limits, and their bound.
struct InlinePool {
    all: LeasePool,
    scope: LeaseScope,
    max: usize,
    /// Calls in a queue. A waiter occupies room like a lease.
    waiting: AtomicUsize,
}

/// A waiter under an inline limit.
struct Waiter(Arc<InlinePool>);

/// An inline `concurrency` limit: a semaphore within the inline pool.
struct InlineSemaphore {
    semaphore: Semaphore,
    pool: Arc<InlinePool>,
}

impl LeasePools {
    pub(super) fn new(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<LeasePools, RequestError> {
        let all = LeasePool::builder().max_leases(settings.max_leases).clock(Arc::clone(clock)).build()?;
        let for_rules = settings.max_leases.div_ceil(RULES_ONLY_PART);
        let inline = InlinePool {
            all: all.clone(),
            scope: all.scope("inline"),
            max: (settings.max_leases - for_rules).max(1),
            waiting: AtomicUsize::new(0),
        };
        Ok(LeasePools { all, inline: Arc::new(inline) })
    }

    /// Builds what grants leases under a limit, for the keys of a scope.
    pub(super) fn of(&self, scope: &Scope, limit: &Limit) -> Result<Leases, RequestError> {
        let (stats, backend): (_, Box<dyn LeaseBackend>) = match scope {
            Scope::Rule(_) => {
                let of_rule = self.all.scope(scope);
                let semaphore = of_rule.semaphore(limit)?;
                (of_rule, Box::new(semaphore))
            }
            Scope::Inline(_) | Scope::Throttle => {
                let of_limit = self.inline.scope.counting(scope);
                let semaphore = of_limit.semaphore(limit)?;
                (of_limit, Box::new(InlineSemaphore { semaphore, pool: Arc::clone(&self.inline) }))
            }
        };
        Ok(Leases { backend, time: StoreTime::Engine, stats: Some(stats) })
    }

    /// The statistics of inline limits.
    pub(super) fn inline_stats(&self) -> SemaphoreStats {
        self.inline.scope.stats()
    }
}

impl InlinePool {
    /// Returns `true` if leases and waiters are within the bound, if need be after expired leases
    /// are cleared.
    fn has_room(&self, now: Time) -> bool {
        self.seems_to_have_room() || {
            self.all.clear_expired(now);
            self.seems_to_have_room()
        }
    }

    fn seems_to_have_room(&self) -> bool {
        // Read before the leases: a waiter is subtracted only once its lease is counted, so none is
        // missed in between.
        let waiting = self.waiting.load(Ordering::Acquire);
        self.scope.stats().leases + waiting <= self.max
    }

    /// Enqueues a waiter, if there is room for it.
    fn join(self: &Arc<InlinePool>, now: Time) -> Option<Waiter> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Some(Waiter(Arc::clone(self))).filter(|_| self.has_room(now))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl InlineSemaphore {
    fn try_at(&self, key: &dyn Key, cost: u64, now: Time) -> Grant<HeldLease> {
        // Acquire first, release if that exceeds the bound: checking first would let two calls take
        // the last lease.
        let grant = self.semaphore.try_acquire_at(key, cost, now);
        if grant.allowed() && cost > 0 && !self.pool.has_room(now) {
            return self.no_room();
        }
        grant.into()
    }

    fn no_room(&self) -> Grant<HeldLease> {
        let denial =
            no_room(saturating_count(self.semaphore.limit().at_once()), RetryAfter::After(RETRY_AFTER));
        Grant::new(Acquired::new(denial.into(), Span::ZERO, Some(Denial::NoRoom)), None)
    }
}

type Ready<T> = Pending<Result<T, BackendError>>;

impl LeaseBackend for InlineSemaphore {
    fn try_acquire(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Ready<Grant<HeldLease>> {
        Pending::Ready(Ok(self.try_at(key, cost, at.unwrap_or_else(|| self.semaphore.now()))))
    }

    fn acquire(&self, key: &dyn Key, cost: u64, max_wait: Option<Duration>) -> Ready<Grant<HeldLease>> {
        let now = self.semaphore.now();
        let at_once = self.try_at(key, cost, now);
        if at_once.allowed() {
            return Pending::Ready(Ok(at_once));
        }
        let Some(waiter) = self.pool.join(now) else { return Pending::Ready(Ok(self.no_room())) };
        let granted = LeaseBackend::acquire(&self.semaphore, key, cost, max_wait);
        Pending::later(async move {
            let granted = granted.await;
            drop(waiter);
            granted
        })
    }

    fn renew(&self, key: &dyn Key, lease: &LeaseId, at: Option<Time>) -> Ready<bool> {
        LeaseBackend::renew(&self.semaphore, key, lease, at)
    }

    fn release(&self, key: &dyn Key, lease: &LeaseId, at: Option<Time>) -> Ready<bool> {
        LeaseBackend::release(&self.semaphore, key, lease, at)
    }

    fn peek(&self, key: &dyn Key, cost: u64, at: Option<Time>) -> Ready<Answer> {
        LeaseBackend::peek(&self.semaphore, key, cost, at)
    }

    fn reset(&self, key: &dyn Key) -> Ready<()> {
        LeaseBackend::reset(&self.semaphore, key)
    }

    fn limit(&self) -> Limit {
        self.semaphore.limit()
    }
}

impl std::fmt::Debug for InlineSemaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InlineSemaphore").field(&self.semaphore).finish()
    }
}
