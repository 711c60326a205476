//! Reservations: `RL.RESERVE` and `RL.RESERVEALL` return a receipt, the other commands take one.

use super::super::codec::{Command, Replies, Shown};
use super::Context;
use super::arguments::{options, target, text, whole};
use super::limits::{DECISION, DECISION_ON_CALLS, calls, decision, decision_on_calls};
use super::rejection::Rejection;
use crate::engine::{DecidedAll, Engine, OPTION_WORDS, ReservedCall};
use crate::wire::span_of_millis;
use sluicegate::{CALLS_MAX, ReserveOptions, Ttl};

pub(super) async fn reserve(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    let [cost, at_least, max_wait, ttl, then] =
        options(command, 3, ["COST", "ATLEAST", "MAXWAIT", "TTL", "THEN"])?;
    if at_least.is_some() && max_wait.is_some() {
        return Err(Rejection::error(format_args!(
            "ATLEAST and MAXWAIT are both given; leave out one: a partial grant never waits"
        )));
    }
    let cost = cost.map_or(Ok(1), |cost| whole(cost, "cost"))?;
    let mut terms = terms(max_wait, ttl, then)?;
    terms.at_least = at_least.map(|least| whole(least, "ATLEAST")).transpose()?;
    let call = engine.call(target(command)?, cost)?;
    let ReservedCall { decided, receipt, granted } = call.reserve(&terms, now).await?;
    decision(&decided, DECISION + 2, replies);
    text_or_nil(receipt, replies);
    replies.integer(granted);
    Ok(())
}

pub(super) async fn reserve_all(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    // No rule is named like an option.
    let is_option = |place: &usize| OPTION_WORDS.iter().any(|word| is_word(command, *place, word));
    let end = (1..command.len()).step_by(3).find(is_option).unwrap_or(command.len());
    if end < 4 || end % 3 != 1 {
        return Err(Rejection::arity("RL.RESERVEALL"));
    }
    let [max_wait, ttl, then] = options(command, end, ["MAXWAIT", "TTL", "THEN"])?;
    let terms = terms(max_wait, ttl, then)?;
    let calls = calls(command, end, engine)?;
    let DecidedAll { all, receipt, .. } = engine.decide_all(&calls, Some(&terms), now).await?;
    decision_on_calls(&all, DECISION_ON_CALLS + 1, replies);
    text_or_nil(receipt, replies);
    Ok(())
}

pub(super) async fn cancel(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    let done = engine.cancel(&engine.receipt(receipt(command)?)?, now).await?;
    replies.integer(u8::from(done));
    Ok(())
}

pub(super) async fn settle(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    let used = numbers(command, command.len(), engine)?;
    let done = engine.settle(&engine.receipt(receipt(command)?)?, &used, now).await?;
    replies.integer(u8::from(done));
    Ok(())
}

pub(super) async fn extend(command: Command<'_>, context: Context<'_>) -> Result<(), Rejection> {
    let Context { now, service, replies, .. } = context;
    let engine = &*service.engine;
    let end = (2..command.len()).find(|place| is_word(command, *place, "TTL")).unwrap_or(command.len());
    if end == 2 {
        return Err(Rejection::arity("RL.EXTEND"));
    }
    let costs = numbers(command, end, engine)?;
    let [ttl] = options(command, end, ["TTL"])?;
    let ttl = ttl.map(|ttl| whole(ttl, "TTL")).transpose()?.map(span_of_millis);
    let receipt = engine.receipt(receipt(command)?)?;
    let calls = engine.receipt_calls(&receipt)?;
    let decided = engine.extend(&receipt, &calls, &costs, ttl, now).await?;
    decision_on_calls(&decided, DECISION_ON_CALLS, replies);
    Ok(())
}

/// Reads the options that every reservation takes.
fn terms(
    max_wait: Option<&[u8]>,
    ttl: Option<&[u8]>,
    then: Option<&[u8]>,
) -> Result<ReserveOptions, Rejection> {
    let mut terms = ReserveOptions::default();
    if let Some(max_wait) = max_wait {
        terms.max_wait = span_of_millis(whole(max_wait, "MAXWAIT")?);
    }
    let ttl = ttl.map(|ttl| whole(ttl, "TTL")).transpose()?.map(span_of_millis);
    terms.ttl = match (ttl, then) {
        (None, None) => None,
        (None, Some(_)) => {
            return Err(Rejection::error(format_args!(
                "THEN is given without TTL; write TTL ms THEN cancel"
            )));
        }
        (Some(length), None) => Some(Ttl::keep(length)),
        (Some(length), Some(word)) if word.eq_ignore_ascii_case(b"KEEP") => Some(Ttl::keep(length)),
        (Some(length), Some(word)) if word.eq_ignore_ascii_case(b"CANCEL") => Some(Ttl::cancel(length)),
        (Some(_), Some(word)) => {
            return Err(Rejection::error(format_args!(
                "unknown THEN \"{}\"; use keep or cancel",
                Shown(word)
            )));
        }
    };
    Ok(terms)
}

/// Reads the numbers after the receipt, until an argument.
fn numbers(command: Command<'_>, until: usize, engine: &Engine) -> Result<Vec<u64>, Rejection> {
    let count = until - 2;
    if count > CALLS_MAX {
        return Err(Rejection::error(format_args!(
            "{count} numbers are too many; send one for all calls of the receipt, or one for each"
        )));
    }
    let number = |argument| Ok(engine.cost(whole(argument, "cost")?)?);
    command.from(2).take(count).map(number).collect()
}

fn receipt(command: Command<'_>) -> Result<&str, Rejection> {
    text(command.get(1).unwrap_or_default(), "receipt")
}

/// Returns `true` if an argument is a word, in any case.
fn is_word(command: Command<'_>, place: usize, word: &str) -> bool {
    command.get(place).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
}

fn text_or_nil(text: Option<String>, replies: &mut Replies) {
    match text {
        Some(text) => replies.bulk(text.as_bytes()),
        None => replies.nil(),
    }
}
