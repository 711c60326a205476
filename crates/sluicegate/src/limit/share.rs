//! A share of a limit: what one of several processes may admit on its own.

use super::{Bounds, Initial, Limit, Spec};
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
        // Cannot overflow: it is at most `number`.
        let part = |number: u32| u32::try_from((u64::from(number) * percent / 100).max(1)).unwrap_or(number);
        let part_of_rate =
            |rate: &Rate| Rate::new(u64::from(part(rate.count())), rate.period()).unwrap_or(*rate);
        let spec = match &self.spec {
            Spec::TokenBucket { rate, burst, initial } => {
                let initial = initial.map(|initial| {
                    let tokens = u64::from(initial.tokens) * percent / 100;
                    Initial { tokens: u32::try_from(tokens).unwrap_or(0), ..initial }
                });
                Spec::TokenBucket { rate: part_of_rate(rate), burst: part(*burst), initial }
            }
            Spec::LeakyBucket { rate, capacity } => {
                Spec::LeakyBucket { rate: part_of_rate(rate), capacity: part(*capacity) }
            }
            // Half the rate is twice the interval.
            Spec::MinInterval { interval } => Spec::MinInterval {
                interval: Span::from_micros(interval.as_micros().saturating_mul(100) / percent),
            },
            Spec::Pacer { rate, queue } => {
                let queue = u64::from(*queue) * percent / 100;
                Spec::Pacer { rate: part_of_rate(rate), queue: u32::try_from(queue).unwrap_or(0) }
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
                let initial = initial.map(|permits| u64::from(permits) * percent / 100);
                Spec::Smooth {
                    rate: part_of_rate(rate),
                    warm_up: *warm_up,
                    burst: burst.map(part),
                    initial: initial.map(|permits| u32::try_from(permits).unwrap_or(0)),
                    start: *start,
                }
            }
        };
        // A share may take longer than a century to fill, or its interval be too long. Then the
        // limit stays whole.
        Limit::new(spec, Bounds::default()).unwrap_or_else(|_| self.clone())
    }
}
