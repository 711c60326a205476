//! The probes of one half-open phase: who is out, how the others ended, and what that comes to.

use super::rolling::Counts;
use super::rules::BreakerRules;
use sluicegate_core::Time;

/// A probe that has been let through and not ended.
#[derive(Clone, Copy, Debug)]
struct Out {
    number: u64,
    since: Time,
}

/// What the probes come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Close,
    /// It has failed, at this time.
    Open(Time),
}

#[derive(Clone, Default, Debug)]
pub(super) struct Probes {
    /// In the order in which they were let through, which is that of their times.
    out: Vec<Out>,
    ended: Counts,
}

impl Probes {
    /// A new phase.
    pub(super) fn clear(&mut self) {
        self.out.clear();
        self.ended = Counts::default();
    }

    /// How those that have ended did.
    pub(super) fn ended(&self) -> Counts {
        self.ended
    }

    /// How many are out.
    pub(super) fn out(&self) -> usize {
        self.out.len()
    }

    /// Whether this one is out.
    pub(super) fn is_out(&self, number: u64) -> bool {
        self.out.iter().any(|out| out.number == number)
    }

    /// Whether one is out that may still end in time.
    pub(super) fn any_live(&self, rules: &BreakerRules, now: Time) -> bool {
        self.out.last().is_some_and(|last| last.since.saturating_add(rules.probe_ttl()) > now)
    }

    /// Whether one more may be let through.
    pub(super) fn has_place(&self, rules: &BreakerRules) -> bool {
        let out = u64::try_from(self.out.len()).unwrap_or(u64::MAX);
        out.saturating_add(self.ended.total) < u64::from(rules.probes())
    }

    /// Lets one more through if there is a place.
    pub(super) fn let_through(&mut self, rules: &BreakerRules, number: u64, now: Time) -> bool {
        let has_place = self.has_place(rules);
        if has_place {
            self.out.push(Out { number, since: now });
        }
        has_place
    }

    /// One that is out has ended; with `None` it counts nothing, and its place is free.
    pub(super) fn end(
        &mut self,
        rules: &BreakerRules,
        number: u64,
        how: Option<(bool, bool)>,
        now: Time,
    ) -> Option<Verdict> {
        let place = self.out.iter().position(|out| out.number == number)?;
        self.out.remove(place);
        let (failed, slow) = how?;
        self.count(rules, failed, slow, now)
    }

    /// Those that should have ended by now have failed, one after another, each at its time.
    pub(super) fn expire(&mut self, rules: &BreakerRules, now: Time) -> Option<Verdict> {
        // The clock stepped back: who was let through in the future was let through now.
        for out in self.out.iter_mut().rev().take_while(|out| out.since > now) {
            out.since = now;
        }
        while let Some(until) = self.first_lapses(rules).filter(|until| *until <= now) {
            self.out.remove(0);
            let verdict = self.count(rules, true, false, until);
            if verdict.is_some() {
                return verdict;
            }
        }
        None
    }

    /// If nothing more is heard of those that are out: what that comes to, and when.
    pub(super) fn if_all_expire(&self, rules: &BreakerRules, now: Time) -> (Option<Verdict>, Time) {
        let mut last = now;
        let mut probes = Probes { out: Vec::new(), ended: self.ended };
        for out in &self.out {
            last = out.since.saturating_add(rules.probe_ttl());
            let verdict = probes.count(rules, true, false, last);
            if verdict.is_some() {
                return (verdict, last);
            }
        }
        (None, last)
    }

    fn first_lapses(&self, rules: &BreakerRules) -> Option<Time> {
        self.out.first().map(|out| out.since.saturating_add(rules.probe_ttl()))
    }

    fn count(&mut self, rules: &BreakerRules, failed: bool, slow: bool, at: Time) -> Option<Verdict> {
        self.ended.total += 1;
        self.ended.failed += u64::from(failed);
        self.ended.slow += u64::from(slow);
        let Counts { total, failed, slow } = self.ended;
        let probes = u64::from(rules.probes());
        // At the worst all that are to come fail and are slow; at the best none. If both come to the same, it is decided.
        let to_come = probes.saturating_sub(total);
        let best = Counts { total: probes, failed, slow };
        let worst = Counts { total: probes, failed: failed + to_come, slow: slow + to_come };
        if rules.too_many(&best) {
            Some(Verdict::Open(at))
        } else if !rules.too_many(&worst) {
            Some(Verdict::Close)
        } else {
            None
        }
    }
}
