//! A bulkhead whose limit finds itself: [`AdaptiveLimit`] as the rule that moves it.

use super::adapt::{Adapt, CompletedCall};
use super::{Bulkhead, BulkheadBuilder};
use crate::Outcome;
use crate::adaptive::{Adaptive, AdaptiveLimit, Sample};
use sluicegate::BuildError;

impl Bulkhead {
    /// A bulkhead that finds its own limit: `aimd 20` or `gradient 20`, as [`AdaptiveLimit`] has them. Nobody waits for a permit; for that,
    /// [`BulkheadBuilder::adaptive`].
    ///
    /// It learns from how calls end, so tell it with [`Permit::finish`](crate::bulkhead::Permit::finish):
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
    /// When the text is not an adaptive limit: one line that says why, and what to write.
    pub fn adaptive(text: &str) -> Result<Bulkhead, BuildError> {
        Bulkhead::builder("bulkhead 1").adaptive(text).build()
    }

    /// A bulkhead of either kind, by the first word of its line.
    pub(crate) fn from_text(text: &str) -> BulkheadBuilder {
        match text.split_ascii_whitespace().next() {
            Some("aimd" | "gradient") => Bulkhead::builder("bulkhead 1").adaptive(text),
            _ => Bulkhead::builder(text),
        }
    }

    /// Whether its limit finds itself.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.inner.adapt.is_some()
    }
}

impl BulkheadBuilder {
    /// Moves the limit by how calls end, beginning with what the line says instead of the bulkhead's own number.
    ///
    /// - A success counts with the time it took; a failure counts as dropped: the dependency did not do the work.
    /// - What is ignored says nothing.
    /// - A permit that is dropped without a word says nothing either, unless the call had already taken too long: who gives up on a
    ///   slow dependency is how one often hears of it.
    pub fn adaptive(mut self, text: &str) -> BulkheadBuilder {
        self.config = self.config.and_then(|config| {
            let limit: AdaptiveLimit = text.parse()?;
            self.adapt = Some(Box::new(AdaptiveAlgorithm(Adaptive::new(limit))));
            Ok(config.with_limit(limit.range().start()))
        });
        self
    }
}

/// An adaptive limit as the rule of a bulkhead.
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
