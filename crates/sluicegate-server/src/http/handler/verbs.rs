//! What can be asked of the engine by POST, and how it is answered.

use super::super::Context;
use super::super::codec::{Answer, Asked, Besides, Call, Caller, Decided, Done, Fields, Next, RateLimit};
use super::problem::{Refusal, denied, denied_without_store, json};
use crate::engine::{Engine, Leased, Mistake, Part, Reason, Recent, Rule, Verdict};
use crate::wire::span_of_millis;
use axum::http::StatusCode;
use axum::response::Response;
use sluicegate::{Span, Time};
use std::sync::Arc;

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
    ) -> Result<Response, Refusal> {
        let engine = &*context.service.engine;
        let asked = Asked::read(body, self.path(), self.takes())?;
        let now = engine.now();
        let done = |done| json(StatusCode::OK, &Done { done });
        match self {
            Verb::Cancel => Ok(done(engine.cancel(asked.receipt()?, now).await?)),
            Verb::Settle => {
                let used =
                    asked.call.cost.ok_or_else(|| Mistake::new("say how much was really used: \"cost\""))?;
                Ok(done(engine.settle(asked.receipt()?, engine.cost(used)?, now).await?))
            }
            Verb::Reset => {
                engine.reset(asked.call.caller()?.target()).await?;
                Ok(done(true))
            }
            Verb::Next => {
                let next = engine.next_window(asked.call.caller()?.target(), now).await?;
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
                let called = Called::of(engine, &asked.call)?;
                let (verdict, besides) = self.decide(engine, &asked, &called, now).await?;
                Ok(decided(&verdict, besides, &[called.decided(&verdict)], enforce))
            }
        }
    }

    async fn decide(
        self,
        engine: &Engine,
        asked: &Asked,
        called: &Called,
        now: Time,
    ) -> Result<(Verdict, Besides<'static>), Mistake> {
        let (target, cost) = (called.caller.target(), called.cost);
        Ok(match self {
            Verb::Refund => (engine.refund(target, cost, now).await?, Besides::Nothing {}),
            Verb::Take => {
                let (verdict, taken) = engine.take(target, cost, now).await?;
                (verdict, Besides::Taken { taken })
            }
            Verb::Reserve => {
                let max_wait = span_of_millis(asked.max_wait_ms.unwrap_or(0));
                let (verdict, receipt) = engine.reserve(target, cost, max_wait, now).await?;
                (verdict, Besides::Receipt { receipt })
            }
            // A peek; the other verbs have answers of their own kind and do not come here.
            _ => (engine.peek(target, cost, now).await?, Besides::Nothing {}),
        })
    }
}

/// A call whose rule has been found.
///
/// The engine finds the rule again when it decides. If it was changed in between, the verdict is the new rule's and the
/// header fields tell the limits of the old one: as true as an answer that was made a moment before the change, and
/// nothing is charged by them. A plain check, which most ask, goes another way and finds its rule once.
struct Called {
    caller: Caller,
    cost: u32,
    rule: Arc<Rule>,
}

impl Called {
    fn of(engine: &Engine, call: &Call) -> Result<Called, Mistake> {
        let caller = call.caller()?;
        let cost = engine.cost(call.cost.unwrap_or(1))?;
        let rule = engine.find(caller.target().rule)?;
        Ok(Called { caller, cost, rule })
    }

    fn decided<'a>(&'a self, verdict: &'a Verdict) -> Decided<'a> {
        Decided { rule: &self.rule, key: self.caller.target().key, verdict }
    }
}

async fn check(engine: &Engine, asked: &Asked, now: Time, enforce: bool) -> Result<Response, Refusal> {
    let caller = asked.call.caller()?;
    let target = caller.target();
    let cost = engine.cost(asked.call.cost.unwrap_or(1))?;
    let max_wait = asked.max_wait_ms.map(span_of_millis);
    let prepared = engine.prepare(&mut Recent::default(), target, cost, max_wait)?;
    let verdict = engine.decide(&prepared, now).await?;
    let each = Decided { rule: prepared.rule(), key: target.key, verdict: &verdict };
    Ok(decided(&verdict, Besides::Nothing {}, &[each], enforce))
}

async fn acquire(context: &Context, asked: &Asked, now: Time, enforce: bool) -> Result<Response, Refusal> {
    let service = &context.service;
    let engine = &*service.engine;
    let called = Called::of(engine, &asked.call)?;
    let (target, cost) = (called.caller.target(), called.cost);
    let max_wait = service.limits.wait_for_lease(span_of_millis(asked.max_wait_ms.unwrap_or(0)))?;
    let waits = max_wait > Span::ZERO;
    if waits {
        context.progress.stands_in_line();
    }
    let in_line = tokio::select! {
        biased;
        // Who does not wait is answered, also when the server stops.
        leased = Box::pin(engine.acquire(target, cost, max_wait, now)) => Some(leased),
        () = service.stopped(), if waits => None,
    };
    if waits {
        // Standing in line is no work of ours.
        context.progress.has_asked();
    }
    let Leased { verdict, lease } = match in_line {
        Some(leased) => leased?,
        None => Box::pin(engine.acquire(target, cost, Span::ZERO, engine.now())).await?,
    };
    let text = lease.as_ref().map(|lease| lease.text().to_owned());
    if let Some(lease) = lease {
        context.progress.owes(lease, waits);
    }
    Ok(decided(&verdict, Besides::Lease { lease: text }, &[called.decided(&verdict)], enforce))
}

async fn all_or_nothing(
    engine: &Engine,
    checks: &[Call],
    now: Time,
    enforce: bool,
) -> Result<Response, Refusal> {
    if checks.is_empty() {
        return Err(Mistake::new("\"checks\" is empty; ask at least one").into());
    }
    let called: Vec<Called> =
        checks.iter().map(|check| Called::of(engine, check)).collect::<Result<_, _>>()?;
    let parts: Vec<Part<'_>> =
        called.iter().map(|called| Part { target: called.caller.target(), cost: called.cost }).collect();
    let (verdict, verdicts) = engine.check_all(&parts, now).await?;
    let besides = Besides::Checks { checks: verdicts.iter().map(Fields::from).collect() };
    let each: Vec<_> =
        called.iter().zip(&verdicts).map(|(called, verdict)| called.decided(verdict)).collect();
    Ok(decided(&verdict, besides, &each, enforce))
}

/// The answer to a question that was decided; `each` are the calls it was made of.
fn decided(verdict: &Verdict, besides: Besides<'_>, each: &[Decided<'_>], enforce: bool) -> Response {
    let fields = RateLimit::of(each);
    let answer = Answer { fields: verdict.into(), besides };
    let mut response = if !enforce || verdict.allowed {
        json(StatusCode::OK, &answer)
    } else if verdict.reason == Some(Reason::StoreFailed) {
        denied_without_store(&answer)
    } else {
        denied(&answer.fields, &answer, &fields.violated)
    };
    fields.write(verdict, response.headers_mut());
    response
}
