//! Panics outside the tests themselves, on any thread or task.

use std::panic;
use std::sync::{Mutex, Once, PoisonError};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records panics from now on, except those of tests.
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

/// The recorded panics.
pub(crate) fn panics() -> Vec<String> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
