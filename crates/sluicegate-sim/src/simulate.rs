//! What limits do to traffic: every call is decided by the core, and the outcome is measured.
//!
//! A [`Simulation`] looks at the traffic once; each [`run`](Simulation::run) then tries one limit,
//! or several that must all agree, on the same calls. An allowed call counts when it acts, which
//! for a pacer is after its delay.

mod by_key;
pub mod crowd;
pub mod focus;
mod run;
mod timeline;
mod worst;

pub use timeline::Timeline;
pub use worst::Worst;

use crate::progress::Progress;
use crate::traffic::{Call, Traffic};
use by_key::ByKey;
use crowd::KeyOutcome;
use focus::Focus;
use run::Run;
use sluicegate::Limit;
use sluicegate::LimitError;
use sluicegate_core::{Span, Time};

/// The most bars of a picture: fewer than pixels, and more than one looks at one by one.
const BARS_MAX: u64 = 120;

/// A traffic, and what all limits tried on it have in common.
#[derive(Debug)]
pub struct Simulation<'a> {
    traffic: &'a Traffic,
    by_key: ByKey,
    timeline: Timeline,
    /// The cost offered in each bar of the timeline.
    offered: Vec<u64>,
    /// What each key has offered.
    keys: Vec<Offered>,
    /// The key that is looked at closely.
    focus: u32,
    has_costs: bool,
}

/// What a key has offered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Offered {
    /// How many calls.
    pub calls: u64,
    /// And their cost.
    pub cost: u64,
}

impl Offered {
    fn by(calls: &[Call]) -> Offered {
        Offered { calls: calls.len() as u64, cost: calls.iter().map(|call| call.cost).sum() }
    }
}

/// What limits did to a traffic.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    /// How many calls were allowed.
    pub allowed: u64,
    /// How many were denied.
    pub denied: u64,
    /// How many of the denied cost more than the limit, so that no wait would help.
    pub never: u64,
    /// The cost that was allowed.
    pub allowed_cost: u64,
    /// The most calls of one key that were denied without one allowed in between.
    pub longest_denials: Longest<u64>,
    /// The longest `retry_after` or delay that a caller received.
    pub longest_wait: Longest<Span>,
    /// The most calls denied, of all keys together, in any stretch as long as the first limit's
    /// period.
    pub peak: Longest<u64>,
    /// When the last allowed call acted.
    pub last_act: Time,
    /// For each limit the most that one key was allowed in any stretch as long as the limit's
    /// period.
    pub worst: Vec<Worst>,
    /// The cost allowed in each bar of the timeline.
    pub allowed_bars: Vec<u64>,
    /// The calls denied in each bar of the timeline.
    pub denied_bars: Vec<u64>,
    /// How each key fared.
    pub keys: Vec<KeyOutcome>,
    /// The key that is looked at closely.
    pub focus: Focus,
}

/// The most of something, and where it was: of equals with the key that called first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Longest<T> {
    /// How much.
    pub most: T,
    /// Whose.
    pub key: u32,
    /// When it was reached.
    pub at: Time,
}

impl<T: Ord> Longest<T> {
    /// Keeps the larger one, of equals the one that was seen first.
    fn see(&mut self, most: T, key: u32, at: Time) {
        if most > self.most {
            *self = Longest { most, key, at };
        }
    }
}

impl<'a> Simulation<'a> {
    /// Simulates the traffic. `focus` is the key to record in detail; the default is the busiest.
    pub fn new(traffic: &'a Traffic, focus: Option<u32>) -> Simulation<'a> {
        let by_key = ByKey::new(traffic.calls(), traffic.keys());
        let keys: Vec<Offered> =
            (0..).zip(0..traffic.keys()).map(|(key, _)| Offered::by(by_key.of(key).0)).collect();
        let busiest = || {
            let most = (0..).zip(&keys).max_by_key(|&(place, key)| (key.cost, u32::MAX - place));
            most.map_or(0, |(place, _)| place)
        };
        let focus = focus.unwrap_or_else(busiest);
        let timeline = Timeline::round(traffic.clock(), traffic.first(), traffic.last(), BARS_MAX);
        let has_costs = traffic.calls().iter().any(|call| call.cost != 1);
        let offered = offered(traffic, timeline);
        Simulation { traffic, by_key, timeline, offered, keys, focus, has_costs }
    }

    /// Lets pictures go on after the traffic until `end`: calls may still be waiting for their
    /// turn.
    pub fn show_until(&mut self, end: Time) {
        let traffic = self.traffic;
        self.timeline = Timeline::round(traffic.clock(), traffic.first(), end.max(traffic.last()), BARS_MAX);
        self.offered = offered(traffic, self.timeline);
    }

    /// The traffic.
    pub fn traffic(&self) -> &'a Traffic {
        self.traffic
    }

    /// The bars of the pictures.
    pub fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// The cost offered in each bar of the timeline.
    pub fn offered(&self) -> &[u64] {
        &self.offered
    }

    /// What each key has offered.
    pub fn keys(&self) -> &[Offered] {
        &self.keys
    }

    /// Returns `true` if any call has a cost other than 1.
    pub fn has_costs(&self) -> bool {
        self.has_costs
    }

    /// The key that is looked at closely.
    pub fn focus(&self) -> u32 {
        self.focus
    }

    /// Tries limits that must all agree. `tell` hears from time to time how many more calls are
    /// decided.
    ///
    /// # Errors
    /// When there is no limit, or one that has no place in a list.
    pub fn run(&self, limits: &[Limit], tell: impl FnMut(u64)) -> Result<Outcome, LimitError> {
        let calls = self.traffic.calls();
        let began = calls.first().map_or(Time::EPOCH, |call| call.at);
        let made = Limit::all_made_at(limits, began)?;
        let mut run = Run::new(self, limits, &made);
        let mut focus = Focus::default();
        let mut progress = Progress::new(tell);
        for (key, _) in (0..).zip(&self.keys) {
            let acts = run.decide(key, self.by_key.of(key), &mut progress);
            if key == self.focus {
                focus = Focus::look(self, &made, limits, acts);
            }
        }
        progress.finish();
        Ok(Outcome { focus, ..run.finish(calls) })
    }

    /// The calls of the key that is looked at closely.
    fn focus_calls(&self) -> &[Call] {
        self.by_key.of(self.focus).0
    }
}

/// The cost offered in each bar.
fn offered(traffic: &Traffic, timeline: Timeline) -> Vec<u64> {
    let mut bars = vec![0; timeline.len()];
    for call in traffic.calls() {
        add(&mut bars, timeline.place(call.at), call.cost);
    }
    bars
}

/// Adds to a bar; what lies outside the timeline is not shown.
fn add(bars: &mut [u64], place: Option<usize>, amount: u64) {
    if let Some(bar) = place.and_then(|place| bars.get_mut(place)) {
        *bar += amount;
    }
}
