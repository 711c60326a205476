//! What can be asked of the engine by POST, and how it is answered.

use super::super::Context;
use super::super::codec::{Answer, Asked, Besides, Call as CallBody, Done, Fields, Next, RateLimit};
use super::problem::{Rejection, denied, denied_without_store, json};
use crate::engine::{Call, Decided, Engine, Reason, RequestError, RuleCache, decide};
use crate::wire::span_of_millis;
use axum::http::StatusCode;
use axum::response::Response;
use sluicegate::{Span, Time};

/// A path under `/v1/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Check,
    Peek,
    Take,
    Reserve,
    Refund,
    Cancel,
    Settle,
    Reset,
    Next,
    Acquire,
    Renew,
    Release,
}

impl Verb {
    pub(super) const ALL: [Verb; 12] = [
        Verb::Check,
        Verb::Peek,
        Verb::Take,
        Verb::Reserve,
        Verb::Refund,
        Verb::Cancel,
        Verb::Settle,
        Verb::Reset,
        Verb::Next,
        Verb::Acquire,
        Verb::Renew,
        Verb::Release,
    ];

    pub(super) const fn path(self) -> &'static str {
        match self {
            Verb::Check => "/v1/check",
            Verb::Peek => "/v1/peek",
            Verb::Take => "/v1/take",
            Verb::Reserve => "/v1/reserve",
            Verb::Refund => "/v1/refund",
            Verb::Cancel => "/v1/cancel",
            Verb::Settle => "/v1/settle",
            Verb::Reset => "/v1/reset",
            Verb::Next => "/v1/next",
            Verb::Acquire => "/v1/acquire",
            Verb::Renew => "/v1/renew",
            Verb::Release => "/v1/release",
        }
    }

    /// The fields of its body.
    pub(super) const fn takes(self) -> &'static [&'static str] {
        match self {
            Verb::Check => &["rule", "limit", "key", "key_base64", "cost", "max_wait_ms", "checks"],
            Verb::Peek | Verb::Take | Verb::Refund => &["rule", "limit", "key", "key_base64", "cost"],
            Verb::Reserve | Verb::Acquire => &["rule", "limit", "key", "key_base64", "cost", "max_wait_ms"],
            Verb::Cancel => &["receipt"],
            Verb::Settle => &["receipt", "cost"],
            Verb::Reset | Verb::Next => &["rule", "limit", "key", "key_base64"],
            Verb::Renew | Verb::Release => &["rule", "limit", "key", "key_base64", "lease"],
        }
    }

    /// Asks the engine what a body says.
    pub(super) async fn answer(
        self,
        context: &Context,
        body: &[u8],
        enforce: bool,
    ) -> Result<Response, Rejection> {
        let engine = &*context.service.engine;
        let asked = Asked::read(body, self.path(), self.takes())?;
        let now = engine.now();
        let done = |done| json(StatusCode::OK, &Done { done });
        match self {
            Verb::Cancel => Ok(done(engine.cancel(asked.receipt()?, now).await?)),
            Verb::Settle => {
                let used = asked
                    .call
                    .cost
                    .ok_or_else(|| RequestError::new("say how much was really used: \"cost\""))?;
                Ok(done(engine.settle(asked.receipt()?, engine.cost(used)?, now).await?))
            }
            Verb::Reset => {
                engine.call(asked.call.caller()?.target(), 0)?.reset().await?;
                Ok(done(true))
            }
            Verb::Next => {
                let caller = asked.call.caller()?;
                let next = engine.call(caller.target(), 0)?.next_window(now).await?;
                Ok(json(StatusCode::OK, &Next::from(next)))
            }
            Verb::Renew => {
                let caller = asked.call.caller()?;
                Ok(done(engine.renew(caller.target(), asked.lease()?, now).await?))
            }
            Verb::Release => {
                let caller = asked.call.caller()?;
                Ok(done(engine.release(caller.target(), asked.lease()?, now).await?))
            }
            Verb::Acquire => acquire(context, &asked, now, enforce).await,
            Verb::Check => match &asked.checks {
                Some(checks) => all_or_nothing(engine, checks, now, enforce).await,
                None => check(engine, &asked, now, enforce).await,
            },
            Verb::Peek | Verb::Take | Verb::Reserve | Verb::Refund => {
                let caller = asked.call.caller()?;
                let call = engine.call(caller.target(), cost(engine, &asked.call)?)?;
                let (decided, besides) = self.decide(&asked, &call, now).await?;
                Ok(respond(&decided, besides, [(&call, decided)], enforce))
            }
        }
    }

    async fn decide<'c>(
        self,
        asked: &Asked,
        call: &'c Call<'_>,
        now: Time,
    ) -> Result<(Decided<'c>, Besides<'static>), RequestError> {
        Ok(match self {
            Verb::Refund => (call.refund(now).await?, Besides::Nothing {}),
            Verb::Take => {
                let (decided, taken) = call.take(now).await?;
                (decided, Besides::Taken { taken })
            }
            Verb::Reserve => {
                let max_wait = span_of_millis(asked.max_wait_ms.unwrap_or(0));
                let (decided, receipt) = call.reserve(max_wait, now).await?;
                (decided, Besides::Receipt { receipt })
            }
            // A peek; the other verbs have answers of their own kind and do not come here.
            _ => (call.peek(now).await?, Besides::Nothing {}),
        })
    }
}

/// The cost of a call; 1 by default.
fn cost(engine: &Engine, call: &CallBody) -> Result<u64, RequestError> {
    engine.cost(call.cost.unwrap_or(1))
}

async fn check(engine: &Engine, asked: &Asked, now: Time, enforce: bool) -> Result<Response, Rejection> {
    let caller = asked.call.caller()?;
    let max_wait = asked.max_wait_ms.map(span_of_millis);
    let cost = cost(engine, &asked.call)?;
    let call = engine.check(&mut RuleCache::default(), caller.target(), cost, max_wait)?;
    let mut decided = None;
    decide(std::iter::once(&call), now, |answer| decided = Some(answer)).await;
    // One call has one answer.
    let decided = decided.unwrap_or_else(|| Err(RequestError::unavailable("the store gave no answer")))?;
    Ok(respond(&decided, Besides::Nothing {}, [(&call, decided)], enforce))
}

async fn acquire(context: &Context, asked: &Asked, now: Time, enforce: bool) -> Result<Response, Rejection> {
    let service = &context.service;
    let engine = &*service.engine;
    let caller = asked.call.caller()?;
    let (target, cost) = (caller.target(), cost(engine, &asked.call)?);
    let max_wait = service.limits.wait_for_lease(span_of_millis(asked.max_wait_ms.unwrap_or(0)))?;
    let waits = max_wait > Span::ZERO;
    if waits {
        context.progress.stands_in_line();
    }
    let leased = tokio::select! {
        biased;
        // A call that does not wait is answered, also when the server stops.
        leased = Box::pin(engine.acquire(target, cost, max_wait, now)) => Some(leased),
        () = service.stopped(), if waits => None,
    };
    if waits {
        // The time in the queue is no work of ours.
        context.progress.has_asked();
    }
    let mut leased = match leased {
        Some(leased) => leased?,
        None => Box::pin(engine.acquire(target, cost, Span::ZERO, engine.now())).await?,
    };
    let lease = leased.lease.take();
    let text = lease.as_ref().map(|lease| lease.text().to_owned());
    if let Some(lease) = lease {
        context.progress.owes(lease, waits);
    }
    let decided = leased.decided();
    Ok(respond(&decided, Besides::Lease { lease: text }, [(leased.call(), decided)], enforce))
}

async fn all_or_nothing(
    engine: &Engine,
    checks: &[CallBody],
    now: Time,
    enforce: bool,
) -> Result<Response, Rejection> {
    if checks.is_empty() {
        return Err(RequestError::new("\"checks\" is empty; ask at least one").into());
    }
    let callers = checks.iter().map(CallBody::caller).collect::<Result<Vec<_>, _>>()?;
    let calls = callers.iter().zip(checks).map(|(caller, check)| {
        let cost = cost(engine, check)?;
        engine.call(caller.target(), cost)
    });
    let calls = calls.collect::<Result<Vec<Call<'_>>, RequestError>>()?;
    let (all, each) = engine.check_all(&calls, now).await?;
    let besides = Besides::Checks { checks: each.iter().map(Fields::from).collect() };
    Ok(respond(&all, besides, calls.iter().zip(each), enforce))
}

/// The response to a request that was decided; `each` are the calls it was made of.
fn respond<'c>(
    decided: &Decided<'c>,
    besides: Besides<'_>,
    each: impl IntoIterator<Item = (&'c Call<'c>, Decided<'c>)>,
    enforce: bool,
) -> Response {
    let fields = RateLimit::of(each.into_iter());
    let answer = Answer { fields: decided.into(), besides };
    let mut response = if !enforce || decided.allowed() {
        json(StatusCode::OK, &answer)
    } else if decided.reason() == Some(Reason::StoreFailed) {
        denied_without_store(&answer)
    } else {
        denied(&answer.fields, &answer, &fields.violated)
    };
    fields.write(decided, response.headers_mut());
    response
}
