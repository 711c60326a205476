//! How long answers took: a histogram that many threads add to without a lock.
//!
//! A batch of questions is answered together and took the same time, so it is one addition to one bucket, whatever its
//! size, and one to the sum. (The histogram of `prometheus-client` is behind a lock and takes one value at a time.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of the buckets in nanoseconds, each included: 1 µs to 1 s, in steps of about two. What took longer falls
/// into one more.
const UPPER_NS: [u64; 19] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
];

const BUCKETS: usize = UPPER_NS.len() + 1;

/// How many answers took how long.
#[derive(Default, Debug)]
pub(crate) struct Latency {
    /// All answers' times added up. It wraps like any counter, after 584 years of them.
    sum_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// The histogram at one moment.
#[derive(Debug)]
pub(crate) struct LatencyView {
    pub(crate) sum_s: f64,
    pub(crate) count: u64,
    /// Upper end in seconds, and how many are in this bucket alone.
    pub(crate) buckets: Vec<(f64, u64)>,
}

impl Latency {
    pub(crate) fn add(&self, answers: u64, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let place = UPPER_NS.partition_point(|upper| *upper < took_ns);
        // In bounds: `partition_point` says at most the number of upper ends, and there is one bucket more.
        self.buckets[place].fetch_add(answers, Ordering::Relaxed);
        self.sum_ns.fetch_add(took_ns.saturating_mul(answers), Ordering::Relaxed);
    }

    pub(crate) fn view(&self) -> LatencyView {
        let upper = UPPER_NS.iter().map(|ns| seconds(*ns)).chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<_> = upper.zip(counts).collect();
        // The count is what the buckets say, never the reading of another moment: the last bucket has to equal it.
        let count = buckets.iter().fold(0u64, |sum, (_, count)| sum.wrapping_add(*count));
        LatencyView { sum_s: seconds(self.sum_ns.load(Ordering::Relaxed)), count, buckets }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "floats are what the format has; 2^53 ns are 104 days, exact to 1 ns"
)]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(latency: &Latency) -> Vec<(f64, u64)> {
        latency.view().buckets.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn a_batch_falls_into_the_bucket_that_its_time_is_at_most() {
        for (took_ns, upper) in [
            (0, 1e-6),
            (1_000, 1e-6),
            (1_001, 2.5e-6),
            (1_000_000, 1e-3),
            (1_000_001, 2.5e-3),
            (1_000_000_000, 1.0),
            (1_000_000_001, f64::INFINITY),
            (u64::MAX, f64::INFINITY),
        ] {
            let latency = Latency::default();
            latency.add(7, Duration::from_nanos(took_ns));
            assert_eq!(filled(&latency), [(upper, 7)], "{took_ns} ns");
            assert_eq!(latency.view().count, 7);
        }
    }

    #[test]
    fn the_sum_counts_every_answer_of_a_batch() {
        let latency = Latency::default();
        latency.add(3, Duration::from_millis(2));
        latency.add(1, Duration::from_millis(4));
        assert!((latency.view().sum_s - 0.010).abs() < 1e-12);
        latency.add(u64::MAX, Duration::MAX);
        assert!(latency.view().sum_s.is_finite());
    }

    #[test]
    fn no_batch_is_lost_between_threads() {
        let latency = Latency::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for ns in 0..10_000 {
                        latency.add(2, Duration::from_nanos(ns));
                    }
                });
            }
        });
        assert_eq!(latency.view().count, 80_000);
    }
}
