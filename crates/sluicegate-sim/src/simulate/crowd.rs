//! The keys as a crowd: who was turned away, and whether the limit met those that it was meant for.

use super::{Offered, Outcome, Simulation};
use sluicegate_core::Time;

/// How one key fared under limits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct KeyOutcome {
    /// The cost it was allowed.
    pub allowed_cost: u64,
    /// When its first denial was.
    pub first_denied: Time,
    /// When its last denial was.
    pub last_denied: Time,
    /// How many of its calls were denied. All calls together fit in 32 bits
    /// ([`CALLS_MAX`](crate::traffic::CALLS_MAX)).
    pub denied: u32,
    /// How many calls have now been denied in a row.
    in_a_row: u32,
}

impl KeyOutcome {
    pub(super) fn allow(&mut self, cost: u64) {
        self.allowed_cost += cost;
        self.in_a_row = 0;
    }

    /// How many calls have been denied in a row with this one.
    pub(super) fn deny(&mut self, at: Time) -> u32 {
        // The clock may step back, so the last one heard of need not be the latest.
        self.first_denied = if self.denied == 0 { at } else { self.first_denied.min(at) };
        self.last_denied = self.last_denied.max(at);
        self.denied += 1;
        self.in_a_row += 1;
        self.in_a_row
    }
}

/// Keys from the busiest to the quietest, and what divides them.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// The places of the keys, those that offer most first, the first of equals first.
    ranked: Vec<u32>,
    /// The number of calls at the 99th percentile, if there are enough keys for one.
    p99: Option<u64>,
}

/// A tenth of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decile {
    /// How many keys.
    pub keys: usize,
    /// The cost that they offer.
    pub offered: u64,
    /// The cost of that which is allowed.
    pub allowed: u64,
}

/// What the keys above the 99th percentile did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Above {
    /// They have more calls than this.
    pub calls: u64,
    /// How many keys.
    pub keys: usize,
    /// How many of their calls were denied.
    pub denied: u64,
}

/// Fewer keys have no tenths.
const DECILES_FROM: usize = 10;
/// Fewer keys have no 99th percentile.
const P99_FROM: usize = 100;

impl Crowd {
    /// Ranks the keys of a traffic.
    pub fn new(simulation: &Simulation<'_>) -> Crowd {
        let keys = simulation.keys();
        let mut ranked: Vec<u32> = (0..).zip(keys).map(|(place, _)| place).collect();
        let offered = |place: &u32| keys.get(*place as usize).copied().unwrap_or_default();
        ranked.sort_by_key(|place| std::cmp::Reverse(offered(place).cost));
        let mut calls: Vec<u64> = keys.iter().map(|key| key.calls).collect();
        calls.sort_unstable();
        // The nearest rank: the least number that 99 % of the keys do not exceed.
        let rank = (calls.len() * 99).div_ceil(100);
        let p99 = calls.get(rank.saturating_sub(1)).copied().filter(|_| calls.len() >= P99_FROM);
        Crowd { ranked, p99 }
    }

    /// The tenths of the keys, the busiest first, if there are enough keys.
    pub fn deciles(&self, offered: &[Offered], outcome: &Outcome) -> Vec<Decile> {
        if self.ranked.len() < DECILES_FROM {
            return Vec::new();
        }
        let many = self.ranked.len();
        let tenth = |place: usize| {
            let keys = self.ranked.get(place * many / 10..(place + 1) * many / 10).unwrap_or_default();
            let of = |key: &u32| offered.get(*key as usize).map_or(0, |key| key.cost);
            let allowed = |key: &u32| outcome.keys.get(*key as usize).map_or(0, |key| key.allowed_cost);
            Decile {
                keys: keys.len(),
                offered: keys.iter().map(of).sum(),
                allowed: keys.iter().map(allowed).sum(),
            }
        };
        (0..10).map(tenth).collect()
    }

    /// What came from the keys above the 99th percentile, if there are enough keys for one.
    pub fn above_p99(&self, offered: &[Offered], outcome: &Outcome) -> Option<Above> {
        let calls = self.p99?;
        let above = offered.iter().zip(&outcome.keys).filter(|(offered, _)| offered.calls > calls);
        let none = Above { calls, keys: 0, denied: 0 };
        Some(above.fold(none, |sum, (_, key)| Above {
            keys: sum.keys + 1,
            denied: sum.denied + u64::from(key.denied),
            ..sum
        }))
    }

    /// The keys with the most denied calls, at most `top` of them, the busier of equals first.
    pub fn most_affected(&self, outcome: &Outcome, top: usize) -> Vec<u32> {
        let denied = |place: &u32| outcome.keys.get(*place as usize).map_or(0, |key| key.denied);
        let mut affected: Vec<u32> = self.ranked.iter().filter(|place| denied(place) > 0).copied().collect();
        affected.sort_by_key(|place| std::cmp::Reverse(denied(place)));
        affected.truncate(top);
        affected
    }
}
