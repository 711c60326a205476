//! The system clock: the machine's uptime, as a time close to UTC that never steps.
//!
//! Durations must not change when someone sets the clock, so a limiter's time is the uptime,
//! suspend included, plus an offset (`timeline.rs`). The offset makes it UTC when the process first
//! reads it. If UTC is set later, the offset is slewed towards it, and the difference is published
//! for windows that are aligned to UTC.
//!
//! Reading the operating system's clocks takes longer than a decision, and waits for all earlier
//! memory accesses. So each thread reads them every two milliseconds, and in between counts the
//! processor's ticks since then. Only lengths below two milliseconds are taken from the tick
//! counter. So it does not matter that its rate is known only to a few parts per million, that it
//! may stop while the machine sleeps, or that the counters of two processors differ.
//!
//! ```text
//! Anchor     per thread: the time, and a reading of the tick counter at the same moment
//! Formula    now = anchor's time + (ticks - anchor's ticks) * microseconds per tick, for 2 ms
//! Promise    Within a few microseconds of the timeline. A step of UTC is noticed within 2 ms of a
//!            thread's next call. A thread whose counter went back, or forward by 2 ms or more,
//!            reads the clocks at once. On a processor whose counter is ahead by less, it is off by
//!            as much until then.
//! Not        One order for all threads: the clocks of two threads may differ by a microsecond or
//!            two. A step back of that size makes a bucket stricter by as much; a window or log
//!            takes the later time.
//! Cost       One counter instruction and a multiplication: no lock, no fence, nothing shared.
//! ```

use super::Clock;
use super::timeline::{Reading, Timeline};
use super::uptime::uptime_micros;
use sluicegate_core::Time;
use sluicegate_core::utc_ahead::UtcAhead;
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{LazyLock, Mutex, TryLockError};
use std::time::SystemTime;

/// The system clock: UTC as of when the process first reads it, and the machine's uptime since,
/// suspend included. The default clock of a limiter.
///
/// If the system's clock is set, this one does not step: it is slewed by at most 0.5 ms per second.
/// Windows that are aligned to UTC follow the step: see [`Clock::utc_ahead`].
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

/// The steps of the system's clock that this process has noticed: those above 100 ms.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct ClockSteps {
    /// How often it was set forward.
    pub forward: u64,
    /// By how many microseconds, in total.
    pub forward_micros: u64,
    /// How often it was set back.
    pub back: u64,
    /// By how many microseconds, in total.
    pub back_micros: u64,
}

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
struct CycleCounter {
    ticks: quanta::Clock,
    /// Microseconds per tick, times 2^32.
    micros_per_tick: u64,
    /// The lifetime of an anchor in ticks.
    anchor_life: u64,
}

static COUNTER: LazyLock<CycleCounter> = LazyLock::new(|| {
    // Without a usable counter this reads the system's monotonic clock, in nanoseconds.
    let ticks = quanta::Clock::new();
    let nanos = ticks.delta_as_nanos(0, RATE_TICKS).max(1);
    // Cannot wrap: a tick is at most a few nanoseconds, so 2^30 of them are below 2^40 ns; and the
    // lifetime of an anchor in ticks, times the rate, is 2000 µs * 2^32, below 2^44.
    let micros_per_tick = (u128::from(nanos) << 32) / (1_000 * u128::from(RATE_TICKS));
    let anchor_life = u128::from(RATE_TICKS) * u128::from(ANCHOR_LIFE_NANOS) / u128::from(nanos);
    CycleCounter {
        ticks,
        micros_per_tick: u64::try_from(micros_per_tick).unwrap_or(u64::MAX >> 32),
        anchor_life: u64::try_from(anchor_life).unwrap_or(0).min(1 << 31),
    }
});

/// The time of all threads, and what is known of UTC.
struct SharedTime {
    timeline: Mutex<Timeline>,
    /// The timeline's offset and UTC's, for threads that have nothing to change.
    offset: AtomicI64,
    utc_offset: AtomicI64,
    utc_ahead: UtcAhead,
    /// The uptime at which the timeline must observe a reading again, even if nothing seems to have
    /// changed.
    observe_at: AtomicU64,
    steps: Steps,
}

#[derive(Default)]
struct Steps {
    forward: AtomicU64,
    forward_micros: AtomicU64,
    back: AtomicU64,
    back_micros: AtomicU64,
}

/// The longest time between two observed readings while the clock is used, in microseconds.
const OBSERVE_INTERVAL: u64 = 1_000_000;

static SHARED: LazyLock<SharedTime> = LazyLock::new(|| {
    let reading = read_clocks();
    let timeline = Timeline::new(&reading);
    SharedTime {
        timeline: Mutex::new(timeline),
        offset: AtomicI64::new(timeline.offset()),
        utc_offset: AtomicI64::new(timeline.utc_offset()),
        utc_ahead: UtcAhead::adjustable(),
        observe_at: AtomicU64::new(reading.uptime + OBSERVE_INTERVAL),
        steps: Steps::default(),
    }
});

/// The time, and a reading of the tick counter at the same moment.
#[derive(Clone, Copy)]
struct Anchor {
    micros: u64,
    ticks: u64,
}

thread_local! {
    /// Expired at first: no counter has reached 2^63, a century at 2.9 GHz.
    static ANCHOR: Cell<Anchor> = const { Cell::new(Anchor { micros: 0, ticks: 1 << 63 }) };
}

impl SystemClock {
    /// Returns the steps of the system's clock that were noticed so far. They are noticed when the
    /// clock is read, which this does too.
    pub fn steps() -> ClockSteps {
        SHARED.time(&read_clocks());
        let Steps { forward, forward_micros, back, back_micros } = &SHARED.steps;
        ClockSteps {
            forward: forward.load(Relaxed),
            forward_micros: forward_micros.load(Relaxed),
            back: back.load(Relaxed),
            back_micros: back_micros.load(Relaxed),
        }
    }
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

    fn utc_ahead(&self) -> UtcAhead {
        SHARED.utc_ahead.clone()
    }
}

/// Reads the clocks. If the thread was interrupted between this and the reading of the counter,
/// they do not belong together and are repeated.
#[cold]
fn set_anchor(mut ticks: u64) -> Time {
    let counter = &*COUNTER;
    for _ in 0..ANCHOR_TRIES {
        let now = SHARED.time(&read_clocks());
        ANCHOR.set(Anchor { micros: now.as_micros(), ticks });
        let after = counter.ticks.raw();
        if after.wrapping_sub(ticks) < counter.anchor_life / READING_GAP_SHARE {
            break;
        }
        ticks = after;
    }
    Time::saturating_from_micros(ANCHOR.get().micros)
}

/// Reads UTC between two readings of the uptime.
fn read_clocks() -> Reading {
    let uptime = uptime_micros();
    let utc = Time::from(SystemTime::now()).as_micros();
    Reading { uptime, utc, gap: uptime_micros().saturating_sub(uptime) }
}

impl SharedTime {
    /// The time at a reading.
    fn time(&self, reading: &Reading) -> Time {
        let utc_offset = self.utc_offset.load(Relaxed);
        if self.offset.load(Relaxed) != utc_offset
            || reading.differs_from(utc_offset)
            || reading.uptime >= self.observe_at.load(Relaxed)
        {
            self.observe(reading);
        }
        Time::saturating_from_micros(reading.uptime.saturating_add_signed(self.offset.load(Relaxed)))
    }

    /// Passes a reading to the timeline, unless another thread is doing so.
    #[cold]
    fn observe(&self, reading: &Reading) {
        let mut timeline = match self.timeline.try_lock() {
            Ok(timeline) => timeline,
            Err(TryLockError::Poisoned(timeline)) => timeline.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let step = timeline.observe(reading);
        self.offset.store(timeline.offset(), Relaxed);
        self.utc_offset.store(timeline.utc_offset(), Relaxed);
        self.utc_ahead.set(timeline.utc_ahead());
        self.observe_at.store(reading.uptime + OBSERVE_INTERVAL, Relaxed);
        if let Some(step) = step {
            let Steps { forward, forward_micros, back, back_micros } = &self.steps;
            let (count, micros) = if step > 0 { (forward, forward_micros) } else { (back, back_micros) };
            count.fetch_add(1, Relaxed);
            micros.fetch_add(step.unsigned_abs(), Relaxed);
        }
    }
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
