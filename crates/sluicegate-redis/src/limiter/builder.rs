//! Making a limiter.

use super::queue::Queues;
use super::{Inner, RedisLimiter};
use crate::encode::EncodedLimit;
use crate::failure::{OnStoreFailure, RedisBuildError};
use crate::fallback::{Fallback, FallbackSettings};
use crate::names::Names;
use crate::store::RedisStore;
use sluicegate::limit::ListError;
use sluicegate::wait::MAX_QUEUE_DEFAULT;
use sluicegate::{Limit, LimitError, Time};
use std::sync::Arc;

/// Settings of a limiter. Made by [`RedisLimiter::builder`].
#[derive(Debug)]
#[must_use]
pub struct RedisLimiterBuilder {
    limits: Result<Vec<Limit>, LimitError>,
    store: Option<(RedisStore, String)>,
    fallback: FallbackSettings,
    start: Option<Time>,
    preserve_recovery_time: bool,
    max_queue: usize,
}

impl RedisLimiterBuilder {
    pub(super) fn new(limits: Result<Vec<Limit>, LimitError>) -> RedisLimiterBuilder {
        RedisLimiterBuilder {
            limits,
            store: None,
            fallback: FallbackSettings::default(),
            start: None,
            preserve_recovery_time: false,
            max_queue: MAX_QUEUE_DEFAULT,
        }
    }

    /// Where its keys live: a store, and a name for what they belong to. Limiters of one scope share the keys, in whichever
    /// process they are; one with other numbers goes on with what the keys have used.
    pub fn in_store(mut self, store: &RedisStore, scope: &str) -> RedisLimiterBuilder {
        self.store = Some((store.clone(), scope.to_owned()));
        self
    }

    /// What to answer when the store cannot. [`OnStoreFailure::Error`] unless said.
    pub fn on_store_failure(mut self, on_store_failure: OnStoreFailure) -> RedisLimiterBuilder {
        self.fallback.on_store_failure = on_store_failure;
        self
    }

    /// The share of the limit, in percent, that [`OnStoreFailure::Local`] decides with: 100 unless said. With four processes
    /// and 25, all of them together admit about the limit while the store is away.
    pub fn local_share(mut self, percent: u32) -> RedisLimiterBuilder {
        self.fallback.local_share = percent;
        self
    }

    /// Since when a bucket with `initial` fills that does not say so itself. All processes have to agree, so this is for tests
    /// and replays.
    pub fn start(mut self, start: Time) -> RedisLimiterBuilder {
        self.start = Some(start);
        self
    }

    /// A bucket whose numbers have changed keeps the time until it is full, as redis-cell does, and not the units used.
    pub fn preserve_recovery_time(mut self) -> RedisLimiterBuilder {
        self.preserve_recovery_time = true;
        self
    }

    /// The most callers of this process that may wait in line under one key ([`RedisLimiter::acquire`]), beside the one whose turn
    /// is next: [`MAX_QUEUE_DEFAULT`] unless said. Further ones are refused at once. Where limits lend, the line is in the
    /// store, and 1024 callers of all processes may wait under one key of buckets; under a pacer as many as its queue has room for.
    pub fn max_queue(mut self, most: usize) -> RedisLimiterBuilder {
        self.max_queue = most;
        self
    }

    /// Makes the limiter.
    ///
    /// # Errors
    /// When a text is not a limit, limits do not go together or cannot be shared, or no store was named.
    pub fn build(self) -> Result<RedisLimiter, RedisBuildError> {
        let limits = self.limits?;
        ListError::check(&limits)?;
        let (store, scope, names) = Names::placed(self.store)?;
        let mut encoded = Vec::with_capacity(limits.len());
        for limit in &limits {
            let made = EncodedLimit::new(limit, self.start);
            encoded.push(made.ok_or_else(|| RedisBuildError::NeedsStart(limit.to_string()))?);
        }
        let compiled = encoded.iter().map(|encoded: &EncodedLimit| encoded.limit.clone()).collect();
        let mut tags = String::new();
        for limit in &encoded {
            tags.push(limit.letter);
            tags.push_str(limit.tag());
        }
        let fallback = Fallback::limiter(&self.fallback, &limits, (&store, &scope))?;
        let preserve_recovery_time = self.preserve_recovery_time;
        let denial_owner = super::denials::owner(&store, &limits, &encoded, self.start);
        let queues = Queues::new(self.max_queue);
        let limits = limits.into();
        let inner = Inner {
            store,
            scope,
            names,
            limits,
            encoded,
            compiled,
            tags,
            preserve_recovery_time,
            fallback,
            denial_owner,
            queues,
        };
        Ok(RedisLimiter { inner: Arc::new(inner) })
    }
}
