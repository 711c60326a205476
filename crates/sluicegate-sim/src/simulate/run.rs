//! Limits on their way through a traffic, key by key.

use super::crowd::KeyOutcome;
use super::worst::{Lately, worst_window};
use super::{Longest, Outcome, Simulation, Timeline, Worst, add};
use crate::progress::{Progress, REPORT_EACH};
use crate::traffic::Call;
use sluicegate::Limit;
use sluicegate_core::all_of::check_list;
use sluicegate_core::{AnyLimit, AnyState, RetryAfter, Span, Time};

/// What is measured on the way.
pub(super) struct Run<'a> {
    limits: &'a [Limit],
    made: &'a [AnyLimit],
    timeline: Timeline,
    outcome: Outcome,
    /// What the key at hand was allowed, at the time when it acts.
    acts: Vec<Call>,
    /// A state for each limit, of the key at hand.
    states: Vec<AnyState>,
    /// Whether each call was denied, a bit each in the order in which they came.
    denied: Vec<u64>,
}

impl<'a> Run<'a> {
    pub(super) fn new(simulation: &Simulation<'_>, limits: &'a [Limit], made: &'a [AnyLimit]) -> Run<'a> {
        let timeline = simulation.timeline();
        Run {
            limits,
            made,
            timeline,
            outcome: Outcome {
                worst: limits.iter().map(|limit| Worst::of(limit.period())).collect(),
                allowed_bars: vec![0; timeline.len()],
                denied_bars: vec![0; timeline.len()],
                keys: Vec::with_capacity(simulation.keys().len()),
                ..Outcome::default()
            },
            acts: Vec::new(),
            states: Vec::new(),
            denied: vec![0; simulation.traffic().calls().len().div_ceil(64)],
        }
    }

    /// Decides the calls of the next key, each of which came at that place, and hands out what
    /// acts, in the order of time.
    pub(super) fn decide(
        &mut self,
        key: u32,
        (calls, came): (&[Call], &[u32]),
        progress: &mut Progress<impl FnMut(u64)>,
    ) -> &[Call] {
        self.acts.clear();
        self.states.clear();
        self.states.resize(self.made.len(), AnyState::default());
        let mut fared = KeyOutcome::default();
        for (calls, came) in calls.chunks(REPORT_EACH).zip(came.chunks(REPORT_EACH)) {
            for (call, came) in calls.iter().zip(came) {
                self.decide_one(call, *came, &mut fared);
            }
            progress.add(calls.len());
        }
        self.outcome.keys.push(fared);
        // They are not in order if the clock stepped back.
        if !self.acts.is_sorted_by_key(|act| act.at) {
            self.acts.sort_by_key(|act| act.at);
        }
        if let Some(last) = self.acts.last() {
            self.outcome.last_act = self.outcome.last_act.max(last.at);
        }
        for worst in &mut self.outcome.worst {
            let (count, at) = worst_window(&self.acts, worst.length);
            if count > worst.count {
                *worst = Worst { count, key, at, ..*worst };
            }
        }
        &self.acts
    }

    fn decide_one(&mut self, call: &Call, came: u32, key: &mut KeyOutcome) {
        let outcome = &mut self.outcome;
        let decision = check_list(self.made, &mut self.states, call.at, call.cost);
        if decision.allowed() {
            let acts_at = call.at.saturating_add(decision.delay());
            outcome.allowed += 1;
            outcome.allowed_cost += call.cost;
            outcome.longest_wait.see(decision.delay(), call.key, call.at);
            key.allow(call.cost);
            self.acts.push(Call { at: acts_at, ..*call });
            add(&mut outcome.allowed_bars, self.timeline.place(acts_at), call.cost);
        } else {
            outcome.denied += 1;
            match decision.retry_after() {
                Some(RetryAfter::After(wait)) => outcome.longest_wait.see(wait, call.key, call.at),
                _ => outcome.never += 1,
            }
            let denials = key.deny(call.at);
            outcome.longest_denials.see(u64::from(denials), call.key, call.at);
            add(&mut outcome.denied_bars, self.timeline.place(call.at), 1);
            if let Some(bits) = self.denied.get_mut(came as usize / 64) {
                *bits |= 1 << (came % 64);
            }
        }
    }

    /// The outcome, when all keys are through. `calls` are as they came.
    pub(super) fn finish(mut self, calls: &[Call]) -> Outcome {
        self.outcome.peak = self.peak(calls);
        self.outcome
    }

    /// The most denials of all keys together in a period of the first limit.
    fn peak(&self, calls: &[Call]) -> Longest<u64> {
        let mut lately = Lately::new(self.limits.first().map_or(Span::ZERO, Limit::period));
        let mut peak = Longest { most: 0, key: 0, at: Time::EPOCH };
        for (bits, some) in self.denied.iter().zip(calls.chunks(64)) {
            for (place, call) in some.iter().enumerate() {
                if bits >> place & 1 == 1 {
                    let (count, at) = lately.count(call.at);
                    peak.see(count, call.key, at);
                }
            }
        }
        peak
    }
}
