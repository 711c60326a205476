//! What the semaphores of one scope share in this process: the waiters, and the limit that they
//! follow.
//!
//! A service that reloads its configuration builds another semaphore of the same scope, while
//! waiters of the old one are still queued. So each semaphore is registered here while it is in
//! use, and waiters and holders follow the newest one: of those for their key alone, or else of the
//! others. A semaphore that is dropped again, because the new configuration is rejected, leaves the
//! previous limit in place.

use super::waiters::{LeaseWaiters, WaiterCounts};
use sluicegate::Span;
use sluicegate_core::concurrency::Concurrency;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The scopes of a store that are in use in this process.
#[derive(Default)]
pub(crate) struct ScopeStates {
    known: Mutex<HashMap<Box<str>, Weak<ScopeState>>>,
    counts: Arc<WaiterCounts>,
}

/// A scope.
pub(super) struct ScopeState {
    pub(super) waiters: LeaseWaiters,
    members: Mutex<Members>,
}

/// The limits of a scope's semaphores, in the order in which they were built.
#[derive(Default)]
struct Members {
    next: u64,
    for_all: BTreeMap<u64, LeaseLimit>,
    for_keys: HashMap<Arc<[u8]>, BTreeMap<u64, LeaseLimit>>,
}

/// A semaphore's registration in its scope, removed on drop.
pub(super) struct ScopeMember {
    scope: Arc<ScopeState>,
    number: u64,
    /// The key that the limit is an exception for, if it is one.
    only_for: Option<Arc<[u8]>>,
    limit: LeaseLimit,
}

/// A concurrency limit with its ttl.
#[derive(Clone, Copy)]
pub(super) struct LeaseLimit {
    pub(super) concurrency: Concurrency,
    /// Required in a shared store: only expiry frees the permits of a process that has died.
    pub(super) ttl: Span,
}

impl LeaseLimit {
    /// Returns `true` if a peek answers the call: a cost of 0 is allowed, and one above the limit
    /// never is.
    pub(super) fn needs_no_lease(&self, cost: u64) -> bool {
        cost == 0 || cost > self.concurrency.count()
    }
}

impl ScopeStates {
    /// Registers a semaphore of a scope, for one key alone if `only_for` names it.
    pub(super) fn join(&self, name: &str, only_for: Option<Arc<[u8]>>, limit: LeaseLimit) -> ScopeMember {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let scope = known.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            // Scopes that are not in use are removed before one is added.
            known.retain(|_, scope| scope.strong_count() > 0);
            let waiters = LeaseWaiters::new(Arc::clone(&self.counts));
            let scope = Arc::new(ScopeState { waiters, members: Mutex::default() });
            known.insert(name.into(), Arc::downgrade(&scope));
            scope
        });
        drop(known);
        let number = scope.lock().enter(only_for.clone(), limit);
        ScopeMember { scope, number, only_for, limit }
    }
}

impl ScopeState {
    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    fn enter(&mut self, only_for: Option<Arc<[u8]>>, limit: LeaseLimit) -> u64 {
        let number = self.next;
        self.next += 1;
        let row = match only_for {
            None => &mut self.for_all,
            Some(key) => self.for_keys.entry(key).or_default(),
        };
        row.insert(number, limit);
        number
    }

    fn leave(&mut self, only_for: Option<&[u8]>, number: u64) {
        let Some(key) = only_for else {
            self.for_all.remove(&number);
            return;
        };
        if let Some(row) = self.for_keys.get_mut(key) {
            row.remove(&number);
            if row.is_empty() {
                self.for_keys.remove(key);
            }
        }
    }
}

impl ScopeMember {
    /// The semaphore's own limit.
    pub(super) fn limit(&self) -> LeaseLimit {
        self.limit
    }

    /// The limit of the newest semaphore that applies to this key.
    pub(super) fn current_limit(&self, key: &[u8]) -> LeaseLimit {
        let members = self.scope.lock();
        let row = members.for_keys.get(key).unwrap_or(&members.for_all);
        row.last_key_value().map_or(self.limit, |(_, limit)| *limit)
    }

    pub(super) fn waiters(&self) -> &LeaseWaiters {
        &self.scope.waiters
    }
}

impl Drop for ScopeMember {
    fn drop(&mut self) {
        self.scope.lock().leave(self.only_for.as_deref(), self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(count: u64) -> LeaseLimit {
        let ttl = Span::from_micros(1_000_000);
        LeaseLimit { concurrency: Concurrency::new(count, Some(ttl)).unwrap(), ttl }
    }

    fn current_limit(member: &ScopeMember, key: &str) -> u64 {
        member.current_limit(key.as_bytes()).concurrency.count()
    }

    #[test]
    fn the_newest_limit_applies_and_exceptions_are_per_key() {
        let scopes = ScopeStates::default();
        let old = scopes.join("jobs", None, limit(10));
        let old_exception = scopes.join("jobs", Some(b"user:43"[..].into()), limit(100));
        assert_eq!((current_limit(&old, "user:42"), current_limit(&old, "user:43")), (10, 100));
        let new_exception = scopes.join("jobs", Some(b"user:43"[..].into()), limit(200));
        let new = scopes.join("jobs", None, limit(20));
        let elsewhere = scopes.join("others", None, limit(3));
        for member in [&old, &old_exception, &new_exception, &new] {
            assert_eq!((current_limit(member, "user:42"), current_limit(member, "user:43")), (20, 200));
        }
        assert_eq!((current_limit(&elsewhere, "user:42"), old.limit().concurrency.count()), (3, 10));
        drop((new, new_exception));
        assert_eq!((current_limit(&old, "user:42"), current_limit(&old, "user:43")), (10, 100));
        drop(old_exception);
        assert_eq!(current_limit(&old, "user:43"), 10);
    }

    #[test]
    fn unused_scopes_and_limits_are_removed() {
        let scopes = ScopeStates::default();
        for scope in 0..1_000_u32 {
            drop(scopes.join(&scope.to_string(), Some(b"user:42"[..].into()), limit(1)));
        }
        assert_eq!(scopes.known.lock().unwrap().len(), 1, "only the last one");
        let kept = scopes.join("kept", None, limit(1));
        for _ in 0..1_000 {
            drop(scopes.join("kept", Some(b"user:42"[..].into()), limit(1)));
            drop(scopes.join("kept", None, limit(1)));
        }
        let members = kept.scope.lock();
        assert_eq!((members.for_all.len(), members.for_keys.len()), (1, 0));
    }
}
