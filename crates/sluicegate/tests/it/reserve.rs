//! Reservations and their receipts.

use sluicegate::OnFull;
use sluicegate::clock::ManualClock;
use sluicegate::{Limiter, Receipt, VerbError};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn limiter(limits: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::builder(limits).clock(clock.clone()).build().unwrap(), clock)
}

#[test]
fn a_reservation_may_use_future_tokens() {
    let (limiter, clock) = limiter("token-bucket 1/s burst=2");
    assert!(limiter.check_cost("k", 2).allowed());
    let denied = limiter.reserve("k", 2, SECOND).unwrap();
    assert!(!denied.allowed() && !denied.cancel());
    let reserved = limiter.reserve("k", 2, 2 * SECOND).unwrap();
    assert_eq!((reserved.allowed(), reserved.delay()), (true, 2 * SECOND));
    clock.advance(SECOND);
    assert!(reserved.cancel());
    assert_eq!(limiter.peek("k", 0).remaining(), 1);
}

#[test]
fn settling_returns_the_rest_or_charges_the_excess() {
    let (limiter, _) = limiter("fixed-window 100/h");
    assert!(limiter.reserve("k", 50, Duration::ZERO).unwrap().settle(20));
    assert_eq!(limiter.peek("k", 0).remaining(), 80);
    assert!(limiter.reserve("k", 50, Duration::ZERO).unwrap().settle(90));
    assert_eq!(limiter.peek("k", 0).remaining(), 0);
}

#[test]
fn a_dropped_reservation_stays_charged() {
    let clock = ManualClock::default();
    let limiter = Limiter::builder("fixed-window 5000/h").max_receipts(1).clock(clock).build().unwrap();
    for _ in 0..2_000 {
        let _ = limiter.reserve("k", 1, Duration::ZERO).unwrap();
    }
    assert_eq!(limiter.peek("k", 0).remaining(), 3_000);
}

#[test]
fn a_receipt_is_text_and_works_once() {
    let (limiter, _) = limiter("fixed-window 10/h");
    let receipt = limiter.reserve("k", 4, Duration::ZERO).unwrap().keep().unwrap();
    let text = receipt.to_string();
    assert!(text.starts_with("m1.") && text.len() == 51, "{text}");
    let read: Receipt = text.parse().unwrap();
    assert_eq!(read, receipt);
    assert!(limiter.cancel(&read) && !limiter.cancel(&read) && !limiter.settle(&read, 1));
    assert_eq!(limiter.peek("k", 0).remaining(), 10);
    for bad in [
        "",
        "x",
        &text[1..],
        &text.to_uppercase().replace(|c: char| c.is_ascii_digit(), "G"),
        "é".repeat(24).as_str(),
    ] {
        assert!(bad.parse::<Receipt>().unwrap_err().to_string().starts_with("not a receipt"), "{bad}");
    }
}

/// A free slot holds zeros, and no receipt names one.
#[test]
fn a_forged_receipt_does_nothing() {
    let (limiter, _) = limiter("token-bucket 10/s");
    assert!(limiter.check("k").allowed());
    for digit in ["0", "1", "f"] {
        let receipt: Receipt = format!("m1.{}", digit.repeat(48)).parse().unwrap();
        assert!(!limiter.cancel(&receipt) && !limiter.settle(&receipt, 7));
    }
    assert_eq!((limiter.stats().keys, limiter.peek("k", 1).remaining()), (1, 9));
}

#[test]
fn resetting_a_key_voids_its_receipts() {
    let (limiter, _) = limiter("fixed-window 10/h");
    let receipt = limiter.reserve("k", 4, Duration::ZERO).unwrap().keep().unwrap();
    limiter.reset("k");
    assert!(!limiter.cancel(&receipt) && !limiter.settle(&receipt, 9));
    assert_eq!(limiter.peek("k", 0).remaining(), 10);
}

#[test]
fn evicting_a_key_voids_its_receipts() {
    let clock = ManualClock::default();
    let limiter = Limiter::builder("fixed-window 10/h").max_keys(1).clock(clock).build().unwrap();
    let receipt = limiter.reserve("first", 1, Duration::ZERO).unwrap().keep().unwrap();
    let _ = limiter.check_cost("second", 5);
    assert!(!limiter.contains("first") && !limiter.cancel(&receipt));
}

/// The key has recovered and made room, yet its receipt can still add debt.
#[test]
fn a_receipt_outlives_a_recovered_key() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("token-bucket 1/s burst=10").max_keys(1).clock(clock.clone());
    let limiter = builder.build().unwrap();
    let receipt = limiter.reserve("first", 1, Duration::ZERO).unwrap().keep().unwrap();
    clock.advance(SECOND);
    let _ = limiter.check("second");
    assert!(!limiter.contains("first"));
    clock.advance(SECOND);
    assert!(limiter.settle(&receipt, 5));
    assert_eq!(limiter.peek("first", 0).remaining(), 6);
}

#[test]
fn open_receipts_are_bounded() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("token-bucket 1/s burst=1000000").max_receipts(3);
    let limiter = builder.max_keys(10_000).clock(clock.clone()).build().unwrap();
    let reserve = |key: u32| limiter.reserve(key, 1, Duration::ZERO);
    let mut kept: Vec<Receipt> = (0..3).map(|key| reserve(key).unwrap().keep().unwrap()).collect();
    assert_eq!(reserve(9).unwrap_err(), VerbError::TooManyReceipts);
    assert!(VerbError::TooManyReceipts.to_string().contains("max_receipts"));
    assert!(limiter.cancel(&kept[0]));
    let last = reserve(9).unwrap();
    assert!(last.allowed());
    // A denied one takes nothing.
    drop(last);
    for _ in 0..10 {
        assert!(!limiter.reserve(7, 1_000_001, Duration::ZERO).unwrap().allowed());
    }
    kept.extend(reserve(8).unwrap().keep());
    assert_eq!(reserve(9).unwrap_err(), VerbError::TooManyReceipts);
    // None was used within an hour, and their cost has leaked.
    clock.advance(Duration::from_secs(3_601));
    let used_within_an_hour = reserve(9).unwrap().keep().unwrap();
    // More than one if they share a shard.
    assert!(kept.iter().filter(|receipt| limiter.settle(receipt, 5)).count() <= 2, "none has expired");
    assert!(limiter.settle(&used_within_an_hour, 5));
}

#[test]
fn without_receipts_nothing_can_be_reserved() {
    let limiter = Limiter::builder("fixed-window 10/h").max_receipts(0).build().unwrap();
    assert_eq!(limiter.reserve("k", 1, Duration::ZERO).unwrap_err(), VerbError::TooManyReceipts);
    assert!(limiter.check_cost("k", 10).allowed(), "nothing was charged");
}

#[test]
fn a_receipt_is_kept_while_its_cost_counts() {
    let clock = ManualClock::default();
    let limiter =
        Limiter::builder("fixed-window 10/30d").max_receipts(1).clock(clock.clone()).build().unwrap();
    let receipt = limiter.reserve("k", 4, Duration::ZERO).unwrap().keep().unwrap();
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(limiter.reserve("k", 1, Duration::ZERO).unwrap_err(), VerbError::TooManyReceipts);
    assert!(limiter.cancel(&receipt));
}

#[test]
fn receipts_per_key_are_bounded() {
    let (limiter, _) = limiter("token-bucket 1/s burst=1000000");
    let kept: Vec<_> = (0..16_384).map(|_| limiter.reserve("k", 1, Duration::ZERO).unwrap().keep()).collect();
    let refused = limiter.reserve("k", 1, Duration::ZERO).unwrap_err();
    assert_eq!(refused, VerbError::TooManyReceiptsOfKey);
    assert_eq!(refused.to_string(), "too many receipts of the key are open; cancel, settle or drop some");
    assert_eq!(limiter.peek("k", 0).remaining(), 1_000_000 - 16_384, "a rejected reservation is not charged");
    assert!(limiter.reserve("other", 1, Duration::ZERO).unwrap().allowed());
    assert!(kept.into_iter().flatten().all(|receipt| limiter.cancel(&receipt)));
    assert_eq!(limiter.peek("k", 0).remaining(), 1_000_000);
}

#[test]
fn count_all_does_not_support_reservations() {
    let (limiter, _) = limiter("sliding-log 5/60s count=all");
    let refused = limiter.reserve("k", 1, Duration::ZERO).unwrap_err();
    assert!(matches!(refused, VerbError::Unsupported(_)), "{refused}");
    assert!(limiter.take("k", 1).is_err());
}

/// There is no room for the debt, and yet the receipt is used up.
#[test]
fn a_settlement_without_room_uses_up_its_receipt() {
    let clock = ManualClock::default();
    let builder = Limiter::builder("token-bucket 1/s burst=10").max_keys(1).max_receipts(1);
    let limiter = builder.on_full(OnFull::Deny).clock(clock.clone()).build().unwrap();
    let reserved = limiter.reserve("a", 5, Duration::ZERO).unwrap();
    clock.advance(10 * SECOND);
    let _ = limiter.check("b");
    assert!(!reserved.settle(9));
    assert!(limiter.reserve("b", 1, Duration::ZERO).unwrap().allowed());
}
