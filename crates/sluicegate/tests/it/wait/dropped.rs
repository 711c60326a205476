//! A dropped waiter leaves no trace.

use super::caller::Caller;
use sluicegate::Limiter;
use sluicegate::clock::ManualClock;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(limit: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limit).clock(clock.clone()).build().unwrap(), clock)
}

/// Head, middle and tail, before and after they are woken: the waiters behind move up, and in the
/// end the key is as if the call had never been made.
#[test]
fn the_waiters_behind_move_up() {
    for limit in
        ["min-interval 1s", "token-bucket 1/s burst=1", "pacer 1/s queue=9", "sliding-log 1/1s", "smooth 1/s"]
    {
        for leaver in 0..4 {
            let (limiter, clock) = limiter(limit);
            assert!(limiter.check("k").allowed());
            let mut callers: Vec<Caller<'_>> = (0..4).map(|_| Caller::new(limiter.acquire("k", 1))).collect();
            drop(callers.remove(leaver));
            assert_eq!(limiter.stats().waiting, 3);
            for (index, caller) in callers.iter_mut().enumerate() {
                assert!(caller.poll().is_none(), "{limit}, {leaver} left: {index} is early");
                clock.advance(SECOND);
                assert!(caller.poll().is_some(), "{limit}, {leaver} left: {index} is late");
            }
            clock.advance(2 * SECOND);
            assert_eq!(limiter.peek("k", 0).reset_after().as_micros(), 0);
        }
    }
}

#[test]
fn a_woken_waiter_that_is_dropped_is_rolled_back() {
    for limit in
        ["min-interval 1s", "token-bucket 2/s burst=4", "sliding-log 2/1s", "fixed-window 2/1s start=first"]
    {
        let (limiter, clock) = limiter(limit);
        let all = limiter.peek("k", 0).remaining();
        assert!(limiter.check_cost("k", all).allowed());
        let woken = Caller::new(limiter.acquire("k", 1));
        let mut next = Caller::new(limiter.acquire("k", all));
        clock.advance(SECOND);
        assert_eq!((woken.woken(), woken.waits()), (1, true), "{limit}: woken, and not yet polled");
        drop(woken);
        // As if it had never been made: the next call is due as soon as without it.
        let (alone, its_clock) = self::limiter(limit);
        assert!(alone.check_cost("k", all).allowed());
        let mut alone_next = Caller::new(alone.acquire("k", all));
        its_clock.advance(SECOND);
        while alone_next.poll().is_none() {
            assert!(next.poll().is_none(), "{limit}: too early");
            its_clock.advance(Duration::from_millis(1));
            clock.advance(Duration::from_millis(1));
        }
        assert!(next.poll().is_some(), "{limit}: too late");
        assert_eq!(limiter.peek("k", 0), alone.peek("k", 0), "{limit}");
    }
}

/// Guava's callers pay for the call before: a call that was admitted and dropped costs the next
/// nothing.
#[test]
fn a_woken_waiter_under_smooth_is_rolled_back_too() {
    for limit in ["smooth 2/s", "smooth 2/s warmup=4s cold=5", "smooth 2/s burst=7 initial=3"] {
        let (limiter, clock) = limiter(limit);
        let (alone, its_clock) = self::limiter(limit);
        for (limiter, clock) in [(&limiter, &clock), (&alone, &its_clock)] {
            clock.advance(3 * SECOND);
            while limiter.check("k").allowed() {}
        }
        let gone = Caller::new(limiter.acquire("k", 9));
        let (mut next, mut alone_next) =
            (Caller::new(limiter.acquire("k", 2)), Caller::new(alone.acquire("k", 2)));
        while gone.woken() == 0 {
            clock.advance(Duration::from_millis(1));
            its_clock.advance(Duration::from_millis(1));
        }
        drop(gone);
        assert!(next.poll().is_some() && alone_next.poll().is_some(), "{limit}");
        assert_eq!(limiter.peek("k", 0), alone.peek("k", 0), "{limit}");
    }
}

#[test]
fn an_unpolled_future_is_not_enqueued() {
    let (limiter, _clock) = limiter("min-interval 1h");
    drop(limiter.acquire("k", 1));
    assert!(limiter.check("k").allowed());
    drop(limiter.acquire("k", 1));
    assert_eq!((limiter.stats().waiting, limiter.stats().allowed, limiter.stats().denied), (0, 1, 0));
}

/// The future of a woken waiter is leaked: it wastes its own charge, and blocks no other.
#[test]
fn a_leaked_future_does_not_block_the_queue() {
    let (limiter, clock) = limiter("min-interval 1s");
    assert!(limiter.check("k").allowed());
    std::mem::forget(Caller::new(limiter.acquire("k", 1)));
    let mut next = Caller::new(limiter.acquire("k", 1));
    clock.advance(2 * SECOND);
    assert!(next.poll().is_some());
    clock.advance(SECOND);
    assert!(limiter.check("k").allowed());
}

/// More waiters are woken at once than a key can have receipts: nothing is lost when all of them
/// are dropped.
#[test]
fn many_dropped_waiters_lose_no_charge() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("fixed-window 5000/h start=first").clock(clock.clone());
    let limiter = builder.max_queue(5_000).build().unwrap();
    assert!(limiter.check_cost("k", 5_000).allowed());
    let mut callers: Vec<Caller<'_>> = (0..5_000).map(|_| Caller::new(limiter.acquire("k", 1))).collect();
    clock.advance(Duration::from_secs(3_600));
    let seen = callers.split_off(4_990).iter_mut().filter_map(Caller::poll).count();
    drop(callers);
    let decision = limiter.peek("k", 0);
    assert_eq!(limiter.stats().waiting, 0);
    // The last ten were behind those that could be woken at once: they were dropped while enqueued.
    assert_eq!((seen, decision.remaining()), (0, 5_000));
}
