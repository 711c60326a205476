//! A flood of new keys, far more than a limiter holds, while an offender who is at his limit keeps
//! trying.
//!
//! The clock stands still meanwhile, so he has nothing coming to him: whenever he is allowed, the
//! flood has washed him out of memory.

use crate::input::{Random, read};
use crate::measure::{each, head, median, memory, nanos_each, row, verdict};
use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use std::hint::black_box;
use std::time::{Duration, Instant};

pub const KEYS: u64 = 100_000_000;
const MAX_KEYS: u64 = 1_000_000;
/// Normal traffic between two parts of the flood.
const NORMAL: u64 = 5_000_000;
/// The offender tries once per this many checks.
const TRIES_EVERY: u64 = 1_000;
const PARTS: u64 = 10;
/// The flood's keys begin here, far from those of normal traffic.
const FLOOD_BEGINS: u64 = 1 << 32;
const OFFENDER: &str = "offender";
const MEGABYTE: f64 = 1024.0 * 1024.0;

pub fn run(keys: u64) {
    for (place, limit) in ["token-bucket 5/60s", "fixed-window 1000/h"].into_iter().enumerate() {
        if place > 0 {
            println!();
        }
        flood(limit, keys);
    }
}

fn flood(limit: &str, keys: u64) {
    let (mut normal, flooded) = (Normal::new(limit), Normal::new(limit));
    let limiter = flooded.limiter;
    // All known keys recover; then time stands still.
    flooded.clock.advance(Duration::from_secs(7_200));
    let used = (1..).find(|_| !limiter.check(OFFENDER).allowed()).expect("a limit ends") - 1;
    println!(
        "{keys} new keys, one check each, against `{limit}` with max_keys = {MAX_KEYS}. The offender has used all {used} of \
         its limit and tries again every {TRIES_EVERY} checks; the clock stands still.\n\
         Normal traffic, measured before each part of the flood on a separate limiter: {NORMAL} checks of {MAX_KEYS} \
         known keys in random order.\n"
    );
    head([
        "progress",
        "normal, million checks per second",
        "flood, the same",
        "ratio",
        "memory, MB",
        "tries",
        "denied",
    ]);
    row(["before".into(), "".into(), "".into(), "".into(), megabytes(), "0".into(), "0".into()]);
    let (mut tries, mut denied, mut ratios) = (0_u64, 0_u64, Vec::new());
    for part in 0..PARTS {
        let usual = normal.checks(NORMAL);
        let (first, end) = (keys * part / PARTS, keys * (part + 1) / PARTS);
        let began = Instant::now();
        for key in first..end {
            black_box(read(&limiter.check(FLOOD_BEGINS + key)));
            if key % TRIES_EVERY == 0 {
                tries += 1;
                denied += u64::from(!limiter.check(OFFENDER).allowed());
            }
        }
        let flooding = each(began.elapsed(), end - first);
        ratios.push(flooding / usual);
        let [usual_rate, rate] = [usual, flooding].map(|nanos| format!("{:.1}", 1e3 / nanos));
        let (part, ratio) = (format!("{} %", 100 * (part + 1) / PARTS), format!("{:.2}", flooding / usual));
        row([part, usual_rate, rate, ratio, megabytes(), tries.to_string(), denied.to_string()]);
    }
    let (ratio, share) = (median(ratios), 100.0 * denied as f64 / tries as f64);
    let stats = limiter.stats();
    println!("\n{} keys held, {} evicted.\n", stats.keys, stats.evicted);
    head(["what", "figure", "bar", ""]);
    row([
        "time per check in the flood / normal".into(),
        format!("{ratio:.2}"),
        "1.5".into(),
        verdict(ratio <= 1.5),
    ]);
    row([
        "the offender's tries that were denied".into(),
        format!("{share:.3} %"),
        "99.9 %".into(),
        verdict(share >= 99.9),
    ]);
}

fn megabytes() -> String {
    format!("{:.1}", memory("VmRSS") / MEGABYTE)
}

/// A limiter whose keys are all known and within their limit.
struct Normal {
    limiter: Limiter,
    clock: ManualClock,
    random: Random,
}

impl Normal {
    fn new(limit: &str) -> Normal {
        let clock = ManualClock::default();
        let builder = Limiter::builder(limit).max_keys(MAX_KEYS as usize).clock(clock.clone());
        let limiter = builder.build().expect("a limit");
        assert!((0..MAX_KEYS).all(|key| limiter.check(key).allowed()), "the first of several");
        Normal { limiter, clock, random: Random(1) }
    }

    /// Nanoseconds a check. A key has its turn every 100 seconds or so, so that few are denied.
    fn checks(&mut self, checks: u64) -> f64 {
        nanos_each(checks, || {
            for check in 0..checks {
                if check % 1_000 == 0 {
                    self.clock.advance(Duration::from_millis(100));
                }
                black_box(read(&self.limiter.check(self.random.below(MAX_KEYS))));
            }
        })
    }
}
