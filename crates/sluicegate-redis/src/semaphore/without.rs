//! Answering without the store, as the semaphore was told to.

use super::Inner;
use super::grant::SharedGrant;
use super::lease::SharedLease;
use crate::answer::{Answer, Source};
use crate::failure::{OnStoreFailure, StoreFailure};
use crate::limiter::BuildError;
pub(super) use crate::limiter::COME_BACK_AFTER;
use crate::store::RedisStore;
use sluicegate::{Decision, Limit, RetryAfter, Semaphore};
use std::sync::Arc;
use tokio::time::Instant;

/// What to answer.
pub(super) enum Fallback {
    Error,
    Allow { limit: u32 },
    Deny { limit: u32 },
    Local(Semaphore),
}

/// What somebody is told whom the store did not answer.
pub(super) enum Without {
    /// With a lease if it was given by this process's memory.
    Granted(Answer, Option<sluicegate::Lease>),
    Denied(Answer),
}

impl Fallback {
    pub(super) fn new(
        on_store_failure: OnStoreFailure,
        share: u32,
        limit: &Limit,
        (store, scope): (&RedisStore, &str),
    ) -> Result<Fallback, BuildError> {
        if !(1..=100).contains(&share) {
            return Err(BuildError::BadShare(share));
        }
        Ok(match on_store_failure {
            OnStoreFailure::Error => Fallback::Error,
            OnStoreFailure::Allow => Fallback::Allow { limit: limit.at_once() },
            OnStoreFailure::Deny => Fallback::Deny { limit: limit.at_once() },
            OnStoreFailure::Local => {
                let leases = store.inner.local_leases().map_err(BuildError::Local)?;
                let made = leases.scope(scope.to_owned()).semaphore(limit.share(share));
                Fallback::Local(made.map_err(BuildError::Local)?)
            }
        })
    }

    /// An answer without the store, if that is not an error.
    pub(super) fn instead(
        &self,
        failure: StoreFailure,
        key: &[u8],
        cost: u32,
    ) -> Result<Without, StoreFailure> {
        Ok(match self {
            Fallback::Error => return Err(failure),
            Fallback::Allow { limit } => Without::Granted(allowed(*limit), None),
            Fallback::Deny { limit } => Without::Denied(denied(*limit)),
            Fallback::Local(semaphore) => {
                let grant = semaphore.try_acquire(key, cost);
                let answer = Answer::new(grant.decision(), Source::Local);
                if grant.allowed() {
                    Without::Granted(answer, grant.lease())
                } else {
                    Without::Denied(answer)
                }
            }
        })
    }

    pub(super) fn peek(&self, failure: StoreFailure, key: &[u8], cost: u32) -> Result<Answer, StoreFailure> {
        match self {
            Fallback::Error => Err(failure),
            Fallback::Allow { limit } => Ok(allowed(*limit)),
            Fallback::Deny { limit } => Ok(denied(*limit)),
            Fallback::Local(semaphore) => Ok(Answer::new(semaphore.peek(key, cost), Source::Local)),
        }
    }

    /// Whether a lease that was given here is live, and has a new ttl now.
    pub(super) fn renew(&self, key: &[u8], id: &sluicegate::LeaseId) -> bool {
        matches!(self, Fallback::Local(semaphore) if semaphore.renew(key, id))
    }

    /// Whether a lease that was given here was live until now.
    pub(super) fn release(&self, key: &[u8], id: &sluicegate::LeaseId) -> bool {
        matches!(self, Fallback::Local(semaphore) if semaphore.release(key, id))
    }

    pub(super) fn forget(&self, key: &[u8]) {
        if let Fallback::Local(semaphore) = self {
            semaphore.reset(key);
        }
    }
}

impl Inner {
    /// What one who does not wait is told without the store.
    pub(super) fn grant_without(
        self: &Arc<Inner>,
        failure: StoreFailure,
        key: &[u8],
        cost: u32,
        began: Instant,
    ) -> Result<SharedGrant, StoreFailure> {
        Ok(match self.fallback.instead(failure, key, cost)? {
            Without::Granted(answer, lease) => self.granted_without(answer, lease, key, began),
            Without::Denied(answer) => SharedGrant::without_lease(answer, began),
        })
    }

    pub(super) fn granted_without(
        self: &Arc<Inner>,
        answer: Answer,
        lease: Option<sluicegate::Lease>,
        key: &[u8],
        began: Instant,
    ) -> SharedGrant {
        let lease = lease.map(|lease| SharedLease::local(self, key, lease, Instant::now()));
        SharedGrant::taken_locally(answer, lease, began)
    }
}

/// Nobody could decide, and it is to be yes then.
fn allowed(limit: u32) -> Answer {
    Answer::new(Decision::let_pass(limit), Source::Allowed)
}

/// Nobody could decide, and it is to be no then.
fn denied(limit: u32) -> Answer {
    Answer::new(Decision::no_room(limit, RetryAfter::After(COME_BACK_AFTER)), Source::Denied)
}
