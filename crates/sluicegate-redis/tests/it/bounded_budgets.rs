//! No script call keeps the store busy for longer than a millisecond and 20 µs per limit, whatever
//! the receipts of its keys are: all due at once, extended many times, or of several keys.

use crate::bounded_work::{KEY, Timed};
use crate::in_redis::Connected;
use crate::support::LONG;
use sluicegate::{Receipt, ReserveOptions, Span, Ttl};
use sluicegate_redis::{RedisCall, RedisLimiter, cancel_all, check_all, extend_all, reserve_all, settle_all};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(3_600);

fn limiter_of(connected: &Connected, kind: &str, n: usize, count: usize, scope: &str) -> RedisLimiter {
    let limits: Vec<String> = (0..n).map(|i| format!("{kind} {}/{LONG}", count + i)).collect();
    RedisLimiter::builder(limits).in_store(&connected.store, scope).build().unwrap()
}

/// The receipts that a log has room for, too.
fn size_of(kind: &str) -> (usize, usize) {
    if kind == "sliding-log" { (9_993, 9_000) } else { (900_001, 16_384) }
}

/// Every verb of budgets, on a key with as many receipts as it may have.
#[test]
fn no_call_on_receipts_that_expire_takes_long() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    let run = &connected.runtime;
    for kind in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let (count, size) = size_of(kind);
        for n in [1, 8] {
            let limiter = limiter_of(&connected, kind, n, count, &format!("{kind}{n}"));
            let options = ReserveOptions::default().ttl(Ttl::cancel(TTL));
            let reserve = || run.block_on(limiter.reserve(KEY, 1, options)).unwrap().keep().unwrap();
            let mut receipts: Vec<Receipt> = (0..size - 100).map(|_| reserve()).collect();
            let mut row = |verb: &str, run: &mut dyn FnMut()| {
                timed.row(&format!("{kind} x {n}, {size} receipts that expire: {verb}"), n, run);
            };
            row("reserve", &mut || receipts.push(reserve()));
            row("reserve at least", &mut || {
                let options = options.at_least(1);
                let reserved = run.block_on(limiter.reserve(KEY, 2, options)).unwrap();
                receipts.push(reserved.keep().unwrap());
            });
            row("check", &mut || assert!(run.block_on(limiter.check(KEY)).unwrap().allowed()));
            row("peek", &mut || assert!(run.block_on(limiter.peek(KEY, 1)).unwrap().allowed()));
            for (place, at) in [("oldest", 0), ("middle", size / 2)] {
                row(&format!("extend, {place}"), &mut || {
                    let extended = limiter.extend(&receipts[at], 1, Some(TTL));
                    assert!(run.block_on(extended).unwrap().allowed());
                });
                row(&format!("cancel, {place}, extended"), &mut || {
                    assert!(run.block_on(limiter.cancel(&receipts.remove(at))).unwrap());
                });
                row(&format!("settle, {place}"), &mut || {
                    assert!(run.block_on(limiter.settle(&receipts.remove(at), 0)).unwrap());
                });
            }
        }
    }
    timed.end();
}

/// As many receipts as a key may have expire at one moment. Every call closes some of them, and one
/// that meets too many closes as many as it may and is sent again.
#[test]
fn no_call_takes_long_when_all_receipts_are_due() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    let run = &connected.runtime;
    // A bucket and a log, which take the most work of all.
    for (kind, n) in [("token-bucket", 1), ("token-bucket", 8), ("sliding-log", 8)] {
        let (count, size) = size_of(kind);
        let limiter = limiter_of(&connected, kind, n, count, &format!("{kind}{n}"));
        let start = sluicegate::Time::saturating_from_micros(1_763_290_000_000_000);
        for _ in 0..size {
            let options = ReserveOptions::default().ttl(Ttl::cancel(TTL));
            let reserved = run.block_on(limiter.reserve_at(KEY, 1, options, start)).unwrap();
            assert!(reserved.keep().is_some());
        }
        let due = start.saturating_add(TTL.into());
        let used = run.block_on(limiter.usage_at(KEY, start)).unwrap()[0].1.used;
        assert_eq!(used, size as u64);
        // A copy for each run of each row, since the first call closes them all.
        let scope = format!("{kind}{n}");
        let copies: Vec<String> = (0..10).map(|copy| format!("{kind}{n}-{copy}")).collect();
        timed.copy(&scope, &copies);
        let mut of_copies = copies.iter().map(|copy| limiter_of(&connected, kind, n, count, copy));
        let mut row = |verb: &str, run: &mut dyn FnMut(&RedisLimiter)| {
            timed.row(&format!("{kind} x {n}, {size} due: {verb}"), n, || run(&of_copies.next().unwrap()));
        };
        row("check", &mut |limiter| {
            assert!(run.block_on(limiter.check_at(KEY, 1, due)).unwrap().allowed());
            let used = run.block_on(limiter.usage_at(KEY, due)).unwrap()[0].1.used;
            assert_eq!(used, 1, "only the check is charged");
        });
        row("peek", &mut |limiter| {
            let peeked = run.block_on(limiter.peek_at(KEY, 1, due)).unwrap();
            assert_eq!(peeked.remaining(), count as u64, "nothing is charged");
        });
    }
    timed.end();
}

/// Two receipts that are extended in turn, so that no charge of one is next to another of its own.
#[test]
fn no_call_on_a_receipt_with_many_extensions_takes_long() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    let run = &connected.runtime;
    for n in [1, 8] {
        let limiter = limiter_of(&connected, "token-bucket", n, 900_001, &n.to_string());
        let mut row = |verb: &str, run: &mut dyn FnMut()| {
            timed.row(&format!("token-bucket x {n}, 8,000 extensions: {verb}"), n, run);
        };
        let receipts: Vec<Receipt> = (0..2)
            .map(|_| run.block_on(limiter.reserve(KEY, 1, Span::ZERO)).unwrap().keep().unwrap())
            .collect();
        for _ in 0..8_000 {
            for receipt in &receipts {
                assert!(run.block_on(limiter.extend(receipt, 1, None)).unwrap().allowed());
            }
        }
        row("extend", &mut || {
            assert!(run.block_on(limiter.extend(&receipts[0], 1, None)).unwrap().allowed());
        });
        let mut is_open = true;
        row("settle", &mut || {
            assert_eq!(run.block_on(limiter.settle(&receipts[0], 2)).unwrap(), is_open);
            assert_eq!(run.block_on(limiter.usage(KEY)).unwrap()[0].1.used, 8_003);
            is_open = false;
        });
    }
    timed.end();
}

#[test]
fn no_call_on_several_keys_takes_long() {
    let mut timed = Timed::start();
    let connected = Connected::to(&timed.url());
    let run = &connected.runtime;
    for (keys, n) in [(6, 1), (64, 1), (8, 8)] {
        let limiter = limiter_of(&connected, "token-bucket", n, 900_001, &format!("{keys}x{n}"));
        let calls: Vec<RedisCall<'_>> = (0..keys).map(|key| limiter.call(format!("key{key}"), 1)).collect();
        let mut row = |verb: &str, run: &mut dyn FnMut()| {
            timed.row(&format!("{keys} keys with {n} limits: {verb}"), keys * n, run);
        };
        let options = ReserveOptions::default().ttl(Ttl::cancel(TTL));
        let reserve = || run.block_on(reserve_all(&calls, options)).unwrap().keep().unwrap();
        let mut receipts: Vec<Receipt> = (0..200).map(|_| reserve()).collect();
        row("check", &mut || assert!(run.block_on(check_all(&calls)).unwrap().0.allowed()));
        row("reserve", &mut || receipts.push(reserve()));
        row("extend", &mut || {
            assert!(run.block_on(extend_all(&receipts[0], &calls, None)).unwrap().allowed());
        });
        row("settle", &mut || {
            assert!(run.block_on(settle_all(&receipts.remove(1), &calls)).unwrap());
        });
        row("cancel", &mut || {
            assert!(run.block_on(cancel_all(&receipts.remove(1), &calls)).unwrap());
        });
    }
    timed.end();
}
