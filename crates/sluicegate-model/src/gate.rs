//! What each algorithm has to say for itself, and the answers that follow from it for all of them alike.
//!
//! Times, costs and durations are `i128` in here, so that no sum or product of valid numbers overflows.

use crate::answer::{ReceiptId, RetryAfter};
use crate::search::{largest_cost, shortest_wait};

/// How a call asks: to go ahead now, or to be told to wait.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    /// A plain check.
    Check,
    /// A reservation that is ready to wait so long.
    Reserve { max_wait: i128 },
}

/// The state of one key under one rule.
///
/// `at` is always the caller's own clock, which may step back; what that means is up to each algorithm.
pub(crate) trait Gate {
    /// The most that an idle key could take at once.
    fn limit(&self) -> i128;

    /// Whether any cost may pass, those above the limit too.
    fn has_no_largest_cost(&self) -> bool {
        false
    }

    /// What remains, if that is not the largest cost that would be allowed.
    fn told_remaining(&self, _at: i128) -> Option<i128> {
        None
    }

    /// How long until the key is as good as new, if that is not the first moment at which it is.
    fn told_reset_after(&self, _at: i128) -> Option<i128> {
        None
    }

    /// Whether a check for a cost of 1 to `limit` would be allowed.
    fn allows(&self, at: i128, cost: i128) -> bool;

    /// Whether a reservation for a cost of 1 to `limit` would be allowed.
    fn allows_reserve(&self, at: i128, cost: i128, _max_wait: i128) -> bool {
        self.allows(at, cost)
    }

    /// Whether the key is as good as one that was never charged.
    fn as_new(&self, at: i128) -> bool;

    /// How long everything is still closed; all waits are then told until it opens.
    fn closed_for(&self, _at: i128) -> i128 {
        0
    }

    /// How long an allowed check has to wait before it acts.
    fn check_delay(&self, _at: i128) -> i128 {
        0
    }

    /// How long an allowed reservation has to wait before it acts.
    fn reserve_delay(&self, at: i128, _cost: i128) -> i128 {
        self.check_delay(at)
    }

    /// Takes the cost of a call that was allowed.
    fn charge(&mut self, at: i128, cost: i128);

    /// Takes a cost that nobody asked about first.
    fn charge_debt(&mut self, at: i128, cost: i128) {
        self.charge(at, cost);
    }

    /// Whether a denied call is charged as well.
    fn counts_denials(&self) -> bool {
        false
    }

    /// Whether cost can be given back without a receipt.
    fn offers_refund(&self) -> bool {
        true
    }

    /// Gives cost back without a receipt.
    fn refund(&mut self, at: i128, cost: i128);

    /// Remembers the charge that was made just now, so that it can be given back later.
    fn remember(&mut self, receipt: ReceiptId, at: i128, delay: i128);

    /// Gives back what still counts of a remembered charge, at most `cost`, and forgets it.
    /// True if that was anything.
    fn give_back(&mut self, receipt: ReceiptId, at: i128, cost: i128) -> bool;

    /// Forgets a remembered charge, which stays charged.
    fn forget(&mut self, receipt: ReceiptId);

    /// When the next window starts, or what comes closest to it.
    fn next_window(&self, at: i128) -> i128;
}

/// Whether the call would be allowed, whatever its cost.
pub(crate) fn admits(gate: &dyn Gate, at: i128, cost: i128, ask: Ask) -> bool {
    if cost == 0 {
        return true;
    }
    if cost > gate.limit() && !gate.has_no_largest_cost() {
        return false;
    }
    match ask {
        Ask::Check => gate.allows(at, cost),
        Ask::Reserve { max_wait } => gate.allows_reserve(at, cost, max_wait),
    }
}

/// How long the call has to wait before it acts, if it is allowed.
pub(crate) fn delay(gate: &dyn Gate, at: i128, cost: i128, ask: Ask) -> i128 {
    if cost == 0 {
        return 0;
    }
    match ask {
        Ask::Check => gate.check_delay(at),
        Ask::Reserve { .. } => gate.reserve_delay(at, cost),
    }
}

/// The largest cost that a check would be allowed now.
pub(crate) fn remaining(gate: &dyn Gate, at: i128) -> i128 {
    gate.told_remaining(at).unwrap_or_else(|| largest_cost(gate.limit(), |cost| gate.allows(at, cost)))
}

/// The shortest wait after which the same call would be allowed.
pub(crate) fn retry_after(gate: &dyn Gate, at: i128, cost: i128, ask: Ask) -> RetryAfter {
    if cost > gate.limit() && !gate.has_no_largest_cost() {
        return RetryAfter::Never;
    }
    if gate.closed_for(at) > 0 {
        return RetryAfter::After(told(gate.closed_for(at)));
    }
    match shortest_wait(|wait| admits(gate, at + wait, cost, ask)) {
        Some(wait) => RetryAfter::After(told(wait)),
        None => RetryAfter::Never,
    }
}

/// The shortest wait until the key is as good as new.
pub(crate) fn reset_after(gate: &dyn Gate, at: i128) -> i128 {
    if let Some(told) = gate.told_reset_after(at) {
        return told;
    }
    match gate.closed_for(at) {
        0 => shortest_wait(|wait| gate.as_new(at + wait)).unwrap_or(i128::MAX),
        closed_for => closed_for,
    }
}

/// A number as a caller is told it: never below 0, and what has no end is the largest there is.
pub(crate) fn told(number: i128) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(u64::MAX)
}
