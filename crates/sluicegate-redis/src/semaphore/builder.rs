//! Making a semaphore.

use super::pace::WAITERS_MAX;
use super::scope::Numbers;
use super::{Inner, RedisSemaphore};
use crate::failure::{OnStoreFailure, RedisBuildError};
use crate::fallback::{Fallback, FallbackSettings};
use crate::names::Names;
use crate::store::RedisStore;
use sluicegate::wait::MAX_QUEUE_DEFAULT;
use sluicegate::{Key, Limit, LimitError};
use std::sync::Arc;

/// Settings of a semaphore. Made by [`RedisSemaphore::builder`].
#[derive(Debug)]
#[must_use]
pub struct RedisSemaphoreBuilder {
    limits: Result<Vec<Limit>, LimitError>,
    place: Option<(RedisStore, String)>,
    only_for: Option<Arc<[u8]>>,
    fallback: FallbackSettings,
    max_queue: usize,
    max_waiters: usize,
}

impl RedisSemaphoreBuilder {
    pub(super) fn new(limits: Result<Vec<Limit>, LimitError>) -> RedisSemaphoreBuilder {
        RedisSemaphoreBuilder {
            limits,
            place: None,
            only_for: None,
            fallback: FallbackSettings::default(),
            max_queue: MAX_QUEUE_DEFAULT,
            max_waiters: WAITERS_MAX,
        }
    }

    /// Where its keys live: a store, and a name for what they belong to. Semaphores of one scope share the leases, in whichever
    /// process they are, and whatever their numbers.
    pub fn in_store(mut self, store: &RedisStore, scope: &str) -> RedisSemaphoreBuilder {
        self.place = Some((store.clone(), scope.to_owned()));
        self
    }

    /// These numbers are for one key alone, which is an exception among those of the scope. It matters to whoever waits under that key, and under the others, while
    /// numbers are changed: they go by the newest semaphore that is for their key.
    pub fn only_for(mut self, key: impl Key) -> RedisSemaphoreBuilder {
        self.only_for = Some(key.to_bytes().as_ref().into());
        self
    }

    /// What to answer when the store cannot. [`OnStoreFailure::Error`] unless said. Under [`OnStoreFailure::Allow`] there is a grant
    /// without a lease, and under [`OnStoreFailure::Local`] a lease in this process's memory, which is not told to the store when it is back. Leases that are out cannot be renewed or returned without the store, whatever is said here.
    pub fn on_store_failure(mut self, on_store_failure: OnStoreFailure) -> RedisSemaphoreBuilder {
        self.fallback.on_store_failure = on_store_failure;
        self
    }

    /// The share of the places, in percent, that [`OnStoreFailure::Local`] decides with: 100 unless said. With four processes
    /// and 25, all of them together give out about as many as there are while the store is away.
    pub fn local_share(mut self, percent: u32) -> RedisSemaphoreBuilder {
        self.fallback.local_share = percent;
        self
    }

    /// The most callers of all processes that may wait in line under one key: [`MAX_QUEUE_DEFAULT`] unless said. Further ones are refused.
    pub fn max_queue(mut self, most: usize) -> RedisSemaphoreBuilder {
        self.max_queue = most;
        self
    }

    /// The most callers of this process that may wait under all keys of the scope: [`WAITERS_MAX`] unless said, which is also the most that may wait for leases in
    /// the store at all. Further ones are given a place if there is one, and are refused otherwise.
    pub fn max_waiters(mut self, most: usize) -> RedisSemaphoreBuilder {
        self.max_waiters = most;
        self
    }

    /// Makes the semaphore.
    ///
    /// # Errors
    /// When the text is not a `concurrency` limit that says its `ttl`, or no store was named.
    pub fn build(self) -> Result<RedisSemaphore, RedisBuildError> {
        let limits = self.limits?;
        let [limit] = <[Limit; 1]>::try_from(limits)
            .map_err(|limits| RedisBuildError::NotOneConcurrency(texts(&limits)))?;
        let Some(rule) = limit.as_concurrency() else {
            return Err(RedisBuildError::NotOneConcurrency(texts(&[limit])));
        };
        let Some(ttl) = rule.ttl() else { return Err(RedisBuildError::NeedsTtl(limit.to_string())) };
        let (store, scope, names) = Names::placed(self.place)?;
        let fallback = Fallback::semaphore(&self.fallback, &limit, (&store, &scope))?;
        let member = store.inner.scopes.join(&scope, self.only_for, Numbers { rule, ttl });
        let (max_queue, max_waiters) = (self.max_queue, self.max_waiters);
        let inner = Inner { store, scope, names, limit, member, fallback, max_queue, max_waiters };
        Ok(RedisSemaphore { inner: Arc::new(inner) })
    }
}

fn texts(limits: &[Limit]) -> String {
    limits.iter().map(Limit::to_string).collect::<Vec<_>>().join(", ")
}
