//! What scripts reply, read with suspicion: a server can be anything.

use crate::failure::StoreFailure;
use crate::shape::Told;
use redis::Value;
use sluicegate::Time;

/// What came of a trip.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// It was decided, at that time.
    Done {
        /// Allowed, or whatever the verb says with 1.
        yes: bool,
        now: Time,
        told: Vec<Told>,
    },
    /// The state at a place is written in other numbers. Nothing was done.
    Other { now: Time, state: Vec<u8>, place: usize },
    /// The windows of a calendar are needed for that time. Nothing was done.
    Ask { now: Time },
    /// The key has as many open receipts as it may. Nothing was done.
    Full,
}

impl Reply {
    pub(crate) fn read(value: Value) -> Result<Reply, StoreFailure> {
        read(value).ok_or_else(|| {
            StoreFailure::Garbled(String::from(
                "it is not one of our script's; is something else listening there?",
            ))
        })
    }
}

fn read(value: Value) -> Option<Reply> {
    let items = match value {
        Value::BulkString(text) => return one_text(&text),
        Value::Array(items) => items,
        _ => return None,
    };
    let mut items = items.into_iter();
    let (code, now) = (items.next()?, time(&items.next()?)?);
    let yes = match code {
        Value::Int(1) => true,
        Value::Int(0) => false,
        Value::BulkString(word) => {
            return match word.as_slice() {
                b"ask" => Some(Reply::Ask { now }),
                b"full" => Some(Reply::Full),
                b"other" => {
                    let Value::BulkString(state) = items.next()? else { return None };
                    // Of a single limit the place goes without saying.
                    let place = match items.next() {
                        Some(Value::Int(place)) => usize::try_from(place).ok()?.checked_sub(1)?,
                        _ => 0,
                    };
                    Some(Reply::Other { now, state, place })
                }
                _ => None,
            };
        }
        _ => return None,
    };
    let told = items.map(told).collect::<Option<Vec<Told>>>()?;
    Some(Reply::Done { yes, now, told })
}

/// The reply of a check under one limit: what came of it, seconds, microseconds, and the state.
fn one_text(text: &[u8]) -> Option<Reply> {
    let (code, rest) = text.split_first()?;
    let mut parts = rest.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let now = number()?.checked_mul(1_000_000)?.checked_add(number()?)?;
    let (now, state) = (Time::from_micros(now)?, parts.next()?);
    let told = || vec![if state.is_empty() { Told::Nothing } else { Told::State(state.to_vec()) }];
    match code {
        b'1' => Some(Reply::Done { yes: true, now, told: told() }),
        b'0' => Some(Reply::Done { yes: false, now, told: told() }),
        b'o' => Some(Reply::Other { now, state: state.to_vec(), place: 0 }),
        b'a' => Some(Reply::Ask { now }),
        _ => None,
    }
}

fn told(value: Value) -> Option<Told> {
    match value {
        Value::Nil => Some(Told::Nothing),
        Value::BulkString(bytes) => Some(Told::State(bytes)),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn time(value: &Value) -> Option<Time> {
    number(value).and_then(Time::from_micros)
}
