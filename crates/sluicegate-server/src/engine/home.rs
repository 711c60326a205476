//! Where keys live: in this process's memory, or in a store that many servers share.

use super::judge::Judge;
use super::leases::LocalLeases;
use super::lender::{Lender, lends};
use super::rule::Scope;
use super::shared::{Shared, SharedLender, SharedLimiter};
use super::{Mistake, Settings};
use sluicegate::{Clock, Limit, Limiter, SemaphoreStats, SharedStore, Stats, Time};
use sluicegate_redis::{OnStoreFailure, RedisLimiter, RedisSemaphore, RedisStore};
use std::sync::Arc;
use std::time::Duration;

/// Where an engine is to keep its keys.
#[derive(Clone, Default, Debug)]
pub enum Keys {
    /// In this process's memory.
    #[default]
    InMemory,
    /// In a store that many servers share.
    Shared {
        /// The store.
        store: RedisStore,
        /// Whose clock counts.
        time: WhoseTime,
        /// How long it is waited for.
        deadline: Duration,
    },
}

/// Whose clock decisions in a shared store go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhoseTime {
    /// The store's: it is the same for all servers.
    TheStores,
    /// The engine's, for tests.
    TheEngines,
}

/// What is done when a shared store is away.
#[derive(Clone, Copy, Debug)]
pub(super) struct WhenAway {
    pub(super) on_failure: OnStoreFailure,
    local_share: u32,
}

/// Keys, wherever they live.
pub(super) struct Home {
    place: Place,
    for_all: WhenAway,
}

enum Place {
    Memory(SharedStore, LocalLeases),
    Shared(Arc<Shared>),
}

impl Home {
    pub(super) fn new(keys: Keys, settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Home, Mistake> {
        let Settings { max_keys, max_receipts, on_full, on_failure, local_share, .. } = *settings;
        let place = match keys {
            Keys::InMemory => {
                let store = SharedStore::builder().max_keys(max_keys).max_receipts(max_receipts);
                let store = store.on_full(on_full).clock(Arc::clone(clock)).build()?;
                Place::Memory(store, LocalLeases::new(settings, clock)?)
            }
            Keys::Shared { store, time, deadline } => {
                Place::Shared(Arc::new(Shared::new(store, time, deadline)))
            }
        };
        Ok(Home { place, for_all: WhenAway { on_failure, local_share } })
    }

    /// The store in memory, if the keys live there.
    #[inline]
    pub(super) fn memory(&self) -> Option<&SharedStore> {
        match &self.place {
            Place::Memory(store, _) => Some(store),
            Place::Shared(_) => None,
        }
    }

    /// The shared store, if the keys live there.
    pub(super) fn shared(&self) -> Option<&Arc<Shared>> {
        match &self.place {
            Place::Memory(..) => None,
            Place::Shared(shared) => Some(shared),
        }
    }

    pub(super) fn stats(&self) -> Option<Stats> {
        self.memory().map(SharedStore::stats)
    }

    /// What a rule that says this, or nothing, does when the store is away.
    pub(super) fn when_away(&self, on_failure: Option<OnStoreFailure>, local_share: Option<u32>) -> WhenAway {
        WhenAway {
            on_failure: on_failure.unwrap_or(self.for_all.on_failure),
            local_share: local_share.unwrap_or(self.for_all.local_share),
        }
    }

    /// What limits that callers bring have lent, in memory.
    pub(super) fn inline_leases(&self) -> Option<SemaphoreStats> {
        match &self.place {
            Place::Memory(_, leases) => Some(leases.inline_stats()),
            Place::Shared(_) => None,
        }
    }

    /// Who lends under a limit, to keys that belong to a scope, or only to one of them.
    fn lender(
        &self,
        (scope, only_for): (&Scope, Option<&[u8]>),
        limit: &Limit,
        when_away: WhenAway,
    ) -> Result<Lender, Mistake> {
        match &self.place {
            Place::Memory(_, leases) => Ok(Lender::Memory(leases.lender(scope, limit)?)),
            Place::Shared(shared) => {
                let WhenAway { on_failure, local_share } = when_away;
                let mut builder = RedisSemaphore::builder(limit).in_store(shared.store(), &scope.text());
                if let Some(key) = only_for {
                    builder = builder.only_for(key);
                }
                let builder = builder.on_store_failure(on_failure).local_share(local_share);
                Ok(Lender::Shared(SharedLender::new(builder.build()?, Arc::clone(shared))))
            }
        }
    }

    /// Who decides by these limits, for keys that belong to a scope, or only for one of them.
    pub(super) fn judge(
        &self,
        (scope, only_for): (&Scope, Option<&[u8]>),
        limits: &[Limit],
        start: Time,
        when_away: WhenAway,
    ) -> Result<Judge, Mistake> {
        if let (true, [limit]) = (lends(limits)?, limits) {
            return Ok(Judge::Lends(self.lender((scope, only_for), limit, when_away)?));
        }
        match &self.place {
            Place::Memory(store, _) => {
                let builder = Limiter::builder(limits).in_store(store, scope.clone()).start(start);
                let builder = match scope {
                    Scope::Rule(_) => builder,
                    Scope::Inline(_) => builder.made_up_by_callers(),
                    Scope::Throttle => builder.made_up_by_callers().keeps_time(),
                };
                Ok(Judge::Memory(builder.build()?))
            }
            Place::Shared(shared) => {
                let WhenAway { on_failure, local_share } = when_away;
                let mut builder = RedisLimiter::builder(limits).in_store(shared.store(), &scope.text());
                builder = builder.on_store_failure(on_failure).local_share(local_share);
                if shared.goes_by_our_time() {
                    builder = builder.start(start);
                }
                if matches!(scope, Scope::Throttle) {
                    builder = builder.keeps_time();
                }
                Ok(Judge::Shared(SharedLimiter::new(builder.build()?, Arc::clone(shared))))
            }
        }
    }
}
