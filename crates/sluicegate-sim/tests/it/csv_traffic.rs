//! Traces as traffic: what is read, and how it goes on after a row that is no call.

use crate::logs::OneByte;
use sluicegate_core::Time;
use sluicegate_sim::Traffic;
use sluicegate_sim::traffic::csv::read;
use sluicegate_sim::traffic::{Clock, Reading};

const STRICT: Reading = Reading { strict: true, calls_max: 1_000_000 };

fn traffic(rows: &str) -> Traffic {
    read(format!("at_us,key,cost\n{rows}").as_bytes(), Reading::default()).unwrap()
}

/// The keys of the calls, one after another.
fn keys(traffic: &Traffic) -> String {
    let key =
        |call: &sluicegate_sim::traffic::Call| String::from_utf8_lossy(traffic.key(call.key)).into_owned();
    traffic.calls().iter().map(key).collect()
}

/// The lines of the rows that are no calls.
fn broken(traffic: &Traffic) -> Vec<u64> {
    assert_eq!(traffic.broken().count, traffic.broken().first.len() as u64);
    traffic.broken().first.iter().map(|line| line.line).collect()
}

#[test]
fn rows_are_calls_in_the_order_of_the_trace_even_when_its_clock_steps_back() {
    let traffic = traffic("5,a,1\n3,b,0\n9,\"a\",7\n");
    let calls: Vec<_> =
        traffic.calls().iter().map(|call| (call.at.as_micros(), call.key, call.cost)).collect();
    assert_eq!(calls, [(5, 0, 1), (3, 1, 0), (9, 0, 7)]);
    assert_eq!((traffic.sorted(), traffic.keys(), traffic.clock()), (0, 2, Clock::Since(Time::EPOCH)));
}

#[test]
fn a_row_that_is_no_call_is_passed_over() {
    let traffic = traffic("0,a,1\nx,b,1\n0,\"two\nlines\",y\n1,c\n2,d,1\n");
    assert_eq!(keys(&traffic), "ad");
    assert_eq!(broken(&traffic), [3, 4, 6]);
    assert_eq!(
        traffic.broken().first[0].to_string(),
        "line 3: at_us \"x\" is not a whole number; use whole microseconds since 1970, from 0 to 250000000000000000"
    );
}

#[test]
fn a_row_whose_quotes_are_wrong_costs_its_line_only() {
    // Text after what seems to be the closing quote, and one that is never closed.
    let text_after = traffic("0,a,1\n0,\"b,1\n0,\"c\",1\n0,d,1\n");
    assert_eq!(keys(&text_after), "acd");
    assert_eq!(broken(&text_after), [3]);
    let not_closed = traffic("0,a,1\n0,\"b,1\n0,c,1\n0,d,x\n0,e,1");
    assert_eq!(keys(&not_closed), "ace");
    assert_eq!(broken(&not_closed), [3, 5]);
    assert_eq!(
        not_closed.broken().first[0].to_string(),
        "line 3: a quote is not closed; close it, and double each quote inside a key"
    );
    // At the very end.
    let at_end = traffic("0,a,1\n0,\"b");
    assert_eq!((keys(&at_end), broken(&at_end)), ("a".to_owned(), vec![3]));
}

#[test]
fn it_goes_on_in_the_same_way_however_the_input_is_cut_into_reads() {
    let trace = b"at_us,key,cost\r\n0,a,1\r\n0,\"b,1\r\n\r\n0,\"c\"\"\nc\",1\n0,d\n0,\"e\"e,1\n0,f,1\n0,\"g";
    let whole = read(&trace[..], Reading::default()).unwrap();
    let in_crumbs = read(OneByte(trace), Reading::default()).unwrap();
    assert_eq!(keys(&whole), "ac\"\ncf");
    assert_eq!(broken(&whole), [3, 7, 8, 10]);
    assert_eq!((whole.calls(), broken(&whole)), (in_crumbs.calls(), broken(&in_crumbs)));
}

#[test]
fn a_row_that_is_too_long_is_passed_over_up_to_its_line_end() {
    for length in [66_561, 1_000_000] {
        for quote in ["", "\""] {
            let rows = format!("0,a,1\n0,{quote}{},1\n0,b,1\n0,c,x\n", "k".repeat(length));
            let traffic = traffic(&rows);
            assert_eq!(keys(&traffic), "ab", "{length} {quote:?}");
            assert_eq!(broken(&traffic), [3, 5], "{length} {quote:?}");
        }
    }
    // A quote that is not closed, and much behind it.
    let traffic = traffic(&format!("0,\"x,1\n{}", "0,a,1\n".repeat(100_000)));
    assert_eq!(traffic.calls().len(), 100_000);
    assert_eq!(broken(&traffic), [2]);
}

#[test]
fn every_row_has_to_be_a_call_if_that_is_wanted() {
    let said =
        |rows: &str| read(format!("at_us,key,cost\n{rows}").as_bytes(), STRICT).unwrap_err().to_string();
    assert_eq!(
        said("0,a,1\n1,c\n2,d\n"),
        "line 3: the row has 2 fields, not 3; write at_us,key,cost, and quote a key that has commas"
    );
    assert!(said("0,\"a").starts_with("line 2: a quote is not closed; "));
}

#[test]
fn a_wrong_header_is_refused_however_many_calls_follow() {
    for (trace, problem) in [
        ("", "the header at_us,key,cost is missing"),
        ("0,a,1\n0,a,1\n", "the header should be at_us,key,cost, not \"0,a,1\""),
        ("\"at_us\n0,a,1\n", "a quote is not closed"),
    ] {
        let said = read(trace.as_bytes(), Reading::default()).unwrap_err().to_string();
        assert!(said.starts_with(&format!("line 1: {problem}; ")), "{said}");
    }
}

#[test]
fn a_trace_without_a_single_call_or_with_too_many_is_refused() {
    let said = |rows: &str, calls_max| {
        let reading = Reading { strict: false, calls_max };
        read(format!("at_us,key,cost\n{rows}").as_bytes(), reading).unwrap_err().to_string()
    };
    assert_eq!(said("", 9), "there is not a single call; write a row for each call below the header");
    assert!(said("0,a\n0,b\n", 9).starts_with("line 2: the row has 2 fields, not 3; "));
    assert_eq!(
        said("0,a,1\n0,b,1\n", 1),
        "there are more than 1 calls; take a part of them, or allow for more"
    );
}

#[test]
fn times_near_zero_are_printed_from_zero_and_dates_by_the_calendar() {
    let clock = |at: u64| traffic(&format!("{at},a,1\n")).clock();
    assert_eq!(clock(5_000_000).tell(Time::saturating_from_micros(5_000_000)).replace('\u{a0}', " "), "5 s");
    let now = 1_794_398_400_500_000;
    assert_eq!(clock(now).tell(Time::saturating_from_micros(now)), "2026-11-11 12:00:00.5");
}
