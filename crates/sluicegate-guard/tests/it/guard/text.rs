//! Lines of text, and what a failure says.

use sluicegate_guard::bulkhead::BulkheadConfig;
use sluicegate_guard::guard::{Failure, Guard, GuardDenial};
use sluicegate_guard::retry::{Retries, RetryConfig};
use sluicegate_guard::{Denial, ManualClock, Span};
use std::time::Duration;

#[test]
fn printed_text_parses_to_an_equal_value() {
    for (text, printed) in [
        ("retry 2", "retry 2"),
        ("retry 2 budget=10% floor=10 backoff=50ms max-backoff=1s", "retry 2"),
        (
            "retry 100 floor=0 budget=1000% max-backoff=60s backoff=0s",
            "retry 100 budget=1000% floor=0 backoff=0s max-backoff=1min",
        ),
    ] {
        let rules: RetryConfig = text.parse().unwrap();
        assert_eq!(rules.to_string(), printed);
        assert_eq!(printed.parse::<RetryConfig>().unwrap(), rules);
    }
}

#[test]
fn configurations_built_in_code_print_as_text() {
    let (second, two) = (Span::from_micros(1_000_000), Span::from_micros(2_000_000));
    let rules = RetryConfig::new(2).unwrap().with_backoff(two, second).unwrap();
    assert_eq!(rules.to_string().parse::<RetryConfig>().unwrap(), rules);
    assert_eq!(Retries::new(rules).unwrap().config(), rules);
    assert_eq!(Retries::new(RetryConfig::new(3).unwrap()).unwrap().config().to_string(), "retry 3");
    let spec: BulkheadConfig = "bulkhead 3 queue=1".parse().unwrap();
    let guard = Guard::builder("g").retry(rules).bulkhead(spec).build().unwrap();
    assert_eq!(guard.bulkhead().unwrap().config(), spec);
}

#[test]
fn an_error_names_the_word_and_what_to_write() {
    for (text, says) in [
        ("", "the retry is empty; write one, such as retry 2 budget=10%"),
        ("retri 2", r#"retri 2: unknown word "retri"; did you mean retry?"#),
        ("retry", "retry: retry needs the number of retries right after it; write retry 2"),
        ("retry 0", "retry 0: count 0 is below the minimum, 1; omit retry to make one attempt"),
        ("retry 101", "retry 101: count 101 is above the maximum, 100; use a smaller number"),
        ("retry 2 budget=10", r#"retry 2 budget=10: budget "10" has no %; write 10%"#),
        (
            "retry 2 budget=1001%",
            "retry 2 budget=1001%: budget 1001 is above the maximum, 1000; use a smaller number",
        ),
        (
            "retry 2 backoff=2s",
            "retry 2 backoff=2s: backoff=2s is above max-backoff=1s; add max-backoff=2s, or more",
        ),
        (
            "retry 2 jitter=full",
            r#"retry 2 jitter=full: unknown option "jitter"; retry takes budget=PERCENT floor=N backoff=DURATION max-backoff=DURATION"#,
        ),
    ] {
        assert_eq!(Retries::new(text).unwrap_err().to_string(), says);
    }
}

#[test]
fn a_guard_with_invalid_parts_cannot_be_built() {
    let says = |builder: sluicegate_guard::guard::GuardBuilder| builder.build().unwrap_err().to_string();
    let guard = || Guard::builder("g");
    assert!(says(guard().breaker("breaker 50/10s")).contains("has no %"));
    assert!(says(guard().bulkhead("bulkhead")).contains("write bulkhead 10"));
    assert!(says(guard().retry("retry")).contains("write retry 2"));
    assert!(says(guard().timeout(Duration::ZERO)).starts_with("timeout in microseconds is 0; use 1 to"));
    assert!(says(guard().deadline(Duration::MAX)).starts_with("deadline in microseconds is"));
    assert_eq!(says(guard().max_fallbacks(0)), "max_fallbacks is 0; use 1 to 1000000000");
}

#[test]
fn a_failure_says_what_to_do_next() {
    let denied = |denial| Failure::<&str>::Denied(denial).to_string();
    assert_eq!(Failure::Failed("down").to_string(), "down");
    assert_eq!(
        Failure::<&str>::TimedOut.to_string(),
        "the call timed out; retry later, or raise the timeout"
    );
    assert_eq!(
        Failure::<&str>::BadResult.to_string(),
        "the result of the call counts as a failure; retry later"
    );
    assert_eq!(
        denied(GuardDenial::Bulkhead(Denial::QueueFull)),
        "the bulkhead and its queue are full; retry later, or raise its limit or queue="
    );
    assert_eq!(
        denied(GuardDenial::Bulkhead(Denial::TooLong)),
        "the bulkhead is full and no permit was free in time; retry later, or raise wait="
    );
    let guard = Guard::builder("g")
        .breaker("breaker 100%/1calls min=1")
        .clock(ManualClock::default())
        .build()
        .unwrap();
    assert!(guard.call_blocking(|| Err::<(), _>("down")).is_err());
    let open = guard.call_blocking(|| Ok::<(), &str>(())).unwrap_err();
    assert_eq!(open.to_string(), "the circuit breaker is open; retry in 5s");
    assert!(open.is_denied() && open.into_error().is_none());
}
