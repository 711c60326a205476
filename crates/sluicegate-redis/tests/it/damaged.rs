//! States that were truncated, changed or replaced by another client: an answer or an error, in
//! time, and the store keeps working.

use crate::in_redis::Connected;
use fastrand::Rng;
use redis_testkit::{Options, Server};
use sluicegate::VerbError;
use sluicegate::backend::{BackendError, StoreFailure};
use sluicegate_redis::{RedisLimiter, RedisReservation};
use std::time::Duration;

const KEY: &str = "user:42";
const LIMITS: [(&str, char); 7] = [
    ("token-bucket 7/3s burst=15", 't'),
    ("fixed-window 100/1h", 'f'),
    ("sliding-window 100/1h", 's'),
    ("sliding-log 100/1h", 'g'),
    ("sliding-log 9000/1h", 'g'),
    ("smooth 1000000/s burst=7 initial=7", 'o'),
    ("smooth 1000000/s warmup=1s", 'o'),
];

/// Calls every verb.
fn call_all(connected: &Connected, limiter: &RedisLimiter, context: &str) {
    let run = &connected.runtime;
    let refused = |failure: &StoreFailure| {
        assert!(
            matches!(failure, StoreFailure::Rejected(_) | StoreFailure::BadReply(_)),
            "{context}: {failure:?}"
        );
    };
    let asked = |error: &BackendError| match error {
        BackendError::Store(failure) => refused(failure),
        BackendError::Verb(VerbError::Unsupported(_)) => {}
        other => panic!("{context}: {other}"),
    };
    let _ = run.block_on(limiter.peek(KEY, 1)).inspect_err(refused);
    let _ = run.block_on(limiter.check(KEY)).inspect_err(refused);
    let _ = run.block_on(limiter.take(KEY, 2)).inspect_err(asked);
    let _ = run.block_on(limiter.refund(KEY, 1)).inspect_err(asked);
    let reserved = run.block_on(limiter.reserve(KEY, 1, Duration::ZERO)).inspect_err(asked);
    if let Ok(Some(receipt)) = reserved.map(RedisReservation::keep) {
        let _ = run.block_on(limiter.cancel(&receipt)).inspect_err(asked);
    }
    let _ = run.block_on(limiter.check_within(KEY, 1, Duration::from_micros(9))).inspect_err(asked);
    let _ = run.block_on(limiter.next_window(KEY)).inspect_err(refused);
}

/// The stored state.
pub(crate) fn state(server: &Server, name: &str) -> Vec<u8> {
    // In hexadecimal, because not all of it is text.
    let script = "return (redis.call('GET', KEYS[1]):gsub('.', function(byte) return string.format('%02x', byte:byte()) end))";
    let digits = server.cli(&["EVAL", script, "1", name]);
    let byte = |place: usize| u8::from_str_radix(&digits[place..place + 2], 16).unwrap();
    (0..digits.trim().len()).step_by(2).map(byte).collect()
}

fn set(server: &Server, name: &str, state: &[u8]) {
    server.client().unwrap().ask(&[&b"SET"[..], name.as_bytes(), state, b"PX", b"60000"]).unwrap();
}

#[test]
fn a_state_truncated_at_any_byte_never_stops_the_store() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    for (place, (limit, letter)) in LIMITS.into_iter().enumerate() {
        let scope = format!("cut{place}");
        let limiter = RedisLimiter::builder(limit).in_store(&connected.store, &scope).build().unwrap();
        for _ in 0..4 {
            assert!(connected.runtime.block_on(limiter.check(KEY)).unwrap().allowed());
        }
        let name = format!("sluice:1/{scope}:0{letter}|{{{KEY}}}");
        let whole = state(&server, &name);
        for length in 0..whole.len() {
            set(&server, &name, &whole[..length]);
            call_all(&connected, &limiter, &format!("{limit}, {length} of {} bytes", whole.len()));
        }
        // Another client's list in its place.
        server.cli(&["DEL", &name]);
        server.cli(&["RPUSH", &name, "1"]);
        call_all(&connected, &limiter, &format!("{limit}, a list"));
        assert_eq!(server.cli(&["PING"]).trim(), "PONG");
    }
}

#[test]
fn a_state_with_changed_bytes_never_stops_the_store() {
    let server = Server::start(&Options::redis());
    let connected = Connected::to(&server.url());
    let mut rng = Rng::with_seed(6);
    for (place, (limit, letter)) in LIMITS.into_iter().enumerate() {
        let scope = format!("changed{place}");
        let limiter = RedisLimiter::builder(limit).in_store(&connected.store, &scope).build().unwrap();
        for _ in 0..6 {
            assert!(connected.runtime.block_on(limiter.check(KEY)).unwrap().allowed());
        }
        let name = format!("sluice:1/{scope}:0{letter}|{{{KEY}}}");
        let whole = state(&server, &name);
        for turn in 0..150 {
            let mut changed = whole.clone();
            for _ in 0..rng.usize(1..4) {
                let byte = rng.usize(..changed.len());
                changed[byte] = if rng.bool() { rng.u8(..) } else { changed[byte] ^ (1 << rng.u8(..8)) };
            }
            set(&server, &name, &changed);
            call_all(&connected, &limiter, &format!("{limit}, turn {turn}"));
        }
        assert_eq!(server.cli(&["PING"]).trim(), "PONG");
    }
}
