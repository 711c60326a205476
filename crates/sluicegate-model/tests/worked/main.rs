//! Worked examples, with numbers computed by hand from the definitions, and laws that random calls
//! must obey.

mod bucket;
mod bucket_clock;
mod changes;
mod fixed_window;
mod large;
mod laws;
mod laws_of_budgets;
mod laws_of_changes;
mod lists;
mod pacer;
mod receipts_after_changes;
mod receipts_of_buckets;
mod receipts_of_windows;
mod several_keys;
mod sliding_log;
mod sliding_window;
mod smooth;
mod ttl;
mod usage;

use sluicegate_model::{Decision, Model, ReceiptId, RetryAfter, Rule, Windows};

/// A millisecond, a second, a day and a hundred years of 365 days, in microseconds.
const MS: u64 = 1_000;
const S: u64 = 1_000 * MS;
const DAY: u64 = 86_400 * S;
const CENTURY: u64 = 36_500 * DAY;

fn bucket(count: u64, period: u64, burst: u64) -> Model {
    Model::new(vec![Rule::Bucket { count, period, burst, initial: None }])
}

fn fixed(count: u64, windows: Windows) -> Model {
    Model::new(vec![Rule::FixedWindow { count, windows }])
}

fn log(count: u64, period: u64) -> Model {
    Model::new(vec![Rule::SlidingLog { count, period, count_all: false }])
}

fn sliding(count: u64, period: u64) -> Model {
    Model::new(vec![Rule::SlidingWindow { count, period }])
}

fn pacer(count: u64, period: u64, queue: u64) -> Model {
    Model::new(vec![Rule::Pacer { count, period, queue }])
}

/// An allowed call without a delay.
fn yes(limit: u64, remaining: u64, reset_after: u64) -> Decision {
    Decision { allowed: true, limit, remaining, retry_after: None, reset_after, delay: 0, denied_by: None }
}

/// An allowed call that acts after a delay.
fn later(limit: u64, remaining: u64, reset_after: u64, delay: u64) -> Decision {
    Decision { delay, ..yes(limit, remaining, reset_after) }
}

/// A denial by the first rule.
fn no(limit: u64, remaining: u64, retry_after: u64, reset_after: u64) -> Decision {
    Decision {
        allowed: false,
        retry_after: Some(RetryAfter::After(retry_after)),
        denied_by: Some(0),
        ..yes(limit, remaining, reset_after)
    }
}

/// A denial by the first rule, with `Never`.
fn never(limit: u64, remaining: u64, reset_after: u64) -> Decision {
    Decision { retry_after: Some(RetryAfter::Never), ..no(limit, remaining, 0, reset_after) }
}

/// The receipt of a reservation that must be allowed and must not wait.
fn reserved(model: &mut Model, now: u64, cost: u64) -> ReceiptId {
    match model.reserve(now, cost, 0) {
        (answer, Some(receipt)) if answer.allowed && answer.delay == 0 => receipt,
        (answer, _) => panic!("expected an allowed reservation, got {answer:?}"),
    }
}

/// The receipt of a reservation that must be allowed after exactly this delay.
fn waiting(model: &mut Model, now: u64, cost: u64, delay: u64) -> ReceiptId {
    match model.reserve(now, cost, delay) {
        (answer, Some(receipt)) if answer.allowed && answer.delay == delay => receipt,
        (answer, _) => panic!("expected a reservation with delay {delay}, got {answer:?}"),
    }
}

/// Returns what remains now.
fn left(model: &Model, now: u64) -> u64 {
    model.peek(now, 0).remaining
}
