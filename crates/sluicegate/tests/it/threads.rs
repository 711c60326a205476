//! Threads: of one burst exactly `burst` calls are allowed, however the threads interleave.

use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Receipt, check_all};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const THREADS: u32 = 8;
const CALLS: u32 = 500;

/// Every thread calls `call` `CALLS` times, all at once. Returns how many calls returned `true`.
fn at_once(call: impl Fn(u32) -> bool + Sync) -> u32 {
    let (allowed, barrier) = (AtomicU32::new(0), Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (allowed, barrier, call) = (&allowed, &barrier, &call);
            scope.spawn(move || {
                barrier.wait();
                let yes = (0..CALLS).filter(|_| call(thread)).count();
                allowed.fetch_add(u32::try_from(yes).unwrap(), Ordering::Relaxed);
            });
        }
    });
    allowed.into_inner()
}

fn limiter(limits: &str) -> Limiter {
    Limiter::builder(limits).clock(ManualClock::default()).build().unwrap()
}

const BURST: u32 = 1_000;
const ALL: [&str; 8] = [
    "token-bucket 1/h burst=1000",
    "leaky-bucket 1/h capacity=1000",
    "pacer 1/h queue=999",
    "fixed-window 1000/d",
    "fixed-window 1000/d start=first",
    "fixed-window 1000/month tz=Asia/Shanghai",
    "sliding-window 1000/d",
    "sliding-log 1000/d",
];

#[test]
fn a_burst_is_admitted_exactly_once() {
    for limits in ALL {
        let limiter = limiter(limits);
        assert_eq!(at_once(|_| limiter.check("k").allowed()), BURST, "{limits}");
        let stats = limiter.stats();
        assert_eq!((stats.allowed, stats.denied), (1_000, u64::from(THREADS * CALLS) - 1_000));
    }
    let once = limiter("min-interval 1h");
    assert_eq!(at_once(|_| once.check("k").allowed()), 1);
}

#[test]
fn a_burst_under_a_list_is_admitted_exactly_once() {
    let lists = [
        ["token-bucket 1/h burst=1000", "fixed-window 3000/d"],
        ["sliding-log 1000/d", "pacer 1/h queue=5000"],
    ];
    for limits in lists {
        let limiter = Limiter::builder(limits).clock(ManualClock::default()).build().unwrap();
        assert_eq!(at_once(|_| limiter.check("k").allowed()), BURST, "{limits:?}");
    }
}

/// Half of the threads name the limiters in one order and half in the other.
#[test]
fn check_all_is_atomic_in_any_order() {
    let (user, site) = (limiter("sliding-log 5000/d"), limiter("token-bucket 1/h burst=1000"));
    let allowed = at_once(|thread| {
        let (first, second) = (user.call("user:42", 1), site.call((), 1));
        let calls = if thread % 2 == 0 { [first, second] } else { [second, first] };
        check_all(&calls).unwrap().allowed()
    });
    assert_eq!(allowed, BURST);
    assert_eq!(user.peek("user:42", 0).remaining(), 4_000, "charged as often as the site");
}

/// Every thread locks several keys of one limiter, each in its own order, while others check and
/// evict.
#[test]
fn locking_several_shards_never_deadlocks() {
    let limiter = Limiter::builder("fixed-window 1000000/d").max_keys(300).build().unwrap();
    let allowed = at_once(|thread| {
        let keys = [thread % 3, (thread + 1) % 3, (thread + 2) % 3, thread + 10];
        let calls = keys.map(|key| limiter.call(key, 1));
        let _ = limiter.check((thread, limiter.now().as_micros()));
        check_all(&calls).unwrap().allowed()
    });
    assert_eq!(allowed, THREADS * CALLS);
}

/// The same new keys in every thread: each is inserted once, and none is lost.
#[test]
fn new_keys_are_inserted_once() {
    let limiter = limiter("fixed-window 3/d");
    let (next, allowed) = (AtomicU32::new(0), AtomicU32::new(0));
    at_once(|_| {
        let key = next.fetch_add(1, Ordering::Relaxed) / THREADS;
        allowed.fetch_add(u32::from(limiter.check(key).allowed()), Ordering::Relaxed);
        true
    });
    assert_eq!(allowed.into_inner(), 3 * CALLS, "three of eight per key");
    assert_eq!(limiter.stats().keys, CALLS as usize);
}

#[test]
fn cancelled_reservations_return_everything() {
    let limiter = limiter("token-bucket 1/h burst=1000");
    let reserved = at_once(|_| {
        let reserved = limiter.reserve("k", 3, Duration::ZERO).unwrap();
        reserved.allowed() && reserved.keep().is_some_and(|receipt: Receipt| limiter.cancel(&receipt))
    });
    assert!(reserved > 0);
    assert_eq!(limiter.peek("k", 0).remaining(), 1_000);
}

/// The limit goes up and down in the meantime: no call is admitted twice, and every shard is
/// reached.
#[test]
fn limits_change_during_calls() {
    let limiter = limiter("fixed-window 1000/d");
    let allowed = at_once(|thread| {
        if thread == 0 {
            limiter.change("fixed-window 500/d").unwrap();
            limiter.change("fixed-window 1000/d").unwrap();
        }
        limiter.check("k").allowed()
    });
    // Calls while the limit was low were denied, perhaps all that were left if the changing thread
    // was delayed.
    let later: u32 = (0..2 * BURST).map(|_| u32::from(limiter.check("k").allowed())).sum();
    assert_eq!(allowed + later, BURST);
}

#[test]
fn limiters_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    shared(&limiter("min-interval 1s"));
    shared(&sluicegate::Gate::new("min-interval 1s").unwrap());
}
