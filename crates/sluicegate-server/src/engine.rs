//! The engine: every protocol gets its decisions here, and nowhere else.
//!
//! ```text
//!                    rule and key, as a request names them
//!                                   │
//! Engine::call, Engine::check       ▼   find the rule, check the bounds
//!                               RuleCall    a rule, a key, a cost
//!                                   │
//! decide, or a method of RuleCall   ▼   look up the key's limits or exception
//!                                Backend    memory or Redis
//!                                   │
//! protocol  ◀──  Decided  ◀──  Answer       the answer under its rule, ready to be written
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `call.rs` | a call and its verbs: peek, take, reserve, refund, reset, next, usage |
//! | `decide.rs` | the path of every check, alone or in a batch |
//! | `check_all.rs` | several calls, checked or reserved all or nothing |
//! | `receipt.rs`, `receipt_verbs.rs` | receipts as clients see them; extend, settle, cancel |
//! | `decided.rs` | an answer under its rule; the reason for a denial |
//! | `rule.rs` | a rule, its exceptions per key, its counters; all rules of a configuration |
//! | `rule_cache.rs` | the rules that one connection uses |
//! | `inline.rs`, `throttle.rs` | limits that come with a request, `CL.THROTTLE` among them |
//! | `leases.rs`, `lease_pools.rs` | leases of `concurrency` limits, and their bounds |
//! | `storage.rs` | where the state of keys is kept; builds the backends |
//! | `request_error.rs` | why a request has no decision |
//!
//! # Invariants
//!
//! - Protocols translate bytes. They never compare a cost with a limit, so the same call has the
//!   same answer over RESP, HTTP and in the library.
//! - A denial is an answer. [`RequestError`] means that there is no decision: the request is
//!   invalid, or nothing can decide it now.
//! - No counter, cache or table here grows with the number of keys or clients.
//! - A reload replaces all rules or none. A call finishes under the rules it was created with.

mod call;
mod check_all;
mod decide;
mod decided;
mod inline;
mod lease_pools;
mod leases;
mod receipt;
mod receipt_verbs;
mod request_error;
mod rule;
mod rule_cache;
mod storage;
mod throttle;

pub use call::{LimitUsage, ReservedCall, RuleCall};
pub use check_all::DecidedAll;
pub use decide::decide;
pub use decided::{Decided, Reason};
pub use leases::{HeldLeases, LeaseStats, Leased, UndeliveredLease};
pub(crate) use leases::{exception_mismatch, grants_leases};
pub use receipt::RuleReceipt;
pub use request_error::RequestError;
pub use rule::{INLINE, KeySpec, Rule, RuleSet, RuleSpec, SHARE_DEFAULT, Tally, TallyView};
pub(crate) use rule::{OPTION_WORDS, reserved_name};
pub use rule_cache::RuleCache;
pub use sluicegate::backend::Source;
pub use sluicegate_redis::OnStoreFailure;
pub use storage::{Keys, SharedKeys, StoreTime, StoreView};
pub use throttle::{Throttle, Throttled};

use arc_swap::ArcSwap;
use call::BatchVerb;
use inline::Inline;
use rule_cache::CachedRule;
use sluicegate::clock::Clock;
use sluicegate::{CALLS_MAX, OnFull, ReserveOptions, Span, StoreStats, Time};
use sluicegate_core::bounds::COUNT_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::{RuleFallback, Storage};
use tokio::sync::Notify;

/// Settings of an engine, fixed while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `true` if requests may carry inline limits. `CL.THROTTLE` counts as one.
    pub allow_inline: bool,
    /// The largest count of an inline `sliding-log`, which keeps 16 bytes per call.
    pub inline_log_count_max: u64,
    /// The longest period of an inline limit, and the longest TTL of its leases; `None` for no
    /// bound.
    pub inline_period_max: Option<Duration>,
    /// The longest key, in bytes.
    pub key_len_max: usize,
    /// The largest cost of one call.
    pub cost_max: u64,
    /// The most keys held in memory.
    pub max_keys: usize,
    /// The most open receipts, in memory.
    pub max_receipts: usize,
    /// The most log entries of all keys, in memory.
    pub max_log_entries: usize,
    /// The most leases held or waited for, in memory.
    pub max_leases: usize,
    /// What happens to a new key when `max_keys` keys are held and none is fully recovered.
    pub on_full: OnFull,
    /// What to answer while the shared store is unavailable. A rule may set its own.
    pub on_failure: OnStoreFailure,
    /// The percentage of a limit that this server applies under [`OnStoreFailure::Local`]. A rule
    /// may set its own.
    pub local_share: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            allow_inline: true,
            inline_log_count_max: 1_000,
            inline_period_max: None,
            key_len_max: 64 * 1024,
            cost_max: COUNT_MAX,
            max_keys: sluicegate::MAX_KEYS_DEFAULT,
            max_receipts: sluicegate::MAX_RECEIPTS_DEFAULT,
            max_log_entries: sluicegate::MAX_LOG_ENTRIES_DEFAULT,
            max_leases: sluicegate::semaphore::MAX_LEASES_DEFAULT,
            on_full: OnFull::Evict,
            on_failure: OnStoreFailure::Error,
            local_share: 100,
        }
    }
}

/// Decides calls for all protocols.
pub struct Engine {
    settings: Settings,
    clock: Arc<dyn Clock>,
    storage: Arc<Storage>,
    rules: ArcSwap<RuleSet>,
    /// How many times rules have been loaded. A connection compares this with the number in its
    /// rule cache.
    loads: AtomicU64,
    /// Notified after each load, so that lease waiters re-evaluate.
    loaded: Notify,
    inline: Inline,
}

/// Whether an engine is ready to answer. The text says why no node of the shared store can decide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It is.
    Ready,
    /// It is, as every rule has a fallback.
    Fallbacks(String),
    /// It is not: some rules have no fallback.
    NotReady(String),
}

/// A rule and a key, as a request names them.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The name of a rule, or an inline limit or list of limits. No rule name contains a space or a
    /// slash.
    pub rule: &'a str,
    /// The key.
    pub key: &'a [u8],
}

impl Settings {
    fn fallback(&self) -> RuleFallback {
        RuleFallback { on_failure: self.on_failure, local_share: self.local_share }
    }
}

impl Engine {
    /// Creates an engine without rules that keeps its keys in memory.
    ///
    /// # Errors
    /// If a setting is out of bounds, or there is not enough memory.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Engine, RequestError> {
        Engine::with_keys(Keys::InMemory, settings, clock)
    }

    /// Creates an engine without rules that keeps its keys in memory or in a shared store.
    ///
    /// # Errors
    /// Those of [`Engine::new`].
    pub fn with_keys(keys: Keys, settings: Settings, clock: Arc<dyn Clock>) -> Result<Engine, RequestError> {
        let storage = Arc::new(Storage::new(keys, &settings, &clock)?);
        storage.divide(&RuleSet::default());
        let inline = Inline::new(Arc::clone(&storage), &settings, clock.now());
        let (rules, loads, loaded) = (ArcSwap::default(), AtomicU64::new(0), Notify::new());
        Ok(Engine { settings, clock, storage, rules, loads, loaded, inline })
    }

    /// Replaces all rules with those of a configuration, or changes nothing. Keys keep what they
    /// have used.
    ///
    /// # Errors
    /// If two rules have the same name, a list of limits is invalid, or there is not enough memory.
    /// In that case the previous rules stay in effect.
    pub fn load(&self, specs: Vec<RuleSpec>) -> Result<(), RequestError> {
        let fallback = self.settings.fallback();
        let rules = RuleSet::new(&self.storage, specs, fallback, &self.rules.load(), self.now())?;
        self.storage.divide(&rules);
        self.rules.store(Arc::new(rules));
        self.loads.fetch_add(1, Ordering::Release);
        self.loaded.notify_waiters();
        Ok(())
    }

    /// The current rules.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// The numbers of decisions under inline limits, including `CL.THROTTLE`.
    pub fn inline_tally(&self) -> TallyView {
        self.inline.tally().view()
    }

    /// The numbers of leases under inline limits.
    pub fn inline_leases(&self) -> LeaseStats {
        self.inline.leases()
    }

    /// The number of calls for which there was no room for another lease; `None` in a shared store.
    pub fn no_lease_room(&self) -> Option<u64> {
        self.storage.no_lease_room()
    }

    /// The statistics of the memory store; `None` if keys live in a shared store.
    pub fn stats(&self) -> Option<StoreStats> {
        self.storage.stats()
    }

    /// Returns `true` if keys live in a shared store.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.storage.memory().is_none()
    }

    /// The statistics of the shared store; `None` if keys live in memory.
    pub fn store(&self) -> Option<StoreView> {
        self.storage.store()
    }

    /// Whether the engine is ready to answer.
    pub fn readiness(&self) -> Readiness {
        let has_fallback = |rule: &Arc<Rule>| rule.on_failure() != OnStoreFailure::Error;
        match self.storage.outage() {
            None => Readiness::Ready,
            Some(outage) if self.rules.load().iter().all(has_fallback) => Readiness::Fallbacks(outage),
            Some(outage) => Readiness::NotReady(outage),
        }
    }

    /// The time on the engine's clock. Protocols read it once per batch of calls.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Finds the rule with this name, or turns an inline limit into a rule.
    ///
    /// # Errors
    /// If there is no such rule, the limit is invalid, or inline limits are disabled.
    pub fn find(&self, rule: &str) -> Result<Arc<Rule>, RequestError> {
        let rules = self.rules.load();
        if let Some(rule) = rules.find(rule) {
            return Ok(Arc::clone(rule));
        }
        // No rule name contains a space or a slash, so text such as `5/s` is taken for a limit, and
        // its error is that of the limit grammar.
        if !rule.contains([' ', '/']) {
            return Err(rules.unknown(rule));
        }
        self.allows_inline()?;
        self.inline.limits(rule)
    }

    /// Checks a cost against `cost_max`.
    ///
    /// # Errors
    /// If the cost is larger.
    pub fn cost(&self, cost: u64) -> Result<u64, RequestError> {
        let most = self.settings.cost_max;
        if cost <= most {
            return Ok(cost);
        }
        Err(RequestError::new(format!("cost {cost} is too large; use at most {most}")))
    }

    /// Creates a call, to be decided by one of its methods.
    ///
    /// # Errors
    /// If the rule is not found (see [`Engine::find`]), or the key or the cost exceeds its bound.
    pub fn call<'a>(&self, target: Target<'a>, cost: u64) -> Result<RuleCall<'a>, RequestError> {
        self.bounded(target.key, cost)?;
        Ok(RuleCall::new(CachedRule::new(self.find(target.rule)?), target.key, cost, BatchVerb::Check))
    }

    /// Creates a check, to be decided by [`decide`]. With a `max_wait`, the call is charged now,
    /// and acts after a delay of at most `max_wait`.
    ///
    /// # Errors
    /// Those of [`Engine::call`], and if the rule grants leases.
    pub fn check<'a>(
        &self,
        cache: &mut RuleCache,
        target: Target<'a>,
        cost: u64,
        max_wait: Option<Span>,
    ) -> Result<RuleCall<'a>, RequestError> {
        self.bounded(target.key, cost)?;
        self.refresh(cache);
        let rule = cache.named(target.rule, || {
            let rule = self.find(target.rule)?;
            rule.decides_checks().map(|()| rule)
        })?;
        Ok(RuleCall::new(rule, target.key, cost, max_wait.map_or(BatchVerb::Check, BatchVerb::CheckWithin)))
    }

    /// Creates a `CL.THROTTLE` call, to be decided by [`decide`]. All `CL.THROTTLE` limits share
    /// one scope, so a key keeps its debt when its parameters change.
    ///
    /// # Errors
    /// If a parameter is out of bounds, or inline limits are disabled.
    pub fn throttle<'a>(
        &self,
        cache: &mut RuleCache,
        key: &'a [u8],
        throttle: &Throttle,
    ) -> Result<RuleCall<'a>, RequestError> {
        self.allows_inline()?;
        let cost = self.cost(throttle.quantity.unsigned_abs())?;
        self.bounded(key, cost)?;
        let verb = match throttle.quantity {
            ..0 => BatchVerb::Refund,
            0 => BatchVerb::Peek,
            1.. => BatchVerb::Check,
        };
        self.refresh(cache);
        let rule = cache.throttle(throttle.parameters(), || self.inline.throttle(throttle))?;
        Ok(RuleCall::new(rule, key, cost, verb))
    }

    /// Decides several calls, all or nothing. With options they are reserved together, under one
    /// receipt; otherwise they are checked.
    ///
    /// # Errors
    /// If there are more than [`CALLS_MAX`] calls, one of them is under `count=all`, `smooth` or
    /// `concurrency`, the options do not fit, the shared store does not answer, or, on a cluster,
    /// one is under `pacer` and the keys are in different hash slots.
    pub async fn decide_all<'c>(
        &self,
        calls: &'c [RuleCall<'_>],
        options: Option<&ReserveOptions>,
        now: Time,
    ) -> Result<DecidedAll<'c>, RequestError> {
        if calls.len() > CALLS_MAX {
            return Err(RequestError::new(format!(
                "{} calls in one request are too many; send at most {CALLS_MAX}",
                calls.len()
            )));
        }
        calls.iter().try_for_each(|call| call.rule().decides_checks())?;
        if let Some(options) = options {
            options.checked(COUNT_MAX)?;
            receipt::fit_receipt(calls)?;
        }
        let decided = check_all::decide_all(calls, options, now).await?;
        self.storage.count_fallback(decided.all.answer().source());
        Ok(decided)
    }

    /// Clears a connection's cache if rules have been loaded since it was filled.
    fn refresh(&self, cache: &mut RuleCache) {
        let load = self.loads.load(Ordering::Acquire);
        if cache.load != load {
            cache.clear(load);
        }
    }

    fn bounded(&self, key: &[u8], cost: u64) -> Result<(), RequestError> {
        let most = self.settings.key_len_max;
        if key.len() > most {
            let length = key.len();
            return Err(RequestError::new(format!(
                "the key has {length} bytes; use at most {most}, or hash it"
            )));
        }
        self.cost(cost).map(|_| ())
    }

    fn allows_inline(&self) -> Result<(), RequestError> {
        if self.settings.allow_inline {
            return Ok(());
        }
        Err(RequestError::new("inline limits are disabled (allow_inline = false); use the name of a rule"))
    }
}
