//! One key under a list of rules, and its part of each open receipt.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::algorithm::{Algorithm, CallKind, delay, remaining, reported, reset_after};
use crate::decision::{ReceiptId, UNLIMITED, Usage, Window};
use crate::receipt::{Charge, ChargeId, Part, Then, first_expired};
use crate::rule::Rule;
use crate::state::LimitState;

/// The state of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) rules: Vec<Rule>,
    /// The state under each rule; after a change still under the rules before, until the next call.
    pub(crate) limits: Vec<LimitState>,
    /// Its part of each receipt.
    pub(crate) parts: BTreeMap<ReceiptId, Part>,
    charges_made: u64,
}

impl Key {
    /// Creates a key that was never charged.
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        let limits = rules.iter().cloned().map(LimitState::new).collect();
        Self { rules, limits, parts: BTreeMap::new(), charges_made: 0 }
    }

    /// Deletes the state, and with it the key's part of every receipt.
    pub(crate) fn reset(&mut self) {
        self.limits = self.rules.iter().cloned().map(LimitState::new).collect();
        self.parts.clear();
    }

    pub(crate) fn algorithms(&self) -> impl Iterator<Item = &dyn Algorithm> {
        self.limits.iter().map(LimitState::algorithm)
    }

    pub(crate) fn counts_denials(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule, Rule::SlidingLog { count_all: true, .. }))
    }

    /// Returns `true` if a reserve can charge less than its cost.
    pub(crate) fn supports_at_least(&self) -> bool {
        !self.rules.iter().any(|rule| {
            matches!(rule, Rule::Pacer { .. } | Rule::Smooth(_) | Rule::SlidingLog { count_all: true, .. })
        })
    }

    /// Brings the key to the time of a call that may change it: first what has expired by then,
    /// under the rules of before, then those of now.
    pub(crate) fn advance(&mut self, at: i128) {
        while let Some((end, receipt)) = first_expired(&self.parts, at) {
            let Some(part) = self.parts.remove(&receipt) else {
                return;
            };
            match part.ttl.map(|ttl| ttl.then) {
                Some(Then::Cancel) => drop(self.roll_back(end, &part, part.cost())),
                _ => self.discard(&part),
            }
        }
        self.convert(at);
    }

    /// Returns the key as it would be if it were advanced.
    pub(crate) fn seen_at(&self, at: i128) -> Cow<'_, Self> {
        if self.is_converted() && first_expired(&self.parts, at).is_none() {
            return Cow::Borrowed(self);
        }
        let mut seen = self.clone();
        seen.advance(at);
        Cow::Owned(seen)
    }

    /// Charges a call to all limits.
    pub(crate) fn charge(&mut self, at: i128, cost: i128) {
        for limit in &mut self.limits {
            limit.algorithm_mut().charge(at, cost);
        }
    }

    /// Charges a reservation or its extension, where the receipt has its part.
    pub(crate) fn charge_part(&mut self, at: i128, cost: i128, receipt: ReceiptId, kind: CallKind) {
        let Some(part) = self.parts.get_mut(&receipt) else {
            return;
        };
        let id = ChargeId(self.charges_made);
        self.charges_made += 1;
        part.charges.push(Charge { id, cost });
        for (position, limit) in self.limits.iter_mut().enumerate() {
            if cost > 0 && part.has(position) {
                let own_delay = delay(limit.algorithm(), at, cost, kind);
                limit.algorithm_mut().charge(at, cost);
                limit.algorithm_mut().remember(id, at, own_delay);
            }
        }
    }

    /// Charges an excess, where the part says so.
    pub(crate) fn charge_debt(&mut self, at: i128, part: &Part, excess: i128) {
        for (position, limit) in self.limits.iter_mut().enumerate() {
            if part.has(position) {
                limit.algorithm_mut().charge_debt(at, excess);
            }
        }
    }

    /// Returns up to `cost` of a part, from the newest charge first, and drops all its records. The
    /// result is `true` if any cost was returned.
    ///
    /// Each charge accounts for its full cost: what of the newest one does not count any more is
    /// not returned from an older one instead.
    pub(crate) fn roll_back(&mut self, at: i128, part: &Part, cost: i128) -> bool {
        let (mut returned, mut left) = (false, cost);
        for charge in part.charges.iter().rev() {
            let share = left.min(charge.cost);
            left -= share;
            for limit in &mut self.limits {
                if share > 0 {
                    returned |= limit.algorithm_mut().roll_back(charge.id, at, share);
                } else {
                    limit.algorithm_mut().discard(charge.id);
                }
            }
        }
        returned
    }

    /// Drops the records of a part, whose charges stay.
    pub(crate) fn discard(&mut self, part: &Part) {
        for charge in &part.charges {
            for limit in &mut self.limits {
                limit.algorithm_mut().discard(charge.id);
            }
        }
    }

    /// Returns the largest cost that every limit would allow now.
    pub(crate) fn remaining(&self, at: i128) -> u64 {
        let least = self.algorithms().map(|algorithm| remaining(algorithm, at)).min();
        least.map_or(UNLIMITED, reported)
    }

    /// Returns the usage of each limit.
    pub(crate) fn usage(&self, at: i128) -> Vec<Usage> {
        if self.limits.is_empty() {
            let (limit, remaining) = (UNLIMITED, UNLIMITED);
            return vec![Usage { limit, used: 0, remaining, reset_after: 0, window: None }];
        }
        let usage = |algorithm: &dyn Algorithm| Usage {
            limit: reported(algorithm.limit()),
            used: reported(algorithm.used(at)),
            remaining: reported(remaining(algorithm, at)),
            reset_after: reported(reset_after(algorithm, at)),
            window: algorithm
                .current_window(at)
                .map(|window| Window { start: reported(window.start), end: reported(window.end) }),
        };
        self.algorithms().map(usage).collect()
    }
}
