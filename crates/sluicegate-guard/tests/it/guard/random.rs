//! Random guards and random troubles, beside a few lines that say what should be called and when.

use super::polling::{Polled, sleep};
use sluicegate_guard::guard::{Failure, Guard, GuardDenial};
use sluicegate_guard::{Bulkhead, Clock as _, ManualClock, Outcome};
use std::cell::Cell;
use std::time::Duration;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[usize::try_from(self.below(these.len() as u64)).unwrap()]
    }
}

/// All times are in steps of 50 ms.
const STEP: Duration = Duration::from_millis(50);

fn steps(number: u64) -> Duration {
    STEP * u32::try_from(number).unwrap()
}

/// How an attempt would end if it were admitted, and after how many steps.
#[derive(Clone, Copy, Debug)]
enum Try {
    Well(u64),
    Fails(u64),
    BadRequest(u64),
    Hangs,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Value,
    Failed,
    Ignored,
    TimedOut,
    ByBreaker,
    ByBulkhead,
    ByDeadline,
}

/// A guard's settings, and what is known of it.
#[derive(Debug)]
struct Model {
    timeout: Option<u64>,
    deadline: Option<u64>,
    tries: u64,
    percent: u64,
    floor: u64,
    has_breaker: bool,
    has_bulkhead: bool,
    /// The last four calls that ended, whether they failed; while it is closed.
    last: Vec<bool>,
    /// When it opened.
    opened: Option<u64>,
    calls: Vec<u64>,
    retries: Vec<u64>,
}

const OPEN: u64 = 100;
const WAIT: u64 = 10;

impl Model {
    fn record(&mut self, failed: Option<bool>, now: u64) {
        match (failed, self.opened) {
            // A probe.
            (Some(true), Some(_)) => self.opened = Some(now),
            (Some(false), Some(_)) => (self.opened, self.last) = (None, Vec::new()),
            (Some(failed), None) => {
                self.last.push(failed);
                if self.last.len() > 4 {
                    self.last.remove(0);
                }
                if self.last.len() == 4 && self.last.iter().filter(|failed| **failed).count() >= 2 {
                    (self.opened, self.last) = (Some(now), Vec::new());
                }
            }
            (None, _) => {}
        }
    }

    fn denies(&self, now: u64) -> bool {
        self.has_breaker && self.opened.is_some_and(|opened| now < opened + OPEN)
    }

    /// The budget: of the last ten whole seconds, which are 20 steps each.
    fn allows_retry(&self, now: u64) -> bool {
        let recent = |list: &[u64]| list.iter().filter(|at| **at / 20 + 10 > now / 20).count() as u64;
        recent(&self.retries) < self.floor + self.percent * recent(&self.calls) / 100
    }

    /// The result of a call, when it is ready, and the number of attempts. `permit_free_at` is when
    /// the permit is free.
    fn call(&mut self, mut now: u64, permit_free_at: u64, script: &[Try]) -> (Answer, u64, usize) {
        let until = self.deadline.map_or(u64::MAX, |deadline| now + deadline);
        // A denied retry ends the call with the result of the previous attempt.
        let (mut made, mut last) = (0, None);
        loop {
            if self.denies(now) {
                return (last.unwrap_or(Answer::ByBreaker), now, made);
            }
            if self.has_bulkhead && permit_free_at > now {
                let max_wait = WAIT.min(until - now);
                if permit_free_at >= now + max_wait {
                    now += max_wait;
                    self.record(Some(true), now);
                    let why = if now == until { Answer::ByDeadline } else { Answer::ByBulkhead };
                    return (last.unwrap_or(why), now, made);
                }
                now = permit_free_at;
            }
            if made == 0 {
                self.calls.push(now);
            }
            let limit = self.timeout.unwrap_or(u64::MAX).min(until - now);
            let (answer, took) = match script[made] {
                Try::Well(took) => (Answer::Value, took),
                Try::Fails(took) => (Answer::Failed, took),
                Try::BadRequest(took) => (Answer::Ignored, took),
                Try::Hangs => (Answer::TimedOut, u64::MAX),
            };
            made += 1;
            let (answer, took) = if took > limit { (Answer::TimedOut, limit) } else { (answer, took) };
            now += took;
            let failed = matches!(answer, Answer::Failed | Answer::TimedOut);
            self.record((answer != Answer::Ignored).then_some(failed), now);
            let again = failed && (made as u64) <= self.tries && now < until && !self.denies(now);
            if !again || !self.allows_retry(now) {
                return (answer, now, made);
            }
            self.retries.push(now);
            last = Some(answer);
        }
    }
}

#[test]
fn random_calls_match_the_model() {
    for seed in 1..=1_000_u64 {
        let mut random = Random(seed * 7_919);
        // A deadline is always there, so that a call that hangs ends.
        let mut model = Model {
            timeout: random.one_of(&[None, Some(3), Some(7)]),
            deadline: Some(random.one_of(&[8, 20, 40])),
            tries: random.one_of(&[0, 1, 2, 3]),
            percent: random.one_of(&[0, 10, 50, 200]),
            floor: random.one_of(&[0, 1, 10]),
            has_breaker: random.below(3) > 0,
            has_bulkhead: random.below(3) > 0,
            last: Vec::new(),
            opened: None,
            calls: Vec::new(),
            retries: Vec::new(),
        };
        let name = format!("seed {seed}: {model:?}");
        // A whole second, so that the budget's seconds are the model's.
        let clock = ManualClock::default();
        let guard = guard(&model, &clock);
        let start = clock.now();
        let now = || u64::try_from(Duration::from(clock.now().since(start)).as_millis() / 50).unwrap();
        for number in 0..30 {
            for _ in 0..random.one_of(&[0, 0, 1, 5, 60]) {
                clock.advance(STEP);
            }
            let script: [Try; 4] = std::array::from_fn(|_| match random.below(6) {
                0 | 1 => Try::Well(random.below(5)),
                2 | 3 => Try::Fails(random.below(9)),
                4 => Try::BadRequest(random.below(5)),
                _ => Try::Hangs,
            });
            let held = random.one_of(&[0, 0, 0, 4, 10, 50]);
            let free_at = now() + held;
            let permit = guard.bulkhead().and_then(Bulkhead::try_acquire).filter(|_| held > 0);
            let expected = model.call(now(), free_at, &script);
            let made = Cell::new(0);
            let mut call = Polled::new(
                guard
                    .call(|| {
                        let this = script[made.get()];
                        made.set(made.get() + 1);
                        go(this, &clock)
                    })
                    .classify(|result| match result {
                        Ok(()) => Outcome::Success,
                        Err("bad request") => Outcome::Ignored,
                        Err(_) => Outcome::Failure,
                    }),
            );
            let mut permit = permit;
            let mut answer = call.poll();
            while answer.is_none() {
                assert!(now() < free_at.max(expected.1), "{name}, call {number}: it was not woken");
                clock.advance(STEP);
                if now() >= free_at {
                    permit = None;
                }
                answer = call.poll_if_woken();
            }
            let answer = match answer.unwrap() {
                Ok(()) => Answer::Value,
                Err(Failure::Failed(_)) => Answer::Failed,
                Err(Failure::Ignored(_)) => Answer::Ignored,
                Err(Failure::TimedOut) => Answer::TimedOut,
                Err(Failure::Denied(GuardDenial::Breaker(_))) => Answer::ByBreaker,
                Err(Failure::Denied(GuardDenial::Deadline)) => Answer::ByDeadline,
                Err(other) => {
                    assert!(matches!(other, Failure::Denied(GuardDenial::Bulkhead(_))), "{other:?}");
                    Answer::ByBulkhead
                }
            };
            assert_eq!(
                (answer, now(), made.get()),
                expected,
                "{name}, call {number}: {script:?}, held {held}"
            );
            drop((call, permit));
            assert_eq!(guard.bulkhead().map_or(0, |bulkhead| bulkhead.stats().in_use), 0);
        }
    }
}

fn guard(model: &Model, clock: &ManualClock) -> Guard {
    let mut builder = Guard::builder("g").clock(clock.clone());
    if model.has_breaker {
        builder = builder.breaker("breaker 50%/4calls min=4 open=5s");
    }
    if model.has_bulkhead {
        builder = builder.bulkhead("bulkhead 1 queue=1 wait=500ms");
    }
    if let Some(timeout) = model.timeout {
        builder = builder.timeout(steps(timeout));
    }
    if let Some(deadline) = model.deadline {
        builder = builder.deadline(steps(deadline));
    }
    if model.tries > 0 {
        let Model { tries, percent, floor, .. } = model;
        builder = builder.retry(format!("retry {tries} budget={percent}% floor={floor} backoff=0s"));
    }
    builder.build().unwrap()
}

async fn go(this: Try, clock: &ManualClock) -> Result<(), &'static str> {
    let (time, result) = match this {
        Try::Well(time) => (time, Ok(())),
        Try::Fails(time) => (time, Err("down")),
        Try::BadRequest(time) => (time, Err("bad request")),
        Try::Hangs => std::future::pending().await,
    };
    sleep(clock, steps(time)).await;
    result
}
