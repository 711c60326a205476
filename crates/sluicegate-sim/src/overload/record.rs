//! What becomes of calls, counted.

use crate::simulate::Timeline;
use sluicegate_core::{Span, Time};

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With a good answer in time.
    Good,
    /// It was not let through.
    Denied,
    /// With an error.
    Failed,
    /// The caller gave up.
    TimedOut,
}

/// What became of all calls.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The totals over the whole time.
    pub totals: Totals,
    /// The outcome over time, in the bins of its timeline.
    pub bins: Vec<Bin>,
}

/// The totals over the whole time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Calls that were made; however often each was tried.
    pub offered: u64,
    /// Calls that had a good answer in time.
    pub good: u64,
    /// Calls that were turned away at once.
    pub denied: u64,
    /// Calls that ended with an error.
    pub failed: u64,
    /// Calls whose caller gave up.
    pub timed_out: u64,
    /// Tries, the first of each call included.
    pub tries: u64,
    /// How long workers worked.
    pub worked: Span,
    /// How much of that was for callers who had given up.
    pub wasted: Span,
    /// Half of the callers knew how their call had ended within this.
    pub p50: Span,
    /// All but one in a hundred did.
    pub p99: Span,
    /// The least and the most of the limit, if there was one.
    pub limit: Option<(u32, u32)>,
}

/// What became of the calls that were made in one piece of time, and how things were.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bin {
    /// Calls that were made.
    pub offered: u64,
    /// Of these, had a good answer in time.
    pub good: u64,
    /// Of these, were turned away.
    pub denied: u64,
    /// Of these, ended with an error.
    pub failed: u64,
    /// Of these, were given up.
    pub timed_out: u64,
    /// Half of these callers knew how it had ended within this.
    pub p50: Span,
    /// All but one in a hundred did.
    pub p99: Span,
    /// The most calls that the dependency had at once, running or queued, including those that
    /// their callers had given up.
    pub at_work: u32,
    /// The limit at the end, if there was one.
    pub limit: Option<u32>,
    /// Whether a breaker was open at the end, or let only probes through.
    pub is_open: bool,
}

/// Counts results as they happen, in the simulation or around a real service.
#[derive(Debug)]
pub struct Record {
    timeline: Timeline,
    totals: Totals,
    bins: Vec<Bin>,
    /// How long callers waited, by the piece in which they called; behind them, those who called in
    /// none.
    waits: Vec<Vec<Span>>,
    /// Pieces up to here have ended.
    ended: usize,
}

impl Record {
    /// Nothing has happened yet.
    pub fn new(timeline: Timeline) -> Record {
        let len = timeline.len();
        Record {
            timeline,
            totals: Totals::default(),
            bins: vec![Bin::default(); len],
            waits: vec![Vec::new(); len + 1],
            ended: 0,
        }
    }

    /// Counts a try.
    pub fn tries(&mut self) {
        self.totals.tries += 1;
    }

    /// Adds time that a worker spent, for a caller that waits or for one that has given up.
    pub fn worked(&mut self, long: Span, is_wasted: bool) {
        self.totals.worked = self.totals.worked.saturating_add(long);
        if is_wasted {
            self.totals.wasted = self.totals.wasted.saturating_add(long);
        }
    }

    /// A call that was made then has ended now.
    pub fn ended(&mut self, made: Time, now: Time, end: End) {
        let totals = &mut self.totals;
        let mut nowhere = Bin::default();
        let place = self.timeline.place(made).unwrap_or(self.bins.len());
        let bin = self.bins.get_mut(place).unwrap_or(&mut nowhere);
        let (all, one) = match end {
            End::Good => (&mut totals.good, &mut bin.good),
            End::Denied => (&mut totals.denied, &mut bin.denied),
            End::Failed => (&mut totals.failed, &mut bin.failed),
            End::TimedOut => (&mut totals.timed_out, &mut bin.timed_out),
        };
        *all += 1;
        *one += 1;
        totals.offered += 1;
        bin.offered += 1;
        if let Some(waits) = self.waits.get_mut(place) {
            waits.push(now.since(made));
        }
    }

    /// Records how many calls the dependency has.
    pub fn at_work(&mut self, now: Time, many: usize) {
        if let Some(bin) = self.timeline.place(now).and_then(|place| self.bins.get_mut(place)) {
            bin.at_work = bin.at_work.max(u32::try_from(many).unwrap_or(u32::MAX));
        }
    }

    /// How things are before whatever comes next, which is at this time.
    pub fn up_to(&mut self, now: Time, at_work: usize, look: impl Fn() -> (Option<u32>, bool)) {
        while self.ended < self.bins.len() && self.timeline.begin_of(self.ended + 1) <= now {
            let (limit, is_open) = look();
            self.at_work(self.timeline.begin_of(self.ended), at_work);
            if let Some(bin) = self.bins.get_mut(self.ended) {
                (bin.limit, bin.is_open) = (limit, is_open);
            }
            self.ended += 1;
        }
        if let (Some(limit), _) = look() {
            let (least, most) = self.totals.limit.unwrap_or((limit, limit));
            self.totals.limit = Some((least.min(limit), most.max(limit)));
        }
    }

    /// All of it.
    pub fn finish(mut self) -> Outcome {
        for (bin, waits) in self.bins.iter_mut().zip(&mut self.waits) {
            waits.sort_unstable();
            (bin.p50, bin.p99) = (quantile(waits, 50), quantile(waits, 99));
        }
        let mut all = self.waits.concat();
        all.sort_unstable();
        (self.totals.p50, self.totals.p99) = (quantile(&all, 50), quantile(&all, 99));
        Outcome { totals: self.totals, bins: self.bins }
    }
}

/// The given percentile of sorted waits.
fn quantile(sorted: &[Span], percent: usize) -> Span {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_waits_that_were() {
        let waits: Vec<Span> = (1..=200).map(Span::from_micros).collect();
        assert_eq!(quantile(&waits, 50), Span::from_micros(100));
        assert_eq!(quantile(&waits, 99), Span::from_micros(198));
        assert_eq!(quantile(&waits[..1], 50), Span::from_micros(1));
        assert_eq!(quantile(&[], 99), Span::ZERO);
    }
}
