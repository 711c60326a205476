//! A simulation and all that was tried on it, for tables, files and pictures to be made of.

use crate::simulate::{Outcome, Simulation};
use sluicegate::Limit;
use sluicegate::core::Time;

/// What was simulated.
#[derive(Debug)]
pub struct Report<'a> {
    /// Where the calls come from, in a few words.
    pub source: String,
    /// The traffic.
    pub simulation: Simulation<'a>,
    /// What was tried on it, in the order in which it was asked for.
    pub tried: Vec<Tried>,
}

/// A limit, or several that must all agree, and what came of it.
#[derive(Clone, Debug)]
pub struct Tried {
    /// What it is called.
    pub label: String,
    /// The limits.
    pub limits: Vec<Limit>,
    /// What they did.
    pub outcome: Outcome,
}

impl Tried {
    /// The limit that was exceeded most in some stretch, with the most that was allowed there.
    pub fn worst(&self) -> Option<(&Limit, &crate::simulate::Worst)> {
        let all = self.limits.iter().zip(&self.outcome.worst);
        // Compared as fractions: a / b > c / d when a * d > c * b. The first of equals.
        all.reduce(|most, next| {
            let exceeds = u128::from(next.1.count) * u128::from(most.0.count())
                > u128::from(most.1.count) * u128::from(next.0.count());
            if exceeds { next } else { most }
        })
    }
}

impl Report<'_> {
    /// A time as this traffic tells it: by the calendar, or from its beginning.
    pub fn time(&self, at: Time) -> String {
        self.simulation.traffic().clock().tell(at)
    }
}
