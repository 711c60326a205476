//! The one way in: every protocol asks here, and nothing is decided elsewhere.
//!
//! ```text
//! rule and key as text ──▶ Engine::call ──▶ Call ──▶ decide, or a verb of the call ──▶ Backend ──▶ Answer
//!                          rule, bounds              policy of the key                            │
//! protocol ◀── Decided: the answer under its rule ◀──────────────────────────────────────────────┘
//! ```
//!
//! `rule.rs` is a rule and its exceptions, `inline.rs` the limits that come with a request, `rule_cache.rs` the rules that a
//! connection uses, `call.rs` a call and its verbs, `decide.rs` the path of every check, `check_all.rs` several calls all or
//! nothing, `leases.rs` the verbs of `concurrency` limits, `decided.rs` the answer, `request_error.rs` why there is none.
//! `storage.rs` is where keys live, in memory or in a shared store: it builds the backends.

mod call;
mod check_all;
mod decide;
mod decided;
mod inline;
mod leases;
mod memory_leases;
mod request_error;
mod rule;
mod rule_cache;
mod storage;
mod throttle;

pub use call::Call;
pub use decide::decide;
pub use decided::{Decided, Reason};
pub use leases::{HeldView, Leased, LeasesView, UndeliveredLease};
pub(crate) use leases::{grants_leases, of_another_kind};
pub use request_error::RequestError;
pub use rule::{INLINE, KeySpec, Rule, RuleSet, RuleSpec, Tally, TallyView};
pub use rule_cache::RuleCache;
pub use sluicegate::backend::Source;
pub use sluicegate_redis::OnStoreFailure;
pub use storage::{Keys, SharedKeys, StoreTime, StoreView};
pub use throttle::{Throttle, Throttled};

use arc_swap::ArcSwap;
use call::Verb;
use inline::Inline;
use rule::Scope;
use rule_cache::CachedRule;
use sluicegate::backend::Backend;
use sluicegate::clock::Clock;
use sluicegate::{BadReceipt, CALLS_MAX, Receipt, Span, Time};
use sluicegate::{OnFull, StoreStats};
use sluicegate_redis::StoredReceipt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::{AnyBackend, Fallback, Storage};
use tokio::sync::Notify;

/// What the engine is told when it is made. The bounds that callers can cross have names and defaults here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Whether callers may bring limits of their own, `CL.THROTTLE` included.
    pub allow_inline: bool,
    /// The longest key, in bytes.
    pub key_len_max: usize,
    /// The largest cost of one call.
    pub cost_max: u64,
    /// How many keys are held in memory at the most.
    pub max_keys: usize,
    /// How many receipts of reservations may be open at once.
    pub max_receipts: usize,
    /// How many leases of `concurrency` limits may be out at once, in memory.
    pub max_leases: usize,
    /// What happens to a new key when that many have not recovered.
    pub on_full: OnFull,
    /// What to answer when a shared store cannot, unless a rule says otherwise.
    pub on_failure: OnStoreFailure,
    /// The share of a limit, in percent, that [`OnStoreFailure::Local`] decides with, unless a rule says otherwise.
    pub local_share: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            allow_inline: true,
            key_len_max: 64 * 1024,
            cost_max: u64::from(sluicegate_core::bounds::COUNT_MAX),
            max_keys: sluicegate::MAX_KEYS_DEFAULT,
            max_receipts: sluicegate::MAX_RECEIPTS_DEFAULT,
            max_leases: sluicegate::semaphore::MAX_LEASES_DEFAULT,
            on_full: OnFull::Evict,
            on_failure: OnStoreFailure::Error,
            local_share: 100,
        }
    }
}

/// Decides for all protocols.
pub struct Engine {
    settings: Settings,
    clock: Arc<dyn Clock>,
    storage: Arc<Storage>,
    rules: ArcSwap<RuleSet>,
    /// How often rules were loaded.
    loads: AtomicU64,
    /// Notified after each load, so that lease waiters follow the new rules.
    loaded: Notify,
    inline: Inline,
}

/// A rule and a key, as a request names them.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The name of a rule, or a limit in the grammar (which has a space).
    pub rule: &'a str,
    /// The key.
    pub key: &'a [u8],
}

impl Settings {
    fn fallback(&self) -> Fallback {
        Fallback { on_failure: self.on_failure, local_share: self.local_share }
    }
}

impl Engine {
    /// An engine without rules, whose keys live in memory.
    ///
    /// # Errors
    /// When a setting is out of bounds, or there is not enough memory.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Engine, RequestError> {
        Engine::keeping(Keys::InMemory, settings, clock)
    }

    /// An engine without rules, whose keys live there.
    ///
    /// # Errors
    /// As [`Engine::new`].
    pub fn keeping(keys: Keys, settings: Settings, clock: Arc<dyn Clock>) -> Result<Engine, RequestError> {
        let storage = Arc::new(Storage::new(keys, &settings, &clock)?);
        let inline = Inline::new(Arc::clone(&storage), settings.fallback(), clock.now());
        let (rules, loads, loaded) = (ArcSwap::default(), AtomicU64::new(0), Notify::new());
        Ok(Engine { settings, clock, storage, rules, loads, loaded, inline })
    }

    /// Loads the rules of a configuration, all or none. Keys keep what they have used.
    ///
    /// # Errors
    /// When two have one name, limits do not go together, or there is no memory. Then the rules before stay.
    pub fn load(&self, specs: Vec<RuleSpec>) -> Result<(), RequestError> {
        let fallback = self.settings.fallback();
        let rules = RuleSet::new(&self.storage, specs, fallback, &self.rules.load(), self.now())?;
        self.rules.store(Arc::new(rules));
        self.loads.fetch_add(1, Ordering::Release);
        self.loaded.notify_waiters();
        Ok(())
    }

    /// The current rules.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// The decisions of inline limits, `CL.THROTTLE` included.
    pub fn inline_tally(&self) -> TallyView {
        self.inline.tally().view()
    }

    /// What has become of leases under inline limits.
    pub fn inline_leases(&self) -> LeasesView {
        self.inline.leases()
    }

    /// What the store in memory holds and has evicted; `None` if keys live elsewhere.
    pub fn stats(&self) -> Option<StoreStats> {
        self.storage.stats()
    }

    /// Returns `true` if keys live in a store that several servers share.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.storage.memory().is_none()
    }

    /// What the shared store has answered; `None` if keys live in memory.
    pub fn store(&self) -> Option<StoreView> {
        self.storage.store()
    }

    /// Returns `true` if every rule can be answered now: by the store, or without it.
    pub fn is_ready(&self) -> bool {
        let answers_alone = |rule: &Arc<Rule>| rule.on_failure() != OnStoreFailure::Error;
        self.storage.is_partly_up() || self.rules.load().iter().all(answers_alone)
    }

    /// The time on the engine's clock. It is read once per batch of calls.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The rule of this name, or the inline limit as a rule.
    ///
    /// # Errors
    /// When there is no such rule, the limit is wrong, or inline limits are not allowed.
    pub fn find(&self, rule: &str) -> Result<Arc<Rule>, RequestError> {
        if let Some(rule) = self.rules.load().find(rule) {
            return Ok(Arc::clone(rule));
        }
        // No rule has a space or a slash in its name: `5/s` was meant as a limit, and its error says so.
        if !rule.contains([' ', '/']) {
            return Err(RequestError::new(format!(
                "no rule is called {:?}; RL.RULES and GET /v1/rules list them, and a limit is written like \"sliding-log 5/60s\"",
                shortened(rule)
            )));
        }
        self.allows_inline()?;
        self.inline.limits(rule)
    }

    /// A cost within bounds.
    ///
    /// # Errors
    /// When it is above what one call may cost.
    pub fn cost(&self, cost: u64) -> Result<u64, RequestError> {
        let most = self.settings.cost_max;
        if cost <= most {
            return Ok(cost);
        }
        Err(RequestError::new(format!("the cost {cost} is too large; use at most {most}")))
    }

    /// A call, to use one of its verbs.
    ///
    /// # Errors
    /// When there is no such rule, or a bound is crossed.
    pub fn call<'a>(&self, target: Target<'a>, cost: u64) -> Result<Call<'a>, RequestError> {
        self.bounded(target.key, cost)?;
        Ok(Call::new(CachedRule::new(self.find(target.rule)?), target.key, cost, Verb::Check))
    }

    /// A check, for [`decide`]. With a `max_wait` the call is charged now and told its delay, if that is not longer.
    ///
    /// # Errors
    /// As [`Engine::call`], and when the rule grants leases.
    pub fn check<'a>(
        &self,
        cache: &mut RuleCache,
        target: Target<'a>,
        cost: u64,
        max_wait: Option<Span>,
    ) -> Result<Call<'a>, RequestError> {
        self.bounded(target.key, cost)?;
        self.refresh(cache);
        let rule = cache.named(target.rule, || {
            let rule = self.find(target.rule)?;
            rule.decides_checks().map(|()| rule)
        })?;
        Ok(Call::new(rule, target.key, cost, max_wait.map_or(Verb::Check, Verb::CheckWithin)))
    }

    /// redis-cell's command, for [`decide`]. Its limits have one scope: new parameters reinterpret a key's debt.
    ///
    /// # Errors
    /// When a number is out of bounds, or inline limits are not allowed.
    pub fn throttle<'a>(
        &self,
        cache: &mut RuleCache,
        key: &'a [u8],
        throttle: &Throttle,
    ) -> Result<Call<'a>, RequestError> {
        self.allows_inline()?;
        let cost = self.cost(throttle.quantity.unsigned_abs())?;
        self.bounded(key, cost)?;
        let verb = match throttle.quantity {
            ..0 => Verb::Refund,
            0 => Verb::Peek,
            1.. => Verb::Check,
        };
        self.refresh(cache);
        let rule = cache.throttle(throttle.numbers(), || self.inline.throttle(throttle))?;
        Ok(Call::new(rule, key, cost, verb))
    }

    /// Decides calls all or nothing. Returns the answer for all, and for each.
    ///
    /// # Errors
    /// With too many calls, with one under `count=all` or `concurrency`, or when a shared store gives no answer; on a
    /// cluster when keys are in different hash slots.
    pub async fn check_all<'c>(
        &self,
        calls: &'c [Call<'_>],
        now: Time,
    ) -> Result<(Decided<'c>, Vec<Decided<'c>>), RequestError> {
        if calls.len() > CALLS_MAX {
            return Err(RequestError::new(format!(
                "{} calls are too many; use at most {CALLS_MAX}",
                calls.len()
            )));
        }
        calls.iter().try_for_each(|call| call.rule().decides_checks())?;
        let decided = check_all::check_all(calls, now).await?;
        self.storage.count_fallback(decided.0.answer().source());
        Ok(decided)
    }

    /// Returns what still counts of a reservation. `true` if that was anything.
    ///
    /// # Errors
    /// When the text is not a receipt, or a shared store gives no answer.
    pub async fn cancel(&self, receipt: &str, now: Time) -> Result<bool, RequestError> {
        self.close(receipt, None, now).await
    }

    /// Changes the charge of a reservation to what was used. `false` if the receipt is used or unknown.
    ///
    /// # Errors
    /// As [`Engine::cancel`].
    pub async fn settle(&self, receipt: &str, used: u64, now: Time) -> Result<bool, RequestError> {
        self.close(receipt, Some(used), now).await
    }

    async fn close(&self, receipt: &str, used: Option<u64>, now: Time) -> Result<bool, RequestError> {
        let receipt: Receipt = receipt.parse()?;
        if let Some(store) = self.storage.memory() {
            if !receipt.is_of_memory() {
                return Err(BadReceipt.into());
            }
            return Ok(match used {
                None => store.cancel_at(&receipt, now),
                Some(used) => store.settle_at(&receipt, used, now),
            });
        }
        // The rule or inline limit that gave it, perhaps on another server. If it is gone, its charge no longer counts.
        let stored = StoredReceipt::read(&receipt)?;
        let rule = Scope::named_in(stored.scope()).and_then(|name| self.find(name).ok());
        let Some(rule) = rule else { return Ok(false) };
        let policy = sluicegate::internal::raw_key(stored.key()).map(|key| rule.policy_id(key));
        let Some(AnyBackend::Redis { limiter, time }) = policy.map(|policy| &rule.limits_of(policy).backend)
        else {
            return Ok(false);
        };
        let at = time.at(now);
        Ok(match used {
            None => Backend::cancel(limiter, &receipt, at).await?,
            Some(used) => Backend::settle(limiter, &receipt, used, at).await?,
        })
    }

    /// Empties a connection's cache if rules have been loaded since it was filled.
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
                "the key has {length} bytes; use at most {most}, or a hash of it"
            )));
        }
        self.cost(cost).map(|_| ())
    }

    fn allows_inline(&self) -> Result<(), RequestError> {
        if self.settings.allow_inline {
            return Ok(());
        }
        Err(RequestError::new(
            "limits may not be brought along here (allow_inline = false); use the name of a rule",
        ))
    }
}

/// A name that a caller sent, short enough for one line.
fn shortened(name: &str) -> &str {
    const SHOWN_MAX: usize = 64;
    let end = name.char_indices().map(|(at, _)| at).take_while(|at| *at <= SHOWN_MAX).last();
    if name.len() <= SHOWN_MAX { name } else { &name[..end.unwrap_or(0)] }
}
