//! Counts panics: each ends a task or a call, and is a bug.

use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// A panic has no server: the count is that of the process.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Counts panics from now on, and still reports them as before. Only the first call in a process
/// has an effect.
pub(crate) fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            report(panic);
        }));
    });
}

/// The panics since [`count_panics`].
pub(super) fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_counted_once() {
        count_panics();
        count_panics();
        let count_of_one = || {
            let before = panics();
            assert!(std::thread::spawn(|| panic!("on purpose")).join().is_err());
            panics() - before
        };
        // Other tests of this process may panic on purpose at the same moment, but not each time.
        assert!((0..10).any(|_| count_of_one() == 1));
    }
}
