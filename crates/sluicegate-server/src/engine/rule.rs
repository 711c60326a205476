//! Rules: a name, limits, exceptions per key, and counters.

use super::RequestError;
use super::leases::{LeaseStats, LeaseTally, exception_mismatch, use_acquire, use_check};
use super::storage::{AnyBackend, RuleFallback, Storage};
use sluicegate::backend::{Answer, Backend};
use sluicegate::internal::grammar::{self, quoted};
use sluicegate::limit::{Spec, WindowSpec};
use sluicegate::semaphore::LeaseScope;
use sluicegate::{Key, KeyWriter, Limit, Time};
use sluicegate_redis::OnStoreFailure;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A rule as the configuration defines it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleSpec {
    /// `[A-Za-z0-9_.:-]+`
    pub name: String,
    /// The limits, all of which must allow a call.
    pub limits: Vec<Limit>,
    /// Shadow mode (a dry run): decide and count, but always allow.
    pub shadow: bool,
    /// What to answer while the shared store is unavailable; default: `[store] on_failure`.
    pub on_store_failure: Option<OnStoreFailure>,
    /// The percentage of its limits applied under `local`; default: `[store] local_share`.
    pub local_share: Option<u32>,
    /// The rule's weight when memory is divided between rules; [`SHARE_DEFAULT`] by default.
    pub share: u32,
    /// Exceptions per key.
    pub keys: Vec<(Vec<u8>, KeySpec)>,
}

/// An exception: what one key has instead of the rule's limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySpec {
    /// Limits of its own.
    Limits(Vec<Limit>),
    /// Always allowed.
    Unlimited,
    /// Always denied.
    Blocked,
}

/// The name of all inline limits in metrics and headers. No rule may have it.
pub const INLINE: &str = "inline";
/// The words that begin the options of a RESP command where a rule could stand. No rule may have
/// them as its name, in any case.
pub(crate) const OPTION_WORDS: [&str; 2] = ["MAXWAIT", "TTL"];
/// The weight of a rule that sets none.
pub const SHARE_DEFAULT: u32 = 1;
/// A misspelt name is compared with this many rules: an invalid request must stay cheap.
const SUGGESTIONS_FROM_MAX: usize = 1_000;

/// A rule in use.
pub struct Rule {
    spec: RuleSpec,
    inline: bool,
    /// The limits of the rule, then those of its exceptions.
    limits: Vec<Limits>,
    exceptions: HashMap<Box<[u8]>, KeyLimitsId>,
    on_failure: OnStoreFailure,
    tally: Arc<Tally>,
    leases: Arc<LeaseTally>,
    /// When a rule of this name was first loaded: the start of limits without their own.
    start: Time,
}

/// A list of limits and the backend that decides under them.
pub(super) struct Limits {
    pub(super) backend: AnyBackend,
    list: Box<[Limit]>,
    /// The canonical text of each limit.
    texts: Box<[Box<str>]>,
}

/// What applies to one key of a rule.
#[derive(Clone, Copy)]
pub(super) enum KeyLimits<'r> {
    Limits(&'r Limits),
    Unlimited,
    Blocked,
}

/// Identifies a [`KeyLimits`] within its rule.
#[derive(Clone, Copy)]
pub(super) enum KeyLimitsId {
    /// An index into the rule's limits; [`OWN`] is the rule itself, the others are exceptions.
    Limits(usize),
    Unlimited,
    Blocked,
}

/// The index of a rule's own limits.
const OWN: usize = 0;

/// Counts the decisions of a rule. There is no counter per key or client.
#[derive(Default, Debug)]
pub struct Tally([AtomicU64; 3]);

/// The counts of a [`Tally`] at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TallyView {
    /// Calls that the limits allowed.
    pub allowed: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that the limits denied and a shadow rule allowed.
    pub shadow_denied: u64,
}

/// What a key's state belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RuleScope {
    /// A rule, by name: a rule whose limits change keeps what its keys have used.
    Rule(String),
    /// An inline limit or list of limits, by its canonical text.
    Inline(String),
    /// `CL.THROTTLE`, whatever its parameters.
    Throttle,
}

impl Key for RuleScope {
    fn write(&self, to: &mut KeyWriter<'_>) {
        match self {
            RuleScope::Rule(name) => ("rule", name.as_str()).write(to),
            RuleScope::Inline(limit) => ("inline", limit.as_str()).write(to),
            RuleScope::Throttle => "throttle".write(to),
        }
    }
}

impl RuleScope {
    /// The scope's unique text in the key names of a shared store and in receipts.
    pub(super) fn text(&self) -> String {
        match self {
            RuleScope::Rule(name) => format!("r/{name}"),
            RuleScope::Inline(limit) => format!("i/{limit}"),
            RuleScope::Throttle => "throttle".to_owned(),
        }
    }

    /// The rule name or inline limit in a text made by [`RuleScope::text`]. `CL.THROTTLE` has none.
    pub(super) fn name_in(text: &str) -> Option<&str> {
        text.strip_prefix("r/").or_else(|| text.strip_prefix("i/"))
    }
}

impl Limits {
    /// Builds limits for all keys of a scope, or for one exception.
    fn new(
        storage: &Storage,
        scope: (&RuleScope, Option<&[u8]>),
        limits: &[Limit],
        start: Time,
        fallback: RuleFallback,
    ) -> Result<Limits, RequestError> {
        let backend = storage.backend(scope, limits, start, fallback)?;
        let texts = limits.iter().map(|limit| limit.to_string().into()).collect();
        Ok(Limits { backend, list: limits.into(), texts })
    }

    /// The backend that decides checks, and the time of a call that arrived at `now`.
    pub(super) fn checks(&self, now: Time) -> Result<(&dyn Backend, Option<Time>), RequestError> {
        Ok((self.backend.checks()?, self.backend.at(now)))
    }

    /// Decides a check or an acquire without charging it.
    pub(super) async fn peek(&self, key: &[u8], cost: u64, now: Time) -> Result<Answer, RequestError> {
        let at = self.backend.at(now);
        Ok(match &self.backend {
            AnyBackend::Leases(leases) => leases.backend.peek(&key, cost, at).await?,
            backend => backend.checks()?.peek(&key, cost, at).await?,
        })
    }

    pub(super) fn list(&self) -> &[Limit] {
        &self.list
    }

    /// The canonical text of the limit at an index.
    pub(super) fn text(&self, index: usize) -> Option<&str> {
        self.texts.get(index).map(|text| &**text)
    }

    /// Returns `true` if the limit at an index starts after `now`.
    pub(super) fn starts_after(&self, index: usize, now: Time) -> bool {
        let spec = self.list.get(index).map(Limit::spec);
        matches!(spec, Some(Spec::FixedWindow { windows: WindowSpec::Aligned { start, .. }, .. }) if *start > now)
    }
}

impl Rule {
    pub(super) fn new(
        storage: &Storage,
        spec: RuleSpec,
        fallback: RuleFallback,
        before: Option<&Rule>,
        now: Time,
    ) -> Result<Rule, RequestError> {
        let named = |error: RequestError| error.in_context(&format!("rule {}", spec.name));
        let start = before.map_or(now, |before| before.start);
        let scope = RuleScope::Rule(spec.name.clone());
        let make = |only_for, limits: &[Limit]| {
            Limits::new(storage, (&scope, only_for), limits, start, fallback).map_err(named)
        };
        let mut limits = vec![make(None, &spec.limits)?];
        let mut exceptions = HashMap::with_capacity(spec.keys.len());
        for (key, exception) in &spec.keys {
            let id = match exception {
                KeySpec::Limits(own) => {
                    if let Some(error) = exception_mismatch(&spec.limits, own) {
                        return Err(named(error));
                    }
                    limits.push(make(Some(key), own)?);
                    KeyLimitsId::Limits(limits.len() - 1)
                }
                KeySpec::Unlimited => KeyLimitsId::Unlimited,
                KeySpec::Blocked => KeyLimitsId::Blocked,
            };
            exceptions.insert(key.as_slice().into(), id);
        }
        let tally = before.map_or_else(Arc::default, |before| Arc::clone(&before.tally));
        let leases = before.map_or_else(Arc::default, |before| Arc::clone(&before.leases));
        let on_failure = fallback.on_failure;
        Ok(Rule { spec, inline: false, limits, exceptions, on_failure, tally, leases, start })
    }

    /// Builds the rule of an inline limit or list. All such rules share a tally and a name.
    pub(super) fn inline(
        storage: &Storage,
        scope: &RuleScope,
        list: Vec<Limit>,
        fallback: RuleFallback,
        (tally, leases): (&Arc<Tally>, &Arc<LeaseTally>),
        start: Time,
    ) -> Result<Rule, RequestError> {
        let limits = Limits::new(storage, (scope, None), &list, start, fallback)?;
        let spec = RuleSpec {
            name: String::from(INLINE),
            limits: list,
            shadow: false,
            on_store_failure: None,
            local_share: None,
            share: SHARE_DEFAULT,
            keys: Vec::new(),
        };
        Ok(Rule {
            spec,
            inline: true,
            limits: vec![limits],
            exceptions: HashMap::new(),
            on_failure: fallback.on_failure,
            tally: Arc::clone(tally),
            leases: Arc::clone(leases),
            start,
        })
    }

    /// The rule's name; [`INLINE`] for an inline limit.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// How requests name the rule: its name, or the canonical text of an inline limit or list.
    pub fn text(&self) -> Cow<'_, str> {
        if self.inline {
            return Cow::Owned(Limit::list_text(&self.spec.limits));
        }
        Cow::Borrowed(&self.spec.name)
    }

    /// Returns `true` if this is an inline limit.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// The rule as the configuration defines it.
    pub fn spec(&self) -> &RuleSpec {
        &self.spec
    }

    /// The decisions so far.
    pub fn tally(&self) -> TallyView {
        self.tally.view()
    }

    /// Returns `true` if the rule grants leases instead of deciding checks.
    pub fn grants_leases(&self) -> bool {
        matches!(self.limits[OWN].backend, AnyBackend::Leases(_))
    }

    /// Counts the rule's leases; `None` if it decides checks.
    pub fn leases(&self) -> Option<LeaseStats> {
        let leases = self.limits[OWN].backend.leases().ok()?;
        Some(self.leases.view(leases.scope.as_ref().map(LeaseScope::stats)))
    }

    /// Gives the rule its share of the keys in memory.
    pub(super) fn set_share(&self) {
        if let AnyBackend::Memory(limiter) = &self.limits[OWN].backend {
            limiter.set_share(self.spec.share);
        }
    }

    /// The scope of the rule's leases in memory, if it grants any.
    pub(super) fn lease_scope(&self) -> Option<&LeaseScope> {
        self.limits[OWN].backend.leases().ok()?.scope.as_ref()
    }

    pub(super) fn lease_tally(&self) -> &Arc<LeaseTally> {
        &self.leases
    }

    /// Returns an error if the rule grants leases. That holds for its unlimited and blocked keys
    /// too: clients need not know which keys are exceptions.
    pub(super) fn decides_checks(&self) -> Result<(), RequestError> {
        if self.grants_leases() { Err(use_acquire()) } else { Ok(()) }
    }

    /// Returns an error if the rule decides checks, also for its unlimited and blocked keys.
    pub(super) fn grants_only_leases(&self) -> Result<(), RequestError> {
        if self.grants_leases() { Ok(()) } else { Err(use_check()) }
    }

    /// The id of what applies to a key.
    #[inline]
    pub(super) fn key_limits_id(&self, key: &[u8]) -> KeyLimitsId {
        // Most rules have no exceptions. Then the key need not be hashed.
        if self.exceptions.is_empty() {
            return KeyLimitsId::Limits(OWN);
        }
        self.exceptions.get(key).copied().unwrap_or(KeyLimitsId::Limits(OWN))
    }

    /// What applies to the keys of an id.
    #[inline]
    pub(super) fn key_limits(&self, id: KeyLimitsId) -> KeyLimits<'_> {
        match id {
            KeyLimitsId::Limits(index) => KeyLimits::Limits(&self.limits[index]),
            KeyLimitsId::Unlimited => KeyLimits::Unlimited,
            KeyLimitsId::Blocked => KeyLimits::Blocked,
        }
    }

    /// The limits that hold the state of a key. For an unlimited or blocked key these are the
    /// rule's own: state belongs to the rule, whichever limits charged it.
    pub(super) fn limits_of(&self, id: KeyLimitsId) -> &Limits {
        match id {
            KeyLimitsId::Limits(index) => &self.limits[index],
            KeyLimitsId::Unlimited | KeyLimitsId::Blocked => &self.limits[OWN],
        }
    }

    /// What the rule answers while the shared store is unavailable.
    pub fn on_failure(&self) -> OnStoreFailure {
        self.on_failure
    }

    /// Counts a decision.
    pub(super) fn count(&self, denied: bool) {
        self.add(Tally::index(denied, self.spec.shadow), 1);
    }

    /// Adds decisions to a counter of the tally.
    pub(super) fn add(&self, index: usize, counted: u64) {
        if let Some(counter) = self.tally.0.get(index) {
            counter.fetch_add(counted, Ordering::Relaxed);
        }
    }
}

impl Tally {
    /// The index of the counter of a decision.
    #[inline]
    pub(super) fn index(denied: bool, shadow: bool) -> usize {
        match (denied, shadow) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        }
    }

    /// The counts now.
    pub fn view(&self) -> TallyView {
        let [allowed, denied, shadow_denied] =
            self.0.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        TallyView { allowed, denied, shadow_denied }
    }
}

/// Returns why no rule may have this name, if so.
pub(crate) fn reserved_name(name: &str) -> Option<String> {
    let why = if name == INLINE {
        "metrics and headers use it for inline limits"
    } else if OPTION_WORDS.iter().any(|word| word.eq_ignore_ascii_case(name)) {
        "it begins the options of a command"
    } else {
        return None;
    };
    Some(format!("rule name {name:?} is reserved: {why}"))
}

/// The rules of a configuration.
#[derive(Default)]
pub struct RuleSet {
    in_order: Vec<Arc<Rule>>,
    by_name: HashMap<Box<str>, Arc<Rule>>,
}

impl RuleSet {
    /// Builds the rules of a new configuration. An unchanged rule is reused; a changed one keeps
    /// its tally and start.
    pub(super) fn new(
        storage: &Storage,
        specs: Vec<RuleSpec>,
        default: RuleFallback,
        before: &RuleSet,
        now: Time,
    ) -> Result<RuleSet, RequestError> {
        let mut rules = RuleSet::default();
        for spec in specs {
            if let Some(problem) = reserved_name(&spec.name) {
                return Err(RequestError::new(format!("{problem}; choose another")));
            }
            let old = before.find(&spec.name);
            let rule = match old {
                Some(old) if *old.spec() == spec => Arc::clone(old),
                _ => {
                    let fallback = default.overridden_by(spec.on_store_failure, spec.local_share);
                    Arc::new(Rule::new(storage, spec, fallback, old.map(Arc::as_ref), now)?)
                }
            };
            let name = rule.name().into();
            if rules.by_name.insert(name, Arc::clone(&rule)).is_some() {
                return Err(RequestError::new(format!(
                    "two rules are named {:?}; rename one of them",
                    rule.name()
                )));
            }
            rules.in_order.push(rule);
        }
        Ok(rules)
    }

    /// The rule of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Rule>> {
        self.by_name.get(name)
    }

    /// All rules, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.in_order.iter()
    }

    /// The error for a name that no rule has, with a suggestion if the name of a rule is similar.
    pub(super) fn unknown(&self, name: &str) -> RequestError {
        let names = self.in_order.iter().take(SUGGESTIONS_FROM_MAX).map(|rule| rule.name());
        let next_step = match grammar::nearest(name, names) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None if self.in_order.is_empty() => {
                "there are no rules; write a limit such as \"sliding-log 5/60s\"".to_owned()
            }
            None => {
                "RL.RULES and GET /v1/rules list the rules, and a limit is written like \"sliding-log 5/60s\""
                    .to_owned()
            }
        };
        RequestError::new(format!("no rule is called {}; {next_step}", quoted(name)))
    }
}
