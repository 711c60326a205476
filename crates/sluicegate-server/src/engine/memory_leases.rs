//! Leases in memory: one pool for those of all rules and inline limits, so that their number has one bound.
//!
//! A lease belongs to a scope and a key, whichever limit it was granted under: a rule that changes, or whose exceptions
//! do, goes on with the leases that are held. Those of inline limits are counted together, and leave a part of the pool to
//! the rules: callers that write limits cannot keep rules from granting leases.

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

/// One part in this many of the pool is for rules alone, as it is with the room for limits.
const PARTS: usize = 4;
/// When a lease of the full share will be released is unknown, so callers are told to retry after this.
const RETRY_AFTER: Span = Span::from_micros(1_000_000);

/// The leases of an engine.
pub(super) struct MemoryLeases {
    all: LeasePool,
    /// What inline limits may use.
    inline: Arc<Share>,
}

/// What inline limits hold, and the most that they may.
struct Share {
    all: LeasePool,
    scope: LeaseScope,
    most: usize,
    /// Calls in a queue: a waiter needs room too.
    waiting: AtomicUsize,
}

/// A waiter under an inline limit.
struct Waiter(Arc<Share>);

/// An inline `concurrency` limit: a semaphore within the share.
struct InlineSemaphore {
    semaphore: Semaphore,
    share: Arc<Share>,
}

impl MemoryLeases {
    pub(super) fn new(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<MemoryLeases, RequestError> {
        let all = LeasePool::builder().max_leases(settings.max_leases).clock(Arc::clone(clock)).build()?;
        let for_rules = settings.max_leases.div_ceil(PARTS);
        let inline = Share {
            all: all.clone(),
            scope: all.scope("inline"),
            most: (settings.max_leases - for_rules).max(1),
            waiting: AtomicUsize::new(0),
        };
        Ok(MemoryLeases { all, inline: Arc::new(inline) })
    }

    /// What grants leases under a limit to the keys of a scope.
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
                (of_limit, Box::new(InlineSemaphore { semaphore, share: Arc::clone(&self.inline) }))
            }
        };
        Ok(Leases { backend, time: StoreTime::Engine, stats: Some(stats) })
    }

    /// What inline limits hold.
    pub(super) fn inline_stats(&self) -> SemaphoreStats {
        self.inline.scope.stats()
    }
}

impl Share {
    /// Whether leases and waiters use no more than the share, perhaps after a look at what has expired.
    fn is_kept(&self, now: Time) -> bool {
        self.seems_kept() || {
            self.all.clear_expired(now);
            self.seems_kept()
        }
    }

    fn seems_kept(&self) -> bool {
        // A waiter is subtracted only when its lease is counted, so that none is missed between the two.
        let waiting = self.waiting.load(Ordering::Acquire);
        self.scope.stats().leases + waiting <= self.most
    }

    /// A waiter, if there is room for it.
    fn join(self: &Arc<Share>, now: Time) -> Option<Waiter> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Some(Waiter(Arc::clone(self))).filter(|_| self.is_kept(now))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl InlineSemaphore {
    fn try_at(&self, key: &dyn Key, cost: u64, now: Time) -> Grant<HeldLease> {
        // Taken first, and released if it is too much: so no two calls get the last of it.
        let grant = self.semaphore.try_acquire_at(key, cost, now);
        if grant.allowed() && cost > 0 && !self.share.is_kept(now) {
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
        let Some(waiter) = self.share.join(now) else { return Pending::Ready(Ok(self.no_room())) };
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
