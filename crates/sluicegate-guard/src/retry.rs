//! Retries: further tries of a call, within a budget that all calls share.
//!
//! `budget.rs` is the pure rule, `spec.rs` the line of text; here are the lock and the random numbers.

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

/// Retries with their budget, which all guards share that are given the same one. Its clones are the same.
///
/// ```
/// use sluicegate_guard::{Guard, Retries};
///
/// // Both call the same database: together they try again at most 10 % of their calls.
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
    /// Retries as they are written, or as rules say.
    ///
    /// # Errors
    /// When a text is no retry.
    pub fn new(config: impl IntoConfig<RetryConfig>) -> Result<Retries, BuildError> {
        // Another one in each process: nobody's rests should be in step with another's.
        Retries::seeded(config, RandomState::new().hash_one(0))
    }

    /// The same with rests drawn from a seed, for tests.
    ///
    /// # Errors
    /// When a text is no retry.
    pub fn seeded(config: impl IntoConfig<RetryConfig>, seed: u64) -> Result<Retries, BuildError> {
        let config = config.into_config()?;
        let inner = Inner { config, budget: Lock::new(Budget::default()), random: AtomicU64::new(seed) };
        Ok(Retries { inner: Arc::new(inner) })
    }

    /// Its rules.
    pub fn config(&self) -> RetryConfig {
        self.inner.config
    }

    /// A call is made, for the first time.
    pub(crate) fn call(&self, now: Time) {
        self.inner.budget.lock().call(now);
    }

    /// How long to rest before the n-th retry, if there is to be one.
    pub(crate) fn delay(&self, nth: u32) -> Option<Span> {
        (nth <= self.inner.config.max_retries()).then(|| self.inner.config.delay(nth, self.random()))
    }

    /// Whether the budget has one left, which is then spent.
    pub(crate) fn spend(&self, now: Time) -> bool {
        self.inner.budget.lock().try_again(&self.inner.config, now)
    }

    /// Splitmix64: each call has the next number, whatever thread it is in.
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
