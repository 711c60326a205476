//! The verbs of leases: how many at once.

use super::lender::{self, Untold};
use super::rule::Applies;
use super::{Asked, Engine, Mistake, Rule, Target, Verdict};
use sluicegate::{Span, Time};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::futures::Notified;

/// What came of asking for a lease.
#[must_use = "a lease that is dropped is given back"]
pub struct Leased {
    /// The answer.
    pub verdict: Verdict,
    /// The lease, unless there is none: denied, even if by a shadow rule, without limits, or for nothing.
    pub lease: Option<Untold>,
}

impl Engine {
    /// Takes a lease if there is a place for its cost, and waits in line for one for at most so long. Dropped while it waits, it
    /// leaves the line. A shadow rule lets nobody wait.
    ///
    /// # Errors
    /// As [`Engine::check`], and when the limit gives no leases.
    pub async fn acquire(
        &self,
        target: Target<'_>,
        cost: u32,
        max_wait: Span,
        now: Time,
    ) -> Result<Leased, Mistake> {
        // From before the rule is looked up, so that none is missed that is loaded after that.
        let loaded = self.loaded.notified();
        let Asked { rule, key, cost } = self.asked(target, cost)?;
        rule.gives_only_leases()?;
        let (verdict, held) = match rule.applies(key) {
            Applies::Unlimited => (Verdict::unlimited(), None),
            Applies::Blocked => (Verdict::blocked(), None),
            Applies::Limits(ruling) => {
                let max_wait = if rule.spec().shadow { Span::ZERO } else { max_wait };
                let _waits = (max_wait > Span::ZERO).then(|| rule.lease_tally().one_waits());
                let acquire = ruling.judge.lender()?.acquire(key, cost, max_wait, now);
                let (told, newer) = self.by_rules_of_now(target, loaded, acquire).await;
                let (told, held) = told?;
                let verdict = match newer.as_ref().map(|rule| rule.applies(key)) {
                    Some(Applies::Limits(newer)) => newer.verdict(&told, now),
                    _ => ruling.verdict(&told, now),
                };
                (verdict, held)
            }
        };
        let lease = held.map(|held| Untold::new(held, rule.lease_tally()));
        Ok(Leased { verdict: rule.decided(verdict), lease })
    }

    /// What comes of waiting for a lease. Rules that are loaded meanwhile hold for those who wait too: a line in memory goes by the
    /// numbers that its key was last asked about by, and only here is it known which those are. The rule that it came to be decided by, if that is
    /// another one than at first.
    async fn by_rules_of_now<T>(
        &self,
        target: Target<'_>,
        loaded: Notified<'_>,
        acquire: impl Future<Output = T>,
    ) -> (T, Option<Arc<Rule>>) {
        let (mut loaded, mut acquire, mut newer) = (pin!(loaded), pin!(acquire), None);
        loop {
            tokio::select! {
                biased;
                told = &mut acquire => return (told, newer),
                () = &mut loaded => {
                    loaded.set(self.loaded.notified());
                    if let Ok(Asked { rule, key, .. }) = self.asked(target, 0) {
                        rule.meet(key, self.now());
                        newer = Some(rule);
                    }
                }
            }
        }
    }

    /// Gives a lease that has not lapsed a whole new ttl. Whether it had not.
    ///
    /// # Errors
    /// As [`Engine::acquire`], and when the text is no lease.
    pub async fn renew(&self, target: Target<'_>, lease: &str, now: Time) -> Result<bool, Mistake> {
        let Asked { rule, key, .. } = self.asked(target, 0)?;
        let done = rule.lender_of(key)?.renew(key, lease, now).await?;
        if done {
            lender::count(&rule.lease_tally().renewed);
        }
        Ok(done)
    }

    /// Returns a lease. Whether it had not lapsed.
    ///
    /// # Errors
    /// As [`Engine::renew`].
    pub async fn release(&self, target: Target<'_>, lease: &str, now: Time) -> Result<bool, Mistake> {
        let Asked { rule, key, .. } = self.asked(target, 0)?;
        let done = rule.lender_of(key)?.release(key, lease, now).await?;
        if done {
            lender::count(&rule.lease_tally().released);
        }
        Ok(done)
    }
}
