//! What is to happen at which time, and when the clock has to ring for it.
//!
//! For whoever keeps several moments under one lock: the queue of a bulkhead, the calls of a guard that may run out of time. One alarm
//! does for all of them, that of the soonest, and what is taken out again leaves nothing behind.

use sluicegate::internal::Alarms;
use sluicegate_core::Time;
use sluicegate_core::append_mostly_map::AppendMostlyMap;

/// Things by their times. `T` is what is known of each.
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
    /// Something of this number is to happen then. What was known of it before.
    pub(crate) fn insert(&mut self, at: Time, number: u64, what: T) -> Option<T> {
        self.by_time.insert((at, number), what)
    }

    /// It is not to happen any more.
    pub(crate) fn remove(&mut self, at: Time, number: u64) -> Option<T> {
        self.by_time.remove(&(at, number))
    }

    /// The first thing whose time has come, which is then no longer there.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(u64, T)> {
        if !self.is_due(now) {
            return None;
        }
        self.by_time.pop_first().map(|((_, number), what)| (number, what))
    }

    /// Whether the time of something has come.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.by_time.first().is_some_and(|((at, _), _)| *at <= now)
    }

    /// The time for which the caller has to set an alarm now, if there is one; from then on it is taken to be set.
    pub(crate) fn next_alarm(&mut self) -> Option<Time> {
        self.alarms.arm(self.by_time.first().map(|((next, _), _)| *next))
    }

    /// The alarm for a time has rung, or is lost.
    pub(crate) fn alarm_done(&mut self, at: Time) {
        self.alarms.disarm(at);
    }

    /// Those of which this is so, which are then no longer there.
    pub(crate) fn extract_if(&mut self, is_taken: impl Fn(&T) -> bool) -> Vec<T> {
        let (taken, left): (Vec<_>, Vec<_>) = self.by_time.drain().partition(|(_, what)| is_taken(what));
        for (key, what) in left {
            self.by_time.insert(key, what);
        }
        taken.into_iter().map(|(_, what)| what).collect()
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
    fn one_alarm_is_set_for_the_soonest() {
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
        // That of 20 is still set.
        assert_eq!(deadlines.next_alarm(), None);
        assert_eq!(deadlines.remove(at(20), 1), Some("later"));
        assert_eq!(deadlines.next_alarm(), None);
        deadlines.alarm_done(at(20));
        assert_eq!(deadlines.next_alarm(), Some(at(30)));
        assert_eq!(deadlines.extract_if(|what| *what == "another"), Vec::<&str>::new());
        assert_eq!((deadlines.extract_if(|what| *what == "latest"), deadlines.len()), (vec!["latest"], 0));
    }
}
