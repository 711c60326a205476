//! The core as a subject: a map of key states, and nothing else.

use crate::subject::{Fields, Subject};
use crate::verbs::{KeySubject, Reserved};
use sluicegate::{Limit, ReserveOptions};
use sluicegate_core::algorithm::Verb;
use sluicegate_core::receipts::{Receipt, ReserveTerms};
use sluicegate_core::verbs::{Unsupported, Verbs as _};
use sluicegate_core::{Account, AnyLimit, Decision, Span, Time, Usage};
use std::collections::HashMap;

/// The core, called directly.
#[derive(Debug)]
pub struct CoreSubject {
    limits: Vec<AnyLimit>,
    keys: HashMap<Vec<u8>, Account<AnyLimit>>,
}

impl CoreSubject {
    /// Creates the limits at `start`.
    pub fn new(limits: &[Limit], start: Time) -> CoreSubject {
        CoreSubject { limits: made(limits, start), keys: HashMap::new() }
    }
}

impl Subject for CoreSubject {
    fn check(&mut self, at: Time, key: &[u8], cost: u64) -> Fields {
        let account = self.keys.entry(key.to_vec()).or_default();
        account.check(&self.limits, at, cost).into()
    }
}

/// One key of the core.
#[derive(Debug)]
pub struct CoreKey {
    limits: Vec<AnyLimit>,
    /// The limits that the account's state was written under, if they have changed since.
    before: Option<Vec<AnyLimit>>,
    account: Account<AnyLimit>,
}

impl CoreKey {
    /// Creates a fresh key under limits created at `start`.
    pub fn new(limits: &[Limit], start: Time) -> CoreKey {
        CoreKey { limits: made(limits, start), before: None, account: Account::default() }
    }

    /// Converts the account to the current limits.
    fn convert(&mut self, now: Time) {
        if let Some(before) = self.before.take() {
            self.account.adopt(&self.limits, &before, now);
        }
    }

    /// Returns the account as it would be if it were converted now.
    fn seen(&self, now: Time) -> Account<AnyLimit> {
        let mut account = self.account.clone();
        if let Some(before) = &self.before {
            account.adopt(&self.limits, before, now);
        }
        account
    }

    /// Converts the account for a call that may change it.
    fn convert_for(&mut self, verb: Verb, now: Time) -> Result<(), Unsupported> {
        self.limits.iter().try_for_each(|limit| limit.require(verb))?;
        self.convert(now);
        Ok(())
    }

    fn convert_for_receipt(&mut self, now: Time, receipt: Receipt) {
        if self.account.is_open(receipt) {
            self.convert(now);
        }
    }
}

impl KeySubject for CoreKey {
    type Receipt = Receipt;

    fn check(&mut self, now: Time, cost: u64) -> Decision {
        if cost == 0 {
            return self.peek(now, cost);
        }
        self.convert(now);
        self.account.check(&self.limits, now, cost)
    }

    fn peek(&mut self, now: Time, cost: u64) -> Decision {
        self.seen(now).peek(&self.limits, now, cost)
    }

    fn take(&mut self, now: Time, up_to: u64) -> Result<(Decision, u64), Unsupported> {
        if up_to == 0 {
            return self.seen(now).take(&self.limits, now, up_to);
        }
        self.convert_for(Verb::Take, now)?;
        self.account.take(&self.limits, now, up_to)
    }

    fn refund(&mut self, now: Time, cost: u64) -> Result<Decision, Unsupported> {
        if cost == 0 {
            return self.seen(now).refund(&self.limits, now, cost);
        }
        self.convert_for(Verb::Refund, now)?;
        self.account.refund(&self.limits, now, cost)
    }

    fn reserve(
        &mut self,
        now: Time,
        cost: u64,
        options: &ReserveOptions,
    ) -> Result<Reserved<Receipt>, Unsupported> {
        let verb = if options.at_least.is_some() { Verb::ReserveAtLeast } else { Verb::Reserve };
        self.convert_for(verb, now)?;
        let &ReserveOptions { max_wait, at_least, ttl, .. } = options;
        let terms = ReserveTerms { max_wait, at_least, ttl };
        let (decision, granted, receipt) = self.account.reserve_with(&self.limits, now, cost, terms)?;
        Ok(Reserved { decision, receipt, granted })
    }

    fn extend(&mut self, now: Time, receipt: Receipt, cost: u64, ttl: Option<Span>) -> Option<Decision> {
        self.convert_for_receipt(now, receipt);
        self.account.extend(&self.limits, now, receipt, cost, ttl)
    }

    fn check_within(&mut self, now: Time, cost: u64, max_wait: Span) -> Result<Decision, Unsupported> {
        if cost == 0 {
            return self.seen(now).check_within(&self.limits, now, cost, max_wait);
        }
        self.convert_for(Verb::CheckWithin, now)?;
        self.account.check_within(&self.limits, now, cost, max_wait)
    }

    fn cancel(&mut self, now: Time, receipt: Receipt) -> bool {
        self.convert_for_receipt(now, receipt);
        self.account.cancel(&self.limits, now, receipt)
    }

    fn settle(&mut self, now: Time, receipt: Receipt, used: u64) -> bool {
        self.convert_for_receipt(now, receipt);
        self.account.settle(&self.limits, now, receipt, used)
    }

    fn next_window(&mut self, now: Time) -> Time {
        self.seen(now).next_window(&self.limits, now)
    }

    fn usage(&mut self, now: Time) -> Vec<Usage> {
        self.seen(now).usage(&self.limits, now)
    }

    fn reset(&mut self) {
        self.before = None;
        self.account.reset();
    }

    fn change(&mut self, limits: &[Limit], start: Time) -> bool {
        let before = std::mem::replace(&mut self.limits, made(limits, start));
        // Limits in between decided no call.
        self.before.get_or_insert(before);
        true
    }
}

/// Returns the core's form of the limits.
///
/// # Panics
/// If one of them is a concurrency limit, which grants leases instead of deciding checks.
pub(crate) fn made(limits: &[Limit], start: Time) -> Vec<AnyLimit> {
    limits.iter().map(|limit| limit.made_at(start).expect("the limit decides checks")).collect()
}
