//! Limits and traces from a seed: ordinary ones, and the extremes of every bound.

use fastrand::Rng;
use sluicegate::Limit;
use sluicegate::limit::{Spec, WindowSpec};
use sluicegate_core::bounds::COUNT_MAX;
use sluicegate_core::{Span, Time};

/// A call of a trace: time, key and cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The time.
    pub at: Time,
    /// Which of a few keys.
    pub key: u8,
    /// The cost.
    pub cost: u64,
}

impl Call {
    /// The key as bytes.
    pub fn key(&self) -> [u8; 2] {
        [b'k', self.key]
    }
}

const YEAR: u64 = 365 * 86_400_000_000;
/// The zones of random calendars: daylight saving, half hours, fixed offsets, the date line.
const ZONES: [&str; 9] = [
    "UTC",
    "+08:00",
    "-03:30",
    "Asia/Shanghai",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Tehran",
    "Pacific/Apia",
];

/// Returns a number from `least` to `most`, often small and often at an edge.
pub fn number(rng: &mut Rng, least: u64, most: u64) -> u64 {
    /// Around 32 bits, the parts into which a bucket divides a microsecond, and the largest count.
    const LARGE: [u64; 12] = [
        (1 << 32) - 1,
        1 << 32,
        (1 << 32) + 1,
        999_999_937,
        999_999_999,
        1_000_000_000,
        1_000_000_001,
        1_000_000_007_000,
        999_999_999_999,
        999_999_999_000,
        999_999_937_000,
        COUNT_MAX,
    ];
    let edges = [least, least + 1, most, most.saturating_sub(1), 2, 3, 5, 7, 10, 60];
    let value = match rng.u8(..12) {
        0..3 => edges[rng.usize(..edges.len())],
        3..6 => rng.u64(least..=most.min(least + 12)),
        6 => LARGE[rng.usize(..LARGE.len())],
        // Most buckets can keep a large rate only if it is a round number.
        7 => (rng.u64(..) >> rng.u32(24..44)) / 1_000 * 1_000,
        _ => rng.u64(..) >> rng.u32(..64),
    };
    value.clamp(least, most)
}

fn period(rng: &mut Rng) -> String {
    let ordinary = ["s", "10s", "60s", "min", "h", "d", "7d", "1ms", "250ms", "7us"];
    match rng.u8(..10) {
        0..4 => ordinary[rng.usize(..ordinary.len())].to_owned(),
        _ => format!("{}us", number(rng, 1, 10 * YEAR)),
    }
}

/// Returns a limit with small parameters, under which calls a few microseconds apart interact
/// often.
pub fn small_limit(rng: &mut Rng, algorithm: &str) -> Limit {
    small_limit_in(rng, algorithm, "us")
}

/// Returns a limit with small parameters in a unit of time.
pub fn small_limit_in(rng: &mut Rng, algorithm: &str, unit: &str) -> Limit {
    loop {
        let (count, period) = (rng.u64(1..=9), rng.u64(1..=9));
        let options = match algorithm {
            "token-bucket" => format!(" burst={}", rng.u64(1..=20)),
            "leaky-bucket" => format!(" capacity={}", rng.u64(1..=20)),
            "pacer" => format!(" queue={}", rng.u64(0..=20)),
            "fixed-window" if rng.bool() => " start=first".to_owned(),
            "smooth" if rng.bool() => format!(" burst={}", rng.u64(1..=20)),
            "smooth" if rng.bool() => format!(" warmup={}{unit} cold={}", rng.u64(1..=40), rng.u64(1..=9)),
            _ => String::new(),
        };
        let measure = if algorithm == "min-interval" { String::new() } else { format!("{count}/") };
        if let Ok(limit) = format!("{algorithm} {measure}{period}{unit}{options}").parse() {
            return limit;
        }
    }
}

/// Returns a limit of the algorithm, with any parameters within bounds.
pub fn limit(rng: &mut Rng, algorithm: &str) -> Limit {
    loop {
        let text = limit_text(rng, algorithm);
        // A limit out of bounds, such as more than a century to fill, is drawn again.
        if let Ok(limit) = text.parse() {
            return limit;
        }
    }
}

fn limit_text(rng: &mut Rng, algorithm: &str) -> String {
    let most = if algorithm == "sliding-log" && rng.u8(..8) > 0 { 50 } else { COUNT_MAX };
    let count = number(rng, 1, most);
    let measure = format!("{count}/{}", period(rng));
    let units = |rng: &mut Rng, least| number(rng, least, COUNT_MAX);
    let options = match algorithm {
        "token-bucket" => {
            let burst = if rng.bool() { units(rng, 1) } else { count };
            let initial =
                if rng.bool() { format!(" initial={}", number(rng, 0, burst)) } else { String::new() };
            let start = if initial.is_empty() || rng.bool() { String::new() } else { start_option(rng) };
            format!(" burst={burst}{initial}{start}")
        }
        "smooth" => {
            let stored = match rng.u8(..4) {
                0 => String::new(),
                1 => format!(" burst={}", units(rng, 1)),
                2 => format!(" warmup={}", period(rng)),
                _ => format!(" warmup={} cold={}.{}", period(rng), number(rng, 1, 999), rng.u8(..=99)),
            };
            let initial = if rng.bool() { format!(" initial={}", number(rng, 0, 50)) } else { String::new() };
            let start = if rng.u8(..4) == 0 { start_option(rng) } else { String::new() };
            format!("{stored}{initial}{start}")
        }
        "leaky-bucket" if rng.bool() => format!(" capacity={}", units(rng, 1)),
        "pacer" if rng.bool() => format!(" queue={}", units(rng, 0)),
        "min-interval" => return format!("min-interval {}", period(rng)),
        "sliding-log" if rng.u8(..3) == 0 => " count=all".to_owned(),
        "fixed-window" => match rng.u8(..4) {
            0 => String::new(),
            1 => " start=first".to_owned(),
            2 => start_option(rng),
            _ => {
                let unit = ["day", "week", "month", "year"][rng.usize(..4)];
                return format!("fixed-window {count}/{unit} tz={}", ZONES[rng.usize(..ZONES.len())]);
            }
        },
        _ => String::new(),
    };
    format!("{algorithm} {measure}{options}")
}

/// Returns a start within the time of most traces, so that some begin before it.
fn start_option(rng: &mut Rng) -> String {
    let (year, month, day) = (rng.u8(17..28), rng.u8(1..10), rng.u8(0..9));
    format!(" start=20{year}-0{month}-1{day}T00:00:00+08:00")
}

/// Returns one to four limits that can form a list.
pub fn list(rng: &mut Rng) -> Vec<Limit> {
    let mut limits = Vec::new();
    for _ in 0..rng.usize(2..=4) {
        let algorithm = Limit::CHECKS[rng.usize(..Limit::CHECKS.len())];
        let limit = limit(rng, algorithm);
        if limit.fits_in_a_list() {
            limits.push(limit);
        }
    }
    if limits.is_empty() { list(rng) } else { limits }
}

/// Returns two or three limits with small parameters.
pub fn small_list(rng: &mut Rng) -> Vec<Limit> {
    (0..rng.usize(2..=3)).map(|_| small_part(rng)).collect()
}

/// Returns a limit with small parameters that can be part of a list.
fn small_part(rng: &mut Rng) -> Limit {
    loop {
        let algorithm = Limit::CHECKS[rng.usize(..Limit::CHECKS.len())];
        let limit = small_limit(rng, algorithm);
        if limit.fits_in_a_list() {
            return limit;
        }
    }
}

/// Returns limits that replace others: mostly with other parameters, sometimes of another
/// algorithm, more or fewer.
pub fn changed(rng: &mut Rng, limits: &[Limit]) -> Vec<Limit> {
    loop {
        let mut changed = limits.to_vec();
        match rng.u8(..12) {
            0 if changed.len() > 1 => drop(changed.pop()),
            1 if changed.len() < 4 => changed.push(small_part(rng)),
            _ => {
                let position = rng.usize(..changed.len());
                changed[position] = other(rng, &changed[position]);
                if rng.bool() {
                    changed = changed.iter().map(|limit| other(rng, limit)).collect();
                }
            }
        }
        if changed.len() == 1 || changed.iter().all(Limit::fits_in_a_list) {
            return changed;
        }
    }
}

fn other(rng: &mut Rng, old: &Limit) -> Limit {
    match rng.u8(..12) {
        0 => {
            let algorithm = Limit::CHECKS[rng.usize(..Limit::CHECKS.len())];
            small_limit(rng, algorithm)
        }
        1 => limit(rng, old.algorithm()),
        2..6 => small_limit(rng, old.algorithm()),
        _ => with_other_count(rng, old).unwrap_or_else(|| small_limit(rng, old.algorithm())),
    }
}

/// Returns the limit with another count, and thus with the same windows.
fn with_other_count(rng: &mut Rng, limit: &Limit) -> Option<Limit> {
    let text = limit.to_string();
    let (measure, rest) = text.split_once('/')?;
    let (algorithm, _) = measure.split_once(' ')?;
    let count = if rng.bool() { rng.u64(1..=20) } else { number(rng, 1, COUNT_MAX) };
    format!("{algorithm} {count}/{rest}").parse().ok()
}

/// Returns the durations at which something happens under a limit.
fn scales(limit: &Limit) -> Vec<u64> {
    let of_rate = |rate: &sluicegate_core::Rate, burst: u64| {
        let (count, period) = (rate.count(), rate.period().as_micros());
        let fill = u128::from(period) * u128::from(burst) / u128::from(count);
        vec![(period / count).max(1), period, u64::try_from(fill).unwrap_or(period).max(1)]
    };
    match limit.spec() {
        Spec::TokenBucket { rate, burst, .. } => of_rate(rate, *burst),
        Spec::LeakyBucket { rate, capacity } => of_rate(rate, *capacity),
        Spec::Pacer { rate, queue } => of_rate(rate, *queue),
        Spec::MinInterval { interval } => vec![interval.as_micros()],
        Spec::Concurrency { ttl, .. } => vec![ttl.map_or(1_000_000, Span::as_micros)],
        Spec::SlidingLog { rate, .. } | Spec::SlidingWindow { rate } => of_rate(rate, 1),
        Spec::Smooth { rate, warm_up, burst, .. } => {
            let stored = warm_up.map_or(1_000_000, |warm_up| warm_up.period.as_micros());
            let mut scales = of_rate(rate, burst.unwrap_or(1));
            scales.push(stored);
            scales
        }
        Spec::FixedWindow { windows, .. } => match windows {
            WindowSpec::Aligned { period, .. } | WindowSpec::First { period } => vec![period.as_micros()],
            _ => vec![3_600_000_000, 86_400_000_000, 40 * 86_400_000_000],
        },
        other => unreachable!("{other:?} has no scales"),
    }
}

/// Returns when a trace begins: mostly in our days, sometimes at the epoch or near the end of time.
fn beginning(rng: &mut Rng) -> u64 {
    match rng.u8(..8) {
        0 => 0,
        1 => rng.u64(..1_000_000),
        2 => rng.u64(..Time::MAX.as_micros()),
        3 => Time::MAX.as_micros() - rng.u64(..1_000_000),
        _ => 1_500_000_000_000_000 + rng.u64(..YEAR * 10),
    }
}

/// Returns a step forward at the scale of the limits.
pub fn step(rng: &mut Rng, limits: &[Limit]) -> u64 {
    let scales = scales(&limits[rng.usize(..limits.len())]);
    let scale = scales[rng.usize(..scales.len())];
    match rng.u8(..12) {
        0..5 => 0,
        5 => 1,
        6 => scale,
        7 => scale - 1,
        8 => scale / 2,
        9 => rng.u64(..=scale.saturating_mul(3)),
        _ => rng.u64(..=scale),
    }
}

/// Returns a cost at the scale of what a limit admits.
pub fn cost(rng: &mut Rng, limits: &[Limit]) -> u64 {
    // The limit of a slow `smooth` may be 0.
    let limit = limits[rng.usize(..limits.len())].at_once().max(1);
    match rng.u8(..16) {
        0 => 0,
        1 => limit.min(COUNT_MAX),
        2 => limit.saturating_add(1).min(COUNT_MAX),
        3 => COUNT_MAX,
        4 => limit / 2 + 1,
        5..8 => rng.u64(1..=limit.min(COUNT_MAX)),
        8..10 => rng.u64(1..=limit.min(5)),
        _ => 1,
    }
}

/// Returns a moment `step` after another, or, if the clock may step back, sometimes before it.
pub fn advance(rng: &mut Rng, at: Time, step: u64, may_step_back: bool) -> Time {
    if may_step_back && rng.u8(..6) == 0 {
        return Time::saturating_from_micros(at.as_micros().saturating_sub(step));
    }
    let next = at.as_micros() + step;
    Time::from_micros(next).unwrap_or(at)
}

/// Returns a trace of `length` calls by a few keys.
pub fn trace(rng: &mut Rng, limits: &[Limit], length: usize, may_step_back: bool) -> Vec<Call> {
    let mut at = Time::saturating_from_micros(beginning(rng));
    let keys = rng.u8(1..=3);
    (0..length)
        .map(|_| {
            let step = step(rng, limits);
            at = advance(rng, at, step, may_step_back);
            Call { at, key: b'0' + rng.u8(..keys), cost: cost(rng, limits) }
        })
        .collect()
}

/// Returns when a trace of verbs begins.
pub fn start(rng: &mut Rng) -> Time {
    Time::saturating_from_micros(beginning(rng))
}
