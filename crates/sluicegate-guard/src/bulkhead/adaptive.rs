//! A bulkhead with an adaptive limit: [`AdaptiveLimit`] as its algorithm.

use super::adapt::{Adapt, CompletedCall};
use super::{Bulkhead, BulkheadBuilder, BulkheadConfig};
use crate::Outcome;
use crate::adaptive::{Adaptive, AdaptiveLimit, Sample};
use sluicegate::BuildError;

impl Bulkhead {
    /// Creates a bulkhead with an adaptive limit, `aimd 20` or `gradient 20`: see
    /// [`AdaptiveLimit`]. It has no queue; for one, use [`BulkheadBuilder::adaptive`].
    ///
    /// It learns from outcomes, so report them with
    /// [`Permit::finish`](crate::bulkhead::Permit::finish):
    ///
    /// ```
    /// use sluicegate_guard::{Bulkhead, Outcome};
    ///
    /// let payments = Bulkhead::adaptive("aimd 10 min=1")?;
    /// payments.try_acquire().unwrap().finish(Outcome::Failure);
    /// assert_eq!(payments.stats().limit, 9);
    /// # Ok::<(), sluicegate_guard::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// If the text is not a valid adaptive limit.
    pub fn adaptive(text: &str) -> Result<Bulkhead, BuildError> {
        Bulkhead::builder(BulkheadConfig::without_queue(1)).adaptive(text).build()
    }

    /// Returns the builder of a fixed or adaptive bulkhead, depending on the first word.
    pub(crate) fn from_text(text: &str) -> BulkheadBuilder {
        match text.split_ascii_whitespace().next() {
            Some("aimd" | "gradient") => Bulkhead::builder(BulkheadConfig::without_queue(1)).adaptive(text),
            _ => Bulkhead::builder(text),
        }
    }

    /// Returns `true` if the limit is adaptive.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.inner.adapt.is_some()
    }
}

impl BulkheadBuilder {
    /// Makes the limit adaptive. It starts with the line's number instead of the bulkhead's own.
    ///
    /// - A success counts with its duration. A failure counts as dropped: the dependency did not do
    ///   the work.
    /// - An ignored call counts nothing.
    /// - A permit dropped without an outcome counts nothing, unless the call had already taken too
    ///   long: a caller that gives up is often the only sign of a slow dependency.
    pub fn adaptive(mut self, text: &str) -> BulkheadBuilder {
        self.config = self.config.and_then(|config| {
            let limit: AdaptiveLimit = text.parse()?;
            self.adapt = Some(Box::new(AdaptiveAlgorithm(Adaptive::new(limit))));
            Ok(config.with_limit(limit.range().start()))
        });
        self
    }
}

/// An adaptive limit as the algorithm of a bulkhead.
struct AdaptiveAlgorithm(Adaptive);

impl Adapt for AdaptiveAlgorithm {
    fn after_call(&mut self, call: &CompletedCall) -> u32 {
        let dropped = match call.outcome {
            Outcome::Success => false,
            Outcome::Failure => true,
            Outcome::Dropped if self.0.is_slow(call.took) => true,
            Outcome::Ignored | Outcome::Dropped => return self.0.limit(),
        };
        self.0.sample(call.at, Sample { rtt: call.took, in_flight: call.in_use, dropped })
    }
}
