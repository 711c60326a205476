//! The probes of one half-open phase: who is out, how the others ended, and what that comes to.

use super::config::BreakerConfig;
use super::rolling::Counts;
use sluicegate_core::Time;

/// A probe that has been let through and not ended.
#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u64,
    since: Time,
}

/// What the probes come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transition {
    Close,
    /// It has failed, at this time.
    Open(Time),
}

#[derive(Clone, Default, Debug)]
pub(super) struct Probes {
    /// In the order in which they were let through, which is that of their times.
    in_flight: Vec<Probe>,
    ended: Counts,
}

impl Probes {
    /// A new phase.
    pub(super) fn clear(&mut self) {
        self.in_flight.clear();
        self.ended = Counts::default();
    }

    /// How those that have ended did.
    pub(super) fn ended(&self) -> Counts {
        self.ended
    }

    /// How many are out.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether this one is out.
    pub(super) fn is_in_flight(&self, number: u64) -> bool {
        self.in_flight.iter().any(|in_flight| in_flight.number == number)
    }

    /// Whether one is out that may still end in time.
    pub(super) fn any_live(&self, config: &BreakerConfig, now: Time) -> bool {
        self.in_flight.last().is_some_and(|last| last.since.saturating_add(config.probe_ttl()) > now)
    }

    /// Whether one more may be let through.
    pub(super) fn has_capacity(&self, config: &BreakerConfig) -> bool {
        let in_flight = u64::try_from(self.in_flight.len()).unwrap_or(u64::MAX);
        in_flight.saturating_add(self.ended.total) < u64::from(config.probes())
    }

    /// Lets one more through if there is a place.
    pub(super) fn admit(&mut self, config: &BreakerConfig, number: u64, now: Time) -> bool {
        let has_capacity = self.has_capacity(config);
        if has_capacity {
            self.in_flight.push(Probe { number, since: now });
        }
        has_capacity
    }

    /// One that is out has ended; with `None` it counts nothing, and its place is free.
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

    /// Those that should have ended by now have failed, one after another, each at its time.
    pub(super) fn expire(&mut self, config: &BreakerConfig, now: Time) -> Option<Transition> {
        // The clock stepped back: who was let through in the future was let through now.
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

    /// If nothing more is heard of those that are out: what that comes to, and when.
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
        // At the worst all that are to come fail and are slow; at the best none. If both come to the same, it is decided.
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
