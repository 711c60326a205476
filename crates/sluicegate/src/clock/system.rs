//! The system's clock, read in a third of the time.
//!
//! In plain words: asking the operating system for the time takes longer than a decision, and waits for every memory
//! access before it. So we ask it every two milliseconds, and in between count the processor's own ticks since then.
//! That is all that is taken from the tick counter: lengths below two milliseconds. So it does not matter that
//! its rate is known only to a few parts in a million, that it may stand still while the machine sleeps, or that
//! another processor's counter shows something else.
//!
//! ```text
//! Anchor     each thread has its own: what the system's clock showed, and the tick counter then
//! Formula    now = anchor's time + (ticks - anchor's ticks) * microseconds a tick      for up to 2 ms
//! Promise    within a few microseconds of the system's clock (UTC); a step of that clock, forward or back, is taken
//!            up within 2 ms of a thread's next call; a thread whose counter went back, or on by 2 ms or more, asks the
//!            system at once. One on a processor whose counter is less than 2 ms ahead is off by as much until then.
//! Not        one order for all threads: the clocks of two may differ by a microsecond or two. A step back of that
//!            size makes a bucket stricter by as much, and a window or log takes the later time.
//! Cost       the counter's instruction and a multiplication: no lock, no fence, nothing shared between threads.
//! ```

use super::Clock;
use sluicegate_core::Time;
use std::cell::Cell;
use std::sync::LazyLock;
use std::time::SystemTime;

/// The system's clock: UTC, as `SystemTime::now()` shows it. What a limiter uses unless told otherwise.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

/// How long an anchor holds: long enough that asking the system costs next to nothing for each call (30 ns in 2 ms),
/// short enough that a counter that runs wrong by 100 parts in a million is off by a fifth of a microsecond.
const ANCHOR_HOLDS_NANOS: u64 = 2_000_000;

/// Two readings belong together when they are no further apart than a 500th of that: 4 µs.
const TOGETHER: u64 = 500;
/// On a machine that is always slower than that, the last try will do.
const ANCHOR_TRIES: u32 = 4;

/// The counter's rate is taken over this many ticks.
const TICKS: u64 = 1 << 30;

/// The tick counter, and its rate.
struct Counter {
    ticks: quanta::Clock,
    /// Microseconds a tick, times 2^32.
    micros_a_tick: u64,
    /// How many ticks an anchor holds.
    anchor_holds: u64,
}

static COUNTER: LazyLock<Counter> = LazyLock::new(|| {
    // Where there is no usable counter this reads the system's monotonic clock, in nanoseconds.
    let ticks = quanta::Clock::new();
    let nanos = ticks.delta_as_nanos(0, TICKS).max(1);
    // Cannot wrap: a tick is at most some nanoseconds, so 2^30 of them are below 2^40 ns; and what an anchor holds,
    // in ticks, times the rate, is 2000 µs * 2^32, below 2^44.
    let micros_a_tick = (u128::from(nanos) << 32) / (1_000 * u128::from(TICKS));
    let anchor_holds = u128::from(TICKS) * u128::from(ANCHOR_HOLDS_NANOS) / u128::from(nanos);
    Counter {
        ticks,
        micros_a_tick: u64::try_from(micros_a_tick).unwrap_or(u64::MAX >> 32),
        anchor_holds: u64::try_from(anchor_holds).unwrap_or(0).min(1 << 31),
    }
});

/// What the system's clock showed, and the tick counter then.
#[derive(Clone, Copy)]
struct Anchor {
    micros: u64,
    ticks: u64,
}

thread_local! {
    /// Nothing holds at first: no counter has come to 2^63, a century at 2.9 GHz.
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor { micros: 0, ticks: 1 << 63 }) };
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Time {
        let counter = &*COUNTER;
        let ticks = counter.ticks.raw();
        let anchor = ANCHOR.get();
        // A counter that went back gives a huge number here, and so a new anchor.
        let since = ticks.wrapping_sub(anchor.ticks);
        if since < counter.anchor_holds {
            return Time::saturating_from_micros(anchor.micros + ((since * counter.micros_a_tick) >> 32));
        }
        set_anchor(ticks)
    }
}

/// Asks the system. If we were interrupted between the two readings, they do not belong together: ask again.
#[cold]
fn set_anchor(mut ticks: u64) -> Time {
    let counter = &*COUNTER;
    for _ in 0..ANCHOR_TRIES {
        let now = Time::from(SystemTime::now());
        ANCHOR.set(Anchor { micros: now.as_micros(), ticks });
        let after = counter.ticks.raw();
        if after.wrapping_sub(ticks) < counter.anchor_holds / TOGETHER {
            break;
        }
        ticks = after;
    }
    Time::saturating_from_micros(ANCHOR.get().micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn system_micros() -> u64 {
        u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros()).unwrap()
    }

    /// For 30 ms, in two threads: between two readings of the system's clock, or a few microseconds beside them. Now and
    /// then a thread is interrupted while it sets its anchor, so it is nearly all readings that count.
    #[test]
    fn it_shows_what_the_system_shows() {
        let watch = || {
            let (began, mut distances) = (Instant::now(), Vec::new());
            while began.elapsed() < Duration::from_millis(30) {
                let before = system_micros();
                let now = SystemClock.now().as_micros();
                let after = system_micros();
                // How far outside of the two it is.
                distances.push(before.saturating_sub(now).max(now.saturating_sub(after)));
            }
            distances
        };
        let other = std::thread::spawn(watch);
        let mut distances = watch();
        distances.extend(other.join().unwrap());
        distances.sort_unstable();
        let nearly_all = distances[distances.len() * 9 / 10];
        assert!(nearly_all <= 20, "{nearly_all} µs from the system's clock");
    }

    #[test]
    fn an_anchor_holds_two_milliseconds_and_its_sums_do_not_wrap() {
        let counter = &*COUNTER;
        let micros = (counter.anchor_holds * counter.micros_a_tick) >> 32;
        assert!((1_990..=2_000).contains(&micros), "{micros} µs");
    }
}
