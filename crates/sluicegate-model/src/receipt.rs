//! What an open receipt stands for.

use std::collections::BTreeMap;

use crate::decision::ReceiptId;

/// Identifies one charge of one key, for the algorithms that record where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChargeId(pub(crate) u64);

/// A reservation's own time to live, and what happens to its charge then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ttl {
    /// How long the receipt is open, from the time of the call. At least 1.
    pub length: u64,
    /// What happens to the charge at its end.
    pub then: Then,
}

/// What happens to a charge when its receipt expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Then {
    /// It stays.
    #[default]
    Keep,
    /// It is returned, as a cancel would at that moment.
    Cancel,
}

/// What one key holds of a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The reservation and its extensions, oldest first.
    pub(crate) charges: Vec<Charge>,
    /// Whether each limit of the list still has its part of the reservation.
    limits: Vec<bool>,
    /// The time of the reservation or the latest extension.
    pub(crate) since: i128,
    pub(crate) ttl: Option<Ttl>,
}

/// One charge of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) id: ChargeId,
    pub(crate) cost: i128,
}

impl Part {
    /// Creates the part of a reservation under this many limits, without a charge yet.
    pub(crate) fn new(at: i128, limits: usize, ttl: Option<Ttl>) -> Self {
        Self { charges: Vec::new(), limits: vec![true; limits], since: at, ttl }
    }

    /// Returns `true` if the limit at a position has its part of the reservation.
    pub(crate) fn has(&self, position: usize) -> bool {
        self.limits.get(position) == Some(&true)
    }

    /// Keeps only the parts at these positions. Returns `false` if none is left.
    pub(crate) fn keep(&mut self, kept: impl Fn(usize) -> bool) -> bool {
        for (position, part) in self.limits.iter_mut().enumerate() {
            *part &= kept(position);
        }
        self.limits.contains(&true)
    }

    /// Returns the moment from which the receipt is no longer open, if it has a time to live.
    pub(crate) fn ends_at(&self) -> Option<i128> {
        self.ttl.map(|ttl| self.since + i128::from(ttl.length))
    }

    /// Returns what was charged in all.
    pub(crate) fn cost(&self) -> i128 {
        self.charges.iter().map(|charge| charge.cost).sum()
    }
}

/// Returns the receipt that expires first of those that have by now; of several at one moment, the
/// newest reservation.
pub(crate) fn first_expired(parts: &BTreeMap<ReceiptId, Part>, at: i128) -> Option<(i128, ReceiptId)> {
    let ends = parts.iter().rev().filter_map(|(receipt, part)| Some((part.ends_at()?, *receipt)));
    ends.filter(|(end, _)| *end <= at).min_by_key(|(end, _)| *end)
}
