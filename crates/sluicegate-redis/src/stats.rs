//! The statistics of a store.

use crate::link::rejects_writes;
use sluicegate::backend::{Source, StoreFailure};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The sources that an answer of a limiter in a store can have.
const SOURCES: [Source; 5] =
    [Source::Store, Source::Remembered, Source::Local, Source::Allowed, Source::Denied];
/// The least time between two log lines about recovery.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The answers and failures of a store: see [`RedisStore::stats`](crate::RedisStore::stats).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RedisStats {
    /// The number of answers by source.
    pub answers: Vec<(Source, u64)>,
    /// The failures of the store, including those that a fallback answered for.
    pub failures: Failures,
    /// Keys that the servers evicted for lack of memory, as far as was seen: each starts again with
    /// its whole limit. Includes keys of other programs.
    pub evicted_keys: u64,
}

impl RedisStats {
    /// Returns the number of answers with this source.
    pub fn answers_by(&self, source: Source) -> u64 {
        self.answers.iter().find(|(by, _)| *by == source).map_or(0, |(_, answers)| *answers)
    }
}

/// The number of failures of a store by kind: see [`StoreFailure`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Failures {
    /// The call was not sent.
    pub unavailable: u64,
    /// No answer arrived in time.
    pub timed_out: u64,
    /// The connection broke, or the reply could not be used.
    pub disconnected: u64,
    /// The store rejected the call.
    pub rejected: u64,
}

/// The counters behind [`RedisStats`].
#[derive(Default)]
pub(crate) struct StoreCounters {
    answers: [AtomicU64; SOURCES.len()],
    failures: [AtomicU64; 4],
    /// The store rejected the last call.
    rejecting: AtomicBool,
    /// Calls that the store has not answered since it last did.
    unanswered: AtomicU64,
    logged: Mutex<Option<Instant>>,
}

impl StoreCounters {
    pub(crate) fn view(&self, evicted_keys: u64) -> RedisStats {
        let [unavailable, timed_out, disconnected, rejected] =
            self.failures.each_ref().map(|count| count.load(Relaxed));
        RedisStats {
            answers: SOURCES.into_iter().zip(self.answers.iter().map(|count| count.load(Relaxed))).collect(),
            failures: Failures { unavailable, timed_out, disconnected, rejected },
            evicted_keys,
        }
    }

    /// Counts an answer by its source, or a call without an answer.
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
            self.log_recovery();
        }
    }

    #[cold]
    fn log_recovery(&self) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        // One line per second is enough for a store that fails intermittently.
        if logged.is_some_and(|logged| logged.elapsed() < LOG_INTERVAL) {
            return;
        }
        *logged = Some(Instant::now());
        let calls = self.unanswered.swap(0, Relaxed);
        if calls > 0 {
            info!("store answers again after {calls} unanswered calls");
        }
    }

    /// Counts the result of a script call.
    pub(crate) fn sent<T>(&self, answer: &Result<T, StoreFailure>) {
        let Err(failure) = answer else {
            if self.rejecting.load(Relaxed) && self.rejecting.swap(false, Relaxed) {
                info!("store accepts calls again");
            }
            return;
        };
        // Logged once, not per call. (The link logs that the store is unavailable, or rejects all
        // writes.)
        if let StoreFailure::Rejected(why) = failure
            && !rejects_writes(why)
            && !self.rejecting.swap(true, Relaxed)
        {
            warn!("store rejects calls: {why}");
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
