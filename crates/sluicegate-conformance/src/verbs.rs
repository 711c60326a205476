//! Every verb in any order on one key: a subject beside the model.

use crate::compare::{Mismatch, Report, TRACE_LENGTH, limits_text};
use crate::oracle;
use crate::random;
use crate::subject::Answer;
use fastrand::Rng;
use sluicegate::Limit;
use sluicegate_core::algorithm::Verb;
use sluicegate_core::bounds::COUNT_MAX;
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Span, Time};
use sluicegate_model::{Model, ReceiptId};
use std::fmt::{Display, Write as _};

/// One key of whatever offers every verb.
pub trait OneKey {
    /// Names a reservation.
    type Receipt: Clone;

    /// May the call happen?
    fn check(&mut self, now: Time, cost: u32) -> Decision;
    /// Would it be allowed?
    fn peek(&mut self, now: Time, cost: u32) -> Decision;
    /// Takes as much as remains.
    ///
    /// # Errors
    /// When the limits do not offer it.
    fn take(&mut self, now: Time, up_to: u32) -> Result<(Decision, u32), Unsupported>;
    /// Gives cost back.
    ///
    /// # Errors
    /// When the limits do not offer it.
    fn refund(&mut self, now: Time, cost: u32) -> Result<Decision, Unsupported>;
    /// Charges now, to act later.
    ///
    /// # Errors
    /// When the limits do not offer it.
    fn reserve(
        &mut self,
        now: Time,
        cost: u32,
        max_wait: Span,
    ) -> Result<(Decision, Option<Self::Receipt>), Unsupported>;
    /// Charges now, to act later, without a receipt.
    ///
    /// # Errors
    /// When the limits do not offer it.
    fn check_within(&mut self, now: Time, cost: u32, max_wait: Span) -> Result<Decision, Unsupported> {
        self.reserve(now, cost, max_wait).map(|(decision, _)| decision)
    }
    /// Gives a reservation back.
    fn cancel(&mut self, now: Time, receipt: Self::Receipt) -> bool;
    /// Says what a reservation has used.
    fn settle(&mut self, now: Time, receipt: Self::Receipt, used: u32) -> bool;
    /// When the next window starts.
    fn next_window(&mut self, now: Time) -> Time;
    /// Forgets everything.
    fn reset(&mut self);

    /// The latest time at which it can be asked. Cases that go on for longer are left out.
    fn latest() -> Time {
        Time::MAX
    }
}

/// Random verbs in any order on one key: check, peek, take, refund, reserve, check within a wait, cancel, settle, next window and reset,
/// each compared with the model. `make` makes a fresh key under limits that are made at a time; `steps_back` says
/// whether time may step back in between.
///
/// # Errors
/// At the first answer that is not the model's.
pub fn random_verbs<K: OneKey>(
    seed: u64,
    operations: u64,
    steps_back: bool,
    mut make: impl FnMut(&[Limit], Time) -> K,
    report: &mut Report,
) -> Result<(), Mismatch> {
    let mut rng = Rng::with_seed(seed);
    let until = report.checks + operations;
    while report.checks < until {
        let limits = match Limit::CHECKS.get(rng.usize(..=Limit::CHECKS.len())) {
            Some(algorithm) if rng.bool() => vec![random::small_limit(&mut rng, algorithm)],
            Some(algorithm) => vec![random::limit(&mut rng, algorithm)],
            None => random::list(&mut rng),
        };
        run(&mut rng, &limits, steps_back, &mut make, report)?;
        report.cases += 1;
    }
    Ok(())
}

fn run<K: OneKey>(
    rng: &mut Rng,
    limits: &[Limit],
    steps_back: bool,
    make: &mut impl FnMut(&[Limit], Time) -> K,
    report: &mut Report,
) -> Result<(), Mismatch> {
    let start = random::start(rng);
    let may_step_back = rng.u8(..4) == 0 && steps_back;
    let mut at = start;
    let mut moments = Vec::new();
    for _ in 0..TRACE_LENGTH {
        let step = random::step(rng, limits);
        at = random::advance(rng, at, step, may_step_back);
        moments.push(at);
    }
    if moments.iter().any(|moment| *moment > K::latest()) {
        return Ok(());
    }
    let times =
        moments.iter().copied().min().unwrap_or(start)..=moments.iter().copied().max().unwrap_or(start);
    let mut both = Both {
        limits,
        key: make(limits, start),
        model: Model::new(oracle::rules(limits, start, &times)),
        receipts: Vec::new(),
    };
    let mut history = String::new();
    for now in moments {
        let Some(Asked { what, expected, answered }) = both.ask(rng, now, report) else { continue };
        let _ = writeln!(history, "{} {what}: {expected}", now.as_micros());
        let (standing, model_standing) =
            (text(both.key.peek(now, 0)), text(both.model.peek(now.as_micros(), 0)));
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

/// One key twice: as the subject keeps it and as the model does.
struct Both<'a, K: OneKey> {
    limits: &'a [Limit],
    key: K,
    model: Model,
    receipts: Vec<(K::Receipt, ReceiptId)>,
}

/// A question and both answers.
struct Asked {
    what: String,
    expected: String,
    answered: String,
}

impl Asked {
    fn new(what: String, expected: impl Display, answered: impl Display) -> Asked {
        Asked { what, expected: format!("{expected}"), answered: format!("{answered}") }
    }
}

impl<K: OneKey> Both<'_, K> {
    /// A random question; `None` if the limits do not offer it.
    fn ask(&mut self, rng: &mut Rng, now: Time, report: &mut Report) -> Option<Asked> {
        let (micros, cost) = (now.as_micros(), random::cost(rng, self.limits));
        match rng.u8(..17) {
            0..4 => {
                let expected = self.model.check(micros, cost.into());
                let answered = self.key.check(now, cost);
                Some(Asked::new(format!("check {cost}"), text(expected), text(answered)))
            }
            4 => {
                let expected = self.model.peek(micros, cost.into());
                let answered = self.key.peek(now, cost);
                Some(Asked::new(format!("peek {cost}"), text(expected), text(answered)))
            }
            5 => {
                let taken = self.key.take(now, cost);
                let (answered, taken) = taken.map_err(|refused| self.may_refuse(refused)).ok()?;
                let (expected, model_taken) = self.model.take(micros, cost.into());
                let expected = format!("{} took {model_taken}", text(expected));
                Some(Asked::new(format!("take {cost}"), expected, format!("{} took {taken}", text(answered))))
            }
            6 | 7 => {
                let expected = self.model.refund(micros, cost.into()).map(text);
                let answered = self.key.refund(now, cost).ok().map(text);
                Some(Asked::new(format!("refund {cost}"), format!("{expected:?}"), format!("{answered:?}")))
            }
            8..11 => {
                let max_wait = patience(rng, self.limits);
                self.reserve(now, cost, max_wait)
            }
            11 => {
                let max_wait = patience(rng, self.limits);
                let decision = self.key.check_within(now, cost, Span::from_micros(max_wait));
                let answered = decision.map_err(|refused| self.may_refuse(refused)).ok()?;
                let expected = self.model.check_within(micros, cost.into(), max_wait);
                Some(Asked::new(format!("check {cost} within {max_wait}"), text(expected), text(answered)))
            }
            12..16 if !self.receipts.is_empty() => {
                // A used one, now and then: it must be refused.
                let place = rng.usize(..self.receipts.len());
                let used = rng.bool().then(|| random::cost(rng, self.limits));
                Some(self.close(now, place, used, report))
            }
            16 if rng.u8(..8) == 0 => {
                self.model.reset();
                self.key.reset();
                Some(Asked::new("reset".to_owned(), "", ""))
            }
            _ => {
                let expected = self.model.next_window(micros).min(Time::MAX.as_micros());
                let answered = self.key.next_window(now).as_micros();
                Some(Asked::new("next window".to_owned(), expected, answered))
            }
        }
    }

    fn reserve(&mut self, now: Time, cost: u32, max_wait: u64) -> Option<Asked> {
        let reserved = self.key.reserve(now, cost, Span::from_micros(max_wait));
        let (answered, receipt) = reserved.map_err(|refused| self.may_refuse(refused)).ok()?;
        let (expected, model_receipt) = self.model.reserve(now.as_micros(), cost.into(), max_wait);
        self.receipts.extend(receipt.zip(model_receipt));
        Some(Asked::new(format!("reserve {cost} within {max_wait}"), text(expected), text(answered)))
    }

    /// Settles a receipt as used that much, or cancels it.
    fn close(&mut self, now: Time, place: usize, used: Option<u32>, report: &mut Report) -> Asked {
        let (receipt, model_receipt) = &self.receipts[place];
        let Some(used) = used else {
            let expected = self.model.cancel(now.as_micros(), *model_receipt);
            let answered = self.key.cancel(now, receipt.clone());
            report.returned += u64::from(answered);
            return Asked::new(format!("cancel {place}"), expected, answered);
        };
        let expected = self.model.settle(now.as_micros(), *model_receipt, used.into());
        let answered = self.key.settle(now, receipt.clone(), used);
        report.indebted += u64::from(answered && used > COUNT_MAX / 2);
        Asked::new(format!("settle {place} as {used}"), expected, answered)
    }

    /// Take and reserve are refused for `count=all` and `smooth`, waiting for the former, and nothing else is.
    fn may_refuse(&self, refused: Unsupported) {
        let is_alone = self.limits.iter().any(|limit| !limit.fits_in_a_list());
        let is_smooth = self.limits.iter().any(|limit| limit.algorithm() == "smooth");
        let waits = refused.verb == Verb::CheckWithin;
        assert!(is_alone && !(is_smooth && waits), "{}: {refused}", limits_text(self.limits));
    }
}

/// How long a caller would wait.
fn patience(rng: &mut Rng, limits: &[Limit]) -> u64 {
    if rng.bool() { random::step(rng, limits) } else { rng.u64(..) >> rng.u32(..64) }
}

/// Every field of an answer, and which limit said no.
fn text(answer: impl Into<Said>) -> String {
    let Said(answer, denied_by) = answer.into();
    format!("{answer} by {denied_by:?}")
}

struct Said(Answer, Option<u64>);

impl From<Decision> for Said {
    fn from(decision: Decision) -> Said {
        Said(decision.into(), decision.denied_by().map(u64::from))
    }
}

impl From<sluicegate_model::Answer> for Said {
    fn from(answer: sluicegate_model::Answer) -> Said {
        Said(answer.into(), answer.denied_by.map(|place| place as u64))
    }
}
