//! What is done with an open receipt: extend, settle and cancel.

use super::call::RuleCall;
use super::decided::{Decided, denied_call};
use super::receipt::RuleReceipt;
use super::rule::Rule;
use super::storage::AnyBackend;
use super::{Engine, RequestError};
use sluicegate::backend::Answer;
use sluicegate::{Span, Time, VerbError};
use sluicegate_redis::{RedisCall, cancel_all, extend_all, settle_all};

impl Engine {
    /// Reads a receipt that a client sent.
    ///
    /// # Errors
    /// If the text is not a receipt, or it is one of another kind of store.
    pub fn receipt(&self, text: &str) -> Result<RuleReceipt, RequestError> {
        let receipt = RuleReceipt::read(text)?;
        if receipt.stored.is_of_memory() == self.is_shared() {
            return Err(VerbError::BadReceipt.into());
        }
        Ok(receipt)
    }

    /// The calls of a receipt under the rules as they are now; `None` for a call whose key had no
    /// limit.
    ///
    /// # Errors
    /// If a rule does not exist any more: then the receipt is not open.
    pub fn receipt_calls<'r>(
        &self,
        receipt: &'r RuleReceipt,
    ) -> Result<Vec<Option<RuleCall<'r>>>, RequestError> {
        let call = |target| {
            let call = self.call(target, 0)?;
            call.rule().decides_checks().map(|()| call)
        };
        let calls: Result<Vec<_>, _> = receipt.targets().map(|target| target.map(call).transpose()).collect();
        calls.map_err(|_| VerbError::NotOpen.into())
    }

    /// Cancels a reservation: the part of its cost that still counts is returned to its keys.
    /// Returns `false` if there was no such part.
    ///
    /// # Errors
    /// If the shared store does not answer.
    pub async fn cancel(&self, receipt: &RuleReceipt, now: Time) -> Result<bool, RequestError> {
        if let Some(store) = self.storage.memory() {
            return Ok(store.cancel_at(&receipt.stored, now));
        }
        // The receipt may be another server's. If its rule does not exist, neither does its charge.
        let Ok(calls) = self.receipt_calls(receipt) else { return Ok(false) };
        let calls = in_store(&calls, &vec![0; calls.len()], now)?;
        Ok(Box::pin(cancel_all(&receipt.stored, &calls)).await?)
    }

    /// Settles a reservation: changes its charge to what was used, with one number for all calls or
    /// one for each. Returns `false` if the receipt is not open.
    ///
    /// # Errors
    /// If there is another count of numbers, or the shared store does not answer.
    pub async fn settle(&self, receipt: &RuleReceipt, used: &[u64], now: Time) -> Result<bool, RequestError> {
        if let Some(store) = self.storage.memory() {
            return Ok(store.settle_each_at(&receipt.stored, used, now)?);
        }
        let used = for_each_call(used, receipt)?;
        let Ok(calls) = self.receipt_calls(receipt) else { return Ok(false) };
        Ok(Box::pin(settle_all(&receipt.stored, &in_store(&calls, &used, now)?)).await?)
    }

    /// Extends a reservation: charges more to it, all or nothing, and restarts its time to live.
    /// There is one cost for all calls, or one for each. `calls` are those of
    /// [`Engine::receipt_calls`].
    ///
    /// A shadow rule never denies: if its limits would, the others are extended without the costs
    /// of its calls. If it is the rule of the only call, the decision is the denial that it does
    /// not enforce.
    ///
    /// # Errors
    /// If the receipt is not open, there is another count of numbers, the TTL is out of bounds, too
    /// many receipts are open, or the shared store does not answer.
    pub async fn extend<'c>(
        &self,
        receipt: &RuleReceipt,
        calls: &'c [Option<RuleCall<'_>>],
        costs: &[u64],
        ttl: Option<Span>,
        now: Time,
    ) -> Result<Decided<'c>, RequestError> {
        let mut costs = for_each_call(costs, receipt)?;
        let (mut left_out, mut shadow_denial) = (Vec::new(), None);
        let answer = loop {
            let answer = self.extend_once(receipt, calls, &costs, ttl, now).await?;
            let denier = denied_call(&answer).and_then(|index| calls.get(index)?.as_ref());
            let shadow = denier.map(RuleCall::rule).filter(|rule| rule.spec().shadow);
            match shadow.filter(|rule| !left_out.contains(&rule.name())) {
                None => break answer,
                Some(rule) => {
                    leave_out(rule, calls, &mut costs);
                    left_out.push(rule.name());
                    shadow_denial.get_or_insert(answer);
                }
            }
        };
        let denied = denied_call(&answer);
        for (index, call) in
            calls.iter().enumerate().filter_map(|(index, call)| Some((index, call.as_ref()?)))
        {
            let has_denied = left_out.contains(&call.rule().name()) || denied == Some(index);
            if has_denied || answer.allowed() || denied.is_none() {
                call.rule.count(has_denied || !answer.allowed());
            }
        }
        Ok(match (calls, denied.and_then(|index| calls.get(index)?.as_ref())) {
            ([Some(call)], _) => call.decided(shadow_denial.unwrap_or(answer), now),
            (_, Some(call)) => Decided::new(answer, call.denier(), now, false),
            (_, None) => Decided::of_calls(answer, now),
        })
    }

    async fn extend_once(
        &self,
        receipt: &RuleReceipt,
        calls: &[Option<RuleCall<'_>>],
        costs: &[u64],
        ttl: Option<Span>,
        now: Time,
    ) -> Result<Answer, RequestError> {
        let (stored, ttl) = (&receipt.stored, ttl.map(Into::into));
        let Some(store) = self.storage.memory() else {
            return Ok(Box::pin(extend_all(stored, &in_store(calls, costs, now)?, ttl)).await?);
        };
        // The limiter extends under the limits of the rule as they are now, the store under those
        // of the key's latest call. A client may have forged the rule and key.
        if let [Some(call)] = calls
            && let AnyBackend::Memory(limiter) = &call.limits().backend
            && limiter.is_receipt_of(stored, call.key)
        {
            return Ok(limiter.extend_each_at(stored, costs, ttl, now)?.into());
        }
        Ok(store.extend_each_at(stored, costs, ttl, now)?.into())
    }
}

/// A number for each call of a receipt, if there is one for all of them.
fn for_each_call(numbers: &[u64], receipt: &RuleReceipt) -> Result<Vec<u64>, VerbError> {
    let calls = receipt.targets().len();
    match numbers {
        [for_each] => Ok(vec![*for_each; calls]),
        _ if numbers.len() == calls => Ok(numbers.to_vec()),
        _ => Err(VerbError::WrongCount { numbers: numbers.len(), calls }),
    }
}

/// The calls of a receipt of the shared store, with these numbers.
fn in_store<'c>(
    calls: &'c [Option<RuleCall<'_>>],
    numbers: &[u64],
    now: Time,
) -> Result<Vec<RedisCall<'c>>, RequestError> {
    let call = |(call, number): (&'c Option<RuleCall<'_>>, &u64)| {
        let Some(call) = call else { return Ok(RedisCall::unlimited(*number)) };
        match &call.limits().backend {
            AnyBackend::Redis { limiter, time } => Ok(time.call(limiter, call.key, *number, now)),
            AnyBackend::Memory(_) | AnyBackend::Leases(_) => Err(VerbError::BadReceipt.into()),
        }
    };
    calls.iter().zip(numbers).map(call).collect()
}

/// Sets the costs of a rule's calls to 0.
fn leave_out(rule: &Rule, calls: &[Option<RuleCall<'_>>], costs: &mut [u64]) {
    let is_of_rule =
        |call: &Option<RuleCall<'_>>| call.as_ref().is_some_and(|call| call.rule().name() == rule.name());
    for (_, cost) in calls.iter().zip(costs).filter(|(call, _)| is_of_rule(call)) {
        *cost = 0;
    }
}
