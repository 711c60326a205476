//! A queue of deadlines, and when the clock has to ring for the earliest.
//!
//! For owners of many deadlines under one lock: the queue of a bulkhead, the timers of a guard. One
//! alarm, for the earliest deadline, serves all, and a removed entry leaves nothing behind.

use sluicegate::internal::Alarms;
use sluicegate_core::Time;
use sluicegate_core::append_mostly_map::AppendMostlyMap;

/// Entries by deadline.
pub(crate) struct Deadlines<T> {
    by_time: AppendMostlyMap<(Time, u64), T>,
    alarms: Alarms,
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Deadlines { by_time: AppendMostlyMap::default(), alarms: Alarms::default() }
    }
}

impl<T> Deadlines<T> {
    /// Adds an entry. Returns the one it replaces.
    pub(crate) fn insert(&mut self, at: Time, number: u64, entry: T) -> Option<T> {
        self.by_time.insert((at, number), entry)
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, at: Time, number: u64) -> Option<T> {
        self.by_time.remove(&(at, number))
    }

    /// Removes and returns the first entry that is due.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(u64, T)> {
        if !self.is_due(now) {
            return None;
        }
        self.by_time.pop_first().map(|((_, number), entry)| (number, entry))
    }

    /// Returns `true` if an entry is due.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.by_time.first().is_some_and(|((at, _), _)| *at <= now)
    }

    /// Returns the time for which the caller must set an alarm now, if any. From then on it counts
    /// as set.
    pub(crate) fn next_alarm(&mut self) -> Option<Time> {
        self.alarms.arm(self.by_time.first().map(|((next, _), _)| *next))
    }

    /// The alarm for a time rang, or was lost.
    pub(crate) fn alarm_done(&mut self, at: Time) {
        self.alarms.disarm(at);
    }

    /// Removes and returns the entries that match.
    pub(crate) fn extract_if(&mut self, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let (taken, left): (Vec<_>, Vec<_>) = self.by_time.drain().partition(|(_, entry)| matches(entry));
        for (key, entry) in left {
            self.by_time.insert(key, entry);
        }
        taken.into_iter().map(|(_, entry)| entry).collect()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_time.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_micros(micros).unwrap()
    }

    #[test]
    fn one_alarm_is_set_for_the_earliest() {
        let mut deadlines = Deadlines::default();
        deadlines.insert(at(20), 1, "later");
        assert_eq!(deadlines.next_alarm(), Some(at(20)));
        assert_eq!(deadlines.next_alarm(), None);
        deadlines.insert(at(30), 2, "latest");
        assert_eq!(deadlines.next_alarm(), None);
        deadlines.insert(at(10), 3, "sooner");
        assert_eq!(deadlines.next_alarm(), Some(at(10)));
        assert_eq!(deadlines.pop(at(9)), None);
        assert_eq!(deadlines.pop(at(10)), Some((3, "sooner")));
        deadlines.alarm_done(at(10));
        // The alarm for 20 is still set.
        assert_eq!(deadlines.next_alarm(), None);
        assert_eq!(deadlines.remove(at(20), 1), Some("later"));
        assert_eq!(deadlines.next_alarm(), None);
        deadlines.alarm_done(at(20));
        assert_eq!(deadlines.next_alarm(), Some(at(30)));
        assert_eq!(deadlines.extract_if(|what| *what == "another"), Vec::<&str>::new());
        assert_eq!((deadlines.extract_if(|what| *what == "latest"), deadlines.len()), (vec!["latest"], 0));
    }
}
