//! The core as a subject: every key's state in a map, nothing else.

use crate::subject::{Answer, Subject};
use sluicegate::Limit;
use sluicegate::core::Account;
use sluicegate::core::{AnyLimit, Time};
use std::collections::HashMap;

/// The core, asked directly.
#[derive(Debug)]
pub struct InCore {
    limits: Vec<AnyLimit>,
    keys: HashMap<Vec<u8>, Account<AnyLimit>>,
}

impl InCore {
    /// A limiter made at `start`.
    pub fn new(limits: &[Limit], start: Time) -> InCore {
        InCore { limits: limits.iter().map(|limit| limit.made_at(start)).collect(), keys: HashMap::new() }
    }
}

impl Subject for InCore {
    fn check(&mut self, at: Time, key: &[u8], cost: u32) -> Answer {
        let account = self.keys.entry(key.to_vec()).or_default();
        account.check(&self.limits, at, cost).into()
    }
}
