//! The past charges of one key, for the algorithms that count charges in a stretch of time.
//!
//! Here the clock never steps back: a call earlier than the latest charge is treated as
//! simultaneous. So the entries are in the order of their times, and a stretch that has passed
//! never comes back.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::receipt::ChargeId;
use crate::rollback::Rollback;

/// The most that debt brings the count of a window or log to.
pub(crate) const MOST_DEBT: i128 = 2_000_000_000_000;

/// Returns the part of an excess that is charged on top of what is counted already, which it brings
/// to `most` at most.
pub(crate) fn debt_within_bound(counted: i128, excess: i128, most: i128) -> i128 {
    excess.min(most - counted).max(0)
}

/// Charges by effective time, oldest first, and the claims of receipts on them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct History {
    entries: Vec<Entry>,
    latest: Option<i128>,
    claims: BTreeMap<ChargeId, Claim>,
}

/// The charges at one effective time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    at: i128,
    cost: i128,
}

/// What a receipt records of its charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The stretch of time in which the charge was counted: a window, or the one time of a log's
    /// entry.
    pub(crate) stretch: Range<i128>,
    /// The count of that stretch just after the charge, less what was returned from below it.
    height: i128,
}

impl History {
    /// Returns the time at which a call made at `at` is decided and recorded.
    pub(crate) fn effective(&self, at: i128) -> i128 {
        self.latest.map_or(at, |latest| latest.max(at))
    }

    /// Returns what was charged in a stretch of time and not returned.
    pub(crate) fn sum(&self, stretch: &Range<i128>) -> i128 {
        let from = self.entries.partition_point(|entry| entry.at < stretch.start);
        let inside = self.entries.iter().skip(from).take_while(|entry| entry.at < stretch.end);
        inside.map(|entry| entry.cost).sum()
    }

    /// Returns the time of the oldest charge in a stretch.
    pub(crate) fn oldest(&self, stretch: &Range<i128>) -> Option<i128> {
        let mut times = self.entries.iter().map(|entry| entry.at);
        times.find(|time| stretch.contains(time))
    }

    /// Records a charge at an effective time. One of cost 0 leaves no entry.
    pub(crate) fn add(&mut self, effective: i128, cost: i128) {
        self.latest = Some(effective);
        if cost == 0 {
            return;
        }
        match self.entries.last_mut() {
            Some(newest) if newest.at == effective => newest.cost += cost,
            _ => self.entries.push(Entry { at: effective, cost }),
        }
    }

    /// Drops entries that no later call can reach, only to keep the sums fast.
    pub(crate) fn drop_before(&mut self, time: i128) {
        self.entries.retain(|entry| entry.at >= time);
    }

    /// Drops the oldest entries that are not needed to add up to `count`.
    pub(crate) fn keep_newest(&mut self, count: i128) {
        let mut total: i128 = self.entries.iter().map(|entry| entry.cost).sum();
        while let Some(oldest) = self.entries.first() {
            total -= oldest.cost;
            if total < count {
                return;
            }
            self.entries.remove(0);
        }
    }

    /// Drops what a stretch counts above a bound. Claims keep their heights.
    pub(crate) fn cap(&mut self, stretch: &Range<i128>, most: i128) {
        let claims = std::mem::take(&mut self.claims);
        self.remove(stretch, 0, (self.sum(stretch) - most).max(0));
        self.claims = claims;
    }

    /// Returns cost to a stretch without a receipt, from the top of its count.
    pub(crate) fn refund(&mut self, stretch: &Range<i128>, cost: i128) {
        self.remove(stretch, self.sum(stretch), cost);
    }

    /// Returns cost to the entries of a stretch one by one, the newest first.
    pub(crate) fn refund_newest(&mut self, stretch: &Range<i128>, cost: i128) {
        let mut left = cost;
        for Entry { at, cost } in self.entries.clone().into_iter().rev() {
            if stretch.contains(&at) {
                left -= self.remove(&(at..at + 1), cost, left);
            }
        }
    }

    /// Returns the part of a charge that still counts, at most `cost`. Returns `true` if that was
    /// anything.
    pub(crate) fn roll_back(&mut self, claim: &Claim, cost: i128) -> bool {
        self.remove(&claim.stretch, claim.height, cost.min(claim.height)) > 0
    }

    /// Removes cost from the count of a stretch, below a height. Returns how much was removed.
    fn remove(&mut self, stretch: &Range<i128>, height: i128, cost: i128) -> i128 {
        let mut left = cost;
        for entry in self.entries.iter_mut().rev().filter(|entry| stretch.contains(&entry.at)) {
            let part = left.min(entry.cost);
            entry.cost -= part;
            left -= part;
        }
        self.entries.retain(|entry| entry.cost > 0);
        let rollback = Rollback { end: height, length: cost - left };
        for claim in self.claims.values_mut().filter(|claim| claim.stretch == *stretch) {
            claim.height = rollback.shifted(claim.height);
        }
        rollback.length
    }

    /// Drops everything, even the latest time, as if nothing had ever been charged.
    pub(crate) fn close(&mut self) {
        *self = Self::default();
    }

    /// Records the charge just made within `stretch`.
    pub(crate) fn remember(&mut self, charge: ChargeId, stretch: Range<i128>) {
        let height = self.sum(&stretch);
        self.claims.insert(charge, Claim { stretch, height });
    }

    /// Drops the record of a charge, and returns it.
    pub(crate) fn discard(&mut self, charge: ChargeId) -> Option<Claim> {
        self.claims.remove(&charge)
    }
}
