//! Generates the vectors: the cases of `cases.txt`, then random ones, with the model's decisions.

use super::{HEADER, LIMITS_SEPARATOR, limits};
use crate::oracle::Oracle;
use crate::random;
use crate::subject::Subject as _;
use fastrand::Rng;
use sluicegate::Limit;
use sluicegate_core::Time;
use std::fmt::Write as _;

const CASES: &str = include_str!("../../vectors/cases.txt");
/// 2026-11-15T00:00:00Z; the times of the cases are relative to it.
const MIDNIGHT: i64 = 1_794_700_800_000_000;
/// The random cases per file, besides the hand-written ones.
const RANDOM_CASES: u64 = 24;
/// The calls of a random case.
const RANDOM_CALLS: usize = 12;

struct Case {
    title: String,
    limits: String,
    calls: Vec<(u64, String, u64)>,
}

/// Returns the text of a file.
///
/// # Errors
/// If a line of `cases.txt` cannot be parsed.
pub fn generate(file: &str) -> Result<String, String> {
    let mut text = format!("{HEADER}\n");
    for case in
        hand_written(file)?.into_iter().chain((0..RANDOM_CASES).map(|number| random_case(file, number)))
    {
        append(&mut text, &case)?;
    }
    Ok(text)
}

fn append(text: &mut String, Case { title, limits: limits_text, calls }: &Case) -> Result<(), String> {
    let limits = limits(limits_text)?;
    let times = calls.iter().map(|call| Time::saturating_from_micros(call.0));
    let (Some(start), Some(earliest), Some(latest)) =
        (times.clone().next(), times.clone().min(), times.clone().max())
    else {
        return Err(format!("{title}: no calls"));
    };
    let mut oracle = Oracle::new(&limits, start, earliest..=latest);
    for (at, (micros, key, cost)) in times.zip(calls) {
        let fields = oracle.check(at, key.as_bytes(), *cost);
        let _ = writeln!(text, "{title},{limits_text},{micros},{key},{cost},{fields}");
    }
    Ok(())
}

fn random_case(file: &str, number: u64) -> Case {
    let name: u64 = file.bytes().map(u64::from).sum();
    let mut rng = Rng::with_seed(name * 1_000 + number);
    let limits = match file {
        "all_of" => random::list(&mut rng),
        algorithm => vec![random::limit(&mut rng, &algorithm.replace('_', "-"))],
    };
    let trace = random::trace(&mut rng, &limits, RANDOM_CALLS, number % 4 == 3);
    let call = |call: &random::Call| (call.at.as_micros(), format!("k{}", char::from(call.key)), call.cost);
    Case {
        title: format!("random {number}"),
        limits: limits.iter().map(Limit::to_string).collect::<Vec<_>>().join(LIMITS_SEPARATOR),
        calls: trace.iter().map(call).collect(),
    }
}

/// Returns the cases of `cases.txt` for a file.
fn hand_written(file: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    let mut is_ours = false;
    for (index, line) in CASES.lines().enumerate() {
        let wrong = || {
            format!(
                "cases.txt:{}: cannot parse \"{line}\"; the top of the file explains the format",
                index + 1
            )
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.as_slice(), cases.last_mut()) {
            ([] | ["#", ..], _) => {}
            ([name], _) => is_ours = *name == file,
            _ if !is_ours => {}
            (["=", ..], _) => {
                let title = line.trim_start_matches("= ").to_owned();
                cases.push(Case { title, limits: String::new(), calls: Vec::new() });
            }
            (_, Some(case)) if case.limits.is_empty() => line.clone_into(&mut case.limits),
            ([at, key, cost, times @ ..], Some(case)) => {
                let at = since_midnight(at).ok_or_else(wrong)?;
                let cost = cost.parse().map_err(|_| wrong())?;
                let times = match times {
                    [] => Some(1),
                    [times] => times.strip_prefix('x').and_then(|times| times.parse().ok()),
                    _ => None,
                };
                let call = (at, (*key).to_owned(), cost);
                case.calls.extend(std::iter::repeat_n(call, times.ok_or_else(wrong)?));
            }
            _ => return Err(wrong()),
        }
    }
    Ok(cases)
}

/// Returns the cases of a file in which each call is a time and a text: the title, the limits, and
/// the calls.
pub(super) fn hand_written_lines(text: &str) -> Result<Vec<LinesOfCase>, String> {
    let mut cases: Vec<LinesOfCase> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix("= ") {
            cases.push((title.to_owned(), String::new(), Vec::new()));
            continue;
        }
        let cannot_parse = || format!("cannot parse \"{line}\"; the top of the file explains the format");
        let (_, limits, calls) = cases.last_mut().ok_or_else(cannot_parse)?;
        if limits.is_empty() {
            line.clone_into(limits);
            continue;
        }
        let (at, call) = line.split_once(' ').ok_or_else(cannot_parse)?;
        calls.push((since_midnight(at).ok_or_else(cannot_parse)?, call.to_owned()));
    }
    Ok(cases)
}

/// A title, limits, and calls with their times in microseconds since the epoch.
pub(super) type LinesOfCase = (String, String, Vec<(u64, String)>);

/// Parses a time after midnight to microseconds since the epoch.
fn since_midnight(text: &str) -> Option<u64> {
    u64::try_from(MIDNIGHT + time(text)?).ok()
}

/// Parses a time such as `-10s`, `200ms` or `1us` to microseconds.
pub(super) fn time(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let size = match text.strip_prefix(digits)? {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return None,
    };
    Some(digits.parse::<i64>().ok()? * size)
}
