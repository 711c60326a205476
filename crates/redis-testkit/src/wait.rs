//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// The bound on every wait: far longer than anything takes on a busy machine, so that only a hang
/// exceeds it.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// Waits until the condition holds. Panics with its name if it does not within a minute.
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < WAIT_MAX, "timed out after {WAIT_MAX:?} waiting until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
