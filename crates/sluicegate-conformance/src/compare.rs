//! Asks a subject and the model the same, and says where they differ.

use crate::oracle::{self, Oracle};
use crate::random::{self, Call};
use crate::subject::{Answer, Subject};
use crate::vectors;
use fastrand::Rng;
use sluicegate::Limit;
use sluicegate::core::Account;
use sluicegate::core::{AnyLimit, Span, Time};
use sluicegate_model::Model;
use std::fmt::{self, Write as _};

/// How many calls a random trace has.
const TRACE_LENGTH: usize = 40;
/// How many random decisions the suite asks for each algorithm.
const SUITE_DECISIONS: u64 = 4_000;

/// What was asked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Cases, each on a fresh subject.
    pub cases: u64,
    /// Checks, each compared in all six fields.
    pub checks: u64,
    /// How many of them were denied.
    pub denied: u64,
}

/// Where a subject and the model differ, with all that is needed to see it again.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// What was asked.
    pub case: String,
    /// The calls up to the one that differs, as `sluice replay` reads them.
    pub trace: String,
    /// What it should have answered.
    pub expected: String,
    /// What it answered.
    pub answered: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, trace, expected, answered } = self;
        write!(f, "{case}\n{trace}expected {expected}\nanswered {answered}")
    }
}

impl std::error::Error for Mismatch {}

/// Everything there is to ask of a subject: all vectors, and random traces for each algorithm and for lists.
///
/// `make` makes a fresh subject for limits that are made at a time.
///
/// # Errors
/// At the first answer that is not the model's.
pub fn suite<S: Subject>(mut make: impl FnMut(&[Limit], Time) -> S) -> Result<Report, Mismatch> {
    let mut report = vectors::run(&mut make)?;
    for algorithm in Limit::ALGORITHMS.into_iter().map(Some).chain([None]) {
        random_traces(algorithm, 1, SUITE_DECISIONS, &mut make, &mut report)?;
    }
    Ok(report)
}

/// Random traces over random limits of an algorithm, or over random lists, from a seed.
///
/// # Errors
/// At the first answer that is not the model's.
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
    for (place, call) in trace.iter().enumerate() {
        let expected = oracle.check(call.at, &call.key(), call.cost);
        let answered = subject.check(call.at, &call.key(), call.cost);
        if answered != expected {
            return Err(Mismatch {
                case: limits_text(limits),
                trace: trace_text(&trace[..=place]),
                expected: expected.to_string(),
                answered: answered.to_string(),
            });
        }
        report.checks += 1;
        report.denied += u64::from(!expected.allowed);
    }
    report.cases += 1;
    Ok(())
}

fn limits_text(limits: &[Limit]) -> String {
    limits.iter().map(Limit::to_string).collect::<Vec<_>>().join(vectors::LIMITS_SEPARATOR)
}

fn trace_text(trace: &[Call]) -> String {
    let row = |call: &Call| format!("{},k{},{}\n", call.at.as_micros(), char::from(call.key), call.cost);
    std::iter::once("at_us,key,cost\n".to_owned()).chain(trace.iter().map(row)).collect()
}

/// Random verbs in any order on one key of the core: check, peek, take, refund, reserve, cancel, settle, next window
/// and reset, each compared with the model.
///
/// # Errors
/// At the first answer that is not the model's.
pub fn random_verbs(seed: u64, operations: u64, report: &mut Report) -> Result<(), Mismatch> {
    let mut rng = Rng::with_seed(seed);
    let until = report.checks + operations;
    while report.checks < until {
        let limits = match rng.usize(..=Limit::ALGORITHMS.len()) {
            place if place < Limit::ALGORITHMS.len() => {
                vec![random::limit(&mut rng, Limit::ALGORITHMS[place])]
            }
            _ => random::list(&mut rng),
        };
        verbs(&mut rng, &limits, report)?;
        report.cases += 1;
    }
    Ok(())
}

fn verbs(rng: &mut Rng, limits: &[Limit], report: &mut Report) -> Result<(), Mismatch> {
    let start = random::start(rng);
    let mut at = start;
    let may_step_back = rng.u8(..4) == 0;
    let moments: Vec<Time> = (0..TRACE_LENGTH)
        .map(|_| {
            let step = random::step(rng, limits);
            at = random::advance(rng, at, step, may_step_back);
            at
        })
        .collect();
    let times =
        moments.iter().copied().min().unwrap_or(start)..=moments.iter().copied().max().unwrap_or(start);
    let mut model = Model::new(oracle::rules(limits, start, &times));
    let made: Vec<AnyLimit> = limits.iter().map(|limit| limit.made_at(start)).collect();
    let mut account = Account::default();
    let mut receipts = Vec::new();
    let mut history = String::new();
    for now in moments {
        let micros = now.as_micros();
        let cost = random::cost(rng, limits);
        let (asked, expected, answered) = match rng.u8(..16) {
            0..4 => {
                let (expected, answered) =
                    (model.check(micros, cost.into()), account.check(&made, now, cost));
                (format!("check {cost}"), text(expected), text(answered))
            }
            4 => {
                let (expected, answered) = (model.peek(micros, cost.into()), account.peek(&made, now, cost));
                (format!("peek {cost}"), text(expected), text(answered))
            }
            5 => match account.take(&made, now, cost) {
                Err(_) => continue,
                Ok((answered, taken)) => {
                    let (expected, model_taken) = model.take(micros, cost.into());
                    let expected = format!("{} took {model_taken}", text(expected));
                    (format!("take {cost}"), expected, format!("{} took {taken}", text(answered)))
                }
            },
            6 | 7 => {
                let expected = model.refund(micros, cost.into()).map(text);
                let answered = account.refund(&made, now, cost).ok().map(text);
                (format!("refund {cost}"), format!("{expected:?}"), format!("{answered:?}"))
            }
            8..11 => {
                let max_wait =
                    if rng.bool() { random::step(rng, limits) } else { rng.u64(..) >> rng.u32(..64) };
                match account.reserve(&made, now, cost, Span::from_micros(max_wait)) {
                    Err(_) => continue,
                    Ok((answered, receipt)) => {
                        let (expected, model_receipt) = model.reserve(micros, cost.into(), max_wait);
                        receipts.extend(receipt.zip(model_receipt));
                        (format!("reserve {cost} within {max_wait}"), text(expected), text(answered))
                    }
                }
            }
            11 | 12 if !receipts.is_empty() => {
                // A used one, now and then: it must be refused.
                let place = rng.usize(..receipts.len());
                let (receipt, model_receipt) = receipts[place];
                let expected = model.cancel(micros, model_receipt);
                let answered = account.cancel(&made, now, receipt);
                (format!("cancel {place}"), expected.to_string(), answered.to_string())
            }
            13 | 14 if !receipts.is_empty() => {
                let place = rng.usize(..receipts.len());
                let (receipt, model_receipt) = receipts[place];
                let used = random::cost(rng, limits);
                let expected = model.settle(micros, model_receipt, used.into());
                let answered = account.settle(&made, now, receipt, used);
                (format!("settle {place} as {used}"), expected.to_string(), answered.to_string())
            }
            15 if rng.u8(..8) == 0 => {
                model.reset();
                account.reset();
                ("reset".to_owned(), String::new(), String::new())
            }
            _ => {
                let expected = model.next_window(micros);
                let answered = account.next_window(&made, now).as_micros();
                ("next window".to_owned(), expected.to_string(), answered.to_string())
            }
        };
        let _ = writeln!(history, "{micros} {asked}: {expected}");
        let (standing, model_standing) = (text(account.peek(&made, now, 0)), text(model.peek(micros, 0)));
        if (&answered, &standing) != (&expected, &model_standing) {
            return Err(Mismatch {
                case: limits_text(limits),
                trace: history,
                expected: format!("{expected} then {model_standing}"),
                answered: format!("{answered} then {standing}"),
            });
        }
        report.checks += 1;
    }
    Ok(())
}

fn text(answer: impl Into<Answer>) -> String {
    answer.into().to_string()
}
