//! Waiting for what is to come.

use std::thread;
use std::time::{Duration, Instant};

/// The limit on every wait: far longer than anything takes on a busy machine, so that it ends only what hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so. Panics with its name if it does not become so within a minute.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
