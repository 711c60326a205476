//! A bulkhead as one line of text: `bulkhead 10 queue=5 wait=1s`.

use crate::text::{Config, read};
use sluicegate::LimitError;
use sluicegate::internal::grammar::{Options, SyntaxError, name, number, span};
use sluicegate_core::Span;
use sluicegate_core::bounds::{PERIOD_MAX, checked_count};
use sluicegate_core::time::SECOND;
use std::fmt;
use std::str::FromStr;

const TAKES: &str = "bulkhead takes queue= (how many wait) and wait= (how long at the most)";

/// How long somebody in the queue waits at the most unless told otherwise: a second, as long as Hystrix lets a whole call take.
pub const BULKHEAD_WAIT_DEFAULT: Span = Span::from_micros(SECOND);

/// The most who can be let wait for a permit of one bulkhead. Each takes some 200 bytes beside its own future.
pub const BULKHEAD_QUEUE_MAX: u32 = 1_000_000;

/// What a bulkhead lets in, as data. It prints as the line of text it is read from, defaults dropped.
///
/// ```
/// use sluicegate_guard::bulkhead::BulkheadConfig;
///
/// let spec: BulkheadConfig = "bulkhead 10 queue=5 wait=1000ms".parse()?;
/// assert_eq!((spec.limit(), spec.queue()), (10, 5));
/// assert_eq!(spec.to_string(), "bulkhead 10 queue=5");
///
/// let mistake = "bulkhead 10 wait=1s".parse::<BulkheadConfig>().unwrap_err();
/// assert_eq!(
///     mistake.to_string(),
///     "bulkhead 10 wait=1s: wait= is for those in the queue, and there is none; add queue=, such as queue=5",
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
    /// How many may be in at once.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The same with another limit, which is within bounds.
    pub(super) fn with_limit(self, limit: u32) -> BulkheadConfig {
        BulkheadConfig { limit, ..self }
    }

    /// How many may wait for a permit.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// How long they wait at the most.
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
        return Err(SyntaxError::new("bulkhead needs how many right after it", "write bulkhead 10"));
    };
    let limit = checked_count("count", number("count", limit)?, 1)?;
    let mut options = Options::read(TAKES, words)?;
    let queue = options.number("queue", 0)?.unwrap_or(0);
    let wait = options.take("wait").map(span).transpose()?;
    options.refuse_the_rest()?;
    if queue > BULKHEAD_QUEUE_MAX {
        let problem = format!("queue={queue} is above the most, {BULKHEAD_QUEUE_MAX}");
        return Err(SyntaxError::new(problem, "let fewer wait"));
    }
    if queue == 0 && wait.is_some() {
        let problem = "wait= is for those in the queue, and there is none";
        return Err(SyntaxError::new(problem, "add queue=, such as queue=5"));
    }
    if let Some(wait) = wait.filter(|wait| *wait == Span::ZERO || *wait > PERIOD_MAX) {
        let problem = format!("wait={wait} is not from 1us to 3650d");
        return Err(SyntaxError::new(problem, "cancel queue= out if nobody is to wait"));
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
