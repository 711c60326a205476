//! Making a limiter.

use super::error::BuildError;
use super::line::Lines;
use super::trips::Trips;
use super::without::Fallback;
use super::{Inner, RedisLimiter};
use crate::failure::OnStoreFailure;
use crate::names::Names;
use crate::shape::Shape;
use crate::store::RedisStore;
use sluicegate::{Limit, LimitError, ListError, MAX_LINE_DEFAULT, Time};
use std::sync::Arc;

/// Settings of a limiter. Made by [`RedisLimiter::builder`].
#[derive(Debug)]
#[must_use]
pub struct RedisLimiterBuilder {
    limits: Result<Vec<Limit>, LimitError>,
    place: Option<(RedisStore, String)>,
    on_store_failure: OnStoreFailure,
    local_share: u32,
    start: Option<Time>,
    keeps_time: bool,
    max_line: usize,
}

impl RedisLimiterBuilder {
    pub(super) fn new(limits: Result<Vec<Limit>, LimitError>) -> RedisLimiterBuilder {
        RedisLimiterBuilder {
            limits,
            place: None,
            on_store_failure: OnStoreFailure::default(),
            local_share: 100,
            start: None,
            keeps_time: false,
            max_line: MAX_LINE_DEFAULT,
        }
    }

    /// Where its keys live: a store, and a name for what they belong to. Limiters of one scope share the keys, in whichever
    /// process they are; one with other numbers goes on with what the keys have used.
    pub fn in_store(mut self, store: &RedisStore, scope: &str) -> RedisLimiterBuilder {
        self.place = Some((store.clone(), scope.to_owned()));
        self
    }

    /// What to answer when the store cannot. [`OnStoreFailure::Error`] unless said.
    pub fn on_store_failure(mut self, on_store_failure: OnStoreFailure) -> RedisLimiterBuilder {
        self.on_store_failure = on_store_failure;
        self
    }

    /// The share of the limit, in percent, that [`OnStoreFailure::Local`] decides with: 100 unless said. With four processes
    /// and 25, all of them together admit about the limit while the store is away.
    pub fn local_share(mut self, percent: u32) -> RedisLimiterBuilder {
        self.local_share = percent;
        self
    }

    /// Since when a bucket with `initial` fills that does not say so itself. All processes have to agree, so this is for tests
    /// and replays.
    pub fn start(mut self, start: Time) -> RedisLimiterBuilder {
        self.start = Some(start);
        self
    }

    /// A bucket whose numbers have changed keeps the time until it is full, as redis-cell does, and not the units used.
    pub fn keeps_time(mut self) -> RedisLimiterBuilder {
        self.keeps_time = true;
        self
    }

    /// The most callers of this process that may wait in line under one key ([`RedisLimiter::acquire`]), beside the one whose turn
    /// is next: [`MAX_LINE_DEFAULT`] unless said. Further ones are refused at once. Where limits lend, the line is in the
    /// store, and 1024 callers of all processes may wait under one key of buckets; under a pacer as many as its queue has room for.
    pub fn max_line(mut self, most: usize) -> RedisLimiterBuilder {
        self.max_line = most;
        self
    }

    /// Makes the limiter.
    ///
    /// # Errors
    /// When a text is not a limit, limits do not go together or cannot be shared, or no store was named.
    pub fn build(self) -> Result<RedisLimiter, BuildError> {
        let limits = self.limits?;
        ListError::check(&limits)?;
        let (store, scope) = self.place.ok_or(BuildError::NoStore)?;
        let names = Names::new(&store.inner.settings.key_prefix, &scope);
        let names = names.ok_or_else(|| BuildError::BadScope(scope.clone()))?;
        let mut shapes = Vec::with_capacity(limits.len());
        for limit in &limits {
            let shape = Shape::new(limit, self.start);
            shapes.push(shape.ok_or_else(|| BuildError::NeedsStart(limit.to_string()))?);
        }
        let made = shapes.iter().map(|shape| shape.limit.clone()).collect();
        let mut tags = String::new();
        for shape in &shapes {
            tags.push(shape.letter);
            tags.push_str(shape.tag());
        }
        let fallback = Fallback::new(self.on_store_failure, self.local_share, &limits, (&store, &scope))?;
        let keeps_time = self.keeps_time;
        let remembers = super::denials::owner(&store, &limits, &shapes, self.start);
        let trips = store.inner.settings.share_trips.then(Trips::default);
        let lines = Lines::new(self.max_line);
        let inner = Inner {
            store,
            scope,
            names,
            limits,
            shapes,
            made,
            tags,
            keeps_time,
            fallback,
            remembers,
            trips,
            lines,
        };
        Ok(RedisLimiter { inner: Arc::new(inner) })
    }
}
