//! The system clock, read in a third of the time.
//!
//! Reading the operating system's clock takes longer than a decision, and waits for all earlier
//! memory accesses. So each thread reads it every two milliseconds, and in between counts the
//! processor's ticks since then. Only lengths below two milliseconds are taken from the tick
//! counter. So it does not matter that its rate is known only to a few parts per million, that it
//! may stop while the machine sleeps, or that the counters of two processors differ.
//!
//! ```text
//! Anchor     per thread: a reading of the system clock, and of the tick counter at the same time
//! Formula    now = anchor's time + (ticks - anchor's ticks) * microseconds per tick, for 2 ms
//! Promise    Within a few microseconds of the system clock (UTC). A step of that clock, forward
//!            or back, takes effect within 2 ms of a thread's next call. A thread whose counter
//!            went back, or forward by 2 ms or more, reads the system clock at once. On a
//!            processor whose counter is ahead by less, it is off by as much until then.
//! Not        One order for all threads: the clocks of two threads may differ by a microsecond or
//!            two. A step back of that size makes a bucket stricter by as much; a window or log
//!            takes the later time.
//! Cost       One counter instruction and a multiplication: no lock, no fence, nothing shared.
//! ```

use super::Clock;
use sluicegate_core::Time;
use std::cell::Cell;
use std::sync::LazyLock;
use std::time::SystemTime;

/// The system clock: UTC, as `SystemTime::now()` returns it. The default clock of a limiter.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

/// The lifetime of an anchor: long enough that reading the system clock costs next to nothing per
/// call (30 ns every 2 ms), short enough that a counter that is off by 100 parts per million is off
/// by a fifth of a microsecond.
const ANCHOR_LIFE_NANOS: u64 = 2_000_000;

/// Two readings count as simultaneous if they are at most a 500th of that apart: 4 µs.
const READING_GAP_SHARE: u64 = 500;
/// On a machine that is always slower than that, the last try is used.
const ANCHOR_TRIES: u32 = 4;

/// The counter's rate is measured over this many ticks.
const RATE_TICKS: u64 = 1 << 30;

/// The tick counter and its rate.
struct Counter {
    ticks: quanta::Clock,
    /// Microseconds per tick, times 2^32.
    micros_per_tick: u64,
    /// The lifetime of an anchor in ticks.
    anchor_life: u64,
}

static COUNTER: LazyLock<Counter> = LazyLock::new(|| {
    // Without a usable counter this reads the system's monotonic clock, in nanoseconds.
    let ticks = quanta::Clock::new();
    let nanos = ticks.delta_as_nanos(0, RATE_TICKS).max(1);
    // Cannot wrap: a tick is at most a few nanoseconds, so 2^30 of them are below 2^40 ns; and the
    // lifetime of an anchor in ticks, times the rate, is 2000 µs * 2^32, below 2^44.
    let micros_per_tick = (u128::from(nanos) << 32) / (1_000 * u128::from(RATE_TICKS));
    let anchor_life = u128::from(RATE_TICKS) * u128::from(ANCHOR_LIFE_NANOS) / u128::from(nanos);
    Counter {
        ticks,
        micros_per_tick: u64::try_from(micros_per_tick).unwrap_or(u64::MAX >> 32),
        anchor_life: u64::try_from(anchor_life).unwrap_or(0).min(1 << 31),
    }
});

/// A reading of the system clock, and of the tick counter at the same time.
#[derive(Clone, Copy)]
struct Anchor {
    micros: u64,
    ticks: u64,
}

thread_local! {
    /// Expired at first: no counter has reached 2^63, a century at 2.9 GHz.
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor { micros: 0, ticks: 1 << 63 }) };
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Time {
        let counter = &*COUNTER;
        let ticks = counter.ticks.raw();
        let anchor = ANCHOR.get();
        // If the counter went back this is huge, which causes a new anchor.
        let since = ticks.wrapping_sub(anchor.ticks);
        if since < counter.anchor_life {
            return Time::saturating_from_micros(anchor.micros + ((since * counter.micros_per_tick) >> 32));
        }
        set_anchor(ticks)
    }
}

/// Reads the system clock. If the thread was interrupted between the two readings, they do not
/// belong together and are repeated.
#[cold]
fn set_anchor(mut ticks: u64) -> Time {
    let counter = &*COUNTER;
    for _ in 0..ANCHOR_TRIES {
        let now = Time::from(SystemTime::now());
        ANCHOR.set(Anchor { micros: now.as_micros(), ticks });
        let after = counter.ticks.raw();
        if after.wrapping_sub(ticks) < counter.anchor_life / READING_GAP_SHARE {
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

    /// For 30 ms, in two threads: every reading lies between two readings of the system clock, or
    /// within a few microseconds. A thread may be interrupted while it sets its anchor, so 9 of 10
    /// readings have to agree.
    #[test]
    fn it_agrees_with_the_system_clock() {
        let watch = || {
            let (began, mut distances) = (Instant::now(), Vec::new());
            while began.elapsed() < Duration::from_millis(30) {
                let before = system_micros();
                let now = SystemClock.now().as_micros();
                let after = system_micros();
                // The distance from the range of the two.
                distances.push(before.saturating_sub(now).max(now.saturating_sub(after)));
            }
            distances
        };
        let other = std::thread::spawn(watch);
        let mut distances = watch();
        distances.extend(other.join().unwrap());
        distances.sort_unstable();
        let nearly_all = distances[distances.len() * 9 / 10];
        assert!(nearly_all <= 20, "{nearly_all} µs from the system clock");
    }

    #[test]
    fn an_anchor_lasts_two_milliseconds_without_overflow() {
        let counter = &*COUNTER;
        let micros = (counter.anchor_life * counter.micros_per_tick) >> 32;
        assert!((1_990..=2_000).contains(&micros), "{micros} µs");
    }
}
