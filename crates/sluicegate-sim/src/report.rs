//! A simulation and all that was tried on it, for tables, files and pictures to be made of.

use crate::human;
use crate::simulate::crowd::Crowd;
use crate::simulate::{Outcome, Simulation, Worst};
use sluicegate::Limit;
use sluicegate::limit::ListError;
use sluicegate_core::time::DAY;
use sluicegate_core::{Span, Time};

/// A traffic as long as this tells the year.
const YEAR_FROM: Span = Span::from_micros(300 * DAY);

/// What was simulated.
#[derive(Debug)]
pub struct Report<'a> {
    /// Where the calls come from, in a few words.
    pub source: String,
    /// The traffic.
    pub simulation: Simulation<'a>,
    /// Its keys by what they offer.
    pub crowd: Crowd,
    /// What was tried on it, in the order in which it was asked for.
    pub tried: Vec<Tried>,
}

/// A limit or a list of limits, and its result.
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
    /// The limits as text: `A + B`.
    pub fn limits_text(&self) -> String {
        Limit::list_text(&self.limits)
    }

    /// The limit that was exceeded most in some stretch, with the most that was allowed there.
    pub fn worst(&self) -> Option<(&Limit, &Worst)> {
        let all = self.limits.iter().zip(&self.outcome.worst);
        // Compared as fractions: a / b > c / d when a * d > c * b. The first of equals.
        all.reduce(|most, next| {
            let exceeds = u128::from(next.1.count) * u128::from(most.0.count())
                > u128::from(most.1.count) * u128::from(next.0.count());
            if exceeds { next } else { most }
        })
    }
}

impl<'a> Report<'a> {
    /// Nothing has been tried yet.
    pub fn new(source: String, simulation: Simulation<'a>) -> Report<'a> {
        let crowd = Crowd::new(&simulation);
        Report { source, simulation, crowd, tried: Vec::new() }
    }

    /// Tries limits, each under its label. `tell` hears from time to time how many more calls are
    /// decided.
    ///
    /// # Errors
    /// When limits do not go together.
    pub fn run(
        &mut self,
        candidates: &[(String, Vec<Limit>)],
        mut tell: impl FnMut(u64),
    ) -> Result<(), ListError> {
        let mut try_all = |simulation: &Simulation<'a>| -> Result<Vec<Tried>, ListError> {
            let tried = |(label, limits): &(String, Vec<Limit>)| {
                let outcome = simulation.run(limits, &mut tell)?;
                Ok(Tried { label: label.clone(), limits: limits.clone(), outcome })
            };
            candidates.iter().map(tried).collect()
        };
        self.tried = try_all(&self.simulation)?;
        let last_act = self.tried.iter().map(|tried| tried.outcome.last_act).max().unwrap_or_default();
        if last_act >= self.simulation.timeline().end() {
            // Calls act after the traffic is over: once more, with all of that time in view.
            self.simulation.show_until(last_act);
            self.tried = try_all(&self.simulation)?;
        }
        Ok(())
    }

    /// How many calls of how many keys: `12 000 calls of 100 keys`.
    pub fn calls_and_keys(&self) -> String {
        let traffic = self.simulation.traffic();
        let calls = human::many(traffic.calls().len() as u64, "call");
        format!("{calls} of {}", human::many(traffic.keys() as u64, "key"))
    }

    /// A time in full, as this traffic tells it: by the calendar, or from its beginning.
    pub fn time(&self, at: Time) -> String {
        self.simulation.traffic().clock().tell(at)
    }

    /// The same without the year, unless it takes one to tell times apart.
    pub fn brief_time(&self, at: Time) -> String {
        let traffic = self.simulation.traffic();
        if traffic.length() > YEAR_FROM { self.time(at) } else { traffic.clock().tell_briefly(at) }
    }
}
