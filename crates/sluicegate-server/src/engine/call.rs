//! A call: a rule, a key and a cost, found and checked against the bounds. Its verbs ask the backend of the key's limits.

use super::RequestError;
use super::decided::Decided;
use super::rule::{Policy, PolicyId, Rule};
use super::rule_cache::CachedRule;
use super::storage::AnyBackend;
use sluicegate::backend::Answer;
use sluicegate::backend::Reserved;
use sluicegate::{Decision, HashedKey, Limit, RetryAfter, Span, Time};
use sluicegate_core::bounds::COUNT_MAX;
use sluicegate_core::decision::store::{no_room, unlimited};
use std::sync::Arc;

/// One rule, key and cost. Made by the engine; of a batch of calls all are made first, so that their waits for memory overlap.
pub struct Call<'a> {
    pub(super) rule: Arc<CachedRule>,
    policy: PolicyId,
    pub(super) key: &'a [u8],
    pub(super) cost: u64,
    verb: Verb,
    /// The hash of the key, if a limiter in memory is to check it.
    hashed: Option<HashedKey>,
}

/// How [`decide`](super::decide) decides a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Check,
    CheckWithin(Span),
    Peek,
    Refund,
}

/// The answer to a key without limits.
pub(super) const UNLIMITED: Decision = unlimited(COUNT_MAX);
/// The answer to a key that is blocked.
pub(super) const BLOCKED: Decision = no_room(0, RetryAfter::Never);

impl<'a> Call<'a> {
    pub(super) fn new(rule: Arc<CachedRule>, key: &'a [u8], cost: u64, verb: Verb) -> Call<'a> {
        let policy = rule.policy_id(key);
        let hashed = match rule.policy(policy) {
            Policy::Limits(limits) if verb == Verb::Check => match &limits.backend {
                AnyBackend::Memory(limiter) => Some(limiter.hash(key)),
                AnyBackend::Redis { .. } | AnyBackend::Leases(_) => None,
            },
            _ => None,
        };
        Call { rule, policy, key, cost, verb, hashed }
    }

    /// The rule that decides.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The limits that decide for the key; none if it is unlimited or blocked.
    pub fn limit_list(&self) -> &[Limit] {
        match self.policy() {
            Policy::Limits(limits) => limits.list(),
            Policy::Unlimited | Policy::Blocked => &[],
        }
    }

    /// What applies to the key.
    #[inline]
    pub(super) fn policy(&self) -> Policy<'_> {
        self.rule.policy(self.policy)
    }

    /// Brings what is known of the key into the processor's cache. In a batch all calls are made, then all are touched,
    /// with nothing in between, then all are decided: so their waits for memory overlap.
    #[inline]
    pub fn touch(&self) {
        if let (Some(hashed), Policy::Limits(limits)) = (self.hashed, self.policy())
            && let AnyBackend::Memory(limiter) = &limits.backend
        {
            limiter.touch(hashed);
        }
    }

    /// Decides the call if that takes no round trip to a shared store.
    #[inline]
    pub(super) fn decide_now(&self, now: Time) -> Option<Result<Decided<'_>, RequestError>> {
        let limits = match self.policy() {
            Policy::Limits(limits) => limits,
            Policy::Unlimited => return Some(Ok(self.decided_in_batch(UNLIMITED.into(), now))),
            Policy::Blocked => return Some(Ok(self.decided_in_batch(BLOCKED.into(), now))),
        };
        let AnyBackend::Memory(limiter) = &limits.backend else { return None };
        let Call { key, cost, .. } = *self;
        let decision = match (self.verb, self.hashed) {
            (Verb::Check, Some(hashed)) => limiter.check_hashed_at(hashed, cost, now),
            (Verb::Check, None) => limiter.check_at(key, cost, now),
            (Verb::Peek, _) => limiter.peek_at(key, cost, now),
            (Verb::CheckWithin(max_wait), _) => match limiter.check_within_at(key, cost, max_wait, now) {
                Ok(decision) => decision,
                Err(error) => return Some(Err(error.into())),
            },
            (Verb::Refund, _) => match limiter.refund_at(key, cost, now) {
                Ok(decision) => decision,
                Err(error) => return Some(Err(error.into())),
            },
        };
        Some(Ok(self.decided_in_batch(decision.into(), now)))
    }

    /// Decides a call by a round trip of its own.
    pub(super) async fn decide_alone(&self, now: Time) -> Result<Decided<'_>, RequestError> {
        if let Some(answer) = self.without_limits() {
            return Ok(self.decided_in_batch(answer, now));
        }
        let (backend, at) = self.limits().checks(now)?;
        let answer = match self.verb {
            Verb::Check => backend.check(&self.key, self.cost, at).await,
            Verb::CheckWithin(max_wait) => {
                backend.check_within(&self.key, self.cost, max_wait.into(), at).await
            }
            Verb::Peek => backend.peek(&self.key, self.cost, at).await,
            Verb::Refund => backend.refund(&self.key, self.cost, at).await,
        };
        Ok(self.decided_in_batch(answer?, now))
    }

    /// Whether it is a check in a shared store, which can share a round trip with others.
    pub(super) fn check_in_store(
        &self,
    ) -> Option<(&sluicegate_redis::RedisLimiter, super::storage::StoreTime)> {
        match self.policy() {
            Policy::Limits(limits) if self.verb == Verb::Check => match &limits.backend {
                AnyBackend::Redis { limiter, time } => Some((limiter, *time)),
                AnyBackend::Memory(_) | AnyBackend::Leases(_) => None,
            },
            _ => None,
        }
    }

    /// An answer under the policy of the key.
    #[inline]
    pub(super) fn decided(&self, answer: Answer, now: Time) -> Decided<'_> {
        Decided::new(answer, self.policy(), now, self.rule.spec().shadow)
    }

    /// The same for a call of a batch, and counts it if it could have been charged.
    #[inline]
    pub(super) fn decided_in_batch(&self, answer: Answer, now: Time) -> Decided<'_> {
        if let Verb::Check | Verb::CheckWithin(_) = self.verb {
            self.rule.count_in_batch(!answer.allowed());
        }
        self.decided(answer, now)
    }

    /// The same for a call by itself, and counts it.
    pub(super) fn counted(&self, answer: Answer, now: Time) -> Decided<'_> {
        self.rule.count(!answer.allowed());
        self.decided(answer, now)
    }

    /// An answer to a key without limits.
    fn without_limits(&self) -> Option<Answer> {
        match self.policy() {
            Policy::Unlimited => Some(UNLIMITED.into()),
            Policy::Blocked => Some(BLOCKED.into()),
            Policy::Limits(_) => None,
        }
    }

    /// Decides the call without charging it.
    ///
    /// # Errors
    /// When a shared store gives no answer.
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
    /// When the limit does not support it, or a shared store gives no answer.
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

    /// Charges the cost, or as much of it as remains, and returns how much that was.
    ///
    /// # Errors
    /// As [`Call::refund`].
    pub async fn take(&self, now: Time) -> Result<(Decided<'_>, u64), RequestError> {
        self.rule.decides_checks()?;
        let (answer, taken) = if let Some(answer) = self.without_limits() {
            (answer, if answer.allowed() { self.cost } else { 0 })
        } else {
            let (backend, at) = self.limits().checks(now)?;
            backend.take(&self.key, self.cost, at).await?
        };
        // A shadow rule charges what there is, and lets the caller have all of the cost.
        let taken = if self.rule.spec().shadow { self.cost } else { taken };
        Ok((self.counted(answer, now), taken))
    }

    /// Charges the call now, to happen after the answer's delay. The text is a receipt. There is none if nothing was
    /// charged: denied, even if by a shadow rule, or without limits.
    ///
    /// # Errors
    /// As [`Call::refund`], and when too many receipts are open.
    pub async fn reserve(
        &self,
        max_wait: Span,
        now: Time,
    ) -> Result<(Decided<'_>, Option<String>), RequestError> {
        self.rule.decides_checks()?;
        let (answer, receipt) = if let Some(answer) = self.without_limits() {
            (answer, None)
        } else {
            let (backend, at) = self.limits().checks(now)?;
            let Reserved { answer, receipt } =
                backend.reserve(&self.key, self.cost, max_wait.into(), at).await?;
            (answer, receipt.map(|receipt| receipt.to_string()))
        };
        Ok((self.counted(answer, now), receipt))
    }

    /// When the key's next window starts, or its next unit is available.
    ///
    /// # Errors
    /// As [`Call::peek`].
    pub async fn next_window(&self, now: Time) -> Result<Time, RequestError> {
        self.rule.decides_checks()?;
        if self.without_limits().is_some() {
            return Ok(now);
        }
        let (backend, at) = self.limits().checks(now)?;
        Ok(backend.next_window(&self.key, at).await?)
    }

    /// Deletes the key's state, also that of a key that has no limits now.
    ///
    /// # Errors
    /// As [`Call::peek`].
    pub async fn reset(&self) -> Result<(), RequestError> {
        match &self.limits().backend {
            AnyBackend::Leases(leases) => Ok(leases.backend.reset(&self.key).await?),
            backend => Ok(backend.checks()?.reset(&self.key).await?),
        }
    }

    /// The limits of the key. One that has none now has those of its rule: what it has used belongs to the rule.
    pub(super) fn limits(&self) -> &super::rule::Limits {
        self.rule.limits_of(self.policy)
    }
}
