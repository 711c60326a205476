//! The line of text.

use sluicegate_guard::bulkhead::{Bulkhead, BulkheadConfig};

#[test]
fn printed_text_parses_to_an_equal_value() {
    for (text, printed) in [
        ("bulkhead 10", "bulkhead 10"),
        ("bulkhead 10 queue=0", "bulkhead 10"),
        ("bulkhead 10 queue=5 wait=1s", "bulkhead 10 queue=5"),
        ("bulkhead 10 queue=5 wait=1500ms", "bulkhead 10 queue=5 wait=1500ms"),
        ("  bulkhead  1000000000   wait=60s queue=1000000 ", "bulkhead 1000000000 queue=1000000 wait=1min"),
    ] {
        let spec: BulkheadConfig = text.parse().unwrap();
        assert_eq!(spec.to_string(), printed);
        assert_eq!(printed.parse::<BulkheadConfig>().unwrap(), spec);
    }
}

#[test]
fn a_bulkhead_is_built_from_a_text_or_a_configuration() {
    let spec: BulkheadConfig = "bulkhead 2 queue=1".parse().unwrap();
    assert_eq!(Bulkhead::new(spec).unwrap().config(), spec);
    assert_eq!(Bulkhead::new(&spec.to_string()).unwrap().config(), spec);
}

#[test]
fn an_error_names_the_word_and_what_to_write() {
    for (text, says) in [
        ("", r#"unknown kind ""; use bulkhead"#),
        ("bulkhed 10", r#"bulkhed 10: unknown kind "bulkhed"; did you mean bulkhead?"#),
        ("bulkhead", "bulkhead: bulkhead needs its limit right after it; write bulkhead 10"),
        ("bulkhead queue=5", "bulkhead queue=5: bulkhead needs its limit right after it; write bulkhead 10"),
        (
            "bulkhead ten",
            r#"bulkhead ten: count "ten" is not a whole number; write a number up to 1000000000000, such as 500, 1_000 or 2k"#,
        ),
        (
            "bulkhead 0",
            "bulkhead 0: count 0 is below the minimum, 1; that would deny every call, use at least 1",
        ),
        (
            "bulkhead 1000000001",
            "bulkhead 1000000001: count 1000000001 is above the maximum, 1000000000; use a smaller number",
        ),
        (
            "bulkhead 10 size=5",
            r#"bulkhead 10 size=5: unknown option "size"; bulkhead takes queue=N (waiters) and wait=DURATION (maximum wait)"#,
        ),
        (
            "bulkhead 10 queue=1000001",
            "bulkhead 10 queue=1000001: queue=1000001 is above the maximum, 1000000; use a smaller queue",
        ),
        (
            "bulkhead 10 queue=5 wait=0s",
            "bulkhead 10 queue=5 wait=0s: wait=0s is not from 1us to 3650d; omit queue= to deny without waiting",
        ),
        (
            "bulkhead 10 wait=1s",
            "bulkhead 10 wait=1s: wait= has no effect without a queue; add queue=, such as queue=5",
        ),
    ] {
        assert_eq!(Bulkhead::new(text).unwrap_err().to_string(), says);
    }
    let long = format!("bulkhead 10 {}", "x".repeat(300));
    assert!(Bulkhead::new(&long).unwrap_err().to_string().contains("312 bytes is above the maximum, 256"));
}
