//! Vectors for the verbs of budgets on one key: reserve, extend, settle, cancel and usage.

use super::{LIMITS_SEPARATOR, hand_written_lines, limits, time};
use crate::compare::{Mismatch, Report};
use crate::oracle;
use crate::random;
use crate::subject::Fields;
use crate::verbs::{KeySubject, model_ttl};
use fastrand::Rng;
use sluicegate::{Limit, ReserveOptions, Ttl};
use sluicegate_core::{Span, Time};
use sluicegate_model::{Model, ReceiptId, Terms};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The file, as it is in the repository.
pub const BUDGETS: &str = include_str!("../../vectors/budgets.csv");
const CASES: &str = include_str!("../../vectors/budgets.txt");
const HEADER: &str =
    "case,limits,at_us,call,done,allowed,limit,remaining,retry_after_us,reset_after_us,delay_us";

/// The random cases, besides the hand-written ones, and the calls of each.
const RANDOM_CASES: u64 = 24;
const RANDOM_CALLS: usize = 16;

/// A call, as it is written in the file.
enum Call<'a> {
    Check { cost: u64 },
    Reserve { receipt: &'a str, cost: u64, at_least: Option<u64>, ttl: Option<Ttl> },
    Extend { receipt: &'a str, cost: u64, ttl: Option<Span> },
    Settle { receipt: &'a str, used: u64 },
    Cancel { receipt: &'a str },
    Usage,
}

impl<'a> Call<'a> {
    fn read(text: &'a str) -> Option<Call<'a>> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().ok();
        Some(match words[..] {
            ["check", cost] => Call::Check { cost: number(cost)? },
            ["reserve", receipt, cost, ref options @ ..] => {
                let (at_least, options) = match options {
                    ["atleast", least, rest @ ..] => (Some(number(least)?), rest),
                    rest => (None, rest),
                };
                let ttl = match options {
                    [] => None,
                    ["ttl", length, "keep"] => Some(Ttl::keep(span(length)?)),
                    ["ttl", length, "cancel"] => Some(Ttl::cancel(span(length)?)),
                    _ => return None,
                };
                Call::Reserve { receipt, cost: number(cost)?, at_least, ttl }
            }
            ["extend", receipt, cost] => Call::Extend { receipt, cost: number(cost)?, ttl: None },
            ["extend", receipt, cost, "ttl", length] => {
                Call::Extend { receipt, cost: number(cost)?, ttl: Some(span(length)?) }
            }
            ["settle", receipt, used] => Call::Settle { receipt, used: number(used)? },
            ["cancel", receipt] => Call::Cancel { receipt },
            ["usage"] => Call::Usage,
            _ => return None,
        })
    }
}

fn span(text: &str) -> Option<Span> {
    u64::try_from(time(text)?).ok().map(Span::from_micros)
}

/// The receipts of a case, by name.
type Receipts<R> = HashMap<String, R>;

/// One key of a subject or of the model.
trait BudgetKey {
    type Receipt: Clone;

    fn check(&mut self, now: Time, cost: u64) -> Fields;
    fn standing(&mut self, now: Time) -> Fields;
    fn reserve(
        &mut self,
        now: Time,
        cost: u64,
        at_least: Option<u64>,
        ttl: Option<Ttl>,
    ) -> (Fields, Option<Self::Receipt>, u64);
    fn extend(&mut self, now: Time, receipt: Self::Receipt, cost: u64, ttl: Option<Span>) -> Option<Fields>;
    fn settle(&mut self, now: Time, receipt: Self::Receipt, used: u64) -> bool;
    fn cancel(&mut self, now: Time, receipt: Self::Receipt) -> bool;
    fn used(&mut self, now: Time) -> Vec<u64>;
}

struct OfModel(Model);

impl BudgetKey for OfModel {
    type Receipt = ReceiptId;

    fn check(&mut self, now: Time, cost: u64) -> Fields {
        self.0.check(now.as_micros(), cost).into()
    }

    fn standing(&mut self, now: Time) -> Fields {
        self.0.peek(now.as_micros(), 0).into()
    }

    fn reserve(
        &mut self,
        now: Time,
        cost: u64,
        at_least: Option<u64>,
        ttl: Option<Ttl>,
    ) -> (Fields, Option<ReceiptId>, u64) {
        let ttl = ttl.map(model_ttl);
        if let Some(at_least) = at_least {
            let (decision, receipt, granted) = self.0.reserve_at_least(now.as_micros(), cost, at_least, ttl);
            return (decision.into(), receipt, granted);
        }
        let (decision, receipt) = self.0.reserve_with(now.as_micros(), cost, Terms { max_wait: 0, ttl });
        (decision.into(), receipt, if decision.allowed { cost } else { 0 })
    }

    fn extend(&mut self, now: Time, receipt: ReceiptId, cost: u64, ttl: Option<Span>) -> Option<Fields> {
        let extended = self.0.extend(now.as_micros(), receipt, cost, ttl.map(Span::as_micros));
        extended.ok().map(Fields::from)
    }

    fn settle(&mut self, now: Time, receipt: ReceiptId, used: u64) -> bool {
        self.0.settle(now.as_micros(), receipt, used)
    }

    fn cancel(&mut self, now: Time, receipt: ReceiptId) -> bool {
        self.0.cancel(now.as_micros(), receipt)
    }

    fn used(&mut self, now: Time) -> Vec<u64> {
        self.0.usage(now.as_micros()).into_iter().map(|usage| usage.used).collect()
    }
}

struct OfSubject<K>(K);

impl<K: KeySubject> BudgetKey for OfSubject<K> {
    type Receipt = K::Receipt;

    fn check(&mut self, now: Time, cost: u64) -> Fields {
        self.0.check(now, cost).into()
    }

    fn standing(&mut self, now: Time) -> Fields {
        self.0.peek(now, 0).into()
    }

    fn reserve(
        &mut self,
        now: Time,
        cost: u64,
        at_least: Option<u64>,
        ttl: Option<Ttl>,
    ) -> (Fields, Option<K::Receipt>, u64) {
        let mut options = ReserveOptions::default();
        (options.at_least, options.ttl) = (at_least, ttl);
        let reserved = self.0.reserve(now, cost, &options).unwrap_or_else(|error| panic!("{error}"));
        (reserved.decision.into(), reserved.receipt, reserved.granted)
    }

    fn extend(&mut self, now: Time, receipt: K::Receipt, cost: u64, ttl: Option<Span>) -> Option<Fields> {
        self.0.extend(now, receipt, cost, ttl).map(Fields::from)
    }

    fn settle(&mut self, now: Time, receipt: K::Receipt, used: u64) -> bool {
        self.0.settle(now, receipt, used)
    }

    fn cancel(&mut self, now: Time, receipt: K::Receipt) -> bool {
        self.0.cancel(now, receipt)
    }

    fn used(&mut self, now: Time) -> Vec<u64> {
        self.0.usage(now).into_iter().map(|usage| usage.used).collect()
    }
}

/// Makes a call, and returns its columns. `None` if it names a receipt that no call has reserved.
fn results<K: BudgetKey>(
    key: &mut K,
    receipts: &mut Receipts<K::Receipt>,
    now: Time,
    call: &Call<'_>,
) -> Option<String> {
    let known = |receipt: &str| receipts.get(receipt).cloned();
    let (done, fields) = match *call {
        Call::Check { cost } => (String::new(), Some(key.check(now, cost))),
        Call::Reserve { receipt, cost, at_least, ttl } => {
            let (fields, reserved, granted) = key.reserve(now, cost, at_least, ttl);
            receipts.extend(reserved.map(|reserved| (receipt.to_owned(), reserved)));
            (granted.to_string(), Some(fields))
        }
        Call::Extend { receipt, cost, ttl } => {
            let extended = key.extend(now, known(receipt)?, cost, ttl);
            (u8::from(extended.is_some()).to_string(), extended)
        }
        Call::Settle { receipt, used } => {
            (u8::from(key.settle(now, known(receipt)?, used)).to_string(), None)
        }
        Call::Cancel { receipt } => (u8::from(key.cancel(now, known(receipt)?)).to_string(), None),
        Call::Usage => {
            let used: Vec<String> = key.used(now).iter().map(u64::to_string).collect();
            (used.join(LIMITS_SEPARATOR), None)
        }
    };
    let fields = fields.unwrap_or_else(|| key.standing(now));
    Some(format!("{done},{fields}"))
}

/// Runs the vectors of budgets, each case on a fresh key from `make`.
///
/// # Errors
/// At the first result that differs from the file.
pub fn run_budgets<K: KeySubject>(mut make: impl FnMut(&[Limit], Time) -> K) -> Result<Report, Mismatch> {
    let mut report = Report::default();
    let mut case_so_far = "";
    let mut current: Option<(OfSubject<K>, Receipts<K::Receipt>)> = None;
    for (index, line) in BUDGETS.lines().enumerate().skip(1) {
        let mismatch = |expected: &str, actual: String| Mismatch {
            case: format!("budgets.csv:{}", index + 1),
            trace: format!("{line}\n"),
            expected: expected.to_owned(),
            actual,
        };
        let columns: Vec<&str> = line.splitn(5, ',').collect();
        let [case, limits_text, at, call, expected] = columns[..] else {
            return Err(mismatch("a row", "not a row".to_owned()));
        };
        let at = at.parse().ok().and_then(Time::from_micros);
        let (Some(at), Some(call)) = (at, Call::read(call)) else {
            return Err(mismatch("a time and a call", "neither".to_owned()));
        };
        if case != case_so_far {
            let limits = limits(limits_text).map_err(|error| mismatch("limits", error))?;
            current = Some((OfSubject(make(&limits, at)), HashMap::new()));
            case_so_far = case;
            report.cases += 1;
        }
        let Some((key, receipts)) = &mut current else { continue };
        let actual = results(key, receipts, at, &call).unwrap_or_else(|| "no such receipt".to_owned());
        if actual != expected {
            return Err(mismatch(expected, actual));
        }
        report.checks += 1;
    }
    Ok(report)
}

/// Returns the text of the file.
///
/// # Errors
/// If a line of `budgets.txt` cannot be parsed.
pub fn generate_budgets() -> Result<String, String> {
    let mut text = format!("{HEADER}\n");
    for (title, limits, calls) in hand_written_lines(CASES)? {
        append(&mut text, &title, &limits, &calls)?;
    }
    for number in 0..RANDOM_CASES {
        let (limits, calls) = random_case(number);
        append(&mut text, &format!("random {number}"), &limits, &calls)?;
    }
    Ok(text)
}

fn append(text: &mut String, title: &str, limits_text: &str, calls: &[(u64, String)]) -> Result<(), String> {
    let limits = limits(limits_text)?;
    let times = || calls.iter().map(|(at, _)| Time::saturating_from_micros(*at));
    let (Some(start), Some(earliest), Some(latest)) = (times().next(), times().min(), times().max()) else {
        return Err(format!("{title}: no calls"));
    };
    let mut key = OfModel(Model::new(oracle::rules(&limits, start, &(earliest..=latest))));
    let mut receipts = HashMap::new();
    for (at, (micros, call)) in times().zip(calls) {
        let read = Call::read(call).ok_or_else(|| format!("budgets.txt: cannot parse \"{call}\""))?;
        match results(&mut key, &mut receipts, at, &read) {
            Some(results) => {
                let _ = writeln!(text, "{title},{limits_text},{micros},{call},{results}");
            }
            // A random call may name a receipt of a reservation that was denied.
            None if title.starts_with("random") => {}
            None => return Err(format!("{title}: \"{call}\" names no receipt")),
        }
    }
    Ok(())
}

fn random_case(number: u64) -> (String, Vec<(u64, String)>) {
    let mut rng = Rng::with_seed(4_000 + number);
    let limits = loop {
        let limits = match Limit::CHECKS.get(rng.usize(..=Limit::CHECKS.len())) {
            Some(algorithm) => vec![random::small_limit_in(&mut rng, algorithm, "ms")],
            None => random::small_list(&mut rng),
        };
        // A pacer does not reserve at least some cost.
        if limits.iter().all(|limit| limit.fits_in_a_list() && limit.algorithm() != "pacer") {
            break limits;
        }
    };
    let (mut at, mut calls) = (random::start(&mut rng), Vec::new());
    let mut reserved = 0;
    for _ in 0..RANDOM_CALLS {
        let step = random::step(&mut rng, &limits);
        at = random::advance(&mut rng, at, step, false);
        let (cost, receipt) = (random::cost(&mut rng, &limits), rng.usize(..=reserved));
        let length = random::step(&mut rng, &limits).clamp(1_000, 1_000_000_000);
        let then = if rng.u8(..3) == 0 { "keep" } else { "cancel" };
        let call = match rng.u8(..12) {
            0 => format!("check {cost}"),
            1..3 => {
                reserved += 1;
                format!("reserve {reserved} {cost}")
            }
            3..6 => {
                reserved += 1;
                format!("reserve {reserved} {} atleast 1 ttl {length}us {then}", cost.max(1))
            }
            6 => format!("extend {receipt} {cost}"),
            7 => format!("extend {receipt} {cost} ttl {length}us"),
            8..10 => format!("settle {receipt} {cost}"),
            10 => format!("cancel {receipt}"),
            _ => "usage".to_owned(),
        };
        calls.push((at.as_micros(), call));
    }
    (limits.iter().map(Limit::to_string).collect::<Vec<_>>().join(LIMITS_SEPARATOR), calls)
}
