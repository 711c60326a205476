//! The verbs of a limiter as script calls. One round trip decides; another follows only if the
//! first has changed nothing.

use super::Inner;
use super::call::RedisCall;
use super::reply::ScriptReply;
use crate::encode::{EXACT, EncodedLimit, LimitPosition};
use crate::failure::unreadable_state;
use crate::receipt::StoredReceipt;
use crate::round_trip::RoundTrip;
use crate::script::ScriptCall;
use crate::scripts;
use sluicegate::backend::StoreFailure;
use sluicegate::{Receipt, Span, Time};
use sluicegate_core::bounds::CENTURY;
use std::sync::Arc;
use tokio::runtime::Handle;

/// The most attempts at a call, besides one for each of its limits. A call is sent again with the
/// windows of a calendar, or after a state of another limit was converted, which other processes
/// may keep changing. A reply names one such state.
const ATTEMPTS_MAX: usize = 8;

/// What a script does with a key. The cost is that of the call.
#[derive(Clone, Copy)]
pub(super) enum ScriptVerb<'a> {
    Check,
    /// Reads the state, as far as a call of this cost needs it.
    Read,
    Take,
    Refund,
    Within {
        max_wait: Span,
    },
    Reserve {
        receipt: &'a StoredReceipt,
        max_wait: Span,
    },
    /// Like `Reserve`, but the receipt is kept only while its caller waits, and not at all if the
    /// wait is 0.
    Wait {
        receipt: &'a StoredReceipt,
        max_wait: Span,
    },
    Close {
        receipt: &'a StoredReceipt,
        close: Close,
    },
}

/// What happens to the charge of a receipt.
#[derive(Clone, Copy)]
pub(crate) enum Close {
    /// All of it is returned.
    Cancel,
    /// It becomes `used`.
    Settle { used: u64 },
}

impl Close {
    /// Settles for `used`; a call that used nothing is cancelled.
    pub(crate) fn for_usage(used: u64) -> Close {
        if used == 0 { Close::Cancel } else { Close::Settle { used } }
    }

    /// The verb and its number, as the script knows them. The part of a usage above 2^53, far above
    /// any cost that a server accepts, is not charged.
    fn arguments(self) -> (&'static str, u64) {
        match self {
            Close::Cancel => ("cancel", 0),
            Close::Settle { used } => ("settle", used.min(EXACT)),
        }
    }
}

impl ScriptVerb<'_> {
    /// Returns `true` if the call is sent even without a free in-flight permit: it returns a
    /// charge, or its caller waits anyway.
    pub(super) fn is_always_sent(self) -> bool {
        matches!(self, ScriptVerb::Refund | ScriptVerb::Close { .. } | ScriptVerb::Wait { .. })
    }
}

/// What one script call decides.
pub(super) struct Operation<'a> {
    /// One call, or several that are charged all or nothing.
    pub(super) calls: &'a [RedisCall<'a>],
    pub(super) verb: ScriptVerb<'a>,
}

/// Executes operations until each is decided, and returns a reply for each.
pub(super) async fn execute_each(
    round_trip: &mut RoundTrip<'_>,
    operations: &[Operation<'_>],
) -> Vec<Result<ScriptReply, StoreFailure>> {
    let before = round_trip.answered();
    let mut replies: Vec<Option<Result<ScriptReply, StoreFailure>>> =
        operations.iter().map(|operation| operation.check_time().err().map(Err)).collect();
    // The checks that met a state of another rate: the script for all verbs converts it by itself.
    let mut converting = vec![false; operations.len()];
    let limits_max = operations.iter().map(|operation| operation.encoded().count()).max().unwrap_or(0);
    for _ in 0..ATTEMPTS_MAX + limits_max {
        let left: Vec<usize> = (0..operations.len()).filter(|index| replies[*index].is_none()).collect();
        if left.is_empty() {
            break;
        }
        let script_call = |index: &usize| {
            let operation = &operations[*index];
            if converting[*index] { operation.verb_call() } else { operation.script_call() }
        };
        let calls: Vec<ScriptCall> = left.iter().map(script_call).collect();
        let mut undecided: Vec<usize> = Vec::new();
        let mut foreign: Vec<(usize, ForeignState)> = Vec::new();
        for (index, answer) in left.into_iter().zip(round_trip.send(&calls).await) {
            let operation = &operations[index];
            match answer.and_then(ScriptReply::read) {
                Ok(ScriptReply::NeedsWindows { now }) => operation.learn_windows(now),
                Ok(ScriptReply::OtherLimit { .. })
                    if !converting[index] && matches!(operation.verb, ScriptVerb::Check) =>
                {
                    converting[index] = true;
                }
                Ok(ScriptReply::OtherLimit { now, state, index: limit }) => {
                    foreign.push((index, ForeignState { now, state, limit }));
                }
                // A call of cost 0 reads a state of any limit, so it has overtaken an undecided
                // call on its key. It has changed nothing and is sent again.
                Ok(_)
                    if operation.is_cost_free()
                        && undecided.iter().any(|before| operations[*before].is_same_key(operation)) => {}
                reply => {
                    replies[index] = Some(reply);
                    continue;
                }
            }
            undecided.push(index);
        }
        let mut replaced: Vec<(usize, usize)> = Vec::new();
        for (index, state) in foreign {
            // A state that several calls met is replaced once.
            if replaced.iter().any(|(before, limit)| {
                operations[*before].is_same_key(&operations[index]) && *limit == state.limit
            }) {
                continue;
            }
            replaced.push((index, state.limit));
            if let Err(failure) = operations[index].replace(round_trip, state).await {
                replies[index] = Some(Err(failure));
                // Later calls on this key are sent again, so that they keep their order.
                break;
            }
        }
    }
    let replies: Vec<_> =
        replies.into_iter().map(|reply| reply.unwrap_or_else(|| Err(changing_limits()))).collect();
    round_trip.decided(before, replies.iter().filter(|reply| reply.is_ok()).count());
    replies
}

/// A state that was written for another limit.
struct ForeignState {
    now: Time,
    state: Vec<u8>,
    /// The index of the limit, over all calls of the operation.
    limit: usize,
}

impl<'a> Operation<'a> {
    fn encoded(&self) -> impl Iterator<Item = &'a EncodedLimit> {
        self.calls.iter().flat_map(|call| &call.inner.encoded)
    }

    fn learn_windows(&self, now: Time) {
        self.encoded().for_each(|encoded| encoded.learn_windows(now));
    }

    fn is_cost_free(&self) -> bool {
        matches!(self, Operation { calls: [call], verb: ScriptVerb::Check } if call.cost == 0)
    }

    fn is_same_key(&self, other: &Operation<'_>) -> bool {
        matches!((self.calls, other.calls), ([one], [other]) if one.is_same_key(other))
    }

    fn script_call(&self) -> ScriptCall {
        let [call] = self.calls else { return self.verb_call() };
        match (self.verb, call.inner.encoded.as_slice()) {
            (ScriptVerb::Read, _) => call.read_call(call.cost),
            // A cost of 0 changes nothing. A check of it is always allowed.
            (ScriptVerb::Check | ScriptVerb::Within { .. } | ScriptVerb::Take | ScriptVerb::Refund, _)
                if call.cost == 0 =>
            {
                call.read_call(0)
            }
            (ScriptVerb::Check, [encoded]) => call.check_call(encoded, Span::ZERO),
            (ScriptVerb::Within { max_wait }, [encoded]) if encoded.check_takes_max_wait() => {
                call.check_call(encoded, max_wait.min(CENTURY))
            }
            _ => self.verb_call(),
        }
    }

    /// A call of the script for all verbs and any list of limits.
    fn verb_call(&self) -> ScriptCall {
        let first = self.calls.first();
        let (at, cost) = first.map_or((None, 0), |call| (call.at, call.cost));
        let micros = |max_wait: Span| max_wait.min(CENTURY).as_micros();
        let (verb, number, receipt) = match self.verb {
            ScriptVerb::Check | ScriptVerb::Read => ("check", 0, None),
            ScriptVerb::Take => ("take", cost.min(EXACT), None),
            ScriptVerb::Refund => ("refund", cost.min(EXACT), Some(&[][..])),
            ScriptVerb::Within { max_wait } => ("within", micros(max_wait), None),
            ScriptVerb::Reserve { receipt, max_wait } => {
                ("reserve", micros(max_wait), Some(&receipt.name[..]))
            }
            ScriptVerb::Wait { receipt, max_wait } => ("wait", micros(max_wait), Some(&receipt.name[..])),
            ScriptVerb::Close { receipt, close } => {
                let (verb, number) = close.arguments();
                (verb, number, Some(&receipt.name[..]))
            }
        };
        let mut names: Vec<Vec<u8>> = self.calls.iter().flat_map(RedisCall::state_names).collect();
        let limits = names.len();
        names.extend(self.calls.iter().map(|call| call.inner.names.receipts(&call.key)));
        let mut script_call = ScriptCall::new(&scripts::VERBS, &names).at(at);
        script_call.arg(verb).arg(limits).arg(number).arg(receipt.unwrap_or_default());
        script_call.arg(first.map_or("", |call| &call.inner.tags));
        for (index, call) in self.calls.iter().enumerate() {
            let cost = match self.verb {
                ScriptVerb::Take => call.cost.min(1),
                ScriptVerb::Refund | ScriptVerb::Close { .. } => 0,
                _ => call.cost,
            };
            call.add_blocks(&mut script_call, cost, limits + index + 1);
        }
        script_call
    }

    /// Converts a state of another limit to this one, unless it has changed meanwhile.
    async fn replace(&self, round_trip: &mut RoundTrip<'_>, other: ForeignState) -> Result<(), StoreFailure> {
        let mut limits =
            self.calls.iter().flat_map(|call| (0..call.inner.encoded.len()).map(move |index| (call, index)));
        let (call, index) = limits.nth(other.limit).ok_or_else(unreadable_state)?;
        let inner = call.inner;
        let encoded = &inner.encoded[index];
        let converted = encoded.convert(&other.state, other.now, inner.preserve_recovery_time);
        let (state, recovered) = converted.ok_or_else(unreadable_state)?;
        let names = [inner.names.state(index, encoded.letter, &call.key), inner.names.receipts(&call.key)];
        let mut script_call = ScriptCall::new(&scripts::REPLACE, &names).at(call.at);
        script_call.arg(other.state).arg(state).arg(recovered).arg(index + 1);
        round_trip.send_one(&script_call).await.map(|_| ())
    }

    /// Rejects a time that the scripts cannot compute with.
    fn check_time(&self) -> Result<(), StoreFailure> {
        let at = self.calls.first().and_then(|call| call.at);
        let latest = self.encoded().map(|encoded| encoded.latest).min();
        match (at, latest) {
            (Some(at), Some(latest)) if at > latest => Err(StoreFailure::Rejected(format!(
                "the time {} is too late for the store's scripts, which compute in 53 bits; use at most {} with this limit, or the memory store",
                at.as_micros(),
                latest.as_micros()
            ))),
            _ => Ok(()),
        }
    }
}

impl RedisCall<'_> {
    /// A check under the limiter's only limit.
    fn check_call(&self, encoded: &EncodedLimit, max_wait: Span) -> ScriptCall {
        let name = self.inner.names.state(0, encoded.letter, &self.key);
        let mut script_call = ScriptCall::new(encoded.check(), &[name]).at(self.at);
        encoded.add_check(&mut script_call, self.cost, max_wait, self.at);
        script_call
    }

    fn read_call(&self, cost: u64) -> ScriptCall {
        let names: Vec<Vec<u8>> = self.state_names().collect();
        let mut script_call = ScriptCall::new(&scripts::READ, &names).at(self.at);
        self.add_blocks(&mut script_call, cost, 0);
        script_call
    }

    /// Adds the arguments of each limit. `receipts` is the index of the key's receipts.
    fn add_blocks(&self, script_call: &mut ScriptCall, cost: u64, receipts: usize) {
        let preserve_recovery_time = self.inner.preserve_recovery_time;
        for (index, encoded) in self.inner.encoded.iter().enumerate() {
            let place = LimitPosition { receipts, limit: index + 1, preserve_recovery_time };
            encoded.add_block(script_call, cost, self.at, &place);
        }
    }

    /// The names of the key's states, one per limit.
    pub(super) fn state_names(&self) -> impl Iterator<Item = Vec<u8>> {
        let encoded = self.inner.encoded.iter().enumerate();
        encoded.map(|(index, encoded)| self.inner.names.state(index, encoded.letter, &self.key))
    }
}

impl Inner {
    /// Discards a receipt that is no longer needed; the charge stays.
    pub(super) async fn discard(&self, receipt: &StoredReceipt) -> Result<(), StoreFailure> {
        let mut script_call =
            ScriptCall::new(&scripts::DISCARD, &[self.names.receipts(&receipt.key)]).at(None);
        script_call.arg(&receipt.name[..]);
        self.store.inner.admit_return(1).await.send_one(&script_call).await.map(|_| ())
    }

    /// Discards a receipt in the background. If that fails, the receipt makes room for others once
    /// its charge no longer counts.
    pub(crate) fn discard_detached(self: &Arc<Inner>, receipt: &Receipt) {
        if let (Ok(receipt), Ok(runtime)) = (StoredReceipt::read(receipt), Handle::try_current()) {
            let inner = Arc::clone(self);
            runtime.spawn(async move { inner.discard(&receipt).await });
        }
    }

    pub(super) async fn reset_states(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        let reset = |key: &&[u8]| {
            let encoded = self.encoded.iter().enumerate();
            let states = encoded.map(|(index, encoded)| self.names.state(index, encoded.letter, key));
            let names: Vec<Vec<u8>> = states.chain([self.names.receipts(key)]).collect();
            ScriptCall::new(&scripts::RESET, &names).at(None)
        };
        let calls: Vec<ScriptCall> = keys.iter().map(reset).collect();
        let answers = self.store.inner.admit_return(calls.len()).await.send(&calls).await;
        answers.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }
}

/// The error for a call that was not decided in as many attempts as it has, and changed nothing.
fn changing_limits() -> StoreFailure {
    StoreFailure::Rejected(String::from(
        "the limit of the key keeps changing; do processes use one scope with different limits?",
    ))
}
