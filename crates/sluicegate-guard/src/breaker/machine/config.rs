//! The configuration of a breaker, validated once. After that the machine cannot fail or overflow.

use super::rolling::Counts;
use core::hash::{Hash, Hasher};
use sluicegate_core::Span;
use sluicegate_core::bounds::{OutOfBounds, PERMITS_MAX, checked_number, checked_span};
use sluicegate_core::time::{DAY, SECOND};

/// The largest window of calls. A call takes 2 bits, so at most 25 kB.
pub const WINDOW_CALLS_MAX: u32 = 100_000;
/// The shortest window of time; its slices are 50 microseconds.
pub const WINDOW_TIME_MIN: Span = Span::from_micros(1_000);
/// The longest window of time, `open`, `probe-ttl` and `slow`.
pub const DURATION_MAX: Span = Span::from_micros(DAY);
/// The most probes of a half-open phase. Each takes 16 bytes while in flight.
pub const PROBES_MAX: u32 = 1_000;
/// Default of `min` for a window of time, as in Hystrix.
pub const MIN_DEFAULT: u32 = 20;
/// Default of `open`, as in Hystrix.
pub const OPEN_DEFAULT: Span = Span::from_micros(5 * SECOND);
/// Default of `probes`, as in Hystrix.
pub const PROBES_DEFAULT: u32 = 1;
/// Default of `slow-rate`, as in resilience4j.
pub const SLOW_RATE_DEFAULT: u8 = 100;

/// The outcomes that count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Window {
    /// Those of a period, cut into [`super::SLICES`] slices.
    Time(Span),
    /// The last N.
    Calls(u32),
}

/// When a call is slow, and which share of slow calls opens the breaker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slow {
    /// A call that took longer than this is slow.
    pub longer_than: Span,
    /// The percentage of slow calls that opens a breaker.
    pub rate: u8,
}

/// When a breaker opens, and what it takes to close it again. Always within bounds.
///
/// It is also one line of text. Equal configurations print the same canonical text, which parses to
/// an equal configuration.
///
/// ```
/// use sluicegate_guard::breaker::BreakerConfig;
///
/// let rules: BreakerConfig = "breaker 50%/10s min=20 open=60s slow=2s".parse()?;
/// assert_eq!(rules.to_string(), "breaker 50%/10s open=1min slow=2s");
/// assert_eq!(rules.probes(), 1);
///
/// let error = "breaker 50/10s".parse::<BreakerConfig>().unwrap_err();
/// assert_eq!(error.to_string(), r#"breaker 50/10s: failure rate "50" has no %; write 50%"#);
/// # Ok::<(), sluicegate_guard::LimitError>(())
/// ```
///
/// ```
/// use sluicegate_guard::Span;
/// use sluicegate_guard::breaker::{BreakerConfig, Window};
///
/// let hystrix = BreakerConfig::new(50, Window::Time(Span::from_micros(10_000_000)))?;
/// assert_eq!((hystrix.min(), hystrix.open().to_string().as_str(), hystrix.probes()), (20, "5s", 1));
/// let strict = hystrix.with_probes(3)?.with_slow(Span::from_micros(2_000_000), 80)?;
/// assert_eq!(strict.probes(), 3);
/// # Ok::<(), sluicegate_core::bounds::OutOfBounds>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BreakerConfig {
    window: Window,
    failure_rate: u8,
    min: u32,
    open: Span,
    probes: u32,
    /// Equals `open` if `None`.
    probe_ttl: Option<Span>,
    slow: Option<Slow>,
    metrics_only: bool,
}

impl BreakerConfig {
    /// The fields to compare: an omitted `probe-ttl` equals one as long as `open`.
    fn canonical(&self) -> impl Eq + Hash + use<> {
        let BreakerConfig { window, failure_rate, min, open, probes, slow, metrics_only, .. } = *self;
        (window, failure_rate, min, open, probes, self.probe_ttl(), slow, metrics_only)
    }

    /// Creates a configuration that opens at this percentage of failures. The other settings are
    /// Hystrix's, except that a window of calls must be full first, as in resilience4j.
    ///
    /// # Errors
    /// If the percentage is not within 1 to 100, or the window is empty or too large.
    pub fn new(failure_rate: u64, window: Window) -> Result<BreakerConfig, OutOfBounds> {
        let failure_rate = percent("failure rate", failure_rate)?;
        let min = match window {
            Window::Time(span) => {
                between("window", span, WINDOW_TIME_MIN, "use at least 1ms")?;
                MIN_DEFAULT
            }
            Window::Calls(calls) => {
                let advice = ["use at least 1 call", "use a window of time, such as 10s"];
                checked_number("window of calls", u64::from(calls), (1, WINDOW_CALLS_MAX), advice)?
            }
        };
        Ok(BreakerConfig {
            window,
            failure_rate,
            min,
            open: OPEN_DEFAULT,
            probes: PROBES_DEFAULT,
            probe_ttl: None,
            slow: None,
            metrics_only: false,
        })
    }

    /// The minimum number of calls in the window for it to open.
    ///
    /// # Errors
    /// If it is 0, or exceeds a window of calls: such a breaker would never open.
    pub fn with_min(self, min: u64) -> Result<BreakerConfig, OutOfBounds> {
        let (most, advice) = match self.window {
            Window::Time(_) => (PERMITS_MAX, "use a smaller number"),
            Window::Calls(calls) => (calls, "the window holds no more calls, use fewer"),
        };
        let min =
            checked_number("min", min, (1, most), ["use at least 1, to open at the first failure", advice])?;
        Ok(BreakerConfig { min, ..self })
    }

    /// How long it stays open.
    ///
    /// # Errors
    /// If it is 0 or above [`DURATION_MAX`].
    pub fn with_open(self, open: Span) -> Result<BreakerConfig, OutOfBounds> {
        Ok(BreakerConfig { open: duration("open", open)?, ..self })
    }

    /// The number of probes admitted when half-open.
    ///
    /// # Errors
    /// If it is 0 or above [`PROBES_MAX`].
    pub fn with_probes(self, probes: u64) -> Result<BreakerConfig, OutOfBounds> {
        let advice = ["without a probe it would stay open forever, use at least 1", "use fewer"];
        Ok(BreakerConfig { probes: checked_number("probes", probes, (1, PROBES_MAX), advice)?, ..self })
    }

    /// How long a probe may take before it counts as failed. The default is `open`.
    ///
    /// # Errors
    /// If it is 0 or above [`DURATION_MAX`].
    pub fn with_probe_ttl(self, ttl: Span) -> Result<BreakerConfig, OutOfBounds> {
        let ttl = duration("probe-ttl", ttl)?;
        Ok(BreakerConfig { probe_ttl: Some(ttl), ..self })
    }

    /// Calls that take longer than this are slow, and this percentage of slow calls opens it too.
    ///
    /// # Errors
    /// If the duration is 0 or above [`DURATION_MAX`], or the percentage is not within 1 to 100.
    pub fn with_slow(self, longer_than: Span, rate: u64) -> Result<BreakerConfig, OutOfBounds> {
        let slow = Slow { longer_than: duration("slow", longer_than)?, rate: percent("slow-rate", rate)? };
        Ok(BreakerConfig { slow: Some(slow), ..self })
    }

    /// Whether it only counts, and reports when it would have opened.
    #[must_use]
    pub fn with_metrics_only(self, metrics_only: bool) -> BreakerConfig {
        BreakerConfig { metrics_only, ..self }
    }

    /// The outcomes that count.
    pub const fn window(&self) -> Window {
        self.window
    }

    /// The percentage of failed calls that opens it.
    pub const fn failure_rate(&self) -> u8 {
        self.failure_rate
    }

    /// The minimum number of calls in the window for it to open.
    pub const fn min(&self) -> u32 {
        self.min
    }

    /// How long it stays open.
    pub const fn open(&self) -> Span {
        self.open
    }

    /// The number of probes of a half-open phase.
    pub const fn probes(&self) -> u32 {
        self.probes
    }

    /// How long a probe may take before it counts as failed.
    pub fn probe_ttl(&self) -> Span {
        self.probe_ttl.unwrap_or(self.open)
    }

    /// When a call is slow, if that is configured.
    pub const fn slow(&self) -> Option<Slow> {
        self.slow
    }

    /// Returns `true` if it only counts.
    pub const fn metrics_only(&self) -> bool {
        self.metrics_only
    }

    /// Returns `true` if a call that took this long is slow.
    #[inline]
    pub fn is_slow(&self, took: Span) -> bool {
        self.slow.is_some_and(|slow| took > slow.longer_than)
    }

    /// Returns `true` if the counts of a window open the breaker.
    #[inline]
    pub(super) fn opens(&self, counts: &Counts) -> bool {
        counts.total >= u64::from(self.min) && self.too_many(counts)
    }

    /// Returns `true` if the share of failed or slow calls is too high.
    #[inline]
    pub(super) fn too_many(&self, counts: &Counts) -> bool {
        let Counts { total, failed, slow } = *counts;
        // Cannot overflow: calls are counted one by one, far below 2^57.
        let reaches = |part: u64, percent: u8| part * 100 >= u64::from(percent) * total;
        reaches(failed, self.failure_rate) || self.slow.is_some_and(|limit| reaches(slow, limit.rate))
    }
}

impl PartialEq for BreakerConfig {
    fn eq(&self, other: &BreakerConfig) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Eq for BreakerConfig {}

impl Hash for BreakerConfig {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.canonical().hash(hasher);
    }
}

fn percent(what: &'static str, value: u64) -> Result<u8, OutOfBounds> {
    let advice = ["0% would open it at once, use 1% to 100%", "use 1% to 100%"];
    checked_number(what, value, (1, 100), advice)
}

fn duration(what: &'static str, span: Span) -> Result<Span, OutOfBounds> {
    between(what, span, Span::from_micros(1), "use at least 1us")
}

fn between(what: &'static str, span: Span, least: Span, advice: &'static str) -> Result<Span, OutOfBounds> {
    checked_span(what, span, (least, DURATION_MAX), [advice, "use at most 1d"])
}
