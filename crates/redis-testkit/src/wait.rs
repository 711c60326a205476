//! Waiting for what is to come.

use std::thread;
use std::time::{Duration, Instant};

/// So long is waited for anything: twice what the slowest took on a busy machine with two cores.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something is so. Panics with its name if it does not become so within half a minute.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
