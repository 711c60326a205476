//! What is done with an open receipt: extend, settle and cancel.

use super::call::RuleCall;
use super::decided::Decided;
use super::receipt::RuleReceipt;
use super::rule::{KeyLimits, Rule};
use super::{Engine, RequestError};
use sluicegate::backend::Answer;
use sluicegate::{Span, Time, VerbError};

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

    /// The calls of a receipt, under the rules as they are now.
    ///
    /// # Errors
    /// If a rule does not exist any more: the receipt is not open.
    pub fn receipt_calls<'r>(&self, receipt: &'r RuleReceipt) -> Result<Vec<RuleCall<'r>>, RequestError> {
        let call = |target| {
            let call = self.call(target, 0).ok()?;
            call.rule().decides_checks().ok().map(|()| call)
        };
        let calls: Option<Vec<_>> = receipt.targets().map(call).collect();
        calls.ok_or_else(|| VerbError::NotOpen.into())
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
        let Some(call) = calls.first() else { return Ok(false) };
        let (backend, at) = call.limits().checks(now)?;
        Ok(backend.cancel(&receipt.stored, at).await?)
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
        let Ok(calls) = self.receipt_calls(receipt) else { return Ok(false) };
        let Some(call) = calls.first() else { return Ok(false) };
        let (backend, at) = call.limits().checks(now)?;
        Ok(backend.settle(&receipt.stored, used, at).await?)
    }

    /// Extends a reservation: charges more to it, all or nothing, and restarts its time to live.
    /// There is one cost for all calls, or one for each. `calls` are those of
    /// [`Engine::receipt_calls`].
    ///
    /// If the limits of a shadow rule deny the extension, it is made without the costs of that
    /// rule's calls. If these are all, the decision is the denial, under its shadow rule.
    ///
    /// # Errors
    /// If the receipt is not open, there is another count of numbers, the TTL is out of bounds, too
    /// many receipts are open, or the shared store does not answer.
    pub async fn extend<'c>(
        &self,
        receipt: &RuleReceipt,
        calls: &'c [RuleCall<'_>],
        costs: &[u64],
        ttl: Option<Span>,
        now: Time,
    ) -> Result<Decided<'c>, RequestError> {
        let first = calls.first().ok_or(VerbError::NotOpen)?;
        let (backend, at) = first.limits().checks(now)?;
        let ttl = ttl.map(Into::into);
        let mut costs = costs.to_vec();
        let (mut left_out, mut shadow_denial) = (Vec::new(), None);
        let answer = loop {
            let answer: Answer = match self.storage.memory() {
                Some(store) => store.extend_each_at(&receipt.stored, &costs, ttl, now)?.into(),
                None => backend.extend(&receipt.stored, &costs, ttl, at).await?,
            };
            let denier = denied_call(&answer).and_then(|index| calls.get(index)).map(RuleCall::rule);
            match denier.filter(|rule| rule.spec().shadow && !left_out.contains(&rule.name())) {
                None => break answer,
                Some(rule) => {
                    leave_out(rule, calls, &mut costs);
                    left_out.push(rule.name());
                    shadow_denial.get_or_insert(answer);
                }
            }
        };
        let denier = denied_call(&answer);
        for (index, call) in calls.iter().enumerate() {
            let denied = left_out.contains(&call.rule().name()) || denier == Some(index);
            if denied || answer.allowed() || denier.is_none() {
                call.rule.count(denied || !answer.allowed());
            }
        }
        Ok(match (calls, denier.and_then(|index| calls.get(index))) {
            ([call], _) => call.decided(shadow_denial.unwrap_or(answer), now),
            (_, Some(denier)) => Decided::new(answer, denier.key_limits(), now, false),
            (_, None) => Decided::new(answer, KeyLimits::Unlimited, now, false),
        })
    }
}

/// The index of the call that was denied.
fn denied_call(answer: &Answer) -> Option<usize> {
    usize::try_from(answer.decision().denied_call()?).ok()
}

/// Sets the costs of a rule's calls to 0.
fn leave_out(rule: &Rule, calls: &[RuleCall<'_>], costs: &mut Vec<u64>) {
    if let [for_each] = costs[..] {
        *costs = vec![for_each; calls.len()];
    }
    for (call, cost) in calls.iter().zip(costs) {
        if call.rule().name() == rule.name() {
            *cost = 0;
        }
    }
}
