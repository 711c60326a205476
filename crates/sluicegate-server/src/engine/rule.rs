//! A rule: a name, its limits, exceptions by key, and what it has decided.

use super::RequestError;
use super::leases::{LeaseTally, LeasesView, of_another_kind, use_acquire, use_check};
use super::storage::{AnyBackend, Fallback, Storage};
use sluicegate::backend::{Answer, Backend};
use sluicegate::limit::{Spec, WindowSpec};
use sluicegate::{Key, KeyWriter, Limit, Time};
use sluicegate_redis::OnStoreFailure;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a configuration says of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleSpec {
    /// `[A-Za-z0-9_.:-]+`
    pub name: String,
    /// All must agree.
    pub limits: Vec<Limit>,
    /// Decide and count, but always allow.
    pub shadow: bool,
    /// What to answer when a shared store cannot; as for all, unless said.
    pub on_store_failure: Option<OnStoreFailure>,
    /// The share of its limits, in percent, that `local` decides with; as for all, unless said.
    pub local_share: Option<u32>,
    /// Exceptions by key.
    pub keys: Vec<(Vec<u8>, KeySpec)>,
}

/// What a rule says of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySpec {
    /// Limits of its own.
    Limits(Vec<Limit>),
    /// Always allowed.
    Unlimited,
    /// Never allowed.
    Blocked,
}

/// What limits that callers bring are called together, in metrics and headers. No rule may have this name.
pub const INLINE: &str = "inline";

/// A rule in use.
pub struct Rule {
    spec: RuleSpec,
    inline: bool,
    /// The limits of the rule, then those of its exceptions.
    limits: Vec<Limits>,
    exceptions: HashMap<Box<[u8]>, PolicyId>,
    on_failure: OnStoreFailure,
    tally: Arc<Tally>,
    leases: Arc<LeaseTally>,
    /// When a rule of this name was first loaded, for limits that count from then.
    start: Time,
}

/// Limits, and the backend that decides by them.
pub(super) struct Limits {
    pub(super) backend: AnyBackend,
    list: Box<[Limit]>,
    /// Their canonical texts.
    texts: Box<[Box<str>]>,
}

/// What applies to one key of a rule.
#[derive(Clone, Copy)]
pub(super) enum Policy<'r> {
    Limits(&'r Limits),
    Unlimited,
    Blocked,
}

/// Names the policy of a key within its rule.
#[derive(Clone, Copy)]
pub(super) enum PolicyId {
    /// The position of the limits. Those of the rule are the first.
    Limits(usize),
    Unlimited,
    Blocked,
}

/// The limits of a rule itself.
const OWN: usize = 0;

/// How often a rule has answered what: no series grows with keys or clients.
#[derive(Default, Debug)]
pub struct Tally([AtomicU64; 3]);

/// The counts at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TallyView {
    /// Calls that were allowed because the limits did.
    pub allowed: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that a shadow rule allowed though the limits did not.
    pub shadow_denied: u64,
}

/// What the state of a key belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// A rule of this name. A rule whose limits change goes on with what its keys have used.
    Rule(String),
    /// An inline limit or list of limits, by its canonical text.
    Inline(String),
    /// `CL.THROTTLE`, whatever numbers it comes with.
    Throttle,
}

impl Key for Scope {
    fn write(&self, to: &mut KeyWriter<'_>) {
        match self {
            Scope::Rule(name) => ("rule", name.as_str()).write(to),
            Scope::Inline(limit) => ("inline", limit.as_str()).write(to),
            Scope::Throttle => "throttle".write(to),
        }
    }
}

impl Scope {
    /// As it stands in the names of keys of a shared store, and in receipts. No two have the same text.
    pub(super) fn text(&self) -> String {
        match self {
            Scope::Rule(name) => format!("r/{name}"),
            Scope::Inline(limit) => format!("i/{limit}"),
            Scope::Throttle => "throttle".to_owned(),
        }
    }

    /// The rule or the limit that a text of [`Scope::text`] is of, as callers name it. Nobody can name `CL.THROTTLE`'s.
    pub(super) fn named_in(text: &str) -> Option<&str> {
        text.strip_prefix("r/").or_else(|| text.strip_prefix("i/"))
    }
}

impl Limits {
    /// Limits for the keys of a scope, or for only one of them.
    fn new(
        storage: &Storage,
        scope: (&Scope, Option<&[u8]>),
        limits: &[Limit],
        start: Time,
        fallback: Fallback,
    ) -> Result<Limits, RequestError> {
        let backend = storage.backend(scope, limits, start, fallback)?;
        let texts = limits.iter().map(|limit| limit.to_string().into()).collect();
        Ok(Limits { backend, list: limits.into(), texts })
    }

    /// What decides checks, and the time of a call that arrived at `now`.
    pub(super) fn checks(&self, now: Time) -> Result<(&dyn Backend, Option<Time>), RequestError> {
        Ok((self.backend.checks()?, self.backend.at(now)))
    }

    /// Decides a check or a lease without taking anything.
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

    /// The canonical text of the limit at a position.
    pub(super) fn text(&self, place: usize) -> Option<&str> {
        self.texts.get(place).map(|text| &**text)
    }

    /// Returns `true` if the limit at a position starts after `now`.
    pub(super) fn starts_after(&self, place: usize, now: Time) -> bool {
        let spec = self.list.get(place).map(Limit::spec);
        matches!(spec, Some(Spec::FixedWindow { windows: WindowSpec::Aligned { start, .. }, .. }) if *start > now)
    }
}

impl Rule {
    pub(super) fn new(
        storage: &Storage,
        spec: RuleSpec,
        fallback: Fallback,
        before: Option<&Rule>,
        now: Time,
    ) -> Result<Rule, RequestError> {
        let named = |mistake: RequestError| mistake.about(&format!("rule {}", spec.name));
        let start = before.map_or(now, |before| before.start);
        let scope = Scope::Rule(spec.name.clone());
        let make = |only_for, limits: &[Limit]| {
            Limits::new(storage, (&scope, only_for), limits, start, fallback).map_err(named)
        };
        let mut limits = vec![make(None, &spec.limits)?];
        let mut exceptions = HashMap::with_capacity(spec.keys.len());
        for (key, says) in &spec.keys {
            let policy = match says {
                KeySpec::Limits(own) => {
                    if let Some(mistake) = of_another_kind(&spec.limits, own) {
                        return Err(named(mistake));
                    }
                    limits.push(make(Some(key), own)?);
                    PolicyId::Limits(limits.len() - 1)
                }
                KeySpec::Unlimited => PolicyId::Unlimited,
                KeySpec::Blocked => PolicyId::Blocked,
            };
            exceptions.insert(key.as_slice().into(), policy);
        }
        let tally = before.map_or_else(Arc::default, |before| Arc::clone(&before.tally));
        let leases = before.map_or_else(Arc::default, |before| Arc::clone(&before.leases));
        let on_failure = fallback.on_failure;
        Ok(Rule { spec, inline: false, limits, exceptions, on_failure, tally, leases, start })
    }

    /// An inline limit or list of limits. All of them share a tally and a label.
    pub(super) fn inline(
        storage: &Storage,
        scope: &Scope,
        list: Vec<Limit>,
        fallback: Fallback,
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

    /// The rule's name; `inline` for a limit that a caller brought.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Whether a caller brought it.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// What the configuration says of it.
    pub fn spec(&self) -> &RuleSpec {
        &self.spec
    }

    /// What it has answered so far.
    pub fn tally(&self) -> TallyView {
        self.tally.view()
    }

    /// Returns `true` if it grants leases, and decides no checks.
    pub fn grants_leases(&self) -> bool {
        matches!(self.limits[OWN].backend, AnyBackend::Leases(_))
    }

    /// What has become of its leases, if it grants any.
    pub fn leases(&self) -> Option<LeasesView> {
        let leases = self.limits[OWN].backend.leases().ok()?;
        Some(self.leases.view(leases.stats.as_ref().map(sluicegate::semaphore::LeaseScope::stats)))
    }

    pub(super) fn lease_tally(&self) -> &Arc<LeaseTally> {
        &self.leases
    }

    /// An error if it grants leases: its keys without limits cannot be checked either.
    pub(super) fn decides_checks(&self) -> Result<(), RequestError> {
        if self.grants_leases() { Err(use_acquire()) } else { Ok(()) }
    }

    /// An error if it grants none: its keys without limits cannot have leases either.
    pub(super) fn grants_only_leases(&self) -> Result<(), RequestError> {
        if self.grants_leases() { Ok(()) } else { Err(use_check()) }
    }

    /// Which policy applies to a key.
    #[inline]
    pub(super) fn policy_id(&self, key: &[u8]) -> PolicyId {
        // Most rules have no exceptions, and then there is nothing to hash.
        if self.exceptions.is_empty() {
            return PolicyId::Limits(OWN);
        }
        self.exceptions.get(key).copied().unwrap_or(PolicyId::Limits(OWN))
    }

    /// The policy of that id.
    #[inline]
    pub(super) fn policy(&self, id: PolicyId) -> Policy<'_> {
        match id {
            PolicyId::Limits(place) => Policy::Limits(&self.limits[place]),
            PolicyId::Unlimited => Policy::Unlimited,
            PolicyId::Blocked => Policy::Blocked,
        }
    }

    /// The limits of a policy. One without has those of the rule: what its key has used belongs to the rule, whichever
    /// limits charged it.
    pub(super) fn limits_of(&self, id: PolicyId) -> &Limits {
        match id {
            PolicyId::Limits(place) => &self.limits[place],
            PolicyId::Unlimited | PolicyId::Blocked => &self.limits[OWN],
        }
    }

    /// What it answers when a shared store cannot.
    pub fn on_failure(&self) -> OnStoreFailure {
        self.on_failure
    }

    /// Counts a decision.
    pub(super) fn count(&self, denied: bool) {
        self.add(Tally::place(denied, self.spec.shadow), 1);
    }

    /// Adds to a counter of the tally.
    pub(super) fn add(&self, place: usize, counted: u64) {
        if let Some(counter) = self.tally.0.get(place) {
            counter.fetch_add(counted, Ordering::Relaxed);
        }
    }
}

impl Tally {
    /// Where a decision is counted.
    #[inline]
    pub(super) fn place(denied: bool, shadow: bool) -> usize {
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

/// The rules of a configuration, in its order.
#[derive(Default)]
pub struct RuleSet {
    in_order: Vec<Arc<Rule>>,
    by_name: HashMap<Box<str>, Arc<Rule>>,
}

impl RuleSet {
    /// The rules of a new configuration. What has not changed stays as it is; what has keeps its tally.
    pub(super) fn new(
        storage: &Storage,
        specs: Vec<RuleSpec>,
        default: Fallback,
        before: &RuleSet,
        now: Time,
    ) -> Result<RuleSet, RequestError> {
        let mut rules = RuleSet::default();
        for spec in specs {
            if spec.name == INLINE {
                return Err(RequestError::new(format!(
                    "a rule may not be called {INLINE:?}, as metrics and headers call limits so that callers bring; give it another name"
                )));
            }
            let old = before.find(&spec.name);
            let rule = match old {
                Some(old) if *old.spec() == spec => Arc::clone(old),
                _ => {
                    let fallback = default.unless(spec.on_store_failure, spec.local_share);
                    Arc::new(Rule::new(storage, spec, fallback, old.map(Arc::as_ref), now)?)
                }
            };
            let name = rule.name().into();
            if rules.by_name.insert(name, Arc::clone(&rule)).is_some() {
                return Err(RequestError::new(format!(
                    "two rules are called {:?}; give one another name",
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
}
