//! A call: one rule, one key and one cost, looked up and within bounds.
//!
//! An unlimited or blocked key is answered at once. For any other, the backend of the key's limits
//! decides. The answer then becomes a [`Decided`] under the call's rule, which adds shadow mode and
//! the reason for a denial. If the verb charges, the answer is also counted.

use super::RequestError;
use super::decided::Decided;
use super::receipt::{fit_receipt, receipt_text};
use super::rule::{KeyLimits, KeyLimitsId, Rule};
use super::rule_cache::CachedRule;
use super::storage::AnyBackend;
use sluicegate::backend::{Answer, Reserved};
use sluicegate::{Decision, HashedKey, Limit, ReserveOptions, RetryAfter, Span, Time, Usage};
use sluicegate_core::bounds::COUNT_MAX;
use sluicegate_core::decision::store::{by_no_limit, unlimited};
use std::slice;
use std::sync::Arc;

/// One rule, key and cost. Created by [`Engine::call`](super::Engine::call),
/// [`Engine::check`](super::Engine::check) and [`Engine::throttle`](super::Engine::throttle).
pub struct RuleCall<'a> {
    pub(super) rule: Arc<CachedRule>,
    key_limits: KeyLimitsId,
    pub(super) key: &'a [u8],
    pub(super) cost: u64,
    verb: BatchVerb,
    /// The hash of the key, computed in advance for a check in memory.
    hashed: Option<HashedKey>,
}

/// The answer to a reservation.
#[derive(Clone)]
#[must_use = "a denied reservation charges nothing: check `decided.allowed()`"]
pub struct ReservedCall<'r> {
    /// The decision.
    pub decided: Decided<'r>,
    /// For one cancel or settle. `None` if nothing was charged: the limits denied the call (even if
    /// a shadow rule allows it), or the key is unlimited or blocked.
    pub receipt: Option<String>,
    /// The cost that was granted; 0 if denied.
    pub granted: u64,
}

/// What [`decide`](super::decide) does with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BatchVerb {
    Check,
    CheckWithin(Span),
    Peek,
    Refund,
}

/// The decision for an unlimited key.
pub(super) const UNLIMITED: Decision = unlimited(COUNT_MAX);
/// The decision for a blocked key.
pub(super) const BLOCKED: Decision = by_no_limit(0, RetryAfter::Never);

/// What a key has used under one limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitUsage {
    /// The canonical text of the limit; `unlimited` or `blocked` if the key is that.
    pub text: String,
    /// What is used.
    pub usage: Usage,
}

impl LimitUsage {
    /// The usage of a key that is unlimited or blocked.
    fn without_limits(text: &str, decision: Decision) -> LimitUsage {
        let (limit, remaining) = (decision.limit(), decision.remaining());
        let usage = Usage::new(limit, 0, remaining, decision.reset_after());
        LimitUsage { text: text.to_owned(), usage }
    }
}

impl<'a> RuleCall<'a> {
    pub(super) fn new(rule: Arc<CachedRule>, key: &'a [u8], cost: u64, verb: BatchVerb) -> RuleCall<'a> {
        let key_limits = rule.key_limits_id(key);
        let hashed = match rule.key_limits(key_limits) {
            KeyLimits::Limits(limits) if verb == BatchVerb::Check => match &limits.backend {
                AnyBackend::Memory(limiter) => Some(limiter.hash(key)),
                AnyBackend::Redis { .. } | AnyBackend::Leases(_) => None,
            },
            _ => None,
        };
        RuleCall { rule, key_limits, key, cost, verb, hashed }
    }

    /// The rule that decides the call.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The limits that apply to the key; empty if it is unlimited or blocked.
    pub fn limit_list(&self) -> &[Limit] {
        match self.key_limits() {
            KeyLimits::Limits(limits) => limits.list(),
            KeyLimits::Unlimited | KeyLimits::Blocked => &[],
        }
    }

    /// What applies to the key.
    #[inline]
    pub(super) fn key_limits(&self) -> KeyLimits<'_> {
        self.rule.key_limits(self.key_limits)
    }

    /// Prefetches the key's state into the processor's cache. For a batch, create all calls, then
    /// touch them all, then decide them, so that the cache misses overlap instead of adding up.
    #[inline]
    pub fn touch(&self) {
        if let (Some(hashed), KeyLimits::Limits(limits)) = (self.hashed, self.key_limits())
            && let AnyBackend::Memory(limiter) = &limits.backend
        {
            limiter.touch(hashed);
        }
    }

    /// Decides the call if that needs no round trip: the key's limits are in memory, or the key has
    /// none.
    #[inline]
    pub(super) fn decide_in_memory(&self, now: Time) -> Option<Result<Decided<'_>, RequestError>> {
        let limits = match self.key_limits() {
            KeyLimits::Limits(limits) => limits,
            KeyLimits::Unlimited => return Some(Ok(self.decided_in_batch(UNLIMITED.into(), now))),
            KeyLimits::Blocked => return Some(Ok(self.decided_in_batch(BLOCKED.into(), now))),
        };
        let AnyBackend::Memory(limiter) = &limits.backend else { return None };
        let RuleCall { key, cost, .. } = *self;
        let decision = match (self.verb, self.hashed) {
            (BatchVerb::Check, Some(hashed)) => limiter.check_hashed_at(hashed, cost, now),
            (BatchVerb::Check, None) => limiter.check_at(key, cost, now),
            (BatchVerb::Peek, _) => limiter.peek_at(key, cost, now),
            (BatchVerb::CheckWithin(max_wait), _) => {
                match limiter.check_within_at(key, cost, max_wait, now) {
                    Ok(decision) => decision,
                    Err(error) => return Some(Err(error.into())),
                }
            }
            (BatchVerb::Refund, _) => match limiter.refund_at(key, cost, now) {
                Ok(decision) => decision,
                Err(error) => return Some(Err(error.into())),
            },
        };
        Some(Ok(self.decided_in_batch(decision.into(), now)))
    }

    /// Decides the call in a round trip of its own.
    pub(super) async fn decide_alone(&self, now: Time) -> Result<Decided<'_>, RequestError> {
        if let Some(answer) = self.without_limits() {
            return Ok(self.decided_in_batch(answer, now));
        }
        let (backend, at) = self.limits().checks(now)?;
        let answer = match self.verb {
            BatchVerb::Check => backend.check(&self.key, self.cost, at).await,
            BatchVerb::CheckWithin(max_wait) => {
                backend.check_within(&self.key, self.cost, max_wait.into(), at).await
            }
            BatchVerb::Peek => backend.peek(&self.key, self.cost, at).await,
            BatchVerb::Refund => backend.refund(&self.key, self.cost, at).await,
        };
        Ok(self.decided_in_batch(answer?, now))
    }

    /// The limiter and clock of a check in a shared store, which can share a round trip with
    /// others; `None` for any other call.
    pub(super) fn check_in_store(
        &self,
    ) -> Option<(&sluicegate_redis::RedisLimiter, super::storage::StoreTime)> {
        match self.key_limits() {
            KeyLimits::Limits(limits) if self.verb == BatchVerb::Check => match &limits.backend {
                AnyBackend::Redis { limiter, time } => Some((limiter, *time)),
                AnyBackend::Memory(_) | AnyBackend::Leases(_) => None,
            },
            _ => None,
        }
    }

    /// The rule, and what applies to the key: what denies the call, if anything does.
    #[inline]
    pub(super) fn denier(&self) -> (&Rule, KeyLimits<'_>) {
        (&self.rule, self.key_limits())
    }

    /// Combines an answer with the call's rule, without counting it.
    #[inline]
    pub(super) fn decided(&self, answer: Answer, now: Time) -> Decided<'_> {
        Decided::new(answer, self.denier(), now, self.rule.spec().shadow)
    }

    /// Combines the answer to a call of a batch with its rule. If the verb charges, counts the
    /// answer in the connection's rule cache.
    #[inline]
    pub(super) fn decided_in_batch(&self, answer: Answer, now: Time) -> Decided<'_> {
        if let BatchVerb::Check | BatchVerb::CheckWithin(_) = self.verb {
            self.rule.count_in_batch(!answer.allowed());
        }
        self.decided(answer, now)
    }

    /// Combines the answer to a single call with its rule, and counts the answer.
    pub(super) fn counted(&self, answer: Answer, now: Time) -> Decided<'_> {
        self.rule.count(!answer.allowed());
        self.decided(answer, now)
    }

    /// The answer if the key is unlimited or blocked; `None` if limits have to decide.
    fn without_limits(&self) -> Option<Answer> {
        match self.key_limits() {
            KeyLimits::Unlimited => Some(UNLIMITED.into()),
            KeyLimits::Blocked => Some(BLOCKED.into()),
            KeyLimits::Limits(_) => None,
        }
    }

    /// Decides the call without charging it.
    ///
    /// # Errors
    /// If the shared store does not answer and the rule has no fallback.
    pub async fn peek(&self, now: Time) -> Result<Decided<'_>, RequestError> {
        let answer = match self.without_limits() {
            Some(answer) => answer,
            None => self.limits().peek(self.key, self.cost, now).await?,
        };
        Ok(self.decided(answer, now))
    }

    /// Returns cost to the key. The answer is the decision for cost 0.
    ///
    /// # Errors
    /// If the limit does not support refunds, or the shared store does not answer and the rule has
    /// no fallback.
    pub async fn refund(&self, now: Time) -> Result<Decided<'_>, RequestError> {
        self.rule.decides_checks()?;
        let answer = if let Some(answer) = self.without_limits() {
            answer
        } else {
            let (backend, at) = self.limits().checks(now)?;
            backend.refund(&self.key, self.cost, at).await?
        };
        Ok(self.decided(answer, now))
    }

    /// Charges the cost or, if less remains, what remains. Returns how much was charged.
    ///
    /// # Errors
    /// If the limit does not support taking, or the shared store does not answer and the rule has
    /// no fallback.
    pub async fn take(&self, now: Time) -> Result<(Decided<'_>, u64), RequestError> {
        self.rule.decides_checks()?;
        let (answer, taken) = if let Some(answer) = self.without_limits() {
            (answer, if answer.allowed() { self.cost } else { 0 })
        } else {
            let (backend, at) = self.limits().checks(now)?;
            backend.take(&self.key, self.cost, at).await?
        };
        // A shadow rule charges what remains, but reports the whole cost, so it never limits a
        // caller.
        let taken = if self.rule.spec().shadow { self.cost } else { taken };
        Ok((self.counted(answer, now), taken))
    }

    /// Charges the call now; the caller acts after the decision's delay.
    ///
    /// # Errors
    /// If the options do not fit together, the limit does not support reservations, too many
    /// receipts are open (of the key, or `max_receipts` in all), or the shared store does not
    /// answer and the rule has no fallback.
    pub async fn reserve(
        &self,
        options: &ReserveOptions,
        now: Time,
    ) -> Result<ReservedCall<'_>, RequestError> {
        self.rule.decides_checks()?;
        options.checked(self.cost)?;
        fit_receipt(slice::from_ref(self))?;
        let Reserved { answer, receipt, granted, .. } = if let Some(answer) = self.without_limits() {
            Reserved::new(answer, if answer.allowed() { self.cost } else { 0 }, None)
        } else {
            let (backend, at) = self.limits().checks(now)?;
            backend.reserve(&self.key, self.cost, options, at).await?
        };
        let receipt = receipt.map(|receipt| receipt_text(&receipt, slice::from_ref(self)));
        // As with a take: a shadow rule never limits a caller.
        let granted = if self.rule.spec().shadow { self.cost } else { granted };
        Ok(ReservedCall { decided: self.counted(answer, now), receipt, granted })
    }

    /// Returns when the key's next window starts, or when its next unit is available.
    ///
    /// # Errors
    /// If the rule grants leases, or the shared store does not answer.
    pub async fn next_window(&self, now: Time) -> Result<Time, RequestError> {
        self.rule.decides_checks()?;
        if self.without_limits().is_some() {
            return Ok(now);
        }
        let (backend, at) = self.limits().checks(now)?;
        Ok(backend.next_window(&self.key, at).await?)
    }

    /// Returns what the key has used under each of its limits, in their order. Changes nothing.
    ///
    /// # Errors
    /// If the shared store does not answer: a fallback does not know the usage.
    pub async fn usage(&self, now: Time) -> Result<Vec<LimitUsage>, RequestError> {
        let limits = match self.key_limits() {
            KeyLimits::Limits(limits) => limits,
            KeyLimits::Unlimited => return Ok(vec![LimitUsage::without_limits("unlimited", UNLIMITED)]),
            KeyLimits::Blocked => return Ok(vec![LimitUsage::without_limits("blocked", BLOCKED)]),
        };
        let at = limits.backend.at(now);
        let usages = match &limits.backend {
            AnyBackend::Leases(leases) => vec![leases.backend.usage(&self.key, at).await?],
            backend => backend.checks()?.usage(&self.key, at).await?,
        };
        Ok(usages.into_iter().map(|(limit, usage)| LimitUsage { text: limit.to_string(), usage }).collect())
    }

    /// Deletes the key's state, including what an unlimited or blocked key had used before it
    /// became an exception.
    ///
    /// # Errors
    /// If the shared store does not answer.
    pub async fn reset(&self) -> Result<(), RequestError> {
        match &self.limits().backend {
            AnyBackend::Leases(leases) => Ok(leases.backend.reset(&self.key).await?),
            backend => Ok(backend.checks()?.reset(&self.key).await?),
        }
    }

    /// The limits that hold the key's state. For an unlimited or blocked key these are the limits
    /// of its rule, because state belongs to the rule.
    pub(super) fn limits(&self) -> &super::rule::Limits {
        self.rule.limits_of(self.key_limits)
    }
}
