//! Encodes limits as script arguments, and decodes states.
//!
//! Whatever can be computed in advance is computed here, in integers of any size: a cost becomes
//! the time that it takes to recover, with its remainder. A script only adds and compares.
//!
//! ```text
//! encode      a limit as the arguments of a script      state       states in the scripts' replies
//! calendar    the windows of a calendar                 packed      packed numbers
//! ```

mod calendar;
mod packed;
mod state;

use crate::script::{Script, ScriptCall};
use crate::scripts;
use calendar::WindowBounds;
pub(crate) use packed::EXACT;
use packed::{ExactMicros, Packed};
use sluicegate::limit::{CalendarUnit, Initial, Spec, WindowSpec};
use sluicegate::{Limit, Span, Time};
use sluicegate_core::bounds::{CENTURY, Ratio};
use sluicegate_core::smooth::Parameters;
use sluicegate_core::time::YEAR;
use sluicegate_core::{AnyLimit, CellLimit, Rate};
use std::sync::{LazyLock, Mutex};
use std::time::SystemTime;

/// The version of the stored formats, with its separator. A script returns a state of another
/// version unread.
const VERSION: &str = "1 ";

/// A log of at most this many calls is stored as one string, which is faster. (With its free slots
/// it takes about 3 KB.)
const SHORT_LOG: u64 = 200;

/// The number of arguments per limit in a script for lists of limits, including its letter.
const BLOCK: usize = 18;

/// A key's state in a script's reply: as stored, or for a log the slots that matter. `None` if the
/// key is unseen.
pub(crate) type RawState = Option<Vec<u8>>;

/// A limit as the scripts know it.
pub(crate) struct EncodedLimit {
    pub(crate) limit: AnyLimit,
    kind: EncodedKind,
    /// The version and the parameters that a state is stored for.
    tag: String,
    /// Identifies the kind of its states, in key names.
    pub(crate) letter: char,
    /// The latest time of a call under this limit.
    pub(crate) latest: Time,
}

/// Where a limit is in a script call, for the conversion of a bucket's state. Both count from 1.
pub(crate) struct LimitPosition {
    /// The index of the key's receipts.
    pub(crate) receipts: usize,
    /// The index of the limit in its list.
    pub(crate) limit: usize,
    pub(crate) preserve_recovery_time: bool,
}

enum EncodedKind {
    Bucket {
        ratio: Ratio,
        burst: u64,
        is_paced: bool,
        initial: Option<(Time, u64)>,
    },
    FixedWindow {
        count: u64,
        windows: EncodedWindows,
    },
    SlidingWindow {
        rate: Rate,
    },
    SlidingLog {
        rate: Rate,
        count_all: bool,
    },
    /// Its parameters, packed.
    Smooth {
        parameters: Vec<u8>,
    },
}

enum EncodedWindows {
    Aligned { start: Time, period: u64 },
    First { period: u64 },
    Calendar { unit: CalendarUnit, known: Mutex<WindowBounds> },
}

/// Returns the time for a number of units, exact below [`EXACT`] and at least that beyond.
fn time_for(Ratio { micros, parts }: Ratio, units: u64) -> ExactMicros {
    let (all, parts) = (u128::from(units) * u128::from(micros), u128::from(parts));
    let whole = u64::try_from(all / parts).unwrap_or(u64::MAX).min(EXACT);
    ExactMicros { whole, part: u64::try_from(all % parts).unwrap_or(0) }
}

impl EncodedLimit {
    /// Encodes a limit that starts at `start`. Only a bucket with `initial` and `smooth` depend on
    /// it. Without a start, `smooth` starts now, and a bucket with `initial` cannot be shared, so
    /// that this returns `None`.
    pub(crate) fn new(limit: &Limit, start: Option<Time>) -> Option<EncodedLimit> {
        let bucket = |rate: Rate, burst, is_paced, initial| {
            // The limit was validated, so its rate is exact.
            let ratio = rate.ratio().ok()?;
            let tag = format!("{VERSION}{}/{} ", ratio.parts, ratio.micros);
            Some((tag, EncodedKind::Bucket { ratio, burst, is_paced, initial }))
        };
        let made = limit.made_at(start.unwrap_or_else(|| SystemTime::now().into()))?;
        let (letter, (tag, kind)) = match limit.spec() {
            Spec::TokenBucket { rate, burst, initial } => {
                let initial = match initial {
                    None => None,
                    Some(Initial { tokens, start: written, .. }) => {
                        Some((written.or(start)?, burst - tokens))
                    }
                };
                ('t', bucket(*rate, *burst, false, initial.filter(|(_, missing)| *missing > 0))?)
            }
            Spec::LeakyBucket { rate, capacity } => ('l', bucket(*rate, *capacity, false, None)?),
            // The interval was validated, so this rate exists.
            Spec::MinInterval { interval } => ('m', bucket(Rate::new(1, *interval).ok()?, 1, false, None)?),
            Spec::Pacer { rate, queue } => ('p', bucket(*rate, queue + 1, true, None)?),
            Spec::FixedWindow { count, windows } => ('f', fixed_window(*count, windows, limit)?),
            Spec::SlidingWindow { rate } => {
                let tag = format!("{VERSION}{} ", rate.period().as_micros());
                ('s', (tag, EncodedKind::SlidingWindow { rate: *rate }))
            }
            Spec::SlidingLog { rate, count_all } => {
                ('g', (String::new(), EncodedKind::SlidingLog { rate: *rate, count_all: *count_all }))
            }
            Spec::Smooth { .. } => ('o', smooth(limit, &made)?),
            // Leases have scripts of their own. An algorithm without scripts cannot be shared; the
            // conformance suite runs each of them.
            _ => return None,
        };
        let latest = Time::saturating_from_micros(EXACT - 1 - kind.reach());
        Some(EncodedLimit { limit: made, kind, tag, letter, latest })
    }

    /// The script for a check under this limit alone.
    pub(crate) fn check(&self) -> &'static LazyLock<Script> {
        match self.kind {
            EncodedKind::Bucket { .. } => &scripts::CHECK_BUCKET,
            EncodedKind::FixedWindow { .. } => &scripts::CHECK_FIXED_WINDOW,
            EncodedKind::SlidingWindow { .. } => &scripts::CHECK_SLIDING_WINDOW,
            EncodedKind::SlidingLog { rate, count_all: false } if rate.count() <= SHORT_LOG => {
                &scripts::CHECK_SHORT_SLIDING_LOG
            }
            EncodedKind::SlidingLog { count_all: false, .. } => &scripts::CHECK_SLIDING_LOG,
            EncodedKind::SlidingLog { count_all: true, .. } => &scripts::CHECK_SLIDING_LOG_ALL,
            EncodedKind::Smooth { .. } => &scripts::CHECK_SMOOTH,
        }
    }

    /// Returns `true` if denied calls count too.
    pub(crate) fn counts_denied(&self) -> bool {
        matches!(self.kind, EncodedKind::SlidingLog { count_all: true, .. })
    }

    /// Returns `true` if its check script takes the longest wait, so that waiting callers need no
    /// other script.
    pub(crate) fn check_takes_max_wait(&self) -> bool {
        matches!(self.kind, EncodedKind::Smooth { .. })
    }

    /// Identifies what a receipt's charges were written for. Those of a bucket survive a change of
    /// its rate.
    pub(crate) fn receipts_tag(&self) -> &str {
        if matches!(self.kind, EncodedKind::Bucket { .. }) { VERSION } else { &self.tag }
    }

    /// Adds the arguments of a check under this limit alone. Numbers are packed, which is faster to
    /// read in a script.
    pub(crate) fn add_check(&self, call: &mut ScriptCall, cost: u64, max_wait: Span, now: Option<Time>) {
        match &self.kind {
            EncodedKind::Smooth { parameters } => {
                call.arg(&self.tag).arg(cost).arg(&**parameters).arg(max_wait.as_micros());
            }
            EncodedKind::Bucket { ratio, burst, initial, .. } => {
                let (fill, due) = (time_for(*ratio, *burst), time_for(*ratio, cost));
                call.arg(&self.tag);
                call.arg(&*Packed::new().u32(ratio.parts).length(&fill).length(&due).0);
                if let Some((start, missing)) = initial {
                    let missing = time_for(*ratio, *missing);
                    call.arg(&*Packed::new().f64(start.as_micros()).length(&missing).0);
                }
            }
            EncodedKind::FixedWindow { count, windows } => {
                call.arg(&self.tag);
                let packed = Packed::new().f64(*count).f64(cost);
                match windows {
                    EncodedWindows::Aligned { start, period } => {
                        call.arg(&*packed.f64(*period).f64(start.as_micros()).0);
                    }
                    EncodedWindows::First { period } => {
                        call.arg(&*packed.f64(*period).none().0);
                    }
                    EncodedWindows::Calendar { .. } => {
                        let WindowBounds([began, ends, next_ends]) = self.bounds(now);
                        call.arg(&*packed.f64(0).none().0);
                        call.arg(&*Packed::new().f64(began).f64(ends).f64(next_ends).0);
                    }
                }
            }
            EncodedKind::SlidingLog { rate, count_all: false } => {
                let packed = Packed::new().f64(rate.count()).f64(cost).f64(rate.period().as_micros());
                call.arg(&*packed.0);
            }
            EncodedKind::SlidingWindow { .. } | EncodedKind::SlidingLog { count_all: true, .. } => {
                self.add_arguments(call, cost, now);
            }
        }
    }

    /// Adds the arguments of the algorithm's functions, and returns their number.
    fn add_arguments(&self, call: &mut ScriptCall, cost: u64, now: Option<Time>) -> usize {
        match &self.kind {
            EncodedKind::Bucket { ratio, burst, initial, .. } => {
                let (fill, due) = (time_for(*ratio, *burst), time_for(*ratio, cost));
                call.arg(&self.tag)
                    .arg(ratio.parts)
                    .arg(fill.whole)
                    .arg(fill.part)
                    .arg(due.whole)
                    .arg(due.part);
                let Some((start, missing)) = initial else { return 6 };
                let missing = time_for(*ratio, *missing);
                call.arg(start.as_micros()).arg(missing.whole).arg(missing.part);
                9
            }
            EncodedKind::FixedWindow { count, windows } => {
                call.arg(&self.tag).arg(*count).arg(cost);
                match windows {
                    EncodedWindows::Aligned { start, period } => {
                        call.arg(*period).arg(start.as_micros());
                        5
                    }
                    EncodedWindows::First { period } => {
                        call.arg(*period).arg("first");
                        5
                    }
                    EncodedWindows::Calendar { .. } => {
                        let WindowBounds([began, ends, next_ends]) = self.bounds(now);
                        call.arg("").arg(began).arg(ends).arg(next_ends);
                        7
                    }
                }
            }
            EncodedKind::SlidingWindow { rate } => {
                call.arg(&self.tag).arg(rate.count()).arg(cost).arg(rate.period().as_micros());
                4
            }
            EncodedKind::SlidingLog { rate, count_all } => {
                call.arg(rate.count()).arg(cost).arg(rate.period().as_micros());
                call.arg(if *count_all { "all" } else { "" });
                4
            }
            EncodedKind::Smooth { parameters } => {
                call.arg(&self.tag).arg(cost).arg(&**parameters).arg(0);
                4
            }
        }
    }

    /// Adds the block of arguments for a script that takes lists of limits.
    pub(crate) fn add_block(
        &self,
        call: &mut ScriptCall,
        cost: u64,
        now: Option<Time>,
        place: &LimitPosition,
    ) {
        let letter = match self.kind {
            EncodedKind::Bucket { .. } => "b",
            EncodedKind::FixedWindow { .. } => "f",
            EncodedKind::SlidingWindow { .. } => "s",
            EncodedKind::SlidingLog { .. } => "l",
            EncodedKind::Smooth { .. } => "o",
        };
        call.arg(letter);
        let mut added = 1 + self.add_arguments(call, cost, now);
        if let EncodedKind::Bucket { ratio, burst, is_paced, .. } = &self.kind {
            for _ in added..10 {
                call.arg("");
            }
            let interval = time_for(*ratio, 1);
            call.arg(interval.whole).arg(interval.part).arg(cost).arg(*burst);
            call.arg(if *is_paced { "paced" } else { "" });
            call.arg(if place.preserve_recovery_time { 0 } else { ratio.micros });
            call.arg(place.receipts).arg(place.limit);
            added = BLOCK;
        }
        for _ in added..BLOCK {
            call.arg("");
        }
    }
}

fn fixed_window(count: u64, windows: &WindowSpec, limit: &Limit) -> Option<(String, EncodedKind)> {
    let (name, windows) = match windows {
        WindowSpec::Aligned { start, period } => {
            let (start, period) = (*start, period.as_micros());
            (format!("{period}@{}", start.as_micros()), EncodedWindows::Aligned { start, period })
        }
        WindowSpec::First { period } => {
            let period = period.as_micros();
            (format!("{period}@first"), EncodedWindows::First { period })
        }
        WindowSpec::Calendar { unit, .. } => {
            // The canonical text has the unit and the zone: `fixed-window 1/day tz=Asia/Shanghai`.
            let text = limit.to_string();
            let name = text.split_once('/').map_or(text.clone(), |(_, windows)| windows.replace(' ', ","));
            (name, EncodedWindows::Calendar { unit: *unit, known: Mutex::default() })
        }
        _ => return None,
    };
    Some((format!("{VERSION}{name} "), EncodedKind::FixedWindow { count, windows }))
}

/// Encodes `smooth`, whose states are stored for the limit's text.
fn smooth(limit: &Limit, made: &AnyLimit) -> Option<(String, EncodedKind)> {
    let AnyLimit::Cell(CellLimit::Smooth(smooth)) = made else { return None };
    let text = limit.to_string();
    let parameters = text.strip_prefix("smooth ")?;
    let Parameters { stable, max, cool_down, warm_up, initial, start } = smooth.parameters();
    let (threshold, slope) = warm_up.unwrap_or((-1.0, 0.0));
    let packed = Packed::new().double(stable).double(max).double(cool_down).double(initial);
    let packed = packed.f64(start.as_micros()).double(threshold).double(slope);
    Some((format!("{VERSION}{parameters} "), EncodedKind::Smooth { parameters: packed.0 }))
}

impl EncodedKind {
    /// How far in the future the times lie that a script computes.
    fn reach(&self) -> u64 {
        match self {
            EncodedKind::Bucket { ratio, burst, .. } => {
                time_for(*ratio, *burst).whole + CENTURY.as_micros() + 2
            }
            EncodedKind::FixedWindow { windows, .. } => match windows {
                EncodedWindows::Aligned { period, .. } | EncodedWindows::First { period } => *period,
                EncodedWindows::Calendar { .. } => 3 * YEAR,
            },
            EncodedKind::SlidingWindow { rate } | EncodedKind::SlidingLog { rate, .. } => {
                2 * rate.period().as_micros()
            }
            // A century until the next call, and at most another until all permits are stored.
            EncodedKind::Smooth { .. } => 2 * CENTURY.as_micros() + 2,
        }
    }
}
