//! No script call keeps the store busy for longer than a millisecond and 20 µs per limit, however
//! many receipts the key has. `--nocapture` prints the times.
//!
//! That is the bar on an idle machine, and is asserted there: with `SLUICE_IDLE_MACHINE=1`.
//! Elsewhere ten times as much is: a busy machine does not exceed that in each of five runs, and
//! work that grows with the size of a key does.

use crate::in_redis::Connected;
use crate::support::LONG;
use redis_testkit::{Options, Server};
use sluicegate::{Limit, Receipt, VerbError};
use sluicegate_redis::RedisLimiter;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const KEY: &str = "user:42";

/// Returns the times of all script calls in the server's log, in microseconds, newest first. The
/// link's own probe has no keys.
const TIMES: &str = "\
local times = {}
for _, entry in ipairs(redis.call('SLOWLOG', 'GET', '-1')) do
  if entry[4][1] == 'EVALSHA' and entry[4][3] ~= '0' then times[#times + 1] = entry[3] end
end
return table.concat(times, ' ')";

/// A server that logs the time of every call, and the rows that exceed their bar.
pub(crate) struct Timed {
    server: Arc<Server>,
    /// How many times the bar a call may take.
    slack: i64,
    too_slow: Vec<String>,
}

impl Timed {
    pub(crate) fn start() -> Timed {
        let server = Arc::new(Server::start(&Options::redis()));
        server.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
        server.cli(&["CONFIG", "SET", "slowlog-max-len", "1000"]);
        let slack = if std::env::var_os("SLUICE_IDLE_MACHINE").is_some() { 1 } else { 10 };
        Timed { server, slack, too_slow: Vec::new() }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    pub(crate) fn server(&self) -> Arc<Server> {
        Arc::clone(&self.server)
    }

    /// Copies the states of a scope to other scopes.
    pub(crate) fn copy(&self, from: &str, to: &[String]) {
        let names = self.server.cli(&["KEYS", &format!("sluice:1/{from}:*")]);
        for name in names.lines() {
            for scope in to {
                self.server.cli(&["COPY", name, &name.replace(from, scope)]);
            }
        }
    }

    /// Prints the longest script call, and compares it with the bar. Each call counts with the
    /// fastest of five runs, because the machine may be busy.
    #[allow(clippy::print_stdout, reason = "the table is for `--nocapture`")]
    pub(crate) fn row(&mut self, what: &str, limits: usize, mut run: impl FnMut()) {
        let once = |_| -> Vec<i64> {
            self.server.cli(&["SLOWLOG", "RESET"]);
            run();
            let times = self.server.cli(&["EVAL", TIMES, "0"]);
            times.split_whitespace().map(|time| time.parse().unwrap()).collect()
        };
        let runs: Vec<Vec<i64>> = (0..5).map(once).collect();
        let calls = runs.iter().map(Vec::len).min().unwrap();
        assert!(calls > 0, "{what}: no script was called");
        let fastest_of = |call: usize| runs.iter().map(|times| times[call]).min().unwrap();
        let fastest = (0..calls).map(fastest_of).max().unwrap();
        println!("{fastest:>6} µs  {what}");
        if fastest > self.slack * (1_000 + 20 * i64::try_from(limits).unwrap()) {
            self.too_slow.push(format!("{what}: {fastest} µs"));
        }
    }

    /// All rows kept their bar.
    pub(crate) fn end(self) {
        assert!(self.too_slow.is_empty(), "{:#?}", self.too_slow);
    }
}

/// Measures every verb on a key with this many open receipts.
fn rows(timed: &mut Timed, connected: &Connected, kind: &str, limits: &[String], size: usize) {
    let (run, n) = (&connected.runtime, limits.len());
    let scope = format!("{kind}{n}x{size}");
    let limiter = RedisLimiter::builder(limits).in_store(&connected.store, &scope).build().unwrap();
    let reserve = |cost| run.block_on(limiter.reserve(KEY, cost, Duration::ZERO)).unwrap().keep().unwrap();
    // A log has no room for more.
    let cost = if kind == "sliding-log" && size > 3_000 { 1 } else { 3 };
    let mut receipts: Vec<Receipt> = (0..size).map(|_| reserve(cost)).collect();
    let mut row = |verb: &str, run: &mut dyn FnMut()| {
        timed.row(&format!("{kind} x {n}, {size} receipts: {verb}"), n, run);
    };
    if size == 16_384 {
        row("reserve, refused", &mut || {
            let refused = run.block_on(limiter.reserve(KEY, 1, Duration::ZERO)).unwrap_err();
            assert_eq!(refused, VerbError::TooManyReceiptsOfKey.into());
        });
    }
    row("check", &mut || assert!(run.block_on(limiter.check(KEY)).unwrap().allowed()));
    row("peek", &mut || assert!(run.block_on(limiter.peek(KEY, 1)).unwrap().allowed()));
    row("usage", &mut || assert_eq!(run.block_on(limiter.usage(KEY)).unwrap().len(), n));
    row("next", &mut || assert!(run.block_on(limiter.next_window(KEY)).is_ok()));
    row("take", &mut || assert_eq!(run.block_on(limiter.take(KEY, 2)).unwrap().1, 2));
    row("within", &mut || {
        assert!(run.block_on(limiter.check_within(KEY, 1, Duration::ZERO)).unwrap().allowed());
    });
    row("acquire", &mut || assert!(run.block_on(limiter.acquire(KEY, 1)).unwrap().allowed()));
    // A receipt for each of five runs, from the oldest, the middle and the newest.
    for (place, verb) in [("oldest", "cancel"), ("middle", "settle less"), ("newest", "settle more")] {
        row(&format!("{verb}, {place}"), &mut || {
            let at = match place {
                "oldest" => 0,
                "middle" => receipts.len() / 2,
                _ => receipts.len().saturating_sub(1),
            };
            let receipt = if receipts.is_empty() { reserve(cost) } else { receipts.remove(at) };
            let closed = match verb {
                "cancel" => run.block_on(limiter.cancel(&receipt)),
                "settle less" => run.block_on(limiter.settle(&receipt, cost / 2)),
                _ => run.block_on(limiter.settle(&receipt, 5)),
            };
            assert!(closed.unwrap());
        });
    }
    row("reserve", &mut || receipts.push(reserve(cost)));
    row("refund", &mut || assert!(run.block_on(limiter.refund(KEY, 1)).is_ok()));
    // A refund takes what the newest receipt charged, so that its cancel takes from those before
    // it: in each of five runs, all that a sixth of them have left.
    let large = if cost == 1 { 500 } else { size as u64 / 2 + 1 };
    row("reserve, refund and cancel of much", &mut || {
        let receipt = reserve(large);
        assert!(run.block_on(limiter.refund(KEY, large)).is_ok());
        // A log's entry is its own stack, and nothing of it is left.
        assert_eq!(run.block_on(limiter.cancel(&receipt)).unwrap(), kind != "sliding-log");
    });
    // Each call converts what the one before left. The numbers are too large for a script, which
    // only replaces the state. (A log keeps the calls of a shorter period.)
    let other = |limit: &String| match kind {
        "sliding-log" => limit.replace(LONG, "3649d"),
        _ => limit.replace(" 90", " 80"),
    };
    let others: Vec<String> = limits.iter().map(other).collect();
    let changed = RedisLimiter::builder(others).in_store(&connected.store, &scope).build().unwrap();
    let mut in_turn = [&changed, &limiter].into_iter().cycle();
    row("check, after a change", &mut || {
        assert!(run.block_on(in_turn.next().unwrap().check(KEY)).unwrap().allowed());
    });
    row("reserve, after a change", &mut || {
        let reserved = in_turn.next().unwrap().reserve(KEY, 3, Duration::ZERO);
        assert!(run.block_on(reserved).is_ok());
    });
    row("reset", &mut || {
        run.block_on(limiter.reset(KEY)).unwrap();
    });
}

#[test]
fn no_script_call_on_a_long_key_takes_long() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    let run = &connected.runtime;
    let key = "k".repeat(64 * 1024);
    for algorithm in Limit::CHECKS {
        let limit = match algorithm {
            "min-interval" => "min-interval 1us".to_owned(),
            "smooth" => "smooth 1000000/s".to_owned(),
            "leaky-bucket" => "leaky-bucket 1000/1s capacity=1000".to_owned(),
            _ => format!("{algorithm} 1000/1s"),
        };
        let limiter =
            RedisLimiter::builder(limit.as_str()).in_store(&connected.store, &limit).build().unwrap();
        let mut row = |verb: &str, run: &mut dyn FnMut()| {
            timed.row(&format!("{limit}, a key of 64 KiB: {verb}"), 1, run);
        };
        row("check", &mut || assert!(run.block_on(limiter.check(&*key)).is_ok()));
        row("peek", &mut || assert!(run.block_on(limiter.peek(&*key, 1)).is_ok()));
        if algorithm != "smooth" {
            row("reserve, cancel", &mut || {
                let reserved = run.block_on(limiter.reserve(&*key, 1, Duration::from_secs(1))).unwrap();
                assert!(run.block_on(limiter.cancel(&reserved.keep().unwrap())).is_ok());
            });
        }
        row("reset", &mut || run.block_on(limiter.reset(&*key)).unwrap());
    }
    timed.end();
}

#[test]
fn no_script_call_with_receipts_takes_long() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    for kind in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        for n in [1, 8] {
            let is_log = kind == "sliding-log";
            let count = if is_log { 9_993 } else { 900_001 };
            let limits: Vec<String> = (0..n).map(|i| format!("{kind} {}/{LONG}", count + i)).collect();
            for size in [1, 100, 1_024, if is_log { 9_000 } else { 16_384 }] {
                rows(&mut timed, &connected, kind, &limits, size);
            }
        }
    }
    timed.end();
}

/// Rates whose conversion a script computes.
#[test]
fn no_script_call_that_converts_receipts_takes_long() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    let run = &connected.runtime;
    for (n, size) in [(1, 1_000), (8, 1_000), (1, 16_384), (8, 16_384)] {
        let limiter = |count: usize, period: &str| {
            let limit = |i| format!("token-bucket {}/{period} burst=100000", count + i);
            let limits: Vec<String> = (0..n).map(limit).collect();
            let builder = RedisLimiter::builder(limits).in_store(&connected.store, &format!("{n}x{size}"));
            builder.build().unwrap()
        };
        // Slow enough that the oldest receipt is worth something to the end.
        let limiters = [limiter(10, "10000s"), limiter(7, "30000s")];
        let reserve = |limiter: &RedisLimiter| {
            run.block_on(limiter.reserve(KEY, 3, Duration::ZERO)).unwrap().keep().unwrap()
        };
        let mut receipts: Vec<Receipt> = (0..size).map(|_| reserve(&limiters[0])).collect();
        let mut in_turn = limiters.iter().rev().cycle();
        let mut row = |verb: &str, run: &mut dyn FnMut(&RedisLimiter)| {
            let what = format!("token-bucket x {n}, {size} receipts, after a change: {verb}");
            timed.row(&what, n, || run(in_turn.next().unwrap()));
        };
        row("check", &mut |limiter| assert!(run.block_on(limiter.check(KEY)).unwrap().allowed()));
        row("peek", &mut |limiter| assert!(run.block_on(limiter.peek(KEY, 1)).unwrap().allowed()));
        row("cancel, oldest", &mut |limiter| {
            assert!(run.block_on(limiter.cancel(&receipts.remove(0))).unwrap());
        });
        row("settle, middle", &mut |limiter| {
            let receipt = receipts.remove(receipts.len() / 2);
            assert!(run.block_on(limiter.settle(&receipt, 1)).unwrap());
        });
        row("refund", &mut |limiter| assert!(run.block_on(limiter.refund(KEY, 1)).is_ok()));
        row("reserve", &mut |limiter| receipts.push(reserve(limiter)));
    }
    timed.end();
}

/// Blocks of 128 receipts are merged unless two neighbours have more than that, so leaving 65 and
/// 64 of them in turn makes nearly as many blocks as there can be.
#[test]
fn no_script_call_with_sparse_blocks_takes_long() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    let run = &connected.runtime;
    let limits: Vec<String> = (0..8).map(|i| format!("token-bucket {}/{LONG}", 900_001 + i)).collect();
    let limiter = RedisLimiter::builder(&*limits).in_store(&connected.store, "sparse").build().unwrap();
    let reserve = |cost| run.block_on(limiter.reserve(KEY, cost, Duration::ZERO)).unwrap().keep().unwrap();
    let (mut open, mut kept, mut blocks) = (0, 65, 0);
    let mut full: Vec<Receipt> = Vec::new();
    let mut kept_open: Vec<Receipt> = Vec::new();
    while open + 128 < 16_384 {
        // Receipts are added to the last block, so the one before it is thinned out.
        let next: Vec<Receipt> = (0..128).map(|_| reserve(3)).collect();
        let thinned = full.len().min(kept);
        for receipt in full.drain(thinned..) {
            assert!(run.block_on(limiter.settle(&receipt, 3)).unwrap());
            open -= 1;
        }
        open += next.len();
        kept = 129 - kept;
        blocks += 1;
        kept_open.append(&mut full);
        full = next;
    }
    let fields: usize =
        timed.server.cli(&["HLEN", &format!("sluice:1/sparse:r|{{{KEY}}}")]).trim().parse().unwrap();
    assert_eq!(fields, open + blocks + 1, "no blocks were merged");
    assert!(blocks > 240, "{blocks} blocks");
    let what = |verb: &str| format!("token-bucket x 8, {open} receipts in {blocks} blocks: {verb}");
    timed.row(&what("cancel"), 8, || {
        assert!(run.block_on(limiter.cancel(&kept_open.pop().unwrap())).unwrap());
    });
    let others: Vec<String> = (0..8).map(|i| format!("token-bucket {}/{LONG}", 800_001 + i)).collect();
    let changed = RedisLimiter::builder(others).in_store(&connected.store, "sparse").build().unwrap();
    let mut in_turn = [&changed, &limiter].into_iter().cycle();
    timed.row(&what("cancel, after a change"), 8, || {
        let limiter = in_turn.next().unwrap();
        assert!(run.block_on(limiter.cancel(&kept_open.pop().unwrap())).unwrap());
    });
    timed.row(&what("reserve, refund and cancel of much"), 8, || {
        let receipt = reserve(8_000);
        assert!(run.block_on(limiter.refund(KEY, 8_000)).is_ok());
        assert!(run.block_on(limiter.cancel(&receipt)).unwrap());
    });
    timed.end();
}
