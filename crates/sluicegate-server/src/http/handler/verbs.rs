//! The verbs: calls to the engine by POST.

use super::super::Context;
use super::super::codec::{
    AnswerBody, CallBody, CallState, Done, Extra, Fields, NextBody, RateLimit, RequestBody, Usages,
};
use super::problem::{Rejection, denied, failed_closed, json};
use crate::engine::{
    Decided, DecidedAll, Engine, Reason, RequestError, ReservedCall, RuleCache, RuleCall, Source, decide,
};
use crate::wire::span_of_millis;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::future::join_all;
use sluicegate::{ReserveOptions, Span, Time};

/// A path under `/v1/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum VerbPath {
    Check,
    Peek,
    Take,
    Reserve,
    Refund,
    Cancel,
    Settle,
    Extend,
    Reset,
    Next,
    Usage,
    Acquire,
    Renew,
    Release,
}

impl VerbPath {
    pub(super) const ALL: [VerbPath; 14] = [
        VerbPath::Check,
        VerbPath::Peek,
        VerbPath::Take,
        VerbPath::Reserve,
        VerbPath::Refund,
        VerbPath::Cancel,
        VerbPath::Settle,
        VerbPath::Extend,
        VerbPath::Reset,
        VerbPath::Next,
        VerbPath::Usage,
        VerbPath::Acquire,
        VerbPath::Renew,
        VerbPath::Release,
    ];

    pub(super) const fn path(self) -> &'static str {
        match self {
            VerbPath::Check => "/v1/check",
            VerbPath::Peek => "/v1/peek",
            VerbPath::Take => "/v1/take",
            VerbPath::Reserve => "/v1/reserve",
            VerbPath::Refund => "/v1/refund",
            VerbPath::Cancel => "/v1/cancel",
            VerbPath::Settle => "/v1/settle",
            VerbPath::Extend => "/v1/extend",
            VerbPath::Reset => "/v1/reset",
            VerbPath::Next => "/v1/next",
            VerbPath::Usage => "/v1/usage",
            VerbPath::Acquire => "/v1/acquire",
            VerbPath::Renew => "/v1/renew",
            VerbPath::Release => "/v1/release",
        }
    }

    /// The fields of its body.
    pub(super) const fn takes(self) -> &'static [&'static str] {
        match self {
            VerbPath::Check => &["rule", "limit", "key", "key_base64", "cost", "max_wait_ms", "checks"],
            VerbPath::Peek | VerbPath::Take | VerbPath::Refund => {
                &["rule", "limit", "key", "key_base64", "cost"]
            }
            VerbPath::Reserve => &[
                "rule",
                "limit",
                "key",
                "key_base64",
                "cost",
                "at_least",
                "max_wait_ms",
                "ttl_ms",
                "then",
                "checks",
            ],
            VerbPath::Acquire => &["rule", "limit", "key", "key_base64", "cost", "max_wait_ms"],
            VerbPath::Cancel => &["receipt"],
            VerbPath::Settle => &["receipt", "cost", "costs"],
            VerbPath::Extend => &["receipt", "cost", "costs", "ttl_ms"],
            VerbPath::Reset | VerbPath::Next | VerbPath::Usage => &["rule", "limit", "key", "key_base64"],
            VerbPath::Renew | VerbPath::Release => &["rule", "limit", "key", "key_base64", "lease"],
        }
    }

    /// The fields of its body if one of them is `checks`.
    const fn takes_with_checks(self) -> &'static [&'static str] {
        match self {
            VerbPath::Reserve => &["checks", "max_wait_ms", "ttl_ms", "then"],
            _ => &["checks"],
        }
    }

    /// Answers a request with this body.
    pub(super) async fn answer(
        self,
        context: &Context,
        body: &[u8],
        enforce: bool,
    ) -> Result<Response, Rejection> {
        let engine = &*context.service.engine;
        let body = RequestBody::read(body, self.path(), (self.takes(), self.takes_with_checks()))?;
        let now = engine.now();
        let done = |done| json(StatusCode::OK, &Done { done });
        match self {
            VerbPath::Cancel => Ok(done(engine.cancel(&engine.receipt(body.receipt()?)?, now).await?)),
            VerbPath::Settle => {
                let used = costs(engine, &body, "the cost that was actually used")?;
                Ok(done(engine.settle(&engine.receipt(body.receipt()?)?, used, now).await?))
            }
            VerbPath::Extend => {
                let costs = costs(engine, &body, "the cost to add")?;
                let receipt = engine.receipt(body.receipt()?)?;
                let calls = engine.receipt_calls(&receipt)?;
                let decided = engine.extend(&receipt, &calls, costs, body.ttl(), now).await?;
                let calls = calls.iter().enumerate().filter_map(|(index, call)| {
                    // The decision is on all calls; if they are denied, on one of them.
                    let is_its_own = calls.len() == 1 || decided.denied_call() == Some(index);
                    Some((call.as_ref()?, is_its_own.then_some(decided)))
                });
                Ok(respond(&decided, Extra::Nothing {}, calls, (now, enforce)).await)
            }
            VerbPath::Reset => {
                engine.call(body.call.target()?.as_target(), 0)?.reset().await?;
                Ok(done(true))
            }
            VerbPath::Next => {
                let target = body.call.target()?;
                let next = engine.call(target.as_target(), 0)?.next_window(now).await?;
                Ok(json(StatusCode::OK, &NextBody::from(next)))
            }
            VerbPath::Usage => {
                let target = body.call.target()?;
                let limits = engine.call(target.as_target(), 0)?.usage(now).await?;
                Ok(json(StatusCode::OK, &Usages::from(limits)))
            }
            VerbPath::Renew => {
                let target = body.call.target()?;
                Ok(done(engine.renew(target.as_target(), body.lease()?, now).await?))
            }
            VerbPath::Release => {
                let target = body.call.target()?;
                Ok(done(engine.release(target.as_target(), body.lease()?, now).await?))
            }
            VerbPath::Acquire => acquire(context, &body, now, enforce).await,
            VerbPath::Check => match &body.checks {
                Some(checks) => all_or_nothing(engine, checks, None, now, enforce).await,
                None => check(engine, &body, now, enforce).await,
            },
            VerbPath::Reserve => {
                let options = body.reserve_options()?;
                match &body.checks {
                    Some(checks) => all_or_nothing(engine, checks, Some(&options), now, enforce).await,
                    None => reserve(engine, &body, &options, now, enforce).await,
                }
            }
            VerbPath::Peek | VerbPath::Take | VerbPath::Refund => {
                let target = body.call.target()?;
                let call = engine.call(target.as_target(), cost(engine, &body.call)?)?;
                let (decided, extra) = self.decide(&call, now).await?;
                Ok(respond(&decided, extra, [(&call, Some(decided))], (now, enforce)).await)
            }
        }
    }

    async fn decide<'c>(
        self,
        call: &'c RuleCall<'_>,
        now: Time,
    ) -> Result<(Decided<'c>, Extra<'static>), RequestError> {
        Ok(match self {
            VerbPath::Refund => (call.refund(now).await?, Extra::Nothing {}),
            VerbPath::Take => {
                let (decided, taken) = call.take(now).await?;
                (decided, Extra::Taken { taken })
            }
            // A peek. The other verbs are answered above.
            _ => (call.peek(now).await?, Extra::Nothing {}),
        })
    }
}

/// The cost of a call; 1 by default.
fn cost(engine: &Engine, call: &CallBody) -> Result<u64, RequestError> {
    engine.cost(call.cost.unwrap_or(1))
}

/// The numbers for the calls of a receipt; `what` they are, for an error.
fn costs<'b>(engine: &Engine, body: &'b RequestBody, what: &str) -> Result<&'b [u64], RequestError> {
    let costs = body.costs(what)?;
    costs.iter().try_for_each(|cost| engine.cost(*cost).map(|_| ()))?;
    Ok(costs)
}

async fn check(engine: &Engine, body: &RequestBody, now: Time, enforce: bool) -> Result<Response, Rejection> {
    let target = body.call.target()?;
    let max_wait = body.max_wait_ms.map(span_of_millis);
    let cost = cost(engine, &body.call)?;
    let call = engine.check(&mut RuleCache::default(), target.as_target(), cost, max_wait)?;
    let mut decided = None;
    decide(std::iter::once(&call), now, |answer| decided = Some(answer)).await;
    // There is one answer per call.
    let decided = decided.unwrap_or_else(|| Err(RequestError::unavailable("the store did not answer")))?;
    Ok(respond(&decided, Extra::Nothing {}, [(&call, Some(decided))], (now, enforce)).await)
}

async fn reserve(
    engine: &Engine,
    body: &RequestBody,
    options: &ReserveOptions,
    now: Time,
    enforce: bool,
) -> Result<Response, Rejection> {
    let target = body.call.target()?;
    let call = engine.call(target.as_target(), cost(engine, &body.call)?)?;
    let ReservedCall { decided, receipt, granted } = call.reserve(options, now).await?;
    let extra = Extra::Reserved { receipt, granted };
    Ok(respond(&decided, extra, [(&call, Some(decided))], (now, enforce)).await)
}

async fn acquire(
    context: &Context,
    body: &RequestBody,
    now: Time,
    enforce: bool,
) -> Result<Response, Rejection> {
    let service = &context.service;
    let engine = &*service.engine;
    let target = body.call.target()?;
    let (target, cost) = (target.as_target(), cost(engine, &body.call)?);
    let max_wait = service.limits.wait_for_lease(span_of_millis(body.max_wait_ms.unwrap_or(0)))?;
    let waits = max_wait > Span::ZERO;
    if waits {
        context.progress.waits_for_lease();
    }
    let leased = tokio::select! {
        biased;
        // A call that does not wait is answered even if the server stops.
        leased = Box::pin(engine.acquire(target, cost, max_wait, now)) => Some(leased),
        () = service.stopped(), if waits => None,
    };
    if waits {
        // Time in the queue is not time spent by the server.
        context.progress.request_received();
    }
    let mut leased = match leased {
        Some(leased) => leased?,
        None => Box::pin(engine.acquire(target, cost, Span::ZERO, engine.now())).await?,
    };
    let lease = leased.lease.take();
    let text = lease.as_ref().map(|lease| lease.text().to_owned());
    if let Some(lease) = lease {
        context.progress.add_undelivered(lease, waits);
    }
    let decided = leased.decided();
    let calls = [(leased.call(), Some(decided))];
    Ok(respond(&decided, Extra::Lease { lease: text }, calls, (now, enforce)).await)
}

async fn all_or_nothing(
    engine: &Engine,
    checks: &[CallBody],
    options: Option<&ReserveOptions>,
    now: Time,
    enforce: bool,
) -> Result<Response, Rejection> {
    if checks.is_empty() {
        return Err(RequestError::new("\"checks\" is empty; send at least one check").into());
    }
    let targets = checks.iter().map(CallBody::target).collect::<Result<Vec<_>, _>>()?;
    let calls = targets.iter().zip(checks).map(|(target, check)| {
        let cost = cost(engine, check)?;
        engine.call(target.as_target(), cost)
    });
    let calls = calls.collect::<Result<Vec<RuleCall<'_>>, RequestError>>()?;
    let DecidedAll { all, each, receipt } = engine.decide_all(&calls, options, now).await?;
    let checks = each.iter().map(Fields::new).collect();
    let extra = match options {
        Some(_) => Extra::ReservedAll { receipt, checks },
        None => Extra::Checks { checks },
    };
    let calls = calls.iter().zip(each.into_iter().map(Some));
    Ok(respond(&all, extra, calls, (now, enforce)).await)
}

/// The response to a request that was decided; its calls, and the decision on each of them alone if
/// there is one.
async fn respond<'c>(
    decided: &Decided<'c>,
    extra: Extra<'_>,
    calls: impl IntoIterator<Item = (&'c RuleCall<'c>, Option<Decided<'c>>)>,
    (now, enforce): (Time, bool),
) -> Response {
    let states = calls.into_iter().map(|(call, decided)| call_state(call, decided, now));
    let fields = RateLimit::of(&join_all(states).await);
    let answer = AnswerBody { fields: Fields::new(decided), extra };
    let mut response = if !enforce || decided.allowed() {
        json(StatusCode::OK, &answer)
    } else if decided.reason() == Some(Reason::StoreFailed) {
        failed_closed(&answer)
    } else {
        denied(&answer.fields, &answer, &fields.violated)
    };
    fields.write(decided, response.headers_mut());
    response
}

/// What the header fields say about a call. The decision on it has the state of one limit: if there
/// are others, they are looked up, unless a shared store gave no answer just now or was not asked.
async fn call_state<'c>(call: &'c RuleCall<'c>, decided: Option<Decided<'c>>, now: Time) -> CallState<'c> {
    let is_known = decided.is_some_and(|decided| {
        let source = decided.answer().source();
        call.limit_list().len() < 2 || source.is_fallback() || source == Source::Remembered
    });
    let usages = if is_known { None } else { call.usage(now).await.ok() };
    CallState { call, decided, usages: usages.unwrap_or_default() }
}
