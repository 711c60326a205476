//! The line of text.

use sluicegate_guard::bulkhead::{Bulkhead, BulkheadConfig};

#[test]
fn what_is_printed_reads_the_same() {
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
fn a_bulkhead_is_made_of_a_text_or_a_spec() {
    let spec: BulkheadConfig = "bulkhead 2 queue=1".parse().unwrap();
    assert_eq!(Bulkhead::new(spec).unwrap().config(), spec);
    assert_eq!(Bulkhead::new(&spec.to_string()).unwrap().config(), spec);
}

#[test]
fn a_mistake_says_which_word_and_what_to_write() {
    for (text, says) in [
        ("", r#"unknown kind ""; use bulkhead"#),
        ("bulkhed 10", r#"bulkhed 10: unknown kind "bulkhed"; did you mean bulkhead?"#),
        ("bulkhead", "bulkhead: bulkhead needs how many right after it; write bulkhead 10"),
        ("bulkhead queue=5", "bulkhead queue=5: bulkhead needs how many right after it; write bulkhead 10"),
        (
            "bulkhead ten",
            r#"bulkhead ten: count "ten" is not a whole number; use digits only, up to 1000000000"#,
        ),
        (
            "bulkhead 0",
            "bulkhead 0: count 0 is below the least, 1; that would deny every call, use at least 1",
        ),
        (
            "bulkhead 1000000001",
            "bulkhead 1000000001: count 1000000001 is above the most, 1000000000; use a smaller number",
        ),
        (
            "bulkhead 10 size=5",
            r#"bulkhead 10 size=5: unknown option "size"; bulkhead takes queue= (how many wait) and wait= (how long at the most)"#,
        ),
        (
            "bulkhead 10 queue=1000001",
            "bulkhead 10 queue=1000001: queue=1000001 is above the most, 1000000; let fewer wait",
        ),
        (
            "bulkhead 10 queue=5 wait=0s",
            "bulkhead 10 queue=5 wait=0s: wait=0s is not from 1us to 3650d; leave queue= out if nobody is to wait",
        ),
        (
            "bulkhead 10 wait=1s",
            "bulkhead 10 wait=1s: wait= is for those in the queue, and there is none; add queue=, such as queue=5",
        ),
    ] {
        assert_eq!(Bulkhead::new(text).unwrap_err().to_string(), says);
    }
    let long = format!("bulkhead 10 {}", "x".repeat(300));
    assert!(Bulkhead::new(&long).unwrap_err().to_string().contains("312 bytes is above the most, 256"));
}
