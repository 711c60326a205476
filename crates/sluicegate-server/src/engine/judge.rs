//! Who decides for a key: a limiter in memory, or one in a shared store. Both offer the same verbs; the one in memory
//! answers without waiting. Where a limit is how many at once, a lender gives leases instead, and charges nothing.

use super::Mistake;
use super::lender::{Lender, use_acquire, use_check};
use super::shared::SharedLimiter;
use sluicegate::{Decision, Limiter, Span, Time};
use sluicegate_redis::Source;

/// A limiter, or a lender.
pub(super) enum Judge {
    Memory(Limiter),
    Shared(SharedLimiter),
    Lends(Lender),
}

/// A decision, and who made it if a shared store had to and could not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) decision: Decision,
    pub(super) instead: Option<Source>,
}

impl From<Decision> for Told {
    fn from(decision: Decision) -> Told {
        Told { decision, instead: None }
    }
}

impl Told {
    /// A decision of somebody.
    pub(super) fn by(decision: Decision, source: Source) -> Told {
        Told { decision, instead: source.is_fallback().then_some(source) }
    }
}

impl Judge {
    /// Who gives leases.
    pub(super) fn lender(&self) -> Result<&Lender, Mistake> {
        match self {
            Judge::Lends(lender) => Ok(lender),
            Judge::Memory(_) | Judge::Shared(_) => Err(use_check()),
        }
    }

    pub(super) async fn peek(&self, key: &[u8], cost: u32, now: Time) -> Result<Told, Mistake> {
        match self {
            Judge::Memory(limiter) => Ok(limiter.peek_at(key, cost, now).into()),
            Judge::Shared(limiter) => limiter.peek(key, cost, now).await,
            Judge::Lends(lender) => lender.peek(key, cost, now).await,
        }
    }

    pub(super) async fn refund(&self, key: &[u8], cost: u32, now: Time) -> Result<Told, Mistake> {
        match self {
            Judge::Memory(limiter) => Ok(limiter.refund_at(key, cost, now)?.into()),
            Judge::Shared(limiter) => limiter.refund(key, cost, now).await,
            Judge::Lends(_) => Err(use_acquire()),
        }
    }

    pub(super) async fn check_within(
        &self,
        key: &[u8],
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<Told, Mistake> {
        match self {
            Judge::Memory(limiter) => Ok(limiter.check_within_at(key, cost, max_wait, now)?.into()),
            Judge::Shared(limiter) => limiter.check_within(key, cost, max_wait, now).await,
            Judge::Lends(_) => Err(use_acquire()),
        }
    }

    pub(super) async fn take(&self, key: &[u8], up_to: u32, now: Time) -> Result<(Told, u32), Mistake> {
        match self {
            Judge::Memory(limiter) => {
                let (decision, taken) = limiter.take_at(key, up_to, now)?;
                Ok((decision.into(), taken))
            }
            Judge::Shared(limiter) => limiter.take(key, up_to, now).await,
            Judge::Lends(_) => Err(use_acquire()),
        }
    }

    /// The decision, and the receipt's text if anything was charged.
    pub(super) async fn reserve(
        &self,
        key: &[u8],
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<(Told, Option<String>), Mistake> {
        match self {
            Judge::Memory(limiter) => {
                let reservation = limiter.reserve_at(key, cost, max_wait, now)?;
                let told = reservation.decision().into();
                Ok((told, reservation.keep().map(|receipt| receipt.to_string())))
            }
            Judge::Shared(limiter) => limiter.reserve(key, cost, max_wait, now).await,
            Judge::Lends(_) => Err(use_acquire()),
        }
    }

    pub(super) async fn next_window(&self, key: &[u8], now: Time) -> Result<Time, Mistake> {
        match self {
            Judge::Memory(limiter) => Ok(limiter.next_window_at(key, now)),
            Judge::Shared(limiter) => limiter.next_window(key, now).await,
            Judge::Lends(_) => Err(use_acquire()),
        }
    }

    pub(super) async fn reset(&self, key: &[u8]) -> Result<(), Mistake> {
        match self {
            Judge::Memory(limiter) => {
                limiter.reset(key);
                Ok(())
            }
            Judge::Shared(limiter) => limiter.reset(key).await,
            Judge::Lends(lender) => lender.reset(key).await,
        }
    }
}
