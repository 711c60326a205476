//! What limits do to traffic: every call is decided by the core, and the outcome is measured.
//!
//! A [`Simulation`] looks at the traffic once; each [`run`](Simulation::run) then tries one limit, or several that must
//! all agree, on the same calls. An allowed call counts when it acts, which for a pacer is after its delay.

pub mod crowd;
pub mod focus;
mod timeline;
mod worst;

pub use timeline::Timeline;
pub use worst::Worst;

use crate::traffic::{Call, Traffic};
use crowd::KeyOutcome;
use focus::Focus;
use sluicegate::core::several::check_list;
use sluicegate::core::{AnyLimit, AnyState, RetryAfter, Span, Time};
use sluicegate::{Limit, ListError};
use smallvec::SmallVec;
use worst::{Acts, Lately};

/// The most bars of a picture: fewer than pixels, and more than one looks at one by one.
const BARS_MAX: u64 = 120;
/// Progress is told each time so many calls are decided.
const TELL_EACH: usize = 1 << 16;

/// A traffic, and what all limits tried on it have in common.
#[derive(Debug)]
pub struct Simulation<'a> {
    traffic: &'a Traffic,
    timeline: Timeline,
    /// The cost offered in each bar of the timeline.
    offered: Vec<u64>,
    /// What each key has offered.
    keys: Vec<Offered>,
    /// The key that is looked at closely.
    focus: u32,
}

/// What a key has offered.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Offered {
    /// How many calls.
    pub calls: u64,
    /// And their cost.
    pub cost: u64,
}

/// What limits did to a traffic.
#[derive(Clone, Debug)]
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
    /// The longest wait that a caller was told, before trying again or before acting.
    pub longest_wait: Longest<Span>,
    /// The most calls denied, of all keys together, in any stretch as long as the first limit's period.
    pub peak: Longest<u64>,
    /// When the last allowed call acted.
    pub last_act: Time,
    /// For each limit the most that one key was allowed in any stretch as long as the limit's period.
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

/// The most of something, and where it was.
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
    /// Keeps the larger one, the first of equals.
    fn see(&mut self, most: T, key: u32, at: Time) {
        if most > self.most {
            *self = Longest { most, key, at };
        }
    }
}

impl<'a> Simulation<'a> {
    /// Looks at the traffic. `focus` is the key to look at closely, the one that offers most unless said.
    pub fn new(traffic: &'a Traffic, focus: Option<u32>) -> Simulation<'a> {
        Simulation::lasting_until(traffic, focus, traffic.last())
    }

    /// The same, for pictures that go on after the traffic until `end`: calls may still be waiting for their turn.
    pub fn lasting_until(traffic: &'a Traffic, focus: Option<u32>, end: Time) -> Simulation<'a> {
        let end = end.max(traffic.last());
        let timeline = Timeline::round(traffic.clock(), traffic.first(), end, BARS_MAX);
        let mut offered = vec![0; timeline.len()];
        let mut keys = vec![Offered::default(); traffic.keys()];
        for call in traffic.calls() {
            add(&mut offered, timeline.place(call.at), u64::from(call.cost));
            if let Some(key) = keys.get_mut(call.key as usize) {
                key.calls += 1;
                key.cost += u64::from(call.cost);
            }
        }
        let busiest = || {
            let most = (0..).zip(&keys).max_by_key(|&(place, key)| (key.cost, u32::MAX - place));
            most.map_or(0, |(place, _)| place)
        };
        let focus = focus.unwrap_or_else(busiest);
        Simulation { traffic, timeline, offered, keys, focus }
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

    /// Whether any call costs something else than 1.
    pub fn has_costs(&self) -> bool {
        self.keys.iter().any(|key| key.cost != key.calls)
            || self.traffic.calls().iter().any(|call| call.cost != 1)
    }

    /// The key that is looked at closely.
    pub fn focus(&self) -> u32 {
        self.focus
    }

    /// Tries limits that must all agree. `tell` hears from time to time how many more calls are decided.
    ///
    /// # Errors
    /// When there is no limit, or one that has no place in a list.
    pub fn run(&self, limits: &[Limit], mut tell: impl FnMut(u64)) -> Result<Outcome, ListError> {
        ListError::check(limits)?;
        let calls = self.traffic.calls();
        let began = calls.first().map_or(Time::EPOCH, |call| call.at);
        let none = || limits.iter().map(|_| AnyState::default()).collect();
        let mut run = Run {
            made: limits.iter().map(|limit| limit.made_at(began)).collect(),
            keys: (0..self.keys.len())
                .map(|_| Key { states: none(), fared: KeyOutcome::default() })
                .collect(),
            acts: Vec::with_capacity(calls.len()),
            denials: Lately::new(limits.first().map_or(Span::ZERO, Limit::period)),
            timeline: self.timeline,
            outcome: Outcome {
                allowed: 0,
                denied: 0,
                never: 0,
                allowed_cost: 0,
                longest_denials: Longest::default(),
                longest_wait: Longest::default(),
                peak: Longest::default(),
                last_act: Time::EPOCH,
                worst: Vec::new(),
                allowed_bars: vec![0; self.timeline.len()],
                denied_bars: vec![0; self.timeline.len()],
                keys: Vec::new(),
                focus: Focus::default(),
            },
        };
        for some in calls.chunks(TELL_EACH) {
            for call in some {
                run.decide(call);
            }
            tell(some.len() as u64);
        }
        let Run { mut outcome, acts, made, keys, .. } = run;
        outcome.keys = keys.into_iter().map(|key| key.fared).collect();
        let acts = Acts::group(acts, self.keys.len());
        outcome.worst = limits.iter().map(|limit| acts.worst(limit.period())).collect();
        outcome.focus = Focus::look(self, &made, limits, acts.of(self.focus));
        Ok(outcome)
    }
}

/// A traffic on its way through limits.
struct Run {
    made: Vec<AnyLimit>,
    keys: Vec<Key>,
    /// What was allowed, as it came, at the time when it acts.
    acts: Vec<Call>,
    /// The denials of the last period.
    denials: Lately,
    timeline: Timeline,
    outcome: Outcome,
}

/// All that a decision needs of a key in one place: with many keys, each place is a wait for memory.
struct Key {
    /// A state for each limit.
    states: SmallVec<[AnyState; 1]>,
    fared: KeyOutcome,
}

impl Run {
    fn decide(&mut self, call: &Call) {
        let outcome = &mut self.outcome;
        let Some(key) = self.keys.get_mut(call.key as usize) else { return };
        let decision = check_list(&self.made, &mut key.states, call.at, call.cost);
        if decision.allowed() {
            let acts_at = call.at.after(decision.delay());
            outcome.allowed += 1;
            outcome.last_act = outcome.last_act.max(acts_at);
            outcome.allowed_cost += u64::from(call.cost);
            outcome.longest_wait.see(decision.delay(), call.key, call.at);
            key.fared.allow(call.cost);
            self.acts.push(Call { at: acts_at, ..*call });
            add(&mut outcome.allowed_bars, self.timeline.place(acts_at), u64::from(call.cost));
        } else {
            outcome.denied += 1;
            match decision.retry_after() {
                Some(RetryAfter::After(wait)) => outcome.longest_wait.see(wait, call.key, call.at),
                _ => outcome.never += 1,
            }
            let denials = key.fared.deny(call.at);
            outcome.longest_denials.see(u64::from(denials), call.key, call.at);
            let at_once = self.denials.count(call.at);
            outcome.peak.see(at_once, call.key, call.at);
            add(&mut outcome.denied_bars, self.timeline.place(call.at), 1);
        }
    }
}

/// Adds to a bar; what lies outside the timeline is not shown.
fn add(bars: &mut [u64], place: Option<usize>, amount: u64) {
    if let Some(bar) = place.and_then(|place| bars.get_mut(place)) {
        *bar += amount;
    }
}
