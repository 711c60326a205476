//! `RL.*` and `CL.THROTTLE`: each command is one call to the engine.

use super::super::codec::{Command, Replies};
use super::Context;
use super::arguments::{integer, options, target, text, whole};
use super::rejection::Rejection;
use crate::engine::{
    Decided, DecidedAll, Engine, LimitUsage, RuleCache, RuleCall, RuleSpec, Target, Throttle, Throttled,
};
use crate::wire;
use sluicegate::{RetryAfter, Span, Window};

/// The number of items of a decision.
pub(super) const DECISION: usize = 7;
/// The number of items of a decision on several calls.
pub(super) const DECISION_ON_CALLS: usize = DECISION + 2;

pub(super) fn check<'a>(
    command: Command<'a>,
    engine: &Engine,
    cache: &mut RuleCache,
) -> Result<RuleCall<'a>, Rejection> {
    let target = target(command)?;
    let (cost, max_wait) = cost_and_max_wait(command, engine)?;
    Ok(engine.check(cache, target, cost, max_wait)?)
}

pub(super) fn throttle<'a>(
    command: Command<'a>,
    engine: &Engine,
    cache: &mut RuleCache,
) -> Result<RuleCall<'a>, Rejection> {
    let number = |place, what| integer(command.get(place).unwrap_or_default(), what);
    let throttle = Throttle {
        max_burst: number(2, "max_burst")?,
        count: number(3, "count")?,
        period_s: number(4, "period")?,
        quantity: if command.len() > 5 { number(5, "quantity")? } else { 1 },
    };
    Ok(engine.throttle(cache, command.get(1).unwrap_or_default(), &throttle)?)
}

/// Writes redis-cell's reply.
pub(super) fn throttled(decided: &Decided<'_>, replies: &mut Replies) {
    let throttled = Throttled::from(decided);
    replies.array(5);
    replies.integer(u8::from(throttled.limited));
    replies.integer(throttled.limit);
    replies.integer(throttled.remaining);
    replies.integer(throttled.retry_after_s);
    replies.integer(throttled.reset_after_s);
}

pub(super) async fn peek(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    let call = engine.call(target(command)?, cost(command, engine)?)?;
    decision(&call.peek(now).await?, DECISION, replies);
    Ok(())
}

pub(super) async fn refund(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    let call = engine.call(target(command)?, cost(command, engine)?)?;
    decision(&call.refund(now).await?, DECISION, replies);
    Ok(())
}

pub(super) async fn check_all(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    if command.len() % 3 != 1 {
        return Err(Rejection::arity("RL.CHECKALL"));
    }
    let calls = calls(command, command.len(), engine)?;
    let DecidedAll { all, .. } = engine.decide_all(&calls, None, now).await?;
    decision_on_calls(&all, DECISION_ON_CALLS, replies);
    Ok(())
}

pub(super) async fn take(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    let up_to = engine.cost(whole(command.get(3).unwrap_or_default(), "cost")?)?;
    let call = engine.call(target(command)?, up_to)?;
    let (decided, taken) = call.take(now).await?;
    decision(&decided, DECISION + 1, replies);
    replies.integer(taken);
    Ok(())
}

pub(super) async fn reset(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    context.service.engine.call(target(command)?, 0)?.reset().await?;
    context.replies.simple("OK");
    Ok(())
}

pub(super) async fn next(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    let next = engine.call(target(command)?, 0)?.next_window(now).await?;
    replies.integer(wire::unix_millis_up(next));
    Ok(())
}

pub(super) async fn usage(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let usages = service.engine.call(target(command)?, 0)?.usage(now).await?;
    replies.array(usages.len());
    for LimitUsage { text, usage } in usages {
        replies.array(7);
        replies.bulk(text.as_bytes());
        for number in [usage.limit, usage.used, usage.remaining, usage.reset_after.as_millis_up()] {
            // The largest integer of the protocol. Only centuries of debt exceed it.
            replies.integer(i64::try_from(number).unwrap_or(i64::MAX));
        }
        if let Some(Window { start, end }) = usage.window {
            replies.integer(wire::unix_millis_up(start));
            replies.integer(wire::unix_millis_up(end));
        } else {
            replies.nil();
            replies.nil();
        }
    }
    Ok(())
}

pub(super) fn rules(context: Context<'_>) {
    let Context { service, replies, .. } = context;
    let rules = service.engine.rules();
    replies.array(rules.iter().count());
    for rule in rules.iter() {
        let RuleSpec { name, limits, shadow, keys, .. } = rule.spec();
        replies.map(4);
        replies.bulk(b"name");
        replies.bulk(name.as_bytes());
        replies.bulk(b"limits");
        replies.array(limits.len());
        for limit in limits {
            replies.bulk(limit.to_string().as_bytes());
        }
        replies.bulk(b"shadow");
        replies.integer(u8::from(*shadow));
        replies.bulk(b"exceptions");
        replies.integer(keys.len());
    }
}

/// Reads `[COST n]` after rule and key; the default is 1.
fn cost(command: Command<'_>, engine: &Engine) -> Result<u64, Rejection> {
    if command.len() == 3 {
        return Ok(1);
    }
    let [cost] = options(command, 3, ["COST"])?;
    let cost = cost.map_or(Ok(1), |cost| whole(cost, "cost"))?;
    Ok(engine.cost(cost)?)
}

/// Reads `[COST n] [MAXWAIT ms]` after rule and key; the default cost is 1.
pub(super) fn cost_and_max_wait(
    command: Command<'_>,
    engine: &Engine,
) -> Result<(u64, Option<Span>), Rejection> {
    if command.len() == 3 {
        return Ok((1, None));
    }
    let [cost, max_wait] = options(command, 3, ["COST", "MAXWAIT"])?;
    let cost = cost.map_or(Ok(1), |cost| whole(cost, "cost"))?;
    let max_wait_ms = max_wait.map(|wait| whole(wait, "MAXWAIT")).transpose()?;
    Ok((engine.cost(cost)?, max_wait_ms.map(wire::span_of_millis)))
}

/// Reads `rule key cost` after the command's name, again and again until an argument.
pub(super) fn calls<'a>(
    command: Command<'a>,
    until: usize,
    engine: &Engine,
) -> Result<Vec<RuleCall<'a>>, Rejection> {
    let mut arguments = command.from(1).take(until - 1);
    let mut calls = Vec::with_capacity(until / 3);
    while let (Some(rule), Some(key), Some(cost)) = (arguments.next(), arguments.next(), arguments.next()) {
        let target = Target { rule: text(rule, "rule")?, key };
        calls.push(engine.call(target, engine.cost(whole(cost, "cost")?)?)?);
    }
    Ok(calls)
}

/// Writes the seven items of a decision. `items` is the length of the array: some commands add
/// others.
pub(super) fn decision(decided: &Decided<'_>, items: usize, replies: &mut Replies) {
    replies.array(items);
    replies.integer(u8::from(decided.allowed()));
    replies.integer(decided.limit());
    replies.integer(decided.remaining());
    match decided.retry_after() {
        None => replies.integer(-1),
        Some(RetryAfter::Never) => replies.integer(-2),
        Some(RetryAfter::After(wait)) => replies.integer(wait.as_millis_up()),
    }
    replies.integer(decided.reset_after().as_millis_up());
    replies.integer(decided.delay().as_millis_up());
    match decided.denied_by() {
        None => replies.nil(),
        Some(limit) => replies.bulk(limit.as_bytes()),
    }
}

/// Writes a decision, and the rule and the index of the call that was denied.
pub(super) fn decision_on_calls(decided: &Decided<'_>, items: usize, replies: &mut Replies) {
    decision(decided, items, replies);
    let denied = decided.denied_call().zip(decided.denied_rule()).filter(|_| !decided.allowed());
    if let Some((index, rule)) = denied {
        replies.bulk(rule.as_bytes());
        replies.integer(index);
    } else {
        replies.nil();
        replies.nil();
    }
}
