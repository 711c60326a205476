//! The verbs: calls to the engine by POST.

use super::super::Context;
use super::super::codec::{
    AnswerBody, CallBody, Done, Extra, Fields, NextBody, RateLimit, RequestBody, Usages,
};
use super::problem::{Rejection, denied, failed_closed, json};
use crate::engine::{Decided, Engine, Reason, RequestError, RuleCache, RuleCall, decide};
use crate::wire::span_of_millis;
use axum::http::StatusCode;
use axum::response::Response;
use sluicegate::{Span, Time};
use std::slice;

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
    Reset,
    Next,
    Usage,
    Acquire,
    Renew,
    Release,
}

impl VerbPath {
    pub(super) const ALL: [VerbPath; 13] = [
        VerbPath::Check,
        VerbPath::Peek,
        VerbPath::Take,
        VerbPath::Reserve,
        VerbPath::Refund,
        VerbPath::Cancel,
        VerbPath::Settle,
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
            VerbPath::Reserve | VerbPath::Acquire => {
                &["rule", "limit", "key", "key_base64", "cost", "max_wait_ms"]
            }
            VerbPath::Cancel => &["receipt"],
            VerbPath::Settle => &["receipt", "cost"],
            VerbPath::Reset | VerbPath::Next | VerbPath::Usage => &["rule", "limit", "key", "key_base64"],
            VerbPath::Renew | VerbPath::Release => &["rule", "limit", "key", "key_base64", "lease"],
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
        let body = RequestBody::read(body, self.path(), self.takes())?;
        let now = engine.now();
        let done = |done| json(StatusCode::OK, &Done { done });
        match self {
            VerbPath::Cancel => Ok(done(engine.cancel(body.receipt()?, now).await?)),
            VerbPath::Settle => {
                let used = body.call.cost.ok_or_else(|| {
                    RequestError::new("\"cost\" is missing; send the cost that was actually used")
                })?;
                Ok(done(engine.settle(body.receipt()?, engine.cost(used)?, now).await?))
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
                Some(checks) => all_or_nothing(engine, checks, now, enforce).await,
                None => check(engine, &body, now, enforce).await,
            },
            VerbPath::Peek | VerbPath::Take | VerbPath::Reserve | VerbPath::Refund => {
                let target = body.call.target()?;
                let call = engine.call(target.as_target(), cost(engine, &body.call)?)?;
                let (decided, extra) = self.decide(&body, &call, now).await?;
                Ok(respond(&decided, extra, slice::from_ref(&call), [decided], enforce))
            }
        }
    }

    async fn decide<'c>(
        self,
        body: &RequestBody,
        call: &'c RuleCall<'_>,
        now: Time,
    ) -> Result<(Decided<'c>, Extra<'static>), RequestError> {
        Ok(match self {
            VerbPath::Refund => (call.refund(now).await?, Extra::Nothing {}),
            VerbPath::Take => {
                let (decided, taken) = call.take(now).await?;
                (decided, Extra::Taken { taken })
            }
            VerbPath::Reserve => {
                let max_wait = span_of_millis(body.max_wait_ms.unwrap_or(0));
                let (decided, receipt) = call.reserve(max_wait, now).await?;
                (decided, Extra::Receipt { receipt })
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

async fn check(engine: &Engine, body: &RequestBody, now: Time, enforce: bool) -> Result<Response, Rejection> {
    let target = body.call.target()?;
    let max_wait = body.max_wait_ms.map(span_of_millis);
    let cost = cost(engine, &body.call)?;
    let call = engine.check(&mut RuleCache::default(), target.as_target(), cost, max_wait)?;
    let mut decided = None;
    decide(std::iter::once(&call), now, |answer| decided = Some(answer)).await;
    // There is one answer per call.
    let decided = decided.unwrap_or_else(|| Err(RequestError::unavailable("the store did not answer")))?;
    Ok(respond(&decided, Extra::Nothing {}, slice::from_ref(&call), [decided], enforce))
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
    let calls = slice::from_ref(leased.call());
    Ok(respond(&decided, Extra::Lease { lease: text }, calls, [decided], enforce))
}

async fn all_or_nothing(
    engine: &Engine,
    checks: &[CallBody],
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
    let (all, each) = engine.check_all(&calls, now).await?;
    let checks = each.iter().map(|decided| Fields::new(decided, &calls)).collect();
    Ok(respond(&all, Extra::Checks { checks }, &calls, each, enforce))
}

/// The response to a request that was decided, with its calls and their decisions.
fn respond<'c>(
    decided: &Decided<'c>,
    extra: Extra<'_>,
    calls: &'c [RuleCall<'_>],
    each: impl IntoIterator<Item = Decided<'c>>,
    enforce: bool,
) -> Response {
    let fields = RateLimit::of(calls.iter().zip(each));
    let answer = AnswerBody { fields: Fields::new(decided, calls), extra };
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
