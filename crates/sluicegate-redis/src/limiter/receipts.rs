//! What is done with a receipt: settle, cancel, extend and discard.

use super::call::{LimitedCall, RedisCall, shown};
use super::reply::ScriptReply;
use super::script_calls::{Operation, ScriptVerb, execute_each};
use super::several::{parts_of, slots_of, states_of};
use super::{Inner, require_agreement};
use crate::failure::bad_state;
use crate::receipt::StoredReceipt;
use crate::script::ScriptCall;
use crate::scripts;
use redis::Value;
use sluicegate::backend::{Answer, BackendError, Source, StoreFailure};
use sluicegate::{Receipt, Span, Time, VerbError};
use sluicegate_core::all_of::{self, attributed};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// A receipt, and the limiter of each of its keys.
pub(super) struct UsedReceipt<'a> {
    receipt: StoredReceipt,
    limiters: Vec<&'a Arc<Inner>>,
}

/// Settles a receipt of several calls, each of which names its key, and as its cost what it used.
/// Returns `false` if the receipt is not open, or belongs to other calls.
///
/// For processes that have the receipt alone: [`StoredReceipt::calls`](crate::StoredReceipt::calls)
/// says which limiters the calls need.
///
/// # Errors
/// If the receipt was not issued by a shared store, there is another count of calls, or the store
/// gives no answer.
pub async fn settle_all(receipt: &Receipt, calls: &[RedisCall<'_>]) -> Result<bool, BackendError> {
    let (used, numbers, at) = of_calls(receipt, calls)?;
    match used {
        Some(used) => used.settle(&numbers, at).await,
        None => Ok(false),
    }
}

/// Cancels a receipt of several calls, each of which names its key: see [`settle_all`]. Their costs
/// do not matter. Returns `true` if anything was returned.
///
/// # Errors
/// As [`settle_all`].
pub async fn cancel_all(receipt: &Receipt, calls: &[RedisCall<'_>]) -> Result<bool, BackendError> {
    let (used, _, at) = of_calls(receipt, calls)?;
    match used {
        Some(used) => Ok(used.cancel(at).await?),
        None => Ok(false),
    }
}

/// Extends a receipt of several calls, each of which names its key, and as its cost what to charge:
/// see [`settle_all`].
///
/// # Errors
/// As [`settle_all`]; if the receipt is not open ([`VerbError::NotOpen`]) or belongs to other
/// calls, the TTL is out of bounds, the keys are in different hash slots of a cluster, or a key has
/// too many open receipts.
pub async fn extend_all(
    receipt: &Receipt,
    calls: &[RedisCall<'_>],
    ttl: Option<Duration>,
) -> Result<Answer, BackendError> {
    let (used, numbers, at) = of_calls(receipt, calls)?;
    used.ok_or(VerbError::NotOpen)?.extend(&numbers, ttl.map(Into::into), at).await
}

/// A receipt with the limiters of calls, `None` if they are not its calls; their costs and their
/// time.
type OfCalls<'a> = (Option<UsedReceipt<'a>>, Vec<u64>, Option<Time>);

fn of_calls<'a>(receipt: &Receipt, calls: &'a [RedisCall<'_>]) -> Result<OfCalls<'a>, VerbError> {
    let receipt = StoredReceipt::read(receipt)?;
    let numbers: Vec<u64> = calls.iter().map(RedisCall::cost).collect();
    if numbers.len() != receipt.calls.len() {
        return Err(VerbError::WrongCount { numbers: numbers.len(), calls: receipt.calls.len() });
    }
    let is_same = |(known, call): (Option<(&str, &[u8])>, &RedisCall<'_>)| match (known, &call.limited) {
        (Some((scope, key)), Some(call)) => call.inner.scope == scope && *call.key == *key,
        (known, call) => known.is_none() && call.is_none(),
    };
    let at = calls.iter().find_map(|call| call.limited.as_ref()?.at);
    if !receipt.calls().zip(calls).all(is_same) {
        return Ok((None, numbers, at));
    }
    let of_key = |key: usize| {
        let call = receipt.calls.iter().position(|index| index.map(usize::from) == Some(key))?;
        Some(calls.get(call)?.limited.as_ref()?.inner)
    };
    let limiters = (0..receipt.keys.len()).filter_map(of_key).collect();
    Ok((Some(UsedReceipt { receipt, limiters }), numbers, at))
}

impl Inner {
    /// Returns a receipt whose keys are all in this limiter's scope. Any other counts as unknown.
    pub(super) fn own_receipt(self: &Arc<Inner>, receipt: StoredReceipt) -> Option<UsedReceipt<'_>> {
        let is_own = receipt.keys.iter().all(|key| key.scope == self.scope);
        let limiters = vec![self; receipt.keys.len()];
        is_own.then_some(UsedReceipt { receipt, limiters })
    }

    pub(crate) async fn cancel(
        self: &Arc<Inner>,
        receipt: &Receipt,
        at: Option<Time>,
    ) -> Result<bool, BackendError> {
        match self.own_receipt(StoredReceipt::read(receipt)?) {
            Some(used) => Ok(used.cancel(at).await?),
            None => Ok(false),
        }
    }

    /// Cancels a receipt that was never given to a caller.
    pub(super) async fn cancel_stored(
        self: &Arc<Inner>,
        receipt: StoredReceipt,
    ) -> Result<bool, StoreFailure> {
        UsedReceipt::new(receipt, vec![self]).cancel(None).await
    }

    /// Discards a receipt that is no longer needed; the charge stays.
    pub(super) async fn discard(self: &Arc<Inner>, receipt: StoredReceipt) -> Result<(), StoreFailure> {
        match self.own_receipt(receipt) {
            Some(used) => used.discard().await,
            None => Ok(()),
        }
    }

    /// Discards a receipt in the background. If that fails, the receipt makes room for others once
    /// its charge no longer counts.
    pub(crate) fn discard_detached(self: &Arc<Inner>, receipt: &Receipt) {
        if let (Ok(receipt), Ok(runtime)) = (StoredReceipt::read(receipt), Handle::try_current()) {
            let inner = Arc::clone(self);
            runtime.spawn(async move { inner.discard(receipt).await });
        }
    }

    pub(crate) async fn settle(
        self: &Arc<Inner>,
        receipt: &Receipt,
        used: &[u64],
        at: Option<Time>,
    ) -> Result<bool, BackendError> {
        let receipt = StoredReceipt::read(receipt)?;
        receipt.per_key(used)?;
        match self.own_receipt(receipt) {
            Some(receipt) => receipt.settle(used, at).await,
            None => Ok(false),
        }
    }

    pub(crate) async fn extend(
        self: &Arc<Inner>,
        receipt: &Receipt,
        costs: &[u64],
        ttl: Option<Span>,
        at: Option<Time>,
    ) -> Result<Answer, BackendError> {
        let receipt = StoredReceipt::read(receipt)?;
        receipt.per_key(costs)?;
        let receipt = self.own_receipt(receipt).ok_or(VerbError::NotOpen)?;
        receipt.extend(costs, ttl, at).await
    }
}

impl<'a> UsedReceipt<'a> {
    pub(super) fn new(receipt: StoredReceipt, limiters: Vec<&'a Arc<Inner>>) -> UsedReceipt<'a> {
        UsedReceipt { receipt, limiters }
    }

    /// Returns what still counts of the charge. Returns `true` if that was anything.
    pub(super) async fn cancel(&self, at: Option<Time>) -> Result<bool, StoreFailure> {
        let calls = self.calls(&vec![0; self.receipt.keys.len()], at);
        self.close(&calls, ScriptVerb::Cancel { receipt: &self.receipt }).await
    }

    /// Corrects the charge to what was used.
    pub(super) async fn settle(&self, used: &[u64], at: Option<Time>) -> Result<bool, BackendError> {
        let calls = self.calls(&self.receipt.per_key(used)?, at);
        Ok(self.close(&calls, ScriptVerb::Settle { receipt: &self.receipt }).await?)
    }

    async fn close(&self, calls: &[LimitedCall<'_>], verb: ScriptVerb<'_>) -> Result<bool, StoreFailure> {
        let mut closed = Ok(false);
        for reply in self.execute(calls, verb).await {
            let of_slot = match reply {
                Ok(ScriptReply::Decided { success, .. }) => Ok(success),
                reply => reply.and_then(|_| Err(bad_state())),
            };
            closed = closed.and_then(|closed| Ok(of_slot? || closed));
        }
        self.count(closed.is_ok());
        closed
    }

    /// Charges more, as a reservation without a longest wait would, and restarts the time to live.
    pub(super) async fn extend(
        &self,
        costs: &[u64],
        ttl: Option<Span>,
        at: Option<Time>,
    ) -> Result<Answer, BackendError> {
        let calls = self.calls(&self.receipt.per_key(costs)?, at);
        let ttl = ttl.map(sluicegate::internal::checked_ttl).transpose()?;
        if let [_, other, ..] = &*slots_of(&calls) {
            return Err(VerbError::SlotsDiffer(shown(&calls[0].key), shown(&calls[other[0]].key)).into());
        }
        let mut replies = self.execute(&calls, ScriptVerb::Extend { receipt: &self.receipt, ttl }).await;
        let extended = match replies.pop().unwrap_or_else(|| Err(bad_state())) {
            Ok(ScriptReply::NotOpen) => return Err(VerbError::NotOpen.into()),
            Ok(ScriptReply::TooManyReceipts) => return Err(VerbError::TooManyReceiptsOfKey.into()),
            reply => reply.and_then(|reply| self.extended(&calls, reply)),
        };
        self.count(extended.is_ok());
        Ok(extended?)
    }

    /// Recomputes the decision of an extension: of the limits that have their part of the receipt.
    fn extended(&self, calls: &[LimitedCall<'_>], reply: ScriptReply) -> Result<Answer, StoreFailure> {
        let ScriptReply::Decided { success, now, mut states } = reply else { return Err(bad_state()) };
        let has_part = states.pop().flatten().filter(|has_part| has_part.len() == calls.len());
        let has_part = has_part.ok_or_else(bad_state)?;
        let mut states = states_of(calls, &states, now).ok_or_else(bad_state)?;
        let limits_of = |key: usize| if has_part[key] == b'1' { calls[key].inner.encoded.len() } else { 0 };
        let decides = (0..calls.len())
            .flat_map(|key| std::iter::repeat_n(limits_of(key) > 0, calls[key].inner.encoded.len()));
        let parts = parts_of(calls, &mut states).into_iter().zip(decides);
        let mut parts: Vec<_> = parts.filter_map(|(part, decides)| decides.then_some(part)).collect();
        let decision = all_of::reserve_all(&mut parts, now, Span::ZERO).0;
        let first_call = |key: usize| {
            self.receipt.calls.iter().position(|index| index.map(usize::from) == Some(key)).unwrap_or(0)
        };
        let calls = (0..calls.len()).map(|key| (first_call(key), limits_of(key)));
        let decision = attributed(decision, calls);
        require_agreement(success, decision.allowed())?;
        Ok(Answer::new(decision, Source::Store))
    }

    /// One call for each key.
    fn calls(&self, costs: &[u64], at: Option<Time>) -> Vec<LimitedCall<'_>> {
        let mut calls = Vec::with_capacity(costs.len());
        for ((key, &inner), &cost) in self.receipt.keys.iter().zip(&self.limiters).zip(costs) {
            calls.push(LimitedCall { inner, key: Cow::Borrowed(&*key.key), cost, at });
        }
        calls
    }

    /// Executes one script call for each hash slot of the keys, on all nodes at once. In each it is
    /// all or nothing; a receipt over several slots that is closed returns cost in any order.
    async fn execute(
        &self,
        calls: &[LimitedCall<'_>],
        verb: ScriptVerb<'_>,
    ) -> Vec<Result<ScriptReply, StoreFailure>> {
        let _invalidate: Vec<_> = calls.iter().map(|call| call.inner.invalidate_denials(&call.key)).collect();
        let Some(first) = calls.first() else { return Vec::new() };
        let store = &first.inner.store.inner;
        let slots = slots_of(calls);
        let of_slot = |keys: &Vec<usize>| keys.iter().map(|key| calls[*key].clone()).collect();
        let of_slots: Vec<Vec<LimitedCall<'_>>> = slots.iter().map(of_slot).collect();
        let operations: Vec<_> = of_slots.iter().map(|calls| Operation { calls, verb }).collect();
        let mut round_trip = if verb.is_always_sent() {
            store.admit_return(slots.len()).await
        } else {
            match store.admit(slots.len()).await {
                Ok(round_trip) => round_trip,
                Err(failure) => return vec![Err(failure)],
            }
        };
        execute_each(&mut round_trip, &operations).await
    }

    fn count(&self, is_answered: bool) {
        if let Some(first) = self.limiters.first() {
            first.store.inner.counters.count(is_answered.then_some(Source::Store));
        }
    }

    /// Discards the receipt, which is no longer needed; the charge stays.
    pub(super) async fn discard(&self) -> Result<(), StoreFailure> {
        let Some(first) = self.limiters.first() else { return Ok(()) };
        let calls = self.calls(&vec![0; self.receipt.keys.len()], None);
        let discard = |keys: &Vec<usize>| {
            let names: Vec<Vec<u8>> = keys.iter().flat_map(|key| calls[*key].receipt_names()).collect();
            let mut script_call = ScriptCall::new(&scripts::DISCARD, &names).at(None);
            script_call.arg(&self.receipt.name[..]);
            script_call
        };
        let mut script_calls: Vec<ScriptCall> = slots_of(&calls).iter().map(discard).collect();
        // Every call closes some charges, so there is an end to it.
        while !script_calls.is_empty() {
            let mut round_trip = first.store.inner.admit_return(script_calls.len()).await;
            let answers = round_trip.send(&script_calls).await;
            let mut has_more = Vec::with_capacity(answers.len());
            for answer in answers {
                has_more.push(answer? == Value::Int(0));
            }
            let mut has_more = has_more.into_iter();
            script_calls.retain(|_| has_more.next() == Some(true));
        }
        Ok(())
    }
}
