//! A limiter whose keys live in a shared store: every answer is a trip there.

use super::{Answer, Ask, Backend, Decided, Step, Undecided, Used};
use crate::key::RequestKey;
use sluicegate::{Decision, Limit, Span};
use sluicegate_redis::{AskError, Receipt, RedisLimiter, Source};
use std::pin::Pin;
use std::sync::Arc;

/// A trip to the store.
type Trip<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Backend for RedisLimiter {
    type Held = Receipt;
    type Asking = Trip<Answer<Receipt>>;
    type Closing = Trip<Option<Decision>>;

    fn ask(&self, key: &RequestKey<'_>, ask: Ask) -> Step<Self::Asking> {
        let (limiter, key) = (self.clone(), key.to_bytes().into_owned());
        Step::Later(Box::pin(async move {
            match ask {
                Ask { cost, max_wait: None, hold: false, keep_back } => {
                    let told = limiter.check_cost(key, cost).await.map_err(AskError::Store);
                    let told = told.map_err(undecided)?;
                    let decided = decided(told.decision(), told.source(), None)?;
                    until_due(&decided.decision, keep_back).await;
                    Ok(decided)
                }
                Ask { cost, max_wait: Some(max_wait), hold: false, .. } => {
                    let turn = limiter.acquire_within(key, cost, max_wait).await.map_err(AskError::Store);
                    let turn = turn.map_err(undecided)?;
                    decided(turn.decision(), turn.source(), None)
                }
                Ask { hold: true, .. } => held(limiter, &key, ask).await,
            }
        }))
    }

    fn close(&self, receipt: Receipt, used: Used) -> Step<Self::Closing> {
        let Used::Only(used) = used else { return Step::Now(None) };
        let limiter = self.clone();
        Step::Later(Box::pin(async move {
            close(&limiter, &receipt, used).await;
            // How the key stands then would be another trip.
            None
        }))
    }

    fn close_unwatched(&self, receipt: Receipt, used: Used) {
        let Step::Later(closing) = self.close(receipt, used) else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(closing);
        } else {
            tracing::warn!("no runtime is left to tell the store what was used; the charge stays");
        }
    }

    fn limits(&self) -> Arc<[Limit]> {
        RedisLimiter::limits(self).into()
    }
}

/// The store's answer. One that the limiter gave itself because the store is away, and that says no, is no denial: nobody's
/// limit is used up.
fn decided(decision: Decision, source: Source, held: Option<Receipt>) -> Answer<Receipt> {
    if source == Source::Denied {
        return Err(Undecided::for_now("the store is away, and the limiter denies then"));
    }
    Ok(Decided { decision, held })
}

fn undecided(error: AskError) -> Undecided {
    match error {
        AskError::NotOffered(_) => Undecided::for_ever(format!(
            "what was charged under this limit cannot be given back: {error}; use another limit, or leave out `after` \
             and `charge_if`"
        )),
        error => Undecided::for_now(error.to_string()),
    }
}

/// A charge that can be changed, to act on after its delay.
async fn held(limiter: RedisLimiter, key: &[u8], ask: Ask) -> Answer<Receipt> {
    let max_wait = ask.max_wait.map_or(Span::ZERO, Span::from);
    let reservation = limiter.reserve(key, ask.cost, max_wait, None).await.map_err(undecided)?;
    let answer = reservation.answer;
    let decided = decided(answer.decision(), answer.source(), reservation.receipt)?;
    let mut waiting = Waiting { limiter, receipt: decided.held };
    until_due(&decided.decision, ask.keep_back).await;
    Ok(Decided { held: waiting.receipt.take(), ..decided })
}

/// What was allowed for later goes on then: a pacer's callers leave evenly spaced.
async fn until_due(decision: &Decision, keep_back: bool) {
    if keep_back && decision.delay() > Span::ZERO {
        tokio::time::sleep(decision.delay().into()).await;
    }
}

/// A request that has reserved its turn. If it gives up before that it leaves as if it had never come.
struct Waiting {
    limiter: RedisLimiter,
    receipt: Option<Receipt>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            self.limiter.close_unwatched(receipt, Used::Only(0));
        }
    }
}

async fn close(limiter: &RedisLimiter, receipt: &Receipt, used: u32) {
    let closed = match used {
        0 => limiter.cancel(receipt, None).await,
        used => limiter.settle(receipt, used, None).await,
    };
    if let Err(failure) = closed {
        tracing::warn!(%failure, "the store was not told what was used; the charge stays");
    }
}
