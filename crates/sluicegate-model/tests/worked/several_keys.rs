//! Reservations over several keys: all or nothing, under one receipt.

use crate::{S, no, yes};
use sluicegate_model::{
    Answer, Call, Decision, KeyId, Keys, ReceiptId, Rejected, Rule, Terms, UNLIMITED, Windows,
};

fn bucket_rule(burst: u64) -> Rule {
    Rule::Bucket { count: 1, period: S, burst, initial: None }
}

fn window_rule(count: u64) -> Rule {
    Rule::FixedWindow { count, windows: Windows::Epoch { period: 60 * S } }
}

fn log_rule(count: u64) -> Rule {
    Rule::SlidingLog { count, period: 60 * S, count_all: false }
}

/// A user with a bucket of 5, and a team with a window of 10 and a log of 8.
fn user_and_team() -> (Keys, KeyId, KeyId) {
    let mut keys = Keys::default();
    let user = keys.add(vec![bucket_rule(5)]);
    let team = keys.add(vec![window_rule(10), log_rule(8)]);
    (keys, user, team)
}

fn call(key: KeyId, cost: u64) -> Call {
    Call { key, cost }
}

fn allowed(decision: Decision) -> Answer {
    Answer { decision, denied_call: None }
}

fn denied(call: usize, limit: usize, decision: Decision) -> Answer {
    Answer { decision: Decision { denied_by: Some(limit), ..decision }, denied_call: Some(call) }
}

fn reserved(keys: &mut Keys, now: u64, calls: &[Call]) -> ReceiptId {
    match keys.reserve(now, calls, Terms::default()) {
        (answer, Some(receipt)) if answer.decision.allowed => receipt,
        (answer, _) => panic!("expected an allowed reservation, got {answer:?}"),
    }
}

/// What is used of each limit of a key.
fn used(keys: &Keys, now: u64, key: KeyId) -> Vec<u64> {
    keys.usage(now, key).iter().map(|usage| usage.used).collect()
}

#[test]
fn a_denial_names_the_call_and_the_limit_and_charges_nothing() {
    let (mut keys, user, team) = user_and_team();
    let (answer, receipt) = keys.reserve(0, &[call(user, 2), call(team, 3)], Terms::default());
    assert_eq!(answer, allowed(yes(5, 3, 2 * S)));
    assert!(receipt.is_some());
    // The user would wait for 1 s, the team's window has room for 7, and its log for 5.
    let calls = [call(user, 4), call(team, 6)];
    let denial = denied(1, 1, no(8, 5, 60 * S, 60 * S));
    assert_eq!(keys.reserve(0, &calls, Terms::default()), (denial, None));
    assert_eq!(keys.check(0, &calls), denial);
    assert_eq!(keys.peek(0, &calls), denial);
    assert_eq!(keys.check(0, &[call(team, 5), call(user, 4)]), denied(1, 0, no(5, 3, S, 2 * S)));
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![2], vec![3, 3]));
}

#[test]
fn a_key_given_twice_is_one_key_with_both_costs() {
    let (mut keys, user, team) = user_and_team();
    let calls = [call(team, 1), call(user, 3), call(user, 3)];
    let denial = keys.check(0, &calls);
    assert_eq!((denial.denied_call, denial.decision.remaining), (Some(1), 5));
    let receipt = reserved(&mut keys, 0, &[call(user, 2), call(team, 1), call(user, 3)]);
    assert_eq!(used(&keys, 0, user), [5]);
    // Of five, 0 + 4 were used.
    assert_eq!(keys.settle(0, receipt, &[0, 1, 4]), Ok(true));
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![4], vec![1, 1]));
}

#[test]
fn one_number_holds_for_each_call() {
    let (mut keys, user, team) = user_and_team();
    let receipt = reserved(&mut keys, 0, &[call(user, 1), call(team, 5), call(user, 2)]);
    assert_eq!(keys.settle(0, receipt, &[2]), Ok(true));
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![4], vec![2, 2]));
    assert_eq!(keys.settle(0, receipt, &[2]), Ok(false), "used up");
    assert_eq!(keys.extend(0, receipt, &[2], None), Err(Rejected::NotOpen));
}

#[test]
fn a_wrong_count_of_numbers_leaves_the_receipt_open() {
    let (mut keys, user, team) = user_and_team();
    let receipt = reserved(&mut keys, 0, &[call(user, 1), call(team, 5), call(user, 2)]);
    for numbers in [&[][..], &[1, 2], &[1, 2, 3, 4]] {
        assert_eq!(keys.settle(0, receipt, numbers), Err(Rejected::WrongCount));
        assert_eq!(keys.extend(0, receipt, numbers, None), Err(Rejected::WrongCount));
    }
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![3], vec![5, 5]));
    assert!(keys.cancel(0, receipt));
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![0], vec![0, 0]));
    assert_eq!(keys.settle(0, receipt, &[1, 2]), Err(Rejected::WrongCount), "open or not");
}

#[test]
fn an_extension_is_all_or_nothing() {
    let (mut keys, user, team) = user_and_team();
    let receipt = reserved(&mut keys, 0, &[call(user, 2), call(team, 3)]);
    let denial = denied(1, 1, no(8, 5, 60 * S, 60 * S));
    assert_eq!(keys.extend(0, receipt, &[1, 6], None), Ok(denial));
    assert_eq!(keys.extend(0, receipt, &[3, 5], None), Ok(allowed(yes(5, 0, 5 * S))));
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![5], vec![8, 8]));
    assert_eq!(keys.settle(0, receipt, &[4, 9]), Ok(true));
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![4], vec![9, 9]));
}

#[test]
fn a_reset_voids_only_the_part_of_its_key() {
    let (mut keys, user, team) = user_and_team();
    let receipt = reserved(&mut keys, 0, &[call(user, 2), call(team, 3)]);
    keys.reset(user);
    // The user's bucket is passed over: neither too small nor charged.
    assert_eq!(keys.extend(0, receipt, &[9, 1], None), Ok(allowed(yes(8, 4, 60 * S))));
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![0], vec![4, 4]));
    assert_eq!(keys.settle(0, receipt, &[7, 5]), Ok(true));
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![0], vec![5, 5]));

    let receipt = reserved(&mut keys, 0, &[call(user, 2), call(team, 3)]);
    keys.reset(user);
    keys.reset(team);
    assert!(!keys.cancel(0, receipt));
    assert_eq!(keys.settle(0, receipt, &[9, 9]), Ok(false));
    assert_eq!((used(&keys, 0, user), used(&keys, 0, team)), (vec![0], vec![0, 0]));
}

#[test]
fn an_unlimited_key_counts_among_the_calls_and_is_not_charged() {
    let (mut keys, user, _) = user_and_team();
    let free = keys.add(Vec::new());
    let receipt = reserved(&mut keys, 0, &[call(free, 50), call(user, 2)]);
    assert_eq!(keys.settle(0, receipt, &[50, 1]), Ok(true));
    assert_eq!(used(&keys, 0, user), [1]);
    let denial = keys.check(0, &[call(free, 50), call(user, 5)]);
    assert_eq!(denial, denied(1, 0, no(5, 4, S, S)));
    let unlimited = allowed(yes(UNLIMITED, UNLIMITED, 0));
    assert_eq!(keys.reserve(0, &[call(free, 50)], Terms::default()), (unlimited, None));
    let at_least = keys.reserve_at_least(0, call(free, UNLIMITED), 1, None);
    assert_eq!(at_least, (unlimited, None, UNLIMITED));
}

#[test]
fn a_call_of_cost_zero_takes_part_in_what_remains() {
    let (mut keys, user, team) = user_and_team();
    keys.check(0, &[call(user, 4)]);
    assert_eq!(keys.check(0, &[call(team, 1), call(user, 0)]), allowed(yes(5, 1, 4 * S)));
    let receipt = reserved(&mut keys, 0, &[call(team, 1), call(user, 0)]);
    assert_eq!(keys.settle(0, receipt, &[1, 2]), Ok(true));
    assert_eq!(used(&keys, 0, user), [6]);
}

#[test]
fn the_longest_delay_of_all_keys_is_reported() {
    let (mut keys, user, team) = user_and_team();
    let other = keys.add(vec![bucket_rule(5)]);
    keys.check(0, &[call(user, 4), call(other, 5)]);
    let calls = [call(user, 3), call(other, 1), call(team, 1)];
    let denial = denied(0, 0, no(5, 1, S, 4 * S));
    assert_eq!(keys.check_within(0, &calls, S), denial);
    assert_eq!(keys.check_within(0, &calls, 2 * S).decision.delay, 2 * S);
}

#[test]
fn as_much_as_remains_is_granted() {
    let (mut keys, _, team) = user_and_team();
    keys.check(0, &[call(team, 2)]);
    // 8 remain in the window and 6 in the log; 2,000 exceed both limits.
    let too_much = keys.reserve_at_least(0, call(team, 2_000), 7, None);
    assert_eq!(too_much, (denied(0, 1, no(8, 6, 60 * S, 60 * S)), None, 0));
    let (answer, receipt, granted) = keys.reserve_at_least(0, call(team, 2_000), 6, None);
    assert_eq!((answer, granted), (allowed(yes(8, 0, 60 * S)), 6));
    assert_eq!(keys.settle(0, receipt.expect("a receipt"), &[1]), Ok(true));
    assert_eq!(used(&keys, 0, team), [3, 3]);
    let (_, _, granted) = keys.reserve_at_least(0, call(team, 2), 1, None);
    assert_eq!(granted, 2);
}

#[test]
fn at_least_more_than_the_limit_is_never_granted() {
    let (mut keys, user, _) = user_and_team();
    let (answer, receipt, granted) = keys.reserve_at_least(0, call(user, 2_000), 6, None);
    assert_eq!(answer, denied(0, 0, crate::never(5, 5, 0)));
    assert_eq!((receipt, granted), (None, 0));
}

#[test]
fn a_pacer_does_not_grant_part_of_a_cost() {
    let mut keys = Keys::default();
    let paced = keys.add(vec![Rule::Pacer { count: 1, period: S, queue: 4 }]);
    let peek = keys.peek(0, &[call(paced, 1)]);
    assert_eq!(keys.reserve_at_least(0, call(paced, 3), 1, None), (peek, None, 0));
    assert_eq!(used(&keys, 0, paced), [0]);
}
