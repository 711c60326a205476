//! Limits, decisions and ids as data.

use serde_json::{from_str, from_value, json, to_string, to_value};
use sluicegate::backend::{Answer, Source};
use sluicegate::clock::ManualClock;
use sluicegate::semaphore::{LeaseId, Semaphore};
use sluicegate::{Decision, Limit, Limiter, OnFull, Receipt, RetryAfter, Span, Time};
use std::time::Duration;

fn limiter(limit: &str) -> Limiter {
    Limiter::builder(limit).clock(ManualClock::default()).build().unwrap()
}

#[test]
fn a_limit_is_its_canonical_text() {
    let limit: Limit = "token-bucket 30/60s burst=15".parse().unwrap();
    assert_eq!(to_string(&limit).unwrap(), r#""token-bucket 30/min burst=15""#);
    assert_eq!(from_str::<Limit>(r#""token-bucket 30/60s burst=15""#).unwrap(), limit);
    // Text with an escape is not borrowed from the input.
    assert_eq!(from_str::<Limit>(r#""token-bucket 30\/60s burst=15""#).unwrap(), limit);
    let error = from_str::<Limit>(r#""sliding-log 5/60x""#).unwrap_err().to_string();
    assert!(error.starts_with(r#"sliding-log 5/60x: unknown unit "x";"#), "{error}");
}

#[test]
fn a_decision_is_its_fields() {
    let limiter = limiter("token-bucket 1/12s burst=5");
    let allowed = limiter.check("user:42");
    assert_eq!(
        to_value(allowed).unwrap(),
        json!({"allowed": true, "limit": 5, "remaining": 4, "retry_after": null, "reset_after": 12_000_000,
               "delay": 0, "denied_by": null, "denied_call": null})
    );
    let denied = limiter.check_cost("user:42", 5);
    assert_eq!(
        to_value(denied).unwrap(),
        json!({"allowed": false, "limit": 5, "remaining": 4, "retry_after": {"after": 12_000_000},
               "reset_after": 12_000_000, "delay": 0, "denied_by": 0, "denied_call": 0})
    );
    let full = Limiter::builder("fixed-window 5/h").max_keys(1).on_full(OnFull::Deny).build().unwrap();
    assert!(full.check("user:42").allowed());
    let no_room = full.check("user:43");
    let data = to_value(no_room).unwrap();
    assert_eq!((&data["denied_by"], &data["full_pool"]), (&json!(null), &json!("keys")));
    let never = limiter.check_cost("user:42", 6);
    assert_eq!(to_value(never).unwrap()["retry_after"], json!("never"));
    for decision in [allowed, denied, never, no_room, self::limiter("pacer 1/s").check("user:42")] {
        assert_eq!(from_value::<Decision>(to_value(decision).unwrap()).unwrap(), decision);
    }
}

#[test]
fn data_that_no_limit_decides_is_rejected() {
    let valid = json!({"allowed": true, "limit": 5, "remaining": 4, "retry_after": null, "reset_after": 0,
                       "delay": 0, "denied_by": null, "denied_call": null});
    assert!(from_value::<Decision>(valid.clone()).is_ok());
    for (field, value) in [
        ("allowed", json!(false)),
        ("retry_after", json!("never")),
        ("retry_after", json!("sometimes")),
        ("denied_by", json!(0)),
        ("denied_call", json!(0)),
        ("full_pool", json!("keys")),
        ("limit", json!(1_000_000_000_002_u64)),
        ("remaining", json!(-1)),
        ("delay", json!(0.5)),
    ] {
        let mut data = valid.clone();
        data[field] = value;
        assert!(from_value::<Decision>(data.clone()).is_err(), "{data}");
    }
    let mut denied = valid;
    (denied["allowed"], denied["retry_after"]) = (json!(false), json!("never"));
    for (field, value) in [
        ("delay", json!(1)),
        ("denied_by", json!(65_532)),
        ("denied_call", json!(65_536)),
        ("full_pool", json!("receipts")),
    ] {
        let mut data = denied.clone();
        data[field] = value;
        assert!(from_value::<Decision>(data.clone()).is_err(), "{data}");
    }
    (denied["denied_by"], denied["full_pool"]) = (json!(0), json!("keys"));
    assert!(from_value::<Decision>(denied).is_err(), "by a limit and for lack of room");
}

#[test]
fn waits_and_moments_are_microseconds() {
    assert_eq!(to_value(RetryAfter::After(Span::from_micros(7))).unwrap(), json!({"after": 7}));
    assert_eq!(from_value::<RetryAfter>(json!("never")).unwrap(), RetryAfter::Never);
    assert_eq!(to_value(Time::MAX).unwrap(), json!(250_000_000_000_000_000_u64));
    assert!(from_value::<Time>(json!(250_000_000_000_000_001_u64)).is_err());
}

#[test]
fn an_answer_has_its_source() {
    let answer = Answer::new(limiter("sliding-log 5/60s").check("user:42"), Source::Local);
    let data = to_value(answer).unwrap();
    assert_eq!((&data["source"], &data["decision"]["allowed"]), (&json!("local"), &json!(true)));
}

#[test]
fn receipts_and_leases_are_their_text() {
    let limiter = limiter("token-bucket 5/s");
    let receipt = limiter.reserve("user:42", 1, Duration::ZERO).unwrap().keep().unwrap();
    let text = to_string(&receipt).unwrap();
    assert_eq!(text, format!("\"{receipt}\""));
    assert!(limiter.cancel(&from_str::<Receipt>(&text).unwrap()));
    assert!(from_str::<Receipt>("\"nonsense\"").is_err());
    let exports = Semaphore::new("concurrency 1").unwrap();
    let lease = exports.try_acquire("user:42", 1).lease().unwrap().keep();
    assert!(exports.release("user:42", &from_str::<LeaseId>(&to_string(&lease).unwrap()).unwrap()));
}
