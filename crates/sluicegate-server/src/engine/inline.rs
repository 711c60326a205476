//! Inline limits: built on first use, found by their text afterwards.

use super::leases::{LeaseStats, LeaseTally};
use super::rule::{Rule, RuleScope, Tally};
use super::storage::{RuleFallback, Storage};
use super::throttle::Throttle;
use super::{RequestError, Settings};
use sluicegate::limit::Spec;
use sluicegate::{Limit, Span, Time};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

/// The most texts, and the most `CL.THROTTLE` parameters, cached at once. When there are more, the
/// cache is cleared. That loses nothing: a key's state is found by the limit's canonical text.
const KNOWN_MAX: usize = 4_096;

pub(super) struct Inline {
    storage: Arc<Storage>,
    fallback: RuleFallback,
    bounds: InlineBounds,
    tally: Arc<Tally>,
    leases: Arc<LeaseTally>,
    limits: Known<Box<str>>,
    throttles: Known<[i64; 3]>,
    /// When the engine was created: the start of limits without their own. A limit that is dropped
    /// from the cache and built again keeps it.
    start: Time,
}

/// Limits by their text or parameters, as requests wrote them.
type Known<K> = RwLock<HashMap<K, Arc<Rule>>>;

impl Inline {
    pub(super) fn new(storage: Arc<Storage>, settings: &Settings, start: Time) -> Inline {
        Inline {
            storage,
            fallback: settings.fallback(),
            bounds: InlineBounds {
                log_count_max: settings.inline_log_count_max,
                period_max: settings.inline_period_max.map(Span::from),
            },
            tally: Arc::default(),
            leases: Arc::default(),
            limits: RwLock::default(),
            throttles: RwLock::default(),
            start,
        }
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Counts the leases of inline limits.
    pub(super) fn leases(&self) -> LeaseStats {
        self.leases.view(self.storage.inline_leases())
    }

    /// An inline limit or list of limits, `A + B`, in the grammar. Its canonical text is its scope:
    /// two spellings of a list share state, and a list shares no state with any of its limits
    /// alone.
    ///
    /// # Errors
    /// If the text is not a limit or list, exceeds a bound of inline limits, or is longer than
    /// [`sluicegate::limit::LIST_LEN_MAX`]: no longer text is cached.
    pub(super) fn limits(&self, text: &str) -> Result<Arc<Rule>, RequestError> {
        if let Some(rule) = self.limits.read().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(Arc::clone(rule));
        }
        let limits = Limit::parse_list(text)?;
        limits.iter().try_for_each(|limit| self.bounds.check(limit))?;
        let scope = RuleScope::Inline(Limit::list_text(&limits));
        let rule = self.rule(&scope, limits)?;
        Ok(remember(&self.limits, text.into(), rule))
    }

    /// The rule of a `CL.THROTTLE` call. All such rules share one scope.
    pub(super) fn throttle(&self, throttle: &Throttle) -> Result<Arc<Rule>, RequestError> {
        let parameters = throttle.parameters();
        if let Some(rule) = self.throttles.read().unwrap_or_else(PoisonError::into_inner).get(&parameters) {
            return Ok(Arc::clone(rule));
        }
        let limit: Limit = throttle.limit()?.parse()?;
        self.bounds.check(&limit)?;
        let rule = self.rule(&RuleScope::Throttle, vec![limit])?;
        Ok(remember(&self.throttles, parameters, rule))
    }

    fn rule(&self, scope: &RuleScope, limits: Vec<Limit>) -> Result<Arc<Rule>, RequestError> {
        let tallies = (&self.tally, &self.leases);
        Ok(Arc::new(Rule::inline(&self.storage, scope, limits, self.fallback, tallies, self.start)?))
    }
}

/// The bounds of an inline limit: its state stays in memory for as long as its period.
struct InlineBounds {
    log_count_max: u64,
    period_max: Option<Span>,
}

impl InlineBounds {
    fn check(&self, limit: &Limit) -> Result<(), RequestError> {
        let (count, most) = (limit.count(), self.log_count_max);
        if matches!(limit.spec(), Spec::SlidingLog { .. }) && count > most {
            return Err(RequestError::new(format!(
                "{limit}: count {count} is above inline_log_count_max, {most}; use sliding-window, or define a rule"
            )));
        }
        let period = match limit.spec() {
            Spec::Concurrency { ttl, .. } => ttl.unwrap_or_default(),
            _ => limit.period(),
        };
        match self.period_max {
            Some(most) if period > most => Err(RequestError::new(format!(
                "{limit}: period {period} is above inline_period_max, {most}; use a shorter one, or define a rule"
            ))),
            _ => Ok(()),
        }
    }
}

fn remember<K: Eq + Hash>(known: &Known<K>, key: K, rule: Arc<Rule>) -> Arc<Rule> {
    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    Arc::clone(known.entry(key).or_insert(rule))
}
