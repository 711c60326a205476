//! Exact counts of recent outcomes: of a period, or of the last N calls.

use super::config::Window;
use sluicegate_core::{Span, Time};

/// The number of slices of a window of time. Hystrix cuts its 10 s of health counts into 500 ms
/// too.
pub const SLICES: usize = 20;

/// Counts of calls that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Counts {
    /// All calls.
    pub total: u64,
    /// Failed calls.
    pub failed: u64,
    /// Slow calls, failed or not.
    pub slow: u64,
}

impl Counts {
    /// Returns the percentage of failed calls, rounded down; 0 if there are no calls.
    pub fn failure_rate(&self) -> u8 {
        self.percent(self.failed)
    }

    /// Returns the percentage of slow calls, rounded down; 0 if there are no calls.
    pub fn slow_rate(&self) -> u8 {
        self.percent(self.slow)
    }

    fn percent(&self, part: u64) -> u8 {
        let percent = (part * 100).checked_div(self.total).unwrap_or(0);
        u8::try_from(percent).unwrap_or(100)
    }

    #[inline]
    fn add(&mut self, failed: bool, slow: bool) {
        self.total += 1;
        self.failed += u64::from(failed);
        self.slow += u64::from(slow);
    }

    #[inline]
    fn subtract(&mut self, other: Counts) {
        // Cannot underflow: it was added before.
        self.total -= other.total;
        self.failed -= other.failed;
        self.slow -= other.slow;
    }
}

/// The outcomes of a window.
#[derive(Clone, Debug)]
pub(super) enum Rolling {
    Time(Box<Slices>),
    Calls(Ring),
}

impl Rolling {
    pub(super) fn new(window: Window) -> Rolling {
        match window {
            Window::Time(span) => Rolling::Time(Box::new(Slices::new(span))),
            Window::Calls(calls) => Rolling::Calls(Ring::new(calls)),
        }
    }

    /// Records a call, and returns the counts of the window. A window of calls does not read the
    /// time.
    ///
    /// By reference: copying a value just written in parts would wait for all of them.
    #[inline]
    pub(super) fn record(&mut self, failed: bool, slow: bool, now: impl FnOnce() -> Time) -> &Counts {
        match self {
            Rolling::Time(slices) => slices.record(failed, slow, now),
            Rolling::Calls(ring) => ring.record(failed, slow),
        }
    }

    /// Records a call that was not slow in a window of calls, unless the counts would then open the
    /// breaker. Returns `true` if it was recorded.
    #[inline]
    pub(super) fn record_unless(&mut self, failed: bool, opens: impl FnOnce(&Counts) -> bool) -> bool {
        match self {
            Rolling::Calls(ring) => ring.record_unless(failed, opens),
            Rolling::Time(_) => false,
        }
    }

    /// Returns the counts at this time.
    pub(super) fn counts(&mut self, now: Time) -> Counts {
        match self {
            Rolling::Time(slices) => {
                slices.advance_to(now);
                slices.sum
            }
            Rolling::Calls(ring) => ring.sum,
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Rolling::Time(slices) => slices.clear(),
            Rolling::Calls(ring) => ring.clear(),
        }
    }
}

/// A window of time: the current slice and those before it.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    /// The length of a slice, in microseconds.
    length: u64,
    /// The start of the current slice: a multiple of the length.
    began: u64,
    /// The index of the current slice; the next one in the ring is the oldest.
    newest: usize,
    ring: [Counts; SLICES],
    /// The sum of all slices.
    sum: Counts,
}

impl Slices {
    fn new(window: Span) -> Slices {
        // At least 50: a window is at least a millisecond.
        let length = window.as_micros().div_ceil(20).max(1);
        Slices { length, began: 0, newest: 0, ring: [Counts::default(); SLICES], sum: Counts::default() }
    }

    /// Not inlined: reading a clock would bloat the caller.
    #[inline(never)]
    fn record(&mut self, failed: bool, slow: bool, now: impl FnOnce() -> Time) -> &Counts {
        self.advance_to(now());
        if let Some(slice) = self.ring.get_mut(self.newest) {
            slice.add(failed, slow);
            self.sum.add(failed, slow);
        }
        &self.sum
    }

    /// Makes the slice of this time the current one.
    #[inline]
    fn advance_to(&mut self, now: Time) {
        // A time in the previous slice counts as the current one: the clocks of two threads may
        // differ a little, and switching back and forth would drop the oldest slice each time.
        // Cannot overflow: times are below 2^58, lengths below 2^37.
        let now = now.as_micros();
        if now + self.length < self.began || now >= self.began + self.length {
            self.rotate(now);
        }
    }

    #[cold]
    fn rotate(&mut self, now: u64) {
        let began = now - now % self.length;
        // A step back by more than a slice drops nothing: the slices keep their order, from the new
        // time on.
        let passed = began.saturating_sub(self.began) / self.length;
        let passed = usize::try_from(passed).map_or(SLICES, |passed| passed.min(SLICES));
        for _ in 0..passed {
            self.newest = if self.newest + 1 == SLICES { 0 } else { self.newest + 1 };
            if let Some(oldest) = self.ring.get_mut(self.newest) {
                self.sum.subtract(core::mem::take(oldest));
            }
        }
        self.began = began;
    }

    fn clear(&mut self) {
        self.ring = [Counts::default(); SLICES];
        self.sum = Counts::default();
    }
}

/// The number of calls per word, 2 bits each.
const CALLS_PER_WORD: u32 = 32;
const FAILED: u64 = 1;
const SLOW: u64 = 2;

/// The last calls, 2 bits each.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    words: Vec<u64>,
    /// The index of the next call.
    next: u32,
    /// The capacity.
    calls: u32,
    sum: Counts,
}

/// An update of the ring by one call.
struct Update {
    index: usize,
    /// The bits of the word to flip.
    flip: u64,
    /// The counts after the update.
    sum: Counts,
}

impl Ring {
    fn new(calls: u32) -> Ring {
        let words = usize::try_from(calls.div_ceil(CALLS_PER_WORD)).unwrap_or(usize::MAX);
        Ring { words: vec![0; words], next: 0, calls, sum: Counts::default() }
    }

    #[inline]
    fn record(&mut self, failed: bool, slow: bool) -> &Counts {
        let update = self.update(failed, slow);
        self.make(update);
        &self.sum
    }

    #[inline]
    fn record_unless(&mut self, failed: bool, opens: impl FnOnce(&Counts) -> bool) -> bool {
        let update = self.update(failed, false);
        let is_entered = !opens(&update.sum);
        if is_entered {
            self.make(update);
        }
        is_entered
    }

    /// Computes the update that replaces the oldest call. Before the ring is full the oldest call
    /// counts for nothing: it was cleared.
    #[inline]
    fn update(&self, failed: bool, slow: bool) -> Update {
        let (index, shift) = (self.next / CALLS_PER_WORD, self.next % CALLS_PER_WORD * 2);
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        // Always in bounds: `next` is below `calls`.
        let word = self.words.get(index).copied().unwrap_or(0);
        let (oldest, call) = (word >> shift & (FAILED | SLOW), u64::from(failed) | u64::from(slow) << 1);
        // Cannot underflow: it was added before.
        let sum = Counts {
            total: self.total_after(),
            failed: self.sum.failed + (call & FAILED) - (oldest & FAILED),
            slow: self.sum.slow + (call >> 1) - (oldest >> 1),
        };
        Update { index, flip: (oldest ^ call) << shift, sum }
    }

    #[inline]
    fn make(&mut self, Update { index, flip, sum }: Update) {
        // Usually a call replaces one with the same outcome, and there is nothing to write.
        if flip != 0
            && let Some(word) = self.words.get_mut(index)
        {
            *word ^= flip;
        }
        self.sum = sum;
        self.next = self.next_after();
    }

    #[inline]
    fn total_after(&self) -> u64 {
        (self.sum.total + 1).min(self.calls.into())
    }

    #[inline]
    fn next_after(&self) -> u32 {
        if self.next + 1 == self.calls { 0 } else { self.next + 1 }
    }

    fn clear(&mut self) {
        self.words.fill(0);
        (self.next, self.sum) = (0, Counts::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_micros(micros).unwrap()
    }

    fn total(rolling: &mut Rolling, micros: u64) -> u64 {
        rolling.counts(at(micros)).total
    }

    #[test]
    fn a_slice_counts_for_itself_and_the_19_slices_after_it() {
        let mut rolling = Rolling::new(Window::Time(Span::from_micros(20_000)));
        rolling.record(true, false, || at(7_999_999));
        assert_eq!(rolling.counts(at(7_999_999)), Counts { total: 1, failed: 1, slow: 0 });
        assert_eq!(total(&mut rolling, 8_018_999), 1);
        assert_eq!(total(&mut rolling, 8_019_000), 0);
    }

    #[test]
    fn everything_ages_out_after_a_long_time() {
        let mut rolling = Rolling::new(Window::Time(Span::from_micros(20_000)));
        rolling.record(true, true, || at(1_000));
        assert_eq!(total(&mut rolling, Time::MAX.as_micros()), 0);
        rolling.record(true, true, || Time::MAX);
        assert_eq!(total(&mut rolling, Time::MAX.as_micros()), 1);
    }

    #[test]
    fn a_window_that_does_not_divide_by_20_has_slices_rounded_up() {
        let mut rolling = Rolling::new(Window::Time(Span::from_micros(1_001)));
        rolling.record(false, false, || at(51 * 100));
        assert_eq!(total(&mut rolling, 51 * 120 - 1), 1);
        assert_eq!(total(&mut rolling, 51 * 120), 0);
    }

    #[test]
    fn clocks_that_differ_slightly_at_a_slice_end_drop_nothing() {
        let mut rolling = Rolling::new(Window::Time(Span::from_micros(20_000)));
        rolling.record(false, false, || at(1_000));
        for _ in 0..100 {
            rolling.record(false, false, || at(20_000));
            rolling.record(false, false, || at(19_999));
        }
        assert_eq!(total(&mut rolling, 20_999), 201);
        assert_eq!(total(&mut rolling, 21_000), 200);
    }

    #[test]
    fn after_a_step_back_counts_last_at_most_one_window_longer() {
        let mut rolling = Rolling::new(Window::Time(Span::from_micros(20_000)));
        rolling.record(false, false, || at(1_000_000));
        rolling.record(false, false, || at(1_010_000));
        assert_eq!(total(&mut rolling, 500_000), 2);
        assert_eq!(total(&mut rolling, 509_999), 2);
        assert_eq!(total(&mut rolling, 510_000), 1);
        assert_eq!(total(&mut rolling, 520_000), 0);
    }

    #[test]
    fn a_ring_holds_exactly_the_last_n_calls() {
        for calls in [1_u32, 2, 3, 31, 32, 33, 64, 65, 100] {
            let mut ring = Ring::new(calls);
            let mut all: Vec<(bool, bool)> = Vec::new();
            for number in 0..500_u32 {
                if number == 333 {
                    ring.clear();
                    all.clear();
                }
                let (failed, slow) = (number.is_multiple_of(3), number * number % 7 < 3);
                all.push((failed, slow));
                let last: Vec<_> = all.iter().rev().take(usize::try_from(calls).unwrap()).collect();
                let many = |count: usize| u64::try_from(count).unwrap();
                let expected = Counts {
                    total: many(last.len()),
                    failed: many(last.iter().filter(|(failed, _)| *failed).count()),
                    slow: many(last.iter().filter(|(_, slow)| *slow).count()),
                };
                assert_eq!(*ring.record(failed, slow), expected, "{calls} calls, number {number}");
            }
        }
    }

    #[test]
    fn percentages_are_rounded_down() {
        let counts = Counts { total: 3, failed: 2, slow: 3 };
        assert_eq!((counts.failure_rate(), counts.slow_rate()), (66, 100));
        assert_eq!(Counts::default().failure_rate(), 0);
    }
}
