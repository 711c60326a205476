//! Calls on several keys that are charged all or nothing, and receipts over them: a subject
//! compared with the model.

use crate::compare::{Mismatch, Report, TRACE_LENGTH, limits_text};
use crate::oracle;
use crate::random;
use crate::verbs::{FieldsAndDenier, Reserved, at_least, model_ttl, model_usage, text, ttl, usage_text};
use fastrand::Rng;
use sluicegate::{Limit, ReserveOptions, Ttl};
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Span, Time, Usage};
use sluicegate_model::{self as model, Answer, Call, KeyId, Keys, Rejected, Terms};
use std::fmt::Write as _;

/// Several keys of an implementation. Each has limits of its own, or none and is unlimited.
pub trait KeysSubject {
    /// Identifies a reservation.
    type Receipt: Clone;

    /// Decides a call on a key with limits, and charges it if it is allowed.
    fn check(&mut self, now: Time, call: KeyCall) -> Decision;
    /// Decides whether a call on a key with limits would be allowed.
    fn peek(&mut self, now: Time, call: KeyCall) -> Decision;
    /// Returns cost to a key with limits.
    ///
    /// # Errors
    /// If the limits do not support it.
    fn refund(&mut self, now: Time, call: KeyCall) -> Result<Decision, Unsupported>;
    /// Returns what is used under each limit of a key that has some.
    fn usage(&mut self, now: Time, key: usize) -> Vec<Usage>;
    /// Deletes the state of a key with limits.
    fn reset(&mut self, key: usize);
    /// Decides calls, and charges all of them or none.
    fn check_all(&mut self, now: Time, calls: &[KeyCall]) -> Decision;
    /// Charges a call on a key with limits now, to act later.
    ///
    /// # Errors
    /// If the limits do not support it.
    fn reserve(
        &mut self,
        now: Time,
        call: KeyCall,
        options: &ReserveOptions,
    ) -> Result<Reserved<Self::Receipt>, Unsupported>;
    /// Charges all calls now, to act later, or none.
    fn reserve_all(
        &mut self,
        now: Time,
        calls: &[KeyCall],
        options: &ReserveOptions,
    ) -> (Decision, Option<Self::Receipt>);
    /// Charges more to a reservation: one number for each of its calls, or one for all.
    ///
    /// # Errors
    /// If the receipt is not open, or there is another count of numbers.
    fn extend(
        &mut self,
        now: Time,
        receipt: Self::Receipt,
        costs: &[u64],
        ttl: Option<Span>,
    ) -> Result<Decision, NotDone>;
    /// Corrects a reservation to what was used. Returns `false` if its receipt is not open.
    ///
    /// # Errors
    /// If there is another count of numbers.
    fn settle(&mut self, now: Time, receipt: Self::Receipt, used: &[u64]) -> Result<bool, NotDone>;
    /// Returns a reservation.
    fn cancel(&mut self, now: Time, receipt: Self::Receipt) -> bool;

    /// Returns the latest time that it accepts. Cases that go further are skipped.
    fn latest() -> Time {
        Time::MAX
    }

    /// Returns the unit of its durations and moments in microseconds: a protocol takes and reports
    /// whole milliseconds.
    fn tick() -> u64 {
        1
    }
}

/// A call on a key, by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyCall {
    /// The index of the key.
    pub key: usize,
    /// The cost.
    pub cost: u64,
}

/// Why a receipt was not touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotDone {
    /// It is not open.
    NotOpen,
    /// The count of numbers is neither one nor that of the calls.
    WrongCount,
}

/// Runs random calls on one to five keys, each compared with the model. `make` creates fresh keys
/// under their limits, which are created at a time; a key without limits is unlimited. `are_alike`
/// gives all keys the same limits; `steps_back` allows the clock to step back.
///
/// # Errors
/// At the first decision that differs from the model's.
pub fn random_keys<K: KeysSubject>(
    seed: u64,
    operations: u64,
    (steps_back, are_alike): (bool, bool),
    mut make: impl FnMut(&[Vec<Limit>], Time) -> K,
    report: &mut Report,
) -> Result<(), Mismatch> {
    let mut rng = Rng::with_seed(seed);
    let until = report.checks + operations;
    while report.checks < until {
        let limits = if are_alike {
            let limits = some_limits(&mut rng);
            vec![limits; rng.usize(1..=5)]
        } else {
            let keys = 0..rng.usize(1..=5);
            keys.map(|_| if rng.u8(..6) == 0 { Vec::new() } else { some_limits(&mut rng) }).collect()
        };
        run(&mut rng, &limits, steps_back, &mut make, report)?;
        report.cases += 1;
    }
    Ok(())
}

/// Returns limits that can be decided together with others.
fn some_limits(rng: &mut Rng) -> Vec<Limit> {
    loop {
        let limits = match Limit::CHECKS.get(rng.usize(..Limit::CHECKS.len() + 2)) {
            Some(algorithm) if rng.u8(..4) > 0 => {
                let unit = if rng.bool() { "us" } else { "ms" };
                vec![random::small_limit_in(rng, algorithm, unit)]
            }
            Some(algorithm) => vec![random::limit(rng, algorithm)],
            None if rng.bool() => random::list(rng),
            None => random::small_list(rng),
        };
        if limits.iter().all(Limit::fits_in_a_list) {
            return limits;
        }
    }
}

fn run<K: KeysSubject>(
    rng: &mut Rng,
    limits: &[Vec<Limit>],
    steps_back: bool,
    make: &mut impl FnMut(&[Vec<Limit>], Time) -> K,
    report: &mut Report,
) -> Result<(), Mismatch> {
    let Some(all) = Some(limits.concat()).filter(|all| !all.is_empty()) else { return Ok(()) };
    let start = random::start(rng);
    let may_step_back = rng.u8(..4) == 0 && steps_back;
    let mut at = start;
    let mut moments = Vec::new();
    for _ in 0..TRACE_LENGTH {
        let step = random::step(rng, &all);
        at = random::advance(rng, at, step, may_step_back);
        moments.push(at);
    }
    if moments.iter().any(|moment| *moment > K::latest()) {
        return Ok(());
    }
    let times =
        moments.iter().copied().min().unwrap_or(start)..=moments.iter().copied().max().unwrap_or(start);
    let mut model = Keys::default();
    let ids = limits.iter().map(|limits| model.add(oracle::rules(limits, start, &times))).collect();
    let mut pair = Pair { limits, all, subject: make(limits, start), model, ids, receipts: Vec::new() };
    let mut history = String::new();
    for now in moments {
        let Some([call, expected, actual]) = pair.call(rng, now, report) else { continue };
        let _ = writeln!(history, "{} {call}: {expected}", now.as_micros());
        let (standing, model_standing) = pair.standings(now);
        if (&actual, &standing) != (&expected, &model_standing) {
            let case = limits.iter().map(|limits| limits_text(limits)).collect::<Vec<_>>().join(" | ");
            return Err(Mismatch {
                case,
                trace: history,
                expected: format!("{expected} then {model_standing}"),
                actual: format!("{actual} then {standing}"),
            });
        }
        report.checks += 1;
    }
    Ok(())
}

/// The same keys in the subject and in the model.
struct Pair<'a, K: KeysSubject> {
    limits: &'a [Vec<Limit>],
    all: Vec<Limit>,
    subject: K,
    model: Keys,
    ids: Vec<KeyId>,
    receipts: Vec<Known<K::Receipt>>,
}

/// A receipt in both, and the number of its calls.
struct Known<R> {
    receipt: R,
    of_model: model::ReceiptId,
    calls: usize,
}

/// A call, and its results in the model and the subject.
type Compared = [String; 3];

impl<K: KeysSubject> Pair<'_, K> {
    /// Returns how each key with limits stands, in both.
    fn standings(&mut self, now: Time) -> (String, String) {
        let (mut actual, mut expected) = (String::new(), String::new());
        for key in self.limited() {
            let call = KeyCall { key, cost: 0 };
            let _ = write!(actual, "{}; ", text(self.subject.peek(now, call)));
            let peeked = self.model.peek(now.as_micros(), &self.of_model(&[call]));
            let _ = write!(expected, "{}; ", model_text::<K>(peeked.decision));
        }
        (actual, expected)
    }

    fn limited(&self) -> Vec<usize> {
        (0..self.limits.len()).filter(|key| !self.limits[*key].is_empty()).collect()
    }

    fn of_model(&self, calls: &[KeyCall]) -> Vec<Call> {
        calls.iter().map(|call| Call { key: self.ids[call.key], cost: call.cost }).collect()
    }

    /// Returns a random call on a key with limits.
    fn one(&self, rng: &mut Rng) -> KeyCall {
        let limited = self.limited();
        let key = limited[rng.usize(..limited.len())];
        KeyCall { key, cost: random::cost(rng, &self.limits[key]) }
    }

    /// Returns a few random calls, several of which may be on one key.
    fn some(&self, rng: &mut Rng) -> Vec<KeyCall> {
        let calls = 0..rng.usize(1..=6);
        let call = |_| {
            let key = rng.usize(..self.limits.len());
            let limits = if self.limits[key].is_empty() { &self.all } else { &self.limits[key] };
            // Mostly small costs, or nearly every list of calls would be denied.
            let cost = if rng.u8(..3) == 0 { random::cost(rng, limits) } else { rng.u64(..3) };
            KeyCall { key, cost }
        };
        calls.map(call).collect()
    }

    /// Returns numbers for the calls of a receipt, sometimes too many or too few.
    fn numbers(&self, rng: &mut Rng, calls: usize) -> Vec<u64> {
        let count = match rng.u8(..8) {
            0..3 => 1,
            3 => rng.usize(..8),
            _ => calls,
        };
        let number = |_| if rng.bool() { rng.u64(..3) } else { random::cost(rng, &self.all) };
        (0..count).map(number).collect()
    }

    /// Makes a random call; `None` if the limits do not support it.
    fn call(&mut self, rng: &mut Rng, now: Time, report: &mut Report) -> Option<Compared> {
        let micros = now.as_micros();
        match rng.u8(..20) {
            0..2 => {
                let call = self.one(rng);
                let expected = self.model.check(micros, &self.of_model(&[call]));
                let actual = self.subject.check(now, call);
                Some([format!("check {call:?}"), model_text::<K>(expected.decision), text(actual)])
            }
            2 => {
                let call = self.one(rng);
                let expected = self.model.refund(micros, self.ids[call.key], call.cost);
                let actual = self.subject.refund(now, call).ok();
                let expected = expected.map(|answer| model_text::<K>(answer.decision));
                Some([format!("refund {call:?}"), format!("{expected:?}"), format!("{:?}", actual.map(text))])
            }
            3..6 => {
                let calls = self.some(rng);
                let expected = self.model.check(micros, &self.of_model(&calls));
                let actual = self.subject.check_all(now, &calls);
                Some([format!("check {calls:?}"), answer_text::<K>(&expected), decision_text(&actual)])
            }
            6..10 => {
                let calls = self.some(rng);
                Some(self.reserve_all(rng, now, &calls))
            }
            10 => {
                let call = self.one(rng);
                self.reserve(rng, now, call)
            }
            11 if rng.u8(..4) == 0 => {
                let key = self.one(rng).key;
                self.model.reset(self.ids[key]);
                self.subject.reset(key);
                Some([format!("reset {key}"), String::new(), String::new()])
            }
            12..19 if !self.receipts.is_empty() => {
                // Sometimes a used one, which must return nothing.
                let index = rng.usize(..self.receipts.len());
                Some(self.touch(rng, now, index, report))
            }
            _ => {
                let key = self.one(rng).key;
                let usages = self.model.usage(micros, self.ids[key]);
                let expected = model_usage(&self.limits[key], usages, K::tick());
                Some([format!("usage {key}"), expected, usage_text(self.subject.usage(now, key))])
            }
        }
    }

    fn ttl(&self, rng: &mut Rng) -> Option<Ttl> {
        let length = rng.bool().then(|| in_ticks::<K>(ttl(rng, &self.all)))?;
        Some(if rng.u8(..3) == 0 { Ttl::keep(length) } else { Ttl::cancel(length) })
    }

    fn reserve_all(&mut self, rng: &mut Rng, now: Time, calls: &[KeyCall]) -> Compared {
        let mut options = ReserveOptions::default();
        options.ttl = self.ttl(rng);
        if rng.bool() {
            options.max_wait = in_ticks::<K>(Span::from_micros(random::step(rng, &self.all)));
        }
        let terms = Terms { max_wait: options.max_wait.as_micros(), ttl: options.ttl.map(model_ttl) };
        let (expected, of_model) = self.model.reserve(now.as_micros(), &self.of_model(calls), terms);
        let (actual, receipt) = self.subject.reserve_all(now, calls, &options);
        let expected = format!("{}, receipt {}", answer_text::<K>(&expected), of_model.is_some());
        let actual = format!("{}, receipt {}", decision_text(&actual), receipt.is_some());
        self.known(calls.len(), receipt, of_model);
        [format!("reserve {calls:?}, {options:?}"), expected, actual]
    }

    fn reserve(&mut self, rng: &mut Rng, now: Time, call: KeyCall) -> Option<Compared> {
        let call = KeyCall { cost: call.cost.max(1), ..call };
        let mut options = ReserveOptions::default().at_least(at_least(rng, call.cost));
        options.ttl = self.ttl(rng);
        let reserved = self.subject.reserve(now, call, &options).ok()?;
        let (ttl, least) = (options.ttl.map(model_ttl), options.at_least.unwrap_or(1));
        let [of_model] = self.of_model(&[call])[..] else { return None };
        let (expected, of_model, granted) =
            self.model.reserve_at_least(now.as_micros(), of_model, least, ttl);
        self.known(1, reserved.receipt, of_model);
        Some([
            format!("reserve {call:?}, {options:?}"),
            format!("{} granted {granted}", model_text::<K>(expected.decision)),
            format!("{} granted {}", text(reserved.decision), reserved.granted),
        ])
    }

    fn known(&mut self, calls: usize, receipt: Option<K::Receipt>, of_model: Option<model::ReceiptId>) {
        let both = receipt.zip(of_model);
        self.receipts.extend(both.map(|(receipt, of_model)| Known { receipt, of_model, calls }));
    }

    /// Settles a receipt, cancels it or extends it.
    fn touch(&mut self, rng: &mut Rng, now: Time, index: usize, report: &mut Report) -> Compared {
        let micros = now.as_micros();
        let Known { receipt, of_model, calls } = &self.receipts[index];
        let (receipt, of_model) = (receipt.clone(), *of_model);
        let numbers = self.numbers(rng, *calls);
        match rng.u8(..4) {
            0 => {
                let expected = self.model.cancel(micros, of_model);
                let actual = self.subject.cancel(now, receipt);
                report.returned += u64::from(actual);
                [format!("cancel {index}"), expected.to_string(), actual.to_string()]
            }
            1 => {
                let ttl = rng.bool().then(|| in_ticks::<K>(ttl(rng, &self.all)));
                let expected = self.model.extend(micros, of_model, &numbers, ttl.map(Span::as_micros));
                let actual = self.subject.extend(now, receipt, &numbers, ttl);
                let expected = expected.map_or_else(rejected_text, |answer| answer_text::<K>(&answer));
                let actual = actual.map_or_else(|error| format!("{error:?}"), |made| decision_text(&made));
                [format!("extend {index} by {numbers:?}, {ttl:?}"), expected, actual]
            }
            _ => {
                let expected = self.model.settle(micros, of_model, &numbers);
                let actual = self.subject.settle(now, receipt, &numbers);
                report.indebted += u64::from(actual == Ok(true) && numbers.iter().sum::<u64>() > 1_000);
                let expected = expected.map_or_else(rejected_text, |settled| settled.to_string());
                let actual = actual.map_or_else(|error| format!("{error:?}"), |settled| settled.to_string());
                [format!("settle {index} as {numbers:?}"), expected, actual]
            }
        }
    }
}

/// Prints a decision of the model as the subject reports it.
fn model_text<K: KeysSubject>(decision: model::Decision) -> String {
    text(FieldsAndDenier::from(decision).rounded_up(K::tick()))
}

fn answer_text<K: KeysSubject>(answer: &Answer) -> String {
    let denied_call = answer.denied_call.map(|index| index as u64);
    format!("{} of call {denied_call:?}", model_text::<K>(answer.decision))
}

/// Rounds a duration up to one that the subject takes.
fn in_ticks<K: KeysSubject>(span: Span) -> Span {
    Span::from_micros(span.as_micros().next_multiple_of(K::tick()))
}

fn rejected_text(rejected: Rejected) -> String {
    match rejected {
        Rejected::NotOpen => format!("{:?}", NotDone::NotOpen),
        Rejected::WrongCount => format!("{:?}", NotDone::WrongCount),
    }
}

/// Prints every field of a decision, and which call was denied.
fn decision_text(decision: &Decision) -> String {
    format!("{} of call {:?}", text(*decision), decision.denied_call().map(u64::from))
}
