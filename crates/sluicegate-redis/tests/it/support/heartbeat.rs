//! When the machine itself stands still, which a busy one does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const BEAT: Duration = Duration::from_millis(1);
/// Less is no stall.
const STALL: Duration = Duration::from_millis(5);

/// A thread of its own that sleeps for a millisecond again and again. When that takes longer, no code of ours is to blame.
pub(crate) struct Heartbeat {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<Stalls>,
}

/// From when to when the machine stood still.
pub(crate) struct Stalls(Vec<(Instant, Instant)>);

impl Heartbeat {
    pub(crate) fn start() -> Heartbeat {
        let ending = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&ending);
        let thread = thread::spawn(move || {
            let mut stalls = Vec::new();
            while !of_thread.load(Relaxed) {
                let due = Instant::now() + BEAT;
                thread::sleep(BEAT);
                let woken = Instant::now();
                if woken > due + STALL {
                    stalls.push((due, woken));
                }
            }
            Stalls(stalls)
        });
        Heartbeat { ending, thread }
    }

    pub(crate) fn end(self) -> Stalls {
        self.ending.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

impl Stalls {
    /// How much of a time the machine stood still.
    pub(crate) fn within(&self, from: Instant, to: Instant) -> Duration {
        let overlap =
            |&(begin, end): &(Instant, Instant)| end.min(to).saturating_duration_since(begin.max(from));
        self.0.iter().map(overlap).sum()
    }
}
