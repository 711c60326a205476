//! Every verb in any order on one key: a subject compared with the model.

use crate::changes::{Changes, Changing};
use crate::compare::{Mismatch, Report, TRACE_LENGTH, limits_text};
use crate::oracle;
use crate::random;
use crate::subject::Fields;
use fastrand::Rng;
use sluicegate::limit::Spec;
use sluicegate::{Limit, ReserveOptions, TTL_MAX, TTL_MIN, Then, Ttl};
use sluicegate_core::algorithm::Verb;
use sluicegate_core::verbs::Unsupported;
use sluicegate_core::{Decision, Span, Time, Usage, Window};
use sluicegate_model::{Model, ReceiptId, Terms};
use std::fmt::{Display, Write as _};
use std::ops::RangeInclusive;

/// One key of an implementation that supports every verb.
pub trait KeySubject {
    /// Identifies a reservation.
    type Receipt: Clone;

    /// Decides a call, and charges it if it is allowed.
    fn check(&mut self, now: Time, cost: u64) -> Decision;
    /// Decides whether a call would be allowed.
    fn peek(&mut self, now: Time, cost: u64) -> Decision;
    /// Charges as much as remains, up to a cost.
    ///
    /// # Errors
    /// If the limits do not support it.
    fn take(&mut self, now: Time, up_to: u64) -> Result<(Decision, u64), Unsupported>;
    /// Returns cost to the key.
    ///
    /// # Errors
    /// If the limits do not support it.
    fn refund(&mut self, now: Time, cost: u64) -> Result<Decision, Unsupported>;
    /// Charges now, to act later.
    ///
    /// # Errors
    /// If the limits do not support it.
    fn reserve(
        &mut self,
        now: Time,
        cost: u64,
        options: &ReserveOptions,
    ) -> Result<Reserved<Self::Receipt>, Unsupported>;
    /// Charges now, to act later, without a receipt.
    ///
    /// # Errors
    /// If the limits do not support it.
    fn check_within(&mut self, now: Time, cost: u64, max_wait: Span) -> Result<Decision, Unsupported> {
        self.reserve(now, cost, &max_wait.into()).map(|reserved| reserved.decision)
    }
    /// Charges more to a reservation. Returns `None` if its receipt is not open.
    fn extend(&mut self, now: Time, receipt: Self::Receipt, cost: u64, ttl: Option<Span>)
    -> Option<Decision>;
    /// Returns a reservation.
    fn cancel(&mut self, now: Time, receipt: Self::Receipt) -> bool;
    /// Corrects a reservation to what was used.
    fn settle(&mut self, now: Time, receipt: Self::Receipt, used: u64) -> bool;
    /// Returns when the next window starts.
    fn next_window(&mut self, now: Time) -> Time;
    /// Returns what is used under each limit.
    fn usage(&mut self, now: Time) -> Vec<Usage>;
    /// Deletes the key's state.
    fn reset(&mut self);
    /// Continues with the key's state under other limits, as after a reload. Returns `false`, and
    /// changes nothing, if the key cannot have these limits.
    fn change(&mut self, limits: &[Limit], start: Time) -> bool;

    /// Returns the latest time that it accepts. Cases that go further are skipped.
    fn latest() -> Time {
        Time::MAX
    }

    /// Returns `true` if it extends, and reserves with a TTL or at least some cost.
    fn has_budgets() -> bool {
        true
    }
}

/// The answer to a reservation.
#[derive(Clone, Debug)]
pub struct Reserved<R> {
    /// The decision.
    pub decision: Decision,
    /// The receipt, if it was charged.
    pub receipt: Option<R>,
    /// The cost that was granted.
    pub granted: u64,
}

/// Runs random verbs in any order on one key (check, peek, take, refund, reserve, check within a
/// wait, extend, cancel, settle, next window, usage and reset), each compared with the model.
/// `make` creates a fresh key under limits that are created at a time; `steps_back` allows the
/// clock to step back.
///
/// # Errors
/// At the first decision that differs from the model's.
pub fn random_verbs<K: KeySubject>(
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
            Some(algorithm) if rng.bool() => vec![small_limit::<K>(&mut rng, algorithm)],
            Some(algorithm) => vec![random::limit(&mut rng, algorithm)],
            None => random::list(&mut rng),
        };
        run(&mut rng, &limits, (steps_back, None), &mut make, report)?;
        report.cases += 1;
    }
    Ok(())
}

/// Like [`random_verbs`], with changes of the limits between the calls: of parameters, and, as far
/// as `changes` compares it, of algorithms and of the list's length.
///
/// # Errors
/// At the first decision that differs from the model's.
pub fn random_changes<K: KeySubject>(
    seed: u64,
    operations: u64,
    steps_back: bool,
    changes: Changes,
    mut make: impl FnMut(&[Limit], Time) -> K,
    report: &mut Report,
) -> Result<(), Mismatch> {
    let mut rng = Rng::with_seed(seed);
    let until = report.checks + operations;
    while report.checks < until {
        let limits = match Limit::CHECKS.get(rng.usize(..Limit::CHECKS.len() + 4)) {
            Some(algorithm) if rng.u8(..4) > 0 => vec![small_limit::<K>(&mut rng, algorithm)],
            Some(algorithm) => vec![random::limit(&mut rng, algorithm)],
            None if rng.bool() => random::list(&mut rng),
            None => random::small_list(&mut rng),
        };
        run(&mut rng, &limits, (steps_back, Some(changes)), &mut make, report)?;
        report.cases += 1;
    }
    Ok(())
}

fn run<K: KeySubject>(
    rng: &mut Rng,
    limits: &[Limit],
    (steps_back, changes): (bool, Option<Changes>),
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
    let mut changing = changes.map(|changes| Changing::new(changes, limits));
    let mut pair = Pair {
        limits: limits.to_vec(),
        key: make(limits, start),
        model: Model::new(oracle::rules(limits, start, &times)),
        receipts: Vec::new(),
        keeps_only: changes == Some(Changes::InSharedStore),
    };
    let mut history = String::new();
    for now in moments {
        if let Some(changing) = &mut changing
            && rng.u8(..5) == 0
            && let Some(changed) = changing.next(rng, &pair.limits, (start, &times))
            && pair.change(&changed, (start, &times), changing)
        {
            let _ = writeln!(history, "changed to {}", limits_text(&changed));
            report.changed += 1;
        }
        let Some(Comparison { call, expected, actual }) = pair.call(rng, now, report) else { continue };
        let _ = writeln!(history, "{} {call}: {expected}", now.as_micros());
        let (standing, model_standing) =
            (text(pair.key.peek(now, 0)), text(pair.model.peek(now.as_micros(), 0)));
        if (&actual, &standing) != (&expected, &model_standing) {
            return Err(Mismatch {
                case: limits_text(limits),
                trace: history,
                expected: format!("{expected} then {model_standing}"),
                actual: format!("{actual} then {standing}"),
            });
        }
        report.checks += 1;
    }
    Ok(())
}

/// The same key in the subject and in the model.
struct Pair<K: KeySubject> {
    limits: Vec<Limit>,
    key: K,
    model: Model,
    receipts: Vec<(K::Receipt, ReceiptId)>,
    /// Whether no receipt cancels its charge when it expires.
    keeps_only: bool,
}

/// A call and its results in both.
struct Comparison {
    call: String,
    expected: String,
    actual: String,
}

impl Comparison {
    fn new(call: String, expected: impl Display, actual: impl Display) -> Comparison {
        Comparison { call, expected: format!("{expected}"), actual: format!("{actual}") }
    }
}

impl<K: KeySubject> Pair<K> {
    /// Replaces the limits of both, if the subject can have these.
    fn change(
        &mut self,
        limits: &[Limit],
        (start, times): (Time, &RangeInclusive<Time>),
        changing: &mut Changing,
    ) -> bool {
        if !self.key.change(limits, start) {
            return false;
        }
        self.model.change(oracle::rules(limits, start, times));
        if changing.voids_receipts(&self.limits, limits) {
            self.receipts.clear();
        }
        changing.changed(limits);
        self.limits = limits.to_vec();
        true
    }

    /// Makes a random call; `None` if the limits do not support it.
    fn call(&mut self, rng: &mut Rng, now: Time, report: &mut Report) -> Option<Comparison> {
        let (micros, cost) = (now.as_micros(), random::cost(rng, &self.limits));
        match rng.u8(..if K::has_budgets() { 20 } else { 18 }) {
            0..4 => {
                let expected = self.model.check(micros, cost);
                let actual = self.key.check(now, cost);
                Some(Comparison::new(format!("check {cost}"), text(expected), text(actual)))
            }
            4 => {
                let expected = self.model.peek(micros, cost);
                let actual = self.key.peek(now, cost);
                Some(Comparison::new(format!("peek {cost}"), text(expected), text(actual)))
            }
            5 => {
                let taken = self.key.take(now, cost);
                let (actual, taken) = taken.map_err(|error| self.assert_unsupported(error)).ok()?;
                let (expected, model_taken) = self.model.take(micros, cost);
                let expected = format!("{} took {model_taken}", text(expected));
                Some(Comparison::new(
                    format!("take {cost}"),
                    expected,
                    format!("{} took {taken}", text(actual)),
                ))
            }
            6 | 7 => {
                let expected = self.model.refund(micros, cost).map(text);
                let actual = self.key.refund(now, cost).ok().map(text);
                Some(Comparison::new(
                    format!("refund {cost}"),
                    format!("{expected:?}"),
                    format!("{actual:?}"),
                ))
            }
            8..11 => {
                let options = self.options(rng, cost);
                self.reserve(now, cost, &options)
            }
            11 => {
                let max_wait = max_wait(rng, &self.limits);
                let decision = self.key.check_within(now, cost, Span::from_micros(max_wait));
                let actual = decision.map_err(|error| self.assert_unsupported(error)).ok()?;
                let expected = self.model.check_within(micros, cost, max_wait);
                Some(Comparison::new(format!("check {cost} within {max_wait}"), text(expected), text(actual)))
            }
            12..16 if !self.receipts.is_empty() => {
                // Sometimes a used one, which must return nothing.
                let index = rng.usize(..self.receipts.len());
                let used = rng.bool().then(|| random::cost(rng, &self.limits));
                Some(self.close(now, index, used, report))
            }
            16 if rng.u8(..8) == 0 => {
                self.model.reset();
                self.key.reset();
                Some(Comparison::new("reset".to_owned(), "", ""))
            }
            17 => Some(self.usage(now)),
            18.. if !self.receipts.is_empty() => {
                let index = rng.usize(..self.receipts.len());
                Some(self.extend(rng, now, index, cost))
            }
            _ => {
                let expected = self.model.next_window(micros).min(Time::MAX.as_micros());
                let actual = self.key.next_window(now).as_micros();
                Some(Comparison::new("next window".to_owned(), expected, actual))
            }
        }
    }

    fn usage(&mut self, now: Time) -> Comparison {
        let expected = model_usage(&self.limits, self.model.usage(now.as_micros()), 1);
        Comparison::new("usage".to_owned(), expected, usage_text(self.key.usage(now)))
    }

    /// Returns random options that fit together.
    fn options(&self, rng: &mut Rng, cost: u64) -> ReserveOptions {
        let mut options = ReserveOptions::default();
        if K::has_budgets() && cost > 0 && rng.u8(..4) == 0 {
            options = options.at_least(at_least(rng, cost));
        } else {
            options = options.max_wait(Span::from_micros(max_wait(rng, &self.limits)));
        }
        if K::has_budgets() && rng.bool() {
            let length = ttl(rng, &self.limits);
            // If a shared store voids a receipt that the model keeps, only the latter is returned.
            let keeps = rng.u8(..3) == 0 || self.keeps_only;
            options = options.ttl(if keeps { Ttl::keep(length) } else { Ttl::cancel(length) });
        }
        options
    }

    fn reserve(&mut self, now: Time, cost: u64, options: &ReserveOptions) -> Option<Comparison> {
        let reserved = self.key.reserve(now, cost, options);
        let reserved = reserved.map_err(|error| self.assert_unsupported(error)).ok()?;
        let (micros, ttl) = (now.as_micros(), options.ttl.map(model_ttl));
        let (expected, model_receipt, granted) = if let Some(at_least) = options.at_least {
            self.model.reserve_at_least(micros, cost, at_least, ttl)
        } else {
            let terms = Terms { max_wait: options.max_wait.as_micros(), ttl };
            let (expected, receipt) = self.model.reserve_with(micros, cost, terms);
            (expected, receipt, if expected.allowed { cost } else { 0 })
        };
        self.receipts.extend(reserved.receipt.zip(model_receipt));
        Some(Comparison::new(
            format!("reserve {cost}, {options:?}"),
            format!("{} granted {granted}", text(expected)),
            format!("{} granted {}", text(reserved.decision), reserved.granted),
        ))
    }

    fn extend(&mut self, rng: &mut Rng, now: Time, index: usize, cost: u64) -> Comparison {
        let ttl = rng.bool().then(|| ttl(rng, &self.limits));
        let (receipt, model_receipt) = &self.receipts[index];
        let micros = ttl.map(Span::as_micros);
        let expected = self.model.extend(now.as_micros(), *model_receipt, cost, micros).ok();
        let actual = self.key.extend(now, receipt.clone(), cost, ttl);
        Comparison::new(
            format!("extend {index} by {cost}, {ttl:?}"),
            expected.map_or("not open".to_owned(), text),
            actual.map_or("not open".to_owned(), text),
        )
    }

    /// Settles a receipt, or cancels it.
    fn close(&mut self, now: Time, index: usize, used: Option<u64>, report: &mut Report) -> Comparison {
        let (receipt, model_receipt) = &self.receipts[index];
        let Some(used) = used else {
            let expected = self.model.cancel(now.as_micros(), *model_receipt);
            let actual = self.key.cancel(now, receipt.clone());
            report.returned += u64::from(actual);
            return Comparison::new(format!("cancel {index}"), expected, actual);
        };
        let expected = self.model.settle(now.as_micros(), *model_receipt, used);
        let actual = self.key.settle(now, receipt.clone(), used);
        report.indebted += u64::from(actual && used > 1_000);
        Comparison::new(format!("settle {index} as {used}"), expected, actual)
    }

    /// Only `count=all` and `smooth` may reject take and reserve, and only `count=all` a maximum
    /// wait. A pacer may also reject to reserve at least some cost.
    fn assert_unsupported(&self, error: Unsupported) {
        if error.verb == Verb::ReserveAtLeast {
            let rejects = |limit: &Limit| limit.algorithm() == "pacer" || !limit.fits_in_a_list();
            assert!(self.limits.iter().any(rejects), "{}: {error}", limits_text(&self.limits));
            return;
        }
        let is_alone = self.limits.iter().any(|limit| !limit.fits_in_a_list());
        let is_smooth = self.limits.iter().any(|limit| limit.algorithm() == "smooth");
        let waits = error.verb == Verb::CheckWithin;
        assert!(is_alone && !(is_smooth && waits), "{}: {error}", limits_text(&self.limits));
    }
}

/// Returns a random maximum wait.
fn max_wait(rng: &mut Rng, limits: &[Limit]) -> u64 {
    if rng.bool() { random::step(rng, limits) } else { rng.u64(..) >> rng.u32(..64) }
}

/// Returns a limit with small parameters, under which calls a few microseconds apart interact
/// often; and as no TTL is shorter than a millisecond, calls a few milliseconds apart.
fn small_limit<K: KeySubject>(rng: &mut Rng, algorithm: &str) -> Limit {
    let unit = if K::has_budgets() && rng.bool() { "ms" } else { "us" };
    random::small_limit_in(rng, algorithm, unit)
}

/// Returns a random time to live.
pub(crate) fn ttl(rng: &mut Rng, limits: &[Limit]) -> Span {
    Span::from_micros(random::step(rng, limits)).clamp(TTL_MIN, TTL_MAX)
}

/// Returns the least of a cost that is worth granting.
pub(crate) fn at_least(rng: &mut Rng, cost: u64) -> u64 {
    if rng.bool() { rng.u64(1..=cost) } else { 1 }
}

pub(crate) fn model_ttl(ttl: Ttl) -> sluicegate_model::Ttl {
    let then = match ttl.then {
        Then::Keep => sluicegate_model::Then::Keep,
        Then::Cancel => sluicegate_model::Then::Cancel,
    };
    sluicegate_model::Ttl { length: ttl.length.as_micros(), then }
}

/// Prints every field of a decision, and which limit denied the call.
pub(crate) fn text(answer: impl Into<FieldsAndDenier>) -> String {
    let FieldsAndDenier(answer, denied_by) = answer.into();
    format!("{answer} by {denied_by:?}")
}

pub(crate) struct FieldsAndDenier(Fields, Option<u64>);

impl FieldsAndDenier {
    /// Rounds the durations up to multiples of a tick.
    pub(crate) fn rounded_up(self, tick: u64) -> FieldsAndDenier {
        FieldsAndDenier(self.0.rounded_up(tick), self.1)
    }
}

impl From<Decision> for FieldsAndDenier {
    fn from(decision: Decision) -> FieldsAndDenier {
        FieldsAndDenier(decision.into(), decision.denied_by().map(u64::from))
    }
}

impl From<sluicegate_model::Decision> for FieldsAndDenier {
    fn from(answer: sluicegate_model::Decision) -> FieldsAndDenier {
        FieldsAndDenier(answer.into(), answer.denied_by.map(|index| index as u64))
    }
}

/// Prints every field of usages.
pub(crate) fn usage_text(usages: Vec<Usage>) -> String {
    usages.into_iter().map(|usage| format!("{usage:?}")).collect::<Vec<_>>().join("; ")
}

/// Prints every field of the model's usages, with times rounded up to multiples of a tick.
pub(crate) fn model_usage(limits: &[Limit], usages: Vec<sluicegate_model::Usage>, tick: u64) -> String {
    let moment = |micros: u64| Time::saturating_from_micros(micros.next_multiple_of(tick));
    let usage = |(limit, usage): (&Limit, sluicegate_model::Usage)| {
        // Calls before the newest that add up to the limit are not kept.
        let counts_denied = matches!(limit.spec(), Spec::SlidingLog { count_all: true, .. });
        let used = if counts_denied { usage.used.min(usage.limit) } else { usage.used };
        let reset_after = Span::from_micros(usage.reset_after.next_multiple_of(tick));
        let mut expected = Usage::new(usage.limit, used, usage.remaining, reset_after);
        expected.window =
            usage.window.map(|window| Window { start: moment(window.start), end: moment(window.end) });
        expected
    };
    usage_text(limits.iter().zip(usages).map(usage).collect())
}
