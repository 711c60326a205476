//! A time that never steps: the machine's uptime plus an offset, which is slewed towards UTC.
//!
//! ```text
//! State      utc    = UTC - uptime, as last measured
//!            offset = time - uptime: equal to `utc` until UTC is set, and slewed towards it after
//! Formula    time = uptime + offset;  UTC = time + (utc - offset)
//! Promise    Between two readings the time advances by what elapsed, plus or minus 0.5 ms per second
//!            (and never goes back). A step of UTC, however large, changes only `utc`.
//! Step       UTC differs from what was measured before by more than 100 ms, plus 0.5 ms per second
//!            since: two clocks may drift apart by that. Smaller differences are not counted.
//! Noise      The two clocks cannot be read at once. A difference below `NOISE` or the time that
//!            the reading took is ignored, so while no one sets UTC, nothing changes at all.
//! ```
//!
//! This is the pure part; `system.rs` reads the clocks.

/// The time is slewed by one part in this many: 0.5 ms per second.
const SLEW_SHARE: u64 = 2_000;

/// The smallest step that is counted, in microseconds.
const STEP_MIN: u64 = 100_000;

/// The offset is slewed for at most this long at once, in microseconds. So after a pause a thread
/// that has not seen it yet is off by at most 0.5 ms.
const SLEW_MAX: u64 = 1_000_000;

/// Differences up to this many microseconds are not followed.
const NOISE: u64 = 10;

/// Returns `true` if UTC is ahead by another amount than it was, by more than slewing explains.
pub(crate) fn is_step(ahead: i64, before: i64) -> bool {
    ahead.abs_diff(before) > STEP_MIN
}

/// A reading of two clocks, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) uptime: u64,
    /// Since the Unix epoch.
    pub(super) utc: u64,
    /// How far apart the clocks may have been read.
    pub(super) gap: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    offset: i64,
    utc: i64,
    /// The uptime of the latest reading: drift is measured since then.
    observed_at: u64,
    /// The uptime up to which the offset was slewed.
    slewed_at: u64,
}

impl Reading {
    /// UTC minus uptime.
    pub(super) fn utc_offset(&self) -> i64 {
        let [utc, uptime] = [self.utc, self.uptime].map(|micros| i64::try_from(micros).unwrap_or(i64::MAX));
        utc - uptime
    }

    /// Returns `true` if this is more than noise: UTC was set, or drifts.
    pub(super) fn differs_from(&self, utc_offset: i64) -> bool {
        self.utc_offset().abs_diff(utc_offset) > self.gap.max(NOISE)
    }
}

impl Timeline {
    /// A time that is UTC now.
    pub(super) fn new(reading: &Reading) -> Timeline {
        let utc = reading.utc_offset();
        Timeline { offset: utc, utc, observed_at: reading.uptime, slewed_at: reading.uptime }
    }

    /// Slews the offset, and notices whether UTC was set. Returns the size of a step in
    /// microseconds; negative for a step back.
    pub(super) fn observe(&mut self, reading: &Reading) -> Option<i64> {
        // A thread that was held up after it read the clocks knows less than the others.
        if reading.uptime < self.observed_at {
            return None;
        }
        // First towards what was known: a difference that is noticed only now may be a moment old.
        self.slew(reading.uptime);
        let since = reading.uptime.saturating_sub(self.observed_at);
        self.observed_at = reading.uptime;
        if !reading.differs_from(self.utc) {
            return None;
        }
        let step = reading.utc_offset().saturating_sub(self.utc);
        self.utc = reading.utc_offset();
        let explained = (STEP_MIN + since / SLEW_SHARE).saturating_add(reading.gap);
        (step.unsigned_abs() > explained).then_some(step)
    }

    fn slew(&mut self, uptime: u64) {
        self.slewed_at = self.slewed_at.max(uptime.saturating_sub(SLEW_MAX));
        let most = uptime.saturating_sub(self.slewed_at) / SLEW_SHARE;
        let left = self.utc.saturating_sub(self.offset);
        let by = left.unsigned_abs().min(most);
        self.offset = self.offset.saturating_add(left.signum() * i64::try_from(by).unwrap_or(i64::MAX));
        // While slewing, the rest of the division is kept for the next time.
        self.slewed_at = if by == left.unsigned_abs() {
            self.slewed_at.max(uptime)
        } else {
            self.slewed_at + most * SLEW_SHARE
        };
    }

    /// The time minus the uptime.
    pub(super) fn offset(&self) -> i64 {
        self.offset
    }

    /// UTC minus the uptime, as last measured.
    pub(super) fn utc_offset(&self) -> i64 {
        self.utc
    }

    /// UTC minus the time.
    pub(super) fn utc_ahead(&self) -> i64 {
        self.utc.saturating_sub(self.offset)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const HOUR: i64 = 3_600_000_000;

    /// Two clocks, one of which can be set.
    struct Clocks {
        uptime: u64,
        utc: u64,
        timeline: Timeline,
    }

    impl Clocks {
        fn new() -> Clocks {
            let (uptime, utc) = (50 * SECOND, 1_700_000_000 * SECOND);
            Clocks { uptime, utc, timeline: Timeline::new(&Reading { uptime, utc, gap: 0 }) }
        }

        fn pass(&mut self, micros: u64) -> Option<i64> {
            self.uptime += micros;
            self.utc += micros;
            self.observe()
        }

        fn set(&mut self, by: i64) -> Option<i64> {
            self.utc = self.utc.saturating_add_signed(by);
            self.observe()
        }

        fn observe(&mut self) -> Option<i64> {
            self.timeline.observe(&Reading { uptime: self.uptime, utc: self.utc, gap: 2 })
        }

        fn time(&self) -> i64 {
            i64::try_from(self.uptime).unwrap() + self.timeline.offset()
        }

        fn utc(&self) -> i64 {
            self.time() + self.timeline.utc_ahead()
        }
    }

    #[test]
    fn without_steps_it_is_utc() {
        let mut clocks = Clocks::new();
        for _ in 0..1_000 {
            assert_eq!(clocks.pass(7_777), None);
            assert_eq!((clocks.time(), clocks.timeline.utc_ahead()), (clocks.utc.cast_signed(), 0));
        }
        // Suspend: both clocks go on.
        let before = clocks.time();
        assert_eq!(clocks.pass(8 * HOUR.cast_unsigned()), None);
        assert_eq!((clocks.time() - before, clocks.timeline.utc_ahead()), (8 * HOUR, 0));
    }

    #[test]
    fn a_step_changes_utc_only() {
        for by in [87_600 * HOUR, -87_600 * HOUR, HOUR, -HOUR, 100_003, -100_003] {
            let mut clocks = Clocks::new();
            clocks.utc += 100_000 * HOUR.cast_unsigned();
            clocks.timeline = Timeline::new(&Reading { uptime: clocks.uptime, utc: clocks.utc, gap: 0 });
            let before = clocks.time();
            assert_eq!(clocks.set(by), Some(by));
            assert_eq!((clocks.time(), clocks.utc()), (before, clocks.utc.cast_signed()));
            // It is counted once.
            assert_eq!(clocks.pass(SECOND), None);
            assert_eq!(clocks.time(), before + 1_000_000 + by.signum() * 500);
            assert_eq!(clocks.utc(), clocks.utc.cast_signed());
        }
    }

    #[test]
    fn a_small_difference_is_slewed_away_and_not_counted() {
        let mut clocks = Clocks::new();
        assert_eq!(clocks.set(-50_000), None);
        assert_eq!(clocks.timeline.utc_ahead(), -50_000);
        for second in 1..=100 {
            clocks.pass(SECOND);
            assert_eq!(clocks.timeline.utc_ahead(), -50_000 + 500 * second);
        }
        clocks.pass(SECOND);
        assert_eq!(clocks.timeline.utc_ahead(), 0);
    }

    #[test]
    fn drift_is_not_a_step_and_noise_is_not_followed() {
        let mut clocks = Clocks::new();
        assert_eq!((clocks.set(10), clocks.timeline.utc_ahead()), (None, 0));
        // 50 parts per million for ten hours without a call: 1.8 s.
        clocks.uptime += 10 * HOUR.cast_unsigned();
        clocks.utc += 10 * HOUR.cast_unsigned() + 1_800_000;
        assert_eq!(clocks.observe(), None);
        assert_eq!(clocks.utc(), clocks.utc.cast_signed());
    }

    /// Random steps and readings: between any two readings the time advances by what elapsed, plus
    /// or minus a 2000th of it, and UTC is exact.
    #[test]
    fn the_time_is_slewed_by_at_most_half_a_millisecond_per_second() {
        let mut random: u64 = 1;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut clocks = Clocks::new();
        let (uptime, time) = (clocks.uptime.cast_signed(), clocks.time());
        let mut readings = vec![(uptime, time)];
        for _ in 0..20_000 {
            if next(4) == 0 {
                let by = next(4 * SECOND).cast_signed() - 2_000_000;
                clocks.set(by);
            }
            let longest = [10, 5_000, SECOND, 4_000 * SECOND][usize::try_from(next(4)).unwrap()];
            clocks.pass(next(longest));
            assert!(clocks.utc().abs_diff(clocks.utc.cast_signed()) <= NOISE);
            let now = (clocks.uptime.cast_signed(), clocks.time());
            // Against the latest reading, and against one of all before it.
            let earlier = readings[usize::try_from(next(readings.len() as u64)).unwrap()];
            for before in [*readings.last().unwrap(), earlier] {
                let (elapsed, advanced) = (now.0 - before.0, now.1 - before.1);
                // One microsecond of the rest of a division.
                let most = elapsed / 2_000 + 1;
                assert!(advanced >= 0 && (advanced - elapsed).abs() <= most, "{advanced} in {elapsed}");
            }
            readings.push(now);
        }
    }
}
