//! The most that was allowed in any stretch of a given length.
//!
//! A stretch counts one of its two ends: it is `(t - length, t]`, so that what lies exactly one length apart is not in
//! the same stretch. Only stretches that end with a call need looking at, as the count grows nowhere else.

use sluicegate::core::{Span, Time};

/// An allowed call that acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Act {
    /// When.
    pub at: Time,
    /// How much.
    pub cost: u32,
}

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

/// The largest cost in any stretch of acts that are in the order of their times, and when the first such stretch ends.
pub fn worst_window(acts: &[Act], length: Span) -> (u64, Time) {
    let mut worst = (0, Time::EPOCH);
    let mut oldest = acts.iter().peekable();
    let mut count = 0;
    for act in acts {
        count += u64::from(act.cost);
        while let Some(left) = oldest.next_if(|old| act.at.since(old.at) >= length) {
            count -= u64::from(left.cost);
        }
        if count > worst.0 {
            worst = (count, act.at);
        }
    }
    worst
}

/// What each key did, key after key in one piece of memory.
pub(super) struct Acts {
    all: Vec<Act>,
    /// Where each key's acts end; they begin where those of the key before end.
    ends: Vec<usize>,
}

impl Acts {
    /// Takes acts as they came, each with the place of its key, below `keys`.
    ///
    /// Sorted by counting, in a loop of its own: it writes all over the memory, and would slow down the decisions.
    pub(super) fn group(came: &[(u32, Act)], keys: usize) -> Acts {
        let mut ends = vec![0; keys];
        for (key, _) in came {
            if let Some(count) = ends.get_mut(*key as usize) {
                *count += 1;
            }
        }
        let mut begin = 0;
        for place in &mut ends {
            begin += std::mem::replace(place, begin);
        }
        let mut all = vec![Act { at: Time::EPOCH, cost: 0 }; came.len()];
        for (key, act) in came {
            let Some(place) = ends.get_mut(*key as usize) else { continue };
            if let Some(free) = all.get_mut(*place) {
                *free = *act;
                *place += 1;
            }
        }
        let mut acts = Acts { all, ends };
        acts.sort();
        acts
    }

    /// Puts each key's acts in the order of their times, which they are not if a clock stepped back.
    fn sort(&mut self) {
        for key in 0..self.ends.len() {
            let place = self.place(key);
            let acts = self.all.get_mut(place).unwrap_or_default();
            if !acts.is_sorted_by_key(|act| act.at) {
                acts.sort_by_key(|act| act.at);
            }
        }
    }

    fn place(&self, key: usize) -> std::ops::Range<usize> {
        let end_of = |key: usize| self.ends.get(key).copied().unwrap_or_default();
        key.checked_sub(1).map_or(0, end_of)..end_of(key)
    }

    /// The acts of one key.
    pub(super) fn of(&self, key: u32) -> &[Act] {
        self.all.get(self.place(key as usize)).unwrap_or_default()
    }

    /// The worst of all keys, the first of equals.
    pub(super) fn worst(&self, length: Span) -> Worst {
        let mut worst = Worst { length, ..Worst::default() };
        for (key, _) in (0..).zip(&self.ends) {
            let (count, at) = worst_window(self.of(key), length);
            if count > worst.count {
                worst = Worst { length, count, key, at };
            }
        }
        worst
    }
}
