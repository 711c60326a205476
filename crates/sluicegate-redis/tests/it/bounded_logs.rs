//! No script call keeps the store busy for longer than a millisecond and 20 µs per limit, however
//! long a log is. `--nocapture` prints the times.

use crate::bounded_work::{KEY, Timed};
use crate::in_redis::Connected;
use sluicegate::{Receipt, Time};
use sluicegate_redis::{RedisLimiter, check_all, check_each};
use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HOUR: u64 = 3_600_000_000;

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// A limiter with a list of equal logs.
struct Logs<'a> {
    connected: &'a Connected,
    limiter: RedisLimiter,
    count: u64,
    name: String,
    size: usize,
}

impl<'a> Logs<'a> {
    fn new(connected: &'a Connected, count: u64, size: usize, option: &str) -> Logs<'a> {
        let limit = format!("sliding-log {count}/1h{option}");
        let scope = format!("{size}x{count}{}", option.len());
        let limits = vec![limit.as_str(); size];
        let limiter = RedisLimiter::builder(limits).in_store(&connected.store, &scope).build().unwrap();
        Logs { connected, limiter, count, name: format!("{limit} x {size}"), size }
    }

    fn row(&self, timed: &mut Timed, verb: &str, run: impl FnMut()) {
        timed.row(&format!("{}: {verb}", self.name), self.size, run);
    }

    /// Records this many calls. Few are sent together, so that all meet their deadline.
    fn fill(&self, calls: u64, at: Option<u64>) {
        for first in (0..calls).step_by(50) {
            let call = |n| match at {
                Some(at) => self.limiter.call(KEY, 1).at(Time::from_micros(at + n).unwrap()),
                None => self.limiter.call(KEY, 1),
            };
            let batch: Vec<_> = (first..calls.min(first + 50)).map(call).collect();
            for answer in self.connected.runtime.block_on(check_each(&batch)) {
                assert!(answer.unwrap().allowed());
            }
        }
    }

    fn check(&self) -> bool {
        self.connected.runtime.block_on(self.limiter.check(KEY)).unwrap().allowed()
    }

    fn reserve(&self, cost: u64) -> Receipt {
        let reserved = self.limiter.reserve(KEY, cost, Duration::ZERO);
        self.connected.runtime.block_on(reserved).unwrap().keep().unwrap()
    }

    fn refund(&self, cost: u64) {
        let _ = self.connected.runtime.block_on(self.limiter.refund(KEY, cost)).unwrap();
    }

    /// Fills the log, and measures the verbs that change nothing. Returns when it began and ended.
    fn filling(&self, timed: &mut Timed, recorded: u64) -> (u64, u64) {
        let began = now();
        // A block has 100 entries, so each of five runs adds one, at the same call.
        let added = if self.count > 500 { 100 } else { 1 };
        self.fill((self.count - recorded).saturating_sub(5 * added + 5), None);
        self.row(timed, "check, allowed", || self.fill(added, None));
        while self.check() {}
        let ended = now();
        let run = &self.connected.runtime;
        self.row(timed, "check, denied", || assert!(!self.check()));
        self.row(timed, "peek, denied", || {
            assert!(!run.block_on(self.limiter.peek(KEY, self.count / 2)).unwrap().allowed());
        });
        self.row(timed, "next", || assert!(run.block_on(self.limiter.next_window(KEY)).is_ok()));
        (began, ended)
    }

    /// Measures checks as parts of the log age out, then when all of it has, and a reset.
    fn ageing(&self, timed: &mut Timed, (began, ended): (u64, u64)) {
        let run = &self.connected.runtime;
        if self.count > 500 {
            let mut part = 0;
            self.row(timed, "check, while calls age out", || {
                part += 1;
                self.fill(100, Some(began + HOUR + (ended - began) * part / 6));
            });
        }
        let mut at = now() + HOUR;
        self.row(timed, "check, after a period", || {
            at += 2 * HOUR;
            let check = self.limiter.check_at(KEY, 1, Time::from_micros(at).unwrap());
            assert!(run.block_on(check).unwrap().allowed());
        });
        self.row(timed, "reset", || run.block_on(self.limiter.reset(KEY)).unwrap());
    }

    fn returns(&self, timed: &mut Timed, mut early: VecDeque<Receipt>) {
        let run = &self.connected.runtime;
        let mut next = || {
            early.pop_front().unwrap_or_else(|| {
                self.refund(2);
                self.reserve(2)
            })
        };
        self.row(timed, "cancel, oldest", || {
            assert!(run.block_on(self.limiter.cancel(&next())).unwrap());
        });
        for (verb, used) in [("settle less, oldest", 1), ("settle more, oldest", 3)] {
            self.row(timed, verb, || {
                assert!(run.block_on(self.limiter.settle(&next(), used)).unwrap());
            });
        }
        self.row(timed, "refund", || self.refund(self.count / 12 + 2));
        self.row(timed, "take", || {
            assert_eq!(run.block_on(self.limiter.take(KEY, 1)).unwrap().1, 1);
        });
        self.row(timed, "reserve, cancel", || {
            assert!(run.block_on(self.limiter.cancel(&self.reserve(1))).unwrap());
        });
        let within = || self.limiter.check_within(KEY, 1, Duration::ZERO);
        self.row(timed, "within", || {
            assert!(run.block_on(within()).unwrap().allowed());
            self.refund(1);
        });
        self.row(timed, "acquire", || {
            assert!(run.block_on(self.limiter.acquire(KEY, 1)).unwrap().allowed());
            self.refund(1);
        });
    }
}

#[test]
fn no_script_call_on_a_long_log_takes_long() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    for count in [10, 1_000, 10_000] {
        for size in [1, 8] {
            let logs = Logs::new(&connected, count, size, "");
            // The oldest entries have receipts.
            let early: VecDeque<Receipt> =
                (0..if count > 500 { 15 } else { 0 }).map(|_| logs.reserve(2)).collect();
            let filled = logs.filling(&mut timed, 2 * early.len() as u64);
            logs.returns(&mut timed, early);
            logs.ageing(&mut timed, filled);
            // A short log becomes a long one.
            if count == 1_000 {
                logs.row(&mut timed, "reset, then check 210 times", || {
                    connected.runtime.block_on(logs.limiter.reset(KEY)).unwrap();
                    logs.fill(210, None);
                });
            }
        }
        let logs = Logs::new(&connected, count, 1, " count=all");
        let filled = logs.filling(&mut timed, 0);
        logs.row(&mut timed, "refund", || logs.refund(count / 12 + 2));
        logs.ageing(&mut timed, filled);
    }
    timed.end();
}

/// The longest list of limits that a call can name: eight calls under eight limits each.
#[test]
fn no_call_under_64_limits_takes_long() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    let run = &connected.runtime;
    let lists = [
        ("token-bucket 10000/1h", 10_000),
        ("fixed-window 10000/1h start=first", 10_000),
        ("sliding-window 10000/1h", 10_000),
        ("sliding-log 10/1h", 10),
        ("sliding-log 1000/1h", 1_000),
        ("sliding-log 10000/1h", 10_000),
    ];
    for (limit, count) in lists {
        let build = |n| {
            let builder = RedisLimiter::builder(vec![limit; 8]);
            builder.in_store(&connected.store, &format!("{limit}-{n}")).build().unwrap()
        };
        let limiters: Vec<RedisLimiter> = (0..8).map(build).collect();
        // Each of five runs adds a block to every log, at the same call.
        let added = if count > 500 { 100 } else { 1 };
        for _ in 0..(count - 5 * added) / 50 {
            let calls: Vec<_> = (0..50).map(|_| limiters[0].call(KEY, 1)).collect();
            for answer in run.block_on(check_each(&calls)) {
                assert!(answer.unwrap().allowed());
            }
        }
        // The others get the states of the first.
        timed.copy(&format!("{limit}-0"), &(1..8).map(|n| format!("{limit}-{n}")).collect::<Vec<_>>());
        let check = |cost| {
            let calls: Vec<_> = limiters.iter().map(|limiter| limiter.call(KEY, cost)).collect();
            run.block_on(check_all(&calls)).unwrap().0.allowed()
        };
        timed.row(&format!("{limit} x 64: check, allowed"), 64, || {
            for _ in 0..added {
                assert!(check(1));
            }
        });
        timed.row(&format!("{limit} x 64: check, denied"), 64, || assert!(!check(count)));
    }
    timed.end();
}
