//! Gradient: compares the current duration of calls with that of a healthy dependency.
//!
//! An overloaded dependency queues calls, so they take longer. The *baseline* is the usual duration
//! of a call. While calls take up to 150 % of it (the tolerance) the limit grows slowly; when they
//! take longer it shrinks in proportion, by at most half, of which only a part is applied at a
//! time.
//!
//! ```text
//! gradient 1.0 ┤━━━━━━━━━━┓                  grows by queue * smoothing
//!              │          ┃╲
//!              │          ┃  ╲               shrinks by (1 - gradient) * smoothing
//!          0.5 ┤          ┃    ━━━━━━━━━
//!              └──────────┸───────────── rtt
//!                     1.5 baseline
//! ```
//!
//! ```text
//! Settings   range (20, from 20 to 200), queue (4), smoothing (20 %), tolerance (150 %), window
//!            (600), sample (each call)
//! State      the limit and the baseline, in 2^-20 of a call and of a microsecond; the number of
//!            samples
//! Formula    learning     the mean of the first 10 samples, then
//!                         baseline += (rtt - baseline) * 2 / (window + 1)
//!            gradient     tolerance * baseline / rtt, in 0.5..=1, at most 1 - share of drops
//!            gradient = 1 limit += smoothing * queue
//!            otherwise    limit -= smoothing * (1 - gradient) * limit
//!            hold         while in_flight * 2 < limit, unless a call was dropped
//!            and then within min..=max. The effective limit is rounded down.
//! Promise    always within min..=max; reaches max with a dependency of constant speed and enough
//!            calls, and min with one that drops every call.
//! Rounding   down, to 2^-20; the share of drops, down to whole percents.
//! Clock      used only for windows: see `window.rs`.
//! ```
//!
//! Reference: Netflix concurrency-limits, `Gradient2Limit` and `WindowedLimit`. What is different
//! here:
//!
//! - *`queue` is added only while the gradient is 1.* Netflix always adds it, so with a gradient of
//!   0.8, which is overload, a limit below `queue / (1 - 0.8)` still grows (its pull request 134).
//! - *The baseline learns only from calls under light load* (less than half the limit in flight) or
//!   at the lowest limit. Netflix's learns from every call: the longer calls take because the limit
//!   is too high, the longer they may take, and the limit creeps up to `max` (the same pull
//!   request; issues 137 and 165). Ours stops at about the tolerance times the dependency's
//!   capacity, because it learns nothing from calls that it delays itself.
//! - *A drop counts* as the smallest gradient, and its duration is not learned. Netflix ignores
//!   drops, so a dependency whose calls always time out after the same time looks perfectly healthy
//!   (issue 137).
//! - *A baseline far too high falls after ten consecutive samples* below half of it, by 5 % each.
//!   Netflix's falls with every such sample, which is a third of all samples where durations vary.

use super::window::{Gathered, SAMPLE_MAX, SAMPLE_MIN, Window};
use super::{Range, Sample};
use sluicegate_core::bounds::{OutOfBounds, PERMITS_MAX, checked_number, checked_span};
use sluicegate_core::{Span, Time};

/// Default of `queue`: what is added to the limit while calls are fast, before smoothing.
pub const QUEUE_DEFAULT: u32 = 4;
/// Default of `smoothing`: the part of a change that is applied at once, in percent.
pub const SMOOTHING_DEFAULT: u32 = 20;
/// Upper bound of `smoothing`: all of it.
pub const SMOOTHING_MAX: u32 = 100;
/// Default of `tolerance`: how long calls may take, in percent of the baseline.
pub const TOLERANCE_DEFAULT: u32 = 150;
/// Lower bound of `tolerance`, in percent: no longer than the baseline.
pub const TOLERANCE_MIN: u32 = 100;
/// Upper bound of `tolerance`, in percent: ten times the baseline is slow by any standard.
pub const TOLERANCE_MAX: u32 = 1_000;
/// Default of `window`: the samples that the baseline averages.
pub const WINDOW_DEFAULT: u32 = 600;
/// Upper bound of `window`: a longer average would never move.
pub const WINDOW_MAX: u32 = 1_000_000;

/// Initial samples that are averaged with equal weight.
const WARM_UP: u32 = 10;
/// Consecutive samples below half the baseline after which it falls faster.
const FAST_IN_A_ROW: u32 = 10;
/// What is left of the baseline then, in percent.
const FALLS_TO_PERCENT: u128 = 95;
/// Fractions are counted in units of 1 / `ONE`.
const ONE: u128 = 1 << 20;
/// The smallest gradient.
const GRADIENT_MIN: u128 = ONE / 2;

/// The settings of the gradient algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gradient {
    range: Range,
    queue: u32,
    smoothing: u32,
    tolerance: u32,
    window: u32,
    sample: Option<Span>,
}

impl Gradient {
    /// Creates default settings with this range.
    pub const fn new(range: Range) -> Gradient {
        Gradient {
            range,
            queue: QUEUE_DEFAULT,
            smoothing: SMOOTHING_DEFAULT,
            tolerance: TOLERANCE_DEFAULT,
            window: WINDOW_DEFAULT,
            sample: None,
        }
    }

    /// Creates default settings with this start.
    ///
    /// # Errors
    /// If the start is 0 or too large.
    pub fn starting_at(start: u64) -> Result<Gradient, OutOfBounds> {
        Range::starting_at(start).map(Gradient::new)
    }

    /// Sets `queue`.
    ///
    /// # Errors
    /// If it is 0 or above [`PERMITS_MAX`].
    pub fn with_queue(self, queue: u64) -> Result<Gradient, OutOfBounds> {
        let advice = "use at least 1, or the limit never grows; 4 is usual";
        Ok(Gradient { queue: checked_number("queue", queue, (1, PERMITS_MAX), [advice; 2])?, ..self })
    }

    /// Sets `smoothing`, in percent.
    ///
    /// # Errors
    /// If it is 0 or above [`SMOOTHING_MAX`].
    pub fn with_smoothing(self, smoothing: u64) -> Result<Gradient, OutOfBounds> {
        let advice = "use 1% to 100%, the part of a change that is applied at once";
        Ok(Gradient {
            smoothing: checked_number("smoothing", smoothing, (1, SMOOTHING_MAX), [advice; 2])?,
            ..self
        })
    }

    /// Sets `tolerance`, in percent.
    ///
    /// # Errors
    /// If it is below [`TOLERANCE_MIN`] or above [`TOLERANCE_MAX`].
    pub fn with_tolerance(self, tolerance: u64) -> Result<Gradient, OutOfBounds> {
        let advice = "use 100% to 1000%, how long calls may take relative to the baseline";
        let tolerance = checked_number("tolerance", tolerance, (TOLERANCE_MIN, TOLERANCE_MAX), [advice; 2])?;
        Ok(Gradient { tolerance, ..self })
    }

    /// Sets the number of samples that the baseline averages.
    ///
    /// # Errors
    /// If it is 0 or above [`WINDOW_MAX`].
    pub fn with_window(self, window: u64) -> Result<Gradient, OutOfBounds> {
        let advice = "use 1 to 1000000, the samples that the baseline averages";
        Ok(Gradient { window: checked_number("window", window, (1, WINDOW_MAX), [advice; 2])?, ..self })
    }

    /// Combines all calls of this period into one sample. By default every call is a sample.
    ///
    /// # Errors
    /// If it is below [`SAMPLE_MIN`] or above [`SAMPLE_MAX`].
    pub fn with_sample(self, sample: Span) -> Result<Gradient, OutOfBounds> {
        let advice = "use 100ms to 1h; 1s is usual";
        let sample = checked_span("sample", sample, (SAMPLE_MIN, SAMPLE_MAX), [advice; 2])?;
        Ok(Gradient { sample: Some(sample), ..self })
    }

    /// Returns the range of the limit.
    pub const fn range(&self) -> Range {
        self.range
    }

    /// Returns what is added while calls are fast, before smoothing.
    pub const fn queue(&self) -> u32 {
        self.queue
    }

    /// Returns the part of a change that is applied at once, in percent.
    pub const fn smoothing(&self) -> u32 {
        self.smoothing
    }

    /// Returns how long calls may take, in percent of the baseline.
    pub const fn tolerance(&self) -> u32 {
        self.tolerance
    }

    /// Returns the number of samples that the baseline averages.
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Returns the period whose calls are one sample, if there is one.
    pub const fn sample(&self) -> Option<Span> {
        self.sample
    }

    /// Returns the gradient in units of 1 / [`ONE`].
    fn gradient(&self, baseline: u128, gathered: Gathered) -> u128 {
        let by_time = gathered.rtt.map_or(ONE, |rtt| {
            // Cannot overflow: the baseline is below 2^53, the tolerance below 2^10. Not zero: see
            // `Adaptive::sample`.
            baseline * u128::from(self.tolerance) / 100 / u128::from(rtt.as_micros().max(1))
        });
        let by_drops = ONE - ONE * u128::from(gathered.dropped.min(100)) / 100;
        by_time.min(by_drops).clamp(GRADIENT_MIN, ONE)
    }
}

/// The state of the gradient algorithm.
#[derive(Clone, Debug)]
pub(super) struct GradientState {
    /// In units of 1 / [`ONE`].
    limit: u128,
    /// In units of 1 / [`ONE`] of a microsecond.
    baseline: u128,
    /// The number of samples learned from, up to [`WARM_UP`].
    learned: u32,
    fast_in_a_row: u32,
    window: Window,
}

impl GradientState {
    pub(super) fn new(config: Gradient) -> GradientState {
        let limit = u128::from(config.range.start) * ONE;
        GradientState { limit, baseline: 0, learned: 0, fast_in_a_row: 0, window: Window::default() }
    }

    pub(super) fn limit(&self) -> u32 {
        // Always fits: it is within the range, whose maximum is a `u32`.
        u32::try_from(self.limit / ONE).unwrap_or(u32::MAX)
    }

    pub(super) fn baseline(&self) -> Option<Span> {
        let micros = u64::try_from(self.baseline / ONE).ok().filter(|_| self.learned > 0);
        micros.map(Span::from_micros)
    }

    pub(super) fn is_slow(&self, config: &Gradient, rtt: Span) -> bool {
        // Cannot overflow: see `gradient`.
        let fine = self.baseline * u128::from(config.tolerance) / 100;
        self.learned > 0 && u128::from(rtt.as_micros()) * ONE > fine
    }

    pub(super) fn sample(&mut self, config: &Gradient, now: Time, sample: Sample) -> u32 {
        let gathered = match config.sample {
            None => Some(Gathered::from(sample)),
            Some(length) => self.window.add(now, sample, length),
        };
        if let Some(gathered) = gathered {
            self.step(config, gathered);
        }
        self.limit()
    }

    fn step(&mut self, config: &Gradient, gathered: Gathered) {
        let is_light = u128::from(gathered.in_flight) * 2 * ONE < self.limit;
        if let Some(rtt) = gathered.rtt {
            self.learn(config, rtt, is_light);
        }
        if is_light && gathered.dropped == 0 {
            return;
        }
        let smoothing = u128::from(config.smoothing);
        let gradient = config.gradient(self.baseline, gathered);
        let (least, most) = (u128::from(config.range.min) * ONE, u128::from(config.range.max) * ONE);
        let next = if gradient == ONE && gathered.rtt.is_some() {
            self.limit + u128::from(config.queue) * ONE * smoothing / 100
        } else {
            // Cannot overflow: the limit is below 2^50, the other factors below 2^20 and 2^7.
            self.limit * (ONE * 100 - (ONE - gradient) * smoothing) / (ONE * 100)
        };
        self.limit = next.clamp(least, most);
    }

    fn learn(&mut self, config: &Gradient, rtt: Span, is_light: bool) {
        let rtt = u128::from(rtt.as_micros()) * ONE;
        if self.learned < WARM_UP {
            let learned = u128::from(self.learned);
            self.baseline = (self.baseline * learned + rtt) / (learned + 1);
            self.learned += 1;
        } else if is_light || self.limit() == config.range.min {
            let window = u128::from(config.window);
            self.baseline = (self.baseline * (window - 1) + rtt * 2) / (window + 1);
        }
        self.fast_in_a_row = if self.baseline > rtt * 2 { self.fast_in_a_row.saturating_add(1) } else { 0 };
        if self.fast_in_a_row >= FAST_IN_A_ROW {
            self.baseline = self.baseline * FALLS_TO_PERCENT / 100;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Adaptive;
    use super::*;

    fn usual() -> Adaptive {
        Adaptive::new(Gradient::starting_at(20).unwrap())
    }

    fn took(millis: u64) -> Sample {
        Sample { rtt: Span::from_micros(millis * 1_000), in_flight: 1_000, dropped: false }
    }

    fn after(adaptive: &mut Adaptive, times: u32, sample: Sample) -> u32 {
        (0..times).map(|_| adaptive.sample(Time::EPOCH, sample)).last().unwrap_or_default()
    }

    #[test]
    fn a_dependency_of_constant_speed_reaches_max() {
        let mut limit = usual();
        assert_eq!(after(&mut limit, 10, took(50)), 27, "a fifth of 4 each: 28, less what is rounded");
        assert_eq!(after(&mut limit, 215, took(50)), 199);
        assert_eq!(after(&mut limit, 1_000, took(50)), 200);
        assert_eq!(limit.baseline(), Some(Span::from_micros(50_000)));
    }

    #[test]
    fn the_limit_shrinks_in_proportion_by_at_most_half() {
        let mut limit = usual();
        after(&mut limit, 300, took(50));
        let once = |sample| limit.clone().sample(Time::EPOCH, sample);
        // 1.5 * 50 ms is tolerated. 100 ms is a gradient of 3/4: a fifth of that quarter is 5 %.
        assert_eq!((once(took(75)), once(took(100)), once(took(10_000))), (200, 190, 180));
    }

    #[test]
    fn light_load_does_not_change_the_limit() {
        let mut limit = usual();
        after(&mut limit, 10, took(50));
        let before = limit.limit();
        let light = Sample { in_flight: before / 2, ..took(500) };
        assert_eq!(limit.sample(Time::EPOCH, light), before);
        assert!(limit.baseline() > Some(Span::from_micros(50_000)), "but it is learned from");
    }

    #[test]
    fn a_drop_counts_under_light_load_and_is_not_learned() {
        let mut limit = usual();
        after(&mut limit, 300, took(50));
        let dropped = Sample { dropped: true, in_flight: 1, ..took(1) };
        assert_eq!(limit.sample(Time::EPOCH, dropped), 180);
        assert_eq!(after(&mut limit, 100, dropped), 20);
        assert_eq!(limit.baseline(), Some(Span::from_micros(50_000)));
        assert!(after(&mut limit, 10, took(50)) > 20, "and it comes back");
    }

    #[test]
    fn drops_before_the_first_sample_do_not_raise_the_limit() {
        let mut limit = usual();
        assert_eq!(after(&mut limit, 50, Sample { dropped: true, ..took(5_000) }), 20);
        assert_eq!(limit.baseline(), None);
        assert!(after(&mut limit, 50, took(50)) > 20);
    }

    #[test]
    fn a_lasting_slowdown_is_learned_at_the_lowest_limit() {
        let mut limit = usual();
        after(&mut limit, 300, took(50));
        assert_eq!(after(&mut limit, 200, took(200)), 20);
        assert_eq!(after(&mut limit, 3_000, took(200)), 200);
    }

    #[test]
    fn a_lasting_speedup_is_learned_at_any_limit() {
        let mut limit = usual();
        after(&mut limit, 300, took(500));
        after(&mut limit, 9, took(50));
        assert_eq!(limit.baseline(), Some(Span::from_micros(500_000)), "nine calls are luck");
        after(&mut limit, 200, took(50));
        assert!(limit.baseline() <= Some(Span::from_micros(100_000)), "{:?}", limit.baseline());
    }

    #[test]
    fn a_call_above_the_tolerance_is_slow() {
        let mut limit = usual();
        assert!(!limit.is_slow(Span::MAX), "nothing is known");
        after(&mut limit, 10, took(50));
        assert!(!limit.is_slow(Span::from_micros(75_000)) && limit.is_slow(Span::from_micros(75_001)));
    }

    #[test]
    fn a_window_of_calls_can_be_one_sample() {
        let config = Gradient::starting_at(20).unwrap().with_sample(Span::from_micros(1_000_000)).unwrap();
        let mut limit = Adaptive::new(config);
        let mut over = |seconds: core::ops::Range<u64>, sample| {
            for call in seconds.start * 100..seconds.end * 100 {
                limit.sample(Time::saturating_from_micros(call * 10_000), sample);
            }
            limit.limit()
        };
        assert_eq!(over(0..11, took(50)), 27, "ten windows, a fifth of 4 each");
        assert!(over(11..300, took(50)) == 200);
        assert!(over(300..302, Sample { dropped: true, ..took(50) }) < 200);
    }

    #[test]
    fn errors_name_the_bounds() {
        let config = Gradient::starting_at(20).unwrap();
        let error = |config: Result<Gradient, OutOfBounds>| config.unwrap_err().to_string();
        assert!(error(config.with_queue(0)).starts_with("queue 0 is below the minimum, 1; use at least 1"));
        assert!(error(config.with_smoothing(0)).starts_with("smoothing 0 is below the minimum, 1;"));
        assert!(error(config.with_smoothing(101)).starts_with("smoothing 101 is above the maximum, 100;"));
        assert!(error(config.with_tolerance(99)).starts_with("tolerance 99 is below the minimum, 100;"));
        assert!(
            error(config.with_tolerance(1_001)).starts_with("tolerance 1001 is above the maximum, 1000;")
        );
        assert!(error(config.with_window(0)).starts_with("window 0 is below the minimum, 1;"));
        assert!(
            error(config.with_window(1_000_001)).starts_with("window 1000001 is above the maximum, 1000000;")
        );
        let sampled = |micros| config.with_sample(Span::from_micros(micros));
        assert!(
            error(sampled(99_999)).starts_with("sample 99999us is below the minimum, 100ms; use 100ms to")
        );
        assert!(error(sampled(3_600_000_001)).starts_with("sample 3600000001us is above the maximum, 1h;"));
        assert!(sampled(100_000).is_ok() && sampled(3_600_000_000).is_ok());
    }
}
