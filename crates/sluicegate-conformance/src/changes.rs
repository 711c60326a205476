//! Which changes of limits a trace has.

use crate::oracle;
use crate::random;
use fastrand::Rng;
use sluicegate::Limit;
use sluicegate::limit::{Spec, WindowSpec};
use sluicegate_core::{Rate, Time};
use std::ops::RangeInclusive;

/// Which changes are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changes {
    /// All of them.
    All,
    /// Those that a shared store makes like memory. It has a state per position and algorithm and
    /// no rule of its own, so it does not know that an algorithm was replaced for a while: when it
    /// comes back, so does its state. And the receipts of a key are void together.
    InSharedStore,
}

/// The changes of one trace.
pub(crate) struct Changing {
    changes: Changes,
    /// The algorithms that each position has had.
    had: Vec<Vec<&'static str>>,
}

impl Changing {
    pub(crate) fn new(changes: Changes, limits: &[Limit]) -> Changing {
        let mut changing = Changing { changes, had: Vec::new() };
        changing.changed(limits);
        changing
    }

    /// Returns other limits; `None` if they cannot be compared.
    pub(crate) fn next(
        &self,
        rng: &mut Rng,
        limits: &[Limit],
        (start, times): (Time, &RangeInclusive<Time>),
    ) -> Option<Vec<Limit>> {
        let changed = random::changed(rng, limits);
        // The model knows calendars by their boundaries only. Two zones can have the same.
        let place = |limit: &Limit| match limit.spec() {
            Spec::FixedWindow { windows, .. } => Some(windows.clone()),
            _ => None,
        };
        let is_calendar = |place: &Option<WindowSpec>| matches!(place, Some(WindowSpec::Calendar { .. }));
        let rules = |limits| oracle::places(limits, start, times);
        let (old, new) = (rules(limits), rules(&changed));
        let is_alike = limits.iter().zip(&changed).zip(old.iter().zip(&new)).any(|((old, new), places)| {
            is_calendar(&place(new)) && place(old) != place(new) && places.0 == places.1
        });
        let returns = changed.iter().enumerate().any(|(position, limit)| {
            let is_kept = limits.get(position).is_some_and(|old| old.algorithm() == limit.algorithm());
            !is_kept && self.had.get(position).is_some_and(|had| had.contains(&limit.algorithm()))
        });
        (!(is_alike || returns && self.changes == Changes::InSharedStore)).then_some(changed)
    }

    /// Returns `true` if a shared store may void receipts that the model keeps.
    pub(crate) fn voids_receipts(&self, old: &[Limit], new: &[Limit]) -> bool {
        let is_kept = |(old, new): (&Limit, &Limit)| old == new || keeps(old, new);
        self.changes == Changes::InSharedStore
            && (old.len() != new.len() || !old.iter().zip(new).all(is_kept))
    }

    pub(crate) fn changed(&mut self, limits: &[Limit]) {
        self.had.resize(self.had.len().max(limits.len()), Vec::new());
        for (had, limit) in self.had.iter_mut().zip(limits) {
            had.push(limit.algorithm());
        }
    }
}

/// Returns `true` if a shared store keeps receipts under a limit that becomes another.
fn keeps(old: &Limit, new: &Limit) -> bool {
    match (old.spec(), new.spec()) {
        (Spec::FixedWindow { windows: old, .. }, Spec::FixedWindow { windows: new, .. }) => old == new,
        (Spec::SlidingWindow { rate: old }, Spec::SlidingWindow { rate: new }) => {
            old.period() == new.period()
        }
        (Spec::SlidingLog { .. }, Spec::SlidingLog { .. }) => true,
        _ => old.algorithm() == new.algorithm() && is_fast(old) && is_fast(new),
    }
}

/// Returns `true` if no debt of a bucket reaches a century, after which a receipt from before it
/// may return less than in memory.
fn is_fast(limit: &Limit) -> bool {
    let rate = match limit.spec() {
        Spec::TokenBucket { rate, .. } | Spec::LeakyBucket { rate, .. } | Spec::Pacer { rate, .. } => *rate,
        Spec::MinInterval { interval } => match Rate::new(1, *interval) {
            Ok(rate) => rate,
            Err(_) => return false,
        },
        _ => return false,
    };
    rate.period().as_micros() / 1_000 <= rate.count()
}
