//! `sluice replay`.

use crate::{sluice, stderr, stdout};
use redis_testkit::{Options, Server};
use sluicegate::Limit;

const TRACE: &str = "at_us,key,cost\n0,user:42,1\n0,user:42,1\n1000000,user:42,1\n";

#[test]
fn the_example_of_the_help_is_true() {
    let output = sluice(&["replay", "--limit", "min-interval 2s"], TRACE);
    let expected = "allowed,limit,remaining,retry_after_us,reset_after_us,delay_us\n\
                    1,1,0,,2000000,0\n0,1,0,2000000,2000000,0\n0,1,0,1000000,1000000,0\n";
    assert_eq!(stdout(&output), expected);
    assert_eq!(output.status.code(), Some(0));
    let help = stdout(&sluice(&["replay", "--help"], ""));
    for line in expected.lines() {
        assert!(help.contains(line), "{line} is not in the help:\n{help}");
    }
}

#[test]
fn several_limits_are_all_or_nothing() {
    let limits = ["replay", "--limit", "token-bucket 10/s burst=50", "--limit", "fixed-window 2/day"];
    let trace = "at_us,key,cost\n0,a,1\n0,a,2\n0,a,1\n0,a,1\n";
    let output = sluice(&limits, trace);
    let list = sluice(&["replay", "--limit", "token-bucket 10/s burst=50 + fixed-window 2/day"], trace);
    assert_eq!(stdout(&list), stdout(&output), "a list is several limits");
    let rows: Vec<String> = stdout(&output).lines().skip(1).map(str::to_owned).collect();
    let day = 86_400_000_000_u64;
    assert_eq!(
        rows,
        [
            format!("1,2,1,,{day},0"),
            format!("0,2,1,{day},{day},0"),
            format!("1,2,0,,{day},0"),
            format!("0,2,0,{day},{day},0"),
        ]
    );
}

#[test]
fn a_bad_row_stops_it_after_the_rows_before() {
    let output =
        sluice(&["replay", "--limit", "sliding-log 5/60s"], "at_us,key,cost\n0,a,1\n0,a,-1\n0,a,1\n");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output).lines().count(), 2);
    assert_eq!(
        stderr(&output),
        "sluice: line 3: cost \"-1\" is not a whole number; use a whole number from 0 to 1000000000000\n"
    );
}

#[test]
fn a_bad_limit_is_one_line_and_exit_2() {
    let output = sluice(&["replay", "--limit", "sliding-log 5/60x"], TRACE);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    assert!(
        stderr(&output).starts_with("sluice: sliding-log 5/60x: unknown unit \"x\"; use us ms s min h d")
    );
    assert_eq!(stderr(&output).lines().count(), 1);
}

#[test]
fn count_all_does_not_go_with_other_limits() {
    let limits = ["replay", "--limit", "sliding-log 5/60s count=all", "--limit", "token-bucket 1/s"];
    let output = sluice(&limits, TRACE);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("count=all does not go with other limits"));
}

#[test]
fn a_limit_without_quotes_or_a_trace_by_name_gets_advice() {
    let words: [&[&str]; 2] =
        [&["--limit", "sliding-log", "5/60s"], &["--limit", "sliding-log 5/60s", "trace.csv"]];
    for words in words {
        let output = sluice(&[&["replay"], words].concat(), TRACE);
        assert_eq!(output.status.code(), Some(2));
        let word = words.last().unwrap();
        assert_eq!(
            stderr(&output),
            format!(
                "sluice: {word:?} stands alone; quote the limit as in --limit 'sliding-log 5/60s', and pass the trace \
                 with < trace.csv\n"
            )
        );
    }
}

#[test]
fn no_limit_at_all_shows_the_usage() {
    let output = sluice(&["replay"], TRACE);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--limit <LIMIT>"));
}

/// `sluice replay ... | head -1` must not complain.
#[cfg(unix)]
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["replay", "--limit", "sliding-log 5/60s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let trace = format!("at_us,key,cost\n{}", "0,a,1\n".repeat(100_000));
    // It stops reading once the reader of its output is gone.
    let _ = stdin.write_all(trace.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!((stderr(&output).as_str(), output.status.code()), ("", Some(0)));
}

/// More than two batches, of a few keys: costs of 0 in the middle, rows that go back in time, and
/// times over some days.
fn long_trace() -> String {
    let mut trace = String::from("at_us,key,cost\n");
    for row in 0..1_300_u64 {
        let back = if row % 17 == 3 { 900_000 } else { 0 };
        // Three times what follows is a day later.
        let at = 1_763_290_000_000_000 + row * 100_000 + row / 400 * 86_400_000_000 - back;
        let cost = if row > 520 && row % 7 == 0 { 0 } else { 1 + row / 3 % 3 };
        trace +=
            &format!("{at},{},{cost}\n", ["user:42", "Sally", "{t}x"][usize::try_from(row % 3).unwrap()]);
    }
    trace
}

/// Replays in memory and on a store, and finds the same bytes; what they are is returned.
fn replayed_on_both(url: &str, limits: &[&str], trace: &str) -> std::process::Output {
    let mut words = vec!["replay"];
    for limit in limits {
        words.extend(["--limit", limit]);
    }
    let memory = sluice(&words, trace);
    words.extend(["--store", url]);
    let shared = sluice(&words, trace);
    let different =
        stdout(&memory).lines().zip(stdout(&shared).lines()).position(|(one, other)| one != other);
    assert_eq!(different, None, "{limits:?}: the first line that differs, from 0");
    assert_eq!(stdout(&memory), stdout(&shared), "{limits:?}");
    assert_eq!(stderr(&memory), stderr(&shared), "{limits:?}");
    assert_eq!(memory.status.code(), shared.status.code(), "{limits:?}");
    memory
}

#[test]
fn a_shared_store_gives_the_bytes_of_memory_and_keeps_nothing() {
    let server = Server::start(&Options::redis());
    let trace = long_trace();
    let lists: [&[&str]; 14] = [
        &["token-bucket 2/s burst=5"],
        &["token-bucket 2/s burst=50 initial=3"],
        &["leaky-bucket 2/s capacity=5"],
        &["fixed-window 20/10s"],
        &["fixed-window 200/day tz=Europe/Berlin"],
        &["sliding-window 20/10s"],
        &["sliding-log 20/10s"],
        &["sliding-log 20/10s count=all"],
        &["min-interval 500ms"],
        &["pacer 3/s"],
        &["smooth 7/s"],
        &["smooth 7/s burst=3 initial=2"],
        &["smooth 9/s warmup=5s cold=2.5"],
        &["token-bucket 2/s burst=50", "sliding-log 20/10s", "fixed-window 200/day tz=Europe/Berlin"],
    ];
    for algorithm in Limit::CHECKS {
        assert!(lists.iter().any(|limits| limits[0].starts_with(algorithm)), "no {algorithm} is replayed");
    }
    for limits in lists {
        let output = replayed_on_both(&server.url(), limits, &trace);
        let rows = stdout(&output);
        assert_eq!((rows.lines().count(), output.status.code()), (1_301, Some(0)), "{limits:?}");
        for first in ["1,", "0,"] {
            assert!(rows.lines().any(|row| row.starts_with(first)), "{limits:?}: no row begins with {first}");
        }
        assert_eq!(server.cli(&["DBSIZE"]), "0", "{limits:?}");
    }
}

#[test]
fn a_bad_row_stops_a_replay_on_a_shared_store_after_the_rows_before() {
    let server = Server::start(&Options::redis());
    let trace = long_trace() + "0,a,-1\n0,a,1\n";
    let output = replayed_on_both(&server.url(), &["sliding-log 20/10s"], &trace);
    assert_eq!((stdout(&output).lines().count(), output.status.code()), (1_301, Some(2)));
    assert!(stderr(&output).starts_with("sluice: line 1302: cost \"-1\""), "{}", stderr(&output));
    assert_eq!(server.cli(&["DBSIZE"]), "0");
}
