//! What the semaphores of one scope have in common in this process: who waits, and the limit that those go by.
//!
//! In plain words: a service that reads its settings again makes another semaphore of the same scope. Whoever stands in line by then was
//! asked in under the old limit, and would go on with them. So each semaphore is entered here while it is in use, and whoever waits or holds a
//! lease goes by the newest that is: of those made for its key alone, or of the others if there is none. One that is dropped again,
//! because something else in the new settings is wrong, leaves the limit as they were.

use super::waiters::{WaiterCounts, Waiters};
use sluicegate::Span;
use sluicegate_core::concurrency::Concurrency;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All scopes of a store that are in use in this process.
#[derive(Default)]
pub(crate) struct Scopes {
    known: Mutex<HashMap<Box<str>, Weak<Scope>>>,
    counts: Arc<WaiterCounts>,
}

/// One of them.
pub(super) struct Scope {
    pub(super) waiters: Waiters,
    members: Mutex<Members>,
}

/// The limit of a scope's semaphores, in the order in which they were made.
#[derive(Default)]
struct Members {
    next: u64,
    for_all: BTreeMap<u64, LeaseLimit>,
    for_keys: HashMap<Arc<[u8]>, BTreeMap<u64, LeaseLimit>>,
}

/// A semaphore's place in its scope, until it is dropped.
pub(super) struct ScopeMember {
    scope: Arc<Scope>,
    number: u64,
    /// The key that it was made for, if it is an exception.
    only_for: Option<Arc<[u8]>>,
    limit: LeaseLimit,
}

/// What a semaphore decides by.
#[derive(Clone, Copy)]
pub(super) struct LeaseLimit {
    pub(super) concurrency: Concurrency,
    /// A lease in a store lapses: that of a process that has died could be returned by nobody.
    pub(super) ttl: Span,
}

impl LeaseLimit {
    /// Whether the answer is known to be that of a peek: yes for nothing, and never for too much.
    pub(super) fn needs_no_lease(&self, cost: u32) -> bool {
        cost == 0 || cost > self.concurrency.count()
    }
}

impl Scopes {
    /// One more semaphore of a scope, for one key alone if that is said.
    pub(super) fn join(&self, name: &str, only_for: Option<Arc<[u8]>>, limit: LeaseLimit) -> ScopeMember {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let scope = known.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            // Whatever is not in use any more is forgotten before there is another one.
            known.retain(|_, scope| scope.strong_count() > 0);
            let waiters = Waiters::new(Arc::clone(&self.counts));
            let scope = Arc::new(Scope { waiters, members: Mutex::default() });
            known.insert(name.into(), Arc::downgrade(&scope));
            scope
        });
        drop(known);
        let number = scope.lock().enter(only_for.clone(), limit);
        ScopeMember { scope, number, only_for, limit }
    }
}

impl Scope {
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

    /// The limit of the newest semaphore that is for this key.
    pub(super) fn current_limit(&self, key: &[u8]) -> LeaseLimit {
        let members = self.scope.lock();
        let row = members.for_keys.get(key).unwrap_or(&members.for_all);
        row.last_key_value().map_or(self.limit, |(_, limit)| *limit)
    }

    pub(super) fn waiters(&self) -> &Waiters {
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

    fn current_limit(member: &ScopeMember, key: &str) -> u32 {
        member.current_limit(key.as_bytes()).concurrency.count()
    }

    #[test]
    fn the_newest_that_is_in_use_holds_and_exceptions_are_for_their_key() {
        let scopes = Scopes::default();
        let old = scopes.join("jobs", None, limit(10));
        let old_exception = scopes.join("jobs", Some(b"Sally"[..].into()), limit(100));
        assert_eq!((current_limit(&old, "Harry"), current_limit(&old, "Sally")), (10, 100));
        let new_exception = scopes.join("jobs", Some(b"Sally"[..].into()), limit(200));
        let new = scopes.join("jobs", None, limit(20));
        let elsewhere = scopes.join("others", None, limit(3));
        for member in [&old, &old_exception, &new_exception, &new] {
            assert_eq!((current_limit(member, "Harry"), current_limit(member, "Sally")), (20, 200));
        }
        assert_eq!((current_limit(&elsewhere, "Harry"), old.limit().concurrency.count()), (3, 10));
        drop((new, new_exception));
        assert_eq!((current_limit(&old, "Harry"), current_limit(&old, "Sally")), (10, 100));
        drop(old_exception);
        assert_eq!(current_limit(&old, "Sally"), 10);
    }

    #[test]
    fn what_is_not_in_use_is_forgotten() {
        let scopes = Scopes::default();
        for scope in 0..1_000_u32 {
            drop(scopes.join(&scope.to_string(), Some(b"Harry"[..].into()), limit(1)));
        }
        assert_eq!(scopes.known.lock().unwrap().len(), 1, "the last");
        let kept = scopes.join("kept", None, limit(1));
        for _ in 0..1_000 {
            drop(scopes.join("kept", Some(b"Harry"[..].into()), limit(1)));
            drop(scopes.join("kept", None, limit(1)));
        }
        let members = kept.scope.lock();
        assert_eq!((members.for_all.len(), members.for_keys.len()), (1, 0));
    }
}
