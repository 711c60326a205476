//! Builds a semaphore.

use super::polling::WAITERS_MAX;
use super::scope::LeaseLimit;
use super::{Inner, RedisSemaphore};
use crate::failure::{OnStoreFailure, RedisBuildError};
use crate::fallback::{Fallback, FallbackSettings};
use crate::names::Names;
use crate::store::RedisStore;
use sluicegate::wait::MAX_QUEUE_DEFAULT;
use sluicegate::{Key, Limit, LimitError};
use std::sync::Arc;

/// Builds a [`RedisSemaphore`]: see [`RedisSemaphore::builder`].
#[derive(Debug)]
#[must_use]
pub struct RedisSemaphoreBuilder {
    limits: Result<Vec<Limit>, LimitError>,
    store: Option<(RedisStore, String)>,
    only_for: Option<Arc<[u8]>>,
    fallback: FallbackSettings,
    max_queue: usize,
    max_waiters: usize,
}

impl RedisSemaphoreBuilder {
    pub(super) fn new(limits: Result<Vec<Limit>, LimitError>) -> RedisSemaphoreBuilder {
        RedisSemaphoreBuilder {
            limits,
            store: None,
            only_for: None,
            fallback: FallbackSettings::default(),
            max_queue: MAX_QUEUE_DEFAULT,
            max_waiters: WAITERS_MAX,
        }
    }

    /// Sets the store, and the scope that the keys belong to. Semaphores of one scope share their
    /// leases, in every process and whatever their limits.
    pub fn in_store(mut self, store: &RedisStore, scope: &str) -> RedisSemaphoreBuilder {
        self.store = Some((store.clone(), scope.to_owned()));
        self
    }

    /// Makes the limit an exception for one key of the scope. Waiters and holders of that key then
    /// follow the newest such exception, and all others the newest semaphore without one.
    pub fn only_for(mut self, key: impl Key) -> RedisSemaphoreBuilder {
        self.only_for = Some(key.to_bytes().as_ref().into());
        self
    }

    /// Sets what to answer while the store fails; [`OnStoreFailure::Error`] by default.
    /// [`OnStoreFailure::Allow`] grants without a lease. [`OnStoreFailure::Local`] grants a lease
    /// in this process's memory, which the store never learns of. Leases of the store cannot be
    /// renewed or released without it, whatever is set here.
    pub fn on_store_failure(mut self, on_store_failure: OnStoreFailure) -> RedisSemaphoreBuilder {
        self.fallback.on_store_failure = on_store_failure;
        self
    }

    /// Sets the percentage of the limit that [`OnStoreFailure::Local`] decides with; 100 by
    /// default. With four processes and 25, all of them together grant about the limit while the
    /// store is unavailable.
    pub fn local_share(mut self, percent: u32) -> RedisSemaphoreBuilder {
        self.fallback.local_share = percent;
        self
    }

    /// Sets the most waiters per key, of all processes; [`MAX_QUEUE_DEFAULT`] by default. Further
    /// calls are denied.
    pub fn max_queue(mut self, most: usize) -> RedisSemaphoreBuilder {
        self.max_queue = most;
        self
    }

    /// Sets the most waiters for all keys of the scope, of this process; by default
    /// [`WAITERS_MAX`], which is also the most for all leases in a store. Further calls get a
    /// permit if one is free, and are denied otherwise.
    pub fn max_waiters(mut self, most: usize) -> RedisSemaphoreBuilder {
        self.max_waiters = most;
        self
    }

    /// Builds the semaphore.
    ///
    /// # Errors
    /// If the limit is not one `concurrency` limit with a `ttl`, the scope is invalid, or no store
    /// was set.
    pub fn build(self) -> Result<RedisSemaphore, RedisBuildError> {
        let limits = self.limits?;
        let [limit] = <[Limit; 1]>::try_from(limits)
            .map_err(|limits| RedisBuildError::NotOneConcurrency(texts(&limits)))?;
        let Some(concurrency) = limit.as_concurrency() else {
            return Err(RedisBuildError::NotOneConcurrency(texts(&[limit])));
        };
        let Some(ttl) = concurrency.ttl() else { return Err(RedisBuildError::NeedsTtl(limit.to_string())) };
        let (store, scope, names) = Names::resolve(self.store)?;
        let fallback = Fallback::semaphore(&self.fallback, &limit, (&store, &scope))?;
        let member = store.inner.scopes.join(&scope, self.only_for, LeaseLimit { concurrency, ttl });
        let (max_queue, max_waiters) = (self.max_queue, self.max_waiters);
        let inner = Inner { store, scope, names, limit, member, fallback, max_queue, max_waiters };
        Ok(RedisSemaphore { inner: Arc::new(inner) })
    }
}

fn texts(limits: &[Limit]) -> String {
    limits.iter().map(Limit::to_string).collect::<Vec<_>>().join(", ")
}
