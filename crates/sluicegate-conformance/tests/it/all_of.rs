//! Lists of limits and calls on several keys, all or nothing; and unsupported verbs.

use sluicegate::Limit;
use sluicegate_core::all_of::{Part, check_all, check_list, peek_all};
use sluicegate_core::{Account, AnyLimit, AnyState, RetryAfter, Span, Time};

fn made(text: &str) -> AnyLimit {
    text.parse::<Limit>().unwrap().made_at(Time::EPOCH).unwrap()
}

fn at(seconds: u64) -> Time {
    Time::from_micros(seconds * 1_000_000).unwrap()
}

/// Per user, per address and for the whole site, each with its own cost: all are charged, or none.
#[test]
fn calls_on_several_keys_are_all_or_nothing() {
    let (per_user, per_ip, site) =
        (made("sliding-log 3/60s"), made("token-bucket 10/s"), made("fixed-window 100/h"));
    let (mut user, mut ip, mut all) = (AnyState::default(), AnyState::default(), AnyState::default());
    let mut check = |user_cost, site_cost| {
        let mut parts = [
            Part { limit: &per_user, state: &mut user, cost: user_cost },
            Part { limit: &per_ip, state: &mut ip, cost: 1 },
            Part { limit: &site, state: &mut all, cost: site_cost },
        ];
        let peeked = peek_all(&parts, at(1));
        let decision = check_all(&mut parts, at(1));
        assert_eq!(peeked.allowed(), decision.allowed());
        (decision.allowed(), decision.limit(), decision.remaining(), decision.denied_by())
    };
    assert_eq!(check(1, 50), (true, 3, 2, None), "the least remaining is the user's");
    assert_eq!(check(3, 10), (false, 3, 2, Some(0)), "the user has only 2 left");
    assert_eq!(check(1, 51), (false, 100, 50, Some(2)), "and nothing was charged to the site for that");
    assert_eq!(check(4, 51), (false, 3, 2, Some(0)), "never is longer than an hour");
    assert_eq!(check(1, 50), (true, 100, 0, None), "so that this still passes, and uses the site up");
    assert_eq!(check(0, 0), (true, 100, 0, None), "what costs nothing there is no matter there");
}

#[test]
fn the_longest_wait_denies_and_the_first_on_a_tie() {
    let limits = [made("token-bucket 1/s"), made("token-bucket 1/min"), made("token-bucket 1/min")];
    let mut states = [AnyState::default(), AnyState::default(), AnyState::default()];
    assert!(check_list(&limits, &mut states, at(0), 1).allowed());
    let denied = check_list(&limits, &mut states, at(0), 1);
    assert_eq!(denied.denied_by(), Some(1));
    assert_eq!(denied.retry_after(), Some(RetryAfter::After(Span::from_micros(60_000_000))));
}

#[test]
#[should_panic(expected = "one state per limit")]
fn a_missing_state_panics() {
    let _ = check_list(
        &[made("token-bucket 1/s"), made("token-bucket 1/min")],
        &mut [AnyState::default()],
        at(0),
        1,
    );
}

#[test]
#[should_panic(expected = "the same list of limits")]
fn an_account_rejects_another_list() {
    let limits = [made("token-bucket 1/s"), made("token-bucket 1/min")];
    let mut account = Account::default();
    let _ = account.check(&limits, at(0), 1);
    let _ = account.check(&limits[..1], at(0), 1);
}

#[test]
fn a_changed_list_keeps_what_was_used_and_its_receipts() {
    let old = [made("fixed-window 5/h"), made("token-bucket 1/s burst=5")];
    let new = [made("fixed-window 9/h"), made("token-bucket 1/s burst=9"), made("sliding-log 8/60s")];
    let mut account = Account::default();
    let (_, receipt) = account.reserve(&old, at(0), 3, Span::ZERO).unwrap();
    account.adopt(&new, &old, at(0));
    assert_eq!(account.peek(&new, at(0), 0).remaining(), 6);
    assert!(account.cancel(&new, at(0), receipt.unwrap()));
    assert_eq!(account.peek(&new, at(0), 0).remaining(), 8);
    assert!(account.check(&new, at(0), 8).allowed());
    account.adopt(&old[..1], &new, at(0));
    assert_eq!(account.peek(&old[..1], at(0), 0).remaining(), 0);
}

#[test]
fn a_recovered_key_without_receipts_is_idle() {
    let limits = [made("token-bucket 1/s"), made("sliding-log 2/60s")];
    let mut account = Account::default();
    assert!(account.is_idle(&limits, at(0)));
    let (_, receipt) = account.reserve(&limits, at(0), 1, Span::ZERO).unwrap();
    assert!(!account.is_idle(&limits, at(59)));
    assert!(!account.is_idle(&limits, at(60)), "a receipt is open");
    account.expire_receipts(&limits, at(0));
    assert_eq!(account.open_receipts(), 1, "made at that time, not before it");
    account.expire_receipts(&limits, at(1));
    assert!(account.is_idle(&limits, at(60)));
    assert!(!account.settle(&limits, at(60), receipt.unwrap(), 5), "it has expired");
}

#[test]
fn an_unsupported_verb_says_what_to_use_instead() {
    let mut account = Account::default();
    let counting = [made("sliding-log 5/60s count=all")];
    let message = account.take(&counting, at(0), 1).unwrap_err().to_string();
    assert_eq!(message, "count=all does not support take, since denied calls count too; use check");
    let message = account.reserve(&counting, at(0), 1, Span::ZERO).unwrap_err().to_string();
    assert_eq!(message, "count=all does not support reserve, since denied calls count too; use check");
    let message = account.check_within(&counting, at(0), 1, Span::ZERO).unwrap_err().to_string();
    assert_eq!(
        message,
        "count=all does not support a maximum wait, since denied calls count too; use check without one"
    );
    let warming = [made("smooth 10/s warmup=4s")];
    let message = account.take(&warming, at(0), 1).unwrap_err().to_string();
    assert_eq!(
        message,
        "smooth does not support take, since any cost is allowed once its time has come; use check"
    );
    let message = account.reserve(&warming, at(0), 1, Span::ZERO).unwrap_err().to_string();
    assert_eq!(
        message,
        "smooth does not support reserve, since its charges cannot be cancelled; use check with a maximum \
         wait, which returns the delay"
    );
    let message = account.refund(&warming, at(0), 1).unwrap_err().to_string();
    assert_eq!(
        message,
        "smooth with warmup= does not support refund, since the price of a permit is not known afterwards; leave \
         warmup= out to refund permits"
    );
    assert!(account.refund(&[made("smooth 10/s")], at(0), 1).is_ok());
    // One limit of a list is enough to reject the verb for all.
    let paced = [made("fixed-window 5/h"), made("pacer 1/s")];
    let mut account = Account::default();
    let _ = account.check(&paced, at(0), 1);
    let message = account.refund(&paced, at(0), 1).unwrap_err().to_string();
    assert_eq!(
        message,
        "pacer does not support refund, since its time slots are in order; reserve, and cancel the receipt"
    );
    assert_eq!(account.peek(&paced, at(0), 0).remaining(), 1);
    assert_eq!(account.peek(&paced, at(3_599), 0).reset_after(), Span::ZERO, "the pacer has recovered");
}
