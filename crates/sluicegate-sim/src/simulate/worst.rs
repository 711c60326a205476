//! The most that was allowed in any stretch of a given length.
//!
//! A stretch counts one of its two ends: it is `(t - length, t]`, so that what lies exactly one
//! length apart is not in the same stretch. Only stretches that end with a call need looking at, as
//! the count grows nowhere else.

use crate::traffic::Call;
use sluicegate_core::{Span, Time};
use std::collections::VecDeque;

/// The most that one key was allowed in any stretch.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Worst {
    /// How long the stretch is.
    pub length: Span,
    /// How much was allowed in it.
    pub count: u64,
    /// Whose it was.
    pub key: u32,
    /// When it ended.
    pub at: Time,
}

/// The largest cost in any stretch of acts that are in the order of their times, and when the first
/// such stretch ends.
pub(super) fn worst_window(acts: &[Call], length: Span) -> (u64, Time) {
    let mut worst = (0, Time::EPOCH);
    let mut oldest = acts.iter().peekable();
    let mut count = 0;
    for act in acts {
        count += act.cost;
        while let Some(left) = oldest.next_if(|old| act.at.since(old.at) >= length) {
            count -= left.cost;
        }
        if count > worst.0 {
            worst = (count, act.at);
        }
    }
    worst
}

impl Worst {
    /// Nothing yet, in stretches of that length.
    pub(super) fn of(length: Span) -> Worst {
        Worst { length, ..Worst::default() }
    }
}

/// Counts things as they come, those of the last stretch.
pub(super) struct Lately {
    length: Span,
    times: VecDeque<Time>,
}

impl Lately {
    pub(super) fn new(length: Span) -> Lately {
        Lately { length, times: VecDeque::new() }
    }

    /// How many have come lately, this one included, and when: one that comes late, as a clock
    /// stepped back, counts as if it came with the one before it.
    pub(super) fn count(&mut self, at: Time) -> (u64, Time) {
        let at = self.times.back().map_or(at, |last| at.max(*last));
        while self.times.front().is_some_and(|first| at.since(*first) >= self.length) {
            self.times.pop_front();
        }
        self.times.push_back(at);
        (self.times.len() as u64, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::saturating_from_micros(micros)
    }

    /// Every stretch there is, whether or not it ends with an act.
    #[test]
    fn no_stretch_holds_more_than_the_worst() {
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..300 {
            let many = random.usize(0..20);
            let mut acts: Vec<Call> = (0..many)
                .map(|_| Call { at: at(random.u64(0..60)), key: 0, cost: random.u64(0..4) })
                .collect();
            acts.sort_by_key(|act| act.at);
            let length = random.u64(1..30);
            let count = |begin: u64| -> u64 {
                let is_in = |act: &&Call| (begin..begin + length).contains(&act.at.as_micros());
                acts.iter().filter(is_in).map(|act| act.cost).sum()
            };
            let most = (0..60).map(count).max().unwrap_or(0);
            assert_eq!(worst_window(&acts, Span::from_micros(length)).0, most);
            let mut lately = Lately::new(Span::from_micros(length));
            let counted = acts.iter().map(|act| lately.count(act.at).0).max().unwrap_or(0);
            let calls = |begin: u64| {
                acts.iter().filter(|act| (begin..begin + length).contains(&act.at.as_micros())).count() as u64
            };
            assert_eq!(counted, (0..60).map(calls).max().unwrap_or(0));
        }
    }
}
