//! Load on a store during a fault, and a report on its calls.
//!
//! Eight callers call constantly. All call the same key, more than twice as often as its limit, and
//! then move on to the next. So at any moment some keys are not used up, and the number of allowed,
//! denied and failed calls of each key is known afterwards.

use super::{LONG, WAIT_MAX, by, panics, until_answered, watch_for_panics};
use sluicegate::backend::{Source, StoreFailure};
use sluicegate_redis::{DEADLINE_DEFAULT, RedisLimiter, RedisStore};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const CALLERS: usize = 8;
/// The limit of each key.
const LIMIT: u64 = 10;
const CALLS_PER_KEY: u64 = 25;

/// Callers that call until they are stopped.
pub(crate) struct Load {
    limiters: Arc<Vec<RedisLimiter>>,
    next: Arc<AtomicU64>,
    ending: Arc<AtomicBool>,
    callers: Vec<JoinHandle<Vec<Call>>>,
}

struct Call {
    limiter: usize,
    key: u64,
    took: Duration,
    in_time: bool,
    outcome: Result<bool, StoreFailure>,
}

/// The results of all calls.
pub(crate) struct Report {
    calls: Vec<Call>,
}

/// The results of the calls on one key.
#[derive(Default)]
struct Tally {
    allowed: u64,
    denied: u64,
    may_have_charged: u64,
}

fn limits() -> Vec<Vec<String>> {
    let one = |text: &str| vec![text.replace("10/P", &format!("{LIMIT}/{LONG}"))];
    vec![
        one("token-bucket 10/P"),
        one("leaky-bucket 10/P"),
        one("fixed-window 10/P"),
        one("fixed-window 10/P start=first"),
        one("sliding-log 10/P"),
        one("sliding-window 10/P"),
        one("pacer 10/P queue=9"),
        [one("token-bucket 10/P"), vec![format!("sliding-log 12/{LONG}")]].concat(),
    ]
}

impl Load {
    /// Starts the load. `keys` is the prefix of its keys.
    pub(crate) fn on(store: &RedisStore, keys: &'static str) -> Load {
        watch_for_panics();
        let build = |(place, limits): (usize, Vec<String>)| {
            let scope = format!("load-{place}");
            RedisLimiter::builder(limits).in_store(store, &scope).build().unwrap()
        };
        let limiters: Arc<Vec<RedisLimiter>> =
            Arc::new(limits().into_iter().enumerate().map(build).collect());
        let (next, ending) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let caller = |_| {
            let (limiters, next, ending) = (Arc::clone(&limiters), Arc::clone(&next), Arc::clone(&ending));
            tokio::spawn(async move {
                let mut calls = Vec::new();
                while !ending.load(Relaxed) {
                    calls.push(call(&limiters, next.fetch_add(1, Relaxed), keys).await);
                    // Leaves the machine some time, above all for the servers.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                calls
            })
        };
        let callers = (0..CALLERS).map(caller).collect();
        Load { limiters, next, ending, callers }
    }

    /// Waits for this many more calls.
    pub(crate) async fn makes(&self, calls: u64) {
        let enough = self.next.load(Relaxed) + calls;
        while self.next.load(Relaxed) < enough {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until the store is up.
    pub(crate) async fn until_answered(&self) {
        until_answered(&self.limiters[0]).await;
    }

    /// Stops the load. Every caller returns soon, or its call hangs.
    pub(crate) async fn end(self, what: &str) -> Report {
        self.ending.store(true, Relaxed);
        let mut calls = Vec::new();
        for caller in self.callers {
            let back = tokio::time::timeout(WAIT_MAX, caller).await;
            calls.extend(back.expect("a call hangs").expect("a caller panicked"));
        }
        let report = Report { calls };
        report.print(what);
        assert_eq!(panics(), Vec::<String>::new());
        report
    }
}

async fn call(limiters: &[RedisLimiter], number: u64, keys: &str) -> Call {
    let count = u64::try_from(limiters.len()).unwrap();
    let limiter = usize::try_from(number % count).unwrap();
    let key = number / count / CALLS_PER_KEY;
    let began = Instant::now();
    let (answer, in_time) = by(DEADLINE_DEFAULT, limiters[limiter].check(format!("{keys}{key}"))).await;
    let took = began.elapsed();
    let outcome = answer.map(|answer| {
        assert_eq!(answer.source(), Source::Store);
        answer.allowed()
    });
    Call { limiter, key, took, in_time, outcome }
}

impl Report {
    /// Every answer arrived within the default deadline and a little more.
    pub(crate) fn is_in_time(&self) {
        let late = self.calls.iter().filter(|call| !call.in_time).count();
        assert_eq!(late, 0, "of {} calls", self.calls.len());
    }

    /// No key was allowed more than its limit, once per time that the store lost its data; and no
    /// call was charged twice.
    pub(crate) fn admits_no_more(&self, times_forgotten: u64) {
        let mut tallies: BTreeMap<(usize, u64), Tally> = BTreeMap::new();
        for call in &self.calls {
            let tally = tallies.entry((call.limiter, call.key)).or_default();
            match &call.outcome {
                Ok(true) => tally.allowed += 1,
                Ok(false) => tally.denied += 1,
                Err(failure) => tally.may_have_charged += u64::from(failure.may_have_charged()),
            }
        }
        assert!(
            tallies.values().any(|tally| tally.allowed == LIMIT && tally.denied > 0),
            "some keys are used up"
        );
        for ((limiter, key), Tally { allowed, denied, may_have_charged }) in tallies {
            let name = &limits()[limiter];
            let most = LIMIT * (1 + times_forgotten);
            assert!(allowed <= most, "{name:?} on {key}: {allowed} allowed");
            // A denied call finds the key used up, and each call can have used 1 of it.
            assert!(
                denied == 0 || allowed + may_have_charged >= LIMIT,
                "{name:?} on {key}: only {allowed} allowed"
            );
        }
    }

    /// The number of calls.
    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    /// The number of failed calls.
    pub(crate) fn failed(&self) -> usize {
        self.calls.iter().filter(|call| call.outcome.is_err()).count()
    }

    /// Why calls under one limit failed; those under lists are left out.
    pub(crate) fn failures_under_one_limit(&self) -> Vec<&StoreFailure> {
        let limits = limits();
        let of_one = self.calls.iter().filter(|call| limits[call.limiter].len() == 1);
        of_one.filter_map(|call| call.outcome.as_ref().err()).collect()
    }

    fn took(&self, of: usize, parts: usize) -> Duration {
        let asked =
            self.calls.iter().filter(|call| !matches!(call.outcome, Err(StoreFailure::Unavailable(_))));
        let mut all: Vec<Duration> = asked.map(|call| call.took).collect();
        all.sort_unstable();
        all[(all.len() - 1) * of / parts]
    }

    #[expect(
        clippy::print_stderr,
        reason = "how many calls a fault costs is worth reading: --nocapture shows it"
    )]
    fn print(&self, what: &str) {
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        let mut examples: BTreeMap<&str, String> = BTreeMap::new();
        for failure in self.calls.iter().filter_map(|call| call.outcome.as_ref().err()) {
            let kind = match failure {
                StoreFailure::Unavailable(_) => "away",
                StoreFailure::TimedOut { .. } => "late",
                StoreFailure::Disconnected(_) => "lost",
                _ => "refused",
            };
            *kinds.entry(kind).or_default() += 1;
            examples.entry(kind).or_insert_with(|| failure.to_string());
        }
        let (calls, failed) = (self.calls.len(), self.failed());
        let (nearly_all, slowest) = (self.took(999, 1000), self.took(1, 1));
        eprintln!(
            "{what}: {calls} calls, {failed} failed {kinds:?}; of those asked 99.9 % within {nearly_all:.1?}, all within {slowest:.1?}; {examples:?}"
        );
    }
}
