//! A share of a limit: what one of several processes may admit on its own.

use super::{Bounds, Initial, Limit, Spec};
use sluicegate_core::bounds::PARTS_MAX;
use sluicegate_core::{Rate, Span};

impl Limit {
    /// Returns a percentage of the limit: its parameters rounded down, at least 1. A percentage
    /// above 100 is 100.
    ///
    /// ```
    /// let limit: sluicegate::Limit = "token-bucket 30/60s burst=15".parse()?;
    /// assert_eq!(limit.share(50).to_string(), "token-bucket 15/min burst=7");
    /// # Ok::<(), sluicegate::LimitError>(())
    /// ```
    #[must_use]
    pub fn share(&self, percent: u32) -> Limit {
        let percent = u64::from(percent.clamp(1, 100));
        // Cannot wrap: a number is at most 10^12.
        let part_or_none = |number: u64| number * percent / 100;
        let part = |number: u64| part_or_none(number).max(1);
        let part_of_rate = |rate: &Rate| Rate::new(part(rate.count()), rate.period()).unwrap_or(*rate);
        // A bucket must keep its rate exactly. If it could not keep this part, it gets a smaller
        // one: a part of the numerator of the reduced rate, or what any bucket can keep.
        let part_of_exact_rate = |rate: &Rate| {
            let (whole, exact) = (part_of_rate(rate), rate.ratio().map_or(1, |ratio| u64::from(ratio.parts)));
            if whole.ratio().is_ok() {
                return whole;
            }
            let smaller = part_or_none(exact) * (rate.count() / exact);
            Rate::new(smaller.max(PARTS_MAX.into()), rate.period()).unwrap_or(*rate)
        };
        let spec = match &self.spec {
            Spec::TokenBucket { rate, burst, initial } => {
                let initial =
                    initial.map(|initial| Initial { tokens: part_or_none(initial.tokens), ..initial });
                Spec::TokenBucket { rate: part_of_exact_rate(rate), burst: part(*burst), initial }
            }
            Spec::LeakyBucket { rate, capacity } => {
                Spec::LeakyBucket { rate: part_of_exact_rate(rate), capacity: part(*capacity) }
            }
            // Half the rate is twice the interval.
            Spec::MinInterval { interval } => Spec::MinInterval {
                interval: Span::from_micros(interval.as_micros().saturating_mul(100) / percent),
            },
            Spec::Pacer { rate, queue } => {
                Spec::Pacer { rate: part_of_exact_rate(rate), queue: part_or_none(*queue) }
            }
            Spec::FixedWindow { count, windows } => {
                Spec::FixedWindow { count: part(*count), windows: windows.clone() }
            }
            Spec::SlidingLog { rate, count_all } => {
                Spec::SlidingLog { rate: part_of_rate(rate), count_all: *count_all }
            }
            Spec::Concurrency { count, ttl } => Spec::Concurrency { count: part(*count), ttl: *ttl },
            Spec::SlidingWindow { rate } => Spec::SlidingWindow { rate: part_of_rate(rate) },
            Spec::Smooth { rate, warm_up, burst, initial, start } => {
                // A warm-up takes as long at any rate.
                Spec::Smooth {
                    rate: part_of_rate(rate),
                    warm_up: *warm_up,
                    burst: burst.map(part),
                    initial: initial.map(part_or_none),
                    start: *start,
                }
            }
        };
        // A share may take longer than a century to fill, or its interval be too long. Then the
        // limit stays whole.
        Limit::new(spec, Bounds::default()).unwrap_or_else(|_| self.clone())
    }
}
