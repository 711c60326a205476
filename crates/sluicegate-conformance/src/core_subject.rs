//! The core as a subject: a map of key states, and nothing else.

use crate::subject::{Fields, Subject};
use crate::verbs::KeySubject;
use sluicegate::Limit;
use sluicegate_core::receipts::Receipt;
use sluicegate_core::verbs::Unsupported;
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
    fn check(&mut self, at: Time, key: &[u8], cost: u32) -> Fields {
        let account = self.keys.entry(key.to_vec()).or_default();
        account.check(&self.limits, at, cost).into()
    }
}

/// One key of the core.
#[derive(Debug)]
pub struct CoreKey {
    limits: Vec<AnyLimit>,
    account: Account<AnyLimit>,
}

impl CoreKey {
    /// Creates a fresh key under limits created at `start`.
    pub fn new(limits: &[Limit], start: Time) -> CoreKey {
        CoreKey { limits: made(limits, start), account: Account::default() }
    }
}

impl KeySubject for CoreKey {
    type Receipt = Receipt;

    fn check(&mut self, now: Time, cost: u32) -> Decision {
        self.account.check(&self.limits, now, cost)
    }

    fn peek(&mut self, now: Time, cost: u32) -> Decision {
        self.account.peek(&self.limits, now, cost)
    }

    fn take(&mut self, now: Time, up_to: u32) -> Result<(Decision, u32), Unsupported> {
        self.account.take(&self.limits, now, up_to)
    }

    fn refund(&mut self, now: Time, cost: u32) -> Result<Decision, Unsupported> {
        self.account.refund(&self.limits, now, cost)
    }

    fn reserve(
        &mut self,
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<(Decision, Option<Receipt>), Unsupported> {
        self.account.reserve(&self.limits, now, cost, max_wait)
    }

    fn check_within(&mut self, now: Time, cost: u32, max_wait: Span) -> Result<Decision, Unsupported> {
        self.account.check_within(&self.limits, now, cost, max_wait)
    }

    fn cancel(&mut self, now: Time, receipt: Receipt) -> bool {
        self.account.cancel(&self.limits, now, receipt)
    }

    fn settle(&mut self, now: Time, receipt: Receipt, used: u32) -> bool {
        self.account.settle(&self.limits, now, receipt, used)
    }

    fn next_window(&mut self, now: Time) -> Time {
        self.account.next_window(&self.limits, now)
    }

    fn usage(&mut self, now: Time) -> Vec<Usage> {
        self.account.usage(&self.limits, now)
    }

    fn reset(&mut self) {
        self.account.reset();
    }
}

/// Returns the core's form of the limits.
///
/// # Panics
/// If one of them is a concurrency limit, which grants leases instead of deciding checks.
pub(crate) fn made(limits: &[Limit], start: Time) -> Vec<AnyLimit> {
    limits.iter().map(|limit| limit.made_at(start).expect("the limit decides checks")).collect()
}
