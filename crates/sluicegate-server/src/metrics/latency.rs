//! A lock-free latency histogram.
//!
//! The requests of a batch are answered together and share one latency, so a batch is one addition
//! to a bucket and one to the sum, whatever its size. (The histogram of `prometheus-client` has a
//! lock and takes one value at a time.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The inclusive upper bounds of the buckets in nanoseconds: 1 µs to 1 s, in steps of about two.
/// One more bucket holds what took longer.
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

/// A histogram of latencies.
#[derive(Default, Debug)]
pub(crate) struct Latency {
    /// The sum of all latencies. It wraps like any counter, after 584 years.
    sum_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// The histogram at one moment.
#[derive(Debug)]
pub(crate) struct LatencyView {
    pub(crate) sum_s: f64,
    pub(crate) count: u64,
    /// The upper bound in seconds and the count of each bucket alone.
    pub(crate) buckets: Vec<(f64, u64)>,
}

impl Latency {
    pub(crate) fn add(&self, requests: u64, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let index = UPPER_NS.partition_point(|upper| *upper < took_ns);
        // In bounds: `partition_point` is at most the number of bounds, and there is one bucket
        // more.
        self.buckets[index].fetch_add(requests, Ordering::Relaxed);
        self.sum_ns.fetch_add(took_ns.saturating_mul(requests), Ordering::Relaxed);
    }

    pub(crate) fn view(&self) -> LatencyView {
        let upper = UPPER_NS.iter().map(|ns| seconds(*ns)).chain([f64::INFINITY]);
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<_> = upper.zip(counts).collect();
        // Summed here rather than read: the count must equal the last cumulative bucket.
        let count = buckets.iter().fold(0u64, |sum, (_, count)| sum.wrapping_add(*count));
        LatencyView { sum_s: seconds(self.sum_ns.load(Ordering::Relaxed)), count, buckets }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "the format has only floats; up to 2^53 ns, 104 days, they are exact"
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
    fn the_upper_bound_of_a_bucket_is_inclusive() {
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
    fn the_sum_counts_every_request_of_a_batch() {
        let latency = Latency::default();
        latency.add(3, Duration::from_millis(2));
        latency.add(1, Duration::from_millis(4));
        assert!((latency.view().sum_s - 0.010).abs() < 1e-12);
        latency.add(u64::MAX, Duration::MAX);
        assert!(latency.view().sum_s.is_finite());
    }

    #[test]
    fn concurrent_additions_are_not_lost() {
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
