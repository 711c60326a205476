//! Traces good and bad: what is read, and what is said about what cannot be.

use sluicegate_sim::Replay;
use sluicegate_sim::replay::{HEADER, run};
use sluicegate_sim::trace::KEY_LEN_MAX;

/// The decisions and, if it stopped, why.
fn replay(limit: &str, trace: &[u8]) -> (String, Option<String>) {
    let replay = Replay::new(vec![limit.parse().unwrap()]).unwrap();
    let mut out = Vec::new();
    let error = run(replay, trace, &mut out).err().map(|error| error.to_string());
    (String::from_utf8(out).unwrap(), error)
}

fn rows(trace: &[u8]) -> Vec<String> {
    let (out, error) = replay("sliding-log 5/60s", trace);
    assert_eq!(error, None);
    let mut lines = out.lines().map(str::to_owned);
    assert_eq!(lines.next().as_deref(), Some(HEADER));
    lines.collect()
}

fn refused(trace: &[u8]) -> String {
    replay("sliding-log 5/60s", trace).1.expect("a denial")
}

#[test]
fn a_trace_gives_one_row_a_call() {
    assert_eq!(
        rows(b"at_us,key,cost\n0,a,1\n0,a,5\n0,b,6\n0,a,0\n"),
        ["1,5,4,,60000000,0", "0,5,4,60000000,60000000,0", "0,5,5,never,0,0", "1,5,4,,60000000,0"]
    );
}

#[test]
fn keys_are_quoted_as_usual_and_hold_any_bytes() {
    let trace = b"at_us,key,cost\r\n0,\"a,b\",5\r\n0,\"a,b\",1\r\n0,\"say \"\"hi\"\"\",5\r\n0,\"two\nlines\",5\n0,\xff\xfe,5\n0,,5\n0,,1";
    let allowed: String = rows(trace).iter().map(|row| row.chars().next().unwrap()).collect();
    assert_eq!(allowed, "1011110");
}

#[test]
fn blank_lines_a_byte_order_mark_and_a_missing_last_line_feed_are_fine() {
    assert_eq!(rows(b"\xef\xbb\xbfat_us,key,cost\n\n\n0,a,1\n\n0,a,1").len(), 2);
    assert_eq!(rows(b"at_us,key,cost\n").len(), 0);
}

#[test]
fn each_bad_row_says_its_line_its_value_and_what_to_write() {
    let header = "at_us,key,cost\n0,a,1\n";
    let fields = "write at_us,key,cost, and quote a key that has commas";
    let time = "use whole microseconds since 1970, from 0 to 250000000000000000";
    let cost = "use a whole number from 0 to 1000000000000";
    for (row, problem, advice) in [
        ("1,a", "the row has 2 fields, not 3", fields),
        ("1", "the row has 1 field, not 3", fields),
        ("1,a,1,1", "the row has 4 fields, not 3", fields),
        ("-1,a,1", r#"at_us "-1" is not a whole number"#, time),
        ("1.5,a,1", r#"at_us "1.5" is not a whole number"#, time),
        (",a,1", r#"at_us "" is not a whole number"#, time),
        (
            "250000000000000001,a,1",
            r#"at_us "250000000000000001" is above the maximum, 250000000000000000"#,
            time,
        ),
        (
            "99999999999999999999999,a,1",
            r#"at_us "99999999999999999999999" is above the maximum, 250000000000000000"#,
            time,
        ),
        ("1,a,-1", r#"cost "-1" is not a whole number"#, cost),
        ("1,a,+1", r#"cost "+1" is not a whole number"#, cost),
        ("1,a, 1", r#"cost " 1" is not a whole number"#, cost),
        ("1,a,", r#"cost "" is not a whole number"#, cost),
        ("1,a,1000000000001", r#"cost "1000000000001" is above the maximum, 1000000000000"#, cost),
        (
            "1,a,18446744073709551617",
            r#"cost "18446744073709551617" is above the maximum, 1000000000000"#,
            cost,
        ),
        ("1,a,\u{1b}[31m", r#"cost "\x1b[31m" is not a whole number"#, cost),
        (
            r#"1,"a"b,1"#,
            "there is text after a closing quote",
            "double each quote inside a key, and look for one that is not closed",
        ),
    ] {
        let said = &format!("line 3: {problem}; {advice}");
        assert_eq!(&refused(format!("{header}{row}\n").as_bytes()), said, "{row:?}");
        // The same without a last line feed, after Windows line ends, and after blank lines.
        assert_eq!(&refused(format!("{header}{row}").as_bytes()), said, "{row:?}");
        assert_eq!(&refused(format!("{header}{row}\n").replace('\n', "\r\n").as_bytes()), said, "{row:?}");
        let later = said.replace("line 3", "line 5");
        assert_eq!(refused(format!("{header}\n\n{row}\n").as_bytes()), later, "{row:?}");
    }
}

#[test]
fn the_largest_numbers_are_fine() {
    assert_eq!(
        rows(b"at_us,key,cost\n250000000000000000,a,1000000000000\n250000000000000000,a,1\n").len(),
        2
    );
}

#[test]
fn a_line_number_counts_the_lines_inside_quotes_and_across_chunks() {
    let mut trace = "at_us,key,cost\n".to_owned();
    for _ in 0..20_000 {
        trace += "0,\"a\nb\",1\n";
    }
    trace += "0,a,x\n";
    assert!(refused(trace.as_bytes()).starts_with("line 40002: cost \"x\""));
}

#[test]
fn the_rows_before_a_bad_one_are_written() {
    let (out, error) = replay("sliding-log 5/60s", b"at_us,key,cost\n0,a,1\nx,a,1\n0,a,1\n");
    assert_eq!(out, format!("{HEADER}\n1,5,4,,60000000,0\n"));
    assert!(error.is_some());
}

#[test]
fn a_missing_header_is_said() {
    let advice = "make at_us,key,cost the first line";
    for (trace, problem) in [
        (&b""[..], "the header at_us,key,cost is missing"),
        (b"0,a,1\n", r#"the header should be at_us,key,cost, not "0,a,1""#),
        (b"key,at_us,cost\n", r#"the header should be at_us,key,cost, not "key,at_us,cost""#),
        (b"at_us,key\n", r#"the header should be at_us,key,cost, not "at_us,key""#),
        (b"at_us,key,cost,more\n", r#"the header should be at_us,key,cost, not "at_us,key,cost,more""#),
        (b"AT_US,KEY,COST\n", r#"the header should be at_us,key,cost, not "AT_US,KEY,COST""#),
    ] {
        assert_eq!(refused(trace), format!("line 1: {problem}; {advice}"));
    }
}

#[test]
fn a_key_at_its_bound_is_fine_and_beyond_it_refused() {
    let trace = |length: usize| format!("at_us,key,cost\n0,{},1\n", "k".repeat(length));
    assert_eq!(rows(trace(KEY_LEN_MAX).as_bytes()).len(), 1);
    assert_eq!(
        refused(trace(KEY_LEN_MAX + 1).as_bytes()),
        "line 2: a key of 65537 bytes is above the maximum, 65536; shorten it, or use a hash of it"
    );
}

#[test]
fn a_quote_that_is_never_closed_swallows_nothing() {
    let not_closed = "a quote is not closed; close it, and double each quote inside a key";
    assert_eq!(refused(b"at_us,key,cost\n0,a,1\n0,\"a,1\n0,b,1\n"), format!("line 3: {not_closed}"));
    // The next quote seems to close it, but then there is text after it.
    let text_after = "double each quote inside a key, and look for one that is not closed";
    assert_eq!(
        refused(b"at_us,key,cost\n0,\"a,1\n0,\"b,1\n0,c,1\n"),
        format!("line 2: there is text after a closing quote; {text_after}")
    );
    // However much follows, no more than a row is taken into memory.
    let trace = format!("at_us,key,cost\n0,a,1\n0,\"{}", "0,a,1\n".repeat(100_000));
    assert_eq!(
        refused(trace.as_bytes()),
        "line 3: the row is longer than 66560 bytes; shorten the key, and look for a quote that is not closed"
    );
}

#[test]
fn a_row_of_very_many_fields_is_refused() {
    let trace = format!("at_us,key,cost\n0,a{}\n", ",1".repeat(1_000));
    assert_eq!(
        refused(trace.as_bytes()),
        "line 2: the row has 1002 fields, not 3; write at_us,key,cost, and quote a key that has commas"
    );
}

/// However the input is cut into reads, the rows are the same.
#[test]
fn reads_of_one_byte_give_the_same_rows() {
    struct OneByte<'a>(&'a [u8]);
    impl std::io::Read for OneByte<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            buffer[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }
    let trace = b"at_us,key,cost\r\n0,\"a,b\",5\r\n\r\n0,\"a,b\",1\r\n0,\"two\n\"\"lines\"\"\",5\n0,c,1";
    let mut out = Vec::new();
    let one = Replay::new(vec!["sliding-log 5/60s".parse().unwrap()]).unwrap();
    assert_eq!(run(one, OneByte(trace), &mut out).unwrap(), 4);
    assert_eq!(String::from_utf8(out).unwrap(), replay("sliding-log 5/60s", trace).0);
}

#[test]
fn limits_that_do_not_go_together_are_refused() {
    let limits = ["sliding-log 5/60s count=all", "token-bucket 1/s"].map(|text| text.parse().unwrap());
    assert_eq!(
        Replay::new(limits.to_vec()).unwrap_err().to_string(),
        "sliding-log 5/min count=all: count=all does not go with other limits; leave count=all out, or use it alone"
    );
    assert!(Replay::new(vec![]).is_err());
}
