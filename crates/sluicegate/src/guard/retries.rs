//! Retries: the line of text, and the budget that calls share.

use crate::grammar::{Mistake, Options, name, number, percent, span};
use crate::limit::LimitError;
use crate::limiter::BuildError;
use crate::sync::Lock;
use sluicegate_core::retry::{
    BACKOFF_DEFAULT, Budget, FLOOR_DEFAULT, MAX_BACKOFF_DEFAULT, PERCENT_DEFAULT, Retry,
};
use sluicegate_core::{Span, Time};
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest text that can be a retry, in bytes.
const TEXT_MAX: usize = 256;

const TAKES: &str = "retry takes budget=PERCENT floor=N backoff=DURATION max-backoff=DURATION";

/// How to try again, as one line of text: `retry 2 budget=10% floor=10 backoff=50ms max-backoff=1s`.
///
/// ```
/// use sluicegate::guard::RetryRules;
///
/// let rules: RetryRules = "retry 2 budget=10% backoff=100ms".parse()?;
/// assert_eq!(rules.to_string(), "retry 2 backoff=100ms");
/// assert_eq!((rules.rules().tries(), rules.rules().percent()), (2, 10));
///
/// let mistake = "retry 2 budget=10".parse::<RetryRules>().unwrap_err();
/// assert_eq!(mistake.to_string(), r#"retry 2 budget=10: budget "10" has no %; write 10%"#);
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RetryRules(Retry);

impl RetryRules {
    /// Its numbers.
    pub fn rules(&self) -> &Retry {
        &self.0
    }
}

impl From<Retry> for RetryRules {
    fn from(retry: Retry) -> RetryRules {
        RetryRules(retry)
    }
}

/// What retries can be made of: a text, or rules.
pub trait IntoRetryRules {
    /// The rules.
    ///
    /// # Errors
    /// When a text is none.
    fn into_rules(self) -> Result<RetryRules, LimitError>;
}

impl IntoRetryRules for &str {
    fn into_rules(self) -> Result<RetryRules, LimitError> {
        self.parse()
    }
}

impl IntoRetryRules for &String {
    fn into_rules(self) -> Result<RetryRules, LimitError> {
        self.parse()
    }
}

impl<R: Into<RetryRules>> IntoRetryRules for R {
    fn into_rules(self) -> Result<RetryRules, LimitError> {
        Ok(self.into())
    }
}

impl FromStr for RetryRules {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<RetryRules, LimitError> {
        let refuse = |Mistake { problem, advice }| LimitError::new(text, problem, advice);
        read(text).map(RetryRules).map_err(refuse)
    }
}

fn read(text: &str) -> Result<Retry, Mistake> {
    if text.len() > TEXT_MAX {
        let problem = format!("a retry of {} bytes is above the most, {TEXT_MAX}", text.len());
        return Err(Mistake::new(problem, "write one, such as retry 2 budget=10%"));
    }
    let mut words = text.split_ascii_whitespace();
    let Some(word) = words.next() else {
        return Err(Mistake::new("the retry is empty", "write one, such as retry 2 budget=10%"));
    };
    name("word", word, &["retry"])?;
    let Some(tries) = words.next().filter(|word| !word.contains('=')) else {
        return Err(Mistake::new("retry needs how many further tries right after it", "write retry 2"));
    };
    let retry = Retry::new(number("count", tries)?)?;
    let mut options = Options::read(TAKES, words)?;
    let budget = options.take("budget").map(|word| percent("budget", word)).transpose()?;
    let floor = options.take("floor").map(|word| number("floor", word)).transpose()?;
    let backoff = options.take("backoff").map(span).transpose()?;
    let max_backoff = options.take("max-backoff").map(span).transpose()?;
    options.refuse_the_rest()?;
    let (first, max) = (backoff.unwrap_or(BACKOFF_DEFAULT), max_backoff.unwrap_or(MAX_BACKOFF_DEFAULT));
    let retry = retry.with_budget(
        budget.unwrap_or(u64::from(PERCENT_DEFAULT)),
        floor.unwrap_or(u64::from(FLOOR_DEFAULT)),
    )?;
    if first > max {
        let problem = format!("backoff={first} is above max-backoff={max}");
        return Err(Mistake::new(problem, format!("add max-backoff={first}, or more")));
    }
    Ok(retry.with_backoff(first, max)?)
}

impl fmt::Display for RetryRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = &self.0;
        write!(f, "retry {}", retry.tries())?;
        if retry.percent() != PERCENT_DEFAULT {
            write!(f, " budget={}%", retry.percent())?;
        }
        if retry.floor() != FLOOR_DEFAULT {
            write!(f, " floor={}", retry.floor())?;
        }
        if retry.backoff() != BACKOFF_DEFAULT {
            write!(f, " backoff={}", retry.backoff())?;
        }
        if retry.max_backoff() != MAX_BACKOFF_DEFAULT {
            write!(f, " max-backoff={}", retry.max_backoff())?;
        }
        Ok(())
    }
}

/// Retries with their budget, which all guards share that are given the same one. Its clones are the same.
///
/// ```
/// use sluicegate::guard::{Guard, Retries};
///
/// // Both call the same database: together they try again at most 10 % of their calls.
/// let retries = Retries::new("retry 2 budget=10%")?;
/// let reads = Guard::builder("reads").retry(&retries).build()?;
/// let lists = Guard::builder("lists").retry(&retries).build()?;
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Retries {
    inner: Arc<Inner>,
}

struct Inner {
    rule: Retry,
    budget: Lock<Budget>,
    random: AtomicU64,
}

impl Retries {
    /// Retries as they are written, or as rules say.
    ///
    /// # Errors
    /// When a text is no retry.
    pub fn new(rules: impl IntoRetryRules) -> Result<Retries, BuildError> {
        // Another one in each process: nobody's rests should be in step with another's.
        Retries::seeded(rules, RandomState::new().hash_one(0))
    }

    /// The same with rests drawn from a seed, for tests.
    ///
    /// # Errors
    /// When a text is no retry.
    pub fn seeded(rules: impl IntoRetryRules, seed: u64) -> Result<Retries, BuildError> {
        let RetryRules(rule) = rules.into_rules()?;
        let inner = Inner { rule, budget: Lock::new(Budget::default()), random: AtomicU64::new(seed) };
        Ok(Retries { inner: Arc::new(inner) })
    }

    /// Its rules.
    pub fn rules(&self) -> RetryRules {
        RetryRules(self.inner.rule)
    }

    /// A call is made, for the first time.
    pub(super) fn call(&self, now: Time) {
        self.inner.budget.lock().call(now);
    }

    /// How long to rest before the n-th retry, if there is to be one.
    pub(super) fn rest(&self, nth: u32) -> Option<Span> {
        (nth <= self.inner.rule.tries()).then(|| self.inner.rule.rest(nth, self.random()))
    }

    /// Whether the budget has one left, which is then spent.
    pub(super) fn spend(&self, now: Time) -> bool {
        self.inner.budget.lock().try_again(&self.inner.rule, now)
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
        f.debug_struct("Retries").field("rules", &self.rules().to_string()).finish_non_exhaustive()
    }
}
