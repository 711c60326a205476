//! Parses the replies of the limiter scripts.
//!
//! A reply is not trusted: anything may be listening at the store's address.

use crate::encode::RawState;
use redis::Value;
use sluicegate::Time;
use sluicegate::backend::StoreFailure;

/// The reply of a limiter script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ScriptReply {
    /// The call was decided at `now`.
    Decided {
        /// `true` if the call is allowed, or the verb succeeded.
        success: bool,
        now: Time,
        /// The state under each limit before the call.
        states: Vec<RawState>,
    },
    /// The state under the limit at `index` was written for another limit. Nothing was done.
    OtherLimit { now: Time, state: Vec<u8>, index: usize },
    /// The calendar windows around `now` are needed. Nothing was done.
    NeedsWindows { now: Time },
    /// The key has too many open receipts. Nothing was done.
    TooManyReceipts,
    /// Receipts may have expired. Nothing was done.
    Due,
    /// More receipts have expired than one call can close. The call has not been decided.
    Again,
    /// The receipt to extend is not open. Nothing was done.
    NotOpen,
}

impl ScriptReply {
    pub(crate) fn read(value: Value) -> Result<ScriptReply, StoreFailure> {
        read(value).ok_or_else(|| {
            StoreFailure::BadReply(String::from(
                "the reply is not one of our scripts'; check that the address is that of a Redis or Valkey",
            ))
        })
    }
}

fn read(value: Value) -> Option<ScriptReply> {
    let items = match value {
        Value::BulkString(text) => return one_text(&text),
        Value::Array(items) => items,
        _ => return None,
    };
    let mut items = items.into_iter();
    let (code, now) = (items.next()?, time(&items.next()?)?);
    let success = match code {
        Value::Int(1) => true,
        Value::Int(0) => false,
        Value::BulkString(word) => {
            return match word.as_slice() {
                b"windows" => Some(ScriptReply::NeedsWindows { now }),
                b"full" => Some(ScriptReply::TooManyReceipts),
                b"due" => Some(ScriptReply::Due),
                b"again" => Some(ScriptReply::Again),
                b"closed" => Some(ScriptReply::NotOpen),
                b"other" => {
                    let Value::BulkString(state) = items.next()? else { return None };
                    // The script of a single limit returns no index.
                    let index = match items.next() {
                        Some(Value::Int(index)) => usize::try_from(index).ok()?.checked_sub(1)?,
                        _ => 0,
                    };
                    Some(ScriptReply::OtherLimit { now, state, index })
                }
                _ => None,
            };
        }
        _ => return None,
    };
    let states = items.map(raw_state).collect::<Option<Vec<RawState>>>()?;
    Some(ScriptReply::Decided { success, now, states })
}

/// Parses the reply of a check under one limit: a status, seconds, microseconds and the state.
fn one_text(text: &[u8]) -> Option<ScriptReply> {
    let (code, rest) = text.split_first()?;
    let mut parts = rest.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
    let now = number()?.checked_mul(1_000_000)?.checked_add(number()?)?;
    let (now, state) = (Time::from_micros(now)?, parts.next()?);
    let states = || vec![(!state.is_empty()).then(|| state.to_vec())];
    match code {
        b'1' => Some(ScriptReply::Decided { success: true, now, states: states() }),
        b'0' => Some(ScriptReply::Decided { success: false, now, states: states() }),
        b'o' => Some(ScriptReply::OtherLimit { now, state: state.to_vec(), index: 0 }),
        b'a' => Some(ScriptReply::NeedsWindows { now }),
        b'd' => Some(ScriptReply::Due),
        _ => None,
    }
}

fn raw_state(value: Value) -> Option<RawState> {
    match value {
        Value::Nil => Some(None),
        Value::BulkString(bytes) => Some(Some(bytes)),
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
