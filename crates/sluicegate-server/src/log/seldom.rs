//! A line a second at the most.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lets one line a second through, for what clients can cause. There is one, `static`, for each thing that is said.
#[derive(Debug)]
pub(crate) struct Seldom {
    /// When the next line may come, in microseconds since the first was asked for.
    next_us: AtomicU64,
    unsaid: AtomicU64,
}

impl Default for Seldom {
    fn default() -> Seldom {
        Seldom::new()
    }
}

impl Seldom {
    const APART: Duration = Duration::from_secs(1);

    /// One that may speak at once.
    pub(crate) const fn new() -> Seldom {
        Seldom { next_us: AtomicU64::new(0), unsaid: AtomicU64::new(0) }
    }

    /// Whether to say it now, and how often it was not said since the last time.
    pub(crate) fn say(&self) -> Option<u64> {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        self.say_at(BEGAN.elapsed())
    }

    fn say_at(&self, now: Duration) -> Option<u64> {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let (now, next) = (micros(now), self.next_us.load(Ordering::Relaxed));
        // Of several threads that find the time has come, the one that moves it on speaks.
        let later = now.saturating_add(micros(Seldom::APART));
        let due = now >= next;
        if due && self.next_us.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return Some(self.unsaid.swap(0, Ordering::Relaxed));
        }
        self.unsaid.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_says_how_many_were_not_said() {
        let seldom = Seldom::new();
        let at = |ms| seldom.say_at(Duration::from_millis(ms));
        assert_eq!(at(0), Some(0));
        assert_eq!([at(1), at(500), at(999)], [None; 3]);
        assert_eq!(at(1_000), Some(3));
        assert_eq!(at(1_999), None);
        assert_eq!(at(9_000), Some(1));
        assert_eq!(at(10_000), Some(0));
    }

    #[test]
    fn of_many_threads_one_speaks() {
        let seldom = Seldom::new();
        let spoke = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if seldom.say_at(Duration::from_millis(5)).is_some() {
                            spoke.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(spoke.into_inner(), 1);
        assert_eq!(seldom.say_at(Duration::from_secs(2)), Some(3_999));
    }
}
