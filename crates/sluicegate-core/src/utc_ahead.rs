//! How far UTC is ahead of the time that decisions are made on.
//!
//! A clock whose time never steps is not always UTC. Windows that are aligned to UTC are given this
//! difference by that clock, as calendar windows are given a time zone: they add it to `now`, so
//! their states are in UTC. No other algorithm needs it.
//!
//! An operation may read it more than once. If the clock publishes another value in between, that
//! is a step between two calls.

use crate::time::Time;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// How far UTC is ahead of a clock, in microseconds; negative if it is behind. A clone is another
/// handle to the same value. The default is zero for good, for a clock that shows UTC.
#[derive(Clone, Default, Debug)]
pub struct UtcAhead(Option<Arc<AtomicI64>>);

impl UtcAhead {
    /// Creates a value that its clock can set. It is zero at first.
    pub fn adjustable() -> UtcAhead {
        UtcAhead(Some(Arc::default()))
    }

    /// Sets the difference. Has no effect on the default, which is zero for good.
    pub fn set(&self, micros: i64) {
        if let Some(ahead) = &self.0 {
            ahead.store(micros, Relaxed);
        }
    }

    /// Returns the difference in microseconds.
    #[inline]
    pub fn micros(&self) -> i64 {
        self.0.as_ref().map_or(0, |ahead| ahead.load(Relaxed))
    }

    /// Converts a time of the clock to UTC.
    #[inline]
    #[must_use]
    pub fn to_utc(&self, time: Time) -> Time {
        time.shifted(self.micros())
    }
}
