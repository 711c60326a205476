//! Event logs: `R0.20` is a call that waited 0.2 s, `U0.50` half a second without calls.

use super::caller::Caller;
use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use std::time::Duration;

/// Plays calls one after another, each waiting before the next is made.
struct Play {
    clock: ManualClock,
    limiter: Limiter,
    log: Vec<String>,
}

impl Play {
    fn of(limit: &str) -> Play {
        let clock = ManualClock::default();
        let limiter = Limiter::builder(limit).clock(clock.clone()).build().unwrap();
        Play { clock, limiter, log: Vec::new() }
    }

    fn acquire(mut self, cost: u64) -> Play {
        let mut caller = Caller::new(self.limiter.acquire("k", cost));
        while caller.poll().is_none() {
            self.clock.advance(Duration::from_millis(1));
        }
        let waited = caller.acquired().unwrap().waited();
        drop(caller);
        // Half a hundredth is rounded up, as Guava's tests print it.
        let hundredths = (waited.as_micros() + 5_000) / 10_000;
        self.log.push(format!("R{}.{:02}", hundredths / 100, hundredths % 100));
        self
    }

    fn idle(mut self, seconds: f64) -> Play {
        self.clock.advance(Duration::from_secs_f64(seconds));
        self.log.push(format!("U{seconds:.2}"));
        self
    }

    fn log(&self) -> String {
        self.log.join(", ")
    }
}

#[test]
fn a_bucket_admits_its_burst_then_its_rate() {
    let play = Play::of("token-bucket 5/s burst=2").acquire(1).acquire(1).acquire(1).acquire(1);
    assert_eq!(play.log(), "R0.00, R0.00, R0.20, R0.20");
    let play = play.idle(0.2).acquire(1).acquire(2).idle(1.0).acquire(2).acquire(1);
    assert_eq!(play.log(), "R0.00, R0.00, R0.20, R0.20, U0.20, R0.00, R0.40, U1.00, R0.00, R0.20");
}

#[test]
fn a_pacer_admits_calls_evenly() {
    let play = Play::of("pacer 10/s queue=20").acquire(1).acquire(1).acquire(1).idle(0.05).acquire(1);
    assert_eq!(play.log(), "R0.00, R0.10, R0.10, U0.05, R0.05");
    let play = play.idle(5.0).acquire(1).acquire(3).acquire(1);
    assert_eq!(play.log(), "R0.00, R0.10, R0.10, U0.05, R0.05, U5.00, R0.00, R0.10, R0.30");
}

#[test]
fn windows_and_logs_reopen() {
    let play = Play::of("sliding-log 2/1s").acquire(1).idle(0.4).acquire(1).acquire(1).acquire(1);
    assert_eq!(play.log(), "R0.00, U0.40, R0.00, R0.60, R0.40");
    let play = Play::of("fixed-window 2/1s start=first").acquire(2).idle(0.7).acquire(1).acquire(2);
    assert_eq!(play.log(), "R0.00, U0.70, R0.30, R1.00");
    let play = Play::of("min-interval 250ms").acquire(1).acquire(1).idle(0.1).acquire(1);
    assert_eq!(play.log(), "R0.00, R0.25, U0.10, R0.15");
}

#[test]
fn a_list_waits_for_its_slowest_limit() {
    let clock = ManualClock::default();
    let limits = ["pacer 10/s queue=9", "sliding-log 3/1s"];
    let limiter = Limiter::builder(limits).clock(clock.clone()).build().unwrap();
    let mut play = Play { clock, limiter, log: Vec::new() };
    for _ in 0..5 {
        play = play.acquire(1);
    }
    assert_eq!(play.log(), "R0.00, R0.10, R0.10, R0.80, R0.10");
}

/// The log of Guava's own bursty limiter, through the queue.
#[test]
fn smooth_waits_as_guava_does() {
    let play = Play::of("smooth 5/s").acquire(1).acquire(1).acquire(1).idle(0.2).acquire(1).acquire(1);
    assert_eq!(play.log(), "R0.00, R0.20, R0.20, U0.20, R0.00, R0.20");
    let play = Play::of("smooth 2/s warmup=4s").idle(0.5).acquire(1).acquire(1).acquire(1).acquire(1);
    assert_eq!(play.log(), "U0.50, R0.00, R1.38, R1.13, R0.88");
}

/// Due times are whole microseconds, thirds of a second are not. The rounding does not accumulate.
#[test]
fn ten_thousand_waiters_take_as_long_as_the_rate() {
    for (limit, micros) in [
        ("token-bucket 3/s burst=1", 3_333_333_334_u64),
        ("pacer 3/s queue=10000", 3_333_333_334),
        ("token-bucket 700000/s burst=1", 14_286),
        ("pacer 700000/s queue=10000", 14_286),
        ("token-bucket 7/1s burst=3", 1_428_285_715),
    ] {
        let clock = ManualClock::default();
        let limiter = Limiter::builder(limit).clock(clock.clone()).max_queue(10_001).build().unwrap();
        let began = limiter.now();
        let mut callers: Vec<Caller<'_>> =
            (0..=10_000).map(|_| Caller::new(limiter.acquire("k", 1))).collect();
        // They poll now and then: a queue wakes only a bounded number of waiters ahead of their
        // polls.
        let step = (micros - 1) / 20;
        for _ in 0..20 {
            clock.advance(Duration::from_micros(step));
            for caller in &mut callers {
                caller.poll();
            }
        }
        clock.advance(Duration::from_micros(micros - 1 - 20 * step));
        assert!(callers.last_mut().unwrap().poll().is_none(), "{limit}: too early");
        clock.advance(Duration::from_micros(1));
        assert!(callers.last_mut().unwrap().poll().is_some(), "{limit}: too late");
        assert_eq!(limiter.now().since(began).as_micros(), micros);
        assert!(callers.iter_mut().all(|caller| caller.poll().is_some_and(|acquired| acquired.allowed())));
    }
}
