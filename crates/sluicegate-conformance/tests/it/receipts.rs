//! Returns in orders that once went wrong: each ends with the usage as if the returned calls had
//! not been made.

use sluicegate::Limit;
use sluicegate_core::receipts::Receipt;
use sluicegate_core::{Account, AnyLimit, Span, Time};

/// One key, and times in seconds.
struct Key {
    limits: [AnyLimit; 1],
    account: Account<AnyLimit>,
}

impl Key {
    fn new(limit: &str) -> Key {
        Key {
            limits: [limit.parse::<Limit>().unwrap().made_at(Time::EPOCH).unwrap()],
            account: Account::default(),
        }
    }

    fn reserve(&mut self, seconds: u64, cost: u64) -> Receipt {
        let (decision, receipt) = self.account.reserve(&self.limits, at(seconds), cost, Span::ZERO).unwrap();
        assert!(decision.allowed());
        receipt.unwrap()
    }

    fn refund(&mut self, seconds: u64, cost: u64) {
        let _ = self.account.refund(&self.limits, at(seconds), cost).unwrap();
    }

    fn cancel(&mut self, seconds: u64, receipt: Receipt) -> bool {
        self.account.cancel(&self.limits, at(seconds), receipt)
    }

    fn remaining(&mut self, seconds: u64) -> u64 {
        self.account.peek(&self.limits, at(seconds), 0).remaining()
    }
}

fn at(seconds: u64) -> Time {
    Time::from_micros(seconds * 1_000_000).unwrap()
}

/// A and B are cancelled, and only C counts. A was below B when it was cancelled.
#[test]
fn a_rollback_below_moves_the_charges_above_down() {
    let mut key = Key::new("token-bucket 1/s burst=20");
    let (a, b) = (key.reserve(0, 5), key.reserve(4, 5));
    assert!(key.cancel(4, a));
    key.reserve(8, 5);
    assert!(key.cancel(8, b));
    assert_eq!(key.remaining(8), 15);

    let mut key = Key::new("token-bucket 1/s burst=10");
    let (a, b) = (key.reserve(0, 3), key.reserve(0, 3));
    assert!(key.cancel(0, a));
    key.reserve(2, 4);
    assert!(key.cancel(2, b));
    assert_eq!(key.remaining(2), 6);
}

/// A refund takes from the top, so what it returned of A and B cannot be cancelled as well.
#[test]
fn a_refund_is_not_returned_again() {
    for limit in [
        "token-bucket 1/h burst=9",
        "fixed-window 9/h",
        "fixed-window 9/h start=first",
        "sliding-log 9/h",
        "sliding-window 9/h",
    ] {
        let mut key = Key::new(limit);
        let (a, b) = (key.reserve(0, 2), key.reserve(0, 2));
        key.refund(0, 3);
        assert!(key.cancel(0, a), "{limit}: one of A's is left");
        key.reserve(0, 3);
        assert!(!key.cancel(0, b), "{limit}: none of B's is");
        assert_eq!(key.remaining(0), 6, "{limit}");
    }
}

/// A closed window voids its receipts, even if another one opens at the same moment.
#[test]
fn a_closed_window_voids_its_receipts() {
    let mut key = Key::new("fixed-window 5/h start=first");
    let receipt = key.reserve(0, 2);
    key.refund(0, 2);
    key.reserve(0, 3);
    assert!(!key.cancel(0, receipt));
    assert_eq!(key.remaining(0), 2);
}

/// What had leaked by a later change stays leaked, even if the clock steps back before the cancel.
#[test]
fn a_step_back_returns_nothing_that_had_leaked() {
    let mut key = Key::new("token-bucket 1/s burst=3");
    let a = key.reserve(12, 2);
    key.reserve(14, 2);
    assert!(!key.cancel(12, a));
    assert_eq!(key.remaining(14), 1);
    // A settled excess is such a change too.
    let mut key = Key::new("token-bucket 1/s burst=3");
    let (a, b) = (key.reserve(12, 2), key.reserve(12, 0));
    assert!(key.account.settle(&key.limits, at(14), b, 2));
    assert!(!key.cancel(12, a));
}

/// A maximum wait of more than a century counts as a century.
#[test]
fn no_call_borrows_more_than_a_century() {
    let mut key = Key::new("token-bucket 1/3650d burst=10");
    let mut reserve = |cost| key.account.reserve(&key.limits, at(0), cost, Span::MAX).unwrap().0;
    assert!(reserve(10).allowed());
    assert!(reserve(10).allowed(), "a century's wait");
    let denied = reserve(1);
    assert!(!denied.allowed(), "110 years are too long");
}

/// The log of a busy key holds only what is within the period.
#[test]
fn a_log_drops_what_has_aged_out() {
    use sluicegate_core::{
        Algorithm as _, Rate,
        sliding_log::{Log, SlidingLog},
    };
    let log = SlidingLog::new(Rate::new(5, Span::from_micros(60_000_000)).unwrap()).unwrap();
    let mut state = Log::default();
    for minute in 0..1_000 {
        assert!(log.check(&mut state, at(minute * 60), 5).allowed());
    }
    assert_eq!(state.len(), 1);
}
