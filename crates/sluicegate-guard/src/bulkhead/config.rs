//! The configuration of a bulkhead, and its parser: `bulkhead 10 queue=5 wait=1s`.

use crate::text::{Config, read};
use sluicegate::LimitError;
use sluicegate::internal::grammar::{Options, SyntaxError, name, number, span};
use sluicegate_core::Span;
use sluicegate_core::bounds::{PERIOD_MAX, checked_permits};
use sluicegate_core::time::SECOND;
use std::fmt;
use std::str::FromStr;

const TAKES: &str = "bulkhead takes queue=N (waiters) and wait=DURATION (maximum wait)";

/// Default of `wait=`: a second, the default timeout of a whole call in Hystrix.
pub const BULKHEAD_WAIT_DEFAULT: Span = Span::from_micros(SECOND);

/// Upper bound of `queue=`. A waiter takes about 200 bytes beside its own future.
pub const BULKHEAD_QUEUE_MAX: u32 = 1_000_000;

/// The configuration of a bulkhead. It prints as the line of text it is parsed from, without
/// defaults.
///
/// ```
/// use sluicegate_guard::bulkhead::BulkheadConfig;
///
/// let spec: BulkheadConfig = "bulkhead 10 queue=5 wait=1000ms".parse()?;
/// assert_eq!((spec.limit(), spec.queue()), (10, 5));
/// assert_eq!(spec.to_string(), "bulkhead 10 queue=5");
///
/// let error = "bulkhead 10 wait=1s".parse::<BulkheadConfig>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "bulkhead 10 wait=1s: wait= has no effect without a queue; add queue=, such as queue=5",
/// );
/// # Ok::<(), sluicegate_guard::LimitError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BulkheadConfig {
    limit: u32,
    queue: u32,
    wait: Span,
}

impl BulkheadConfig {
    /// A bulkhead without a queue. The limit must be within bounds.
    pub(crate) const fn without_queue(limit: u32) -> BulkheadConfig {
        BulkheadConfig { limit, queue: 0, wait: BULKHEAD_WAIT_DEFAULT }
    }

    /// Returns the limit.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Replaces the limit, which must be within bounds.
    pub(super) fn with_limit(self, limit: u32) -> BulkheadConfig {
        BulkheadConfig { limit, ..self }
    }

    /// Returns the capacity of the queue.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Returns the maximum wait.
    pub fn wait(&self) -> Span {
        self.wait
    }
}

impl Config for BulkheadConfig {}

impl FromStr for BulkheadConfig {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<BulkheadConfig, LimitError> {
        read(text, "a bulkhead", "write one, such as bulkhead 10 queue=5 wait=1s", config)
    }
}

fn config(text: &str) -> Result<BulkheadConfig, SyntaxError> {
    let mut words = text.split_ascii_whitespace();
    name("kind", words.next().unwrap_or_default(), &["bulkhead"])?;
    let Some(limit) = words.next().filter(|word| !word.contains('=')) else {
        return Err(SyntaxError::new("bulkhead needs its limit right after it", "write bulkhead 10"));
    };
    let limit = checked_permits("count", number("count", limit)?, 1)?;
    let mut options = Options::read(TAKES, words)?;
    let queue = options.number("queue", 0)?.unwrap_or(0);
    let wait = options.take("wait").map(span).transpose()?;
    options.reject_unknown()?;
    let Some(queue) = u32::try_from(queue).ok().filter(|queue| *queue <= BULKHEAD_QUEUE_MAX) else {
        let problem = format!("queue={queue} is above the maximum, {BULKHEAD_QUEUE_MAX}");
        return Err(SyntaxError::new(problem, "use a smaller queue"));
    };
    if queue == 0 && wait.is_some() {
        let problem = "wait= has no effect without a queue";
        return Err(SyntaxError::new(problem, "add queue=, such as queue=5"));
    }
    if let Some(wait) = wait.filter(|wait| *wait == Span::ZERO || *wait > PERIOD_MAX) {
        let problem = format!("wait={wait} is not from 1us to 3650d");
        return Err(SyntaxError::new(problem, "omit queue= to deny without waiting"));
    }
    Ok(BulkheadConfig { limit, queue, wait: wait.unwrap_or(BULKHEAD_WAIT_DEFAULT) })
}

impl fmt::Display for BulkheadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BulkheadConfig { limit, queue, wait } = self;
        write!(f, "bulkhead {limit}")?;
        if *queue > 0 {
            write!(f, " queue={queue}")?;
        }
        if *wait == BULKHEAD_WAIT_DEFAULT { Ok(()) } else { write!(f, " wait={wait}") }
    }
}
