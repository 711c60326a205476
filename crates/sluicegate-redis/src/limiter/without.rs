//! Answering without the store, as the limiter was told to.

use super::error::{AskError, BuildError};
use crate::answer::{Answer, Source};
use crate::failure::{OnStoreFailure, StoreFailure};
use crate::store::RedisStore;
use sluicegate::{Decision, Limit, Limiter, RetryAfter, Span};
use std::time::Duration;

/// A call that is denied because the store is away is told to come back after this.
pub(crate) const COME_BACK_AFTER: Span = Span::from_micros(1_000_000);

/// What to answer.
pub(super) enum Fallback {
    Error,
    Allow { limit: u32 },
    Deny { limit: u32 },
    Local(Limiter),
}

impl Fallback {
    pub(super) fn new(
        on_store_failure: OnStoreFailure,
        share: u32,
        limits: &[Limit],
        (store, scope): (&RedisStore, &str),
    ) -> Result<Fallback, BuildError> {
        if !(1..=100).contains(&share) {
            return Err(BuildError::BadShare(share));
        }
        let limit = limits.iter().map(Limit::at_once).min().unwrap_or(0);
        Ok(match on_store_failure {
            OnStoreFailure::Error => Fallback::Error,
            OnStoreFailure::Allow => Fallback::Allow { limit },
            OnStoreFailure::Deny => Fallback::Deny { limit },
            OnStoreFailure::Local => {
                let limits: Vec<Limit> = limits.iter().map(|limit| limit.share(share)).collect();
                let made = store.inner.local().and_then(|local| {
                    // Some limits may be made up by callers; here they are all the same.
                    let builder = Limiter::builder(limits.as_slice()).in_store(local, scope.to_owned());
                    builder.made_up_by_callers().build()
                });
                Fallback::Local(made.map_err(BuildError::Local)?)
            }
        })
    }

    /// A decision without the store; none if that is an error.
    fn decide(&self, local: impl FnOnce(&Limiter) -> Option<Decision>) -> Option<(Decision, Source)> {
        match self {
            Fallback::Error => None,
            Fallback::Allow { limit } => Some((Decision::let_pass(*limit), Source::Allowed)),
            Fallback::Deny { limit } => {
                Some((Decision::no_room(*limit, RetryAfter::After(COME_BACK_AFTER)), Source::Denied))
            }
            Fallback::Local(limiter) => local(limiter).map(|decision| (decision, Source::Local)),
        }
    }

    pub(super) fn check(&self, key: &[u8], cost: u32) -> Option<(Decision, Source)> {
        self.decide(|limiter| Some(limiter.check_cost(key, cost)))
    }

    pub(super) fn peek(&self, key: &[u8], cost: u32) -> Option<(Decision, Source)> {
        self.decide(|limiter| Some(limiter.peek(key, cost)))
    }

    pub(super) fn refund(&self, key: &[u8], cost: u32) -> Option<(Decision, Source)> {
        self.decide(|limiter| limiter.refund(key, cost).ok())
    }

    /// Without a receipt, which would be good in this process only.
    pub(super) fn reserve(&self, key: &[u8], cost: u32, max_wait: Span) -> Option<(Decision, Source)> {
        let max_wait = Duration::from_micros(max_wait.as_micros());
        self.decide(|limiter| limiter.reserve(key, cost, max_wait).ok().map(|reserved| reserved.decision()))
    }

    pub(super) fn check_within(&self, key: &[u8], cost: u32, max_wait: Span) -> Option<(Decision, Source)> {
        let max_wait = Duration::from_micros(max_wait.as_micros());
        self.decide(|limiter| limiter.check_within(key, cost, max_wait).ok())
    }

    pub(super) fn take(
        &self,
        failure: StoreFailure,
        key: &[u8],
        up_to: u32,
    ) -> Result<(Answer, u32), AskError> {
        let mut taken = up_to;
        let decided = self.decide(|limiter| {
            let (decision, local) = limiter.take(key, up_to).ok()?;
            taken = local;
            Some(decision)
        });
        match decided {
            None => Err(AskError::Store(failure)),
            Some((decision, source)) => {
                let taken = if decision.allowed() { taken } else { 0 };
                Ok((Answer::new(decision, source), taken))
            }
        }
    }

    pub(super) fn forget(&self, key: &[u8]) {
        if let Fallback::Local(limiter) = self {
            limiter.reset(key);
        }
    }
}
