//! Retries of failed calls, within a budget that all calls share.
//!
//! `budget.rs` is the pure state machine, `parse.rs` the parser; this module adds the lock and the
//! random numbers.

mod budget;
mod parse;

pub use budget::{
    BACKOFF_DEFAULT, Budget, FLOOR_DEFAULT, FLOOR_MAX, MAX_BACKOFF_DEFAULT, PERCENT_DEFAULT, PERCENT_MAX,
    RETRIES_MAX, RetryConfig,
};

use crate::text::IntoConfig;
use sluicegate::BuildError;
use sluicegate::internal::sync::Lock;
use sluicegate_core::{Span, Time};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Retries with their budget, which is shared by all guards that are given the same value. Clones
/// share it too.
///
/// ```
/// use sluicegate_guard::{Guard, Retries};
///
/// // Both call the same database: together they retry at most 10 % of their calls.
/// let retries = Retries::new("retry 2 budget=10%")?;
/// let reads = Guard::builder("reads").retry(&retries).build()?;
/// let lists = Guard::builder("lists").retry(&retries).build()?;
/// # Ok::<(), sluicegate_guard::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Retries {
    inner: Arc<Inner>,
}

struct Inner {
    config: RetryConfig,
    budget: Lock<Budget>,
    random: AtomicU64,
}

impl Retries {
    /// Creates retries from a line of text or a configuration.
    ///
    /// # Errors
    /// If the text is not a valid retry.
    pub fn new(config: impl IntoConfig<RetryConfig>) -> Result<Retries, BuildError> {
        // Random per process, so that processes do not retry in step.
        Retries::seeded(config, RandomState::new().hash_one(0))
    }

    /// Creates retries whose delays are drawn from a seed, for tests.
    ///
    /// # Errors
    /// If the text is not a valid retry.
    pub fn seeded(config: impl IntoConfig<RetryConfig>, seed: u64) -> Result<Retries, BuildError> {
        let config = config.into_config()?;
        let inner = Inner { config, budget: Lock::new(Budget::default()), random: AtomicU64::new(seed) };
        Ok(Retries { inner: Arc::new(inner) })
    }

    /// Returns the configuration.
    pub fn config(&self) -> RetryConfig {
        self.inner.config
    }

    /// Counts a call's first attempt.
    pub(crate) fn call(&self, now: Time) {
        self.inner.budget.lock().call(now);
    }

    /// Returns the delay before the n-th retry, or `None` if there are no more retries.
    pub(crate) fn delay(&self, nth: u32) -> Option<Span> {
        (nth <= self.inner.config.max_retries()).then(|| self.inner.config.delay(nth, self.random()))
    }

    /// Spends one retry of the budget. Returns `false` if none is left.
    pub(crate) fn spend(&self, now: Time) -> bool {
        self.inner.budget.lock().try_retry(&self.inner.config, now)
    }

    /// Splitmix64: every call takes the next number, on any thread.
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut number = self.inner.random.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }
}

impl fmt::Debug for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retries").field("config", &self.config().to_string()).finish_non_exhaustive()
    }
}
