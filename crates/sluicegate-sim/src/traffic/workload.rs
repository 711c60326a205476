//! Workloads: traffic made up from one line of text and a seed. [`HELP`] says how they are written.
//!
//! The rate is that of all keys together; `zipf=S` makes the key of rank r call in proportion to
//! 1/r^S, otherwise all keys call equally often. Times are whole microseconds: exact and rounded
//! down, but for a ramp's, to the nearest, and random ones. The same text and seed give the same
//! calls on every machine.

mod parse;
mod popularity;
mod shape;

pub use parse::{LASTS_MAX, WorkloadError};

use super::{Call, Clock, Collector, Reading, Traffic, TrafficError};
use crate::progress::Progress;
use popularity::Popularity;
use rand::SeedableRng as _;
use rand::{Rng, RngExt as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sluicegate_core::{Rate, Span, Time};

/// How workloads are written, for people.
pub const HELP: &str = "\
steady 10/s                  evenly, one every 100 ms
burst 50/10s                 50 at once, every 10 s
poisson 20/s                 at random, 20 a second on average
on-off 50/s on=5s off=10s    evenly for 5 s, then silent for 10 s; default: the rate's period for both
ramp 100/s from=10/s         evenly, from 10 per second (default 0) up to 100 at the end
edge 12/60s spread=1s        against windows of 60 s: 12 right before every other edge and 12 right after it,
                             each within 1 s (default: a twentieth of the window)
Each takes for=10min (default: ten periods of the limits, or its own), after=30s, cost=3, key=NAME, keys=1000
and zipf=1.1: the rate is that of all keys together, and a few of them call far more often than the rest.";

/// The names of the workloads.
const NAMES: [&str; 6] = ["steady", "burst", "poisson", "on-off", "ramp", "edge"];
/// The most keys of a workload.
pub const KEYS_MAX: u32 = 10_000_000;
/// The steepest popularity.
const ZIPF_MAX: f64 = 10.0;
/// 2026-01-01T00:00:00Z, when workloads begin: an edge of seconds, minutes, hours and days.
pub const START: Time = Time::saturating_from_micros(1_767_225_600_000_000);

/// A workload; made by `"poisson 20/s keys=100".parse()`.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    shape: Shape,
    /// How long it lasts, if it says so.
    lasts: Option<Span>,
    /// How long after [`START`] it begins.
    after: Span,
    cost: u64,
    name: String,
    keys: u32,
    /// The exponent of the keys' popularity; `None` when all are alike.
    zipf: Option<f64>,
}

/// When calls come.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Shape {
    Steady(Rate),
    Burst(Rate),
    Poisson(Rate),
    OnOff { rate: Rate, on: Span, off: Span },
    Ramp { from: Option<Rate>, to: Rate },
    Edge { rate: Rate, spread: Span },
}

/// The calls of several workloads together, in the order of their times. A workload that does not
/// say how long lasts for ten of its own periods, and at least `lasts`. `tell` hears from time to
/// time how many more calls there are.
///
/// # Errors
/// When there are too many calls, or none.
pub fn generate(
    workloads: &[Workload],
    seed: u64,
    lasts: Span,
    reading: Reading,
    tell: impl FnMut(u64),
) -> Result<Traffic, TrafficError> {
    let mut collector = Collector::new(Clock::Since(START), reading);
    let mut progress = Progress::new(tell);
    for (number, workload) in (0..).zip(workloads) {
        // Each has random numbers of its own, so that another one behind it changes nothing.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..number).for_each(|_| random.long_jump());
        workload.generate(&mut collector, random, lasts, &mut progress)?;
    }
    if workloads.len() > 1 {
        collector.merge();
    }
    collector.finish("let it last longer with for=, or raise the rate")
}

impl Workload {
    /// Returns `true` if the seed makes a difference.
    pub fn is_random(&self) -> bool {
        self.keys > 1 || matches!(self.shape, Shape::Poisson(_))
    }

    fn generate(
        &self,
        collector: &mut Collector,
        random: Xoshiro256PlusPlus,
        lasts: Span,
        progress: &mut Progress<impl FnMut(u64)>,
    ) -> Result<(), TrafficError> {
        let begin = START.saturating_add(self.after);
        let lasts = self.lasts.unwrap_or_else(|| lasts.max(self.shape.usual_length()));
        collector.lasts(START, begin.saturating_add(lasts));
        // When and who are drawn apart, so that the times stay the same when the keys become more.
        let (mut when, mut who) = (random.clone(), random);
        who.jump();
        let mut callers = Callers::new(self);
        self.shape.times(begin, lasts, &mut when, &mut |offset| {
            let key = callers.next(collector, &mut who)?;
            progress.add(1);
            collector.push(Call { at: begin.saturating_add(Span::from_micros(offset)), key, cost: self.cost })
        })
    }
}

/// The index of a key that has not called: no traffic has this many keys.
const NOT_YET: u32 = u32::MAX;

/// Draws the keys.
struct Callers<'a> {
    workload: &'a Workload,
    popularity: Option<Popularity>,
    /// The place of the key of each rank, or [`NOT_YET`]: half as much to fetch from memory as an
    /// option each.
    places: Vec<u32>,
}

impl<'a> Callers<'a> {
    fn new(workload: &'a Workload) -> Callers<'a> {
        Callers {
            workload,
            popularity: workload.zipf.map(|exponent| Popularity::zipf(workload.keys, exponent)),
            places: vec![NOT_YET; workload.keys as usize],
        }
    }

    fn next(&mut self, collector: &mut Collector, random: &mut impl Rng) -> Result<u32, TrafficError> {
        let keys = self.workload.keys;
        let rank = match &self.popularity {
            _ if keys == 1 => 0,
            Some(popularity) => popularity.draw(random),
            None => random.random_range(0..keys) as usize,
        };
        let name = &self.workload.name;
        if let Some(place) = self.places.get(rank).filter(|place| **place != NOT_YET) {
            return Ok(*place);
        }
        let made = match keys {
            1 => collector.key(name.as_bytes())?,
            _ => collector.key(format!("{name}-{}", rank + 1).as_bytes())?,
        };
        if let Some(place) = self.places.get_mut(rank) {
            *place = made;
        }
        Ok(made)
    }
}
