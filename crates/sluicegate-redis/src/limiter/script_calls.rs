//! The verbs of a limiter as script calls. One round trip decides; another follows only if the
//! first has changed nothing.

use super::Inner;
use super::call::LimitedCall;
use super::reply::ScriptReply;
use crate::encode::{EXACT, EncodedLimit, LimitPosition};
use crate::failure::{bad_state, unreadable_state};
use crate::receipt::StoredReceipt;
use crate::round_trip::RoundTrip;
use crate::script::ScriptCall;
use crate::scripts;
use sluicegate::backend::StoreFailure;
use sluicegate::{ReserveOptions, Span, Then, Time, Ttl};
use sluicegate_core::bounds::CENTURY;

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
        options: ReserveOptions,
    },
    /// Like `Reserve`, but the receipt is kept only while its caller waits, and not at all if the
    /// wait is 0.
    Wait {
        receipt: &'a StoredReceipt,
        max_wait: Span,
    },
    Extend {
        receipt: &'a StoredReceipt,
        ttl: Option<Span>,
    },
    /// The receipt gets this time to live, from when it was made.
    Confirm {
        receipt: &'a StoredReceipt,
        ttl: Option<Ttl>,
    },
    /// All of the charge is returned.
    Cancel {
        receipt: &'a StoredReceipt,
    },
    /// The charge becomes the cost of the call.
    Settle {
        receipt: &'a StoredReceipt,
    },
}

impl ScriptVerb<'_> {
    /// Returns `true` if the call is sent even without a free in-flight permit: it returns a
    /// charge, or its caller waits anyway.
    pub(super) fn is_always_sent(self) -> bool {
        let returns =
            matches!(self, ScriptVerb::Refund | ScriptVerb::Cancel { .. } | ScriptVerb::Settle { .. });
        returns || matches!(self, ScriptVerb::Wait { .. })
    }
}

/// The arguments of the script for all verbs that come before those of each key.
#[derive(Default)]
struct VerbArguments<'a> {
    max_wait: u64,
    receipt: &'a [u8],
    ttl: u64,
    cancels: bool,
    takes_less: bool,
}

/// What one script call decides.
pub(super) struct Operation<'a> {
    /// One call, or several that are charged all or nothing.
    pub(super) calls: &'a [LimitedCall<'a>],
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
    let mut ways = vec![Way::default(); operations.len()];
    let limits_max = operations.iter().map(|operation| operation.encoded().count()).max().unwrap_or(0);
    let mut attempts = 0;
    while attempts < ATTEMPTS_MAX + limits_max {
        let left: Vec<usize> = (0..operations.len()).filter(|index| replies[*index].is_none()).collect();
        if left.is_empty() {
            break;
        }
        let mut calls: Vec<ScriptCall> = Vec::with_capacity(left.len());
        for &index in &left {
            if ways[index].notices {
                calls.push(operations[index].notice_call());
            }
            calls.push(operations[index].script_call(ways[index].by_verbs));
        }
        let mut answers = round_trip.send(&calls).await.into_iter();
        let mut undecided: Vec<usize> = Vec::new();
        let mut foreign: Vec<(usize, ForeignState)> = Vec::new();
        let mut has_progress = false;
        for index in left {
            let (operation, way) = (&operations[index], &mut ways[index]);
            // If noticing fails, so does the call behind it, or it finds the same again.
            let noticed = if way.notices { answers.next() } else { None };
            let answer = answers.next().unwrap_or_else(|| Err(bad_state()));
            match answer.and_then(ScriptReply::read) {
                // Every such call has closed some receipts, so there is an end to it. The deadline
                // holds for all of them.
                Ok(ScriptReply::Again) => {
                    way.notices = operation.may_only_look();
                    has_progress = true;
                }
                Ok(ScriptReply::Due) => {
                    has_progress |= noticed.is_some_and(|noticed| noticed.is_ok());
                    way.by_verbs = operation.only_looks();
                    way.notices = !way.by_verbs;
                }
                Ok(ScriptReply::NeedsWindows { now }) => operation.learn_windows(now),
                Ok(ScriptReply::OtherLimit { .. })
                    if !way.by_verbs && matches!(operation.verb, ScriptVerb::Check) =>
                {
                    way.by_verbs = true;
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
        attempts += usize::from(!has_progress);
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

/// How an operation is sent.
#[derive(Clone, Copy, Default)]
struct Way {
    /// By the script for all verbs: it converts a state of another rate by itself, and can look at
    /// a key as if receipts that have expired were closed.
    by_verbs: bool,
    /// Behind a call that closes receipts that have expired.
    notices: bool,
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

    /// Returns `true` if the operation changes nothing.
    fn only_looks(&self) -> bool {
        let [call] = self.calls else { return false };
        match self.verb {
            ScriptVerb::Read => true,
            ScriptVerb::Check | ScriptVerb::Within { .. } | ScriptVerb::Take | ScriptVerb::Refund => {
                call.cost == 0
            }
            _ => false,
        }
    }

    /// Returns `true` if the operation may change nothing of a key, and so leaves receipts on it
    /// that have expired.
    fn may_only_look(&self) -> bool {
        matches!(self.verb, ScriptVerb::Check) || self.only_looks()
    }

    fn script_call(&self, by_verbs: bool) -> ScriptCall {
        let [call] = self.calls else { return self.verb_call() };
        match (self.verb, call.inner.encoded.as_slice()) {
            _ if by_verbs => self.verb_call(),
            // A cost of 0 changes nothing. A check of it is always allowed.
            _ if self.only_looks() => call.read_call(),
            (ScriptVerb::Check, [encoded]) => call.check_call(encoded, Span::ZERO),
            (ScriptVerb::Within { max_wait }, [encoded]) if encoded.check_takes_max_wait() => {
                call.check_call(encoded, max_wait.min(CENTURY))
            }
            _ => self.verb_call(),
        }
    }

    /// A call of the script for all verbs and any list of limits.
    fn verb_call(&self) -> ScriptCall {
        let micros = |span: Span| span.min(CENTURY).as_micros();
        let mut arguments = VerbArguments::default();
        let verb = match self.verb {
            _ if self.only_looks() => "read",
            ScriptVerb::Check | ScriptVerb::Read => "check",
            ScriptVerb::Take => "take",
            ScriptVerb::Refund => "refund",
            ScriptVerb::Within { max_wait } => {
                arguments.max_wait = micros(max_wait);
                "within"
            }
            ScriptVerb::Reserve { receipt, options } => {
                let ttl = options.ttl.map_or(0, |ttl| ttl.length.as_micros());
                let cancels = options.ttl.is_some_and(|ttl| ttl.then == Then::Cancel);
                let (max_wait, takes_less) = (micros(options.max_wait), options.at_least.is_some());
                arguments = VerbArguments { receipt: &receipt.name, max_wait, ttl, cancels, takes_less };
                "reserve"
            }
            ScriptVerb::Wait { receipt, max_wait } => {
                arguments = VerbArguments { receipt: &receipt.name, max_wait: micros(max_wait), ..arguments };
                "wait"
            }
            ScriptVerb::Extend { receipt, ttl } => {
                let ttl = ttl.map_or(0, Span::as_micros);
                arguments = VerbArguments { receipt: &receipt.name, ttl, ..arguments };
                "extend"
            }
            ScriptVerb::Confirm { receipt, ttl } => {
                let cancels = ttl.is_some_and(|ttl| ttl.then == Then::Cancel);
                let ttl = ttl.map_or(0, |ttl| ttl.length.as_micros());
                arguments = VerbArguments { receipt: &receipt.name, ttl, cancels, ..arguments };
                "confirm"
            }
            ScriptVerb::Cancel { receipt } => {
                arguments.receipt = &receipt.name;
                "cancel"
            }
            ScriptVerb::Settle { receipt } => {
                arguments.receipt = &receipt.name;
                "settle"
            }
        };
        self.verbs_call(verb, &arguments)
    }

    /// A call that closes receipts that have expired, and does nothing else.
    fn notice_call(&self) -> ScriptCall {
        self.verbs_call("notice", &VerbArguments::default())
    }

    fn verbs_call(&self, verb: &str, arguments: &VerbArguments<'_>) -> ScriptCall {
        let mut names: Vec<Vec<u8>> = Vec::with_capacity(4 * self.calls.len());
        for call in self.calls {
            names.extend(call.state_names());
            names.extend(call.receipt_names());
        }
        let mut script_call =
            ScriptCall::new(&scripts::VERBS, &names).at(self.calls.first().and_then(|call| call.at));
        let VerbArguments { max_wait, receipt, ttl, cancels, takes_less } = arguments;
        script_call.arg(verb).arg(self.calls.len()).arg(*max_wait).arg(*receipt).arg(*ttl);
        script_call.arg(if *cancels { "cancel" } else { "" }).arg(u8::from(*takes_less));
        let mut receipts = 1;
        for call in self.calls {
            let limits = call.inner.encoded.len();
            receipts += limits;
            script_call.arg(limits).arg(&call.inner.tags).arg(call.cost.min(EXACT));
            let cost = match self.verb {
                ScriptVerb::Take => call.cost.min(1),
                ScriptVerb::Reserve { options, .. } => options.at_least.unwrap_or(call.cost),
                ScriptVerb::Refund
                | ScriptVerb::Cancel { .. }
                | ScriptVerb::Settle { .. }
                | ScriptVerb::Confirm { .. } => 0,
                _ => call.cost,
            };
            call.add_blocks(&mut script_call, cost, receipts);
            receipts += 2;
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
        let name = inner.names.state(index, encoded.letter, &call.key);
        let [receipts, deadlines] = call.receipt_names();
        let names = [name, receipts, deadlines];
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

impl LimitedCall<'_> {
    /// A check under the limiter's only limit.
    fn check_call(&self, encoded: &EncodedLimit, max_wait: Span) -> ScriptCall {
        let name = self.inner.names.state(0, encoded.letter, &self.key);
        let mut script_call = ScriptCall::new(encoded.check(), &[name]).at(self.at);
        encoded.add_check(&mut script_call, self.cost, max_wait, self.at);
        script_call
    }

    fn read_call(&self) -> ScriptCall {
        let names: Vec<Vec<u8>> = self.state_names().collect();
        let mut script_call = ScriptCall::new(&scripts::READ, &names).at(self.at);
        self.add_blocks(&mut script_call, self.cost, 0);
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

    /// The names of the key's receipts and of their deadlines.
    pub(super) fn receipt_names(&self) -> [Vec<u8>; 2] {
        [self.inner.names.receipts(&self.key), self.inner.names.deadlines(&self.key)]
    }
}

impl Inner {
    pub(super) async fn reset_states(&self, keys: &[&[u8]]) -> Result<(), StoreFailure> {
        let reset = |key: &&[u8]| {
            let encoded = self.encoded.iter().enumerate();
            let states = encoded.map(|(index, encoded)| self.names.state(index, encoded.letter, key));
            let receipts = [self.names.receipts(key), self.names.deadlines(key)];
            let names: Vec<Vec<u8>> = states.chain(receipts).collect();
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
