//! Overload: callers with a timeout, a dependency that slows down or fails, and what protects them
//! from each other.
//!
//! ```text
//! workload ──▶ callers ──▶ protection ──▶ dependency: a queue, N workers, bad times
//!                 ▲            │ no               │ answer, error
//!                 └────────────┴──────────────────┘  or nothing until the caller's timeout
//! ```
//!
//! Time is virtual and the same seed gives the same numbers on every machine. Nothing is decided
//! here: every try goes through a guard of the library, on a clock that is set by hand. A
//! dependency does not know that a caller has given up, so it keeps working without a caller: that
//! is how a slow minute becomes a bad hour.
//!
//! ```
//! use sluicegate_sim::overload::{Scenario, Protection};
//! use sluicegate_sim::traffic::{Reading, workload::generate};
//! use sluicegate_core::Span;
//!
//! let traffic = generate(&["steady 100/s for=10s".parse()?], 1, Span::ZERO, Reading::default(), |_| {})?;
//! let dependency = "workers=10 takes=50ms".parse()?;
//! let scenario = Scenario { traffic: &traffic, dependency, callers: "timeout=1s".parse()?, seed: 1 };
//! let outcome = scenario.run(&"bulkhead 20".parse::<Protection>()?)?;
//! assert_eq!(outcome.totals.good, 1_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod callers;
mod dependency;
mod protection;
mod record;
mod run;

pub use callers::{Callers, RETRIES_MAX};
pub use dependency::{Dependency, EPISODES_MAX, Episode, SLOWER_MAX, Trouble, WORKERS_MAX};
pub use protection::Protection;
pub use record::{Bin, End, Outcome, Record, Totals};

use crate::simulate::Timeline;
use crate::traffic::{Clock, Traffic};
use sluicegate::BuildError;
use sluicegate::internal::grammar::{SyntaxError, quoted};
use sluicegate_core::{Span, Time};
use std::fmt;

/// The maximum number of buckets that curves divide time into.
const PIECES_MAX: u64 = 150;
/// The longest line that can say anything here, in bytes.
const TEXT_MAX: usize = 256;

/// Callers, what they call and how it fares.
#[derive(Clone, Debug)]
pub struct Scenario<'a> {
    /// When they call.
    pub traffic: &'a Traffic,
    /// What they call.
    pub dependency: Dependency,
    /// How they call.
    pub callers: Callers,
    /// Where the random numbers begin.
    pub seed: u64,
}

impl Scenario<'_> {
    /// The pieces that curves are made of.
    pub fn timeline(&self) -> Timeline {
        Timeline::round(self.traffic.clock(), self.traffic.first(), self.traffic.last(), PIECES_MAX)
    }

    /// What becomes of the calls with that protection.
    ///
    /// # Errors
    /// When the protection cannot be made.
    pub fn run(&self, protection: &Protection) -> Result<Outcome, BuildError> {
        run::run(self, protection)
    }
}

/// What tables and pictures are made of: runs side by side.
#[derive(Clone, Debug)]
pub struct Report {
    /// Who called what, in a few words.
    pub source: String,
    /// How times are printed.
    pub clock: Clock,
    /// When the first call was made: bad times are counted from then.
    pub first: Time,
    /// The pieces of time that the outcomes have. The first may begin before the first call, as its
    /// edges are round.
    pub timeline: Timeline,
    /// For how long callers wait.
    pub timeout: Span,
    /// How many calls the dependency works on at once.
    pub workers: u32,
    /// Its bad times.
    pub episodes: Vec<Episode>,
    /// What was tried.
    pub ran: Vec<Ran>,
}

/// A protection, and what became of it.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What it is called.
    pub label: String,
    /// What became of the calls.
    pub outcome: Outcome,
}

impl Report {
    /// Tries each protection on the same calls.
    ///
    /// # Errors
    /// When a protection cannot be made.
    pub fn new(
        source: String,
        scenario: &Scenario<'_>,
        protections: &[(String, Protection)],
    ) -> Result<Report, BuildError> {
        let run = |(label, protection): &(String, Protection)| {
            Ok(Ran { label: label.clone(), outcome: scenario.run(protection)? })
        };
        Ok(Report {
            source,
            clock: scenario.traffic.clock(),
            first: scenario.traffic.first(),
            timeline: scenario.timeline(),
            timeout: scenario.callers.timeout,
            workers: scenario.dependency.workers,
            episodes: scenario.dependency.episodes.clone(),
            ran: protections.iter().map(run).collect::<Result<_, BuildError>>()?,
        })
    }
}

/// Why a line says nothing that can be simulated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineError {
    what: &'static str,
    text: String,
    mistake: SyntaxError,
}

impl LineError {
    fn new(what: &'static str, text: &str, mistake: SyntaxError) -> LineError {
        LineError { what, text: text.to_owned(), mistake }
    }

    /// Refuses what is far too long to be read.
    fn check_length(what: &'static str, text: &str, example: &str) -> Result<(), LineError> {
        if text.len() <= TEXT_MAX {
            return Ok(());
        }
        let problem = format!("its {} bytes are above the maximum, {TEXT_MAX}", text.len());
        Err(LineError::new(what, text, SyntaxError::new(problem, format!("write {example}"))))
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.what, quoted(&self.text), self.mistake)
    }
}

impl std::error::Error for LineError {}
