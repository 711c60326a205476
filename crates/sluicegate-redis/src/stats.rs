//! What is counted of a store's calls.

use sluicegate::backend::{Source, StoreFailure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The sources that answers of a limiter in a store have.
const SOURCES: [Source; 5] =
    [Source::Store, Source::Remembered, Source::Local, Source::Allowed, Source::Denied];
/// At least this much time is between two log lines that the store answers again.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What a store has answered so far, and how often it has failed: see [`RedisStore::stats`](crate::RedisStore::stats).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RedisStats {
    /// How many answers had which source.
    pub answers: Vec<(Source, u64)>,
    /// How often the store failed, also where a limiter answered without it.
    pub failures: Failures,
}

impl RedisStats {
    /// How many answers had this source.
    pub fn answers_by(&self, source: Source) -> u64 {
        self.answers.iter().find(|(by, _)| *by == source).map_or(0, |(_, answers)| *answers)
    }
}

/// How often a store has failed, by what went wrong: see [`StoreFailure`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Failures {
    /// The call was not sent.
    pub away: u64,
    /// No answer came in time.
    pub late: u64,
    /// The connection broke, or the answer could not be used.
    pub lost: u64,
    /// It refused.
    pub refused: u64,
}

/// The counters behind [`RedisStats`].
#[derive(Default)]
pub(crate) struct Counters {
    answers: [AtomicU64; SOURCES.len()],
    failures: [AtomicU64; 4],
    /// The store refused the last call.
    refuses: AtomicBool,
    /// How many calls it has not answered since it last did.
    unanswered: AtomicU64,
    logged: Mutex<Option<Instant>>,
}

impl Counters {
    pub(crate) fn view(&self) -> RedisStats {
        let [away, late, lost, refused] = self.failures.each_ref().map(|count| count.load(Relaxed));
        RedisStats {
            answers: SOURCES.into_iter().zip(self.answers.iter().map(|count| count.load(Relaxed))).collect(),
            failures: Failures { away, late, lost, refused },
        }
    }

    /// Counts an answer by its source, or a call that has none.
    pub(crate) fn count(&self, source: Option<Source>) {
        let Some(source) = source else {
            self.unanswered.fetch_add(1, Relaxed);
            return;
        };
        if let Some(index) = SOURCES.iter().position(|known| *known == source) {
            self.answers[index].fetch_add(1, Relaxed);
        }
        if source.is_fallback() {
            self.unanswered.fetch_add(1, Relaxed);
        } else if source == Source::Store && self.unanswered.load(Relaxed) > 0 {
            self.answers_again();
        }
    }

    #[cold]
    fn answers_again(&self) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a store that fails now and then, a line per second tells enough.
        if logged.is_some_and(|logged| logged.elapsed() < LOG_INTERVAL) {
            return;
        }
        *logged = Some(Instant::now());
        let calls = self.unanswered.swap(0, Relaxed);
        if calls > 0 {
            info!("the store answers again; it did not answer {calls} calls before");
        }
    }

    /// Counts what came of a script call.
    pub(crate) fn sent<T>(&self, answer: &Result<T, StoreFailure>) {
        let Err(failure) = answer else {
            if self.refuses.load(Relaxed) && self.refuses.swap(false, Relaxed) {
                info!("the store refuses no more");
            }
            return;
        };
        // Logged once, and not for each call. (The link logs that the store is away.)
        if let StoreFailure::Rejected(why) = failure
            && !self.refuses.swap(true, Relaxed)
        {
            warn!("the store refuses calls: {why}");
        }
        let index = match failure {
            StoreFailure::Unavailable(_) => 0,
            StoreFailure::TimedOut { .. } => 1,
            StoreFailure::Rejected(_) => 3,
            // The connection broke, or the reply could not be used.
            _ => 2,
        };
        self.failures[index].fetch_add(1, Relaxed);
    }
}
