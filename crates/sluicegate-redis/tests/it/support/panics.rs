//! Panics outside of the tests themselves, on whatever thread or task.

use std::panic;
use std::sync::{Mutex, Once, PoisonError};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on panics are remembered, but for those of the tests.
pub(crate) fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let ours = info.location().is_some_and(|place| place.file().contains("tests"));
            if !ours {
                SEEN.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            }
            usual(info);
        }));
    });
}

/// Those that have been seen.
pub(crate) fn panics() -> Vec<String> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
