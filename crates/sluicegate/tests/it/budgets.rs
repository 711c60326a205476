//! Budgets: reservations of at least some cost, with a time to live, extended, and of several
//! calls.

use sluicegate::clock::ManualClock;
use sluicegate::{
    Call, Limiter, MemoryStore, OnFull, Receipt, ReserveOptions, TTL_MAX, TTL_MIN, Ttl, VerbError,
    reserve_all, reserve_all_each,
};
use std::sync::Barrier;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(limits: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limits).clock(clock.clone()).build().unwrap(), clock)
}

fn options() -> ReserveOptions {
    ReserveOptions::default()
}

fn cancelling(seconds: u32) -> ReserveOptions {
    options().ttl(Ttl::cancel(seconds * SECOND))
}

fn kept(limiter: &Limiter, cost: u64, options: ReserveOptions) -> Receipt {
    limiter.reserve("k", cost, options).unwrap().keep().unwrap()
}

fn remaining(limiter: &Limiter) -> u64 {
    limiter.peek("k", 0).remaining()
}

#[test]
fn as_much_as_remains_is_granted_from_at_least_some_cost() {
    let (limiter, _) = limiter("fixed-window 100/d + token-bucket 1/h burst=60");
    let reserve = |cost, least| limiter.reserve("k", cost, options().at_least(least)).unwrap();
    let all = reserve(50, 10);
    assert_eq!((all.allowed(), all.granted()), (true, 50));
    let rest = reserve(1_000_000, 10);
    assert_eq!((rest.allowed(), rest.granted()), (true, 10), "the least that remains under both");
    let none = reserve(1_000_000, 1);
    assert_eq!((none.allowed(), none.granted()), (false, 0));
    assert_eq!(none.decision(), limiter.peek("k", 1));
    let never = reserve(1_000_000, 61);
    assert_eq!(never.decision(), limiter.peek("k", 61));
    assert!(rest.settle(4));
    assert_eq!(remaining(&limiter), 6);
    for unsupported in ["pacer 1/s", "smooth 1/s", "sliding-log 5/60s count=all"] {
        let limiter = Limiter::new(unsupported).unwrap();
        let reserved = limiter.reserve("k", 2, options().at_least(1));
        assert!(matches!(reserved, Err(VerbError::Unsupported(_))), "{unsupported}");
    }
}

#[test]
fn a_time_to_live_is_from_a_millisecond_to_ten_years() {
    let (limiter, clock) = limiter("fixed-window 100/d");
    for (length, is_in_bounds) in [
        (TTL_MIN, true),
        (TTL_MAX, true),
        (TTL_MIN.saturating_sub(sluicegate::Span::from_micros(1)), false),
        (TTL_MAX.saturating_add(sluicegate::Span::from_micros(1)), false),
    ] {
        let options = options().ttl(Ttl::cancel(length));
        assert_eq!(limiter.reserve("k", 1, options).is_ok(), is_in_bounds);
        assert_eq!(reserve_all(&[limiter.call("k", 1)], options).is_ok(), is_in_bounds);
        let receipt = kept(&limiter, 1, ReserveOptions::default());
        assert_eq!(limiter.extend(&receipt, 1, Some(length.into())).is_ok(), is_in_bounds);
    }
    // The shortest ones have ended, of those that are out of bounds nothing was charged.
    clock.advance(Duration::from_millis(1));
    assert_eq!(limiter.usage("k")[0].1.used, 2 + 4 + 2);
}

#[test]
fn a_charge_is_returned_exactly_when_its_receipt_expires() {
    for limit in ["fixed-window 10/d", "token-bucket 1/d burst=10", "sliding-log 10/d", "sliding-window 10/d"]
    {
        let (limiter, clock) = limiter(limit);
        let (cancelled, keeps) =
            (kept(&limiter, 4, cancelling(10)), kept(&limiter, 3, options().ttl(Ttl::keep(10 * SECOND))));
        clock.advance(Duration::from_micros(9_999_999));
        assert_eq!(remaining(&limiter), 3, "{limit}");
        // Reading at a later time changes nothing, so at this time the receipt is still open.
        let end = limiter.now().saturating_add(sluicegate::Span::from_micros(1));
        assert_eq!(limiter.peek_at("k", 0, end).remaining(), 7, "{limit}");
        assert_eq!(limiter.usage_at("k", end)[0].1.used, 3, "{limit}");
        assert!(limiter.next_window_at("k", end) >= end && limiter.contains("k"));
        assert!(limiter.extend(&cancelled, 0, None).unwrap().allowed(), "{limit}");
        clock.advance(10 * SECOND);
        assert_eq!((remaining(&limiter), limiter.usage("k")[0].1.used), (7, 3), "{limit}");
        clock.advance(10 * SECOND);
        assert!(limiter.check_cost("k", 7).allowed(), "{limit}");
        for receipt in [&cancelled, &keeps] {
            assert!(!limiter.cancel(receipt) && !limiter.settle(receipt, 1));
            assert_eq!(limiter.extend(receipt, 1, None), Err(VerbError::NotOpen));
        }
        assert_eq!(remaining(&limiter), 0, "{limit}");
    }
}

/// A full store counts a key as recovered once all its charges are returned, though no call on the
/// key notices that.
#[test]
fn a_key_whose_charges_are_returned_makes_room() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("fixed-window 10/d").max_keys(100).on_full(OnFull::Deny);
    let limiter = builder.clock(clock.clone()).build().unwrap();
    for key in 0..100 {
        let _ = limiter.reserve(key, 10, cancelling(10)).unwrap().keep();
    }
    assert!(!limiter.check(1_000).allowed());
    clock.advance(9 * SECOND);
    assert!(!limiter.check(1_000).allowed());
    clock.advance(SECOND);
    for key in 1_000..1_100 {
        assert!(limiter.check(key).allowed(), "{key}");
    }
    assert_eq!(limiter.stats().evicted, 0);
}

#[test]
fn an_extension_adds_to_its_receipt() {
    let (limiter, clock) = limiter("fixed-window 100/d");
    let receipt = kept(&limiter, 10, cancelling(10));
    clock.advance(9 * SECOND);
    assert!(limiter.extend(&receipt, 20, None).unwrap().allowed());
    let denied = limiter.extend(&receipt, 71, Some(60 * SECOND)).unwrap();
    assert!(!denied.allowed() && denied == limiter.peek("k", 71), "{denied:?}");
    clock.advance(9 * SECOND);
    assert_eq!(remaining(&limiter), 70, "the time to live started again");
    assert!(limiter.settle(&receipt, 25) && !limiter.settle(&receipt, 25));
    assert_eq!(remaining(&limiter), 75);
    let receipt = kept(&limiter, 10, cancelling(10));
    assert!(limiter.extend(&receipt, 5, Some(SECOND)).unwrap().allowed());
    assert!(limiter.settle(&receipt, 40), "more than was charged");
    assert_eq!(remaining(&limiter), 35);
}

#[test]
fn a_receipt_that_is_not_open_is_not_extended() {
    let (limiter, _) = limiter("fixed-window 100/d");
    let other = Limiter::new("fixed-window 100/d").unwrap();
    let receipt = kept(&limiter, 1, options());
    assert_eq!(other.extend(&receipt, 1, None), Err(VerbError::NotOpen));
    assert_eq!(
        limiter.extend_each(&receipt, &[1, 2], None),
        Err(VerbError::WrongCount { numbers: 2, calls: 1 })
    );
    assert_eq!(limiter.extend_each(&receipt, &[], None), Err(VerbError::WrongCount { numbers: 0, calls: 1 }));
    let of_store: Receipt = "s1.Zm9v".parse().unwrap();
    assert_eq!(limiter.extend(&of_store, 1, None), Err(VerbError::BadReceipt));
    assert_eq!(limiter.settle_each(&of_store, &[1]), Err(VerbError::BadReceipt));
    limiter.reset("k");
    assert_eq!(limiter.extend(&receipt, 0, None), Err(VerbError::NotOpen));
    let used = kept(&limiter, 1, options());
    assert!(limiter.settle(&used, 1));
    assert_eq!(limiter.extend(&used, 0, None), Err(VerbError::NotOpen));
    assert_eq!(remaining(&limiter), 99);
}

/// An extension counts like a further receipt, until its receipt is closed or expires.
#[test]
fn extensions_take_room_in_the_pool_of_receipts() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("fixed-window 100/d").max_receipts(3).on_full(OnFull::Deny);
    let limiter = builder.clock(clock.clone()).build().unwrap();
    let receipt = kept(&limiter, 1, cancelling(10));
    assert!(limiter.extend(&receipt, 1, None).unwrap().allowed());
    assert!(!limiter.extend(&receipt, 100, None).unwrap().allowed(), "a denial takes no room");
    assert!(limiter.extend(&receipt, 1, None).unwrap().allowed());
    assert_eq!(limiter.extend(&receipt, 1, None), Err(VerbError::TooManyReceipts));
    assert!(limiter.extend(&receipt, 0, None).unwrap().allowed(), "a time to live alone takes none");
    assert_eq!(limiter.reserve("other", 1, options()).unwrap_err(), VerbError::TooManyReceipts);
    let several = [limiter.call("a", 1), limiter.call("b", 1)];
    assert_eq!(reserve_all(&several, options()).unwrap_err(), VerbError::TooManyReceipts);
    assert!(limiter.settle(&receipt, 3));
    let several = reserve_all(&several, cancelling(10)).unwrap().keep().unwrap();
    assert!(!limiter.extend_each(&several, &[0, 100], None).unwrap().allowed());
    assert_eq!(limiter.extend_each(&several, &[1, 1], None), Err(VerbError::TooManyReceipts));
    clock.advance(10 * SECOND);
    for key in ["a", "b", "c"] {
        assert!(limiter.reserve(key, 1, options()).unwrap().keep().is_some(), "{key}: all room is back");
    }
    assert_eq!(limiter.reserve("d", 1, options()).unwrap_err(), VerbError::TooManyReceipts);
}

#[test]
fn as_many_receipts_as_a_key_may_have_expire_at_one_moment() {
    let (limiter, clock) = limiter("fixed-window 1M/d");
    for _ in 0..16_384 {
        kept(&limiter, 2, cancelling(10));
    }
    assert_eq!(limiter.reserve("k", 1, options()).unwrap_err(), VerbError::TooManyReceiptsOfKey);
    clock.advance(10 * SECOND);
    assert_eq!(remaining(&limiter), 1_000_000);
    assert!(limiter.reserve("k", 1, options()).unwrap().allowed());
    assert_eq!(remaining(&limiter), 999_999);
}

fn in_store(limits: [&str; 3]) -> ([Limiter; 3], MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).max_keys(1_000).build().unwrap();
    let mut scope = 0_u64;
    let limiters = limits.map(|limit| {
        scope += 1;
        Limiter::builder(limit).in_store(&store, scope).build().unwrap()
    });
    (limiters, store, clock)
}

#[test]
fn several_calls_have_one_receipt() {
    let limits = ["fixed-window 10/d", "token-bucket 1/d burst=20", "sliding-log 30/d"];
    let ([a, b, c], store, clock) = in_store(limits);
    let left = || [&a, &b, &c].map(remaining);
    let calls = [a.call("k", 4), b.call("k", 5), Call::unlimited(7), a.call("k", 2), c.call("k", 6)];
    let (reserved, each) = reserve_all_each(&calls, cancelling(10)).unwrap();
    assert_eq!((reserved.allowed(), reserved.granted(), left()), (true, 24, [4, 15, 24]));
    assert_eq!(
        each.iter().map(sluicegate::Decision::remaining).collect::<Vec<_>>(),
        [4, 15, 1_000_000_000_000, 4, 24]
    );
    let receipt: Receipt = reserved.keep().unwrap().to_string().parse().unwrap();
    assert!(receipt.to_string().starts_with("m2.0001ff0002."), "{receipt}");

    let denied = store.extend_each(&receipt, &[3, 0, 0, 2, 0], None).unwrap();
    assert_eq!((denied.denied_call(), left()), (Some(0), [4, 15, 24]), "5 of 4 that remain");
    let denied = a.extend_each(&receipt, &[0, 0, 9, 0, 25], None).unwrap();
    assert_eq!((denied.denied_call(), denied.denied_by()), (Some(4), Some(0)));
    assert!(b.extend_each(&receipt, &[1, 0, 9, 1, 3], None).unwrap().allowed());
    assert_eq!(left(), [2, 15, 21]);
    let count = VerbError::WrongCount { numbers: 2, calls: 5 };
    assert_eq!(store.settle_each(&receipt, &[1, 1]), Err(count.clone()));
    assert_eq!(a.extend_each(&receipt, &[1, 1], None), Err(count));
    // Two calls on one key: both numbers are added.
    assert_eq!(store.settle_each(&receipt, &[1, 6, 0, 2, 3]), Ok(true));
    assert_eq!(left(), [7, 14, 27]);
    assert_eq!(store.settle_each(&receipt, &[1, 1, 1, 1, 1]), Ok(false));
    assert!(!a.cancel(&receipt) && a.extend(&receipt, 0, None) == Err(VerbError::NotOpen));

    let reserved = reserve_all(&calls, cancelling(10)).unwrap();
    drop(reserved);
    assert_eq!(left(), [1, 9, 21]);
    clock.advance(10 * SECOND);
    assert_eq!(left(), [7, 14, 27], "all are returned at that moment");
    let denied = reserve_all(&[b.call("k", 1), a.call("k", 8)], options()).unwrap();
    assert_eq!((denied.decision().denied_call(), denied.granted(), left()), (Some(1), 0, [7, 14, 27]));
}

#[test]
fn a_reset_voids_only_its_part_of_a_receipt() {
    let ([a, b, _], store, _) = in_store(["fixed-window 10/d"; 3]);
    let calls = [a.call("k", 4), b.call("k", 4)];
    let receipt = reserve_all(&calls, options()).unwrap().keep().unwrap();
    a.reset("k");
    assert!(store.extend_each(&receipt, &[100, 2], None).unwrap().allowed(), "only the part of b decides");
    assert_eq!([&a, &b].map(remaining), [10, 4]);
    assert_eq!(store.settle_each(&receipt, &[9, 1]), Ok(true));
    assert_eq!([&a, &b].map(remaining), [10, 9]);
    let receipt = reserve_all(&calls, options()).unwrap().keep().unwrap();
    a.reset("k");
    b.reset("k");
    assert_eq!(store.extend_each(&receipt, &[0], None), Err(VerbError::NotOpen));
    assert!(!store.settle(&receipt, 1) && !store.cancel(&receipt));
}

#[test]
fn several_calls_that_cannot_be_reserved_are_errors() {
    let ([a, b, _], _, _) = in_store(["fixed-window 100/d"; 3]);
    let many = |calls: usize| vec![a.call("k", 1); calls];
    assert_eq!(reserve_all(&many(64), options()).unwrap().granted(), 64);
    assert_eq!(reserve_all(&many(65), options()).unwrap_err(), VerbError::TooManyCalls(65));
    let at_least = options().at_least(1);
    assert_eq!(reserve_all(&many(2), at_least).unwrap_err(), VerbError::AtLeastOfSeveral);
    let elsewhere = Limiter::new("fixed-window 100/d").unwrap();
    let calls = [b.call("k", 1), elsewhere.call("k", 1)];
    assert_eq!(reserve_all(&calls, options()).unwrap_err(), VerbError::StoresDiffer);
    let counting = Limiter::new("sliding-log 5/60s count=all").unwrap();
    assert!(matches!(reserve_all(&[counting.call("k", 1)], options()), Err(VerbError::CountsDenied(_))));
    assert_eq!((remaining(&a), remaining(&b)), (36, 100));

    let unlimited = reserve_all(&[Call::unlimited(5), Call::unlimited(6)], options()).unwrap();
    assert_eq!((unlimited.allowed(), unlimited.granted()), (true, 11));
    assert_eq!(unlimited.keep(), None);
    let none = reserve_all(&[], options()).unwrap();
    assert_eq!((none.allowed(), none.granted(), none.keep()), (true, 0, None));
}

#[test]
fn a_forged_receipt_of_several_calls_names_nothing() {
    let (limiter, _) = limiter("fixed-window 100/d");
    let other = Limiter::new("fixed-window 100/d").unwrap();
    let reserve = |first, second| {
        let calls = [limiter.call(first, 4), limiter.call(second, 4)];
        reserve_all(&calls, options()).unwrap().keep().unwrap()
    };
    let (receipt, another) = (reserve("k", "b"), reserve("k", "c"));
    let is_open = |text: &str| {
        let Ok(forged) = text.parse::<Receipt>() else { return false };
        let settled = [1, 2, 3].map(|count| limiter.settle_each(&forged, &vec![0; count]) == Ok(true));
        settled.contains(&true) || limiter.extend(&forged, 0, None).is_ok() || limiter.cancel(&forged)
    };
    let text = receipt.to_string();
    for at in 3..text.len() {
        let mut forged = text.clone().into_bytes();
        forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
        assert!(!is_open(&String::from_utf8(forged).unwrap()), "changed at {at}");
        assert!(!is_open(&text[..at]), "truncated at {at}");
    }
    // Parts of two receipts, fewer calls, more of them, and the order of parts.
    let another = another.to_string();
    let (calls, words) = text[3..].split_once('.').unwrap();
    for forged in [
        format!("{}{}", &text[..text.len() - 32], &another[another.len() - 32..]),
        format!("m2.00.{}", &words[..48]),
        format!("m2.{calls}00.{words}"),
        format!("m2.0100.{words}"),
        format!("m1.{}", &words[..48]),
    ] {
        assert!(!is_open(&forged), "{forged}");
    }
    assert!(!other.cancel(&receipt) && !other.settle(&receipt, 0));
    assert_eq!(remaining(&limiter), 92);
    assert!(limiter.cancel(&receipt));
    assert_eq!(remaining(&limiter), 96);
}

const STREAMS: u32 = 8;

/// Streams on one budget reserve an estimate, extend it now and then, and settle what they used.
/// Returns what all of them have used.
fn streams(limiter: &Limiter, estimate: u64, used: u64) -> u64 {
    let (barrier, most) =
        (Barrier::new(STREAMS as usize), u64::from(STREAMS) * used.saturating_sub(estimate));
    std::thread::scope(|scope| {
        let stream = || {
            barrier.wait();
            let mut sum = 0;
            for round in 0_u64.. {
                let reserved = limiter.reserve("k", estimate, cancelling(60)).unwrap();
                if !reserved.allowed() {
                    break;
                }
                if round % 3 == 0 && used < estimate {
                    let _ = reserved.extend(1, None).unwrap();
                }
                assert!(limiter.usage("k")[0].1.used <= limiter.usage("k")[0].1.limit + most);
                assert!(reserved.settle(used));
                sum += used;
            }
            sum
        };
        let streams: Vec<_> = (0..STREAMS).map(|_| scope.spawn(stream)).collect();
        streams.into_iter().map(|stream| stream.join().unwrap()).sum()
    })
}

#[test]
fn streams_with_sufficient_estimates_never_exceed_a_budget() {
    for limit in ["fixed-window 5003/d", "token-bucket 1/d burst=5003", "sliding-log 5003/d"] {
        let (limiter, _) = limiter(limit);
        let used = streams(&limiter, 9, 4);
        assert!(used > 4_900 && used <= 5_003, "{limit}: {used}");
        assert_eq!(limiter.usage("k")[0].1.used, used, "{limit}");
    }
}

#[test]
fn streams_exceed_a_budget_by_at_most_one_excess_each() {
    for limit in ["fixed-window 5003/d", "token-bucket 1/d burst=5003", "sliding-log 5003/d"] {
        let (limiter, _) = limiter(limit);
        let used = streams(&limiter, 1, 4);
        assert!(used > 5_003 && used <= 5_003 + u64::from(STREAMS) * 3, "{limit}: {used}");
        assert_eq!(limiter.usage("k")[0].1.used, used, "{limit}");
    }
}

/// Clients settle, cancel, disappear, or drop their reservation.
#[test]
fn nothing_reserved_to_cancel_stays_charged_beyond_its_ttl() {
    for limit in ["fixed-window 1M/d", "token-bucket 1/d burst=1000", "sliding-log 10000/d"] {
        let ([a, b, _], _, clock) = in_store([limit, "fixed-window 1M/d", limit]);
        let mut random = 7_u64;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % end
        };
        let mut used = 0;
        for _ in 0..2_000 {
            clock.advance(Duration::from_millis(below(20)));
            let options = options().ttl(Ttl::cancel(Duration::from_millis(1 + below(100))));
            let calls = [a.call("k", 1 + below(3)), b.call("k", 2)];
            let reserved = reserve_all(&calls[..=usize::from(below(2) == 0)], options).unwrap();
            if below(3) == 0 {
                // It may have expired, or not be allowed.
                let _ = reserved.extend(1, Some(Duration::from_millis(1 + below(50))));
            }
            match below(20) {
                0 if used < 500 => used += u64::from(reserved.allowed() && reserved.settle(1)),
                1 => drop(reserved.cancel()),
                2..10 => drop(reserved),
                _ => drop(reserved.keep()),
            }
        }
        clock.advance(Duration::from_millis(100));
        assert_eq!(a.usage("k")[0].1.used, used, "{limit}");
        assert!(used > 20 && b.usage("k")[0].1.used <= used);
    }
}
