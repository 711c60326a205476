//! Throttles log lines that clients can cause.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Allows one line per second, so that no client can fill a disk. Each message has a `static` one.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    /// When the next line is allowed, in microseconds since the first use.
    next_us: AtomicU64,
    suppressed: AtomicU64,
}

impl Default for LogThrottle {
    fn default() -> LogThrottle {
        LogThrottle::new()
    }
}

impl LogThrottle {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// A throttle that allows a line at once.
    pub(crate) const fn new() -> LogThrottle {
        LogThrottle { next_us: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Returns the number of lines suppressed since the last one, or `None` if this line is to be
    /// suppressed too.
    pub(crate) fn allow(&self) -> Option<u64> {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        self.allow_at(START.elapsed())
    }

    fn allow_at(&self, now: Duration) -> Option<u64> {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let (now, next) = (micros(now), self.next_us.load(Ordering::Relaxed));
        // Of several threads that find the interval over, the one that advances it may log.
        let later = now.saturating_add(micros(LogThrottle::INTERVAL));
        let due = now >= next;
        if due && self.next_us.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_second_counts_the_suppressed() {
        let throttle = LogThrottle::new();
        let at = |ms| throttle.allow_at(Duration::from_millis(ms));
        assert_eq!(at(0), Some(0));
        assert_eq!([at(1), at(500), at(999)], [None; 3]);
        assert_eq!(at(1_000), Some(3));
        assert_eq!(at(1_999), None);
        assert_eq!(at(9_000), Some(1));
        assert_eq!(at(10_000), Some(0));
    }

    #[test]
    fn of_many_threads_one_logs() {
        let throttle = LogThrottle::new();
        let logged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if throttle.allow_at(Duration::from_millis(5)).is_some() {
                            logged.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(logged.into_inner(), 1);
        assert_eq!(throttle.allow_at(Duration::from_secs(2)), Some(3_999));
    }
}
