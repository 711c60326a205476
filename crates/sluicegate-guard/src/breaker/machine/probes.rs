//! The probes of one half-open phase: which are in flight, how the others ended, and what follows.

use super::config::BreakerConfig;
use super::rolling::Counts;
use sluicegate_core::Time;

/// A probe in flight.
#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u64,
    since: Time,
}

/// The state that the probes lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transition {
    Close,
    /// Opens again, as of this time.
    Open(Time),
}

#[derive(Clone, Default, Debug)]
pub(super) struct Probes {
    /// In order of admission, and so of their times.
    in_flight: Vec<Probe>,
    ended: Counts,
}

impl Probes {
    /// Starts a new phase.
    pub(super) fn clear(&mut self) {
        self.in_flight.clear();
        self.ended = Counts::default();
    }

    /// Returns the outcomes so far.
    pub(super) fn ended(&self) -> Counts {
        self.ended
    }

    /// Returns the number of probes in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns `true` if this probe is in flight.
    pub(super) fn is_in_flight(&self, number: u64) -> bool {
        self.in_flight.iter().any(|in_flight| in_flight.number == number)
    }

    /// Returns `true` if a probe in flight has not expired.
    pub(super) fn any_live(&self, config: &BreakerConfig, now: Time) -> bool {
        self.in_flight.last().is_some_and(|last| last.since.saturating_add(config.probe_ttl()) > now)
    }

    /// Returns `true` if another probe may be admitted.
    pub(super) fn has_capacity(&self, config: &BreakerConfig) -> bool {
        let in_flight = u64::try_from(self.in_flight.len()).unwrap_or(u64::MAX);
        in_flight.saturating_add(self.ended.total) < u64::from(config.probes())
    }

    /// Admits another probe if there is capacity.
    pub(super) fn admit(&mut self, config: &BreakerConfig, number: u64, now: Time) -> bool {
        let has_capacity = self.has_capacity(config);
        if has_capacity {
            self.in_flight.push(Probe { number, since: now });
        }
        has_capacity
    }

    /// Ends a probe in flight. With `None` it counts nothing, and its slot is free again.
    pub(super) fn end(
        &mut self,
        config: &BreakerConfig,
        number: u64,
        counted: Option<(bool, bool)>,
        now: Time,
    ) -> Option<Transition> {
        let index = self.in_flight.iter().position(|in_flight| in_flight.number == number)?;
        self.in_flight.remove(index);
        let (failed, slow) = counted?;
        self.count(config, failed, slow, now)
    }

    /// Fails overdue probes in order, each at the time it expired.
    pub(super) fn expire(&mut self, config: &BreakerConfig, now: Time) -> Option<Transition> {
        // The clock stepped back: a probe admitted in the future was admitted now.
        for in_flight in self.in_flight.iter_mut().rev().take_while(|in_flight| in_flight.since > now) {
            in_flight.since = now;
        }
        while let Some(until) = self.first_expiry(config).filter(|until| *until <= now) {
            self.in_flight.remove(0);
            let transition = self.count(config, true, false, until);
            if transition.is_some() {
                return transition;
            }
        }
        None
    }

    /// Returns what follows, and when, if no probe in flight ends in time.
    pub(super) fn if_all_expire(&self, config: &BreakerConfig, now: Time) -> (Option<Transition>, Time) {
        let mut last = now;
        let mut probes = Probes { in_flight: Vec::new(), ended: self.ended };
        for in_flight in &self.in_flight {
            last = in_flight.since.saturating_add(config.probe_ttl());
            let transition = probes.count(config, true, false, last);
            if transition.is_some() {
                return (transition, last);
            }
        }
        (None, last)
    }

    fn first_expiry(&self, config: &BreakerConfig) -> Option<Time> {
        self.in_flight.first().map(|in_flight| in_flight.since.saturating_add(config.probe_ttl()))
    }

    fn count(&mut self, config: &BreakerConfig, failed: bool, slow: bool, at: Time) -> Option<Transition> {
        self.ended.total += 1;
        self.ended.failed += u64::from(failed);
        self.ended.slow += u64::from(slow);
        let Counts { total, failed, slow } = self.ended;
        let probes = u64::from(config.probes());
        // At worst, all remaining probes fail and are slow; at best, none. If both lead to the same
        // state, it is decided.
        let to_come = probes.saturating_sub(total);
        let best = Counts { total: probes, failed, slow };
        let worst = Counts { total: probes, failed: failed + to_come, slow: slow + to_come };
        if config.too_many(&best) {
            Some(Transition::Open(at))
        } else if !config.too_many(&worst) {
            Some(Transition::Close)
        } else {
            None
        }
    }
}
