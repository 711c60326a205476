//! `smooth` compared with Guava itself: random calls decided by Guava's own limiters.
//! `guava/README.md` describes the files.

use crate::compare::{Mismatch, Report};
use sluicegate::Limit;
use sluicegate_core::rollback::Times;
use sluicegate_core::verbs::Verbs as _;
use sluicegate_core::{Algorithm as _, AnyLimit, AnyState, Cell, CellLimit, Span, Time};
use std::io::BufRead;

/// The header of a file.
const HEADER: &str = "call,at_us,limit,permits,max_wait_us,allowed,wait_us,next_us,stored_bits";

/// The files in the repository.
pub const FILES: [(&str, &str); 2] = [
    ("bursty", include_str!("../guava/bursty.csv")),
    ("warming_up", include_str!("../guava/warming_up.csv")),
];

/// Replays the calls that Guava decided, and compares each result and the whole state after it.
///
/// # Errors
/// At the first row that differs or cannot be read.
pub fn play(rows: impl BufRead) -> Result<Report, Mismatch> {
    let mut report = Report::default();
    let mut current: Option<(AnyLimit, AnyState)> = None;
    let mut trace = String::new();
    for (index, line) in rows.lines().enumerate() {
        let line = line.unwrap_or_else(|error| error.to_string());
        let mismatch = |trace: &str, expected: String, actual: String| Mismatch {
            case: format!("line {}", index + 1),
            trace: format!("{HEADER}\n{trace}"),
            expected,
            actual,
        };
        if index == 0 {
            if line == HEADER {
                continue;
            }
            return Err(mismatch("", HEADER.to_owned(), line));
        }
        if line.starts_with("make") {
            trace.clear();
            report.cases += 1;
        }
        trace.push_str(&line);
        trace.push('\n');
        let row = Row::read(&line).ok_or_else(|| mismatch(&trace, "a row".to_owned(), line.clone()))?;
        let actual =
            row.call(&mut current).ok_or_else(|| mismatch(&trace, "a case".to_owned(), line.clone()))?;
        let state = current.as_ref().map(|(_, state)| state);
        if actual != row.outcome || state != Some(&row.state) {
            let text = |outcome: Outcome, state: &AnyState| format!("{outcome:?} and {state:?}");
            let (expected, ours) = (text(row.outcome, &row.state), text(actual, state.unwrap_or(&row.state)));
            return Err(mismatch(&trace, expected, ours));
        }
        report.checks += u64::from(row.outcome != Outcome::None);
        report.denied += u64::from(row.outcome == Outcome::Denied);
    }
    Ok(report)
}

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// The caller sleeps this long.
    Waits(Span),
    /// It would have to sleep for longer than its maximum wait.
    Denied,
    /// The row does not acquire permits.
    None,
}

struct Row<'a> {
    call: &'a str,
    at: Time,
    limit: &'a str,
    permits: u64,
    max_wait: Span,
    outcome: Outcome,
    /// Guava's state, in our encoding.
    state: AnyState,
}

impl<'a> Row<'a> {
    fn read(line: &'a str) -> Option<Row<'a>> {
        let fields: Vec<&str> = line.split(',').collect();
        let [call, at, limit, permits, max_wait, allowed, wait, next, stored] = fields[..] else {
            return None;
        };
        let micros = |text: &str| text.parse().ok().map(Span::from_micros);
        let outcome = match allowed {
            "" => Outcome::None,
            "0" => Outcome::Denied,
            _ => Outcome::Waits(micros(wait)?),
        };
        let stored = u64::from_str_radix(stored, 16).ok()?;
        let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).ok();
        let state = Cell { at: next.parse::<u64>().ok()? + 1, a: half(stored)?, b: half(stored >> 32)? };
        Some(Row {
            call,
            at: Time::from_micros(at.parse().ok()?)?,
            limit,
            permits: permits.parse().unwrap_or(0),
            max_wait: micros(max_wait).unwrap_or(Span::MAX),
            outcome,
            state: AnyState::Cell(state),
        })
    }

    /// Runs the call on our limiter; `None` if the row is invalid.
    fn call(&self, current: &mut Option<(AnyLimit, AnyState)>) -> Option<Outcome> {
        let create = |start: Time| match self.limit.parse::<Limit>().ok()?.made_at(start)? {
            limit @ AnyLimit::Cell(CellLimit::Smooth(_)) => Some(limit),
            _ => None,
        };
        match (self.call, current) {
            ("make", current) => {
                let (limit, mut state) = (create(self.at)?, AnyState::default());
                // Guava has a state from the start; ours has one from the first charge on, even of
                // cost 0.
                limit.charge(&mut state, self.at, 0);
                *current = Some((limit, state));
                Some(Outcome::None)
            }
            ("rate", Some((limit, state))) => {
                let changed = create(self.at)?;
                changed.adopt(limit, state, Times { now: self.at, latest: self.at });
                *limit = changed;
                Some(Outcome::None)
            }
            ("acquire" | "try", Some((limit, state))) => {
                let decision = limit.check_within(state, self.at, self.permits, self.max_wait);
                let waits = Outcome::Waits(decision.delay());
                Some(if decision.allowed() { waits } else { Outcome::Denied })
            }
            _ => None,
        }
    }
}
