//! The state of a key under one rule, whatever its algorithm.

use std::mem;

use crate::algorithm::Algorithm;
use crate::bucket::Bucket;
use crate::fixed_window::FixedWindow;
use crate::rule::Rule;
use crate::sliding_log::SlidingLog;
use crate::sliding_window::SlidingWindow;
use crate::smooth::Smooth;

/// The state of a key under one rule, and that rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitState {
    rule: Rule,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Bucket(Bucket),
    Fixed(FixedWindow),
    Log(SlidingLog),
    Sliding(SlidingWindow),
    Smooth(Smooth),
}

impl LimitState {
    /// Creates the state of a key that was never charged.
    pub(crate) fn new(rule: Rule) -> Self {
        Self { state: State::new(&rule), rule }
    }

    /// Returns `true` if the state is one under this rule.
    pub(crate) fn is_under(&self, rule: &Rule) -> bool {
        self.rule == *rule
    }

    /// Returns the state under a rule that replaces this one, as of a time. Absent if it starts
    /// fresh.
    pub(crate) fn converted(&self, rule: &Rule, at: i128) -> Option<Self> {
        if self.is_under(rule) {
            return Some(self.clone());
        }
        // Algorithms that decide alike are still different ones: their limits have other names.
        if mem::discriminant(&self.rule) != mem::discriminant(rule) {
            return None;
        }
        let state = match (&self.state, State::new(rule)) {
            (State::Bucket(old), State::Bucket(new)) => State::Bucket(old.converted(new, at)),
            (State::Fixed(old), State::Fixed(new)) => State::Fixed(old.converted(&new)?),
            (State::Log(old), State::Log(new)) => State::Log(old.converted(&new, at)),
            (State::Sliding(old), State::Sliding(new)) => State::Sliding(old.converted(&new)?),
            (State::Smooth(old), State::Smooth(new)) => State::Smooth(old.converted(new, at)),
            _ => return None,
        };
        Some(Self { rule: rule.clone(), state })
    }

    pub(crate) fn algorithm(&self) -> &dyn Algorithm {
        match &self.state {
            State::Bucket(algorithm) => algorithm,
            State::Fixed(algorithm) => algorithm,
            State::Log(algorithm) => algorithm,
            State::Sliding(algorithm) => algorithm,
            State::Smooth(algorithm) => algorithm,
        }
    }

    pub(crate) fn algorithm_mut(&mut self) -> &mut dyn Algorithm {
        match &mut self.state {
            State::Bucket(algorithm) => algorithm,
            State::Fixed(algorithm) => algorithm,
            State::Log(algorithm) => algorithm,
            State::Sliding(algorithm) => algorithm,
            State::Smooth(algorithm) => algorithm,
        }
    }
}

impl State {
    fn new(rule: &Rule) -> Self {
        match rule {
            Rule::Bucket { count, period, burst, initial } => {
                Self::Bucket(Bucket::new(*count, *period, *burst, *initial))
            }
            Rule::LeakyBucket { count, period, capacity } => {
                Self::Bucket(Bucket::new(*count, *period, *capacity, None))
            }
            Rule::MinInterval { interval } => Self::Bucket(Bucket::new(1, *interval, 1, None)),
            Rule::Pacer { count, period, queue } => Self::Bucket(Bucket::pacer(*count, *period, *queue)),
            Rule::FixedWindow { count, windows } => Self::Fixed(FixedWindow::new(*count, windows.clone())),
            Rule::SlidingLog { count, period, count_all } => {
                Self::Log(SlidingLog::new(*count, *period, *count_all))
            }
            Rule::SlidingWindow { count, period } => Self::Sliding(SlidingWindow::new(*count, *period)),
            Rule::Smooth(rule) => Self::Smooth(Smooth::new(rule)),
        }
    }
}
