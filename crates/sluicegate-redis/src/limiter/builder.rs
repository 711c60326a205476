//! Builds a limiter.

use super::queue::LocalQueues;
use super::{Inner, RedisLimiter};
use crate::encode::EncodedLimit;
use crate::failure::OnStoreFailure;
use crate::fallback::{Fallback, FallbackSettings};
use crate::names::Names;
use crate::store::RedisStore;
use sluicegate::BuildError;

use sluicegate::wait::MAX_QUEUE_DEFAULT;
use sluicegate::{Limit, LimitError, Time};
use std::sync::Arc;

/// Builds a [`RedisLimiter`]: see [`RedisLimiter::builder`].
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

    /// Sets the store, and the scope that the keys belong to. Limiters of one scope share their
    /// keys, in every process; a limiter with another limit continues with what the keys have used.
    pub fn in_store(mut self, store: &RedisStore, scope: &str) -> RedisLimiterBuilder {
        self.store = Some((store.clone(), scope.to_owned()));
        self
    }

    /// Sets what to answer while the store fails; [`OnStoreFailure::Error`] by default.
    pub fn on_store_failure(mut self, on_store_failure: OnStoreFailure) -> RedisLimiterBuilder {
        self.fallback.on_store_failure = on_store_failure;
        self
    }

    /// Sets the percentage of the limit that [`OnStoreFailure::Local`] decides with; 100 by
    /// default. With four processes and 25, all of them together admit about the limit while the
    /// store is unavailable.
    pub fn local_share(mut self, percent: u32) -> RedisLimiterBuilder {
        self.fallback.local_share = percent;
        self
    }

    /// Sets the start of buckets with `initial` whose limit names none. All processes must agree on
    /// it, so this is for tests and replays.
    pub fn start(mut self, start: Time) -> RedisLimiterBuilder {
        self.start = Some(start);
        self
    }

    /// Makes a bucket keep its recovery time when its limit changes, as redis-cell does, instead of
    /// the units used.
    pub fn preserve_recovery_time(mut self) -> RedisLimiterBuilder {
        self.preserve_recovery_time = true;
        self
    }

    /// Sets the most waiters per key of this process ([`RedisLimiter::acquire`]), not counting the
    /// head; [`MAX_QUEUE_DEFAULT`] by default. Further calls are denied at once. Limits that can
    /// reserve a time queue in the store instead: up to 16,384 waiters and open receipts
    /// per key of all processes, under a `pacer` up to its queue.
    pub fn max_queue(mut self, most: usize) -> RedisLimiterBuilder {
        self.max_queue = most;
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    /// If a limit is invalid, the limits cannot be combined or shared, the scope is invalid, or no
    /// store was set.
    pub fn build(self) -> Result<RedisLimiter, BuildError> {
        let limits = self.limits?;
        Limit::check_list(&limits)?;
        let (store, scope, names) = Names::resolve(self.store)?;
        let mut encoded = Vec::with_capacity(limits.len());
        for limit in &limits {
            let made = EncodedLimit::new(limit, self.start);
            encoded.push(made.ok_or_else(|| BuildError::NeedsStart(limit.to_string()))?);
        }
        let compiled = encoded.iter().map(|encoded: &EncodedLimit| encoded.limit.clone()).collect();
        let mut tags = String::new();
        for limit in &encoded {
            tags.push(limit.letter);
            tags.push_str(limit.receipts_tag());
        }
        let fallback = Fallback::limiter(&self.fallback, &limits, (&store, &scope))?;
        let preserve_recovery_time = self.preserve_recovery_time;
        let denial_owner = super::denials::owner(&store, &limits, &encoded, self.start);
        let queues = LocalQueues::new(self.max_queue);
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
