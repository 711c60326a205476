//! Sliding log: at most N in any period, exactly, because every call is recorded.
//!
//! The log keeps the time and cost of every allowed call. A new call looks back one period and adds
//! up the costs. This is the only algorithm that keeps to the count in *every* period, wherever the
//! period begins. The price is memory.
//!
//! ```text
//!            |<------- period ------->|
//! calls  x   |   x    xx      x       | now     4 calls in (now - period, now]: 5/60s allows 1
//! ```
//!
//! ```text
//! Settings   count per period; `count=all` records denied calls too
//! State      a `Log`: entries of a time and the running total of cost, oldest first, where calls
//!            in the same microsecond share an entry; and the time of the latest recorded call
//! Formula    allow if the costs in (now - period, now] + cost <= count
//! Promise    any stretch of one period admits at most count.
//! Debt       the costs stop at `DEBT_MAX`, which is 2 * 10^12; only settling gets there.
//! Rounding   none: everything is whole.
//! Clock      a call earlier than the latest recorded one is decided and recorded at that one's
//!            time; its waits count from its own. Only recording a call drops aged-out entries, so a
//!            peek at a wrong, later time loses nothing.
//! Cost       16 bytes per call within the period, shared by calls of the same microsecond; a
//!            binary search per decision.
//! All        with `count=all`, every check depends only on the newest entries that add up to
//!            count. Older ones are dropped, so a caller that ignores denials cannot make the log
//!            grow. (A refund returns only what is still recorded.)
//!
//! Example    5/60s: calls at 0, 10, 20, 30 and 40 s are allowed. A call at 50 s is denied and may
//!            retry in 10 s, when the first one ages out.
//! ```

use crate::algorithm::{Algorithm, Verb};
use crate::bounds::{DEBT_MAX, LOG_COUNT_MAX, OutOfBounds, Rate};
use crate::rescaling::Adopted;
use crate::rollback::{Charge, Rollback, Times};
use crate::time::{Span, Time};
use alloc::collections::VecDeque;

/// Above this, running totals restart at zero. The costs of many more periods would still fit.
const REBASE_AT: u64 = 1 << 60;

/// How many of the oldest entries are scanned before a binary search is used: few entries age out
/// between two calls.
const SCANNED_FIRST: usize = 4;

/// The fewest entries by which a log grows, unless its limit needs fewer.
const BLOCK_MIN: usize = 4;

/// The sliding log. Pick it when the count must hold in every period, and is small enough to
/// record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlidingLog {
    rate: Rate,
    count_all: bool,
}

/// The recorded calls of one key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Log {
    /// The time of the latest recorded call. Kept even if that call is rolled back.
    latest: u64,
    entries: VecDeque<LogEntry>,
    /// The running total before the oldest entry.
    before: u64,
}

/// The calls in one microsecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LogEntry {
    at: u64,
    /// The cost of this and all earlier entries, so that the sum of any range takes one
    /// subtraction.
    total: u64,
}

impl Log {
    /// The log of an unseen key.
    pub const EMPTY: Log = Log { latest: 0, entries: VecDeque::new(), before: 0 };

    fn at(&self, index: usize) -> Option<LogEntry> {
        self.entries.get(index).copied()
    }

    /// Returns the running total before an entry.
    fn total_before(&self, index: usize) -> u64 {
        index.checked_sub(1).and_then(|earlier| self.at(earlier)).map_or(self.before, |entry| entry.total)
    }

    /// Returns the cost of the entries from an index on.
    fn sum_from(&self, index: usize) -> u64 {
        // Cannot wrap: totals never decrease along the log.
        self.entries.back().map_or(0, |last| last.total - self.total_before(index))
    }

    fn pop_oldest(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.before = oldest.total;
        }
    }

    /// Restarts the running total long before it could wrap: in a busy log the total grows for
    /// years.
    fn rebase(&mut self) {
        if self.before > REBASE_AT {
            for entry in &mut self.entries {
                entry.total -= self.before;
            }
            self.before = 0;
        }
    }

    /// Rebuilds a log kept elsewhere: the time of the latest recorded call, and entries of a time
    /// and the running total of cost, oldest first. Only the entries that decisions depend on are
    /// needed.
    pub fn from_entries(latest: Time, entries: impl IntoIterator<Item = (Time, u64)>) -> Log {
        let mut log = Log { latest: latest.as_micros(), ..Log::EMPTY };
        for (at, total) in entries {
            let entry = LogEntry { at: at.as_micros(), total };
            match log.entries.back_mut() {
                // An entry out of order is ignored.
                Some(last) if entry.at < last.at || entry.total < last.total => {}
                Some(last) if last.at == entry.at => *last = entry,
                _ => log.entries.push_back(entry),
            }
        }
        log
    }

    /// Returns the number of entries that fit into the allocated memory.
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Allocates memory for `by` more entries than fit now. Stores call this, so that they can
    /// bound the memory of all logs.
    pub fn grow(&mut self, by: usize) {
        self.entries.reserve_exact(self.entries.capacity() - self.entries.len() + by);
    }

    /// Returns the number of entries, including aged-out ones that were not dropped yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl SlidingLog {
    /// Creates a log that admits at most `count` in any `period`.
    ///
    /// # Errors
    /// If the count is above [`LOG_COUNT_MAX`]; see [`SlidingLog::with_count_max`].
    pub fn new(rate: Rate) -> Result<SlidingLog, OutOfBounds> {
        SlidingLog::with_count_max(rate, LOG_COUNT_MAX)
    }

    /// Creates a log whose count is at most `count_max`. Every recorded call of every key takes 16
    /// bytes, so [`LOG_COUNT_MAX`] may be more than there is memory for.
    ///
    /// # Errors
    /// If the count is above `count_max` or [`LOG_COUNT_MAX`].
    pub fn with_count_max(rate: Rate, count_max: u64) -> Result<SlidingLog, OutOfBounds> {
        let (count, most) = (rate.count(), count_max.min(LOG_COUNT_MAX));
        if count > most {
            let advice = "a log records every call, use sliding-window for a count this large";
            return Err(OutOfBounds::above("count", count, most, advice));
        }
        Ok(SlidingLog { rate, count_all: false })
    }

    /// Records denied calls as well (`count=all`).
    #[must_use]
    pub fn counting_denied(self) -> SlidingLog {
        SlidingLog { count_all: true, ..self }
    }

    /// Returns the index of the oldest entry that is still within the period.
    #[inline]
    fn oldest_live(&self, log: &Log, now: Time) -> usize {
        let at = now.as_micros().max(log.latest);
        let period = self.rate.period().as_micros();
        let is_live = |entry: &LogEntry| entry.at + period > at;
        // The common cases: all entries have aged out, or only a few of the oldest have.
        if !log.entries.back().is_some_and(is_live) {
            return log.entries.len();
        }
        let few = log.entries.iter().take(SCANNED_FIRST).position(is_live);
        few.unwrap_or_else(|| log.entries.partition_point(|entry| !is_live(entry)))
    }

    /// Returns the cost of the calls within the period.
    #[inline]
    fn sum(&self, log: &Log, now: Time) -> u64 {
        log.sum_from(self.oldest_live(log, now))
    }

    /// Returns by how many entries a full log grows: by a quarter, so that copying stays cheap, but
    /// not beyond what the limit can record. (`count=all` records a denied call before it drops
    /// older ones.)
    fn block(&self, log: &Log) -> usize {
        let most =
            usize::try_from(self.rate.count()).unwrap_or(usize::MAX).saturating_add(self.count_all.into());
        let capacity = log.capacity();
        (capacity / 4).max(BLOCK_MIN).min(most.saturating_sub(capacity)).max(1)
    }

    /// Returns the time until an entry ages out.
    fn ages_out_in(&self, entry: LogEntry, now: Time) -> Span {
        Span::from_micros((entry.at + self.rate.period().as_micros()).saturating_sub(now.as_micros()))
    }

    /// Returns the index of the entry with this time.
    fn find(log: &Log, at: u64) -> Option<usize> {
        log.entries.binary_search_by_key(&at, |entry| entry.at).ok()
    }

    /// Returns the cost recorded by an entry.
    fn cost_at(log: &Log, index: usize) -> u64 {
        log.at(index).map_or(0, |entry| entry.total - log.total_before(index))
    }
}

impl Algorithm for SlidingLog {
    type State = Log;

    #[inline]
    fn limit(&self) -> u64 {
        self.rate.count()
    }

    #[inline]
    fn remaining(&self, state: &Log, now: Time) -> u64 {
        self.rate.count().saturating_sub(self.sum(state, now))
    }

    /// With `count=all` at most the count: calls before the newest that add up to it are not kept.
    fn used(&self, state: &Log, now: Time) -> u64 {
        let used = self.sum(state, now);
        if self.count_all { used.min(self.rate.count()) } else { used }
    }

    #[inline]
    fn reset_after(&self, state: &Log, now: Time) -> Span {
        match state.entries.back() {
            Some(&last) if self.oldest_live(state, now) < state.entries.len() => self.ages_out_in(last, now),
            _ => Span::ZERO,
        }
    }

    fn retry_after(&self, state: &Log, now: Time, cost: u64) -> Span {
        let oldest = self.oldest_live(state, now);
        let room = self.rate.count().saturating_sub(cost);
        // The call fits once every entry up to this running total has aged out.
        let must_age_out = state.total_before(oldest) + state.sum_from(oldest).saturating_sub(room);
        let last_to_age_out = state.entries.partition_point(|entry| entry.total < must_age_out);
        state.at(last_to_age_out).map_or(Span::ZERO, |entry| self.ages_out_in(entry, now))
    }

    fn supports(&self, verb: Verb) -> bool {
        !self.count_all || verb == Verb::Refund
    }

    fn charge(&self, state: &mut Log, now: Time, cost: u64) -> Span {
        for _ in 0..self.oldest_live(state, now) {
            state.pop_oldest();
        }
        state.rebase();
        let cost = cost.min(DEBT_MAX.saturating_sub(state.sum_from(0)));
        if cost == 0 {
            return self.reset_after(state, now);
        }
        state.latest = state.latest.max(now.as_micros());
        // Cannot wrap: what counts is below 2^41, and a running total restarts above 2^60.
        let total = state.total_before(state.entries.len()) + cost;
        match state.entries.back_mut() {
            Some(last) if last.at == state.latest => last.total = total,
            _ => {
                if state.entries.len() == state.capacity() {
                    state.grow(self.block(state));
                }
                state.entries.push_back(LogEntry { at: state.latest, total });
            }
        }
        Span::from_micros(state.latest + self.rate.period().as_micros() - now.as_micros())
    }

    #[inline]
    fn growth(&self, state: &Log, now: Time, cost: u64) -> usize {
        let is_full = || self.oldest_live(state, now) == 0;
        if state.len() < state.capacity() || (!state.is_empty() && !is_full()) {
            return 0;
        }
        if self.count_all || cost <= self.remaining(state, now) { self.block(state) } else { 0 }
    }

    fn grow(&self, state: &mut Log, by: usize) {
        state.grow(by);
    }

    fn log_capacity(&self, state: &Log) -> usize {
        state.capacity()
    }

    fn merge_newest(&self, state: &mut Log) {
        let Some(newest) = state.entries.pop_back() else { return };
        match state.entries.back_mut() {
            // Totals are running totals, so the newest one includes the cost of both.
            Some(last) => *last = newest,
            None => state.entries.push_back(newest),
        }
        state.entries.shrink_to_fit();
    }

    fn record_denied(&self, state: &mut Log, now: Time, cost: u64) -> bool {
        if !self.count_all || cost > self.rate.count() {
            return false;
        }
        self.charge(state, now, cost);
        while state.entries.len() > 1 && state.sum_from(1) >= self.rate.count() {
            state.pop_oldest();
        }
        true
    }

    fn refund(&self, state: &mut Log, now: Time, cost: u64) -> bool {
        let live = self.oldest_live(state, now);
        let mut left = cost;
        // Newest first: what was charged last is returned first.
        while left > 0 && state.entries.len() > live {
            let newest = state.entries.len() - 1;
            let here = Self::cost_at(state, newest);
            if here <= left {
                state.entries.pop_back();
            } else if let Some(entry) = state.entries.back_mut() {
                entry.total -= left;
            }
            left = left.saturating_sub(here);
        }
        left < cost
    }

    /// The stack is an entry, identified by its time.
    fn record(&self, state: &Log, cost: u64, _waited: bool) -> Charge {
        let height = Self::find(state, state.latest).map_or(0, |index| Self::cost_at(state, index));
        Charge::on_stack(cost, state.latest, height)
    }

    fn roll_back(&self, state: &mut Log, times: Times, charge: &Charge, most: u64) -> Option<Rollback> {
        let live = self.oldest_live(state, times.now);
        let index = Self::find(state, charge.stack).filter(|&index| index >= live)?;
        let here = Self::cost_at(state, index);
        let rollback = charge.roll_back(most, here)?;
        for entry in state.entries.range_mut(index..) {
            entry.total -= rollback.size();
        }
        if rollback.size() == here {
            state.entries.remove(index);
        }
        Some(rollback)
    }

    /// Without a copy of the log.
    fn counts(&self, state: &Log, times: Times, charge: &Charge) -> bool {
        let live = self.oldest_live(state, times.now);
        let entry = Self::find(state, charge.stack).filter(|&index| index >= live);
        entry.is_some_and(|index| charge.roll_back(charge.cost(), Self::cost_at(state, index)).is_some())
    }

    fn shift_down(&self, rollback: &Rollback, charge: &mut Charge) {
        charge.shift_down(rollback);
    }

    fn cap_height(&self, state: &Log, charge: &mut Charge) {
        charge.cap_height(Self::find(state, charge.stack).map_or(0, |index| Self::cost_at(state, index)));
    }

    fn next_window(&self, state: &Log, now: Time) -> Time {
        let oldest = state.at(self.oldest_live(state, now));
        oldest.map_or(now, |oldest| now.saturating_add(self.ages_out_in(oldest, now)))
    }

    fn is_idle(&self, state: &Log, now: Time) -> bool {
        self.oldest_live(state, now) == state.entries.len()
    }

    /// Keeps the entries that count now. A longer period brings none back.
    fn adopt(&self, old: &Self, state: &mut Log, times: Times) -> Adopted {
        // A shorter period counts none of those that have aged out anyway.
        let aged_out =
            if self.rate.period() > old.rate.period() { old.oldest_live(state, times.now) } else { 0 };
        for _ in 0..aged_out {
            state.pop_oldest();
        }
        Adopted::Kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    fn at(seconds: u64) -> Time {
        Time::from_micros(seconds * SECOND).unwrap()
    }

    fn five_per_minute() -> SlidingLog {
        SlidingLog::new(Rate::new(5, Span::from_micros(60 * SECOND)).unwrap()).unwrap()
    }

    #[test]
    fn the_example_in_the_header() {
        let (log, mut state) = (five_per_minute(), Log::default());
        assert!([0, 10, 20, 30, 40].into_iter().all(|second| log.check(&mut state, at(second), 1).allowed()));
        let denied = log.check(&mut state, at(50), 1);
        assert_eq!(denied.retry_after(), Some(crate::RetryAfter::After(Span::from_micros(10 * SECOND))));
    }

    /// After years of calls the running total restarts, and no decision changes.
    #[test]
    fn a_large_running_total_restarts_at_zero() {
        let log = five_per_minute();
        let (mut young, mut old) = (Log::default(), Log { before: REBASE_AT - 1, ..Log::default() });
        for (second, cost) in
            [(0, 2), (10, 1), (10, 1), (20, 2), (65, 2), (66, 2), (70, 3), (200, 5), (201, 1)]
        {
            assert_eq!(
                log.check(&mut young, at(second), cost),
                log.check(&mut old, at(second), cost),
                "{second} s"
            );
        }
        assert!(old.before < REBASE_AT);
    }
}
