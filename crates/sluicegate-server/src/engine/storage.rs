//! Where the state of keys is kept: in this process's memory or in a shared store. The choice is
//! made once, when the engine is created. This module also builds the backends of rules.

use super::lease_pools::LeasePools;
use super::leases::{use_acquire, use_check};
use super::rule::{RuleScope, RuleSet};
use super::{RequestError, Settings};
use crate::metrics::{Latency, LatencyView};
use sluicegate::backend::{Backend, LeaseBackend, Source};
use sluicegate::clock::Clock;
use sluicegate::semaphore::{LeaseScope, SemaphoreStats};
use sluicegate::{Limit, Limiter, Time};
use sluicegate::{MemoryStore, StoreStats};
use sluicegate_redis::{
    ConnectError, Failures, OnStoreFailure, RedisCall, RedisLimiter, RedisSemaphore, RedisStore,
    RedisStoreBuilder,
};
use std::sync::Arc;

/// Where an engine keeps the state of its keys.
#[derive(Clone, Default, Debug)]
pub enum Keys {
    /// In this process's memory.
    #[default]
    InMemory,
    /// In a shared store. Made by [`Keys::connect`].
    Shared(SharedKeys),
}

/// Keys in a shared store.
#[derive(Clone, Debug)]
pub struct SharedKeys {
    store: RedisStore,
    time: StoreTime,
    latency: Arc<Latency>,
}

impl Keys {
    /// Connects to a shared store and measures its round trips.
    ///
    /// # Errors
    /// Those of [`RedisStoreBuilder::connect`].
    pub async fn connect(store: RedisStoreBuilder, time: StoreTime) -> Result<Keys, ConnectError> {
        let latency = Arc::new(Latency::default());
        let hook = Arc::clone(&latency);
        let store = store.on_round_trip(move |calls, took| hook.add(calls, took)).connect().await?;
        Ok(Keys::Shared(SharedKeys { store, time, latency }))
    }
}

/// Whose clock decisions in a shared store follow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum StoreTime {
    /// The store's, which all servers agree on.
    #[default]
    Store,
    /// The engine's, for tests.
    Engine,
}

/// What a rule answers while the shared store is unavailable.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleFallback {
    pub(super) on_failure: OnStoreFailure,
    pub(super) local_share: u32,
}

impl RuleFallback {
    /// Returns the fallback of a rule: the rule's own settings, or these where it has none.
    pub(super) fn overridden_by(
        self,
        on_failure: Option<OnStoreFailure>,
        local_share: Option<u32>,
    ) -> RuleFallback {
        RuleFallback {
            on_failure: on_failure.unwrap_or(self.on_failure),
            local_share: local_share.unwrap_or(self.local_share),
        }
    }
}

/// The store of an engine's keys.
pub(super) enum Storage {
    Memory { store: MemoryStore, leases: LeasePools },
    Redis(SharedKeys),
}

/// What decides under a list of limits. An enum rather than `dyn Backend`, so that a check in
/// memory is neither a virtual call nor a future.
pub(super) enum AnyBackend {
    Memory(Limiter),
    Redis { limiter: RedisLimiter, time: StoreTime },
    Leases(Leases),
}

/// What grants leases under a `concurrency` limit.
pub(super) struct Leases {
    pub(super) backend: Box<dyn LeaseBackend>,
    /// Whose clock decides.
    pub(super) time: StoreTime,
    /// Counts and bounds the leases in memory; `None` in a shared store.
    pub(super) scope: Option<LeaseScope>,
}

/// The statistics of a shared store.
#[derive(Debug)]
pub struct StoreView {
    /// Answers by source, named as in the metrics.
    pub answers: Vec<(&'static str, u64)>,
    /// Failures by kind, named as in the metrics. Includes calls that a rule's fallback then
    /// answered.
    pub failures: Vec<(&'static str, u64)>,
    /// `true` if every node is reachable.
    pub is_up: bool,
    /// `true` if every node accepts writes.
    pub is_writable: bool,
    /// Keys that the nodes were seen to evict.
    pub evicted_keys: u64,
    pub(crate) latency: LatencyView,
}

impl StoreTime {
    /// The time at which to decide a call that arrived at `now`; `None` means the store's time.
    #[inline]
    pub(super) fn at(self, now: Time) -> Option<Time> {
        (self == StoreTime::Engine).then_some(now)
    }

    /// Creates a call as the store's client takes it.
    pub(super) fn call<'c>(
        self,
        limiter: &'c RedisLimiter,
        key: &'c [u8],
        cost: u64,
        now: Time,
    ) -> RedisCall<'c> {
        let in_store = limiter.call(key, cost);
        match self.at(now) {
            Some(now) => in_store.at(now),
            None => in_store,
        }
    }
}

impl AnyBackend {
    /// The backend that decides checks.
    ///
    /// # Errors
    /// If this backend grants leases instead.
    pub(super) fn checks(&self) -> Result<&dyn Backend, RequestError> {
        match self {
            AnyBackend::Memory(limiter) => Ok(limiter),
            AnyBackend::Redis { limiter, .. } => Ok(limiter),
            AnyBackend::Leases(_) => Err(use_acquire()),
        }
    }

    /// The backend that grants leases.
    ///
    /// # Errors
    /// If this backend decides checks instead.
    pub(super) fn leases(&self) -> Result<&Leases, RequestError> {
        match self {
            AnyBackend::Leases(leases) => Ok(leases),
            AnyBackend::Memory(_) | AnyBackend::Redis { .. } => Err(use_check()),
        }
    }

    /// The time at which to decide a call that arrived at `now`; `None` means the store's time.
    pub(super) fn at(&self, now: Time) -> Option<Time> {
        match self {
            AnyBackend::Memory(_) => Some(now),
            AnyBackend::Redis { time, .. } => time.at(now),
            AnyBackend::Leases(leases) => leases.time.at(now),
        }
    }
}

impl Storage {
    pub(super) fn new(
        keys: Keys,
        settings: &Settings,
        clock: &Arc<dyn Clock>,
    ) -> Result<Storage, RequestError> {
        let Settings { max_keys, max_receipts, max_log_entries, on_full, .. } = *settings;
        Ok(match keys {
            Keys::InMemory => {
                let store = MemoryStore::builder().max_keys(max_keys).max_receipts(max_receipts);
                let store = store
                    .max_log_entries(max_log_entries)
                    .on_full(on_full)
                    .clock(Arc::clone(clock))
                    .build()?;
                Storage::Memory { store, leases: LeasePools::new(settings, clock)? }
            }
            Keys::Shared(shared) => Storage::Redis(shared),
        })
    }

    /// The memory store; `None` if keys live in a shared store.
    #[inline]
    pub(super) fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Storage::Memory { store, .. } => Some(store),
            Storage::Redis(_) => None,
        }
    }

    /// The statistics of the memory store.
    pub(super) fn stats(&self) -> Option<StoreStats> {
        self.memory().map(MemoryStore::stats)
    }

    /// The statistics of the shared store.
    pub(super) fn store(&self) -> Option<StoreView> {
        let Storage::Redis(SharedKeys { store, latency, .. }) = self else { return None };
        let stats = store.stats();
        let Failures { unavailable, timed_out, disconnected, rejected, .. } = stats.failures;
        Some(StoreView {
            answers: stats.answers.iter().map(|(source, count)| (source.as_str(), *count)).collect(),
            failures: vec![
                ("unavailable", unavailable),
                ("timeout", timed_out),
                ("disconnected", disconnected),
                ("rejected", rejected),
            ],
            is_up: store.is_up(),
            is_writable: store.is_writable(),
            evicted_keys: stats.evicted_keys,
            latency: latency.view(),
        })
    }

    /// Counts an answer that a fallback gave in place of the shared store.
    pub(super) fn count_fallback(&self, source: Source) {
        if let Storage::Redis(SharedKeys { store, .. }) = self
            && source.is_fallback()
        {
            store.count_answer(source);
        }
    }

    /// Returns why no node of a shared store can decide, if so; always `None` in memory.
    pub(super) fn outage(&self) -> Option<String> {
        match self {
            Storage::Memory { .. } => None,
            Storage::Redis(SharedKeys { store, .. }) => store.outage(),
        }
    }

    /// The number of calls for which there was no room for another lease; `None` in a shared store.
    pub(super) fn no_lease_room(&self) -> Option<u64> {
        match self {
            Storage::Memory { leases, .. } => Some(leases.no_room()),
            Storage::Redis(_) => None,
        }
    }

    /// The numbers of leases under inline limits; `None` in a shared store.
    pub(super) fn inline_leases(&self) -> Option<SemaphoreStats> {
        match self {
            Storage::Memory { leases, .. } => Some(leases.inline_stats()),
            Storage::Redis(_) => None,
        }
    }

    /// Divides the capacity for keys and leases in memory between the rules of a configuration.
    pub(super) fn divide(&self, rules: &RuleSet) {
        if let Storage::Memory { leases, .. } = self {
            rules.iter().for_each(|rule| rule.set_share());
            let scopes = rules.iter().filter_map(|rule| Some((rule.lease_scope()?, rule.spec().share)));
            leases.divide(rules.iter().next().is_some(), &scopes.collect::<Vec<_>>());
        }
    }

    /// Builds the backend of a list of limits, for all keys of a scope or for one exception.
    pub(super) fn backend(
        &self,
        (scope, only_for): (&RuleScope, Option<&[u8]>),
        limits: &[Limit],
        start: Time,
        fallback: RuleFallback,
    ) -> Result<AnyBackend, RequestError> {
        if let (true, [limit]) = (super::leases::grants_leases(limits)?, limits) {
            return Ok(AnyBackend::Leases(self.leases((scope, only_for), limit, fallback)?));
        }
        match self {
            Storage::Memory { store, .. } => {
                let builder = Limiter::builder(limits).in_store(store, scope.clone()).start(start);
                let builder = match scope {
                    RuleScope::Rule(_) => builder,
                    RuleScope::Inline(_) => builder.untrusted(),
                    RuleScope::Throttle => builder.untrusted().preserve_recovery_time(),
                };
                Ok(AnyBackend::Memory(builder.build()?))
            }
            Storage::Redis(SharedKeys { store, time, .. }) => {
                let RuleFallback { on_failure, local_share } = fallback;
                let mut builder = RedisLimiter::builder(limits).in_store(store, &scope.text());
                builder = builder.on_store_failure(on_failure).local_share(local_share);
                if *time == StoreTime::Engine {
                    builder = builder.start(start);
                }
                if matches!(scope, RuleScope::Throttle) {
                    builder = builder.preserve_recovery_time();
                }
                Ok(AnyBackend::Redis { limiter: builder.build()?, time: *time })
            }
        }
    }

    fn leases(
        &self,
        (scope, only_for): (&RuleScope, Option<&[u8]>),
        limit: &Limit,
        RuleFallback { on_failure, local_share }: RuleFallback,
    ) -> Result<Leases, RequestError> {
        match self {
            Storage::Memory { leases, .. } => leases.of(scope, limit),
            Storage::Redis(SharedKeys { store, time, .. }) => {
                let mut builder = RedisSemaphore::builder(limit).in_store(store, &scope.text());
                if let Some(key) = only_for {
                    builder = builder.only_for(key);
                }
                let builder = builder.on_store_failure(on_failure).local_share(local_share);
                Ok(Leases { backend: Box::new(builder.build()?), time: *time, scope: None })
            }
        }
    }
}
