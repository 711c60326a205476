//! Runs the same calls on a subject and on the model, and reports where they differ.

use crate::oracle::Oracle;
use crate::random::{self, Call};
use crate::subject::Subject;
use crate::vectors;
use fastrand::Rng;
use sluicegate::Limit;
use sluicegate_core::Time;
use std::fmt;

/// The calls of a random trace.
pub(crate) const TRACE_LENGTH: usize = 40;
/// The random decisions of the suite, per algorithm.
const SUITE_DECISIONS: u64 = 4_000;

/// What was compared.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Cases, each on a fresh subject.
    pub cases: u64,
    /// Checks, each compared in all six fields.
    pub checks: u64,
    /// Checks that were denied.
    pub denied: u64,
    /// Cancels that returned something.
    pub returned: u64,
    /// Settlements that left a debt.
    pub indebted: u64,
    /// Changes of the limits.
    pub changed: u64,
}

/// Where a subject and the model differ, with all that is needed to reproduce it.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The limits, or the row of a file.
    pub case: String,
    /// The calls up to the one that differs, as `sluice replay` reads them.
    pub trace: String,
    /// The model's decision.
    pub expected: String,
    /// The subject's decision.
    pub actual: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, trace, expected, actual } = self;
        write!(f, "{case}\n{trace}expected {expected}\nactual   {actual}")
    }
}

impl std::error::Error for Mismatch {}

/// Runs the whole suite on a subject: all vectors, and random traces per algorithm and for lists.
///
/// `make` creates a fresh subject for limits that are created at a time.
///
/// # Errors
/// At the first decision that differs from the model's.
pub fn suite<S: Subject>(mut make: impl FnMut(&[Limit], Time) -> S) -> Result<Report, Mismatch> {
    let mut report = vectors::run(&mut make)?;
    for algorithm in Limit::CHECKS.into_iter().map(Some).chain([None]) {
        random_traces(algorithm, 1, SUITE_DECISIONS, &mut make, &mut report)?;
    }
    Ok(report)
}

/// Runs random traces over random limits of an algorithm, or over random lists, from a seed.
///
/// # Errors
/// At the first decision that differs from the model's.
pub fn random_traces<S: Subject>(
    algorithm: Option<&str>,
    seed: u64,
    decisions: u64,
    mut make: impl FnMut(&[Limit], Time) -> S,
    report: &mut Report,
) -> Result<(), Mismatch> {
    let mut rng = Rng::with_seed(seed);
    let until = report.checks + decisions;
    while report.checks < until {
        let limits = match algorithm {
            Some(algorithm) => vec![random::limit(&mut rng, algorithm)],
            None => random::list(&mut rng),
        };
        let may_step_back = rng.u8(..4) == 0;
        let trace = random::trace(&mut rng, &limits, TRACE_LENGTH, may_step_back);
        if trace.iter().any(|call| call.at > S::latest()) {
            continue;
        }
        compare(&limits, &trace, &mut make, report)?;
    }
    Ok(())
}

fn compare<S: Subject>(
    limits: &[Limit],
    trace: &[Call],
    make: &mut impl FnMut(&[Limit], Time) -> S,
    report: &mut Report,
) -> Result<(), Mismatch> {
    let Some(start) = trace.first().map(|call| call.at) else { return Ok(()) };
    let times = trace.iter().map(|call| call.at);
    let times = times.clone().min().unwrap_or(start)..=times.max().unwrap_or(start);
    let (mut subject, mut oracle) = (make(limits, start), Oracle::new(limits, start, times));
    for (index, call) in trace.iter().enumerate() {
        let expected = oracle.check(call.at, &call.key(), call.cost).rounded_up(subject.tick());
        let actual = subject.check(call.at, &call.key(), call.cost);
        if actual != expected {
            return Err(Mismatch {
                case: limits_text(limits),
                trace: trace_text(&trace[..=index]),
                expected: expected.to_string(),
                actual: actual.to_string(),
            });
        }
        report.checks += 1;
        report.denied += u64::from(!expected.allowed);
    }
    report.cases += 1;
    Ok(())
}

pub(crate) fn limits_text(limits: &[Limit]) -> String {
    limits.iter().map(Limit::to_string).collect::<Vec<_>>().join(vectors::LIMITS_SEPARATOR)
}

fn trace_text(trace: &[Call]) -> String {
    let row = |call: &Call| format!("{},k{},{}\n", call.at.as_micros(), char::from(call.key), call.cost);
    std::iter::once("at_us,key,cost\n".to_owned()).chain(trace.iter().map(row)).collect()
}
