//! A rule: a name, its limits, exceptions by key, and what it has decided.

use super::Mistake;
use super::home::{Home, WhenAway};
use super::judge::{Judge, Told};
use super::lender::{LeaseTally, LeasesView, Lender, of_another_kind, use_acquire, use_check};
use super::verdict::Verdict;
use sluicegate::{Key, KeyWriter, Limit, Span, Spec, Time, WindowSpec};
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
    ruling: Ruling,
    exceptions: HashMap<Box<[u8]>, Exception>,
    /// What it answers when a shared store cannot.
    on_failure: OnStoreFailure,
    tally: Arc<Tally>,
    /// What became of its leases.
    leases: Arc<LeaseTally>,
    /// When a rule of this name was first loaded, for limits that count from then.
    start: Time,
}

enum Exception {
    Limits(Ruling),
    Unlimited,
    Blocked,
}

/// Limits, and who decides by them.
pub(super) struct Ruling {
    pub(super) judge: Judge,
    limits: Box<[Limit]>,
    /// Their canonical texts.
    texts: Box<[Arc<str>]>,
}

/// What applies to one key of a rule.
pub(super) enum Applies<'a> {
    Limits(&'a Ruling),
    Unlimited,
    Blocked,
}

/// How a prepared question is to be decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Check,
    /// A check that may be told to wait so long.
    CheckWithin(Span),
    Peek,
    Refund,
}

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
    /// A limit that callers bring, by its canonical text.
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

impl Ruling {
    /// Limits whose keys belong to a scope, or only one of them.
    fn new(
        home: &Home,
        (scope, only_for): (&Scope, Option<&[u8]>),
        limits: &[Limit],
        start: Time,
        when_away: WhenAway,
    ) -> Result<Ruling, Mistake> {
        let judge = home.judge((scope, only_for), limits, start, when_away)?;
        let texts = limits.iter().map(|limit| limit.to_string().into()).collect();
        Ok(Ruling { judge, limits: limits.into(), texts })
    }

    /// What a decision under these limits says.
    pub(super) fn verdict(&self, told: &Told, now: Time) -> Verdict {
        Verdict::of(told, &self.texts, |place| {
            let spec = self.limits.get(place).map(Limit::spec);
            matches!(spec, Some(Spec::FixedWindow { windows: WindowSpec::Aligned { start, .. }, .. }) if *start > now)
        })
    }
}

impl Rule {
    pub(super) fn new(
        home: &Home,
        spec: RuleSpec,
        before: Option<&Rule>,
        now: Time,
    ) -> Result<Rule, Mistake> {
        let named = |mistake: Mistake| mistake.about(&format!("rule {}", spec.name));
        let start = before.map_or(now, |before| before.start);
        let when_away = home.when_away(spec.on_store_failure, spec.local_share);
        let scope = Scope::Rule(spec.name.clone());
        let mut exceptions = HashMap::with_capacity(spec.keys.len());
        for (key, says) in &spec.keys {
            let exception = match says {
                KeySpec::Limits(limits) => {
                    if let Some(mistake) = of_another_kind(&spec.limits, limits) {
                        return Err(named(mistake));
                    }
                    let ruling =
                        Ruling::new(home, (&scope, Some(key)), limits, start, when_away).map_err(named)?;
                    Exception::Limits(ruling)
                }
                KeySpec::Unlimited => Exception::Unlimited,
                KeySpec::Blocked => Exception::Blocked,
            };
            exceptions.insert(key.as_slice().into(), exception);
        }
        let ruling = Ruling::new(home, (&scope, None), &spec.limits, start, when_away).map_err(named)?;
        let tally = before.map_or_else(Arc::default, |before| Arc::clone(&before.tally));
        let leases = before.map_or_else(Arc::default, |before| Arc::clone(&before.leases));
        let on_failure = when_away.on_failure;
        Ok(Rule { spec, inline: false, ruling, exceptions, on_failure, tally, leases, start })
    }

    /// A limit that a caller brought. All of them share a tally and a label.
    pub(super) fn inline(
        home: &Home,
        scope: &Scope,
        limit: Limit,
        (tally, leases): (&Arc<Tally>, &Arc<LeaseTally>),
        start: Time,
    ) -> Result<Rule, Mistake> {
        let when_away = home.when_away(None, None);
        let ruling = Ruling::new(home, (scope, None), std::slice::from_ref(&limit), start, when_away)?;
        let spec = RuleSpec {
            name: String::from(INLINE),
            limits: vec![limit],
            shadow: false,
            on_store_failure: None,
            local_share: None,
            keys: Vec::new(),
        };
        Ok(Rule {
            spec,
            inline: true,
            ruling,
            exceptions: HashMap::new(),
            on_failure: when_away.on_failure,
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

    /// Whether it gives leases, and decides no checks.
    pub fn gives_leases(&self) -> bool {
        matches!(self.ruling.judge, Judge::Lends(_))
    }

    /// What has become of its leases, if it gives any.
    pub fn leases(&self) -> Option<LeasesView> {
        match &self.ruling.judge {
            Judge::Lends(lender) => Some(self.leases.view(lender.stats())),
            Judge::Memory(_) | Judge::Shared(_) => None,
        }
    }

    pub(super) fn lease_tally(&self) -> &Arc<LeaseTally> {
        &self.leases
    }

    /// An error if it gives leases: its keys without limits cannot be checked either.
    pub(super) fn decides_checks(&self) -> Result<(), Mistake> {
        if self.gives_leases() { Err(use_acquire()) } else { Ok(()) }
    }

    /// An error if it gives none: its keys without limits cannot be lent to either.
    pub(super) fn gives_only_leases(&self) -> Result<(), Mistake> {
        if self.gives_leases() { Ok(()) } else { Err(use_check()) }
    }

    /// Who lends to a key, also to one that is an exception without limits now. An error if it gives no leases.
    pub(super) fn lender_of(&self, key: &[u8]) -> Result<&Lender, Mistake> {
        self.judge_of(key).lender()
    }

    /// Those who wait for a lease of a key in memory go by this rule from now on.
    pub(super) fn meet(&self, key: &[u8], now: Time) {
        if let Ok(Lender::Memory(lender)) = self.lender_of(key) {
            let _ = lender.peek(key, 0, now);
        }
    }

    /// What applies to a key.
    pub(super) fn applies(&self, key: &[u8]) -> Applies<'_> {
        // Most rules have no exceptions, and then there is nothing to hash.
        if self.exceptions.is_empty() {
            return Applies::Limits(&self.ruling);
        }
        match self.exceptions.get(key) {
            None => Applies::Limits(&self.ruling),
            Some(Exception::Limits(ruling)) => Applies::Limits(ruling),
            Some(Exception::Unlimited) => Applies::Unlimited,
            Some(Exception::Blocked) => Applies::Blocked,
        }
    }

    /// The limits that decide for a key; none for one that is unlimited or blocked.
    pub fn limits_for(&self, key: &[u8]) -> &[Limit] {
        match self.applies(key) {
            Applies::Limits(ruling) => &ruling.limits,
            Applies::Unlimited | Applies::Blocked => &[],
        }
    }

    /// Who judges a key, also one that is an exception without limits now: what it has used belongs to the rule, whichever
    /// limits judged it.
    pub(super) fn judge_of(&self, key: &[u8]) -> &Judge {
        match self.applies(key) {
            Applies::Limits(ruling) => &ruling.judge,
            Applies::Unlimited | Applies::Blocked => &self.ruling.judge,
        }
    }

    /// Answers for a key: as its judge decides, unless it is an exception without limits.
    pub(super) async fn answer(
        &self,
        key: &[u8],
        now: Time,
        decide: impl AsyncFnOnce(&Judge) -> Result<Told, Mistake>,
    ) -> Result<Verdict, Mistake> {
        Ok(match self.applies(key) {
            Applies::Limits(ruling) => ruling.verdict(&decide(&ruling.judge).await?, now),
            Applies::Unlimited => Verdict::unlimited(),
            Applies::Blocked => Verdict::blocked(),
        })
    }

    /// What it answers when a shared store cannot.
    pub fn on_failure(&self) -> OnStoreFailure {
        self.on_failure
    }

    /// Counts a decision that could charge, and lets it pass if this is a shadow rule.
    pub(super) fn decided(&self, verdict: Verdict) -> Verdict {
        self.count(&verdict);
        self.shadowed(verdict)
    }

    /// Counts a decision.
    pub(super) fn count(&self, verdict: &Verdict) {
        self.add(Tally::place(verdict, self.spec.shadow), 1);
    }

    /// Adds to a count of the tally.
    pub(super) fn add(&self, place: usize, counted: u64) {
        if let Some(counter) = self.tally.0.get(place) {
            counter.fetch_add(counted, Ordering::Relaxed);
        }
    }

    /// Lets a denied call pass if this is a shadow rule. Its other fields stay.
    pub(super) fn shadowed(&self, verdict: Verdict) -> Verdict {
        Verdict { allowed: verdict.allowed || self.spec.shadow, ..verdict }
    }
}

impl Tally {
    /// Where an answer is counted.
    pub(super) fn place(verdict: &Verdict, shadow: bool) -> usize {
        match (verdict.denied(), shadow) {
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
        home: &Home,
        specs: Vec<RuleSpec>,
        before: &RuleSet,
        now: Time,
    ) -> Result<RuleSet, Mistake> {
        let mut rules = RuleSet::default();
        for spec in specs {
            if spec.name == INLINE {
                return Err(Mistake::new(format!(
                    "a rule may not be called {INLINE:?}, as metrics and headers call limits so that callers bring; give it another name"
                )));
            }
            let old = before.find(&spec.name);
            let rule = match old {
                Some(old) if *old.spec() == spec => Arc::clone(old),
                _ => Arc::new(Rule::new(home, spec, old.map(Arc::as_ref), now)?),
            };
            let name = rule.name().into();
            if rules.by_name.insert(name, Arc::clone(&rule)).is_some() {
                return Err(Mistake::new(format!(
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
